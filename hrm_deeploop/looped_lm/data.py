"""Token folders: made from a stream of documents, checked by hash, read as windows.

    data/lm-NAME/
        manifest.json                what follows, by hash, as arc_data's manifests
        train.bin, validation.bin    token ids, uint16 (uint32 past 65536 words), little-endian;
                                     every document ends in the tokenizer's end-of-text id
        validation_documents.bin     uint64: where each validation document begins, and the end
        tokenizer.json               where the tokenizer is a file

A document's place, train or validation, follows from its content, so equal documents never stand
on both sides.
"""

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from arc_data.batches import EpochStream
from arc_data.json_files import read_json, write_json
from arc_data.manifest import manifest_digest
from hrm_deeploop.looped_lm.tokenizer import FILE as TOKENIZER_FILE
from hrm_deeploop.looped_lm.tokenizer import FileTokenizer, Tokenizer, tokenizer_of

SCHEMA = "hrm_deeploop.tokens/1"
BUILDER_VERSION = 1
MANIFEST = "manifest.json"
TRAIN, VALIDATION, DOCUMENTS = "train.bin", "validation.bin", "validation_documents.bin"
SPLITS = (TRAIN, VALIDATION)
OFFSETS_DTYPE = "<u8"
DOCUMENTS_AT_ONCE = 1024
CHUNK_BYTES = 1 << 24
HASH_BITS = 64


@dataclass(frozen=True)
class TokenDataset:
    """A token folder, its ids mapped from the disk.

    Attributes:
        path: The folder.
        manifest: What it says of itself.
        train: (T,) ids.
        validation: (T,) ids.
        documents: (validation documents + 1,) int64, where each begins in ``validation``.
    """

    path: Path
    manifest: dict[str, Any]
    train: NDArray[Any]
    validation: NDArray[Any]
    documents: NDArray[np.int64]

    @property
    def name(self) -> str:
        """As ``lm.dataset`` names it."""
        return self.manifest["options"]["name"]

    @property
    def digest(self) -> str:
        """Of everything that determines the tokens."""
        return self.manifest["digest"]

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.manifest["vocab_size"]

    def tokenizer(self) -> Tokenizer:
        """What the tokens were made with."""
        return tokenizer_of(self.path, self.manifest["options"]["tokenizer"])


class _Writer:
    """A token file being written."""

    def __init__(self, file: IO[bytes], tokenizer: Tokenizer, dtype: str) -> None:
        self.file = file
        self.tokenizer = tokenizer
        self.dtype = dtype
        self.sha256 = hashlib.sha256()
        self.num_tokens = self.num_bytes = 0
        self.starts: list[int] = []

    def write(self, document: bytes, ids: NDArray[np.int64], *, keep_start: bool) -> None:
        """Appends a document; ``keep_start`` where its place will be asked for."""
        data = np.append(ids, self.tokenizer.end_of_text).astype(self.dtype).tobytes()
        self.file.write(data)
        self.sha256.update(data)
        if keep_start:
            self.starts.append(self.num_tokens)
        self.num_tokens += len(ids) + 1
        self.num_bytes += len(document)

    def describe(self) -> dict[str, Any]:
        """What the manifest says of it."""
        sizes = {"num_tokens": self.num_tokens, "num_bytes": self.num_bytes}
        return {**sizes, "sha256": self.sha256.hexdigest()}


