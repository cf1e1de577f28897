"""``sigma launch`` and ``psweep`` of the looped language model."""

import shutil
from pathlib import Path

import pytest
from test_looped_cli import SMALL

from arc_data.json_files import read_json
from hrm_deeploop.cli import launch, psweep
from hrm_deeploop.cli.main import main
from hrm_deeploop.looped_lm import data
from hrm_deeploop.looped_lm.evaluation import unigram_entropy
from hrm_deeploop.looped_lm.scales import resolve_loop

BASE = ["experiment=lm_tiny_base", *SMALL]


@pytest.fixture
def here(here: Path, toy_dir: Path) -> Path:
    """An empty working directory but for the toy text."""
    shutil.copytree(toy_dir, here / "data/lm-toy")
    return here


def test_arms_are_values_of_lm_arm() -> None:
    assert launch.parse_arms("base,lm.arm=custom lm.p=0.4", BASE[:1]) == {
        "base": ["lm.arm=base"],
        "custom-p=0.4": ["lm.arm=custom", "lm.p=0.4"],
    }
    assert launch.parse_arms(None, ["experiment=lm_tiny_eps_loop"]) == {"eps_loop": []}
    with pytest.raises(ValueError, match=r"unknown arm 'vanilla'; an arm is one of base, deeploop"):
        launch.parse_arms("base,vanilla", BASE[:1])
    with pytest.raises(ValueError, match=r"unknown arm 'base'; an arm is one of vanilla, deeploop"):
        launch.parse_arms("base", ["experiment=mini_vanilla"])


def test_a_plan_checks_all_runs_and_each_text_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = []
    verify = data.verify
    monkeypatch.setattr(data, "verify", lambda *words: verified.append(words) or verify(*words))
    arms = "arms=base,lm.arm=eps_loop lm.eps_lambda=0.5,lm.arm=custom lm.p=0.4"
    sweep = launch.plan([*BASE, arms, "lm.rounds=1,3", "seeds=0,1", "out=x", "max_steps=7"])
    assert [run.name for run in sweep.runs[:6]] == [
        f"{arm}-rounds={rounds}-s0"
        for arm in ("base", "eps_loop-eps_lambda=0.5", "custom-p=0.4")
        for rounds in (1, 3)
    ]
    assert {run.num_steps for run in sweep.runs} == {7}
    assert len({run.digest for run in sweep.runs}) == 6
    assert len(verified) == 1
    whole = launch.plan([*BASE, "seeds=0", "out=x"]).runs
    assert whole[0].num_steps == 1000  # the experiment's horizon
    epochs = launch.plan([*BASE, "seeds=0", "out=x", "optim.total_steps=null", "epochs=3"]).runs
    tokens = len(data.load(here / "data/lm-toy").train)
    assert epochs[0].num_steps == 3 * (tokens // 8 - 1) // 8
    for words, message in (
        (["lm.p=0.3,0.4"], "lm.p=0.3 has no effect with lm.arm=base"),
        (["lm.context=100000"], "needs 200000 training tokens or more"),
    ):
        given = [word for word in BASE if not word.startswith("lm.context")]
        with pytest.raises(ValueError, match=message):
            launch.plan([*given, *words, "seeds=0", "out=x"])


def test_a_grid_over_arms_is_arms(here: Path) -> None:
    sweep = launch.plan([*BASE, "lm.arm=deeploop,base", "seeds=0", "out=x"])
    assert [run.name for run in sweep.runs] == ["deeploop-s0", "base-s0"]


def test_a_sweep_is_launched_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*BASE, "arms=base,deeploop", "lm.rounds=2", "seeds=3", "max_steps=2", "out=sweep"]
    assert main(["sigma", "launch", *words]) == 0
    out = capsys.readouterr().out
    assert "deeploop-s3 finished  step 2/2  loss" in out
    assert "2 of 2 runs finished in sweep/runs" in out
    for arm in ("base", "deeploop"):
        results = read_json(f"sweep/runs/{arm}-s3/eval/step_000000002/results.json")
        assert (results["arm"]["residual"]["arm"], results["seed"]) == (arm, 3)
    written = modified(here / "sweep/runs")
    assert main(["sigma", "launch", *words]) == 0
    assert "2 of 2 runs finished" in capsys.readouterr().out
    assert modified(here / "sweep/runs") == written


