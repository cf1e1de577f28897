"""A run's directory as data and curves: what was logged, and how its checkpoints score."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arc_data.json_files import read_json
from eval.analyses import STRICT, known_ranks, solved
from eval.intervals import proportion
from eval.plots import MAX_POINTS, draw_interval, legend_below, panels, percent_axis

if TYPE_CHECKING:
    from eval.plots import Axes

PANELS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("losses", ("lm_loss", "q_halt_loss", "q_continue_loss"), "log"),
    ("held-out token loss", ("validation_loss", "validation_floor"), "log"),
    ("accuracy, %", ("accuracy", "exact_accuracy", "q_halt_accuracy"), "percent"),
    ("segments until halting", ("steps",), "linear"),
    ("norms", ("grad_norm", "update_norm"), "log"),
    (
        "RMS of streams and updates",
        ("entry_rms_H", "entry_rms_L", "update_rms_H", "update_rms_L"),
        "log",
    ),
    (
        "stream elements left unchanged, %",
        ("unchanged_H", "unchanged_L", "lost_H", "lost_L"),
        "percent",
    ),
    ("kappa", ("kappa_H", "kappa_L", "kappa_H+L", "kappa_blocks"), "linear"),
    ("gamma", ("gamma_H", "gamma_L", "gamma_H+L", "gamma_blocks"), "linear"),
    (
        "alignment of visits",
        (
            *("write_alignment_H", "write_alignment_L", "write_alignment_H+L"),
            *("read_alignment_H", "read_alignment_L", "read_alignment_H+L"),
            *("write_alignment_blocks", "read_alignment_blocks"),
        ),
        "linear",
    ),
    ("bound at kappa", ("kappa_bound",), "linear"),
    ("learning rate", ("lr",), "linear"),
    ("rows per second", ("rows_per_s",), "linear"),
    ("rows never drawn", ("rows_never_drawn",), "linear"),
)
"""Title, metrics and scale of each panel; only what was logged is drawn."""
_SEVERAL = frozenset(title for title, names, _ in PANELS if len(names) > 1)
"""Panels that need a legend."""
_NO_CURVE = frozenset({"step", "time_s", "count", "tokens_per_s", "stream_rms_H", "stream_rms_L"})
"""Logged, but of no interest beside ``rows_per_s`` or as a curve; post-norm streams have RMS 1."""
LADDER_K = (1, 2, 10)
_APART = 0.008
"""Share of the axis between the places of two K, so that their intervals do not hide."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run directory holds for a page."""

    path: Path
    metrics: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    """Metric -> steps and values, by step; of a step logged twice the later record counts."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    """Contents of eval/*/results.json by step, whole ones and partial ones: all ladders, or all
    losses of a language model."""
    provenance: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)


def is_run_dir(path: Path) -> bool:
    """Whether a folder is a run directory: it has a status.json."""
    return (path / "status.json").is_file()


def read_run(path: str | Path) -> Run:
    """Reads a run directory, running or finished.

    Args:
        path: The folder.

    Returns:
        Its metrics, evaluations, provenance and status; what is not there yet is empty.

    Raises:
        FileNotFoundError: If it is no run directory.
        ValueError: If one of its files is damaged.
    """
    path = Path(path)
    if not is_run_dir(path):
        raise FileNotFoundError(f"{path}: expected a run directory with status.json; check it")
    provenance = path / "provenance.json"
    evaluations = [read_json(p) for p in sorted(path.glob("eval/*/results.json"))]
    return Run(
        path=path,
        metrics=read_metrics(path / "metrics.jsonl"),
        evaluations=sorted(evaluations, key=lambda e: e["checkpoint"]["step"] or 0),
        provenance=read_json(provenance) if provenance.is_file() else {},
        status=read_json(path / "status.json"),
    )


