"""A sigma summary of losses as plain text, and as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.loss_words import NATS, difference_of
from eval.sigma_format import (
    bracketed,
    fact,
    flips,
    listed,
    markdown,
    notes,
    number,
    probability,
    signed,
    table,
)

DIGITS = NATS.digits
ARMS_CAPTION = (
    "validation loss, nats per token; s (n - 1), s.e. and intervals are of seeds: what training"
    " again would change; s.e. over documents is of the text: what other documents would change,"
    " whatever the number of seeds"
)
TABLE_CAPTION = (
    "mean loss of base by rounds R, nats per token, and what each other arm adds to it at that R"
    " [95 % over seeds]; below 0 the arm is better"
)
DIFFERENCES_CAPTION = (
    "differences, nats per token, below 0 in favour of the first; over documents: the same runs on"
    " other documents; Holm over all but the primary test together"
)
WELCH_CAPTION = "the same unpaired, all seeds of both arms (Welch)"


def format_losses(summary: Mapping[str, Any]) -> str:
    """Lays out a summary for a terminal.

    Args:
        summary: From ``loss_sigma.summarise_losses``.

    Returns:
        What is compared, warnings, the arms, the table over rounds, every comparison, the words.
    """
    parts = [_conditions(summary), *_notes(summary), f"{ARMS_CAPTION}\n{table(_arms(summary))}"]
    rounds = rounds_table(summary)
    if rounds:
        parts.append(f"{TABLE_CAPTION}\n{table(rounds)}")
    if summary["contrasts"]:
        parts.append(
            "\n".join([DIFFERENCES_CAPTION, table(_differences(summary)), *_flips(summary)])
        )
        parts.append(f"{WELCH_CAPTION}\n{table(_welch(summary))}")
    return "\n\n".join([*parts, " ".join(summary["words"])])


def format_markdown(summary: Mapping[str, Any]) -> str:
    """Lays out a summary as Markdown.

    Args:
        summary: From ``loss_sigma.summarise_losses``.

    Returns:
        The tables of ``format_losses`` in its order; below them their captions, what is compared,
        the warnings and the words.
    """
    told = [(_arms(summary), f"Arms: {ARMS_CAPTION}.")]
    rounds = rounds_table(summary)
    if rounds:
        told.append((rounds, f"By rounds: {TABLE_CAPTION}."))
    if summary["contrasts"]:
        about = "\n".join([f"Comparisons: {DIFFERENCES_CAPTION}.", *_flips(summary)])
        told.append((_differences(summary), about))
        told.append((_welch(summary), f"Below: {WELCH_CAPTION}."))
    paragraphs = [caption for _, caption in told]
    return markdown(
        [rows for rows, _ in told],
        [*paragraphs, _conditions(summary), *_notes(summary)],
        summary["words"],
    )


def rounds_table(summary: Mapping[str, Any]) -> list[list[str]]:
    """The table arms x R: a row per baseline with its losses, then what other arms add to it.

    Args:
        summary: From ``loss_sigma.summarise_losses``.

    Returns:
        The head and the rows; nothing where no arm is compared with a baseline of its rounds, or
        all have one number of rounds.
    """
    contrasts = [c for c in summary["contrasts"] if c["kind"] == "form"]
    rounds = sorted({c["rounds"] for c in contrasts})
    if len(rounds) < 2:
        return []
    baselines = {c["control"] for c in contrasts}
    cells: dict[tuple[int, bool, str], dict[int, str]] = {}
    for arm in summary["arms"]:
        if arm["label"] in baselines:
            row = cells.setdefault((arm["num_blocks"], False, arm["family"]), {})
            row[arm["rounds"]] = number(arm["loss"]["mean"], DIGITS)
    for contrast in contrasts:
        found = difference_of(contrast)
        row = cells.setdefault((contrast["num_blocks"], True, contrast["family"]), {})
        row[contrast["rounds"]] = signed(found["difference"], DIGITS) + _interval(found["interval"])
    head = ["", "K", *(f"R = {r}" for r in rounds)]
    return [
        head,
        *(
            [f"+ {family}" if is_other else family, str(K), *(row.get(r, "") for r in rounds)]
            for (K, is_other, family), row in sorted(cells.items())
        ),
    ]


def name_of(contrast: Mapping[str, Any]) -> str:
    """Treatment minus control."""
    return f"{contrast['treatment']} - {contrast['control']}"


def pairs_of(contrast: Mapping[str, Any]) -> str:
    """Paired seeds, or a dash."""
    return str(len(contrast["paired_seeds"])) if contrast["paired"] else "-"


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f" {bracketed(ends, DIGITS)}"


def _conditions(summary: Mapping[str, Any]) -> str:
    facts = summary["conditions"]
    digest = facts["dataset.manifest_sha256"]
    floor = summary["unigram_floor"]
    shown = {
        "split": facts["split"],
        "text": facts["text"],
        "context": facts["evaluation.context"],
        "weights": facts["checkpoint.weights"],
        "checkpoint": facts["checkpoint.rule"],
        "data": digest if isinstance(digest, Mapping) else digest[:12],
        "unigram floor": "differs" if floor is None else f"{floor:.4f} nats per token",
    }
    return "; ".join(f"{name} {fact(value)}" for name, value in shown.items())


def _notes(summary: Mapping[str, Any]) -> list[str]:
    return [*notes(summary), *(["\n".join(summary["uncompared"])] if summary["uncompared"] else [])]


def _arms(summary: Mapping[str, Any]) -> list[list[str]]:
    head = ["arm", "K", "R", "n", "mean", "s", "s.e.", "95 % of mean", "95 % of s"]
    rows = [[*head, "s.e. over documents", "bits/byte", "under floor", "seeds: losses"]]
    for arm in summary["arms"]:
        about = arm["loss"]
        values = zip(arm["seeds"], about["values"], strict=True)
        bits = arm["bits_per_byte"]
        rows.append(
            [
                arm["label"],
                str(arm["num_blocks"]),
                str(arm["rounds"]),
                str(about["n"]),
                number(about["mean"], DIGITS),
                number(about["s"], DIGITS),
                number(about["standard_error"], DIGITS),
                bracketed(about["mean_interval"], DIGITS),
                bracketed(about["s_interval"], DIGITS),
                number(about["document_standard_error"], DIGITS),
                "-" if bits is None else number(bits, DIGITS),
                f"{about['num_under_floor']} of {about['n']}",
                ", ".join(f"{'-' if s is None else s}: {number(v, DIGITS)}" for s, v in values),
            ]
        )
    return rows


def _differences(summary: Mapping[str, Any]) -> list[list[str]]:
    head = ["comparison", "seeds", "difference", "95 % over seeds", "95 % over documents", "test"]
    effects = ["t p", "/ its s.e.", "/ s of control", "/ s of differences", "found at power 0.8"]
    rows = [[*head, "p", "Holm p", *effects, "each seed"]]
    for contrast in summary["contrasts"]:
        found, test = difference_of(contrast), contrast["test"]
        over_documents, plan = contrast["documents"], contrast["planning"]
        is_paired = contrast["paired"]
        rows.append(
            [
                name_of(contrast),
                listed(contrast["paired_seeds"]) if is_paired else "unpaired",
                signed(found["difference"], DIGITS),
                bracketed(found["interval"], DIGITS),
                bracketed(over_documents and over_documents["interval"], DIGITS),
                test["test"],
                probability(test["p"]),
                "primary" if test["role"] == "primary" else probability(test["holm_p"]),
                probability(found["t_p"]) if is_paired else "",
                number(found["difference_over_standard_error"]),
                number(found["difference_over_control_s"]),
                number(found["difference_over_paired_s"]) if is_paired else "",
                number(plan and plan["detectable"], DIGITS),
                " ".join(signed(d, DIGITS) for d in found["differences"]) if is_paired else "",
            ]
        )
    return rows


def _flips(summary: Mapping[str, Any]) -> list[str]:
    """What the sign-flip test can say with each number of seeds."""
    tested = {
        found["n"]: flips(found)
        for found in map(difference_of, summary["contrasts"])
        if "sign_flip" in found
    }
    return [tested[n] for n in sorted(tested)]


def _welch(summary: Mapping[str, Any]) -> list[list[str]]:
    rows = [["comparison", "n", "difference", "95 %", "p", "df"]]
    sizes = {arm["label"]: len(arm["seeds"]) for arm in summary["arms"]}
    for contrast in summary["contrasts"]:
        found = contrast["loss"]["unpaired"]
        rows.append(
            [
                name_of(contrast),
                f"{sizes[contrast['treatment']]}, {sizes[contrast['control']]}",
                signed(found["difference"], DIGITS),
                bracketed(found["interval"], DIGITS),
                probability(found["p"]),
                number(found["df"], 1),
            ]
        )
    return rows
