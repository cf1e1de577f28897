"""JSON files: written whole or not at all, read with errors that name the file."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def write_beside(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a temporary sibling of ``path`` that takes its name once it is complete.

    A process that dies while writing leaves ``path`` as it was, and at worst a hidden sibling.

    Args:
        path: The file to write; its folder must exist. An existing file is replaced.

    Yields:
        A binary file open for writing.

    Raises:
        FileNotFoundError: If the folder does not exist.
        IsADirectoryError: If ``path`` is a folder.
        OSError: If it cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, found a folder; name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: its folder does not exist; make it or correct the path")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | Path, obj: Any) -> None:
    """Writes ``obj`` as JSON, atomically and with bytes that depend on ``obj`` alone.

    Keys keep the order of ``obj``: a ladder of K reads 1, 2, 10 and not 1, 10, 2.

    Args:
        path: The file to write; an existing file is replaced.
        obj: Dicts with text keys, lists, text, finite numbers, booleans and None.

    Raises:
        ValueError: If ``obj`` holds NaN or an infinity.
        TypeError: If ``obj`` holds anything that JSON has no form for.
    """
    text = json.dumps(obj, indent=1, ensure_ascii=False, allow_nan=False)
    with write_beside(path) as file:
        file.write(text.encode("utf-8") + b"\n")


def read_json(path: str | Path) -> Any:
    """Reads one JSON file strictly.

    Args:
        path: The file.

    Returns:
        The value; no object in it has a key twice.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8, not JSON (cut off, say), or an object repeats a key.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a JSON file, found no file; correct the path")
    try:
        return json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected JSON in UTF-8, found other bytes at {error.start};"
            " save the file as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected JSON in UTF-8, found {error}; repair or remove the file"
        ) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} twice in one object")
    return value
