"""The canonical build: sources, options and a seed give one compiled data set.

One ``RandomState`` stream, drawn from in one fixed order, decides everything: the order of the
tasks, their variants, and where each example stands on the canvas.

**Source**: HRM ``dataset/build_arc_dataset.py`` @ 42410da. Differs: folders and files are read
in order of their names and the stream is private, so every machine gets the same data set.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from arc_data.augment import NUM_DIHEDRAL, apply_dihedral, identity_color_map, parse_variant_name
from arc_data.compiled import (
    BLANK_NAME,
    PROTOCOLS,
    PUBLISHED,
    STRICT,
    TEST,
    TRAIN,
    UNUSED,
    CompiledDataset,
    Plan,
)
from arc_data.manifest import make_manifest
from arc_data.sources import Source
from arc_data.tasks import Task
from arc_data.tokens import NUM_COLORS

TRIALS_PER_VARIANT = 5
_MAX_SEED = 2**32 - 1
_MAX_CANVAS = 64
_UNMAPPED = bytes(range(NUM_COLORS, 256))
_SWAPS_SIDES = tuple(
    apply_dihedral(np.empty((1, 2), np.uint8), dihedral).shape == (2, 1)
    for dihedral in range(NUM_DIHEDRAL)
)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of a build.

    Attributes:
        num_aug: Most variants per task besides the original, 0 or more.
        seed: Seed of the random stream, 0 .. 2**32 - 1.
        canvas: Side of the token canvas in cells, 1..64 (30 for ARC, 6 for mini).
        protocol: ``published``: the train pairs of evaluation tasks are trained on. ``strict``:
            the same puzzle ids, but the train split holds nothing of evaluation tasks; those
            ids are never trained, so this is a control.
        leave_out_large: Whether a task that does not fit the canvas is left out and named in
            the manifest; else it is an error.
    """

    num_aug: int = 1000
    seed: int = 42
    canvas: int = 30
    protocol: str = PUBLISHED
    leave_out_large: bool = False

    def __post_init__(self) -> None:
        limits = {
            "num_aug": (0, 10**6),
            "seed": (0, _MAX_SEED),
            "canvas": (1, _MAX_CANVAS),
        }
        for key, (low, high) in limits.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(
                    f"data.{key} must be an integer in {low}..{high}, found {value!r};"
                    f" set data.{key}"
                )
        if self.protocol not in PROTOCOLS:
            raise ValueError(
                f"data.protocol must be one of {', '.join(PROTOCOLS)}, found {self.protocol!r};"
                " choose one of them"
            )
        if type(self.leave_out_large) is not bool:
            raise ValueError(
                f"data.leave_out_large must be true or false, found {self.leave_out_large!r};"
                " set data.leave_out_large"
            )


@dataclass(frozen=True, eq=False)
class Group:
    """A task in its place.

    Attributes:
        task: The task.
        held_out: Whether its test pairs go to the test split.
        dihedrals: Dihedral ids of its variants, the original first, (variants,) uint8.
        color_maps: Their colour maps, (variants, 10) uint8.
    """

    task: Task
    held_out: bool
    dihedrals: NDArray[np.uint8]
    color_maps: NDArray[np.uint8]


def build(
    sources: Sequence[Source], options: BuildOptions, *, progress: bool = False
) -> CompiledDataset:
    """Builds a data set.

    Args:
        sources: The sources in canonical order.
        options: Number of variants, seed, canvas, protocol.
        progress: Whether to show progress bars on stderr.

    Returns:
        The compiled data set, in memory.

    Raises:
        ValueError: If there is no task, two tasks have one name or confusable names, a task
            does not fit the canvas, or protocol ``strict`` would leave nothing to train on.
    """
    large = {
        task.name: shape
        for source in sources
        for task in source.tasks
        if options.leave_out_large and (shape := _too_large(task, options.canvas))
    }
    sources = [source.without(large) for source in sources]
    _check_tasks(sources, options)
    stream = np.random.RandomState(options.seed)
    groups: list[Group] = []
    num_tasks = sum(len(source.tasks) for source in sources)
    with tqdm(total=num_tasks, desc="variants", unit="task", disable=not progress) as bar:
        for source in sources:
            for folder_name, folder_tasks in source.folders:
                order = list(range(len(folder_tasks)))
                stream.shuffle(order)
                held_out = folder_name in source.evaluation_folders
                for index in order:
                    task = folder_tasks[index]
                    groups.append(Group(task, held_out, *_draw_variants(task, options, stream)))
                    bar.update()
    pads = [_draw_pads(groups, split, options.canvas, stream, progress) for split in (TRAIN, TEST)]
    plan = make_plan(
        groups,
        options.canvas,
        options.protocol,
        train_pads=_kept_pads(groups, options.protocol, pads[TRAIN]),
        test_pads=pads[TEST],
    )
    tasks = [group.task for group in groups]
    return CompiledDataset(plan, make_manifest(sources, asdict(options), tasks, plan, large))


