"""kappa, the first step and the streams of a fresh or saved reasoner on one training batch."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from arc_data.batches import EpochOrder
from arc_data.compiled import CompiledDataset
from arc_data.manifest import check_digest
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.act import Batch, initial_carry, refill
from hrm_deeploop.alignment import gamma_slope, measure_kappa
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.first_step import first_step_change
from hrm_deeploop.inference import check_fits, producer_of
from hrm_deeploop.model import HRM
from hrm_deeploop.reasoner import Reasoner, to_batch
from hrm_deeploop.streams import stream_visits

SCHEMA = "hrm_deeploop.kappa/1"
RECORDED_ARCH = (
    "grad_scope",
    "share_levels",
    "H_layers",
    "L_layers",
    "H_cycles",
    "L_cycles",
    "hidden_size",
    "residual_sum",
    "carry_dtype",
)

Precision = Literal["run", "float32", "float64"]


def set_precision(model: HRM, precision: Precision) -> None:
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


def probe(reasoner: Reasoner, batch: Batch, rates: Sequence[float]) -> dict[str, Any]:
    """All probes on fresh states of a batch: plain values, for JSON.

    Args:
        reasoner: Model and table, on their device.
        batch: Examples, on the same device.
        rates: Learning rates of the first step.

    Returns:
        ``arch`` and ``residual``, what was probed; ``kappa`` (``alignment.measure_kappa``),
        ``first_step`` (``first_step.first_step_change``), ``streams`` (``streams.stream_visits``).
    """
    model, optim = reasoner.model, reasoner.config.optim
    carry = refill(model, initial_carry(model, batch), batch)
    rows = reasoner.table.rows(batch.puzzle_identifiers).detach()
    return {
        "arch": {key: getattr(model.arch, key) for key in RECORDED_ARCH},
        "residual": model.scales.as_dict(),
        "kappa": measure_kappa(model, carry, rows, optim).as_dict(),
        "first_step": first_step_change(model, carry, rows, optim, rates),
        "streams": stream_visits(model, carry, rows),
    }


def probe_initial(
    config: TrainConfig,
    dataset: CompiledDataset,
    *,
    cycles: Sequence[int] | None = None,
    rates: Sequence[float] | None = None,
    batch_size: int,
    precision: Precision,
    device: torch.device,
) -> dict[str, Any]:
    """Probes a model at initialisation, over several L_cycles if asked.

    Args:
        config: The run it would be; its seed draws weights and batch.
        dataset: Its data.
        cycles: Values of C_L, each with the residual scaling that follows; None: the run's own.
        rates: Learning rates of the first step; None: the run's peak rate.
        batch_size: Examples.
        precision: Dtype to compute in.
        device: Where to compute.

    Returns:
        What JSON records: ``rows``, one ``probe`` per C_L, and ``gamma_over_cycles``, per level the
        slope of log kappa on log C_L, None without two loop counts.
    """
    rows = []
    for L_cycles in cycles or (config.arch.L_cycles,):
        own = replace(config, arch=replace(config.arch, L_cycles=L_cycles))
        reasoner = Reasoner(own, dataset.canvas, dataset.num_puzzle_identifiers)
        reasoner.initialise(config.seed)
        set_precision(reasoner.to(device).model, precision)
        batch = _training_batch(dataset, config.seed, batch_size, device)
        rows.append(probe(reasoner, batch, rates or (config.optim.lr,)))
    source = {"init_seed": config.seed, "batch_size": batch_size, "precision": precision}
    return _report(source, dataset, rows)


def probe_checkpoint(
    path: Path,
    dataset: CompiledDataset,
    *,
    rates: Sequence[float] | None = None,
    batch_size: int,
    precision: Precision,
    device: torch.device,
) -> dict[str, Any]:
    """Probes a saved checkpoint, with its averaged weights where it has them.

    The step probed is a first step: the optimizer's moments are not read.

    Args:
        path: A checkpoint, or a run directory (its newest checkpoint).
        dataset: The data set it was trained on, which is checked by digest.
        rates: As for ``probe_initial``.
        batch_size: Examples.
        precision: Dtype to compute in.
        device: Where to compute.

    Returns:
        As ``probe_initial``, with one row.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If it is damaged or the data set is another one.
    """
    checkpoint = checkpoints.load(path)
    check_digest(checkpoint.meta["dataset"], dataset)
    reasoner = Reasoner.from_checkpoint(checkpoint).to(device)
    check_fits(reasoner, dataset)
    set_precision(reasoner.model, precision)
    seed = checkpoint.meta["seed"]
    batch = _training_batch(dataset, seed, batch_size, device)
    rows = [probe(reasoner, batch, rates or (reasoner.config.optim.lr,))]
    source = {"batch_size": batch_size, "precision": precision, **producer_of(checkpoint.meta)}
    return _report(source, dataset, rows)


def _training_batch(
    dataset: CompiledDataset, seed: int, batch_size: int, device: torch.device
) -> Batch:
    rows = EpochOrder(dataset.train, seed).batch_rows(0, batch_size)
    return to_batch(dataset.train.materialise(rows), device)


def _report(
    source: dict[str, Any], dataset: CompiledDataset, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    cycles = [row["arch"]["L_cycles"] for row in rows]
    slopes: dict[str, float | None] = {}
    for level in rows[0]["kappa"]["levels"]:
        kappas = [row["kappa"]["levels"][level]["kappa"] for row in rows]
        measurable = len(set(cycles)) > 1 and all(kappas)
        slopes[level] = gamma_slope(cycles, kappas) if measurable else None
    return {
        "schema": SCHEMA,
        "source": source,
        "dataset": {"digest": dataset.digest},
        "rows": rows,
        "gamma_over_cycles": slopes,
    }


def format_probe(report: dict[str, Any]) -> str:
    """The table printed for people: kappa per level, the bounds, the first step."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    lines = ["L_cycles  level  R_g  kappa     gamma     exponent  write     read"]
    for row in report["rows"]:
        for name, level in row["kappa"]["levels"].items():
            sides = [
                max((s[side]["alignment"] or 0.0 for s in level["sublayers"]), default=0.0)
                for side in ("write", "read")
            ]
            values = (level["kappa"], level["gamma"], level["exponent"], *sides)
            cells = "".join(number(value).ljust(10) for value in values)
            head = f"{row['arch']['L_cycles']:<10}{name:<7}{level['rounds']:<5}"
            lines.append((head + cells).rstrip())
    for row in report["rows"]:
        kappa, step = row["kappa"], row["first_step"]
        whole, visible = (step["changes"]["all"][region] for region in ("whole", "visible"))
        lines.append(
            f"L_cycles {row['arch']['L_cycles']}: bound {number(kappa['bound_measured'])} "
            f"(worst case {number(kappa['bound_worst_case'])}); one step at lr "
            f"{step['rates'][0]:g} moves the logits' {number(step['output_norm'])} by "
            f"{number(whole['actual'][0])}, through the visible calls by "
            f"{number(visible['actual'][0])} (first order {number(visible['predicted'][0])})"
        )
    for name, slope in report["gamma_over_cycles"].items():
        if slope is not None:
            lines.append(
                f"{name}: gamma over L_cycles {number(slope)}, exponent {number((1 + slope) / 4)}"
            )
    return "\n".join(lines)
