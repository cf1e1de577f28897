"""Model x compiled data -> predictions store, and from there the K ladder."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import hrm_deeploop
from arc_data.compiled import CompiledDataset
from arc_data.manifest import check_digest
from eval.ladder import split_name, vote
from eval.predictions import PredictionsWriter, make_header
from eval.scoring import DEFAULT_TOP_K
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.act import evaluate_segments
from hrm_deeploop.prediction_mode import PredictionMode, Selection
from hrm_deeploop.progress import Progress
from hrm_deeploop.reasoner import Reasoner, to_batch

ROWS_PER_SHARD = 2048
"""Examples per shard: what an interruption can cost."""
SOLE_SOURCE = "model"
"""Name of the source where there is one checkpoint only."""
TOKENS_PER_BATCH = {"cpu": 2**13, "cuda": 2**18}
"""Where a batch size is to be found, the search starts here: cores are busy with less."""


@dataclass
class _BatchSize:
    """Examples per forward pass; where it was not given, it halves when memory runs out."""

    value: int
    is_given: bool

    @classmethod
    def choose(cls, given: int | None, reasoner: Reasoner) -> "_BatchSize":
        if given is not None and given < 1:
            raise ValueError(f"batch_size must be 1 or more; got {given}")
        tokens = TOKENS_PER_BATCH.get(reasoner.device.type, TOKENS_PER_BATCH["cpu"])
        found = max(1, tokens // reasoner.model.num_tokens)
        return cls(found if given is None else given, given is not None)

    def halve(self, error: torch.OutOfMemoryError) -> None:
        if self.is_given or self.value == 1:
            raise error
        self.value //= 2


def predict(
    reasoner: Reasoner,
    dataset: CompiledDataset,
    out: Path,
    *,
    producer: dict[str, Any],
    batch_size: int | None = None,
    mode: PredictionMode | None = None,
) -> int:
    """Predicts variants of the test pairs into a predictions store.

    A store that an earlier call began is continued; what it holds is not computed again.

    Args:
        reasoner: Model and table, on their device.
        dataset: The data set it was trained on.
        out: Folder of the store.
        producer: What made the predictions; continuing needs an equal one.
        batch_size: Examples per forward pass; None: found. Another one changes the last bits of
            the logits only.
        mode: What to predict and how; None: every variant, as published.

    Returns:
        Rows in the store.

    Raises:
        ValueError: If the data set's canvas or puzzle ids do not fit the reasoner, the mode does
            not fit the data set, or the store has another header.
    """
    check_fits(reasoner, dataset)
    mode = mode or PredictionMode()
    sources = {SOLE_SOURCE: lambda: reasoner}
    return _predict(sources, dataset, out, producer, batch_size, mode, (0, 1))


def _predict(
    sources: Mapping[str, Callable[[], Reasoner]],
    dataset: CompiledDataset,
    out: Path,
    producer: dict[str, Any],
    batch_size: int | None,
    mode: PredictionMode,
    part: tuple[int, int],
) -> int:
    selection = Selection(dataset, mode)
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=dataset.canvas,
        split=split_name(dataset),
        num_aug=selection.num_aug,
        producer=producer,
        puzzle_id=mode.puzzle_id,
        halting=mode.halting_words,
        tasks=selection.tasks,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = PredictionsWriter(out, header)
    shards = _plan_shards(list(sources), selection, writer, mode)
    ours = range(part[0], len(shards), part[1])
    done = sum(len(shards[number][1]) for number in ours if number in writer.numbers)
    total = sum(len(shards[number][1]) for number in ours)
    progress = Progress(total, "prediction", start=done)
    reasoner, loaded = None, None
    for number in ours:
        source, rows = shards[number]
        if number in writer.numbers:
            continue
        if reasoner is None or loaded != source:
            reasoner, loaded = sources[source](), source
            size = _BatchSize.choose(batch_size, reasoner)
        columns = _predict_rows(reasoner, selection, rows, mode, size, progress, done)
        writer.write_shard(number, source=np.full(len(columns["segment"]), source), **columns)
        done += len(rows)
        progress.show(done)
    progress.close()
    return writer.num_rows


def _plan_shards(
    sources: Sequence[str], selection: Selection, writer: PredictionsWriter, mode: PredictionMode
) -> list[tuple[str, NDArray[np.int64]]]:
    """Source and examples of every shard by number; checks those that are there against it."""
    chunks = np.split(selection.rows, range(ROWS_PER_SHARD, len(selection.rows), ROWS_PER_SHARD))
    shards = [(source, rows) for source in sources for rows in chunks]
    if max(writer.numbers, default=0) >= len(shards):
        raise ValueError(
            f"the store holds shard {max(writer.numbers)}, but there are {len(shards)} to predict;"
            " write to another --out"
        )
    for number in sorted(writer.numbers):
        source, rows = shards[number]
        expected = {**selection.keys(rows), "source": np.full(len(rows), source)}
        _check_shard(writer, number, expected, mode)
    return shards


def _check_shard(
    writer: PredictionsWriter,
    number: int,
    expected: Mapping[str, NDArray[Any]],
    mode: PredictionMode,
) -> None:
    """Checks that a shard that is there answers the examples it would be written for."""
    found = writer.read_shard(number, (*expected, "segment"))
    # Every example has one prediction after the first segment.
    once = found["segment"] == 1 if mode.every_segment else slice(None)
    for key, values in expected.items():
        if not np.array_equal(found[key][once], values):
            raise ValueError(
                f"the store's {key} in shard {number} are not those of the data set's rows;"
                " write to another --out"
            )


def _predict_rows(
    reasoner: Reasoner,
    selection: Selection,
    rows: NDArray[np.int64],
    mode: PredictionMode,
    size: _BatchSize,
    progress: Progress,
    done: int,
) -> dict[str, NDArray[Any]]:
    """Predicts the examples of one shard: all of a store's columns but the source."""
    parts: list[dict[str, NDArray[Any]]] = []
    start = 0
    while start < len(rows):
        batch = rows[start : start + size.value]
        try:
            predicted = _predict_batch(reasoner, selection, batch, mode, progress, done + start)
        except torch.OutOfMemoryError as error:
            size.halve(error)
            continue
        predicted["example"] += start
        parts.append(predicted)
        start += len(batch)
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    keys = selection.keys(rows)
    example = columns.pop("example")
    return {**columns, **{key: values[example] for key, values in keys.items()}}


