"""Augmentations: every dihedral id by hand, inverses, names read and written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from arc_data.augment import (
    INVERSE_DIHEDRAL,
    apply,
    apply_dihedral,
    identity_color_map,
    invert,
    invert_color_map,
    parse_variant_name,
    variant_name,
)

COLOR_MAPS = st.permutations(range(1, 10)).map(lambda rest: np.array([0, *rest], dtype=np.uint8))
DIHEDRALS = st.integers(0, 7)


@pytest.mark.parametrize(
    ("dihedral", "expected"),
    [
        (0, [[1, 2, 3], [4, 5, 6]]),
        (1, [[3, 6], [2, 5], [1, 4]]),
        (2, [[6, 5, 4], [3, 2, 1]]),
        (3, [[4, 1], [5, 2], [6, 3]]),
        (4, [[3, 2, 1], [6, 5, 4]]),
        (5, [[4, 5, 6], [1, 2, 3]]),
        (6, [[1, 4], [2, 5], [3, 6]]),
        (7, [[6, 3], [5, 2], [4, 1]]),
    ],
)
def test_dihedral_by_hand(dihedral: int, expected: list[list[int]]) -> None:
    grid = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8)
    assert apply_dihedral(grid, dihedral).tolist() == expected
    assert apply_dihedral(np.stack([grid] * 2), dihedral).tolist() == [expected] * 2


def test_colours_come_first_and_digit_c_is_the_new_colour() -> None:
    color_map = identity_color_map()
    color_map[[1, 2]] = [5, 1]
    color_map[5] = 2
    grid = np.array([[1, 2]], dtype=np.uint8)
    assert apply(grid, 1, color_map).tolist() == [[1], [5]]


@settings(max_examples=100, deadline=None)
@given(
    npst.arrays(
        np.uint8,
        st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 5)),
        elements=st.integers(0, 9),
    ),
    DIHEDRALS,
    COLOR_MAPS,
)
def test_invert_undoes_apply(grids: np.ndarray, dihedral: int, color_map: np.ndarray) -> None:
    augmented = apply(grids, dihedral, color_map)
    assert augmented.dtype == np.uint8
    assert np.array_equal(invert(augmented, dihedral, color_map), grids)
    assert np.array_equal(apply(invert(grids, dihedral, color_map), dihedral, color_map), grids)


def test_the_inverse_table_inverts_and_the_eight_turns_differ() -> None:
    grid = np.arange(6, dtype=np.uint8).reshape(2, 3)
    seen = set()
    for dihedral, inverse in enumerate(INVERSE_DIHEDRAL):
        turned = apply_dihedral(grid, dihedral)
        assert np.array_equal(apply_dihedral(turned, inverse), grid)
        seen.add((turned.shape, turned.tobytes()))
    assert len(seen) == 8


@pytest.mark.parametrize("dihedral", [-1, 8])
def test_an_unknown_dihedral_is_refused(dihedral: int) -> None:
    grid = np.zeros((1, 1), dtype=np.uint8)
    with pytest.raises(ValueError, match=rf"dihedral must be in 0\.\.7, found {dihedral}"):
        apply(grid, dihedral, identity_color_map())
    with pytest.raises(ValueError, match=rf"dihedral must be in 0\.\.7, found {dihedral}"):
        invert(grid, dihedral, identity_color_map())


def test_a_map_that_is_no_permutation_has_no_inverse() -> None:
    with pytest.raises(ValueError, match="must be a permutation"):
        invert_color_map(np.zeros(10, dtype=np.uint8))


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(["007bbfb7", "Center1", "a_b", "x_t1_0123456789"]), DIHEDRALS, COLOR_MAPS)
def test_names_round_trip(task: str, dihedral: int, color_map: np.ndarray) -> None:
    tasks = {"007bbfb7", "Center1", "a_b", "x_t1_0123456789"}
    trm = f"{task}|||t{dihedral}|||{''.join(map(str, color_map))}"
    for name in (variant_name(task, dihedral, color_map), trm):
        found_task, found_dihedral, found_map = parse_variant_name(name, tasks)
        assert (found_task, found_dihedral) == (task, dihedral)
        assert found_map.dtype == np.uint8
        assert np.array_equal(found_map, color_map)


def test_the_original_has_the_plain_name() -> None:
    assert variant_name("a", 0, identity_color_map()) == "a"
    assert variant_name("a", 7, identity_color_map()) == "a_t7_0123456789"
    task, dihedral, color_map = parse_variant_name("a", {"a"})
    assert (task, dihedral, color_map.tolist()) == ("a", 0, list(range(10)))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("b", "found neither"),
        ("a_t8_0123456789", "found neither"),
        ("a_t1_012345678", "found neither"),
        ("a_t1_0123456789x", "found neither"),
        ("a_t1_0123456789\n", "found neither"),
        ("a_t1_012345678\u0669", "found neither"),
        ("<blank>", "found neither"),
        ("b_t1_0123456789", "known task, found task 'b'"),
        ("b|||t1|||0123456789", "known task, found task 'b'"),
        ("a_t1_0112345678", "permutation"),
        ("a_t1_1023456789", "permutation"),
        ("a|||t1|||1023456789", "permutation"),
    ],
)
def test_other_names_are_errors(name: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        parse_variant_name(name, {"a"})
