"""Validation loss of a saved model, with its standard error over documents.

The first documents' tokens are cut into windows of the model's context, side by side across
document ends, as in training; every token but the very first is predicted once.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arc_data.json_files import write_json
from arc_data.manifest import check_digest
from eval.loss_results import SCHEMA, ratio_estimate
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.looped_lm.data import TokenDataset
from hrm_deeploop.looped_lm.model import NO_TARGET, LoopedGPT
from hrm_deeploop.looped_lm.tokenizer import BYTES
from hrm_deeploop.workload import to_device

RESULTS = "results.json"


def evaluate_checkpoint(
    path: Path,
    dataset: TokenDataset,
    out: Path,
    *,
    device: torch.device,
    batch_size: int,
    num_documents: int | None = None,
    ranks: Ranks | None = None,
) -> dict[str, Any]:
    """Measures a checkpoint on the validation text and writes ``out/results.json``.

    Args:
        path: A checkpoint, or a run directory (its newest checkpoint).
        dataset: The text it was trained on, which is checked by digest.
        out: Where results.json goes.
        device: Where to compute.
        batch_size: Windows per forward pass.
        num_documents: Only the first of the validation documents; None: all.
        ranks: Processes that share the windows, all of which must call; None: this one alone.

    Returns:
        What results.json holds.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If the checkpoint is damaged or the text is another one.
    """
    # Here, since it brings scoring, and with it scipy, which training alone must not need.
    from hrm_deeploop.inference import producer_of

    ranks = ranks or Ranks()
    checkpoint = checkpoints.load(path, "lm")
    check_digest(checkpoint.meta["dataset"]["digest"], dataset)
    model = LoopedGPT.from_checkpoint(checkpoint).to(device)
    total = len(dataset.documents) - 1
    count = total if num_documents is None else min(num_documents, total)
    starts = dataset.documents[: count + 1]
    nats, tokens = document_losses(
        model, dataset.validation[: starts[-1]], starts, batch_size=batch_size, ranks=ranks
    )
    floor = unigram_entropy(dataset.validation[1 : starts[-1]], dataset.vocab_size)
    is_bytes = dataset.manifest["options"]["tokenizer"]["name"] == BYTES
    producer = producer_of(checkpoint.meta)
    results = {
        "schema": SCHEMA,
        "split": "validation",
        "dataset": {"name": dataset.name, "manifest_sha256": dataset.digest},
        "evaluation": {"context": model.config.context, "partial": count < total},
        "checkpoint": producer["checkpoint"],
        "seed": producer["seed"],
        "arm": producer["arm"],
        "num_documents": count,
        "num_tokens": int(tokens.sum()),
        "scores": summary(nats, tokens, floor, is_bytes=is_bytes),
        "documents": {"nats": nats.tolist(), "tokens": tokens.tolist()},
    }

    def write() -> None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / RESULTS, results)

    ranks.main_does(write)
    return results


@torch.no_grad()
def document_losses(
    model: LoopedGPT,
    ids: NDArray[Any],
    starts: NDArray[np.int64],
    *,
    batch_size: int,
    ranks: Ranks,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Summed cross-entropy and number of predicted tokens of each document.

    Args:
        model: On its device.
        ids: (T,) tokens of the documents, one after the other.
        starts: (documents + 1,) where each begins, and T.
        batch_size: Windows per forward pass.
        ranks: Processes that share the windows.

    Returns:
        nats and tokens, (documents,) each, over all processes.
    """
    device = model.embed_tokens.embedding_weight.device
    context, num_documents = model.config.context, len(starts) - 1
    firsts = np.arange(0, len(ids) - 1, context)[ranks.rank :: ranks.size]
    nats = np.zeros(num_documents)
    for begin in range(0, len(firsts), batch_size):
        inputs, targets, places = _padded(ids, firsts[begin : begin + batch_size], context)
        losses = model.token_losses(to_device(inputs, device), to_device(targets, device))
        has_target = targets != NO_TARGET
        documents = np.searchsorted(starts, places[has_target], side="right") - 1
        found = losses.double().cpu().numpy()[has_target]
        nats += np.bincount(documents, found, num_documents)
    shared = ranks.sum_(torch.from_numpy(nats).to(device))
    tokens = np.diff(starts)
    tokens[0] -= 1  # nothing comes before the very first token
    return _to_numpy(shared), tokens


def _to_numpy(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.cpu().numpy()


def _padded(
    ids: NDArray[Any], firsts: NDArray[np.int64], context: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Inputs, targets and the targets' places, (B, context) each; past the end no target."""
    places = firsts[:, None] + np.arange(1, context + 1)  # (B, context)
    inside = places < len(ids)
    inputs = ids[np.minimum(places - 1, len(ids) - 1)].astype(np.int64)
    targets = np.where(inside, ids[np.minimum(places, len(ids) - 1)].astype(np.int64), NO_TARGET)
    return inputs, targets, places


def unigram_entropy(ids: NDArray[Any], vocab_size: int) -> float:
    """Loss of the best prediction that knows only how often each token comes, nats per token."""
    counts = np.bincount(ids, minlength=vocab_size)
    shares = counts[counts > 0] / len(ids)
    return float(-(shares * np.log(shares)).sum())


def summary(
    nats: NDArray[np.float64], tokens: NDArray[np.int64], floor: float, *, is_bytes: bool
) -> dict[str, float | None]:
    """The scores of results.json.

    Args:
        nats: (documents,) summed cross-entropy.
        tokens: (documents,) predicted tokens.
        floor: Unigram entropy, nats per token.
        is_bytes: Whether a token is a byte.

    Returns:
        ``validation_loss`` in nats per token, its standard error over documents (None for one
        document), ``unigram_floor``, ``bits_per_byte`` (None unless tokens are bytes).
    """
    loss, error = ratio_estimate(nats, tokens)
    return {
        "validation_loss": loss,
        "validation_loss_se": error,
        "unigram_floor": floor,
        "bits_per_byte": loss / math.log(2) if is_bytes else None,
    }


def headline(results: Mapping[str, Any]) -> str:
    """Loss and standard error."""
    scores = results["scores"]
    error = scores["validation_loss_se"]
    spread = "" if error is None else f" +- {error:.4f}"
    partial = " (partial)" if results["evaluation"]["partial"] else ""
    return f"validation loss {scores['validation_loss']:.4f}{spread}{partial}"


def format_results(results: Mapping[str, Any]) -> str:
    """The lines printed for people."""
    scores = results["scores"]
    below = scores["unigram_floor"] - scores["validation_loss"]
    lines = [
        f"{headline(results)} nats per token, over {results['num_documents']} documents with "
        f"{results['num_tokens']:,} tokens (+-: one standard error over documents)",
        f"unigram floor {scores['unigram_floor']:.4f}, the loss is {abs(below):.4f} "
        f"{'below' if below > 0 else 'above'} it",
    ]
    if scores["bits_per_byte"] is not None:
        lines.append(f"bits per byte {scores['bits_per_byte']:.4f}")
    return "\n".join(lines)
