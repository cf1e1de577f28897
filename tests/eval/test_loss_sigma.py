"""Losses over seeds: by hand, whatever the order, one seed, and which arms are compared."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loss_runs import BASE, GAINS, TOKENS, make_loss, seeds_of, study
from sigma_runs import write_result, write_run

from eval.loss_sigma import summarise_losses
from eval.loss_text import format_losses, format_markdown, rounds_table
from eval.power import detectable
from eval.sample_statistics import describe, paired, welch
from eval.sigma_inputs import Inputs, collect, read_result


def summary_of(folder: Path, results: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    paths = [write_result(folder / f"{i}.json", result) for i, result in enumerate(results)]
    inputs = Inputs(results=tuple(map(read_result, paths)), unfinished=())
    return summarise_losses(inputs, **options)


def named(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(c["treatment"], c["control"], c["kind"]) for c in summary["contrasts"]]


def test_arms_by_hand(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, seeds_of([3.0, 3.1, 3.5], slant=0.3))
    (arm,) = summary["arms"]
    assert (arm["num_blocks"], arm["rounds"], arm["family"]) == (2, 1, "base")
    about = arm["loss"]
    assert about["values"] == pytest.approx([3.0, 3.1, 3.5])
    assert about["mean"] == pytest.approx(3.2)
    assert about["s"] == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))
    assert about["num_under_floor"] == 2
    assert arm["bits_per_byte"] == pytest.approx(3.2 / math.log(2))
    # Residuals of the documents' mean: +3, -3, 0 nats; 3/2 of 18, over 100 tokens.
    assert about["document_standard_error"] == pytest.approx(math.sqrt(27) / 100)
    assert "3.2000 nats per token over 3 seeds" in summary["words"][0]
    assert summary["words"][1].startswith("Sigma of a single run over seeds is 0.2646 nats")
    json.dumps(summary, allow_nan=False)


def test_each_arm_against_the_baseline_of_its_rounds(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, study())
    assert named(summary) == [
        ("deeploop-R1", "base-R1", "form"),
        ("deeploop-R3", "base-R3", "form"),
        ("deeploop-R7", "base-R7", "form"),
        ("base-R3", "base-R1", "rounds"),
        ("base-R7", "base-R1", "rounds"),
    ]
    assert summary["primary"] is None
    contrast = summary["contrasts"][1]
    gains = GAINS[3]
    found = contrast["loss"]["paired"]
    assert found["differences"] == pytest.approx(gains)
    expected = paired(found["differences"], describe(BASE[3])["s"])
    assert found["interval"] == pytest.approx(expected["interval"])
    assert contrast["loss"]["unpaired"]["p"] == pytest.approx(
        welch(BASE[3], [b + g for b, g in zip(BASE[3], gains, strict=True)])["p"]
    )
    assert contrast["test"]["p"] == 0.125  # all four of one sign
    assert contrast["test"]["holm_p"] == 0.625
    assert contrast["test"]["num_tests"] == 5
    plan = contrast["planning"]
    assert plan["detectable"] == pytest.approx(
        detectable(4, describe(gains)["s"], paired=True, wanted=0.8)
    )
    # The first document costs 0.02 more a token, the second as many nats less.
    nats = [-0.02 * tokens for tokens in TOKENS]
    nats[0], nats[1] = nats[0] + 0.2, nats[1] - 0.2
    residuals = [n + 0.02 * tokens for n, tokens in zip(nats, TOKENS, strict=True)]
    error = math.sqrt(1.5 * sum(r * r for r in residuals)) / sum(TOKENS)
    assert contrast["documents"]["value"] == pytest.approx(-0.02)
    assert contrast["documents"]["standard_error"] == pytest.approx(error)
    low, high = contrast["documents"]["interval"]
    assert (low + high) / 2 == pytest.approx(-0.02)
    assert (high - low) / 2 == pytest.approx(4.302653 * error)  # t, 2 degrees of freedom
    assert "none is established" in summary["words"][1]
    assert "cannot go below 0.625" in summary["words"][1]


def test_rounds_are_read_from_the_run_and_not_from_its_name(tmp_path: Path) -> None:
    results = [*seeds_of([3.0, 3.1], "base", 1), *seeds_of([2.9, 3.1], "deeploop", 1, p=0.5)]
    for result in results:
        result["arm"]["name"] = f"{result['arm']['residual']['arm']}-R7"
        result["arm"]["residual"]["R"] = 3
    summary = summary_of(tmp_path, results)
    assert [(arm["rounds"], arm["label"]) for arm in summary["arms"]] == [
        (3, "base-R7"), (3, "deeploop-R7"),
    ]  # fmt: skip
    assert named(summary) == [("deeploop-R7", "base-R7", "form")]


def test_the_table_over_rounds(tmp_path: Path) -> None:
    rows = rounds_table(summary_of(tmp_path, study()))
    assert rows[0] == ["", "K", "R = 1", "R = 3", "R = 7"]
    assert rows[1] == ["base", "2", "2.9000", "2.8000", "2.7700"]
    assert rows[2][:2] == ["+ deeploop", "2"]
    assert [cell.split()[0] for cell in rows[2][2:]] == ["+0.0010", "-0.0200", "-0.0150"]
    assert rounds_table(summary_of(tmp_path, study()[:8])) == []


def test_the_primary_contrast(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, study()[8:16])
    assert summary["primary"] == {"treatment": "deeploop-R3", "control": "base-R3"}
    assert summary["contrasts"][0]["test"]["role"] == "primary"
    assert summary["contrasts"][0]["test"]["holm_p"] is None
    assert "deeploop-R3 minus base-R3, loss on validation: -0.0200" in summary["words"][0]
    assert "with 4 seeds this test cannot go below 0.125" in summary["words"][0]
    assert "sigma of base-R3's single runs" in summary["words"][1]
    assert "drawing other documents for these same runs gives" in summary["words"][1]
    summary = summary_of(tmp_path, study(), contrast=("deeploop-R7", "deeploop-R3"))
    assert named(summary)[0] == ("deeploop-R7", "deeploop-R3", "declared")
    assert len(summary["contrasts"]) == 6
    summary = summary_of(tmp_path, study(), contrast=("base-R3", "deeploop-R3"))
    assert named(summary)[0] == ("base-R3", "deeploop-R3", "declared")
    assert len(summary["contrasts"]) == 5  # the other way round is no further comparison
    with pytest.raises(ValueError, match="--contrast must name arms of"):
        summary_of(tmp_path, study(), contrast=("deeploop-R7", "nothing"))


def test_less_is_better(tmp_path: Path) -> None:
    base = [3.0, 3.1, 3.2, 3.0, 3.1, 3.2]
    gains = [-0.5, -0.6, -0.55, -0.5, -0.6, -0.55]
    for sign, better in ((1, "deeploop-R1"), (-1, "base-R1")):
        losses = [loss + sign * gain for loss, gain in zip(base, gains, strict=True)]
        results = [*seeds_of(base), *seeds_of(losses, "deeploop", p=0.5)]
        words = summary_of(tmp_path, results)["words"]
        assert f"on this text and this data set the seeds speak for {better}" in words[0]


def test_established_among_several(tmp_path: Path) -> None:
    base = [3.0 + 0.01 * (seed % 3) for seed in range(8)]
    results = seeds_of(base, "base", 3)
    for p, gain in ((0.4, -0.2), (0.5, 0.0)):
        losses = [b + gain + 0.001 * (-1) ** (s // 2) for s, b in enumerate(base)]
        results += seeds_of(losses, "custom", 3, p=p, departures=f"-p={p}")
    summary = summary_of(tmp_path, results)
    assert [c["family"] for c in summary["contrasts"]] == ["custom-p=0.4", "custom-p=0.5"]
    assert summary["words"][0].startswith("Of 2 comparisons, established (Holm's p")
    assert summary["words"][0].endswith("custom-R3-p=0.4 below base-R3.")


def test_baselines_of_equal_departures(tmp_path: Path) -> None:
    results = []
    for form in ("base", "eps_loop"):
        for rate in ("", "-lr=0.01"):
            results += seeds_of([3.0, 3.1], form, 4, departures=rate)
    results += seeds_of([3.0, 3.2], "eps_sqrt", 4, departures="-lr=0.1")
    results += seeds_of([3.0, 3.2], "eps_sqrt", 8)
    summary = summary_of(tmp_path, results)
    assert named(summary) == [
        ("eps_loop-R4", "base-R4", "form"),
        ("eps_loop-R4-lr=0.01", "base-R4-lr=0.01", "form"),
    ]
    assert summary["uncompared"] == [
        f"{arm} is compared with nothing: {n} arms base at K = 2, R = {R}; say with which by"
        " --contrast"
        for arm, n, R in (("eps_sqrt-R4-lr=0.1", 2, 4), ("eps_sqrt-R8", 0, 8))
    ]
    assert summary["uncompared"][0] in format_losses(summary)


def test_one_seed_has_no_sigma(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, [result for result in study() if result["seed"] == 0])
    for arm in summary["arms"]:
        assert [arm["loss"][name] for name in ("s", "mean_interval")] == [None, None]
    for contrast in summary["contrasts"]:
        assert contrast["test"]["p"] is contrast["planning"] is None
        found = contrast["loss"]["paired"]
        assert found["difference_over_standard_error"] is None
        assert found["difference_over_paired_s"] is None
    assert "with one seed per arm there is no test" in summary["words"][1]
    assert summary["words"][-1].startswith("Run more seeds")
    assert "sign-flip test: undefined with one pair" in format_losses(summary)


def test_missing_and_unfinished_seeds_are_visible(tmp_path: Path) -> None:
    for result in study()[:7]:
        write_run(tmp_path / f"{result['arm']['name']}{result['seed']}", result, losses=[4, 3])
    dead = write_run(tmp_path / "dead", state="interrupted")
    (dead / "config.yaml").write_text("seed: 5\n")
    summary = summarise_losses(collect([tmp_path]))
    assert [arm["missing_seeds"] for arm in summary["arms"]] == [[5], [3, 5]]
    text = format_losses(summary)
    assert "missing seeds of deeploop-R1: 3, 5; n is 3" in text
    assert f"not counted: {dead} (arm unknown, seed 5) is interrupted" in text
    assert list(summary["arms"][0]["curves"]) == ["lm_loss"]


@given(st.permutations(range(12)))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_order_of_results_changes_nothing(tmp_path: Path, order: list[int]) -> None:
    results = study()[:12]
    paths = [write_result(tmp_path / f"{i}.json", result) for i, result in enumerate(results)]
    read = [read_result(path) for path in paths]
    expected = summarise_losses(Inputs(results=tuple(read), unfinished=()))
    turned = Inputs(results=tuple(read[i] for i in order), unfinished=())
    assert summarise_losses(turned) == expected


def test_terminal_and_markdown(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, study())
    text = format_losses(summary)
    lines = text.splitlines()
    assert lines[0].startswith("split validation; text 3 documents with 100 tokens; context 8;")
    assert "unigram floor 3.2000 nats per token" in lines[0]
    control = next(line for line in lines if line.startswith("base-R3 "))
    assert control.split()[1:6] == ["2", "3", "4", "2.8000", "0.0216"]
    assert "4 of 4" in control
    assert control.endswith("0: 2.8000, 1: 2.8300, 2: 2.7800, 3: 2.7900")
    row = next(line for line in lines if line.startswith("deeploop-R3 - base-R3  0, 1, 2, 3"))
    assert row.endswith("-0.0200 -0.0100 -0.0300 -0.0200")
    assert "16 patterns (all patterns); with 4 seeds p cannot go below 0.125" in text
    assert "the same unpaired, all seeds of both arms (Welch)" in text
    assert "s.e. over documents is of the text" in text
    told = format_markdown(summary)
    tables = [part.splitlines() for part in told.split("\n\n") if part.startswith("|")]
    assert [len(rows) for rows in tables] == [2 + 6, 2 + 2, 2 + 5, 2 + 5]
    for rows in tables:
        assert len({row.count("|") for row in rows}) == 1
    assert "| 0: 2.8000, 1: 2.8300, 2: 2.7800, 3: 2.7900 |" in told
    assert "| deeploop-R3 - base-R3 | 0, 1, 2, 3 | -0.0200 | [-0.0330, -0.0070] |" in told


def test_unpaired_and_foreign(tmp_path: Path) -> None:
    results = [
        make_loss(None, 3.0),
        *[make_loss(seed, 2.9 + 0.01 * seed, "deeploop", p=0.5) for seed in (1, 2)],
    ]
    summary = summary_of(tmp_path, results)
    (contrast,) = summary["contrasts"]
    assert not contrast["paired"]
    assert contrast["test"]["test"] == "Welch"
    assert contrast["documents"]["value"] == pytest.approx(2.915 - 3.0)
    assert "unpaired" in format_losses(summary)
