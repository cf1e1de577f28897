"""gamma from a probe's file: which number, what is refused, and what a run keeps of it."""

import copy
from pathlib import Path
from typing import Any

import pytest

from arc_data.json_files import write_json
from hrm_deeploop import gamma_file, probes, visits
from hrm_deeploop.cli.compose import compose, override_saved
from hrm_deeploop.config import ArchConfig
from hrm_deeploop.gamma_file import read_gammas
from hrm_deeploop.scaling import resolve
from hrm_deeploop.settings import digest

ARCH = ArchConfig(grad_scope="last_cycle")


def row(L_cycles: int, gamma: float | None, rounds: int | None = None) -> dict[str, Any]:
    ones = {"alpha": 1.0, "beta": 1.0}
    names = visits.RECORDED_ARCH
    return {
        "arch": {**{name: getattr(ARCH, name) for name in names}, "L_cycles": L_cycles},
        "residual": {"H": ones, "L": ones},
        "kappa": {
            "levels": {
                "H": {"rounds": 1, "gamma": None},
                "L": {"rounds": L_cycles if rounds is None else rounds, "gamma": gamma},
            }
        },
    }


def report(*rows: dict[str, Any], slope: float | None = None) -> dict[str, Any]:
    return {
        "schema": "hrm_deeploop.kappa/1",
        "source": {"init_seed": 0},
        "rows": list(rows),
        "gamma_over_cycles": {"H": None if slope is None else 0.0, "L": slope},
    }


SEVERAL = report(row(2, 0.9), row(4, 0.8), slope=0.6)


def test_the_probe_writes_what_is_read() -> None:
    assert gamma_file.SCHEMA == probes.SCHEMA
    assert gamma_file.SHARED == visits.SHARED
    assert set(gamma_file.SAME_ARCH) < set(visits.RECORDED_ARCH)


@pytest.mark.parametrize(
    ("found", "gammas"),
    [
        (SEVERAL, (0.0, 0.6)),  # the slope, not a row's own
        (report(row(2, 0.9)), (0.0, 0.9)),
        (report(row(2, None, rounds=1)), (0.0, 0.0)),  # last_step: seen once
    ],
)
def test_which_gamma(found: dict[str, Any], gammas: tuple[float, float], tmp_path: Path) -> None:
    write_json(tmp_path / "kappa.json", found)
    assert tuple(read_gammas(tmp_path / "kappa.json", ARCH).values()) == gammas


def test_shared_levels_have_one_gamma(tmp_path: Path) -> None:
    shared = report(row(2, 0.4))
    shared["rows"][0]["kappa"]["levels"] = {"H+L": {"rounds": 3, "gamma": 0.4}}
    write_json(tmp_path / "kappa.json", shared)
    assert read_gammas(tmp_path / "kappa.json", ARCH) == {"H": 0.4, "L": 0.4}


def broken(path: str, value: object) -> dict[str, Any]:
    found = copy.deepcopy(report(row(2, 0.9)))
    place: Any = found
    *groups, leaf = path.split("/")
    for group in groups:
        place = place[int(group) if group.isdecimal() else group]
    place[leaf] = value
    return found


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"schema": "other"}, "expected schema hrm_deeploop.kappa/1, found other"),
        ([1], "expected schema hrm_deeploop.kappa/1, found list"),
        (broken("workload", "lm"), "expected a probe of workload arc, found one of lm"),
        (broken("source", {"checkpoint": 1}), "expected a probe at initialisation"),
        (broken("rows/0/residual/L", {"alpha": 2.0, "beta": 1.0}), "expected alpha and beta 1"),
        (broken("rows/0/arch/grad_scope", "last_step"), "expected arch.grad_scope=last_cycle"),
        (broken("rows/0/arch/L_cycles", 4), "expected arch.L_cycles=2, the run's, found 4"),
        (report(row(2, None)), "expected a gamma of level L, found none"),
        (report(row(2, 0.9), row(2, 0.9)), "expected a gamma of level L, found none"),
    ],
)
def test_refused(found: Any, message: str, tmp_path: Path) -> None:
    write_json(tmp_path / "kappa.json", found)
    with pytest.raises(ValueError, match=message):
        read_gammas(tmp_path / "kappa.json", ARCH)


def test_a_run_keeps_the_numbers_and_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kappa, 1.json"
    write_json(path, SEVERAL)
    words = ["residual=measured", "arch.grad_scope=last_cycle"]
    config = compose([*words, f"residual.gamma_file={path}"])
    path.unlink()
    assert (config.residual.H.gamma, config.residual.L.gamma) == (0.0, 0.6)
    scales = resolve(config.residual, config.arch)
    assert (scales.H.exponent, scales.L.exponent) == (0.25, 0.4)
    by_hand = compose([*words, "residual.H.gamma=0", "residual.L.gamma=0.6"])
    assert digest(config) == digest(by_hand)
    with pytest.raises(ValueError, match="keeps the gammas that it began with"):
        override_saved(config, [f"residual.gamma_file={path}"])


def test_one_level_may_be_measured_and_nothing_is_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "kappa.json"
    write_json(path, SEVERAL)
    words = ["arch.grad_scope=last_cycle", f"residual.gamma_file={path}"]
    config = compose([*words, "residual=deeploop", "residual.L.preset=measured"])
    assert (config.residual.H.gamma, config.residual.L.gamma) == (None, 0.6)
    with pytest.raises(ValueError, match=r"residual.L.gamma=0.1 and .* exclude each other"):
        compose([*words, "residual=measured", "residual.L.gamma=0.1"])
    with pytest.raises(ValueError, match="gamma_file is read by preset measured only"):
        compose([*words, "residual=deeploop"])
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        compose(["residual=measured", f"residual.gamma_file={tmp_path}/absent.json"])
