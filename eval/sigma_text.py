"""A sigma summary, a plan and a claim as plain text; a summary as one Markdown table."""

from collections.abc import Mapping
from typing import Any

from eval.arc_results import PRIMARY_K, PRIMARY_SCORE
from eval.sigma_format import (
    UNDEFINED,
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


def format_summary(summary: Mapping[str, Any]) -> str:
    """Lays out a summary for a terminal.

    Args:
        summary: From ``seeds.summarise``.

    Returns:
        What is compared, warnings, the arms at each K, the primary contrast (or the only one) in
        full, all others in one table, and the words.
    """
    parts = [_conditions(summary), *notes(summary), _arms(summary)]
    contrasts = summary["contrasts"]
    in_full = contrasts[:1] if summary["primary"] or len(contrasts) == 1 else []
    parts += [part for contrast in in_full for part in _contrast(contrast)]
    secondary = _secondary(summary)
    if secondary:
        parts.append(secondary)
    if contrasts:
        parts.append(
            f"random seed {summary['random_seed']}; bootstrap of {summary['num_draws']} draws:"
            f" {summary['bootstrap_coverage']}"
        )
    return "\n\n".join([*parts, " ".join(summary["words"])])


def format_markdown(summary: Mapping[str, Any]) -> str:
    """Lays out a summary as one Markdown table with its caption.

    Args:
        summary: From ``seeds.summarise``.

    Returns:
        A row per arm (mean, interval, s) and per contrast (difference, interval, p), a column per
        K; below it what is compared, the warnings and the words.
    """
    score = PRIMARY_SCORE
    rows = [["strict, %", "n", *(f"K = {k}" for k in summary["top_k"])]]
    for arm in summary["arms"]:
        cells = [_markdown_arm(about) for about in arm["scores"][score].values()]
        rows.append([arm["label"], str(len(arm["seeds"])), *cells])
    for contrast in summary["contrasts"]:
        way = "paired" if contrast["paired"] else "unpaired"
        cells = [
            _markdown_difference(contrast["scores"][score][k][way], test)
            for k, test in contrast["tests"].items()
        ]
        num = len(contrast["paired_seeds"]) if contrast["paired"] else "-"
        rows.append([f"{contrast['treatment']} - {contrast['control']}", f"{num}", *cells])
    legend = (
        "Arms: mean [95 % t-interval over seeds], s of single runs. Differences: percentage points"
        " [95 %], p of the sign-flip test (Welch's where unpaired); all p but the primary one are"
        " Holm's over all of them together."
    )
    return markdown([rows], [legend, _conditions(summary), *notes(summary)], summary["words"])


def format_plan(plan: Mapping[str, Any]) -> str:
    """Lays out ``power.plan``."""
    if plan["delta"] is not None:
        what = f"seeds per arm that find a true difference of {plan['delta']:g} points"
        rows = [
            [f"{row['power']:g}", *(_count(row[way]) for way in ("unpaired", "paired"))]
            for row in plan["rows"]
        ]
    else:
        what = f"true difference, points, that {plan['seeds']} seeds per arm find"
        rows = [
            [f"{row['power']:g}", *(f"{row[way]:.2f}" for way in ("unpaired", "paired"))]
            for row in plan["rows"]
        ]
    return "\n".join(
        [
            f"{what} (t-test, 5 %, two-sided)",
            table([["power", "unpaired", "paired"], *rows]),
            f"s over seeds {plan['sd']:g} points in each arm; of paired differences"
            f" {plan['paired_sd']:.3g} (s * sqrt 2 unless --paired-sd says otherwise)",
            "the sign-flip test, exact for paired seeds, cannot go below 0.125 with 4 and 0.031"
            " with 6",
            f"task-sampling floor: a score of {plan['score']:g} % on {plan['tasks']} tasks has a"
            f" standard error of {plan['task_standard_error']:.2f} points over tasks, whatever the"
            " number of seeds",
        ]
    )


def format_claim(claim: Mapping[str, Any]) -> str:
    """Lays out ``power.single_runs``."""
    low, high = claim["sd_interval"]
    lines = [
        f"{claim['control']:g} % against {claim['treatment']:g} %, one run each; s over seeds"
        f" {claim['sd']:g} points from {claim['sd_runs']} other runs, assumed for both arms",
        f"difference {claim['difference']:+.2f} points; difference / s of a single run"
        f" {claim['difference'] / claim['sd']:.1f}, which is not the test",
        f"t = difference / (s * sqrt 2) = {claim['t']:.2f} with {claim['df']} degrees of freedom:"
        f" p = {claim['p']:.3f}",
        f"that s itself lies between {low:.2f} and {high:.2f} points (95 %, chi-square)",
    ]
    if claim["discordant"] is None:
        lines.append(f"the scores are no whole tasks of {claim['tasks']}: no test over tasks")
    else:
        rows = [[str(row["tasks"]), f"{row['p']:.3f}"] for row in claim["discordant"]]
        lines += [
            f"over tasks: net {claim['net_tasks']:+d} of {claim['tasks']}; exact McNemar p by how"
            " many tasks only one of the runs solves",
            table([["discordant", "p"], *rows]),
        ]
    return "\n".join(lines)


def _conditions(summary: Mapping[str, Any]) -> str:
    facts = summary["conditions"]
    shown = {
        "split": facts["split"],
        "protocol": facts["protocol"],
        "voting": facts["voting.rule"],
        "variants": facts["voting.num_aug"],
        "halting": facts["voting.halting"],
        "puzzle id": facts["voting.puzzle_id"],
        "weights": facts["checkpoint.weights"],
        "checkpoint": facts["checkpoint.rule"],
    }
    digest = facts["dataset.manifest_sha256"]
    shown["data"] = digest if isinstance(digest, Mapping) else digest[:12]
    if summary["num_tasks"] is not None:
        which = ", without those seen in training" if summary["test_pairs"] == "unseen" else ""
        shown["tasks"] = f"{summary['num_tasks']} ({summary['num_test_pairs']} test pairs{which})"
    return "; ".join(f"{name} {fact(value)}" for name, value in shown.items())


def _arms(summary: Mapping[str, Any]) -> str:
    head = ["arm", "K", "n", "mean", "s", "s.e.", "95 % of mean", "95 % of s", "s.e. over tasks"]
    rows = [[*head, "seeds: values"]]
    for arm in summary["arms"]:
        for k, about in arm["scores"][PRIMARY_SCORE].items():
            values = zip(arm["seeds"], about["values"], strict=True)
            rows.append(
                [
                    arm["label"],
                    k,
                    str(about["n"]),
                    number(about["mean"]),
                    number(about["s"], 3),
                    number(about["standard_error"], 3),
                    bracketed(about["mean_interval"]),
                    bracketed(about["s_interval"], 3),
                    number(about["task_standard_error"]),
                    ", ".join(f"{'-' if s is None else s}: {number(v)}" for s, v in values),
                ]
            )
    return f"{PRIMARY_SCORE}, percent; s over seeds has n - 1\n{table(rows)}"


def _contrast(contrast: Mapping[str, Any]) -> list[str]:
    title = f"{contrast['treatment']} - {contrast['control']}, {PRIMARY_SCORE}, points"
    by_k = contrast["scores"][PRIMARY_SCORE]
    parts = []
    if contrast["paired_seeds"]:
        seeds = listed(contrast["paired_seeds"])
        lines = [f"{title}, paired by seed ({seeds})", _paired_table(by_k)]
        parts.append("\n".join([*lines, flips(next(iter(by_k.values()))["paired"])]))
    lines = [f"{title}, unpaired (Welch)", _welch_table(by_k)]
    lines += [
        f"seeds of the {role} without a partner: {listed(contrast['unpaired_seeds'][role])}"
        for role in ("control", "treatment")
        if contrast["unpaired_seeds"][role] and contrast["paired_seeds"]
    ]
    parts.append("\n".join(lines))
    if contrast["tasks"] is None:
        return [*parts, "over tasks: undefined, the results have different tasks"]
    return [*parts, _over_tasks(contrast)]


def _paired_table(by_k: Mapping[str, Any]) -> str:
    head = ["K", "difference", "95 %", "sign-flip p", "t p", "/ its s.e.", "/ s of control"]
    rows = [[*head, "/ s of differences", "each seed"]]
    for k, at_k in by_k.items():
        found = at_k["paired"]
        rows.append(
            [
                k,
                signed(found["difference"]),
                bracketed(found["interval"]),
                probability(found["sign_flip"]["p"] if found["n"] > 1 else None),
                probability(found["t_p"]),
                number(found["difference_over_standard_error"]),
                number(found["difference_over_control_s"]),
                number(found["difference_over_paired_s"]),
                " ".join(signed(value) for value in found["differences"]),
            ]
        )
    return table(rows)


def _welch_table(by_k: Mapping[str, Any]) -> str:
    rows = [["K", "difference", "95 %", "p", "df", "/ its s.e.", "/ s of control"]]
    for k, at_k in by_k.items():
        found = at_k["unpaired"]
        rows.append(
            [
                k,
                signed(found["difference"]),
                bracketed(found["interval"]),
                probability(found["p"]),
                number(found["df"], 1),
                number(found["difference_over_standard_error"]),
                number(found["difference_over_control_s"]),
            ]
        )
    return table(rows)


def _over_tasks(contrast: Mapping[str, Any]) -> str:
    tasks = contrast["tasks"]
    rows = [["K", "bootstrap 95 %", "over", "each seed: only treatment / only control, McNemar p"]]
    for k, at_k in tasks["by_k"].items():
        each = [
            f"{m['seed']}: {m['treatment_only']}/{m['control_only']} {m['p']:.3f}"
            for m in at_k["mcnemar"]
        ]
        bootstrap = at_k["bootstrap"]
        rows.append([k, bracketed(bootstrap["interval"]), bootstrap["over"], ", ".join(each)])
    if not tasks["by_k"][next(iter(tasks["by_k"]))]["mcnemar"]:
        rows = [row[:3] for row in rows]
    return f"over tasks\n{table(rows)}"


def _secondary(summary: Mapping[str, Any]) -> str:
    rows = [["contrast", "K", "difference", "95 %", "test", "p", "Holm p"]]
    num_tests = 0
    for contrast in summary["contrasts"]:
        way = "paired" if contrast["paired"] else "unpaired"
        for k, test in contrast["tests"].items():
            if test["role"] == "primary":
                continue
            found = contrast["scores"][PRIMARY_SCORE][k][way]
            num_tests += test["p"] is not None
            rows.append(
                [
                    f"{contrast['treatment']} - {contrast['control']}",
                    k,
                    signed(found["difference"]),
                    bracketed(found["interval"]),
                    test["test"],
                    probability(test["p"]),
                    probability(test["holm_p"]),
                ]
            )
    if len(rows) == 1:
        return ""
    primary = summary["primary"]
    name = f"all but the primary comparison (K = {PRIMARY_K})" if primary else "all comparisons"
    return f"secondary: {name}; Holm over {num_tests} tests together\n{table(rows)}"


def _markdown_arm(about: Mapping[str, Any]) -> str:
    if about["s"] is None:
        return f"{about['mean']:.2f}, s undefined"
    interval = "" if about["mean_interval"] is None else f" {bracketed(about['mean_interval'])}"
    return f"{about['mean']:.2f}{interval}, s {about['s']:.2f}"


def _markdown_difference(found: Mapping[str, Any], test: Mapping[str, Any]) -> str:
    p = test["p"] if test["role"] == "primary" else test["holm_p"]
    mark = "**primary** " if test["role"] == "primary" else ""
    shown = UNDEFINED if p is None else f"{p:.3f}"
    interval = "" if found["interval"] is None else f" {bracketed(found['interval'])}"
    return f"{mark}{signed(found['difference'])}{interval}, p {shown}"


def _count(value: int | None) -> str:
    return "over 1000000" if value is None else str(value)
