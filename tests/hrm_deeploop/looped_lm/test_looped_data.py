"""Token folders: what is written, what is refused, which windows a run sees."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_text import toy_documents

from hrm_deeploop.looped_lm import text
from hrm_deeploop.looped_lm.data import (
    DOCUMENTS,
    MANIFEST,
    TRAIN,
    VALIDATION,
    TokenDataset,
    WindowOrder,
    verify,
    windows,
    write_tokens,
)
from hrm_deeploop.looped_lm.tokenizer import ByteTokenizer, FileTokenizer


def write(documents: Iterator[bytes] | list[bytes], out: Path, **settings: Any) -> TokenDataset:
    given = {
        "name": "toy",
        "upstream": "a test",
        "tokenizer": ByteTokenizer(),
        "validation_share": 0.2,
    }
    write_tokens(documents, out, **{**given, **settings})
    return verify(out)


@pytest.fixture
def copied(toy: TokenDataset, tmp_path: Path) -> Path:
    """A copy of the toy folder that a test may damage."""
    return Path(shutil.copytree(toy.path, tmp_path / "copy"))


def test_every_document_is_in_one_split_and_ends_in_end_of_text(toy: TokenDataset) -> None:
    found = []
    for ids in (toy.train, toy.validation):
        assert ids[-1] == 0
        found += bytes(ids[:-1].astype(np.uint8)).split(b"\0")
    assert sorted(found) == sorted(toy_documents())
    held_out = bytes(toy.validation.astype(np.uint8))
    starts = toy.documents
    assert starts[0] == 0
    assert starts[-1] == len(toy.validation)
    for begin, end in pairwise(starts):
        document = held_out[begin : end - 1]
        assert document in toy_documents()
        assert b"\0" not in document


def test_the_manifest(toy: TokenDataset, tmp_path: Path) -> None:
    manifest = toy.manifest
    assert manifest["vocab_size"] == 256
    assert manifest["dtype"] == "<u2"
    num_documents = len(toy_documents())
    files = manifest["files"]
    num_bytes = sum(files[split]["num_bytes"] for split in (TRAIN, VALIDATION))
    assert num_bytes == sum(map(len, toy_documents()))
    num_tokens = sum(files[split]["num_tokens"] for split in (TRAIN, VALIDATION))
    assert num_tokens == num_bytes + num_documents
    again = write(iter(toy_documents()), tmp_path / "again")
    assert again.digest == toy.digest
    other = write(toy_documents()[::-1], tmp_path / "other")
    assert other.digest != toy.digest
    # Where a document goes does not depend on the others, and equal ones stay together.
    twice = write(toy_documents() * 2, tmp_path / "twice")
    assert len(twice.validation) == 2 * len(toy.validation)


def change_byte(path: Path, place: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] = value
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def rename(path: Path) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["vocab_size"] = 300
    (path / MANIFEST).write_text(json.dumps(manifest))


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "wrong hash": (
        lambda path: change_byte(path / TRAIN, 20, 1),
        r"train.bin: sha256 must be \w+, found \w+",
    ),
    "wrong hash of documents": (
        lambda path: change_byte(path / DOCUMENTS, 8, 1),
        r"validation_documents.bin: sha256 must be",
    ),
    "cut off": (lambda path: cut(path / VALIDATION), r"validation.bin: expected \d+ bytes, found"),
    "id past the vocabulary": (
        lambda path: change_byte(path / VALIDATION, 21, 1),
        r"validation.bin: ids must be below vocab_size 256, found \d+",
    ),
    "missing": (lambda path: (path / TRAIN).unlink(), "train.bin: expected token ids, found no"),
    "changed manifest": (rename, "manifest.json: digest must be"),
    "no manifest": (lambda path: (path / MANIFEST).unlink(), "expected a JSON file"),
    "other manifest": (
        lambda path: (path / MANIFEST).write_text('{"schema": "x"}') and None,
        "expected schema hrm_deeploop.tokens/1, found 'x'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(damage: str, copied: Path) -> None:
    action, message = DAMAGE[damage]
    verify(copied)
    action(copied)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        verify(copied)


def test_another_name_is_refused(toy_dir: Path) -> None:
    with pytest.raises(ValueError, match=r"lm.dataset is stdlib, but .* holds toy"):
        verify(toy_dir, "stdlib")


def test_nothing_is_overwritten_or_left_half(tmp_path: Path) -> None:
    write(toy_documents(), tmp_path / "a")
    with pytest.raises(FileExistsError, match="a exists; remove it"):
        write(toy_documents(), tmp_path / "a")
    with pytest.raises(ValueError, match=r"no document fell into train.bin"):
        write([b"one"], tmp_path / "b", validation_share=0.9999)

    def broken() -> Iterator[bytes]:
        yield b"one"
        raise ValueError("line 2 is none")

    with pytest.raises(ValueError, match="line 2"):
        write(broken(), tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_epoch_has_every_window_once() -> None:
    order = WindowOrder(103, 10, seed=3)
    assert order.examples_per_epoch == 9
    firsts = set()
    for epoch in range(20):
        rows = order.epoch_rows(epoch)
        assert np.array_equal(np.diff(np.sort(rows)), np.full(8, 10))
        assert rows.min() >= 0
        assert rows.max() + 10 + 1 <= 103
        firsts.add(int(rows.min()))
    assert len(firsts) > 5
    assert not np.array_equal(order.epoch_rows(0), np.sort(order.epoch_rows(0)))
    assert np.array_equal(WindowOrder(103, 10, seed=3).epoch_rows(7), order.epoch_rows(7))
    assert not np.array_equal(WindowOrder(103, 10, seed=4).epoch_rows(7), order.epoch_rows(7))
    with pytest.raises(ValueError, match="needs 20 training tokens or more, found 19"):
        WindowOrder(19, 10, seed=0)


def test_windows() -> None:
    ids = np.arange(20, dtype=np.uint16)
    assert windows(ids, np.array([3, 0]), 4).tolist() == [[3, 4, 5, 6], [0, 1, 2, 3]]


def test_the_standard_library_is_there_in_a_fixed_order() -> None:
    documents = list(text.stdlib_documents())
    assert documents == list(text.stdlib_documents())
    assert len(documents) > 300
    assert Path(json.__file__).read_bytes() in documents
    assert not any(b"\0" in document for document in documents)
    assert text.stdlib_upstream() == f"CPython {sys.version.split()[0]}"


def test_text_and_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("ä\n")
    assert list(text.text_documents([str(tmp_path / "a b")])) == ["ä\n".encode()]
    lines = tmp_path / "lines"
    lines.write_text('{"t": "one"}\n\n{"t": "zwei ä"}\n')
    assert list(text.json_documents([str(lines)], "t")) == [b"one", "zwei ä".encode()]
    with pytest.raises(ValueError, match=r"lines, line 1: expected an object with text in 'u'"):
        list(text.json_documents([str(lines)], "u"))
    for bad in ("[1]", "{", '{"t": 3}', '{"t": "\\ud800"}'):
        lines.write_text('{"t": "one"}\n' + bad + "\n")
        with pytest.raises(ValueError, match="lines, line 2: expected an object with text in 't'"):
            list(text.json_documents([str(lines)], "t"))
    for read in (text.text_documents, lambda paths: text.json_documents(paths, "t")):
        with pytest.raises(FileNotFoundError, match="nowhere: expected"):
            list(read(["nowhere"]))


def test_a_tokenizer_file(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra lm is not installed")
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator([d.decode() for d in toy_documents()], trainer)
    path = tmp_path / "tokenizer.json"
    trained.save(str(path))
    tokenizer = FileTokenizer(path, "<|endoftext|>")
    dataset = write(toy_documents(), tmp_path / "out", tokenizer=tokenizer)
    files = dataset.manifest["files"]
    assert files[TRAIN]["num_tokens"] < files[TRAIN]["num_bytes"]
    assert dataset.vocab_size == trained.get_vocab_size()
    again = dataset.tokenizer()
    begin, end = dataset.documents[:2]
    document = again.decode(dataset.validation[begin : end - 1].tolist())
    assert document.encode() in toy_documents()
    assert dataset.validation[end - 1] == tokenizer.end_of_text
    with pytest.raises(ValueError, match="has no token 'nope'; give --end-of-text"):
        FileTokenizer(path, "nope")
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"is no tokenizer.json"):
        FileTokenizer(path, "<|endoftext|>")
    change_byte(dataset.path / "tokenizer.json", 1, 32)
    with pytest.raises(ValueError, match=r"is no|is not the one"):
        dataset.tokenizer()
