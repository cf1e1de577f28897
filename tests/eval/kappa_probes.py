"""What ``hrm-deeploop kappa --out`` writes, made up for tests of its page."""

from collections.abc import Sequence
from typing import Any

from eval.kappa_page import SCHEMA

SUBLAYERS = ("attention", "mlp")


def _alignment(rounds: int) -> dict[str, Any]:
    cosines = [[0.8 ** abs(i - j) for j in range(rounds)] for i in range(rounds)]
    return {
        "norms": [1.0] * rounds,
        "sum_norm": 1.0,
        "alignment": 1 + 0.5 * (rounds - 1),
        "cosines": cosines,
    }


def _level(rounds: int) -> dict[str, Any]:
    """kappa = sqrt R, so gamma = 1 / 2."""
    sublayers = [
        {
            "block": 0,
            "sublayer": name,
            "kappa": rounds**0.5 / (1 + i),
            "write": _alignment(rounds),
            "read": _alignment(rounds),
        }
        for i, name in enumerate(SUBLAYERS)
    ]
    gamma = None if rounds == 1 else 0.5
    exponent = 0.25 if rounds == 1 else 0.375
    return {
        "rounds": rounds,
        "kappa": rounds**0.5,
        "gamma": gamma,
        "exponent": exponent,
        "sublayers": sublayers,
    }


def _first_step(rates: Sequence[float]) -> dict[str, Any]:
    change = {
        "predicted": [100 * rate for rate in rates],
        "actual": [90 * rate for rate in rates],
        "deviation": [100 * rate for rate in rates],
    }
    regions = {"visible": change, "whole": change}
    return {
        "output_norm": 50.0,
        "num_outputs": 9,
        "rates": list(rates),
        "bound": 0.1,
        "changes": {group: regions for group in ("H", "L", "H+L", "all")},
    }


def _streams(cycles: int) -> dict[str, Any]:
    numbers = {"before_rms": 2.0, "stream_rms": 1.0, "update_rms": 0.1}
    shares = {"unchanged": 0.0, "lost": 0.25}
    sublayers = [{"block": 0, "sublayer": name, **numbers, **shares} for name in SUBLAYERS]
    calls = [*["L"] * cycles, "H"]
    return {
        "visits": [
            {"level": level, "visible": cycle == 1, "sublayers": sublayers}
            for cycle in range(2)
            for level in calls
        ],
        "increment_cosines": {
            "H": [[1.0, None], [None, None]],
            "L": [[1.0] * (2 * cycles)] * (2 * cycles),
        },
    }


def make_probe(
    cycles: Sequence[int] = (1, 2, 4), *, rates: Sequence[float] = (1e-4,), one_visit: bool = False
) -> dict[str, Any]:
    """A probe over L_cycles; ``one_visit``: of a gradient that sees each level once."""
    rows = [
        {
            "arch": {"grad_scope": "last_cycle", "L_cycles": C},
            "residual": {
                "H": {"p": 0.25, "N": 2.0, "alpha": 2.0, "beta": 0.25},
                "L": {"p": 0.5, "N": 2.0, "alpha": 3.0, "beta": 0.5},
                "ffn_gain": "activated",
            },
            "kappa": {
                "loss": 2.5,
                "levels": {"H": _level(1), "L": _level(1 if one_visit else C)},
                "bound_worst_case": 0.1 * C,
                "bound_measured": 0.1,
            },
            "first_step": _first_step(rates),
            "streams": _streams(C),
        }
        for C in cycles
    ]
    slope = 0.5 if len(cycles) > 1 and not one_visit else None
    return {
        "schema": SCHEMA,
        "source": {"init_seed": 0, "batch_size": 8, "precision": "float32"},
        "dataset": {"digest": "ab" * 32},
        "rows": rows,
        "gamma_over_cycles": {"H": 0.0 if len(cycles) > 1 else None, "L": slope},
    }


def make_loop_probe(
    rounds: Sequence[int] = (1, 3), *, rates: Sequence[float] = (1e-4,), has_alpha: bool = True
) -> dict[str, Any]:
    """A probe of the looped language model over its rounds; without alpha: of a pre-norm arm."""
    probe = make_probe(rounds, rates=rates)
    for R, row in zip(rounds, probe["rows"], strict=True):
        own = {"p": 0.5, "N": 2 * R, "alpha": 3.0, "beta": 0.25, "eps": 1.0}
        if not has_alpha:
            own |= {"p": None, "alpha": 1.0, "beta": 1.0, "eps": 0.125}
            row["kappa"].update(bound_worst_case=None, bound_measured=None)
        row["arch"] = {"num_blocks": 2, "rounds": R}
        row["residual"] = {"blocks": own}
        row["kappa"]["levels"] = {"blocks": _level(R)}
        changes = row["first_step"]["changes"]
        row["first_step"]["changes"] = {
            group: {"whole": changes["all"]["whole"]} for group in ("blocks", "embedding", "all")
        }
        visits = row["streams"]["visits"][:R]
        row["streams"] = {
            "visits": [{**visit, "level": "blocks", "visible": True} for visit in visits],
            "increment_cosines": {"blocks": [[1.0] * R] * R},
        }
    return {
        **probe,
        "workload": "lm",
        "loop": "rounds",
        "step": {"optimizer": "adam_atan2", "beta1": 0.9},
        "gamma_over_cycles": {"blocks": 0.5 if len(rounds) > 1 else None},
    }
