"""The page of a sigma report on losses, made of sigma.json alone."""

import json
from collections.abc import Mapping
from typing import Any

from eval import loss_figures, sigma_figures
from eval import sigma_cells as cells
from eval.html import listing, render_page, short
from eval.loss_text import ARMS_CAPTION, DIGITS, TABLE_CAPTION, pairs_of, rounds_table
from eval.loss_words import difference_of
from eval.sigma_format import listed, probability

_TEMPLATE = "loss.html.j2"


def render_losses(title: str, summary: Mapping[str, Any]) -> str:
    """Renders the page.

    Args:
        title: Its title.
        summary: Content of sigma.json.

    Returns:
        One HTML document with everything in it.
    """
    learning = cells.figure(sigma_figures.draw_learning, summary, "learning")
    rounds = rounds_table(summary)
    sections = [
        ("words", "In words", True),
        ("loss", "Loss", True),
        ("differences", "Differences", summary["contrasts"]),
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
            "notes": [*cells.notes(summary), *summary["uncompared"]],
            "floor": cells.number(summary["unigram_floor"], DIGITS),
            "arms_caption": ARMS_CAPTION,
            "table_caption": TABLE_CAPTION,
            "scale_note": loss_figures.SCALE_NOTE,
            "rounds": rounds,
            "figure": cells.figure(loss_figures.draw_rounds, summary, "rounds"),
            "forest": cells.figure(loss_figures.draw_forest, summary, "forest"),
            "differences": cells.figure(loss_figures.draw_differences, summary, "differences"),
            "learning": learning,
            "arm_rows": [_arm_row(arm) for arm in summary["arms"]],
            "difference_rows": [_difference_row(contrast) for contrast in summary["contrasts"]],
            "welch_rows": [_welch_row(contrast) for contrast in summary["contrasts"]],
            "arms": [(arm["label"], _arm_facts(arm)) for arm in summary["arms"]],
            "facts": _facts(summary),
            "records": json.dumps(
                {arm["label"]: arm["loss"]["values"] for arm in summary["arms"]},
                indent=1,
                ensure_ascii=False,
            ),
        },
    )


def _arm_row(arm: Mapping[str, Any]) -> list[str]:
    about = arm["loss"]
    values = zip(arm["seeds"], about["values"], strict=True)
    return [
        arm["label"],
        str(arm["rounds"]),
        str(about["n"]),
        cells.number(about["mean"], DIGITS),
        cells.interval(about["mean_interval"], DIGITS),
        cells.number(about["s"], DIGITS),
        cells.interval(about["s_interval"], DIGITS),
        cells.number(about["document_standard_error"], DIGITS),
        "" if arm["bits_per_byte"] is None else cells.number(arm["bits_per_byte"], DIGITS),
        f"{about['num_under_floor']} of {about['n']}",
        ", ".join(f"{'-' if s is None else s}: {cells.number(v, DIGITS)}" for s, v in values),
    ]


def _difference_row(contrast: Mapping[str, Any]) -> list[str]:
    found, test = difference_of(contrast), contrast["test"]
    over_documents, plan = contrast["documents"], contrast["planning"]
    is_paired = contrast["paired"]
    return [
        f"{contrast['treatment']} minus {contrast['control']}",
        pairs_of(contrast),
        cells.signed(found["difference"], DIGITS),
        cells.interval(found["interval"], DIGITS),
        cells.interval(over_documents and over_documents["interval"], DIGITS),
        f"{test['test']}, {test['role']}",
        probability(test["p"]),
        "" if test["role"] == "primary" else probability(test["holm_p"]),
        probability(found["t_p"]) if is_paired else "",
        cells.number(found["difference_over_standard_error"]),
        cells.number(found["difference_over_control_s"]),
        cells.number(found["difference_over_paired_s"]) if is_paired else "",
        cells.number(plan and plan["detectable"], DIGITS),
    ]


def _welch_row(contrast: Mapping[str, Any]) -> list[str]:
    found = contrast["loss"]["unpaired"]
    return [
        f"{contrast['treatment']} minus {contrast['control']}",
        cells.signed(found["difference"], DIGITS),
        cells.interval(found["interval"], DIGITS),
        probability(found["p"]),
        cells.number(found["df"], 1),
    ]


def _arm_facts(arm: Mapping[str, Any]) -> list[tuple[str, str]]:
    steps = sorted({step for step in arm["checkpoint_steps"] if step is not None})
    facts = {
        "digest": short(arm["digest"]),
        "residual": listing(arm["residual"]),
        "stream dtype": arm["stream_dtype"],
        "seeds": listed(arm["seeds"]),
        "checkpoint steps": listed(steps),
        "results": listed(arm["files"]),
    }
    return [(key, str(value or "not recorded")) for key, value in facts.items()]


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [(name.replace("_", " "), cells.fact(v)) for name, v in summary["conditions"].items()]
    floor = cells.number(summary["unigram_floor"], DIGITS)
    facts.append(("unigram floor", f"{floor} nats per token"))
    facts.append(("random seed", str(summary["random_seed"])))
    return facts
