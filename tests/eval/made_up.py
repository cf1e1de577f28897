"""Made-up tasks with a store of votes: many shapes, every outcome, any number of variants."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import apply
from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source
from arc_data.tasks import Task, read_task
from arc_data.tokens import encode
from eval.predictions import PredictionsWriter, make_header

OUTCOMES = ("first", "second", "late", "one cell", "wrong", "shape", "empty")
"""What a test pair's votes look like, task by task in turn."""
ROWS_PER_SHARD = 4096


def made_up_dataset(
    num_tasks: int, num_aug: int, *, canvas: int = 30, seed: int = 0
) -> CompiledDataset:
    """Tasks of random grids; every fifth has two test pairs."""
    rng = np.random.default_rng(seed)
    tasks = tuple(_task(f"{number:08x}", rng, canvas, number) for number in range(num_tasks))
    source = Source(
        name="made-up",
        upstream=None,
        folders=(("evaluation", tasks),),
        evaluation_folders=frozenset({"evaluation"}),
    )
    return build([source], BuildOptions(num_aug=num_aug, canvas=canvas))


def write_votes(
    path: Path,
    dataset: CompiledDataset,
    *,
    segments: tuple[int, ...] = (16,),
    puzzle_id: str = "right",
    seed: int = 0,
) -> None:
    """A store with a vote per variant and segment; the first segment has more noise."""
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=dataset.canvas,
        split="made-up",
        num_aug=dataset.num_aug,
        producer={},
        puzzle_id=puzzle_id,
        halting="fixed",
    )
    writer = PredictionsWriter(path, header)
    rng = np.random.default_rng(seed)
    truth = dataset.truth()
    pools = {
        (task, index): _candidates(grid, OUTCOMES[number % len(OUTCOMES)], rng)
        for number, (task, grids) in enumerate(truth.items())
        for index, grid in enumerate(grids)
        if grid is not None
    }
    names = np.array(dataset.task_names)
    for segment in segments:
        noise = 0.2 if segment == segments[-1] else 0.8
        for start in range(0, dataset.test.num_examples, ROWS_PER_SHARD):
            rows = np.arange(start, min(start + ROWS_PER_SHARD, dataset.test.num_examples))
            known = dataset.test.describe(rows)
            tokens = np.zeros((len(rows), dataset.canvas**2), np.uint8)
            logits = np.empty(len(rows), np.float32)
            for i in range(len(rows)):
                key = (str(names[known["task"][i]]), int(known["test_index"][i]))
                pool, weights = pools[key]
                chosen = int(rng.choice(len(pool), p=weights))
                grid = pool[chosen]
                if rng.random() < noise and grid.size:
                    grid = _spoil(grid, rng, 4)
                if grid.size:
                    turned = apply(grid, int(known["dihedral"][i]), known["color_map"][i])
                    tokens[i] = encode(turned, dataset.canvas)
                logits[i] = rng.normal(1 - chosen)
            writer.append(
                task_id=names[known["task"]],
                test_index=known["test_index"],
                dihedral=known["dihedral"],
                color_map=known["color_map"],
                segment=np.full(len(rows), segment, np.int32),
                source=np.full(len(rows), "made-up"),
                tokens=tokens,
                q_halt_logit=logits,
            )


def _task(name: str, rng: np.random.Generator, canvas: int, number: int) -> Task:
    def pair() -> dict[str, list[list[int]]]:
        shape = rng.integers(1, canvas + 1, size=2) if number % 2 else rng.integers(1, 12, size=2)
        shape = np.minimum(shape, canvas)
        colors = rng.integers(0, 10, size=rng.integers(2, 6))
        grid = rng.choice(colors, size=shape)
        return {"input": grid.tolist(), "output": np.flip(grid, axis=0).tolist()}

    parts = {"train": 3, "test": 2 if number % 5 == 0 else 1}
    obj = {role: [pair() for _ in range(count)] for role, count in parts.items()}
    return read_task(name, obj, name)


def _spoil(grid: NDArray[np.uint8], rng: np.random.Generator, cells: int) -> NDArray[np.uint8]:
    spoiled = grid.copy()
    for _ in range(cells):
        place = tuple(rng.integers(0, side) for side in grid.shape)
        spoiled[place] = (spoiled[place] + 1 + rng.integers(0, 9)) % 10
    return spoiled


def _candidates(
    right: NDArray[np.uint8], outcome: str, rng: np.random.Generator
) -> tuple[list[NDArray[np.uint8]], NDArray[np.float64]]:
    """Grids to vote for, and how likely each is; none of them occurs twice."""
    one_off = right.copy()
    one_off[0, 0] = (one_off[0, 0] + 1) % 10
    # The first cell tells them apart, whatever their shape.
    others = []
    for shift in range(2, 10):
        is_changed = rng.random(right.shape) < 0.5
        is_changed[0, 0] = True
        others.append(((right + shift * is_changed) % 10).astype(np.uint8))
    wide = np.zeros((right.shape[0], max(1, right.shape[1] - 1)), np.uint8)
    pool = {
        "first": [right, one_off, *others],
        "second": [others[0], right, one_off],
        "late": [*others, right],
        "one cell": [one_off, *others],
        "wrong": others,
        "shape": [wide, *others],
        "empty": [np.zeros((0, 0), np.uint8), *others],
    }[outcome]
    weights = 0.6 ** np.arange(len(pool))
    return pool, weights / weights.sum()
