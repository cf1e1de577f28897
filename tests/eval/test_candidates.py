"""Candidates in the terminal: digits or colours, and which cells differ."""

import io

import numpy as np
import pytest
from rich.console import Console

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source
from arc_data.tasks import Pair, Task
from eval.candidates import show_candidates
from eval.plain_votes import votes_from_grids
from eval.voting import Ranking, rank

RIGHT = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
NEAR = [[1, 2, 3], [4, 0, 6], [7, 8, 0]]


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    pair = Pair(np.array([[1, 2]], np.uint8), np.array(RIGHT, np.uint8))
    asked = Pair(np.array([[3, 4]], np.uint8), None)
    task = Task("t", (pair,), (pair, asked))
    source = Source("hand", None, (("evaluation", (task,)),), frozenset({"evaluation"}))
    return build([source], BuildOptions(num_aug=0, canvas=3))


def ranking_of(dataset: CompiledDataset, answers: list[tuple[int, list, int]]) -> Ranking:
    votes = [
        {"task": "t", "test_index": index, "grid": grid, "weight": weight}
        for index, grid, weight in answers
    ]
    return rank(votes_from_grids(votes, dataset.truth()))


def drawn(ranking: Ranking, dataset: CompiledDataset, **options: object) -> str:
    console = Console(file=io.StringIO(), width=200, legacy_windows=False, **options)
    show_candidates(ranking, dataset, "t", console=console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_near_miss_and_what_differs(dataset: CompiledDataset) -> None:
    answers = [(0, NEAR, 9), (0, [[1]], 5), (0, [], 4), (0, [[2]], 3), (0, RIGHT, 1)]
    text = drawn(ranking_of(dataset, [*answers, (1, [[5]], 1)]), dataset)
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines == [
        "t/0",
        "  input, right output",
        "    12   123",
        "         456",
        "         789",
        "  candidate 1: 9 votes, confidence 0.500, 2 of 9 cells differ",
        "    123   ...",
        "    406   .x.",
        "    780   ..x",
        "  candidate 2: 5 votes, confidence 0.500, 1 x 1 in place of 3 x 3",
        "    1",
        "  candidate 3: 4 votes, confidence 0.500, 0 x 0 in place of 3 x 3",
        "  candidate 5: 1 votes, confidence 0.500, right",
        "    123",
        "    456",
        "    789",
        "t/1",
        "  input",
        "    34",
        "  candidate 1: 1 votes, confidence 0.500",
        "    5",
    ]


def test_in_colour_two_rows_share_a_line(dataset: CompiledDataset) -> None:
    ranking = ranking_of(dataset, [(0, NEAR, 1)])
    text = drawn(ranking, dataset, force_terminal=True, color_system="truecolor")
    assert "\u00b7\u2584\u00b7" in text  # the middle cell of the lower row differs
    assert "\u00b7\u00b7\u2580" in text
    assert "no candidate" in text


def test_an_unknown_task_is_named(dataset: CompiledDataset) -> None:
    with pytest.raises(ValueError, match="task 'u' must have held-out test pairs"):
        show_candidates({}, dataset, "u")