def _predict_batch(
    reasoner: Reasoner,
    selection: Selection,
    rows: NDArray[np.int64],
    mode: PredictionMode,
    progress: Progress,
    done: int,
) -> dict[str, NDArray[Any]]:
    """Predicts one batch; ``example`` says which of its rows each prediction answers."""
    batch = to_batch(selection.materialise(rows), reasoner.device)
    halt_max_steps = reasoner.model.arch.halt_max_steps
    with torch.no_grad():
        table_rows = reasoner.table.rows(batch.puzzle_identifiers)
    parts = []
    segments = evaluate_segments(
        reasoner.model, batch, table_rows, adaptive=mode.halting == "adaptive"
    )
    for segment, (examples, heads, ended) in enumerate(segments, start=1):
        progress.show(done + len(rows) * segment // (halt_max_steps + 1))
        if mode.every_segment:
            ended = torch.ones_like(ended)
        elif mode.halting == "fixed" and segment < halt_max_steps:
            continue
        parts.append(
            {
                "example": examples[ended],
                "segment": torch.full_like(examples[ended], segment, dtype=torch.int32),
                "tokens": heads.logits[ended].argmax(-1).to(torch.uint8),
                "q_halt_logit": heads.q_halt_logits[ended],
            }
        )
    merged = {key: torch.cat([part[key] for part in parts]).cpu().numpy() for key in parts[0]}
    order = np.lexsort((merged["segment"], merged["example"]))
    return {key: values[order] for key, values in merged.items()}


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


def producer_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a store records of the checkpoint that made it.

    Args:
        meta: The checkpoint's description.
    """
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


def source_name(meta: Mapping[str, Any]) -> str:
    """Names a checkpoint among several: its run and step."""
    return f"{meta['run']}/{checkpoints.step_folder(meta['step'])}"


def predict_checkpoint(
    paths: Path | Sequence[Path],
    dataset: CompiledDataset,
    out: Path,
    *,
    device: torch.device,
    batch_size: int | None = None,
    part: tuple[int, int] = (0, 1),
    **mode: Any,
) -> int:
    """Predicts with one saved checkpoint, or with several as named sources of one store.

    Args:
        paths: Checkpoints, or run directories (each one's newest checkpoint).
        dataset: The data set they were trained on, which is checked by digest.
        out: Folder of the store.
        device: Where to compute.
        batch_size: Examples per forward pass; None: found.
        part: (i, n): predict every n-th shard from the i-th on, so that n processes fill a store.
        **mode: Fields of ``PredictionMode``.

    Returns:
        Rows in the store.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If a checkpoint is damaged, the data set is another one, the mode does not fit
            it, or two checkpoints have one name.
    """
    chosen = PredictionMode(**mode)
    found = [checkpoints.find(path) for path in ([paths] if isinstance(paths, Path) else paths)]
    metas = [checkpoints.read_meta(path) for path in found]
    for meta in metas:
        check_digest(meta["dataset"], dataset)
    if len(found) == 1:
        names, producer = [SOLE_SOURCE], producer_of(metas[0])
    else:
        names = [source_name(meta) for meta in metas]
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise ValueError(f"{count} checkpoints are named {name}; give each once, rename a run")
        members = {n: producer_of(meta) for n, meta in zip(names, metas, strict=True)}
        producer = {"program": f"hrm_deeploop {hrm_deeploop.__version__}", "sources": members}

    def loader(path: Path) -> Callable[[], Reasoner]:
        def load() -> Reasoner:
            reasoner = Reasoner.from_checkpoint(checkpoints.load(path)).to(device)
            check_fits(reasoner, dataset)
            return reasoner

        return load

    sources = {name: loader(path) for name, path in zip(names, found, strict=True)}
    first = sources[names[0]]()  # a damaged checkpoint shows before anything is written
    sources[names[0]] = lambda: first
    return _predict(sources, dataset, out, producer, batch_size, chosen, part)


def evaluate_checkpoint(
    paths: Path | Sequence[Path],
    dataset: CompiledDataset,
    out: Path,
    *,
    device: torch.device,
    batch_size: int | None = None,
    top_k: Sequence[int] = DEFAULT_TOP_K,
    **mode: Any,
) -> dict[str, Any]:
    """Predicts with checkpoints and votes: ``out/predictions``, results.json, submission.json.

    Args:
        paths: As for ``predict_checkpoint``, and so are the others.
        dataset: The data set.
        out: Folder for the results.
        device: Where to compute.
        batch_size: Examples per forward pass; None: found.
        top_k: The K of the ladder.
        **mode: Fields of ``PredictionMode``: ``tasks``, ``num_aug``, ``halting`` and so on.

    Returns:
        What results.json holds.
    """
    store = out / "predictions"
    predict_checkpoint(paths, dataset, store, device=device, batch_size=batch_size, **mode)
    return vote(store, dataset, out, top_k=top_k)
