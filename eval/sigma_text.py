"""A sigma summary, a plan and a claim as plain text; a summary as one Markdown table."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.sigma_inputs import PRIMARY_K, PRIMARY_SCORE

UNDEFINED = "undefined"


def format_summary(summary: Mapping[str, Any]) -> str:
    """Lays out a summary for a terminal.

    Args:
        summary: From ``seeds.summarise``.

    Returns:
        What is compared, warnings, the arms at each K, the primary contrast (or the only one) in
        full, all others in one table, and the words.
    """
    parts = [_conditions(summary), *_notes(summary), _arms(summary)]
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
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    lines.insert(1, f"|{' --- |' * len(rows[0])}")
    legend = (
        "Arms: mean [95 % t-interval over seeds], s of single runs. Differences: percentage points"
        " [95 %], p of the sign-flip test (Welch's where unpaired); all p but the primary one are"
        " Holm's over all of them together."
    )
    notes = [_conditions(summary), *_notes(summary), " ".join(summary["words"])]
    body = "\n\n".join(note.replace("\n", "  \n") for note in notes)
    return "\n".join(lines) + f"\n\n{legend}\n\n{body}\n"


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


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as aligned columns, two blanks apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


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
    return "; ".join(f"{name} {_fact(value)}" for name, value in shown.items())


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return " / ".join(map(_fact, value["differs"]))
    return "-" if value is None else str(value)


def _notes(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"WARNING: {warning}" for warning in summary["warnings"]]
    for run in summary["unfinished"]:
        who = "" if run["seed"] is None else f" (arm {run['arm'] or 'unknown'}, seed {run['seed']})"
        lines.append(f"not counted: {run['path']}{who} is {run['state']}: {run['why']}")
    lines += [
        f"missing seeds of {arm['label']}: {_words(arm['missing_seeds'])}; n is {len(arm['seeds'])}"
        for arm in summary["arms"]
        if arm["missing_seeds"]
    ]
    return ["\n".join(lines)] if lines else []


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
                    _number(about["mean"]),
                    _number(about["s"], 3),
                    _number(about["standard_error"], 3),
                    _interval(about["mean_interval"]),
                    _interval(about["s_interval"], 3),
                    _number(about["task_standard_error"]),
                    ", ".join(f"{'-' if s is None else s}: {_number(v)}" for s, v in values),
                ]
            )
    return f"{PRIMARY_SCORE}, percent; s over seeds has n - 1\n{table(rows)}"


def _contrast(contrast: Mapping[str, Any]) -> list[str]:
    title = f"{contrast['treatment']} - {contrast['control']}, {PRIMARY_SCORE}, points"
    by_k = contrast["scores"][PRIMARY_SCORE]
    parts = []
    if contrast["paired_seeds"]:
        seeds = _words(contrast["paired_seeds"])
        lines = [f"{title}, paired by seed ({seeds})", _paired_table(by_k)]
        parts.append("\n".join([*lines, _flips(by_k)]))
    lines = [f"{title}, unpaired (Welch)", _welch_table(by_k)]
    lines += [
        f"seeds of the {role} without a partner: {_words(contrast['unpaired_seeds'][role])}"
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
                _signed(found["difference"]),
                _interval(found["interval"]),
                _number(found["sign_flip"]["p"] if found["n"] > 1 else None, 4),
                _number(found["t_p"], 4),
                _number(found["difference_over_standard_error"]),
                _number(found["difference_over_control_s"]),
                _number(found["difference_over_paired_s"]),
                " ".join(_signed(value) for value in found["differences"]),
            ]
        )
    return table(rows)


def _flips(by_k: Mapping[str, Any]) -> str:
    found = next(iter(by_k.values()))["paired"]
    flips = found["sign_flip"]
    how = "all patterns" if flips["exact"] else f"random, seed {flips['seed']}"
    if found["n"] == 1:
        return "sign-flip test: undefined with one pair"
    return (
        f"sign-flip test: {flips['num_flips']} patterns ({how}); with {found['n']} seeds p cannot"
        f" go below {flips['smallest_p']:.3g}"
    )


def _welch_table(by_k: Mapping[str, Any]) -> str:
    rows = [["K", "difference", "95 %", "p", "df", "/ its s.e.", "/ s of control"]]
    for k, at_k in by_k.items():
        found = at_k["unpaired"]
        rows.append(
            [
                k,
                _signed(found["difference"]),
                _interval(found["interval"]),
                _number(found["p"], 4),
                _number(found["df"], 1),
                _number(found["difference_over_standard_error"]),
                _number(found["difference_over_control_s"]),
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
        rows.append([k, _interval(bootstrap["interval"]), bootstrap["over"], ", ".join(each)])
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
                    _signed(found["difference"]),
                    _interval(found["interval"]),
                    test["test"],
                    _number(test["p"], 4),
                    _number(test["holm_p"], 4),
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
    interval = "" if about["mean_interval"] is None else f" {_interval(about['mean_interval'])}"
    return f"{about['mean']:.2f}{interval}, s {about['s']:.2f}"


def _markdown_difference(found: Mapping[str, Any], test: Mapping[str, Any]) -> str:
    p = test["p"] if test["role"] == "primary" else test["holm_p"]
    mark = "**primary** " if test["role"] == "primary" else ""
    shown = UNDEFINED if p is None else f"{p:.3f}"
    interval = "" if found["interval"] is None else f" {_interval(found['interval'])}"
    return f"{mark}{_signed(found['difference'])}{interval}, p {shown}"


def _number(value: float | None, digits: int = 2) -> str:
    return UNDEFINED if value is None else f"{value:z.{digits}f}"


def _signed(value: float) -> str:
    return f"{value:+z.2f}"


def _interval(interval: Sequence[float] | None, digits: int = 2) -> str:
    if interval is None:
        return UNDEFINED
    return f"[{interval[0]:z.{digits}f}, {interval[1]:z.{digits}f}]"


def _words(values: Sequence[Any]) -> str:
    return ", ".join("-" if value is None else str(value) for value in values)


def _count(value: int | None) -> str:
    return "over 1000000" if value is None else str(value)
