"""Model x compiled data -> predictions store, and from there the K ladder."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

import hrm_deeploop
from arc_data.compiled import CompiledDataset
from arc_data.manifest import check_digest
from eval.ladder import split_name, vote
from eval.predictions import Predictions, PredictionsWriter, make_header, read
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.act import evaluate
from hrm_deeploop.checkpoint import Checkpoint
from hrm_deeploop.progress import Progress
from hrm_deeploop.reasoner import Reasoner, to_batch

HALTING = "fixed"  # every example runs all halt_max_steps segments
ROWS_PER_SHARD = 2048  # what an interruption can cost


def predict(
    reasoner: Reasoner,
    dataset: CompiledDataset,
    out: Path,
    *,
    producer: dict[str, Any],
    batch_size: int,
) -> int:
    """Predicts every variant of the test pairs into a predictions store.

    A store that an earlier call began is continued; what it holds is not computed again.

    Args:
        reasoner: Model and table, on their device.
        dataset: The data set it was trained on.
        out: Folder of the store.
        producer: What made the predictions; continuing needs an equal one.
        batch_size: Examples per forward pass.

    Returns:
        Rows in the store.

    Raises:
        ValueError: If the data set's canvas or puzzle ids do not fit the reasoner, or the store
            has another header.
    """
    check_fits(reasoner, dataset)
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more; got {batch_size}")
    out.parent.mkdir(parents=True, exist_ok=True)
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=dataset.canvas,
        split=split_name(dataset),
        num_aug=dataset.num_aug,
        producer=producer,
        puzzle_id="right",
        halting=HALTING,
    )
    writer = PredictionsWriter(out, header)
    total = dataset.test.num_examples
    _check_continues(read(out), dataset)
    progress = Progress(total, "prediction", start=writer.num_rows)
    for start in range(writer.num_rows, total, ROWS_PER_SHARD):
        shard = range(start, min(start + ROWS_PER_SHARD, total))
        columns = [
            _predict_rows(reasoner, dataset, np.arange(first, min(first + batch_size, shard.stop)))
            for first in progress.track(shard[::batch_size], batch_size)
        ]
        writer.append(**{key: np.concatenate([c[key] for c in columns]) for key in columns[0]})
    progress.close()
    return writer.num_rows


def _check_continues(found: Predictions, dataset: CompiledDataset) -> None:
    """Checks that what a store holds are the data set's first rows."""
    if len(found) > dataset.test.num_examples:
        raise ValueError(
            f"the store holds {len(found)} predictions, but the data set has "
            f"{dataset.test.num_examples} test examples; write to another --out"
        )
    expected = _keys(dataset, np.arange(len(found)))
    for key, values in expected.items():
        if not np.array_equal(getattr(found, key), values):
            raise ValueError(
                f"the store's {key} are not the data set's first rows; write to another --out"
            )


def _keys(dataset: CompiledDataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    described = dataset.test.describe(rows)
    return {
        "task_id": np.array(dataset.task_names)[described["task"]],
        "test_index": described["test_index"],
        "dihedral": described["dihedral"],
        "color_map": described["color_map"],
    }


def _predict_rows(
    reasoner: Reasoner, dataset: CompiledDataset, rows: np.ndarray
) -> dict[str, np.ndarray]:
    batch = to_batch(dataset.test.materialise(rows), reasoner.device)
    with torch.no_grad():
        out = evaluate(reasoner.model, batch, reasoner.table.rows(batch.puzzle_identifiers))
    return {
        **_keys(dataset, rows),
        "segment": np.full(len(rows), reasoner.model.arch.halt_max_steps, np.int32),
        "source": np.full(len(rows), "model"),
        "tokens": out.logits.argmax(-1).to(torch.uint8).cpu().numpy(),
        "q_halt_logit": out.q_halt_logits.cpu().numpy(),
    }


def check_fits(reasoner: Reasoner, dataset: CompiledDataset) -> None:
    """Checks that a data set's canvas and puzzle ids are the reasoner's.

    Raises:
        ValueError: If not; the message names the first task without a row in the table.
    """
    if dataset.canvas != reasoner.canvas:
        raise ValueError(
            f"the data set's canvas is {dataset.canvas}, the model's {reasoner.canvas}; use the "
            "data set the model was trained on"
        )
    num_rows = len(reasoner.table.weights)
    if dataset.num_puzzle_identifiers > num_rows:
        name = dataset.identifiers()[num_rows]
        raise ValueError(
            f"puzzle {name} has id {num_rows}, but the puzzle table has {num_rows} rows; use the "
            "data set the model was trained on"
        )


def producer_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a store records of the checkpoint that made it."""
    meta = checkpoint.meta
    return {
        "program": f"hrm_deeploop {hrm_deeploop.__version__}",
        "checkpoint": {
            "run": meta["run"],
            "step": meta["step"],
            "weights": "raw" if meta["config"]["optim"]["ema"] is None else "ema",
            "sha256": meta["sha256"][checkpoints.WEIGHTS],
            "rule": "final" if meta["step"] == meta["final_step"] else "step",
        },
        "seed": meta["seed"],
        "arm": meta["arm"],
    }


def predict_checkpoint(
    path: Path, dataset: CompiledDataset, out: Path, *, device: torch.device, batch_size: int
) -> int:
    """Predicts with a saved checkpoint; see ``predict``.

    Args:
        path: A checkpoint, or a run directory (its newest checkpoint).
        dataset: The data set it was trained on, which is checked by digest.
        out: Folder of the store.
        device: Where to compute.
        batch_size: Examples per forward pass.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If the checkpoint is damaged or the data set is another one.
    """
    checkpoint = checkpoints.load(path)
    check_digest(checkpoint.meta["dataset"], dataset)
    reasoner = Reasoner.from_checkpoint(checkpoint).to(device)
    producer = producer_of(checkpoint)
    return predict(reasoner, dataset, out, producer=producer, batch_size=batch_size)


def evaluate_checkpoint(
    path: Path, dataset: CompiledDataset, out: Path, *, device: torch.device, batch_size: int
) -> dict[str, Any]:
    """Predicts with a checkpoint and votes: ``out/predictions``, results.json, submission.json.

    Arguments and errors as for ``predict_checkpoint``.

    Returns:
        What results.json holds.
    """
    store = out / "predictions"
    predict_checkpoint(path, dataset, store, device=device, batch_size=batch_size)
    return vote(store, dataset, out)
