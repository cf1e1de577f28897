"""Predictions in the published form become votes: test pairs are found by their undone inputs."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import parse_variant_name
from arc_data.compiled import BLANK_NAME
from arc_data.tokens import NUM_COLORS, PAD
from eval.decoding import GridPool, decode
from eval.voting import Grids, PairIndex, Votes, confidences, variant_codes


class PublishedVotes:
    """Collects votes from rows in the published form.

    A vote finds its test pair by its undone input. Where a task has equal test inputs, the rows
    of one variant go to them in the order of the data. Padding rows (named ``<blank>``, all PAD)
    never vote.

    Args:
        test_inputs: Inputs of every test pair of every task.

    **Source**: HRM ``arc_eval.ipynb`` @ 42410da. Differs: equal test inputs of a task stay apart.
    """

    def __init__(self, test_inputs: Grids) -> None:
        self._test_inputs = test_inputs
        self._index = PairIndex(test_inputs)
        self._inputs, self._pool = GridPool(), GridPool()
        # Which test pairs have which input; their numbers come first in the pool.
        self._places: dict[tuple[str, int], list[int]] = {}
        for task, inputs in test_inputs.items():
            for index, test_input in enumerate(inputs):
                if test_input is not None:
                    number = int(self._inputs.add(np.asarray(test_input, np.uint8)[None])[0])
                    self._places.setdefault((task, number), []).append(index)
        self._met: Counter[tuple[str, int, int]] = Counter()
        self._parts: list[tuple[NDArray[Any], ...]] = []

    def add(
        self,
        names: Sequence[str],
        inputs: NDArray[Any],
        predicted: NDArray[Any],
        logits: NDArray[np.floating[Any]],
        *,
        origin: str = "",
        first_row: int = 0,
    ) -> None:
        """Takes some rows.

        Args:
            names: Published variant names, n of them.
            inputs: Input tokens in the augmented frame, (n, canvas * canvas), any integer type.
            predicted: Predicted tokens, same shape.
            logits: Halting logits, (n,), taken as float32.
            origin: Where the rows come from, for messages, such as ``FILE: ``.
            first_row: Number of the first row there.

        Raises:
            ValueError: If the shapes differ, a name cannot be read, an input is no test input of
                its task, or a variant has more rows for a test pair than the data has.
        """
        canvas = _check_published(names, inputs, predicted, logits)
        kept = [i for i, name in enumerate(names) if name != BLANK_NAME or (inputs[i] != PAD).any()]
        wheres = [f"{origin}row {first_row + i}" for i in kept]
        variants = [
            _parse(names[i], self._test_inputs, where)
            for i, where in zip(kept, wheres, strict=True)
        ]
        dihedral = np.array([v[1] for v in variants], dtype=np.uint8)
        color_map = np.array([v[2] for v in variants], dtype=np.uint8).reshape(-1, NUM_COLORS)
        tokens = _as_tokens(inputs[kept], "inputs")
        undone = decode(tokens, canvas, dihedral, color_map, self._inputs).tolist()
        grid = decode(
            _as_tokens(predicted[kept], "predicted"), canvas, dihedral, color_map, self._pool
        )
        codes = variant_codes(dihedral, color_map)
        pair = np.empty(len(kept), dtype=np.int64)
        for i, row in enumerate(kept):
            index = self._place(variants[i][0], undone[i], int(codes[i]), names[row], wheres[i])
            pair[i] = self._index.number(variants[i][0], index, wheres[i])
        self._parts.append((pair, grid, codes, confidences(np.asarray(logits)[kept])))

    def votes(self) -> Votes:
        """One vote per row that is not padding."""
        empty = (np.empty(0, np.int64),) * 3 + (np.empty(0),)
        pair, grid, variant, confidence = (
            np.concatenate(part) for part in zip(*(self._parts or [empty]), strict=True)
        )
        return Votes(
            pairs=self._index.pairs,
            grids=self._pool,
            pair=pair,
            grid=grid,
            confidence=confidence,
            weight=np.ones(len(pair)),
            variant=variant,
        )

    def _place(self, task: str, number: int, code: int, name: str, where: str) -> int:
        equal_inputs = self._places.get((task, number))
        if equal_inputs is None:
            raise ValueError(
                f"{where}: the undone input of {name!r} must be a test input of task {task!r},"
                " found another grid; use the data set the predictions were made on"
            )
        key = (task, number, code)
        if self._met[key] == len(equal_inputs):
            raise ValueError(
                f"{where}: {name!r} must predict {task}/{equal_inputs[-1]} once, found it again;"
                " remove the duplicate predictions"
            )
        self._met[key] += 1
        return equal_inputs[self._met[key] - 1]


def votes_from_published(
    names: Sequence[str],
    inputs: NDArray[Any],
    predicted: NDArray[Any],
    logits: NDArray[np.floating[Any]],
    test_inputs: Grids,
) -> Votes:
    """Turns predictions in the published form into votes; see ``PublishedVotes``."""
    collected = PublishedVotes(test_inputs)
    collected.add(names, inputs, predicted, logits)
    return collected.votes()


def _parse(name: str, tasks: Grids, where: str) -> tuple[str, int, NDArray[np.uint8]]:
    try:
        return parse_variant_name(name, tasks)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _check_published(
    names: Sequence[str], inputs: NDArray[Any], predicted: NDArray[Any], logits: NDArray[Any]
) -> int:
    canvas = math.isqrt(inputs.shape[-1])
    expected = (len(names), canvas * canvas)
    if inputs.shape != expected or predicted.shape != expected or logits.shape != expected[:1]:
        raise ValueError(
            f"names, inputs, predicted and logits must have one row each and square canvases,"
            f" found {len(names)} names, {inputs.shape}, {predicted.shape} and {logits.shape};"
            " give the rows of one file"
        )
    return canvas


def _as_tokens(values: NDArray[Any], where: str) -> NDArray[np.uint8]:
    tokens = values.astype(np.uint8)
    if values.dtype.kind not in "iu" or not np.array_equal(tokens, values):
        raise ValueError(
            f"{where}: tokens must be whole numbers in 0..255, found {values.dtype};"
            " give token ids, not logits"
        )
    return tokens
