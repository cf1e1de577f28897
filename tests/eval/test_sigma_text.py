"""Terminal and Markdown forms, and the sentences: the numbers, and no stronger than they are."""

import re
from pathlib import Path
from typing import Any

import pytest
from sigma_runs import make_result, ranks_of, write_result, write_run

from eval.power import plan, single_runs
from eval.seeds import summarise
from eval.sigma_format import bracketed, signed, table
from eval.sigma_inputs import collect
from eval.sigma_text import format_claim, format_markdown, format_plan, format_summary


def summary_of(folder: Path, arms: dict[str, dict[int, int]], **options: Any) -> dict[str, Any]:
    for name, solved in arms.items():
        for seed, n in solved.items():
            result = make_result(seed, ranks_of(n, 100), name)
            write_result(folder / f"{name}{seed}" / "results.json", result)
    return summarise(collect([folder]), num_draws=200, **options)


VANILLA = {0: 40, 1: 41, 2: 45}


def test_terminal(tmp_path: Path) -> None:
    arms = {"vanilla-last_step": VANILLA, "deeploop-last_step": {0: 42, 1: 44, 2: 46, 3: 47}}
    text = format_summary(summary_of(tmp_path, arms))
    lines = text.splitlines()
    assert lines[0].startswith("split mini; protocol published; voting count-first; variants 8")
    control = next(line for line in lines if re.match(r"vanilla-last_step +2 ", line))
    assert control.split()[1:6] == ["2", "3", "42.00", "2.646", "1.528"]
    assert control.endswith("0: 40.00, 1: 41.00, 2: 45.00")
    assert "deeploop-last_step - vanilla-last_step, task_accuracy_strict, points, paired" in text
    assert "8 patterns (all patterns); with 3 seeds p cannot go below 0.25" in text
    assert "seeds of the treatment without a partner: 3" in text
    assert "secondary: all but the primary comparison (K = 2); Holm over 2 tests" in text
    assert "0: 2/0 0.500, 1: 3/0 0.250, 2: 1/0 1.000" in text
    assert "random seed 0; bootstrap of 200 draws" in text


def test_markdown_is_one_table(tmp_path: Path) -> None:
    arms = {"vanilla-last_step": VANILLA, "deeploop-last_step": {0: 42, 1: 44, 2: 46}}
    lines = format_markdown(summary_of(tmp_path, arms)).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows == lines[: len(rows)]
    assert {row.count("|") for row in rows} == {6}
    assert rows[2].startswith("| vanilla-last_step | 3 | 42.00 [35.43, 48.57], s 2.65 |")
    assert "| **primary** +2.00 [-0.48, 4.48], p 0.250 |" in rows[4]


def test_markdown_escapes_names(tmp_path: Path) -> None:
    result = make_result(None, ranks_of(8), "a|b", digest=None)
    write_result(tmp_path / "results.json", result)
    assert "| a\\|b |" in format_markdown(summarise(collect([tmp_path])))


def words(folder: Path, treatment: dict[int, int], control: dict[int, int] = VANILLA) -> str:
    arms = {"vanilla-last_step": control, "deeploop-last_step": treatment}
    sentences = summary_of(folder, arms)["words"]
    assert 2 <= len(sentences) <= 3
    return " ".join(sentences)


def test_a_clear_difference(tmp_path: Path) -> None:
    control = {seed: 40 + seed % 3 for seed in range(6)}
    text = words(tmp_path, {s: n + 8 + s % 2 for s, n in control.items()}, control)
    assert "+8.50 points over 6 paired seeds, 95 % interval +7.93 to +9.07" in text
    assert "sign-flip p = 0.0312" in text
    assert "on these tasks and this data set the seeds speak for deeploop-last_step" in text
    assert "sigma of vanilla-last_step's single runs" in text
    assert "sigma of the paired differences" in text
    for match in re.finditer("sigma", text):
        assert text[match.end() :].startswith(" of "), text


