"""Batches: the recipe's counts, any position at once, ranks that share a batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arc_data.batches import EpochOrder
from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source

E_MINI = 176
"""Examples of one mini epoch, from the published counts."""


def test_mini_has_176_examples_per_epoch(mini_dataset: CompiledDataset) -> None:
    order = EpochOrder(mini_dataset.train, seed=0)
    assert order.examples_per_epoch == E_MINI
    assert order.total_steps(epochs=100, batch_size=32) == 550
    assert order.total_steps(epochs=1, batch_size=E_MINI + 1) == 0


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_an_epoch_is_one_variant_of_each_group_group_after_group(
    mini_dataset: CompiledDataset, epoch: int
) -> None:
    split = mini_dataset.train
    rows = EpochOrder(split, seed=3).epoch_rows(epoch)
    assert len(rows) == len(set(rows.tolist())) == E_MINI
    ids = split.materialise(rows)["puzzle_identifiers"]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    assert len(starts) == 46  # one run of equal ids per group, so one variant each
    tasks = split.describe(rows)["task"]
    assert sorted(tasks[starts].tolist()) == list(range(46))
    for run in np.split(rows, starts[1:]):
        variant = np.searchsorted(split.puzzle_indices, run[0], side="right") - 1
        first, stop = split.puzzle_indices[variant : variant + 2]
        assert sorted(run.tolist()) == list(range(first, stop))


def test_groups_variants_and_examples_are_all_shuffled(mini_dataset: CompiledDataset) -> None:
    split = mini_dataset.train
    order = EpochOrder(split, seed=0)
    epochs = [order.epoch_rows(epoch) for epoch in range(200)]
    said = [split.describe(rows) for rows in epochs]
    first_tasks = {int(one["task"][0]) for one in said}
    assert len(first_tasks) > 30
    variants = np.concatenate([one["variant"][one["task"] == 5] for one in said])
    counts = np.bincount(variants, minlength=9)
    # 200 uniform draws over 9 variants: each of 22 on average, none rarer than 5 or over 45.
    per_variant = counts / (len(variants) / 200)
    assert per_variant.min() >= 5 and per_variant.max() <= 45
    positions = [int(one["test_index"][one["task"] == 5][0]) for one in said]
    assert len(set(positions)) == int((said[0]["task"] == 5).sum())


def test_an_epoch_depends_on_seed_and_number_only(mini_dataset: CompiledDataset) -> None:
    split = mini_dataset.train
    straight = [EpochOrder(split, seed=1).epoch_rows(epoch) for epoch in range(4)]
    order = EpochOrder(split, seed=1)
    for epoch in (3, 0, 2, 1, 3, 0):
        assert np.array_equal(order.epoch_rows(epoch), straight[epoch])
    assert not np.array_equal(straight[0], straight[1])
    assert not np.array_equal(straight[0], EpochOrder(split, seed=2).epoch_rows(0))


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 30), batch_size=st.sampled_from([1, 7, 32, 176, 400, 768]))
def test_a_batch_is_a_slice_of_the_joined_epochs(
    mini_dataset: CompiledDataset, index: int, batch_size: int
) -> None:
    order = EpochOrder(mini_dataset.train, seed=5)
    start, stop = index * batch_size, (index + 1) * batch_size
    epochs = range(start // E_MINI, -(-stop // E_MINI))
    joined = np.concatenate([order.epoch_rows(epoch) for epoch in epochs])
    skip = start - epochs[0] * E_MINI
    rows = EpochOrder(mini_dataset.train, seed=5).batch_rows(index, batch_size)
    assert rows.dtype == np.int64
    assert np.array_equal(rows, joined[skip : skip + batch_size])


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_the_ranks_share_a_batch(mini_dataset: CompiledDataset, world_size: int) -> None:
    order = EpochOrder(mini_dataset.train, seed=0)
    for index in (0, 3, 1000):
        whole = order.batch_rows(index, 48)
        parts = [
            EpochOrder(mini_dataset.train, seed=0).batch_rows(
                index, 48, rank=rank, world_size=world_size
            )
            for rank in range(world_size)
        ]
        assert {len(part) for part in parts} == {48 // world_size}
        assert np.array_equal(np.concatenate(parts), whole)


def test_a_far_position_draws_no_epoch_before_it(
    mini_dataset: CompiledDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = EpochOrder(mini_dataset.train, seed=0)
    drawn: list[int] = []
    draw = order._draw_epoch
    monkeypatch.setattr(order, "_draw_epoch", lambda epoch: drawn.append(epoch) or draw(epoch))
    order.batch_rows(10**9, 32)
    assert drawn == [32 * 10**9 // E_MINI]
    order.batch_rows(10**9, 32)
    assert len(drawn) == 1


def test_a_batch_has_tokens_only(mini_dataset: CompiledDataset) -> None:
    split = mini_dataset.train
    batch = split.materialise(EpochOrder(split, seed=0).batch_rows(0, E_MINI))
    for key in ("inputs", "labels"):
        assert batch[key].shape == (E_MINI, 36)
        assert batch[key].max() <= 11
        assert (batch[key] >= 2).any(axis=1).all()  # mini knows every train output
    assert batch["puzzle_identifiers"].min() >= 1


def test_groups_of_any_size_make_the_same_epoch(two_folders: Source) -> None:
    split = build([two_folders], BuildOptions(num_aug=3, canvas=6)).train
    order = EpochOrder(split, seed=0)
    assert order.examples_per_epoch == 5 + 5 + 3 + 3
    assert len({tuple(sorted(order.epoch_rows(epoch).tolist())) for epoch in range(20)}) > 1


@pytest.mark.parametrize("seed", [-1, True, 1.0, "0"])
def test_bad_seeds(mini_dataset: CompiledDataset, seed: object) -> None:
    with pytest.raises(ValueError, match="seed must be an integer of 0 or more"):
        EpochOrder(mini_dataset.train, seed)  # type: ignore[arg-type]


def test_bad_positions(mini_dataset: CompiledDataset, two_folders: Source) -> None:
    order = EpochOrder(mini_dataset.train, seed=0)
    with pytest.raises(ValueError, match="multiple of the number of ranks, found 10 for 3"):
        order.batch_rows(0, 10, rank=0, world_size=3)
    with pytest.raises(ValueError, match=r"rank in 0\.\.1, found index 0 and rank 2"):
        order.batch_rows(0, 10, rank=2, world_size=2)
    with pytest.raises(ValueError, match="found index -1"):
        order.batch_rows(-1, 10)
    empty = Source("s", None, two_folders.folders, frozenset())
    with pytest.raises(ValueError, match="empty split"):
        EpochOrder(build([empty], BuildOptions(num_aug=0, canvas=6)).test, seed=0)
