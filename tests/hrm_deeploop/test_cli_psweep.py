"""``psweep``: its words, the arms it can be asked for, and small sweeps from end to end."""

import math
from pathlib import Path

import pytest

from arc_data.json_files import read_json
from hrm_deeploop.cli import psweep
from hrm_deeploop.cli.main import main
from hrm_deeploop.scaling import resolve

SMALL = [
    "data.num_aug=1",
    "arch.hidden_size=16",
    "arch.num_heads=2",
    "arch.expansion=1",
    "optim.global_batch_size=8",
    "hardware.compile=false",
]


@pytest.fixture
def data(here: Path) -> Path:
    assert main(["data", "build", "experiment=mini_vanilla", SMALL[0]]) == 0
    return here


def completed(*words: str) -> list[str]:
    return psweep.complete(words, {"seeds": "0"}, exponents=True)


def test_exponents_are_arms() -> None:
    arm = "residual=deeploop residual.H.p={0} residual.L.p={0}".format
    assert completed("p=0.25,0.50", "out=x") == [
        "out=x",
        f"arms={arm(0.25)},{arm(0.5)}",
        "seeds=0",
    ]
    assert completed("p=0.5", "arms=vanilla", "seeds=3") == [
        "seeds=3",
        f"arms=vanilla,{arm(0.5)}",
    ]
    assert "arms=deeploop" in completed("residual.H.p=0.25,0.5", "residual.L.p=0.5,0.6")
    assert "arms=looped_eps" in completed("arms=looped_eps", "optim.lr=1,2")
    assert completed("out=x")[1].count("residual=deeploop") == 5
    with pytest.raises(ValueError, match="p= sets both levels' exponents"):
        completed("p=0.5", "residual.H.p=0.25")
    with pytest.raises(ValueError, match="p=half: expected numbers"):
        completed("p=0.5,half")


def test_grid_over_both_levels_exponents_is_one_command(data: Path) -> None:
    words = [*SMALL, "residual.H.p=0.25,0.5", "residual.L.p=0.5,0.75", "max_steps=40", "out=x"]
    words = psweep.complete([*words, "seeds=0", "arch.L_cycles=4"], psweep.DEFAULTS, exponents=True)
    planned = psweep.plan(words)
    scales = [resolve(c.residual, c.arch) for c in planned.configs.values()]
    found = [(s.H.exponent, s.L.exponent, s.H.depth) for s in scales]
    assert found == [(h, low, 5) for h in (0.25, 0.5) for low in (0.5, 0.75)]
    first = next(iter(planned.configs.values()))
    assert first.arch.grad_scope == "last_cycle"
    assert first.diagnostics.validation_every_steps == 2
    assert planned.budget_steps == 40


def test_the_rate_transfer_of_looped_eps_is_one_command(data: Path) -> None:
    words = [*SMALL, "arms=looped_eps", "arch.L_cycles=1,2,4,8", "optim.lr=1e-3,2e-3", "out=x"]
    words = psweep.complete([*words, "seeds=0", "max_steps=9"], psweep.DEFAULTS, exponents=True)
    configs = psweep.plan(words).configs.values()
    found = [(c.arch.L_cycles, c.optim.lr, resolve(c.residual, c.arch).L.alpha) for c in configs]
    # alpha = R sqrt(K) = H_cycles C_L, one block: twice C_L
    assert found == [(c, lr, 2 * c) for c in (1, 2, 4, 8) for lr in (1e-3, 2e-3)]


def test_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["max_steps=null", "seeds=0", "p=0.5"], "needs a fixed budget of steps"),
        (["max_steps=40", "seeds=0", "p=0.5", "--at", "7"], "multiples of 2, up to 40"),
        (["max_steps=40", "p=0.5", "--pilot"], "--pilot runs vanilla at rates of its own choice"),
        (["max_steps=40", "optim.lr=1,2", "--pilot"], "got several optim.lr"),
        (["max_steps=40", "p=3", "seeds=0"], r"residual.H.p must be in [0, 2]; got 3"),
    ):
        assert main(["psweep", *SMALL, "out=x", *words]) == 2
        assert message in capsys.readouterr().err
    assert not Path("x").exists()


@pytest.mark.usefixtures("in_process")
def test_a_sweep_counts_runs_that_stop_being_finite(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "p=0.5", "arch.L_cycles=2", "optim.lr=1e-3,1e30", "seeds=0"]
    words += ["optim.lr_warmup_steps=0", "max_steps=4", "out=sweep"]
    words += ["diagnostics.validation_every_steps=2"]
    assert main(["psweep", *words, "--at", "2,4"]) == 0
    found = read_json("sweep/psweep.json")
    assert [run["state"] for run in found["runs"]] == ["finished", "failed"]
    assert [run["finite"] for run in found["runs"]] == [True, False]
    assert [point["not_finite"] for point in found["points"]] == [0, 1]
    assert [run["succeeded"] for run in found["runs"]] == [False, False]
    losses = found["runs"][0]["losses"]
    assert list(losses) == ["2", "4"]
    assert found["points"][0]["loss"]["4"]["mean"] == losses["4"]
    assert len(found["floors"]) == 1
    assert math.log(2) < found["floors"][0] < math.log(11)
    (transfer,) = found["rate_transfer"]
    assert transfer["best"] == {"2": 1e-3}
    out = capsys.readouterr().out
    assert "deeploop-H.p=0.5-L.p=0.5  0.5  0.5  2" in out
    for name in ("psweep.md", "psweep.html", "phase.svg", "phase.png", "losses.svg", "losses.png"):
        assert Path("sweep", name).stat().st_size > 0
    page = Path("sweep/psweep.html").read_text(encoding="utf-8")
    assert main(["report", "sweep/psweep.json", "--out", "again.html"]) == 0
    assert Path("again.html").read_text(encoding="utf-8") == page


@pytest.mark.usefixtures("in_process")
def test_a_pilot_that_vanilla_fails_at_once(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "arch.L_cycles=1,2", "optim.lr=1e-5", "max_steps=1", "out=pilot"]
    assert main(["psweep", "--pilot", *words]) == 0
    found = read_json("pilot/pilot.json")
    assert found["lr"] is None
    assert found["rounds"] == [
        {"lr": 1e-5, "successes": {"1": 0, "2": 0}, "runs": {"1": 1, "2": 1}}
    ]
    assert "vanilla does not train at learning rate 1e-05" in capsys.readouterr().out