def test_a_difference_for_the_control(tmp_path: Path) -> None:
    control = {seed: 40 + seed % 3 for seed in range(6)}
    text = words(tmp_path, {s: n - 8 - s % 2 for s, n in control.items()}, control)
    assert "the seeds speak for vanilla-last_step" in text


def test_too_few_seeds_for_the_test(tmp_path: Path) -> None:
    control = {0: 40, 1: 41, 2: 45, 3: 42}
    text = words(tmp_path, {s: n + 8 + s % 2 for s, n in control.items()}, control)
    assert "no difference is established, and with 4 seeds this test cannot go below 0.125" in text


def test_no_difference(tmp_path: Path) -> None:
    control = {seed: 40 + seed % 3 for seed in range(6)}
    signs = dict(zip(control, (3, -3, 2, -2, 1, -1), strict=True))
    text = words(tmp_path, {s: n + signs[s] for s, n in control.items()}, control)
    assert "p = 1: no difference is established." in text
    assert "6 paired seeds find a true difference of" in text
    assert "would take" not in text  # no number of seeds finds a difference of 0


def test_an_interval_without_the_test_is_not_enough(tmp_path: Path) -> None:
    # The t-interval excludes 0, the sign-flip p is 0.0625.
    control = dict.fromkeys(range(6), 40) | {0: 41}
    gains = (10, 11, 0, 12, 10, 11)
    text = words(tmp_path, {s: n + gains[s] for s, n in control.items()}, control)
    assert "interval +4.31 to" in text
    assert "no difference is established." in text


@pytest.mark.parametrize(
    ("solved", "expected"),
    [
        ({0: 40}, "One seed has no spread: every sigma is undefined."),
        ({0: 40, 1: 40}, "their spread is 0, so the intervals are undefined"),
        (VANILLA, "Sigma of a single run over seeds is 2.65 points, known to lie between 1.38"),
    ],
)
def test_one_arm(solved: dict[int, int], expected: str, tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {"vanilla-last_step": solved})
    assert expected in " ".join(summary["words"])


def test_what_takes_from_a_conclusion_is_in_it(tmp_path: Path) -> None:
    for seed, n in VANILLA.items():
        early = make_result(seed, ranks_of(n + 2, 100), rule="step", step=4)
        write_run(tmp_path / str(seed), early, make_result(seed, ranks_of(n, 100)))
    text = summarise(collect([tmp_path], "best-on-test"))["words"][0]
    assert "on mini with each run's checkpoint chosen on the test itself: 44.00 %" in text
    other = make_result(7, ranks_of(40, 100), split="other")
    write_run(tmp_path / "7", other)
    text = summarise(collect([tmp_path]), pool_anyway=True)["words"][0]
    assert "on mini and other over unlike runs pooled anyway" in text


def test_zero_has_no_minus() -> None:
    assert (signed(-1e-9), bracketed([-1e-9, 1])) == ("+0.00", "[0.00, 1.00]")


def test_unpaired(tmp_path: Path) -> None:
    text = words(tmp_path, {7: 50, 8: 51, 9: 55})
    assert "over 3 and 3 unpaired runs" in text
    assert "Welch p = 0.00" in text
    assert "3 seeds per arm find" in text


def test_plans_and_claims() -> None:
    text = format_plan(plan(sd=0.5, delta=1))
    assert "0.8    6         7" in text
    assert "standard error of 2.45 points" in text
    assert "over 1000000" in format_plan(plan(sd=5, delta=1e-4))
    assert "that 6 seeds per arm find" in format_plan(plan(sd=0.5, seeds=6))
    text = format_claim(single_runs(36.5, 39.75, sd=0.5, sd_runs=4, tasks=400))
    assert "= 4.60 with 3 degrees of freedom: p = 0.019" in text
    assert "between 0.28 and 1.86 points" in text
    assert "net +13 of 400" in text
    assert "81          0.182" in text
    no_tasks = format_claim(single_runs(36.6, 39.75, sd=0.5, sd_runs=4, tasks=400))
    assert "no whole tasks of 400" in no_tasks


def test_table() -> None:
    assert table([["a", "bc"], ["def", ""]]) == "a    bc\ndef"
