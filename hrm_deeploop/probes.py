"""kappa, the first step and the streams of a fresh or saved model on one training batch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from arc_data.manifest import Described
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.alignment import gamma_slope, measure_kappa
from hrm_deeploop.checkpoint import Checkpoint
from hrm_deeploop.config import OptimConfig, TrainConfig
from hrm_deeploop.first_step import first_step_change
from hrm_deeploop.inference import producer_of
from hrm_deeploop.regions import OPTIMIZER, Region, step_settings
from hrm_deeploop.settings import from_dict
from hrm_deeploop.streams import stream_visits

SCHEMA = "hrm_deeploop.kappa/1"

Precision = Literal["run", "float32", "float64"]


class Computes(Protocol):
    """A model that says in which dtypes it computes and stores its streams."""

    compute_dtype: torch.dtype
    stream_dtype: torch.dtype

    def to(self, dtype: torch.dtype, /) -> Any:
        """Its weights in another dtype."""


def set_precision(model: Computes, precision: Precision) -> None:
    """Makes a model compute, and store its streams, in another dtype; for probes only.

    Args:
        model: Changed in place; float64 widens its weights too.
        precision: ``run``: leave as it is.
    """
    if precision == "run":
        return
    dtype = getattr(torch, precision)
    model.to(dtype)
    model.compute_dtype = model.stream_dtype = dtype


class Subject(ABC):
    """What a workload gives the probes: regions of its models on its data's first batch.

    Args:
        dataset: The data, of the workload's kind.
        batch_size: Examples.
        precision: Dtype to compute in.
        device: Where to compute.

    Attributes:
        workload: As the configuration names it.
        loop: The loop count's name in ``arch`` of the region's facts.
    """

    workload: str
    loop: str

    def __init__(
        self, dataset: Described, *, batch_size: int, precision: Precision, device: torch.device
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.precision = precision
        self.device = device

    @abstractmethod
    def with_loops(self, config: TrainConfig, count: int) -> TrainConfig:
        """The run with another loop count."""

    @abstractmethod
    def fresh(self, config: TrainConfig) -> Region[Any]:
        """A model at initialisation; the run's seed draws weights and batch."""

    @abstractmethod
    def saved(self, checkpoint: Checkpoint) -> Region[Any]:
        """A saved model, with its averaged weights where it has them; checks the data's digest."""


def probe(region: Region[Any], optim: OptimConfig, rates: Sequence[float]) -> dict[str, Any]:
    """All probes of a region: plain values, for JSON.

    Args:
        region: Model and batch, on their device.
        optim: The first step's settings.
        rates: Learning rates of the first step.

    Returns:
        ``arch`` and ``residual``, what was probed; ``kappa`` (``alignment.measure_kappa``),
        ``first_step`` (``first_step.first_step_change``), ``streams`` (``streams.stream_visits``).
    """
    return {
        **region.facts(),
        "kappa": measure_kappa(region, optim).as_dict(),
        "first_step": first_step_change(region, optim, rates),
        "streams": stream_visits(region),
    }


def probe_initial(
    subject: Subject,
    config: TrainConfig,
    *,
    loops: Sequence[int] | None = None,
    rates: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Probes a model at initialisation, over several loop counts if asked.

    Args:
        subject: The workload and its data.
        config: The run it would be; its seed draws weights and batch.
        loops: Loop counts, each with the residual scaling that follows; None: the run's own.
        rates: Learning rates of the first step; None: the run's peak rate.

    Returns:
        What JSON records: ``workload``, ``loop``, ``step`` (d theta's optimizer), ``rows``, one
        ``probe`` per loop count, and ``gamma_over_cycles``, per level the slope of log kappa on
        log of the loop count, None without two loop counts.
    """
    configs = [config] if loops is None else [subject.with_loops(config, n) for n in loops]
    optim = config.optim
    rows = [probe(subject.fresh(own), optim, rates or (optim.lr,)) for own in configs]
    return _report(subject, {"init_seed": config.seed}, optim, rows)


def probe_checkpoint(
    subject: Subject, path: Path, *, rates: Sequence[float] | None = None
) -> dict[str, Any]:
    """Probes a saved checkpoint, with its averaged weights where it has them.

    The step probed is a first step: the optimizer's moments are not read.

    Args:
        subject: The workload and the data set the checkpoint was trained on, which is checked by
            digest.
        path: A checkpoint, or a run directory (its newest checkpoint).
        rates: As for ``probe_initial``.

    Returns:
        As ``probe_initial``, with one row.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If it is damaged, of another workload, or the data set is another one.
    """
    checkpoint = checkpoints.load(path, subject.workload)
    optim = from_dict(TrainConfig, checkpoint.meta["config"]).optim
    rows = [probe(subject.saved(checkpoint), optim, rates or (optim.lr,))]
    return _report(subject, producer_of(checkpoint.meta), optim, rows)


def _report(
    subject: Subject, source: dict[str, Any], optim: OptimConfig, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    loops = [row["arch"][subject.loop] for row in rows]
    slopes: dict[str, float | None] = {}
    for level in rows[0]["kappa"]["levels"]:
        kappas = [row["kappa"]["levels"][level]["kappa"] for row in rows]
        measurable = len(set(loops)) > 1 and all(kappas)
        slopes[level] = gamma_slope(loops, kappas) if measurable else None
    settings = {"batch_size": subject.batch_size, "precision": subject.precision}
    return {
        "schema": SCHEMA,
        "workload": subject.workload,
        "loop": subject.loop,
        "source": {**source, **settings},
        "dataset": {"digest": subject.dataset.digest},
        "step": {"optimizer": OPTIMIZER, **step_settings(optim)},
        "rows": rows,
        "gamma_over_cycles": slopes,
    }


def format_probe(report: Mapping[str, Any]) -> str:
    """The table printed for people: kappa per level, the bounds, the first step."""
    loop = report["loop"]
    lines = [f"{loop:<10}level   R_g  kappa     gamma     exponent  write     read"]
    for row in report["rows"]:
        for name, level in row["kappa"]["levels"].items():
            sides = [
                max((s[side]["alignment"] or 0.0 for s in level["sublayers"]), default=0.0)
                for side in ("write", "read")
            ]
            values = (level["kappa"], level["gamma"], level["exponent"], *sides)
            cells = "".join(_number(value).ljust(10) for value in values)
            head = f"{row['arch'][loop]:<10}{name:<8}{level['rounds']:<5}"
            lines.append((head + cells).rstrip())
    lines += [f"{loop} {row['arch'][loop]}: {_bound(row)}; {_step(row)}" for row in report["rows"]]
    for name, slope in report["gamma_over_cycles"].items():
        if slope is not None:
            lines.append(
                f"{name}: gamma over {loop} {_number(slope)}, exponent {_number((1 + slope) / 4)}"
            )
    return "\n".join(lines)


def _bound(row: Mapping[str, Any]) -> str:
    worst = row["kappa"]["bound_worst_case"]
    if worst is None:
        return "no bound without alpha"
    return f"bound {_number(row['kappa']['bound_measured'])} (worst case {_number(worst)})"


def _step(row: Mapping[str, Any]) -> str:
    step = row["first_step"]
    places = step["changes"]["all"]
    first = next(iter(places.values()))
    through = ""
    if "visible" in places:
        through = f", through the visible calls by {_number(first['actual'][0])}"
    return (
        f"one step at lr {step['rates'][0]:g} moves the logits' {_number(step['output_norm'])} by "
        f"{_number(places['whole']['actual'][0])}{through} "
        f"(first order {_number(first['predicted'][0])})"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
