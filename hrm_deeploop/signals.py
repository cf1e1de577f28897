"""Signals that end a run in order: finish the step, save, exit; a second one stops at once.

SIGTERM and SIGUSR1 are what schedulers send before they take a machine away (SLURM:
``--signal=USR1@120``), SIGINT is Ctrl-C.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Stopped(KeyboardInterrupt):
    """A run that a signal ended; ``str`` says what to do next.

    Args:
        signum: The signal.
        message: For people.
    """

    def __init__(self, signum: int, message: str = "") -> None:
        self.signal_name = signal.Signals(signum).name
        self.exit_status = 128 + signum
        super().__init__(message or f"stopped by {self.signal_name}")


class StopSignals:
    """Takes over ``STOP_SIGNALS`` while entered; must be entered in the main thread.

    The first signal is noted in ``received`` inside ``deferred()`` and raises ``Stopped``
    elsewhere.  From then on the signals have their default effect again: the process ends.

    Attributes:
        received: The signal that came, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._deferring = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {signum: signal.signal(signum, self._handle) for signum in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a signal is only noted: the caller looks at ``received`` and ends in order."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Inside ``deferred``, a stretch in which a signal may interrupt at any point."""
        self._deferring = False
        try:
            yield
        finally:
            self._deferring = True

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.received = signum
        if not self._deferring:
            raise Stopped(signum)
        name = signal.Signals(signum).name
        # Past the buffer: the handler may have come in the middle of another print.
        os.write(2, f"\n{name}: finishing the step and saving; once more stops at once\n".encode())