def modified(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def completed(*words: str) -> list[str]:
    return psweep.complete([*BASE, *words], psweep.LM_DEFAULTS, exponents=True)[len(BASE) :]


def test_exponents_are_custom_arms() -> None:
    arm = "lm.arm=custom lm.p={}".format
    assert completed("p=0.3,0.40", "seeds=1", "arms=base") == [
        "seeds=1",
        f"arms=base,{arm(0.3)},{arm(0.4)}",
        "lm.rounds=3",
    ]
    assert "arms=custom" in completed("lm.p=0.3,0.4")
    assert completed("lm.rounds=1,3")[1].count("lm.p=") == 7
    with pytest.raises(ValueError, match=r"p= sets the exponent; leave out p= or lm\.p="):
        completed("p=0.3", "lm.p=0.4")


def test_all_arms_stand_in_one_sweep(here: Path) -> None:
    arms = "arms=base,lm.arm=eps_loop lm.eps_lambda=0.5,eps_sqrt"
    words = [*BASE, *completed(arms, "p=0.3", "lm.rounds=1,4", "seeds=0", "max_steps=40", "out=x")]
    configs = psweep.plan(words).configs
    scales = [resolve_loop(config.lm) for config in configs.values()]
    assert [(s.arm, s.R, s.p, s.eps) for s in scales] == [
        ("base", 1, None, 1),
        ("base", 4, None, 1),
        ("eps_loop", 1, None, 0.5),
        ("eps_loop", 4, None, 0.5 / 4),
        ("eps_sqrt", 1, None, 1),
        ("eps_sqrt", 4, None, 0.5),
        ("custom", 1, 0.3, 1),
        ("custom", 4, 0.3, 1),
    ]
    assert {c.diagnostics.validation_every_steps for c in configs.values()} == {2}
    # What only one arm reads is no reason to refuse the budget's question.
    alone = [*BASE, "arms=eps_loop", "lm.eps_lambda=0.5", "seeds=0", "max_steps=40", "out=x"]
    assert psweep.plan(alone).budget_steps == 40


@pytest.mark.usefixtures("in_process")
def test_a_sweep_finds_what_trains_and_the_best_rates(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*BASE, "arms=eps_loop", "p=0.5", "lm.rounds=1,2", "optim.lr=1e-5,3e-2", "seeds=0"]
    words += ["max_steps=60", "optim.lr_warmup_steps=0", "optim.lr_min_ratio=1"]
    words += ["diagnostics.validation_every_steps=30", "out=sweep"]
    assert main(["psweep", *words, "--at", "30,60"]) == 0
    found = read_json("sweep/psweep.json")
    assert [
        (p["arm"], p["exponents"], p["loop_name"], p["loops"], p["lr"], p["successes"])
        for p in found["points"]
    ] == [
        (arm, {"blocks": p}, "R", rounds, lr, int(lr > 1e-3))
        for arm, p in (("eps_loop", None), ("custom-p=0.5", 0.5))
        for rounds in (1, 2)
        for lr in (1e-5, 3e-2)
    ]
    (floor,) = found["floors"]
    tokens = data.load(here / "data/lm-toy").validation
    assert floor == pytest.approx(unigram_entropy(tokens[1:], 256), abs=0.1)
    for run in found["runs"]:
        assert list(run["losses"]) == ["30", "60"]
        assert run["succeeded"] == (run["losses"]["60"] < floor)
    assert [(t["arm"], t["best"]) for t in found["rate_transfer"]] == [
        ("eps_loop", {"1": 3e-2, "2": 3e-2}),
        ("custom-p=0.5", {"1": 3e-2, "2": 3e-2}),
    ]
    out = capsys.readouterr().out
    assert "best learning rate of eps_loop: R 1: 0.03 (edge of the rates tried), R 2: 0.03" in out
    assert "arm           p    R  lr" in out
    for name in ("psweep.md", "psweep.html", "phase.svg", "phase.png", "losses.svg", "losses.png"):
        assert Path("sweep", name).stat().st_size > 0


@pytest.mark.usefixtures("in_process")
def test_a_pilot_climbs_with_base(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*BASE, "lm.rounds=1,2", "optim.lr=1e-5", "max_steps=1"]
    assert main(["psweep", "--pilot", *words, "out=pilot"]) == 0
    assert read_json("pilot/pilot.json")["rounds"] == [
        {"lr": 1e-5, "successes": {"1": 0, "2": 0}, "runs": {"1": 1, "2": 1}}
    ]
    out = capsys.readouterr().out
    assert "learning rate 1e-05  under the floor  R 1: 0/1  R 2: 0/1" in out
    assert "base does not train at learning rate 1e-05 and R 1 within the budget" in out
    assert main(["psweep", "--pilot", *words, "p=0.5", "out=other"]) == 2
    assert "--pilot runs base at rates of its own choice" in capsys.readouterr().err
    assert not Path("other").exists()


@pytest.mark.usefixtures("in_process")
def test_gamma_of_the_blocks_comes_from_a_probe(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = ["kappa", "--init", "--rounds", "1,2,4", "--batch-size", "2", *BASE]
    sweep = [
        "psweep",
        *BASE,
        "p=0.5",
        "lm.rounds=1",
        "seeds=0",
        "max_steps=1",
        "out=sweep",
        "--gamma",
    ]
    assert main([*probe, "--out", "base.json"]) == 0
    assert main([*sweep, "base.json"]) == 2
    assert "probe with lm.arm=custom lm.p=0" in capsys.readouterr().err
    assert not Path("sweep").exists()
    assert main([*probe, "lm.arm=custom", "lm.p=0", "--out", "plain.json"]) == 0
    assert main([*sweep, "plain.json"]) == 0
    slope = read_json("plain.json")["gamma_over_cycles"]["blocks"]
    assert read_json("sweep/psweep.json")["gammas"] == {"blocks": slope}
    wider = [word.replace("hidden_size=16", "hidden_size=32") for word in sweep]
    assert main([*wider, "plain.json"]) == 2
    assert "'hidden_size': 32}, found" in capsys.readouterr().err
