"""Where documents come from: the standard library's own source, text files, JSON lines."""

import json
import platform
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

STDLIB = "stdlib"
# Not in every interpreter, or not of it.
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "idlelib", "lib2to3"}
LEFT_OUT |= {"tkinter", "turtledemo", "ensurepip"}
OF_ONE_BUILD = ("config-", "_sysconfigdata")
STDIN = "-"


def stdlib_documents() -> Iterator[bytes]:
    """The Python sources of this interpreter's standard library, sorted by path.

    Tests, and the parts that distributions leave out, are not among them.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    for name in sorted(paths):
        if not set(name.split("/")) & LEFT_OUT and not name.startswith(OF_ONE_BUILD):
            yield paths[name].read_bytes()


def stdlib_upstream() -> str:
    """Which standard library it is."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def text_documents(paths: Iterable[str]) -> Iterator[bytes]:
    """Each file is a document; ``-`` is standard input.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    for path in paths:
        if path == STDIN:
            yield sys.stdin.buffer.read()
        elif Path(path).is_file():
            yield Path(path).read_bytes()
        else:
            raise FileNotFoundError(f"{path}: expected a text file, found none; correct the path")


def json_documents(paths: Iterable[str], field: str) -> Iterator[bytes]:
    """Each line is an object with the document's text; ``-`` is standard input.

    Args:
        paths: Files of JSON lines, read line by line.
        field: The text's key.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is no such object; the message names file and line.
    """
    for path in paths:
        if path == STDIN:
            yield from _lines(sys.stdin.buffer, path, field)
        elif Path(path).is_file():
            with Path(path).open("rb") as file:
                yield from _lines(file, path, field)
        else:
            raise FileNotFoundError(f"{path}: expected JSON lines, found no file; correct the path")


def _lines(file: IO[bytes], path: str, field: str) -> Iterator[bytes]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
            yield text.encode()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}, line {number}: expected an object with text in {field!r}, found "
                f"{type(error).__name__}: {error}; give --field, or mend the line"
            ) from None
