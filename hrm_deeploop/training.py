"""fit: the training loop of any workload, with schedule, logging, checkpoints and status."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import hrm_deeploop
from hrm_deeploop import checkpoint
from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.ema import EMA
from hrm_deeploop.progress import Progress
from hrm_deeploop.reasoner import EMA_PREFIX
from hrm_deeploop.run_dir import RunDir
from hrm_deeploop.schedule import lr_ratio
from hrm_deeploop.settings import to_dict
from hrm_deeploop.tracking import Tracker
from hrm_deeploop.workload import Workload


class Trainer:
    """One run's optimizer, averages, files and progress.

    Args:
        workload: Model, data and loss.
        config: The run.
        run: Its directory.
        meta: What every checkpoint's description says beside step and configuration.
    """

    def __init__(
        self, workload: Workload, config: TrainConfig, run: RunDir, meta: dict[str, Any]
    ) -> None:
        optim = config.optim
        self.workload = workload
        self.config = config
        self.run = run
        self.last_step = workload.horizon_steps
        if config.max_steps is not None:
            self.last_step = min(self.last_step, config.max_steps)
        self.meta = {
            "hrm_deeploop": hrm_deeploop.__version__,
            "config": to_dict(config),
            "seed": config.seed,
            "final_step": self.last_step,
            **meta,
        }
        self.optimizer = AdamATan2(
            workload.module.parameters(),
            lr=optim.lr,
            beta1=optim.beta1,
            beta2=optim.beta2,
            weight_decay=optim.weight_decay,
            bias_correction=optim.bias_correction,
        )
        self.ema = None if optim.ema is None else EMA(workload.module, optim.ema)
        self.step = 0
        self._sums: dict[str, list[Tensor]] = {}

    def fit(self) -> Path:
        """Trains to the end; returns the final checkpoint's path.

        Raises:
            FloatingPointError: If a metric or a weight is not finite.
        """
        with Tracker(self.run.path, self.config.tracking, to_dict(self.config)) as tracker:
            return self._loop(tracker)

    def _loop(self, tracker: Tracker) -> Path:
        every = self.config.checkpoint_every_steps
        progress = Progress(self.last_step, "step", start=self.step)
        window_start = time.perf_counter()
        for step in range(self.step + 1, self.last_step + 1):
            ratio = self._train_step(step)
            self.step = self.run.step = step
            is_last = step == self.last_step
            if step % self.config.log_every_steps == 0 or is_last:
                record = self._record(step, ratio, time.perf_counter() - window_start)
                tracker.log(record)
                progress.show(step, _shown(record))
                window_start = time.perf_counter()
            if not is_last and every is not None and step % every == 0:
                save_start = time.perf_counter()
                self._save()
                window_start += time.perf_counter() - save_start
        progress.close()
        return self._save()

    def _train_step(self, step: int) -> float:
        out = self.workload.step(step)
        out.loss.backward()
        ratio = lr_ratio(step, self.config.optim, self.workload.horizon_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optim.lr * ratio
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.workload.after_backward(ratio)
        if self.ema is not None:
            self.ema.update(self.workload.module)
        for key, value in out.metrics.items():
            self._sums.setdefault(key, []).append(value)
        return ratio

    def _record(self, step: int, ratio: float, seconds: float) -> dict[str, Any]:
        sums = self._finite_sums()
        self._sums = {}
        num_steps = len(next(iter(sums.values())))
        return {
            "step": step,
            **self.workload.summarise(sums),
            "lr": self.config.optim.lr * ratio,
            "rows_per_s": num_steps * self.workload.examples_per_step / seconds,
            "tokens_per_s": num_steps * self.workload.tokens_per_step / seconds,
            "time_s": time.time(),
        }

    def _finite_sums(self) -> dict[str, np.ndarray]:
        """The metrics of the steps since the last record, each (steps,), checked."""
        sums = {key: torch.stack(v).double().cpu().numpy() for key, v in self._sums.items()}
        for key, values in sums.items():
            if not np.isfinite(values).all():
                bad = self.step - len(values) + 1 + int(np.argmin(np.isfinite(values)))
                raise FloatingPointError(f"{key} is not finite at step {bad}; training stopped")
        return sums

    def _save(self) -> Path:
        self._finite_sums()
        tensors = self.workload.tensors()
        for key, value in tensors.items():
            if not torch.isfinite(value).all():
                raise FloatingPointError(
                    f"weight {key} is not finite after step {self.step}; nothing was saved"
                )
        if self.ema is not None:
            averages = {EMA_PREFIX + key: value for key, value in self.ema.average.items()}
            tensors = {**tensors, **averages}
        return checkpoint.save(
            self.run.path / "checkpoints",
            step=self.step,
            tensors=tensors,
            state={"optimizer": self.optimizer.state_dict(), "workload": self.workload.state()},
            meta=self.meta,
        )


def _shown(record: dict[str, Any]) -> dict[str, str]:
    shown = {"loss": f"{record['lm_loss']:.4f}"}
    if "exact_accuracy" in record:
        shown["exact"] = f"{record['exact_accuracy']:.1%}"
    shown["tok/s"] = f"{record['tokens_per_s']:,.0f}"
    return shown
