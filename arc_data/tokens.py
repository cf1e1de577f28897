"""Grids and token canvases: PAD, EOS and the ten colours on a square canvas.

A grid of ``r`` rows and ``c`` columns stands at ``(pad_r, pad_c)`` of a ``canvas`` x ``canvas``
square; a row of EOS right under it and a column of EOS right of it mark its end where they fit.

**Source**: HRM ``dataset/build_arc_dataset.py`` @ 42410da (token values and layout).
"""

import numpy as np
from numpy.typing import NDArray

PAD = 0
EOS = 1
COLOR_OFFSET = 2
NUM_COLORS = 10
VOCAB_SIZE = COLOR_OFFSET + NUM_COLORS


def encode(
    grid: NDArray[np.uint8], canvas: int, pad_r: int = 0, pad_c: int = 0
) -> NDArray[np.uint8]:
    """Lays one grid on a token canvas; the readable reference for the vectorised writer.

    Args:
        grid: Colours 0..9, (r, c), r and c at least 1.
        canvas: Side of the canvas in cells.
        pad_r: Row of the grid's first row, in [0, canvas - r].
        pad_c: Column of the grid's first column, in [0, canvas - c].

    Returns:
        Tokens in [0, 11], (canvas * canvas,), uint8, row-major.

    Raises:
        ValueError: If the grid at that place does not fit the canvas, or holds no colours 0..9.

    **Source**: HRM ``np_grid_to_seq_translational_augment`` @ 42410da.
    """
    rows, cols = grid.shape
    bottom, right = pad_r + rows, pad_c + cols
    if min(pad_r, pad_c) < 0 or max(bottom, right) > canvas:
        raise ValueError(
            f"grid of {rows} x {cols} at ({pad_r}, {pad_c}) must lie inside the {canvas} x {canvas}"
            " canvas; use a larger canvas or smaller offsets"
        )
    if grid.size and int(grid.max()) >= NUM_COLORS:
        raise ValueError(
            f"grid colours must be in 0..{NUM_COLORS - 1}, found {int(grid.max())};"
            " give colours, not tokens"
        )
    tokens = np.full((canvas, canvas), PAD, dtype=np.uint8)
    tokens[pad_r:bottom, pad_c:right] = grid + COLOR_OFFSET
    if bottom < canvas:
        tokens[bottom, pad_c:right] = EOS
    if right < canvas:
        tokens[pad_r:bottom, right] = EOS
    return tokens.reshape(-1)  # (canvas * canvas,)


def crop(tokens: NDArray[np.uint8], canvas: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds the grid on each canvas: the largest top-left rectangle of colour tokens only.

    Of equal areas the one with fewer rows is taken; without any colour token in the corner the
    grid is empty, 0 x 0. The cells themselves are ``tokens - COLOR_OFFSET`` inside it.

    Args:
        tokens: Any byte values, (n, canvas * canvas), uint8; only 2..11 are colours.
        canvas: Side of the canvas in cells.

    Returns:
        Rows and columns of the grids, two (n,) int64 arrays in [0, canvas].

    Raises:
        ValueError: If ``tokens`` is not (n, canvas * canvas) uint8.

    **Source**: HRM ``arc_eval.ipynb`` (``crop``) @ 42410da. Differs: all rectangles are compared,
    and equal areas have a stated winner.
    """
    if tokens.ndim != 2 or tokens.shape[1] != canvas * canvas or tokens.dtype != np.uint8:
        raise ValueError(
            f"tokens must have shape (n, {canvas * canvas}) for canvas {canvas} and be uint8, found"
            f" {tokens.shape} {tokens.dtype}; pass the canvas the tokens were made with"
        )
    squares = tokens.reshape(-1, canvas, canvas)  # (n, canvas, canvas)
    # A column that ends every row; bytes below the first colour wrap around to above the last.
    ends = np.ones((len(squares), canvas, canvas + 1), dtype=bool)
    np.greater_equal(squares - np.uint8(COLOR_OFFSET), NUM_COLORS, out=ends[:, :, :canvas])
    run = ends.argmax(axis=2)  # the first end of each row  # (n, canvas)
    width = np.minimum.accumulate(run, axis=1)
    area = width * np.arange(1, canvas + 1)
    best = area.argmax(axis=1)  # the first maximum: fewest rows  # (n,)
    cols = np.take_along_axis(width, best[:, None], axis=1)[:, 0]  # (n,)
    rows = np.where(cols > 0, best + 1, 0)
    return rows.astype(np.int64), cols.astype(np.int64)
