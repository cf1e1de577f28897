"""What counts as success, the table, best rates, and the figures' lines."""

from pathlib import Path
from typing import Any

import pytest

from eval.phase import (
    RunOutcome,
    default_steps,
    format_markdown,
    format_text,
    rate_transfer,
    summarise,
)
from eval.phase_plots import draw_losses, draw_phase, group_by
from eval.plots import save

FLOOR = 2.0


def outcome(seed: int = 0, **values: Any) -> RunOutcome:
    losses = values.pop("losses", {10: 2.5, 20: 1.5})
    p = values.pop("p", 0.5)
    levels = {"H": values.pop("p_H", p), "L": values.pop("p_L", p)}
    known = {
        "arm": f"p={p}",
        "preset": "deeploop",
        "exponents": levels,
        "loops": values.pop("L_cycles", 2),
        "loop_name": "C_L",
        "lr": 1e-3,
        "settings": "",
        "state": "finished",
        "floor": FLOOR,
        **values,
    }
    point = "-".join(str(known[name]) for name in ("arm", "exponents", "loops", "lr"))
    return RunOutcome(name=f"{point}-s{seed}", point=point, seed=seed, losses=losses, **known)


def diverged(seed: int = 0, **values: Any) -> RunOutcome:
    error = "FloatingPointError: lm_loss is nan at step 15"
    return outcome(seed, state="failed", error=error, **values)


@pytest.mark.parametrize(
    ("run", "counts", "succeeded"),
    [
        (outcome(), True, True),
        (outcome(losses={10: 2.5, 20: 2.0}), True, False),  # equal is not under
        (outcome(losses={10: 1.9, 20: 2.4}), True, True),  # once is enough
        (diverged(losses={10: 1.9}), True, False),  # and then not finite: a failure
        (diverged(losses={}, floor=None), True, False),
        (outcome(state="interrupted"), False, False),
        (outcome(state="failed", error="OSError: disk full"), False, False),
        (outcome(state="waiting", losses={}, floor=None), False, False),
    ],
)
def test_success(run: RunOutcome, counts: bool, succeeded: bool) -> None:
    assert (run.counts, run.succeeded) == (counts, succeeded)
    assert run.as_dict()["succeeded"] is (succeeded if counts else None)


def test_points_count_seeds_and_average_losses_where_there_are_any() -> None:
    runs = [outcome(0), outcome(1, losses={10: 2.1, 20: 2.1}), diverged(2, losses={10: 2.6})]
    runs += [outcome(3, state="interrupted"), outcome(0, p=0.25)]
    first, second = summarise(runs, [10, 20])
    assert [first[k] for k in ("runs", "successes", "not_finite", "unfinished")] == [3, 1, 1, 1]
    assert first["loss"]["10"]["mean"] == pytest.approx((2.5 + 2.1 + 2.6) / 3)
    assert first["loss"]["20"] == {
        "runs": 2,
        "mean": pytest.approx(1.8),
        "least": 1.5,
        "most": 2.1,
        "mean_of_successes": 1.5,
    }
    assert (second["exponents"]["L"], second["runs"], second["successes"]) == (0.25, 1, 1)


def test_steps_are_looks_that_finished_runs_share() -> None:
    looks = {step: 1.0 for step in range(5, 45, 5)}
    assert default_steps([outcome(losses=looks), diverged(losses={5: 1.0})]) == [10, 20, 40]
    assert default_steps([outcome(losses={7: 1.0})]) == [7]
    assert default_steps([diverged(losses={5: 1.0})]) == []


def rates(L_cycles: int, losses: dict[float, float | None]) -> list[RunOutcome]:
    return [
        diverged(L_cycles=L_cycles, lr=lr, losses={}, arm="looped_eps", p=None)
        if loss is None
        else outcome(L_cycles=L_cycles, lr=lr, losses={20: loss}, arm="looped_eps", p=None)
        for lr, loss in losses.items()
    ]


def test_best_rate_per_loop_count() -> None:
    runs = rates(1, {1e-3: 1.9, 2e-3: 1.5, 4e-3: 1.8}) + rates(
        8, {1e-3: 1.7, 2e-3: 1.9, 4e-3: None}
    )
    (found,) = rate_transfer(summarise(runs, [20]))
    assert found["best"] == {"1": 2e-3, "8": 1e-3}
    assert found["at_edge"] == [8]
    assert found["drift"] == 2
    assert rate_transfer(summarise([outcome(0), outcome(1)], [20])) == []
    (none,) = rate_transfer(summarise(rates(1, {1e-3: None, 2e-3: None}), [20]))
    assert (none["best"], none["drift"]) == ({"1": None}, None)


def result(runs: list[RunOutcome]) -> dict[str, Any]:
    points = summarise(runs, [10, 20])
    return {
        "budget_steps": 20,
        "floors": [FLOOR],
        "gammas": {"H": 0.0, "L": 0.4},
        "points": points,
        "rate_transfer": rate_transfer(points),
    }


