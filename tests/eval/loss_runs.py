"""Results of a language model as ``lm eval`` writes them, made up for tests of sigma."""

import math
from collections.abc import Sequence
from typing import Any

from sigma_runs import changed

from eval.loss_results import SCHEMA

TOKENS = (10, 30, 60)
FLOOR = 3.2


def make_loss(
    seed: int | None,
    loss: float,
    form: str = "base",
    rounds: int = 1,
    *,
    p: float | None = None,
    departures: str = "",
    slant: float = 0.0,
    rule: str | None = "final",
    step: int = 9,
    **changes: Any,
) -> dict[str, Any]:
    """A results.json of three documents; ``changes`` as in ``sigma_runs.changed``.

    Args:
        seed: Run seed.
        loss: Nats per token.
        form: ``lm.arm``.
        rounds: R.
        p: Exponent.
        departures: What the name ends in.
        slant: How much more than ``loss`` the first document's tokens cost; the second's cost less.
        rule: Of the checkpoint.
        step: Of the checkpoint.
        **changes: Names have ``__`` for dots.
    """
    nats = [loss * tokens for tokens in TOKENS]
    nats[0] += slant * TOKENS[0]
    nats[1] -= slant * TOKENS[0]
    name = f"{form}-R{rounds}{departures}"
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "split": "validation",
        "dataset": {"name": "toy", "manifest_sha256": "aa" * 32},
        "evaluation": {"context": 8, "partial": False},
        "checkpoint": {"run": "r", "step": step, "weights": "raw", "sha256": "x", "rule": rule},
        "seed": seed,
        "arm": {
            "name": name,
            "digest": f"digest of {name}",
            "residual": {
                "arm": form,
                "K": 2,
                "R": rounds,
                "N": 2 * rounds,
                "p": p,
                "alpha": 1.0,
                "beta": 1.0,
                "eps": 1.0,
                "inner_norm": True,
                "ffn_gain": None,
            },
            "stream_dtype": "float32",
        },
        "num_documents": len(TOKENS),
        "num_tokens": sum(TOKENS),
        "scores": {
            "validation_loss": sum(nats) / sum(TOKENS),
            "validation_loss_se": None,
            "unigram_floor": FLOOR,
            "bits_per_byte": loss / math.log(2),
        },
        "documents": {"nats": nats, "tokens": list(TOKENS)},
    }
    return changed(result, **changes)


def seeds_of(losses: Sequence[float], *arm: Any, **more: Any) -> list[dict[str, Any]]:
    """A result per loss, of seeds 0, 1, ..."""
    return [make_loss(seed, loss, *arm, **more) for seed, loss in enumerate(losses)]


BASE = {1: (2.90, 2.92, 2.88, 2.90), 3: (2.80, 2.83, 2.78, 2.79), 7: (2.77, 2.79, 2.74, 2.78)}
GAINS = {
    1: (0.001, 0.0, -0.001, 0.004),
    3: (-0.02, -0.01, -0.03, -0.02),
    7: (-0.02, 0.01, -0.04, -0.01),
}


def study() -> list[dict[str, Any]]:
    """Arms base and deeploop x R = 1, 3, 7 x 4 seeds."""
    results = []
    for rounds, losses in BASE.items():
        results += seeds_of(losses, "base", rounds)
        better = [loss + gain for loss, gain in zip(losses, GAINS[rounds], strict=True)]
        results += seeds_of(better, "deeploop", rounds, p=0.5, slant=0.02)
    return results
