"""Text <-> token ids: plain bytes, or a tokenizer.json through the package ``tokenizers``."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BYTES = "bytes"
FILE = "tokenizer.json"


class Tokenizer(Protocol):
    """What token files are made and read with."""

    vocab_size: int
    end_of_text: int
    """Id that ends every document."""

    def describe(self) -> dict[str, Any]:
        """What a manifest records."""

    def encode(self, documents: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Ids of each document, without ``end_of_text``."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; what is no text becomes a replacement character."""


class ByteTokenizer:
    """Ids are bytes; byte 0, which text does not hold, ends a document."""

    vocab_size = 256
    end_of_text = 0

    def describe(self) -> dict[str, Any]:
        """Its name."""
        return {"name": BYTES}

    def encode(self, documents: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """The bytes."""
        return [np.frombuffer(document, np.uint8).astype(np.int64) for document in documents]

    def decode(self, ids: Sequence[int]) -> str:
        """UTF-8."""
        return bytes(ids).decode("utf-8", "replace")


class FileTokenizer:
    """A tokenizer.json, such as GPT-2's.

    Args:
        path: The file.
        end_of_text: Its token that ends a document.

    Raises:
        ValueError: If the package ``tokenizers`` is missing, the file is none, or it does not
            know ``end_of_text``.
    """

    def __init__(self, path: Path, end_of_text: str) -> None:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise ValueError(
                f"{path} needs the package tokenizers: pip install 'hrm-deeploop[lm]'"
            ) from None
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a tokenizer.json, found no file")
        self.content = path.read_bytes()
        self.end_of_text_token = end_of_text
        try:
            self._loaded = Loaded.from_str(self.content.decode())
        except Exception as error:  # noqa: BLE001 - the package raises Exception itself
            raise ValueError(f"{path} is no tokenizer.json: {error}") from None
        found = self._loaded.token_to_id(end_of_text)
        if found is None:
            raise ValueError(f"{path} has no token {end_of_text!r}; give --end-of-text")
        self.end_of_text = int(found)
        self.vocab_size = self._loaded.get_vocab_size()

    def describe(self) -> dict[str, Any]:
        """Hash of the file and the token that ends a document."""
        digest = hashlib.sha256(self.content).hexdigest()
        return {"name": FILE, "sha256": digest, "end_of_text": self.end_of_text_token}

    def encode(self, documents: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Ids, computed on all cores."""
        texts = [document.decode() for document in documents]
        encoded = self._loaded.encode_batch(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.int64) for encoding in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """The text, special tokens left out."""
        return self._loaded.decode(list(ids))


def tokenizer_of(folder: Path, described: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a token folder, from what its manifest says.

    Raises:
        ValueError: If the folder's tokenizer.json is another one.
    """
    if described["name"] == BYTES:
        return ByteTokenizer()
    tokenizer = FileTokenizer(folder / FILE, described["end_of_text"])
    if tokenizer.describe() != described:
        raise ValueError(f"{folder / FILE} is not the one the tokens were made with; restore it")
    return tokenizer
