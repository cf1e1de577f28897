"""Results of a language model: losses of the documents of a text, what must be in them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.run_results import Kind, RunResult

SCHEMA = "hrm_deeploop.lm_results/1"
_NUMBER = (int, float)
_FIELDS: dict[str, tuple[type, ...]] = {
    "evaluation.context": (int,),
    "evaluation.partial": (bool,),
    "scores.validation_loss": _NUMBER,
    "scores.unigram_floor": _NUMBER,
    "scores.bits_per_byte": (*_NUMBER, type(None)),
    "documents.nats": (list,),
    "documents.tokens": (list,),
    "arm.residual.arm": (str,),
    "arm.residual.K": (int,),
    "arm.residual.R": (int,),
    "arm.residual.p": (*_NUMBER, type(None)),
}
_MUST_AGREE = (
    "dataset.manifest_sha256",
    "split",
    "evaluation.context",
    "checkpoint.weights",
)
_TOLERANCE = 1e-6
"""Between the loss and that of its documents, relative."""


def ratio_estimate(
    nats: NDArray[np.float64], tokens: NDArray[np.int64]
) -> tuple[float, float | None]:
    """A loss per token and its standard error from the sampling of documents.

    Documents are drawn, their tokens are not independent.

    Args:
        nats: (documents,) summed cross-entropy, or a difference of such sums.
        tokens: (documents,) predicted tokens, together at least one.

    Returns:
        Sum of nats over sum of tokens, and its standard error; None for one document.

    **Source**: ratio estimator with documents as clusters, Cochran (1977), chapter 6.
    """
    num_documents, total = len(nats), int(tokens.sum())
    ratio = float(nats.sum() / total)
    if num_documents < 2:
        return ratio, None
    residuals = nats - ratio * tokens
    variance = num_documents / (num_documents - 1) * float((residuals**2).sum())
    return ratio, math.sqrt(variance) / total


def document_nats(result: RunResult) -> NDArray[np.float64]:
    """Summed cross-entropy of each document, (documents,)."""
    return np.array(result.field("documents.nats"), dtype=np.float64)


def document_tokens(result: RunResult) -> NDArray[np.int64]:
    """Predicted tokens of each document, (documents,)."""
    return np.array(result.field("documents.tokens"), dtype=np.int64)


def _check(content: Mapping[str, Any], path: Path) -> None:
    nats, tokens = (content["documents"][key] for key in ("nats", "tokens"))
    good_nats = all(type(n) in _NUMBER and math.isfinite(n) for n in nats)
    good_tokens = all(type(n) is int and n >= 0 for n in tokens)
    if not good_nats or not good_tokens or len(nats) != len(tokens) or not sum(tokens):
        raise ValueError(
            f"{path}: documents must hold nats (finite) and tokens (from 0) of each document, found"
            f" {str(nats)[:30]} and {str(tokens)[:30]}; evaluate again"
        )
    loss, expected = content["scores"]["validation_loss"], math.fsum(nats) / sum(tokens)
    if not abs(loss - expected) <= _TOLERANCE * max(1.0, abs(expected)):  # NaN too
        raise ValueError(
            f"{path}: scores.validation_loss must be {expected:.6f} as its documents say, found"
            f" {loss:.6f}; evaluate again"
        )
    floor = content["scores"]["unigram_floor"]
    if not 0 <= floor < math.inf:
        raise ValueError(
            f"{path}: scores.unigram_floor must be a loss from 0 on, found {floor!r}; evaluate"
            " again"
        )
    for name in ("K", "R"):
        if content["arm"]["residual"][name] < 1:
            raise ValueError(
                f"{path}: arm.residual.{name} must be at least 1, found"
                f" {content['arm']['residual'][name]}; evaluate again"
            )


def _conditions(result: RunResult) -> dict[str, Any]:
    values = {name: result.field(name) for name in _MUST_AGREE}
    values["checkpoint.rule"] = result.rule
    tokens = result.field("documents.tokens")
    values["text"] = f"{len(tokens)} documents with {sum(tokens)} tokens"
    return values


LOSS = Kind(
    schema=SCHEMA,
    fields=_FIELDS,
    check=_check,
    conditions=_conditions,
    partial="evaluation.partial",
    whole="all documents",
    description=("residual", "stream_dtype"),
    rating=lambda result: -float(result.field("scores.validation_loss")),
    chosen=(
        "each run's checkpoint was chosen by its loss on the text that is scored: the losses are"
        " those of a choice made on it, too low by an unknown amount"
    ),
)
