"""Pictures: the right colours in the right places, in the terminal and as PNG."""

import io
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.show import PALETTE, save_png, show_task
from arc_data.sources import Source
from arc_data.tasks import read_task

OBJ = {
    "train": [{"input": [[1, 2], [3, 0], [4, 4]], "output": [[5]]}],
    "test": [{"input": [[6, 7, 8]]}, {"input": [[9]], "output": [[1], [2]]}],
}


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    task = read_task("[b] ä|x", OBJ, "x")
    source = Source("s", None, (("evaluation", (task,)),), frozenset({"evaluation"}))
    return build([source], BuildOptions(num_aug=3, canvas=4))


def _shown(dataset: CompiledDataset, variants: int, color: str | None) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        force_terminal=color is not None,
        color_system=color,
        width=40,
        legacy_windows=False,
    )
    show_task(dataset, dataset.task_names[0], variants=variants, console=console)
    return file.getvalue()


def test_digits_without_colour(dataset: CompiledDataset) -> None:
    assert [line.rstrip() for line in _shown(dataset, 0, None).splitlines()] == [
        "[b] ä|x",
        "  train 0",
        "    12 > 5",
        "    30",
        "    44",
        "  test 0",
        "    678 > ?",
        "  test 1",
        "    9 > 1",
        "        2",
    ]


def test_blocks_in_colour(dataset: CompiledDataset) -> None:
    text = _shown(dataset, 0, "truecolor")

    def code(color: int) -> str:
        return ";".join(str(int(PALETTE[color][at : at + 2], 16)) for at in (1, 3, 5))

    assert f"\x1b[38;2;{code(1)};48;2;{code(3)}m\u2580" in text
    assert f"\x1b[38;2;{code(2)};48;2;{code(0)}m\u2580" in text
    assert f"\x1b[38;2;{code(4)}m\u2580" in text  # nothing below the last odd row


def test_variants_have_their_names(dataset: CompiledDataset) -> None:
    names = dataset.identifiers()[1:]
    for variants in (0, 2, 99):
        text = _shown(dataset, variants, None)
        assert [name in text for name in names] == [i <= variants for i in range(len(names))]


def test_the_picture_shows_every_cell(dataset: CompiledDataset, tmp_path: Path) -> None:
    save_png(dataset, dataset.task_names[0], tmp_path / "a.png", variants=1)
    with Image.open(tmp_path / "a.png") as image:
        width, height = image.size
        colors = {"#" + bytes(color).hex() for _, color in image.getcolors(1 << 16)}
        assert image.format == "PNG"
    assert set(PALETTE) <= colors
    save_png(dataset, dataset.task_names[0], tmp_path / "b.png", variants=0)
    with Image.open(tmp_path / "b.png") as image:
        assert image.size[0] < width and image.size[1] <= height
        # Cells are 60 pixels; the first grid stands under two lines of text.
        cells = [[(14 + 30 + 60 * c, 54 + 30 + 60 * r) for c in (0, 1)] for r in (0, 1, 2)]
        found = [[image.getpixel(place) for place in row] for row in cells]
    expected = [
        [tuple(bytes.fromhex(PALETTE[color][1:])) for color in row]
        for row in OBJ["train"][0]["input"]
    ]
    assert found == expected


def test_what_cannot_be_shown(dataset: CompiledDataset, mini_dataset: CompiledDataset) -> None:
    with pytest.raises(ValueError, match="found no such task; did you mean '27a28665'"):
        show_task(mini_dataset, "27a2866")
    with pytest.raises(ValueError, match="found no such task; choose one of its tasks"):
        show_task(mini_dataset, "zzzz")
    with pytest.raises(ValueError, match="--variants must be 0 or more, found -1"):
        show_task(dataset, dataset.task_names[0], variants=-1)
