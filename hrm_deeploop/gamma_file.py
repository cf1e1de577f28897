"""gamma per level from the file of a kappa probe.  No torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json
from hrm_deeploop.config import ArchConfig
from hrm_deeploop.looped_lm.config import LmConfig

SCHEMA = "hrm_deeploop.kappa/1"
SHARED = "H+L"
"""The probe's name of the one set of blocks that serves both levels."""
BLOCKS = "blocks"
"""The probe's name of a language model's one set of blocks."""
UNSCALED = {"arc": "residual=vanilla", "lm": "lm.arm=custom lm.p=0"}
SAME_LM = ("num_blocks", "hidden_size")
SAME_ARCH = (
    "grad_scope",
    "share_levels",
    "H_layers",
    "L_layers",
    "H_cycles",
    "hidden_size",
)
"""What gamma is measured for; L_cycles too, where the probe has one loop count only."""


def read_gammas(path: Path, arch: ArchConfig) -> dict[str, float]:
    """Reads what ``kappa --init --out`` wrote.

    Args:
        path: The JSON file.
        arch: The run's architecture, which the probe must have had.

    Returns:
        gamma per level: over several loop counts the slope of log kappa on log C_L, with one loop
        count log kappa / log R; 0 for a level that the gradient sees once, where gamma is not
        defined and the exponent is 1/4.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no probe at initialisation with alpha = beta = 1 of this architecture,
            or holds no gamma.
    """
    report = _read(path, "arc")
    _check(report, arch, path)
    return {"H": _gamma(report, "H", path), "L": _gamma(report, "L", path)}


def read_round_gammas(path: Path, lm: LmConfig) -> dict[str, float]:
    """The same of a looped language model, for the phase plot of its p-sweep.

    Args:
        path: The JSON file.
        lm: The model; the probe must be of its blocks in sandwich form with alpha = beta = 1.

    Returns:
        gamma of ``blocks``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no such probe or holds no gamma.
    """
    report = _read(path, "lm")
    wanted = {"arm": "custom", **{key: getattr(lm, key) for key in SAME_LM}}
    for row in report["rows"]:
        found = {"arm": row["residual"][BLOCKS]["arm"], **{k: row["arch"][k] for k in SAME_LM}}
        if found != wanted:
            raise ValueError(
                f"gamma file {path}: expected a probe of {wanted}, found {found}; probe with "
                f"{UNSCALED['lm']} and the runs' settings"
            )
    return {BLOCKS: _gamma(report, BLOCKS, path)}


def _read(path: Path, workload: str) -> Mapping[str, Any]:
    """Reads a probe of a workload's model at initialisation without residual scaling."""
    report = read_json(path)
    if not isinstance(report, Mapping) or report.get("schema") != SCHEMA:
        found = report.get("schema") if isinstance(report, Mapping) else type(report).__name__
        raise ValueError(
            f"gamma file {path}: expected schema {SCHEMA}, found {found}; write it with: "
            "hrm-deeploop kappa --init --out FILE"
        )
    if report.get("workload", "arc") != workload:
        raise ValueError(
            f"gamma file {path}: expected a probe of workload {workload}, found one of "
            f"{report.get('workload', 'arc')}; probe the model that the gamma is for"
        )
    if "init_seed" not in report["source"]:
        raise ValueError(
            f"gamma file {path}: expected a probe at initialisation, found one of a checkpoint; "
            "write it with: hrm-deeploop kappa --init --out FILE"
        )
    for row in report["rows"]:
        levels = [level for level in row["residual"].values() if isinstance(level, Mapping)]
        scales = [level[name] for level in levels for name in ("alpha", "beta")]
        if any(scale != 1 for scale in scales):
            raise ValueError(
                f"gamma file {path}: expected alpha and beta 1, found {scales}; probe with "
                f"{UNSCALED[workload]}"
            )
    return report


def _check(report: Mapping[str, Any], arch: ArchConfig, path: Path) -> None:
    for row in report["rows"]:
        names = SAME_ARCH if len(report["rows"]) > 1 else (*SAME_ARCH, "L_cycles")
        for name in names:
            if row["arch"][name] != getattr(arch, name):
                raise ValueError(
                    f"gamma file {path}: expected arch.{name}={getattr(arch, name)}, the run's, "
                    f"found {row['arch'][name]}; probe with the run's settings"
                )


def _gamma(report: Mapping[str, Any], level: str, path: Path) -> float:
    rows = report["rows"]
    levels = [row["kappa"]["levels"] for row in rows]
    own = [each[level] if level in each else each[SHARED] for each in levels]
    if all(each["rounds"] == 1 for each in own):
        return 0.0
    slopes = report["gamma_over_cycles"]
    gamma = slopes.get(level, slopes.get(SHARED)) if len(rows) > 1 else own[0]["gamma"]
    if gamma is None:
        raise ValueError(
            f"gamma file {path}: expected a gamma of level {level}, found none; probe "
            "several different loop counts, e.g. --rounds 2,4,8,16"
        )
    return float(gamma)
