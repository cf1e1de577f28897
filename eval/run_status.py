"""What state a run directory is in, decided from its files; needs no torch."""

import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json

STATES = ("running", "finished", "interrupted", "failed")
STATUS_FILE = "status.json"
LOCK_FILE = "lock"


def run_state(run_dir: Path) -> str:
    """Tells a live run from one whose process has died without a word.

    A run that says ``running`` is alive while a process holds ``lock`` with flock; where there is
    no such file, while its process exists on this host (on another host it is believed).

    Args:
        run_dir: Folder with status.json and, while or since a process trains there, ``lock``.

    Returns:
        One of ``STATES``; ``interrupted`` also for a ``running`` that is dead.

    Raises:
        FileNotFoundError: If there is no status.json.
        ValueError: If it is damaged or its state is unknown.
    """
    path = run_dir / STATUS_FILE
    while True:
        status = read_json(path)
        state = status.get("state") if isinstance(status, Mapping) else None
        if state not in STATES:
            raise ValueError(
                f"{path}: state must be one of {list(STATES)}, found {state!r}; repair the file"
            )
        if state != "running" or _is_alive(run_dir, status):
            return str(state)
        # The run may have ended, or been resumed, between the two looks: then look again.
        if read_json(path) == status:
            return "interrupted"


def _is_alive(run_dir: Path, status: Mapping[str, Any]) -> bool:
    lock = run_dir / LOCK_FILE
    if lock.is_file():
        # A shared lock needs no right to write, and two readers do not see each other.
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
    if status.get("host") != socket.gethostname():
        return True
    pid = status.get("pid")
    if type(pid) is not int or pid < 1:
        raise ValueError(
            f"{run_dir / STATUS_FILE}: pid must be a whole number above 0, found {pid!r};"
            " repair the file"
        )
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter: no process can have this number
        return False
    except PermissionError:  # it exists, and is somebody else's
        return True
    return True