def read_metrics(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Reads metrics.jsonl.

    Args:
        path: The file; it may be missing, and its last line unfinished while the run goes on.

    Returns:
        Metric -> steps and finite values. Of a step that a resumed run logged again the later
        record counts.

    Raises:
        ValueError: If another line is no JSON object with a ``step``.
    """
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    records: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            step = int(record["step"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path}: line {number} must be a JSON object with a step, found {line[:40]!r};"
                " remove it"
            ) from error
        records[step] = {**records.get(step, {}), **record}
    metrics: dict[str, tuple[list[int], list[float]]] = {}
    for step, record in sorted(records.items()):
        for name, value in record.items():
            if isinstance(value, int | float) and math.isfinite(value):
                steps, values = metrics.setdefault(name, ([], []))
                steps.append(step)
                values.append(float(value))
    return metrics


def thin(
    steps: Sequence[int], values: Sequence[float], most: int = MAX_POINTS
) -> tuple[list[float], list[float]]:
    """Averages neighbouring points until at most ``most`` are left."""
    size = max(1, math.ceil(len(steps) / most))
    starts = range(0, len(steps), size)
    return (
        [math.fsum(steps[i : i + size]) / len(steps[i : i + size]) for i in starts],
        [math.fsum(values[i : i + size]) / len(values[i : i + size]) for i in starts],
    )


def panels_of(run: Run) -> list[tuple[str, tuple[str, ...], str]]:
    """The panels that a run has something for, other logged numbers one panel each at the end."""
    told = {name for _, names, _ in PANELS for name in names} | _NO_CURVE
    others = sorted(set(run.metrics) - told)
    return [
        *(
            (title, shown, scale)
            for title, names, scale in PANELS
            if (shown := tuple(name for name in names if name in run.metrics))
        ),
        *((name, (name,), "linear") for name in others),
    ]


def draw_curves(run: Run, leave: Any) -> Any:
    """Draws all curves of a run and its checkpoints' ladder.

    Args:
        run: From ``read_run``.
        leave: What takes the finished figure, such as ``plots.save`` with a path.

    Returns:
        What ``leave`` returns; None where there is nothing to draw.
    """
    metrics = panels_of(run)
    ladder = len(run.evaluations) > 1 and "voting" in run.evaluations[0]
    total = len(metrics) + ladder
    if not total:
        return None
    with panels(total, panel=(3.7, 2.9)) as (fig, axes):
        if ladder:
            draw_checkpoint_ladder(axes[0], run.evaluations)
        for ax, (title, names, scale) in zip(axes[ladder:], metrics, strict=True):
            _draw_panel(ax, run, title, names, scale)
        return leave(fig)


def draw_checkpoint_ladder(ax: "Axes", evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Draws the strict score of every evaluated checkpoint, partial ones hollow."""
    steps = [int(e["checkpoint"]["step"] or 0) for e in evaluations]
    top_k = [k for k in LADDER_K if all(str(k) in e["scores"][STRICT] for e in evaluations)]
    tables = [solved(known_ranks(e), top_k) for e in evaluations]
    apart = _APART * (max(steps) - min(steps))
    partial = [i for i, e in enumerate(evaluations) if e["voting"]["partial"]]
    for j, k in enumerate(top_k):
        points = [proportion(int(t[:, j].sum()), len(t)) for t in tables]
        percent = [point["percent"] for point in points]
        places = [step + (j - (len(top_k) - 1) / 2) * apart for step in steps]
        bars = draw_interval(ax, places, percent, [p["interval"] for p in points], f"K = {k}")
        line = bars[0]
        ax.plot(
            [places[i] for i in partial],
            [percent[i] for i in partial],
            linestyle="none",
            marker=line.get_marker(),
            markerfacecolor="white",
            color=line.get_color(),
            zorder=line.get_zorder() + 1,
        )
    percent_axis(ax, "tasks solved (strict), %")
    ax.set_xlabel("step")
    ax.set_xlim(left=0)
    ax.set_title("ladder" + ("; hollow: partial" if partial else ""))
    legend_below(ax, 3)


def _draw_panel(ax: "Axes", run: Run, title: str, names: Sequence[str], scale: str) -> None:
    factor = 100 if scale == "percent" else 1
    for name in names:
        steps, values = thin(*run.metrics[name])
        marker = "o" if len(steps) == 1 else ""
        ax.plot(steps, [factor * value for value in values], marker=marker, label=name)
    if scale == "percent":
        percent_axis(ax, "", 100)
    elif scale == "log" and all(min(run.metrics[name][1]) > 0 for name in names):
        ax.set_yscale("log")
    elif scale == "linear":
        ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    ax.set_title(title)
    ax.set_xlabel("step")
    ax.set_xlim(left=0)
    if title in _SEVERAL:
        legend_below(ax)
