"""What a sigma summary of losses says, in a few plain sentences that are no stronger."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.sigma_words import ALPHA, Measure, describe_arm, is_established, join, judge, where

NATS = Measure(
    unit="nats per token", digits=4, scope="this text and this data set", less_is_better=True
)
_TREATMENT = "deeploop"


def conclude(summary: Mapping[str, Any]) -> list[str]:
    """The report's last sentences.

    Args:
        summary: From ``loss_sigma.summarise_losses``, without its words.

    Returns:
        Two or three sentences on the primary contrast, or on all comparisons together.
    """
    contrasts = summary["contrasts"]
    if summary["primary"] is not None:
        contrast = contrasts[0]
        return judge(
            contrast,
            difference_of(contrast),
            contrast["test"],
            contrast["planning"],
            summary,
            f"loss on {where(summary)}",
            _over_documents(contrast["documents"]),
            NATS,
        )
    if contrasts:
        return _all_together(summary)
    if len(summary["arms"]) > 1:
        return [
            "No two arms are compared: no primary contrast is declared (--contrast TREATMENT"
            " CONTROL), and no arm has a baseline of its own number of rounds."
        ]
    return _one_arm(summary)


def difference_of(contrast: Mapping[str, Any]) -> Mapping[str, Any]:
    """The difference of a contrast that counts: paired where its seeds pair."""
    found: Mapping[str, Any] = contrast["loss"]["paired" if contrast["paired"] else "unpaired"]
    return found


def _over_documents(found: Mapping[str, Any] | None) -> str:
    if found is None or found["interval"] is None:
        return ""
    low, high = found["interval"]
    which = "excludes" if low > 0 or high < 0 else "includes"
    return (
        f"; drawing other documents for these same runs gives {NATS.signed(low)} to"
        f" {NATS.signed(high)}, which {which} 0"
    )


def _all_together(summary: Mapping[str, Any]) -> list[str]:
    contrasts = summary["contrasts"]
    sentences = []
    looped = [c for c in contrasts if c["family"] == _TREATMENT and c["kind"] == "form"]
    if looped:
        sentences.append(
            f"{_TREATMENT} minus base of the same rounds, loss on {where(summary)}, {NATS.unit}:"
            f" {join([_at_rounds(contrast) for contrast in looped])} (in brackets 95 % over seeds,"
            " each for itself)."
        )
    established = [
        _order_of(contrast)
        for contrast in contrasts
        if is_established(difference_of(contrast), contrast["test"]["holm_p"])
    ]
    num = len(contrasts)
    what = f"{num} comparison{'s' if num > 1 else ''}"
    rule = f"Holm's p over all of them at most {ALPHA:g} and an interval without 0"
    if established:
        sentences.append(f"Of {what}, established ({rule}): {join(established)}.")
    else:
        sentences.append(f"Of {what}, none is established ({rule}){_floor_of_p(contrasts)}.")
    sizes = [c["planning"]["detectable"] for c in contrasts if c["planning"] is not None]
    if sizes:
        least, most = NATS.size(min(sizes)), NATS.size(max(sizes))
        span = least if least == most else f"{least} to {most}"
        sentences.append(
            "If the spread over seeds is as seen, these seeds find true differences of"
            f" {span} {NATS.unit} with power 0.8 (t-test, each comparison for itself)."
        )
    else:
        sentences.append("Run more seeds in each arm before anything is claimed.")
    return sentences


def _order_of(contrast: Mapping[str, Any]) -> str:
    side = "below" if difference_of(contrast)["difference"] < 0 else "above"
    return f"{contrast['treatment']} {side} {contrast['control']}"


def _at_rounds(contrast: Mapping[str, Any]) -> str:
    found = difference_of(contrast)
    if found["interval"] is None:
        interval = "interval undefined"
    else:
        interval = " to ".join(map(NATS.signed, found["interval"]))
    return f"{NATS.signed(found['difference'])} [{interval}] at R = {contrast['rounds']}"


def _floor_of_p(contrasts: Sequence[Mapping[str, Any]]) -> str:
    """Where so few seeds cannot establish anything among so many tests, that."""
    tests = [c for c in contrasts if c["test"]["p"] is not None]
    if not tests:
        return "; with one seed per arm there is no test"
    if any(c["test"]["test"] != "sign-flip" for c in tests):
        return ""
    smallest = min(difference_of(c)["sign_flip"]["smallest_p"] for c in tests)
    least = min(1.0, len(tests) * smallest)
    if least <= ALPHA:
        return ""
    most_seeds = max(difference_of(c)["n"] for c in tests)
    return (
        f"; with at most {most_seeds} paired seeds and {len(tests)} tests Holm's p of the"
        f" sign-flip test cannot go below {least:.3g}"
    )


def _one_arm(summary: Mapping[str, Any]) -> list[str]:
    arm = summary["arms"][0]
    about = arm["loss"]
    text = f"{arm['label']}, loss on {where(summary)}: {NATS.size(about['mean'])} {NATS.unit}"
    return describe_arm(text, about, NATS)
