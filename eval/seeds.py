"""Sigma over seeds: results of runs in, spread per arm and the difference of two arms out."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.sample_statistics import describe, paired, welch
from eval.scoring import SCHEMA as RESULTS_SCHEMA
from eval.scoring import SCORE_NAMES

SCHEMA = "hrm_deeploop.sigma/1"

_MUST_AGREE = (
    "schema",
    "dataset.manifest_sha256",
    "split",
    "protocol",
    "voting.rule",
    "voting.halting",
    "voting.num_aug",
    "voting.sources",
    "voting.puzzle_id",
    "checkpoint.weights",
    "checkpoint.rule",
)


def summarise(
    results: Sequence[Mapping[str, Any]], control: str | None = None, flip_seed: int = 0
) -> dict[str, Any]:
    """Summarises the results of runs: sigma per arm, and the difference where there are two arms.

    Results with equal ``arm.digest`` are runs of one arm and differ in their seed. A result
    without a seed (a foreign solver) is an arm of its own.

    Args:
        results: Contents of results.json files, at least one.
        control: Digest or name of the arm that the other one is compared with; None takes the arm
            of the first result.
        flip_seed: Seed of the sign-flip test where it cannot try all patterns.

    Returns:
        A dict for JSON: schema, conditions (what all results share), top_k, arms [{name, digest,
        seeds, scores {score: {K: ``describe``}}}] and comparison, None unless there are two arms:
        {control, treatment, paired_seeds, unpaired_seeds, scores {score: {K: {unpaired:
        ``welch``, paired: ``paired`` or None}}}}, with the functions of ``sample_statistics``.
        Differences are treatment - control.

    Raises:
        ValueError: If there is no result, a field is missing, results differ in what must agree,
            one is partial, one seed comes twice in an arm, or ``control`` names no single arm.
    """
    if not results:
        raise ValueError("results must hold at least one result, found none; evaluate a run first")
    conditions = _check_poolable(results)
    top_k = list(results[0]["scores"][SCORE_NAMES[0]])
    arms = _group(results)
    comparison = None
    if control is not None or len(arms) == 2:
        comparison = _compare(arms, _control_index(arms, control), top_k, flip_seed)
    return {
        "schema": SCHEMA,
        "conditions": conditions,
        "top_k": top_k,
        "arms": [
            {
                "name": arm["name"],
                "digest": arm["digest"],
                "seeds": arm["seeds"],
                "scores": {
                    name: {k: describe(_values(arm, name, k)) for k in top_k}
                    for name in SCORE_NAMES
                },
            }
            for arm in arms
        ],
        "comparison": comparison,
    }


def format_summary(summary: Mapping[str, Any], score_name: str = SCORE_NAMES[0]) -> str:
    """Lays out a summary as plain text.

    Args:
        summary: From ``summarise``.
        score_name: One of ``scoring.SCORE_NAMES``.

    Returns:
        A line per arm and K, then, for two arms, a line per K with the difference and its tests.

    Raises:
        ValueError: If there is no such score.
    """
    if score_name not in SCORE_NAMES:
        raise ValueError(f"score must be one of {list(SCORE_NAMES)}, found {score_name!r}")
    rows = [["arm", "K", "n", "mean", "s", "95 % of mean", "95 % of s", "seeds: values"]]
    for arm in summary["arms"]:
        for k, about in arm["scores"][score_name].items():
            values = zip(arm["seeds"], about["values"], strict=True)
            rows.append(
                [
                    label(arm, summary["arms"]),
                    k,
                    str(about["n"]),
                    _number(about["mean"]),
                    _number(about["s"], 3),
                    _interval(about["mean_interval"]),
                    _interval(about["s_interval"], 3),
                    ", ".join(f"{'-' if s is None else s}: {_number(v)}" for s, v in values),
                ]
            )
    text = f"{score_name}, percent; s has n - 1\n{_table(rows)}"
    comparison = summary["comparison"]
    return text if comparison is None else f"{text}\n\n{_format_comparison(comparison, score_name)}"


def label(arm: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> str:
    """An arm's name, with the first digits of its digest where another arm has the same name."""
    name = arm["name"] or "(unnamed)"
    if sum(other["name"] == arm["name"] for other in arms) > 1:
        return f"{name} [{str(arm['digest'])[:8]}]"
    return name


def _format_comparison(comparison: Mapping[str, Any], score_name: str) -> str:
    head = ["K", "Welch: difference", "95 %", "p", "/ its s.e.", "/ control s"]
    head += ["paired: n", "difference", "95 %", "sign-flip p", "t p", "/ its s.e.", "/ paired s"]
    rows = [head]
    for k, at_k in comparison["scores"][score_name].items():
        welch_at_k, paired_at_k = at_k["unpaired"], at_k["paired"]
        row = [
            k,
            _number(welch_at_k["difference"]),
            _interval(welch_at_k["interval"]),
            _number(welch_at_k["p"], 4),
            _number(welch_at_k["difference_over_standard_error"]),
            _number(welch_at_k["difference_over_control_s"]),
        ]
        if paired_at_k is None:
            row += ["0", *["undefined"] * 6]
        else:
            row += [
                str(paired_at_k["n"]),
                _number(paired_at_k["difference"]),
                _interval(paired_at_k["interval"]),
                _number(paired_at_k["sign_flip"]["p"], 4),
                _number(paired_at_k["t_p"], 4),
                _number(paired_at_k["difference_over_standard_error"]),
                _number(paired_at_k["difference_over_paired_s"]),
            ]
        rows.append(row)
    arms = [comparison["treatment"], comparison["control"]]
    lines = [" - ".join(label(arm, arms) for arm in arms), _table(rows)]
    if comparison["paired_seeds"]:
        flips = next(iter(comparison["scores"][score_name].values()))["paired"]["sign_flip"]
        seed = "all patterns" if flips["exact"] else f"seed {flips['seed']}"
        lines.append(
            f"sign-flip test: {flips['num_flips']} patterns ({seed}); with"
            f" {len(comparison['paired_seeds'])} seeds p cannot go below {flips['smallest_p']:.3g}"
        )
    lines += [
        f"seeds of {name} without a partner: {comparison['unpaired_seeds'][name]}"
        for name in ("control", "treatment")
        if comparison["unpaired_seeds"][name]
    ]
    return "\n".join(lines)


