"""gamma per level from the file of a kappa probe, for preset ``measured``.  No torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json
from hrm_deeploop.config import ArchConfig
from hrm_deeploop.scaling import LevelName

SCHEMA = "hrm_deeploop.kappa/1"
SHARED = "H+L"
"""The probe's name of the one set of blocks that serves both levels."""
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
    report = read_json(path)
    if not isinstance(report, Mapping) or report.get("schema") != SCHEMA:
        found = report.get("schema") if isinstance(report, Mapping) else type(report).__name__
        raise ValueError(
            f"residual.gamma_file={path}: expected schema {SCHEMA}, found {found}; write it with: "
            "hrm-deeploop kappa --init --out FILE"
        )
    _check(report, arch, path)
    return {"H": _gamma(report, "H", path), "L": _gamma(report, "L", path)}


def _check(report: Mapping[str, Any], arch: ArchConfig, path: Path) -> None:
    workload = report.get("workload", "arc")
    if workload != "arc":
        raise ValueError(
            f"residual.gamma_file={path}: expected a probe of the reasoner, found one of workload "
            f"{workload}; of the language model set lm.arm=custom and lm.p to (1 + gamma) / 4"
        )
    if "init_seed" not in report["source"]:
        raise ValueError(
            f"residual.gamma_file={path}: expected a probe at initialisation, found one of a "
            "checkpoint; write it with: hrm-deeploop kappa --init --out FILE"
        )
    for row in report["rows"]:
        scales = [row["residual"][level][name] for level in "HL" for name in ("alpha", "beta")]
        if scales != [1.0] * 4:
            raise ValueError(
                f"residual.gamma_file={path}: expected alpha and beta 1, found {scales}; probe "
                "with residual=vanilla"
            )
        names = SAME_ARCH if len(report["rows"]) > 1 else (*SAME_ARCH, "L_cycles")
        for name in names:
            if row["arch"][name] != getattr(arch, name):
                raise ValueError(
                    f"residual.gamma_file={path}: expected arch.{name}={getattr(arch, name)}, the "
                    f"run's, found {row['arch'][name]}; probe with the run's settings"
                )


def _gamma(report: Mapping[str, Any], level: LevelName, path: Path) -> float:
    rows = report["rows"]
    levels = [row["kappa"]["levels"] for row in rows]
    own = [each[level] if level in each else each[SHARED] for each in levels]
    if all(each["rounds"] == 1 for each in own):
        return 0.0
    slopes = report["gamma_over_cycles"]
    gamma = slopes.get(level, slopes.get(SHARED)) if len(rows) > 1 else own[0]["gamma"]
    if gamma is None:
        raise ValueError(
            f"residual.gamma_file={path}: expected a gamma of level {level}, found none; probe "
            "several different loop counts, e.g. --L-cycles 2,4,8,16"
        )
    return float(gamma)