def write_tokens(
    documents: Iterable[bytes],
    out: Path,
    *,
    name: str,
    upstream: str,
    tokenizer: Tokenizer,
    validation_share: float,
) -> dict[str, Any]:
    """Writes a token folder from a stream of documents; complete or not there at all.

    Args:
        documents: UTF-8 texts, never held all at once.
        out: The folder, which must not exist.
        name: Of the data set.
        upstream: Where the documents come from.
        tokenizer: Text to ids.
        validation_share: Probability that a document's hash puts it into validation.

    Returns:
        The manifest.

    Raises:
        FileExistsError: If ``out`` exists.
        ValueError: If a split stays empty.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; remove it, or write to another --out")
    partial = out.with_name(out.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    try:
        manifest = _write_files(documents, partial, tokenizer, validation_share)
    except BaseException:
        shutil.rmtree(partial)
        raise
    manifest |= {
        "schema": SCHEMA,
        "builder": BUILDER_VERSION,
        "options": {
            "name": name,
            "tokenizer": tokenizer.describe(),
            "validation_share": validation_share,
        },
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
    }
    manifest["sources"][0] |= {"name": name, "upstream": upstream}
    manifest["digest"] = manifest_digest(manifest)
    if isinstance(tokenizer, FileTokenizer):
        (partial / TOKENIZER_FILE).write_bytes(tokenizer.content)
    write_json(partial / MANIFEST, manifest)
    partial.rename(out)
    return manifest


def _write_files(
    documents: Iterable[bytes], folder: Path, tokenizer: Tokenizer, validation_share: float
) -> dict[str, Any]:
    """Writes the token files; what the manifest says of them."""
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    source = hashlib.sha256()
    with open(folder / TRAIN, "wb") as train, open(folder / VALIDATION, "wb") as validation:
        writers = [_Writer(file, tokenizer, dtype) for file in (train, validation)]
        stream = iter(documents)
        while chunk := list(itertools.islice(stream, DOCUMENTS_AT_ONCE)):
            for document, ids in zip(chunk, tokenizer.encode(chunk), strict=True):
                content = hashlib.sha256(document).digest()
                source.update(content)
                place = int.from_bytes(content[: HASH_BITS // 8], "big") / 2**HASH_BITS
                held_out = place < validation_share
                writers[held_out].write(document, ids, keep_start=held_out)
    for split, writer in zip(SPLITS, writers, strict=True):
        if writer.num_tokens == 0:
            raise ValueError(
                f"no document fell into {split}; give more documents or another --validation-share"
            )
    starts = np.array([*writers[1].starts, writers[1].num_tokens], OFFSETS_DTYPE)
    (folder / DOCUMENTS).write_bytes(starts.tobytes())
    files: dict[str, Any] = {split: w.describe() for split, w in zip(SPLITS, writers, strict=True)}
    files[DOCUMENTS] = {
        "num_documents": len(starts) - 1,
        "sha256": hashlib.sha256(starts.tobytes()).hexdigest(),
    }
    return {"dtype": dtype, "files": files, "sources": [{"sha256": source.hexdigest()}]}


def load(path: Path) -> TokenDataset:
    """Opens a token folder; sizes are checked, hashes are not.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If it is no token folder or a file is cut off; the message names it.
    """
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else manifest
        raise ValueError(
            f"{path / MANIFEST}: expected schema {SCHEMA}, found {str(found)[:60]!r}; give a "
            "folder that lm data made"
        )
    digest = manifest_digest(manifest)
    if digest != manifest["digest"]:
        raise ValueError(
            f"{path / MANIFEST}: digest must be {digest}, found {manifest['digest']}; the manifest "
            "was changed, make the folder again"
        )
    files = manifest["files"]
    train, validation = (
        _map(path / split, manifest["dtype"], files[split]["num_tokens"]) for split in SPLITS
    )
    starts = _map(path / DOCUMENTS, OFFSETS_DTYPE, files[DOCUMENTS]["num_documents"] + 1)
    return TokenDataset(path, manifest, train, validation, starts.astype(np.int64))


def verify(path: Path, name: str | None = None) -> TokenDataset:
    """Opens a token folder and recomputes every hash.

    Args:
        path: The folder.
        name: What ``lm.dataset`` calls it; None: anything.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, holds an id past the vocabulary, or the folder is of
            another name; the message names it.
    """
    dataset = load(path)
    if name not in (None, dataset.name):
        raise ValueError(
            f"lm.dataset is {name}, but {path} holds {dataset.name}; correct data_dir or the name"
        )
    files = dataset.manifest["files"]
    _verify_ids(path / TRAIN, dataset.train, files[TRAIN], dataset.vocab_size)
    _verify_ids(path / VALIDATION, dataset.validation, files[VALIDATION], dataset.vocab_size)
    _check_sha256(
        path / DOCUMENTS,
        files[DOCUMENTS]["sha256"],
        hashlib.sha256((path / DOCUMENTS).read_bytes()).hexdigest(),
    )
    return dataset


def _map(path: Path, dtype: str, count: int) -> NDArray[Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected token ids, found no file; make the folder again")
    expected = count * np.dtype(dtype).itemsize
    found = path.stat().st_size
    if found != expected:
        raise ValueError(
            f"{path}: expected {expected} bytes, found {found}; the file is cut off or replaced, "
            "make the folder again"
        )
    return np.memmap(path, dtype=dtype, mode="r")


def _verify_ids(
    path: Path, ids: NDArray[Any], described: Mapping[str, Any], vocab_size: int
) -> None:
    sha256, largest = hashlib.sha256(), 0
    step = CHUNK_BYTES // ids.itemsize
    for start in range(0, len(ids), step):
        chunk = np.ascontiguousarray(ids[start : start + step])
        sha256.update(chunk.data)
        largest = max(largest, int(chunk.max()))
    if largest >= vocab_size:
        raise ValueError(
            f"{path}: ids must be below vocab_size {vocab_size}, found {largest}; make the folder "
            "again"
        )
    _check_sha256(path, described["sha256"], sha256.hexdigest())


def _check_sha256(path: Path, expected: str, found: str) -> None:
    if found != expected:
        raise ValueError(
            f"{path}: sha256 must be {expected}, found {found}; the file was changed, make the "
            "folder again"
        )


class WindowOrder(EpochStream):
    """Windows of the training tokens: in an epoch each once, in random order.

    The windows of an epoch lie side by side from a random first token on.

    Args:
        num_tokens: T.
        context: Tokens of a window; one more follows each.
        seed: The run's seed.

    Raises:
        ValueError: If there is no whole window.
    """

    def __init__(self, num_tokens: int, context: int, seed: int) -> None:
        self._context = context
        if num_tokens < 2 * context:
            raise ValueError(
                f"lm.context={context} needs {2 * context} training tokens or more, found "
                f"{num_tokens}; give a longer text or a shorter lm.context"
            )
        # One window less, so that the last has room for any first token.
        super().__init__(num_tokens // context - 1, seed)

    def _draw_epoch(self, epoch: int) -> NDArray[np.int64]:
        stream = self._random_of(epoch)
        first = stream.randint(self._context)
        return stream.permutation(self.examples_per_epoch) * self._context + first


def windows(ids: NDArray[Any], starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """(B, length) ids from each start on."""
    return np.stack([ids[start : start + length] for start in starts]).astype(np.int64)