def _check_tasks(sources: Sequence[Source], options: BuildOptions) -> None:
    places: dict[str, str] = {}
    for source in sources:
        for folder_name, tasks in source.folders:
            for task in tasks:
                place = f"{source.name}/{folder_name}"
                if task.name in places:
                    raise ValueError(
                        f"task {task.name!r} must be in one place, found in {places[task.name]}"
                        f" and {place}; remove or rename one of them"
                    )
                places[task.name] = place
                if shape := _too_large(task, options.canvas):
                    raise ValueError(
                        f"task {task.name!r} must fit data.canvas={options.canvas}, found a grid of"
                        f" {shape[0]} x {shape[1]}; use a larger data.canvas, or leave such tasks"
                        " out with data.leave_out_large=true"
                    )
    if not places:
        raise ValueError("a build needs at least one task, found none; check data.*")
    if options.protocol == STRICT and not any(
        tasks and folder_name not in source.evaluation_folders
        for source in sources
        for folder_name, tasks in source.folders
    ):
        raise ValueError(
            "data.protocol=strict trains on nothing of evaluation tasks, found no other tasks;"
            " use data.protocol=published or a data set with training tasks"
        )
    if BLANK_NAME in places:
        raise ValueError(f"task name {BLANK_NAME!r} is the blank id's; rename the task")
    for name in places:
        try:
            base, _, _ = parse_variant_name(name, places.keys() - {name})
        except ValueError:
            continue
        raise ValueError(
            f"task name {name!r} must not look like a variant, found task {base!r} beside it;"
            " rename one of them"
        )


def _too_large(task: Task, canvas: int) -> list[int]:
    """Returns the shape of the first grid that does not fit the canvas, or an empty list."""
    for pair in task.pairs:
        for grid in (pair.input, pair.output):
            if grid is not None and max(grid.shape) > canvas:
                return list(grid.shape)
    return []


