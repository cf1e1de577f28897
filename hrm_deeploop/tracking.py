"""Metrics: metrics.jsonl in the run directory always, wandb beside it when asked."""

import importlib.util
import json
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from arc_data.json_files import write_beside
from hrm_deeploop.config import TrackingConfig

FILE = "metrics.jsonl"
WANDB_INIT_TIMEOUT_S = 30
WANDB_FINISH_TIMEOUT_S = 60


def check_installed(config: TrackingConfig) -> None:
    """Checks before a run begins that what it asks for is there.

    Raises:
        ValueError: If wandb is asked for and not installed.
    """
    if config.wandb_mode is not None and importlib.util.find_spec("wandb") is None:
        raise ValueError("tracking=wandb needs the package wandb: pip install wandb")


class Tracker:
    """Appends one JSON object per call to metrics.jsonl, flushed; also to wandb if configured.

    Args:
        run_dir: The run's folder.
        config: Whether and how wandb is used; it is imported only then.
        run_config: Resolved configuration, for wandb.
        last_step: The step the run goes on from; records of later steps, which will be made
            again, are dropped, and a line that a dying process left unfinished with them.
    """

    def __init__(
        self, run_dir: Path, config: TrackingConfig, run_config: dict[str, Any], last_step: int
    ) -> None:
        _drop_after(run_dir / FILE, last_step)
        self._file = (run_dir / FILE).open("a", encoding="utf-8")
        self._wandb = None
        if config.wandb_mode is not None:
            self._wandb = _start_wandb(run_dir, config, run_config)

    def log(self, values: dict[str, Any]) -> None:
        """Writes one record; ``values`` holds ``step`` and plain numbers."""
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()
        self.show(values)

    def show(self, values: dict[str, Any]) -> None:
        """Sends values to wandb only."""
        if self._wandb is not None:
            try:
                self._wandb.log(values, step=values["step"])
            except Exception as error:  # noqa: BLE001 - tracking must not end a training
                _warn("stopped logging to wandb", error)
                self._wandb = None

    def close(self, failed: bool = False) -> None:
        """Ends the file and the wandb run."""
        self._file.close()
        if self._wandb is not None:
            try:
                self._wandb.finish(exit_code=int(failed))
            except Exception as error:  # noqa: BLE001 - as above
                _warn("could not finish the wandb run", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(failed=kind is not None)


def _drop_after(path: Path, last_step: int) -> None:
    if not path.is_file():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [
        line for line in lines if line.endswith(b"\n") and json.loads(line)["step"] <= last_step
    ]
    if len(kept) < len(lines):
        with write_beside(path) as file:
            file.writelines(kept)


def _start_wandb(run_dir: Path, config: TrackingConfig, run_config: dict[str, Any]) -> Any:
    """The wandb run, or None after one warning; never asks for anything."""
    import wandb

    try:
        mode = config.wandb_mode
        if mode == "online" and not wandb.login(prompt=False):
            _warn("wandb keeps its files offline", "no API key; set WANDB_API_KEY or wandb login")
            mode = "offline"
        return wandb.init(
            project=config.wandb_project,
            mode=mode,
            dir=run_dir,
            name=run_dir.name,
            config=run_config,
            settings=wandb.Settings(
                silent=True,
                init_timeout=WANDB_INIT_TIMEOUT_S,
                finish_timeout=WANDB_FINISH_TIMEOUT_S,
            ),
        )
    except Exception as error:  # noqa: BLE001 - the network must not end a training
        _warn("wandb is off for this run", error)
        return None


def _warn(what: str, why: object) -> None:
    reason = " ".join(str(why).split())
    warnings.warn(f"{what}: {reason}; metrics.jsonl has everything", stacklevel=3)
