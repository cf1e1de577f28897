"""Tokens: a canvas by hand, the crop rule against a search, round trips."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from arc_data.tokens import COLOR_OFFSET, crop, encode

GRIDS = npst.arrays(
    np.uint8,
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    elements=st.integers(0, 9),
)


def test_encode_by_hand() -> None:
    tokens = encode(np.array([[0, 9]], dtype=np.uint8), canvas=4, pad_r=1, pad_c=1)
    assert tokens.dtype == np.uint8
    assert tokens.reshape(4, 4).tolist() == [
        [0, 0, 0, 0],
        [0, 2, 11, 1],
        [0, 1, 1, 0],
        [0, 0, 0, 0],
    ]


def test_encode_leaves_out_eos_that_does_not_fit() -> None:
    grid = np.array([[3, 4]], dtype=np.uint8)
    assert encode(grid, 2, pad_r=1).tolist() == [0, 0, 5, 6]
    assert encode(grid, 2).tolist() == [5, 6, 1, 1]


@pytest.mark.parametrize(
    ("pad_r", "pad_c"), [(-1, 0), (0, -1), (2, 0), (0, 1)], ids=["up", "left", "down", "right"]
)
def test_encode_refuses_a_grid_off_the_canvas(pad_r: int, pad_c: int) -> None:
    with pytest.raises(ValueError, match="must lie inside the 3 x 3 canvas"):
        encode(np.zeros((2, 3), dtype=np.uint8), 3, pad_r, pad_c)


def test_encode_refuses_other_values_than_colours() -> None:
    with pytest.raises(ValueError, match=r"colours must be in 0\.\.9, found 10"):
        encode(np.array([[10]], dtype=np.uint8), 3)


@settings(max_examples=50, deadline=None)
@given(GRIDS)
def test_crop_undoes_encode(grid: np.ndarray) -> None:
    tokens = encode(grid, canvas=6)
    rows, cols = crop(tokens[None], 6)
    assert (rows[0], cols[0]) == grid.shape
    square = tokens.reshape(6, 6)[: rows[0], : cols[0]]
    assert np.array_equal(square - COLOR_OFFSET, grid)


@settings(max_examples=100, deadline=None)
@given(npst.arrays(np.uint8, (5, 16), elements=st.sampled_from([0, 1, 2, 5, 11, 12, 255])))
def test_crop_is_the_largest_rectangle_of_colours(tokens: np.ndarray) -> None:
    rows, cols = crop(tokens, 4)
    assert rows.dtype == cols.dtype == np.int64
    for square, found in zip(
        tokens.reshape(-1, 4, 4), zip(rows.tolist(), cols.tolist(), strict=True), strict=True
    ):
        best = (0, 0)
        for r in range(1, 5):
            for c in range(1, 5):
                cells = square[:r, :c]
                good = ((cells >= 2) & (cells <= 11)).all()
                if good and (r * c > best[0] * best[1]):
                    best = (r, c)
        assert found == best


def test_crop_of_equal_areas_has_fewer_rows() -> None:
    tokens = np.array([[2, 2, 0], [2, 0, 0], [0, 0, 0]], dtype=np.uint8).reshape(1, -1)
    rows, cols = crop(tokens, 3)
    assert (rows.tolist(), cols.tolist()) == ([1], [2])


def test_crop_refuses_another_canvas() -> None:
    with pytest.raises(ValueError, match=r"tokens must have shape \(n, 900\)"):
        crop(np.zeros((1, 36), dtype=np.uint8), 30)
    with pytest.raises(ValueError, match=r"uint8, found .* int64"):
        crop(np.zeros((1, 36), dtype=np.int64), 6)