def _draw_variants(
    task: Task, options: BuildOptions, stream: np.random.RandomState
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draws a task's variants: dihedral ids (n,) and colour maps (n, 10), the original first."""
    turned = [_pair_bytes(task, dihedral) for dihedral in range(NUM_DIHEDRAL)]
    colors = np.arange(1, NUM_COLORS, dtype=np.uint8)
    identity = identity_color_map()
    dihedrals, color_maps = [0], [identity.tobytes()]
    seen = {_variant_key(turned[0], color_maps[0])}
    for _ in range(TRIALS_PER_VARIANT * options.num_aug):
        dihedral = int(stream.randint(0, NUM_DIHEDRAL))
        color_map = b"\0" + stream.permutation(colors).tobytes()
        key = _variant_key(turned[dihedral], color_map)
        if key in seen:
            continue
        seen.add(key)
        dihedrals.append(dihedral)
        color_maps.append(color_map)
        if len(dihedrals) > options.num_aug:
            break
    flat = np.frombuffer(b"".join(color_maps), dtype=np.uint8)
    return np.array(dihedrals, dtype=np.uint8), flat.reshape(-1, NUM_COLORS)


def _pair_bytes(task: Task, dihedral: int) -> list[tuple[bytes, bytes]]:
    """Returns each turned pair's four side lengths and its cells; an unknown output is 0 x 0."""
    pairs = []
    for pair in task.pairs:
        shapes, cells = b"", b""
        for grid in (pair.input, pair.output):
            turned = apply_dihedral(np.empty((0, 0), np.uint8) if grid is None else grid, dihedral)
            shapes += bytes(turned.shape)
            cells += turned.tobytes()
        pairs.append((shapes, cells))
    return pairs


def _variant_key(turned: list[tuple[bytes, bytes]], color_map: bytes) -> bytes:
    """Returns a key that is equal for two variants exactly if their multisets of pairs are.

    Every pair begins with its shapes, so the joined bytes can be read back in one way only.
    """
    table = color_map + _UNMAPPED
    return b"".join(sorted([shapes + cells.translate(table) for shapes, cells in turned]))


def _split_pairs(group: Group, split: int) -> tuple[int, int]:
    """Returns the range of a group's pairs, counted in the task, that are in ``split``."""
    num_train, num_pairs = len(group.task.train), len(group.task.pairs)
    if split == TEST:
        return (num_train if group.held_out else num_pairs), num_pairs
    return 0, (num_train if group.held_out else num_pairs)


def _draw_pads(
    groups: Sequence[Group], split: int, canvas: int, stream: np.random.RandomState, progress: bool
) -> NDArray[np.uint8]:
    """Draws where the examples of one split stand, (examples, 2): all but one of each variant
    are moved in the train split, none in the test split, though the choice of that one is drawn
    there too.
    """
    counts = [stop - start for start, stop in (_split_pairs(group, split) for group in groups)]
    total = sum(count * len(group.dihedrals) for count, group in zip(counts, groups, strict=True))
    pads = np.zeros((total, 2), dtype=np.uint8)
    row = 0
    for group, count in tqdm(
        zip(groups, counts, strict=True), "offsets", len(groups), unit="task", disable=not progress
    ):
        if count == 0:
            continue
        highs = _offset_highs(group, split, canvas)
        for dihedral in group.dihedrals.tolist():
            still = int(stream.randint(0, count))
            if split == TRAIN and count > 1:
                moved = np.asarray(stream.randint(0, highs[_SWAPS_SIDES[dihedral]][still]))
                pads[row : row + still] = moved[:still]
                pads[row + still + 1 : row + count] = moved[still:]
            row += count
    return pads


def _offset_highs(group: Group, split: int, canvas: int) -> list[list[NDArray[np.int64]]]:
    """Returns the exclusive upper ends of (pad_r, pad_c) of a variant's moved examples.

    Indexed by whether the variant's turn swaps rows and columns, then by the example that is
    not moved; each (examples - 1, 2), in the order of the draws.
    """
    start, stop = _split_pairs(group, split)
    sides = [
        np.max([grid.shape for grid in (pair.input, pair.output) if grid is not None], axis=0)
        for pair in group.task.pairs[start:stop]
    ]
    upright = canvas - np.array(sides) + 1  # (examples, 2)
    return [
        [np.delete(highs, still, axis=0) for still in range(stop - start)]
        for highs in (upright, upright[:, ::-1])
    ]


def _kept_pads(
    groups: Sequence[Group], protocol: str, pads: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Returns the train split's offsets without those of examples the protocol leaves out.

    They are drawn all the same, so that what stays is what the published protocol has.
    """
    if protocol == PUBLISHED:
        return pads
    kept = [not group.held_out for group in groups]
    counts = [len(group.dihedrals) * len(range(*_split_pairs(group, TRAIN))) for group in groups]
    return pads[np.repeat(kept, counts)]


def make_plan(
    groups: Sequence[Group],
    canvas: int,
    protocol: str,
    *,
    train_pads: NDArray[np.uint8],
    test_pads: NDArray[np.uint8],
) -> Plan:
    """Lays tasks, variants and offsets out as a plan.

    Args:
        groups: The tasks with their variants, in group order.
        canvas: Side of the token canvas in cells.
        protocol: One of ``PROTOCOLS``.
        train_pads: (pad_r, pad_c) of each train-split example, (examples, 2) uint8.
        test_pads: The same for the test split.

    Returns:
        The plan.
    """
    pairs = [pair for group in groups for pair in group.task.pairs]
    grids = np.zeros((len(pairs), 2, canvas, canvas), dtype=np.uint8)
    shapes = np.zeros((len(pairs), 2, 2), dtype=np.uint8)
    for index, pair in enumerate(pairs):
        for side, grid in enumerate((pair.input, pair.output)):
            if grid is not None:
                rows, cols = grid.shape
                grids[index, side, :rows, :cols] = grid
                shapes[index, side] = grid.shape
    num_pairs = [len(group.task.pairs) for group in groups]
    is_test = np.concatenate(
        [np.arange(len(group.task.pairs)) >= len(group.task.train) for group in groups]
    )
    held_out = np.repeat([group.held_out for group in groups], num_pairs)
    unused = held_out & (protocol == STRICT)
    tasks = np.arange(len(groups), dtype=np.int32)
    return Plan(
        grids=grids,
        shapes=shapes,
        pair_task=np.repeat(tasks, num_pairs),
        pair_is_test=is_test,
        pair_split=np.select([held_out & is_test, unused], [TEST, UNUSED], TRAIN).astype(np.uint8),
        variant_task=np.repeat(tasks, [len(group.dihedrals) for group in groups]),
        variant_dihedral=np.concatenate([group.dihedrals for group in groups]),
        variant_color_map=np.concatenate([group.color_maps for group in groups]),
        train_pads=train_pads,
        test_pads=test_pads,
    )
