"""What the numbers of a sigma summary say, in a few plain sentences that are no stronger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.run_results import BEST_ON_TEST
from eval.sample_statistics import RESOLUTION

ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What differences are measured in."""

    unit: str
    digits: int
    """After the point."""
    scope: str
    """What a verdict holds on."""
    less_is_better: bool = False

    def signed(self, value: float) -> str:
        """A difference with its sign."""
        return f"{value:+z.{self.digits}f}"

    def size(self, value: float) -> str:
        """A difference without its sign."""
        return f"{abs(value):.{self.digits}f}"


POINTS = Measure(unit="points", digits=2, scope="these tasks and this data set")


def conclude(summary: Mapping[str, Any]) -> list[str]:
    """The report's last sentences.

    Args:
        summary: From ``seeds.summarise``, without its words.

    Returns:
        Two or three sentences on the primary contrast, or on what keeps it from being judged.
    """
    if summary["primary"] is None:
        return _without_primary(summary)
    k = summary["primary"]["k"]
    contrast = summary["contrasts"][0]
    at_k = contrast["scores"][summary["primary"]["score"]][k]
    found = at_k["paired" if contrast["paired"] else "unpaired"]
    about = f"tasks solved at K = {k} on {where(summary)}"
    tasks = "" if contrast["tasks"] is None else _over_tasks(contrast["tasks"]["by_k"][k])
    plan = contrast["planning"][k]
    return judge(contrast, found, contrast["tests"][k], plan, summary, about, tasks, POINTS)


def judge(
    contrast: Mapping[str, Any],
    found: Mapping[str, Any],
    test: Mapping[str, Any],
    plan: Mapping[str, Any] | None,
    summary: Mapping[str, Any],
    about: str,
    beside: str,
    measure: Measure,
) -> list[str]:
    """What a primary contrast says.

    Args:
        contrast: The pair of arms.
        found: Its ``paired`` or ``unpaired`` difference, whichever counts.
        test: Its test.
        plan: Its planning, None where there is no interval.
        summary: What it is from.
        about: What is measured, and where.
        beside: A clause on what else could vary but seeds, beginning with ``; ``, or empty.
        measure: The unit.

    Returns:
        Two or three sentences.
    """
    signed, unit = measure.signed, measure.unit
    about = (
        f"{contrast['treatment']} minus {contrast['control']}, {about}:"
        f" {signed(found['difference'])} {unit} over {_seeds(contrast, summary)}"
    )
    if found["interval"] is None:
        reason = found["undefined"]["interval"]
        why = "the spread over seeds is 0" if "spread" in reason else "one seed has no spread"
        return [
            f"{about}; {why}, so the interval, the test and every sigma of this difference are"
            " undefined.",
            "Run more seeds in each arm before anything is claimed.",
        ]
    low, high = found["interval"]
    sentence = (
        f"{about}, 95 % interval {signed(low)} to {signed(high)} (t over seeds), {test['test']}"
        f" p = {test['p']:.3g}: {_verdict(contrast, found, test['p'], measure)}."
    )
    sizes = f"That is {_sigmas(contrast, found)}{beside}."
    assert plan is not None  # there is an interval, so there is a spread
    return [sentence, sizes, _settle(found["difference"], plan, measure)]


def is_established(found: Mapping[str, Any], p: float | None) -> bool:
    """Whether a difference passes both its test at 5 % and the look at its t-interval."""
    if p is None or found["interval"] is None:
        return False
    low, high = found["interval"]
    return p <= ALPHA and (low > 0 or high < 0)


def _verdict(
    contrast: Mapping[str, Any], found: Mapping[str, Any], p: float, measure: Measure
) -> str:
    if is_established(found, p):
        wins = (found["difference"] > 0) is not measure.less_is_better
        better = contrast["treatment" if wins else "control"]
        return f"on {measure.scope} the seeds speak for {better}"
    if contrast["paired"] and found["sign_flip"]["smallest_p"] > ALPHA:
        smallest = found["sign_flip"]["smallest_p"]
        return (
            f"no difference is established, and with {found['n']} seeds this test cannot go below"
            f" {smallest:.3g}"
        )
    return "no difference is established"