def _lookup(result: Mapping[str, Any], field: str, where: str) -> Any:
    value: Any = result
    for key in field.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"{where}: {field} is missing; evaluate the run again")
        value = value[key]
    return value


def _check_poolable(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Refuses results that may not be compared; returns what they share."""
    conditions = {field: _lookup(results[0], field, "results[0]") for field in _MUST_AGREE}
    ladders = [
        (name, list(_lookup(results[0], f"scores.{name}", "results[0]"))) for name in SCORE_NAMES
    ]
    if conditions["schema"] != RESULTS_SCHEMA:
        raise ValueError(
            f"results[0]: schema must be {RESULTS_SCHEMA!r}, found {conditions['schema']!r};"
            " evaluate the run again"
        )
    for i, result in enumerate(results):
        where = f"results[{i}]"
        if _lookup(result, "voting.partial", where) is not False:
            raise ValueError(
                f"{where}: voting.partial must be false, found"
                f" {result['voting']['partial']!r}; evaluate all tasks and variants"
            )
        found = {field: _lookup(result, field, where) for field in _MUST_AGREE}
        expected = dict(conditions)
        for name, ladder in ladders:
            expected[f"K list of {name}"] = ladder
            found[f"K list of {name}"] = list(_lookup(result, f"scores.{name}", where))
        for field, value in expected.items():
            if found[field] != value:
                raise ValueError(
                    f"{where}: {field} must be {value!r} as in results[0], found"
                    f" {found[field]!r}; compare results of equal conditions only"
                )
    return conditions


def _group(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    arms: dict[tuple[Any, ...], dict[str, Any]] = {}
    for i, result in enumerate(results):
        where = f"results[{i}]"
        name, digest = _lookup(result, "arm.name", where), _lookup(result, "arm.digest", where)
        seed = _lookup(result, "seed", where)
        # The digest names an arm; only where a foreign solver has none does its name.
        key = (digest, name if digest is None else None, i if seed is None else None)
        arm = arms.setdefault(key, {"name": name, "digest": digest, "seeds": [], "scores": []})
        if seed in arm["seeds"]:
            raise ValueError(
                f"{where}: seed {seed} of arm {name!r} must occur once, found it again; leave out"
                " one of the two results"
            )
        arm["seeds"].append(seed)
        arm["scores"].append(result["scores"])
    for arm in arms.values():
        # Seeds in order: the summary must not depend on the order of the files.
        order = sorted(range(len(arm["seeds"])), key=lambda i: arm["seeds"][i] or 0)
        arm["seeds"] = [arm["seeds"][i] for i in order]
        arm["scores"] = [arm["scores"][i] for i in order]
    return list(arms.values())


def _control_index(arms: list[dict[str, Any]], control: str | None) -> int:
    if len(arms) != 2:
        raise ValueError(
            f"control needs exactly 2 arms, found {[arm['name'] for arm in arms]}; give the results"
            " of two arms"
        )
    if control is None:
        return 0
    matches = [i for i, arm in enumerate(arms) if control in (arm["name"], arm["digest"])]
    if len(matches) != 1:
        known = [(arm["name"], arm["digest"]) for arm in arms]
        raise ValueError(f"control must name one arm of {known}, found {control!r}; give a digest")
    return matches[0]


def _values(arm: Mapping[str, Any], score_name: str, k: str) -> list[float]:
    return [scores[score_name][k] for scores in arm["scores"]]


def _compare(
    arms: list[dict[str, Any]], control_index: int, top_k: list[str], flip_seed: int
) -> dict[str, Any]:
    control, treatment = arms[control_index], arms[1 - control_index]
    both = [s for s in control["seeds"] if s is not None and s in treatment["seeds"]]
    scores: dict[str, dict[str, Any]] = {}
    for name in SCORE_NAMES:
        scores[name] = {}
        for k in top_k:
            old, new = _values(control, name, k), _values(treatment, name, k)
            old_of = dict(zip(control["seeds"], old, strict=True))
            new_of = dict(zip(treatment["seeds"], new, strict=True))
            differences = [new_of[seed] - old_of[seed] for seed in both]
            control_s = describe(old)["s"]
            scores[name][k] = {
                "unpaired": welch(old, new),
                "paired": paired(differences, control_s, flip_seed) if both else None,
            }
    return {
        "control": {"name": control["name"], "digest": control["digest"]},
        "treatment": {"name": treatment["name"], "digest": treatment["digest"]},
        "paired_seeds": both,
        "unpaired_seeds": {
            "control": [s for s in control["seeds"] if s not in both],
            "treatment": [s for s in treatment["seeds"] if s not in both],
        },
        "scores": scores,
    }


def _number(value: float | None, digits: int = 2) -> str:
    return "undefined" if value is None else f"{value:.{digits}f}"


def _interval(interval: Sequence[float] | None, digits: int = 2) -> str:
    if interval is None:
        return "undefined"
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
