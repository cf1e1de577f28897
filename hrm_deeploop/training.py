"""fit: the training loop of any workload, with schedule, logging, checkpoints and evaluation."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

import hrm_deeploop
from hrm_deeploop import checkpoint
from hrm_deeploop.checkpoint import Checkpoint
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.ema import EMA, split_averages
from hrm_deeploop.ema import PREFIX as EMA_PREFIX
from hrm_deeploop.optimizer import make_optimizer
from hrm_deeploop.progress import Progress
from hrm_deeploop.run_dir import RunDir
from hrm_deeploop.schedule import lr_ratio
from hrm_deeploop.settings import to_dict
from hrm_deeploop.signals import Stopped, StopSignals
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
        self.workload = workload
        self.ranks = workload.ranks
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
        self.optimizer = make_optimizer(workload.module.parameters(), config.optim)
        decay = config.optim.ema
        self.ema = None if decay is None else EMA(workload.module, decay)
        self.step = 0
        self.saved: Path | None = None
        """The newest checkpoint."""
        self.scores: dict[int, float] = {}
        """Rating of the evaluations during training, by step."""
        # Since the last record, one entry a step: this process's sums, and norms of all.
        self._sums: dict[str, list[Tensor]] = {}
        self._norms: list[Tensor] = []
        self._diagnostics: dict[str, float] = {}

    def resume(self, saved: Checkpoint, state: dict[str, Any]) -> None:
        """Takes over everything of a checkpoint; ``fit`` then goes on as if never interrupted.

        Args:
            saved: Weights and description.
            state: Its training state.

        Raises:
            ValueError: If names or shapes differ from this run's, or the run's end is past.
        """
        own, averages = split_averages(saved.tensors)
        if bool(averages) != (self.ema is not None):
            raise ValueError(
                f"optim.ema is {self.config.optim.ema}, but {saved.path} "
                f"{'has' if averages else 'has no'} averaged weights"
            )
        if saved.meta["step"] > self.last_step:
            raise ValueError(
                f"{saved.path} is of step {saved.meta['step']}, but the run is to end after "
                f"{self.last_step} steps; give a larger max_steps"
            )
        self.workload.load(own, state["workload"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.ema is not None:
            self.ema.load(averages)
        # Sums over all processes: one of them goes on with them, the others with nothing.
        share = 1.0 if self.ranks.is_main else 0.0
        sums = dict(state["sums"])
        self._norms = list(sums.pop("grad_norm", []))
        self._sums = {key: list(values * share) for key, values in sums.items()}
        self.scores = state["scores"]
        self.step = self.run.step = saved.meta["step"]
        self.saved = saved.path

    def fit(self, stop: StopSignals | None = None) -> Path:
        """Trains to the end; returns the final checkpoint's path.

        Args:
            stop: Signals that end the run early, after a checkpoint; None: none.

        Raises:
            Stopped: If a signal came; the newest checkpoint is of the step it came in.
            FloatingPointError: If a metric, a gradient or a weight is not finite.
            OSError: If a file could not be written.
        """
        stop = stop or StopSignals()
        tracking, described = self.config.tracking, to_dict(self.config)
        with ExitStack() as stack:
            tracker = None
            if self.ranks.is_main:
                tracker = stack.enter_context(
                    Tracker(self.run.path, tracking, described, self.step)
                )
            stack.enter_context(stop.deferred())
            self._loop(tracker, stop)
        assert self.saved is not None
        return self.saved

    def _loop(self, tracker: Tracker | None, stop: StopSignals) -> None:
        shown = self.ranks.is_main
        progress = Progress(self.last_step, "step", start=self.step, shown=shown)
        clock = _Clock(self.config.checkpoint_every_minutes)
        while True:
            # Here, so that a run that died in an evaluation begins with it again.
            if self.step < self.last_step and self._evaluates():
                with clock.paused(), stop.immediate():
                    self._evaluate(tracker, progress)
            if self.step == self.last_step:
                break
            ratio = self._train_step()
            clock.steps += 1
            if self._logs():
                self._log(ratio, *clock.lap(), tracker, progress)
            # A signal may reach one process only, and clocks differ.
            signum, due = self.ranks.agree([stop.received or 0, int(clock.save_is_due())])
            if self._saves() or due or signum:
                with clock.paused():
                    self._save()
                clock.saved()
            if signum:
                raise Stopped(
                    signum, f"step {self.step} is saved; go on with: train resume={self.run.path}"
                )
        progress.close()

    def _train_step(self) -> float:
        """One step; returns its learning rate relative to the peak."""
        step = self.step + 1
        self._diagnostics = {}
        diagnose = self._diagnoses(step)
        for part in range(self.workload.num_parts):
            out = self.workload.step(step, part)
            out.loss.backward()
            self._add(out.metrics, first=part == 0)
        parameters = list(self.workload.module.parameters())
        gradients = [p.grad for p in parameters if p.grad is not None]
        self.ranks.sum_many_(gradients)
        norm = get_total_norm(gradients)
        self._norms.append(norm)
        if self.config.optim.clip_grad_norm is not None:
            clip_grads_with_norm_(parameters, self.config.optim.clip_grad_norm, norm)
        before = [p.detach().clone() for p in parameters] if diagnose else []
        ratio = lr_ratio(step, self.config.optim, self.workload.horizon_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optim.lr * ratio
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.workload.after_backward(ratio)
        if self.ema is not None:
            self.ema.update(self.workload.module)
        self.step = self.run.step = step
        if diagnose:
            self._diagnose(parameters, before)
        if self._validates():
            self._validate()
        if self._measures_kappa() and self.ranks.is_main:  # the same in every process
            self._diagnostics.update(self.workload.kappa())
        return ratio

    def _add(self, metrics: dict[str, Tensor], *, first: bool) -> None:
        """Adds a part's metrics to the step's."""
        for key, value in metrics.items():
            values = self._sums.setdefault(key, [])
            if first:
                values.append(value)
            else:
                values[-1] = values[-1] + value

    def _diagnose(self, parameters: Sequence[Tensor], before: list[Tensor]) -> None:
        change = [p.detach() - old for p, old in zip(parameters, before, strict=True)]
        self._diagnostics = {
            "update_norm": float(get_total_norm(change)),
            **self.workload.diagnostics(),
        }

    def _validate(self) -> None:
        found = self.workload.validation()
        for key, value in found.items():
            if not math.isfinite(value):
                raise FloatingPointError(
                    f"{key} is {value} after step {self.step}; training stopped; the last good "
                    f"checkpoint is {self.saved or 'none'}"
                )
        self._diagnostics.update(found)

    def _validates(self) -> bool:
        every = self.config.diagnostics.validation_every_steps
        return every is not None and (self.step % every == 0 or self.step == self.last_step)

    def _measures_kappa(self) -> bool:
        every = self.config.diagnostics.kappa_every_steps
        return every is not None and (self.step % every == 0 or self.step == self.last_step)

    def _diagnoses(self, step: int) -> bool:
        every = self.config.diagnostics.every_steps
        return every is not None and step % every == 0

    def _logs(self) -> bool:
        at_interval = self.step % self.config.log_every_steps == 0
        at_end = self.step == self.last_step
        looks = self._diagnoses(self.step) or self._validates() or self._measures_kappa()
        return at_interval or at_end or looks

    def _saves(self) -> bool:
        every = self.config.checkpoint_every_steps
        at_interval = every is not None and self.step % every == 0
        return at_interval or self.step == self.last_step or self._evaluates()

    def _evaluates(self) -> bool:
        every, epochs = self.config.eval.every, self.config.eval.every_epochs
        if self.step == 0:
            return False
        if epochs is None:
            return every is not None and self.step % every == 0
        passed = [
            s * self.workload.examples_per_step // (epochs * self.workload.examples_per_epoch)
            for s in (self.step - 1, self.step)
        ]
        return passed[0] < passed[1]

    def _evaluate(self, tracker: Tracker | None, progress: Progress) -> None:
        assert self.saved is not None
        out = self.run.eval_dir(self.saved.name, partial=True)
        results = self.workload.evaluate(self.saved, out, partial=True)
        scores = self.workload.scores(results)
        self.scores[self.step] = self.workload.rating(results)
        progress.note(f"step {self.step}: {self.workload.headline(results)}")
        if tracker is not None:
            tracker.show({"step": self.step, **{f"eval/{key}": v for key, v in scores.items()}})

    def _log(
        self,
        ratio: float,
        num_steps: int,
        seconds: float,
        tracker: Tracker | None,
        progress: Progress,
    ) -> None:
        sums = self._finite_sums()
        self._sums, self._norms = {}, []
        grad_norm = float(sums.pop("grad_norm").mean())
        record = {
            "step": self.step,
            **self.workload.summarise(sums),
            "grad_norm": grad_norm,
            **self._diagnostics,
            "lr": self.config.optim.lr * ratio,
            "rows_per_s": num_steps * self.workload.examples_per_step / seconds,
            "tokens_per_s": num_steps * self.workload.tokens_per_step / seconds,
            "time_s": time.time(),
        }
        if tracker is not None:
            tracker.log(record)
        progress.show(self.step, _shown(record, self.workload.shown))

    def _finite_sums(self) -> dict[str, np.ndarray]:
        """Sums over all processes and norms since the last record, each (steps,), checked."""
        rows = [torch.stack(values).double() for values in self._sums.values()]
        if rows:
            rows = list(self.ranks.sum_(torch.stack(rows)))  # (metrics, steps)
            rows.append(torch.stack(self._norms).double())
        keys = [*self._sums, "grad_norm"] if rows else []
        sums = dict(zip(keys, torch.stack(rows).cpu().numpy() if rows else [], strict=True))
        places = {k: int(np.argmin(np.isfinite(v))) for k, v in sums.items() if not _finite(v)}
        if places:
            key = min(places, key=lambda k: places[k])
            bad = self.step - len(sums[key]) + 1 + places[key]
            raise FloatingPointError(
                f"{key} is {sums[key][places[key]]} at step {bad}; training stopped; the last "
                f"good checkpoint is {self.saved or 'none'}"
            )
        return sums

    def _save(self) -> None:
        """Saves the state of all processes; all must call it, and wait until it is there."""
        folder = self.run.path / "checkpoints"
        path = folder / checkpoint.step_folder(self.step)
        if self.saved is not None and self.saved.name == path.name:
            return
        sums = self._finite_sums()
        tensors = self.workload.tensors()
        for key, value in tensors.items():
            if not torch.isfinite(value).all():
                raise FloatingPointError(
                    f"weight {key} is not finite after step {self.step}; the last good "
                    f"checkpoint is {self.saved or 'none'}"
                )
        if self.ema is not None:
            averages = {EMA_PREFIX + key: value for key, value in self.ema.average.items()}
            tensors = {**tensors, **averages}
        state = {
            "optimizer": self.optimizer.state_dict(),
            "workload": self.workload.state(),
            "sums": {key: torch.from_numpy(values) for key, values in sums.items()},
            "scores": self.scores,
        }
        self.ranks.main_does(lambda: self._write(folder, tensors, state))
        self.saved = path

    def _write(self, folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        try:
            checkpoint.save(folder, step=self.step, tensors=tensors, state=state, meta=self.meta)
        except OSError as error:
            raise OSError(f"{error}; the last good checkpoint is {self.saved or 'none'}") from error
        self.run.set_status("running")
        checkpoint.retire(
            self.run.path,
            keep_last=self.config.keep_last,
            keep_every_steps=self.config.keep_every_steps,
            keep_best=self.config.keep_best,
            scores=self.scores,
        )


class _Clock:
    """Wall time of training alone, and when the next checkpoint is due."""

    def __init__(self, save_every_minutes: float | None) -> None:
        self.steps = 0
        self._start = self._saved = time.perf_counter()
        self._every_s = None if save_every_minutes is None else 60 * save_every_minutes

    def lap(self) -> tuple[int, float]:
        """Steps and seconds since the last lap, pauses left out."""
        now = time.perf_counter()
        lap = self.steps, now - self._start
        self.steps, self._start = 0, now
        return lap

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside does not count."""
        start = time.perf_counter()
        yield
        self._start += time.perf_counter() - start

    def save_is_due(self) -> bool:
        """Whether a save by time is due."""
        return self._every_s is not None and time.perf_counter() - self._saved >= self._every_s

    def saved(self) -> None:
        """Starts the wait for the next save."""
        self._saved = time.perf_counter()


def _finite(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def _shown(record: dict[str, Any], formats: Mapping[str, str]) -> dict[str, str]:
    labelled = (text.format(record[key]) for key, text in formats.items() if key in record)
    shown = dict(text.split(" ", 1) for text in labelled)
    shown["ex/s"] = f"{record['rows_per_s']:,.0f}"
    shown["tok/s"] = f"{record['tokens_per_s']:,.0f}"
    return shown
