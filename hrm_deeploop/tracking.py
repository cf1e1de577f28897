"""Metrics: metrics.jsonl in the run directory always, wandb beside it when asked."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hrm_deeploop.config import TrackingConfig


class Tracker:
    """Appends one JSON object per call to metrics.jsonl, flushed; also to wandb if configured.

    Args:
        run_dir: The run's folder.
        config: Whether and how wandb is used; it is imported only then.
        run_config: Resolved configuration, for wandb.
    """

    def __init__(self, run_dir: Path, config: TrackingConfig, run_config: dict[str, Any]) -> None:
        self._file = (run_dir / "metrics.jsonl").open("a", encoding="utf-8")
        self._wandb: Any = None
        if config.wandb_mode is not None:
            import wandb

            self._wandb = wandb.init(
                project=config.wandb_project,
                mode=config.wandb_mode,
                dir=run_dir,
                name=run_dir.name,
                config=run_config,
                settings=wandb.Settings(silent=True),
            )

    def log(self, values: dict[str, Any]) -> None:
        """Writes one record; ``values`` holds ``step`` and plain numbers."""
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()
        if self._wandb is not None:
            self._wandb.log(values, step=values["step"])

    def close(self, failed: bool = False) -> None:
        """Ends the file and the wandb run."""
        self._file.close()
        if self._wandb is not None:
            self._wandb.finish(exit_code=int(failed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(failed=kind is not None)