def test_table_and_notes() -> None:
    runs = [
        outcome(0),
        diverged(1, losses={10: 2.6}),
        outcome(0, p=0.25, losses={10: 3.0, 20: 3.0}),
    ]
    text = format_text(result(runs))
    head, first, second, *notes = text.splitlines()
    assert "settings" not in head  # nothing to say
    assert first.split()[:8] == ["p=0.5", "0.5", "0.5", "2", "0.001", "1/2", "1", "2.5500"]
    assert first.endswith("1.5000 (of 1)")
    assert " 0/1 " in second
    assert any("below 2.0000 nats" in note and "within 20 steps" in note for note in notes)
    assert "gamma measured for L: 0.4, p >= 0.35" in notes
    assert not any(note.startswith("flat") for note in notes)
    assert "| p=0.5 | 0.5 | 0.5 | 2 | 0.001 | 1/2 | 1 |" in format_markdown(result(runs))
    assert "flat: every run succeeds" in format_text(result([outcome(0), outcome(1)]))


def lines(ax: Any) -> dict[str, float]:
    return {line.get_label(): float(line.get_ydata()[0]) for line in ax.get_lines()}


def test_phase_plot_has_the_three_lines(tmp_path: Path) -> None:
    runs = [outcome(0, p=p, L_cycles=c) for p in (0.25, 0.5) for c in (2, 8)]
    found = lines(draw_phase(result(runs), lambda fig: fig.axes[0]))
    gamma = r"$\gamma$"
    assert found[f"{gamma} = 0"] == 0.25
    assert found[f"{gamma} = 0.4, measured"] == pytest.approx(0.35)
    assert found[f"{gamma} = 1"] == 0.5
    assert draw_phase(result(runs), lambda fig: save(fig, tmp_path / "phase.svg")).is_file()
    texts = draw_phase(result(runs), lambda fig: [text.get_text() for text in fig.axes[0].texts])
    assert texts == ["1/1\n1.500"] * 4


def test_levels_of_their_own_have_a_panel_per_loop_count() -> None:
    runs = [
        outcome(0, p_H=h, p_L=low, L_cycles=c)
        for h in (0.25, 0.5)
        for low in (0.25, 0.5)
        for c in (2, 4)
    ]
    titles = draw_phase(result(runs), lambda fig: [ax.get_title(loc="left") for ax in fig.axes])
    assert titles == ["C_L 2", "C_L 4"]
    assert draw_losses(result(runs), lambda fig: fig) is not None  # where p_H = p_L
    only = [outcome(0, p_H=None, p_L=None)]
    assert draw_phase(result(only), lambda fig: fig) is None
    assert draw_losses(result(only), lambda fig: fig) is None


def test_losses_are_drawn_against_rates_where_there_are_several() -> None:
    runs = rates(1, {1e-3: 1.9, 2e-3: 1.5}) + rates(8, {1e-3: 1.7, 2e-3: None})
    ax = draw_losses(result(runs), lambda fig: fig.axes[0])
    assert ax.get_xlabel() == "peak learning rate"
    assert [len(line.get_xdata()) for line in ax.get_lines()[:2]] == [2, 1]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.001", "0.002"]
    assert lines(ax)["best constant guess"] == FLOOR


def test_groups_are_named_by_what_differs() -> None:
    points = summarise([outcome(lr=1e-3), outcome(lr=2e-3)], [20])
    assert [title for title, _ in group_by(points, ("preset", "lr"))] == [
        "learning rate 0.001",
        "learning rate 0.002",
    ]


def one_level(p: float | None, loops: int, **values: Any) -> RunOutcome:
    run = outcome(exponents={"blocks": p}, loops=loops, loop_name="R", **values)
    assert run.as_dict()["exponents"] == {"blocks": p}
    return run


def test_a_model_of_one_level_has_one_exponent_and_its_own_symbol(tmp_path: Path) -> None:
    runs = [one_level(p, loops) for p in (0.3, 0.6) for loops in (1, 3)]
    runs += [one_level(None, 1, preset="base", arm="base", lr=lr) for lr in (1e-3, 2e-3)]
    found = {**result(runs), "gammas": {"blocks": 0.2}}
    head, first, *rest = format_text(found).splitlines()
    assert head.split()[:4] == ["arm", "p", "R", "lr"]
    assert first.split()[:4] == ["p=0.5", "0.3", "1", "0.001"]
    assert rest[3].split()[:4] == ["base", "-", "1", "0.001"]
    assert "gamma measured for blocks: 0.2, p >= 0.3" in rest
    assert any(note.startswith("best learning rate of base: R 1: 0.00") for note in rest)
    ax = draw_phase(found, lambda fig: fig.axes[0])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("R, rounds of the blocks", "p")
    assert lines(ax)[r"$\gamma$ = 0.2, measured"] == pytest.approx(0.3)
    losses = draw_losses(found, lambda fig: fig.axes[0])
    assert losses.get_xlabel() == "p"
    assert [line.get_label() for line in losses.get_lines()[:2]] == ["R = 1", "R = 3"]
