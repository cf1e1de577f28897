"""The page of a sigma report: one self-contained HTML file, made of sigma.json alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json, write_beside
from eval import sigma_cells as cells
from eval import sigma_figures
from eval.arc_results import PRIMARY_SCORE
from eval.html import render_page, residual_line, short
from eval.loss_page import render_losses
from eval.loss_sigma import SCHEMA as LOSS_SCHEMA
from eval.scoring import SCORE_NAMES
from eval.seeds import SCHEMA
from eval.sigma_figures import headline
from eval.sigma_format import listed, probability

JSON_FILE, PAGE_FILE = "sigma.json", "sigma.html"
_TEMPLATE = "sigma.html.j2"


def is_sigma_dir(path: Path) -> bool:
    """Whether a folder holds a sigma report."""
    return (path / JSON_FILE).is_file()


def write_sigma_page(folder: str | Path, *, out: str | Path | None = None) -> Path:
    """Writes the page of a sigma report.

    Args:
        folder: Holds ``sigma.json``.
        out: The page; None: ``sigma.html`` in the folder. It is replaced.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: If there is no sigma.json.
        ValueError: If it is none of this version.
    """
    path = Path(folder) / JSON_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; write it with hrm-deeploop sigma --out")
    summary = read_json(path)
    found = summary.get("schema") if isinstance(summary, Mapping) else None
    if found not in _RENDERERS:
        known = " or ".join(map(repr, _RENDERERS))
        raise ValueError(
            f"{path}: schema must be {known}, found {found!r}; run hrm-deeploop sigma again"
        )
    target = Path(folder) / PAGE_FILE if out is None else Path(out)
    with write_beside(target) as file:
        file.write(_RENDERERS[found](Path(folder).resolve().name, summary).encode("utf-8"))
    return target


def render_sigma(title: str, summary: Mapping[str, Any]) -> str:
    """Renders the page.

    Args:
        title: Its title.
        summary: Content of sigma.json.

    Returns:
        One HTML document with everything in it.
    """
    k = headline(summary)
    contrasts = [_contrast(contrast, summary, k) for contrast in summary["contrasts"]]
    learning = cells.figure(sigma_figures.draw_learning, summary, "learning")
    sections = [
        ("words", "In words", True),
        ("ladder", "Ladder", True),
        ("differences", "Differences", contrasts),
        ("tasks", "Tasks", any(c["tasks"] is not None for c in contrasts)),
        ("learning", "Training", learning),
        ("arms", "Arms", True),
        ("conditions", "Conditions", True),
    ]
    return render_page(
        _TEMPLATE,
        {
            "title": f"Sigma: {title}",
            "summary": summary,
            "sections": [(key, label) for key, label, there in sections if there],
            "notes": cells.notes(summary),
            "k": k,
            "score": PRIMARY_SCORE,
            "ladder": cells.figure(sigma_figures.draw_ladder, summary, "ladder"),
            "differences": cells.figure(sigma_figures.draw_differences, summary, "differences"),
            "forest": cells.figure(sigma_figures.draw_forest, summary, "forest"),
            "learning": learning,
            "arm_rows": [row for arm in summary["arms"] for row in _arm_rows(arm)],
            "contrasts": contrasts,
            "arms": [(arm["label"], _arm_facts(arm)) for arm in summary["arms"]],
            "facts": _facts(summary),
            "records": json.dumps(_records(summary), indent=1, ensure_ascii=False),
        },
    )


def _arm_rows(arm: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the ladder's table: an arm at each K."""
    return [
        [
            arm["label"],
            k,
            str(about["n"]),
            cells.number(about["mean"]),
            cells.interval(about["mean_interval"]),
            cells.number(about["s"]),
            cells.interval(about["s_interval"]),
            cells.number(about["task_standard_error"]),
            ", ".join(
                f"{'-' if seed is None else seed}: {value:.2f}"
                for seed, value in zip(arm["seeds"], about["values"], strict=True)
            ),
        ]
        for k, about in arm["scores"][PRIMARY_SCORE].items()
    ]