def _sigmas(contrast: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    parts = [f"{_size(found, 'difference_over_standard_error')} standard errors of the difference"]
    control = found["difference_over_control_s"]
    if control is not None:
        parts.append(f"{abs(control):.1f} sigma of {contrast['control']}'s single runs")
    if contrast["paired"]:
        parts.append(f"{_size(found, 'difference_over_paired_s')} sigma of the paired differences")
    return join(parts)


def _over_tasks(at_k: Mapping[str, Any]) -> str:
    if at_k["bootstrap"]["interval"] is None:
        return ""
    low, high = at_k["bootstrap"]["interval"]
    which = "excludes" if low > RESOLUTION or high < -RESOLUTION else "includes"
    return (
        f"; resampling the tasks as well gives {POINTS.signed(low)} to {POINTS.signed(high)}, which"
        f" {which} 0"
    )


def _settle(difference: float, plan: Mapping[str, Any], measure: Measure) -> str:
    kind = "paired seeds" if plan["paired"] else "seeds per arm"
    now = (
        f"{plan['seeds']} {kind} find a true difference of {measure.size(plan['detectable'])}"
        f" {measure.unit} with power {plan['power']:g} (t-test)"
    )
    if difference == 0:
        return f"If the spread over seeds is as seen, {now}."
    needed = plan["seeds_needed"]
    count = "more than a million" if needed is None else f"{needed}"
    return (
        f"If the spread over seeds is as seen, {now}; a true difference of the observed"
        f" {measure.size(difference)} {measure.unit} would take {count}."
    )


def _without_primary(summary: Mapping[str, Any]) -> list[str]:
    arms, score = summary["arms"], "task_accuracy_strict"
    k = "2" if "2" in summary["top_k"] else summary["top_k"][0]
    if len(arms) > 1:
        if "2" not in summary["top_k"]:
            return ["There is no score at K = 2, so there is no primary comparison to judge."]
        return [
            "No primary contrast is declared (--contrast TREATMENT CONTROL), so no difference is"
            " judged: every comparison above is secondary."
        ]
    about = arms[0]["scores"][score][k]
    text = f"{arms[0]['label']}, tasks solved at K = {k} on {where(summary)}: {about['mean']:.2f} %"
    return describe_arm(text, about, POINTS)


def describe_arm(text: str, about: Mapping[str, Any], measure: Measure) -> list[str]:
    """What one arm alone says of itself.

    Args:
        text: What its mean is.
        about: The mean over seeds with its spread, as in ``sample_statistics.describe``.
        measure: Of both.
    """
    if about["s"] is None:
        return [f"{text} in one run.", "One seed has no spread: every sigma is undefined."]
    if about["mean_interval"] is None:
        return [
            f"{text} in each of {about['n']} seeds; their spread is 0, so the intervals are"
            " undefined."
        ]
    low, high, s, small, large = (
        f"{value:.{measure.digits}f}"
        for value in (*about["mean_interval"], about["s"], *about["s_interval"])
    )
    return [
        f"{text} over {about['n']} seeds, 95 % interval of the mean {low} to {high}.",
        f"Sigma of a single run over seeds is {s} {measure.unit}, known to lie between {small} and"
        f" {large} with 95 % confidence.",
    ]


def where(summary: Mapping[str, Any]) -> str:
    """The split, with everything that takes from what may be concluded.

    Args:
        summary: Of ``conditions`` and ``test_pairs``; the latter may be absent.
    """
    conditions = summary["conditions"]
    split, rule = conditions["split"], conditions["checkpoint.rule"]
    parts = [" and ".join(split["differs"]) if isinstance(split, Mapping) else split]
    if summary.get("test_pairs") == "unseen":
        parts.append("without the pairs seen in training")
    if rule == BEST_ON_TEST:
        parts.append("with each run's checkpoint chosen on the test itself")
    if any(isinstance(value, Mapping) for value in conditions.values()):
        parts.append("over unlike runs pooled anyway")
    return " ".join(parts)


def _seeds(contrast: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    if contrast["paired"]:
        num = len(contrast["paired_seeds"])
        return f"{num} paired seed{'s' if num > 1 else ''}"
    counts = {arm["label"]: len(arm["seeds"]) for arm in summary["arms"]}
    return f"{counts[contrast['treatment']]} and {counts[contrast['control']]} unpaired runs"


def _size(found: Mapping[str, Any], effect: str) -> str:
    return f"{abs(found[effect]):.1f}"


def join(parts: Sequence[str]) -> str:
    """Parts of a sentence in a row."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
