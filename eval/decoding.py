"""From predicted canvases to distinct grids in the task's own frame."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import INVERSE_DIHEDRAL, NUM_DIHEDRAL, apply_dihedral
from arc_data.tokens import COLOR_OFFSET, NUM_COLORS, crop

CHUNK_ROWS = 8192
"""Canvases decoded at once: bounds the working memory whatever the number of predictions."""


def grid_digest(grid: NDArray[np.uint8]) -> str:
    """Names a grid by its shape and cells.

    Args:
        grid: Colours 0..9, (r, c), r and c at most 255.

    Returns:
        sha256 in hex of ``bytes([rows, cols])`` followed by the row-major uint8 cells.

    **Source**: ours. Differs: HRM's notebook takes Python's salted ``hash`` of bytes and shape.
    """
    rows, cols = grid.shape
    cells = np.ascontiguousarray(grid, dtype=np.uint8)
    return hashlib.sha256(bytes([rows, cols]) + cells.tobytes()).hexdigest()


class GridPool(Sequence[NDArray[np.uint8]]):
    """Distinct grids, each with one number, in the order they were first met."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, bytes], int] = {}
        self._keys: list[tuple[int, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, number: Any) -> Any:
        rows, cols, cells = self._keys[number]
        return np.frombuffer(cells, dtype=np.uint8).reshape(rows, cols)

    def digest(self, number: int) -> str:
        """Names a grid of the pool; see ``grid_digest``."""
        rows, cols, cells = self._keys[number]
        return hashlib.sha256(bytes((rows, cols)) + cells).hexdigest()

    def add(self, grids: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Numbers grids of one shape, adding those not met before.

        Args:
            grids: (m, r, c) uint8, r and c at most 255.

        Returns:
            The number of each grid, (m,) int64; equal shape and cells give equal numbers.
        """
        num_grids, rows, cols = grids.shape
        area = rows * cols
        cells = np.ascontiguousarray(grids).tobytes()
        numbers = np.empty(num_grids, dtype=np.int64)
        known, keys = self._numbers, self._keys
        # A dictionary of byte strings compares exactly and beats sorting rows of cells.
        for i in range(num_grids):
            key = (rows, cols, cells[i * area : (i + 1) * area])
            number = known.setdefault(key, len(keys))
            if number == len(keys):
                keys.append(key)
            numbers[i] = number
        return numbers

    def find(self, grid: NDArray[np.uint8]) -> int | None:
        """Looks up one grid.

        Args:
            grid: (r, c), colours 0..9.

        Returns:
            Its number, or None if it was never added.
        """
        cells = np.ascontiguousarray(grid, dtype=np.uint8).tobytes()
        return self._numbers.get((*grid.shape, cells))


def decode(
    tokens: NDArray[np.uint8],
    canvas: int,
    dihedral: NDArray[np.uint8],
    color_map: NDArray[np.uint8],
    pool: GridPool,
) -> NDArray[np.int64]:
    """Crops canvases, undoes their variants and numbers the grids.

    Args:
        tokens: (n, canvas * canvas) uint8, in the augmented frame.
        canvas: Side of the canvas in cells, at most 255.
        dihedral: (n,) uint8, 0..7.
        color_map: (n, 10) uint8, a permutation of 0..9 per row.
        pool: Takes the grids; grids of several calls may share it.

    Returns:
        The number of each grid in ``pool``, (n,) int64.
    """
    numbers = np.empty(len(tokens), dtype=np.int64)
    for start in range(0, len(tokens), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        numbers[chunk] = _decode_chunk(
            tokens[chunk], canvas, dihedral[chunk], color_map[chunk], pool
        )
    return numbers


def _decode_chunk(
    tokens: NDArray[np.uint8],
    canvas: int,
    dihedral: NDArray[np.uint8],
    color_map: NDArray[np.uint8],
    pool: GridPool,
) -> NDArray[np.int64]:
    rows, cols = crop(tokens, canvas)
    squares = tokens.reshape(-1, canvas, canvas)  # (n, canvas, canvas)
    # Row i holds, at each token of a colour in the augmented frame, the original colour.
    original = np.argsort(color_map, axis=1).astype(np.uint8)  # (n, 10)
    kind = (rows * (canvas + 1) + cols) * NUM_DIHEDRAL + dihedral
    order = np.argsort(kind, kind="stable")
    starts = np.flatnonzero(np.diff(kind[order], prepend=-1))
    numbers = np.empty(len(tokens), dtype=np.int64)
    for members in np.split(order, starts[1:]):
        first = members[0]
        cells = squares[members, : rows[first], : cols[first]] - COLOR_OFFSET  # (m, r, c)
        turned = apply_dihedral(cells, INVERSE_DIHEDRAL[dihedral[first]])
        colors = original[members].ravel()
        offset = np.arange(len(members))[:, None, None] * NUM_COLORS
        numbers[members] = pool.add(colors[turned + offset])
    return numbers