def _contrast(contrast: Mapping[str, Any], summary: Mapping[str, Any], k: str) -> dict[str, Any]:
    """Tables of one pair of arms: over K, each seed pair, discordant tasks at ``k``."""
    is_first = contrast is summary["contrasts"][0]
    tasks = contrast["tasks"]
    return {
        "name": f"{contrast['treatment']} minus {contrast['control']}",
        "primary": is_first and summary["primary"] is not None,
        "open": is_first,
        "control": contrast["control"],
        "treatment": contrast["treatment"],
        "rows": [_difference_row(contrast, at) for at in summary["top_k"]],
        "seeds": listed(contrast["paired_seeds"]) if contrast["paired"] else None,
        "alone": {role: listed(s) for role, s in contrast["unpaired_seeds"].items() if s},
        "mcnemar": tasks and tasks["by_k"][k]["mcnemar"],
        "tasks": None if tasks is None else _discordant(contrast, summary, k),
    }


def _difference_row(contrast: Mapping[str, Any], k: str) -> list[str]:
    found = contrast["scores"][PRIMARY_SCORE][k]["paired" if contrast["paired"] else "unpaired"]
    test, tasks = contrast["tests"][k], contrast["tasks"]
    return [
        k,
        cells.signed(found["difference"]),
        cells.interval(found["interval"]),
        "" if tasks is None else cells.interval(tasks["by_k"][k]["bootstrap"]["interval"]),
        f"{test['test']}, {test['role']}",
        probability(test["p"]),
        "" if test["role"] == "primary" else probability(test["holm_p"]),
        cells.number(found["difference_over_standard_error"]),
        cells.number(found["difference_over_control_s"]),
        cells.number(found["difference_over_paired_s"]) if contrast["paired"] else "",
    ]


def _discordant(
    contrast: Mapping[str, Any], summary: Mapping[str, Any], k: str
) -> list[dict[str, Any]]:
    """Tasks that the two arms solve at unequal shares of their seeds, largest difference first."""
    arms = {arm["label"]: arm for arm in summary["arms"]}
    places = {task: i for i, task in enumerate(summary["task_names"])}
    rows = []
    for task, counts in contrast["tasks"]["by_k"][k]["discordant_tasks"].items():
        sides = []
        for role, count in zip(("control", "treatment"), counts, strict=True):
            marks = _seed_marks(arms[contrast[role]], contrast, places[task], int(k))
            sides.append({"solved": count, "of": contrast["tasks"][f"num_{role}"], "seeds": marks})
        before, after = (side["solved"] / side["of"] for side in sides)
        rows.append({"task": task, "sides": sides, "gain": after - before})
    return sorted(rows, key=lambda row: (-abs(row["gain"]), row["task"]))


def _seed_marks(
    arm: Mapping[str, Any], contrast: Mapping[str, Any], place: int, k: int
) -> list[dict[str, Any]]:
    """The compared seeds of an arm and whether each solves a task."""
    marks = []
    for seed, ranks in zip(arm["seeds"], arm["solved_from"], strict=True):
        if not contrast["paired"] or seed in contrast["paired_seeds"]:
            rank = ranks[place]
            marks.append({"seed": seed, "solved": rank is not None and rank <= k})
    return marks


def _arm_facts(arm: Mapping[str, Any]) -> list[tuple[str, str]]:
    steps = sorted({step for step in arm["checkpoint_steps"] if step is not None})
    facts = {
        "digest": short(arm["digest"]),
        "residual": residual_line(arm["residual"]),
        "gradient scope": arm["grad_scope"],
        "residual sum": arm["residual_sum"],
        "carry dtype": arm["carry_dtype"],
        "seeds": listed(arm["seeds"]),
        "checkpoint steps": listed(steps),
        "results": listed(arm["files"]),
    }
    return [(key, str(value or "not recorded")) for key, value in facts.items()]


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [(name.replace("_", " "), cells.fact(v)) for name, v in summary["conditions"].items()]
    which = "all" if summary["test_pairs"] == "all" else "those that training does not show"
    facts.append(("test pairs scored", f"{summary['num_test_pairs']} ({which})"))
    facts.append(("tasks", cells.fact(summary["num_tasks"])))
    facts.append(("random seed", str(summary["random_seed"])))
    facts.append(
        ("bootstrap", f"{summary['num_draws']} draws: {summary['bootstrap_coverage']}"),
    )
    return facts


def _records(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the page does not show otherwise: the scores by their other definitions."""
    return {
        arm["label"]: {
            name: {k: about["values"] for k, about in arm["scores"][name].items()}
            for name in SCORE_NAMES
        }
        for arm in summary["arms"]
    }


_RENDERERS = {SCHEMA: render_sigma, LOSS_SCHEMA: render_losses}
