"""Checkpoints: complete or not there, verified on reading."""

from pathlib import Path

import pytest
import torch

from hrm_deeploop import checkpoint


def save(folder: Path, step: int = 7) -> Path:
    shared = torch.arange(10.0)
    return checkpoint.save(
        folder / "checkpoints",
        step=step,
        tensors={"a": shared[:4], "b": shared[4:]},  # views into one buffer, as in training
        state={"numbers": [1, 2.5], "moment": torch.ones(2)},
        meta={
            "final_step": 12,
            "seed": 3,
            "run": "r",
            "arm": {},
            "config": {},
            "canvas": 6,
            "num_puzzle_identifiers": 5,
            "dataset": {},
        },
    )


def test_round_trip_and_newest_of_a_run(tmp_path: Path) -> None:
    save(tmp_path, 7)
    newest = save(tmp_path, 12)
    loaded = checkpoint.load(tmp_path)
    assert loaded.path == newest
    assert loaded.meta["step"] == 12
    assert loaded.meta["seed"] == 3
    assert torch.equal(loaded.tensors["b"], torch.arange(4.0, 10.0))
    assert loaded.load_state()["numbers"] == [1, 2.5]


def test_a_partial_folder_is_not_a_checkpoint_and_is_replaced(tmp_path: Path) -> None:
    partial = tmp_path / "checkpoints" / "step_000000007.partial"
    partial.mkdir(parents=True)
    (partial / "junk").write_text("x")
    with pytest.raises(FileNotFoundError, match="is not a checkpoint"):
        checkpoint.find(tmp_path)
    save(tmp_path, 7)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_000000007"]


@pytest.mark.parametrize("name", [checkpoint.WEIGHTS, checkpoint.STATE])
def test_one_byte_less_is_named(tmp_path: Path, name: str) -> None:
    path = save(tmp_path)
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[:-1])
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        checkpoint.load(path).load_state()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a checkpoint"):
        checkpoint.load(tmp_path / "nowhere")
    path = save(tmp_path)
    (path / checkpoint.META).write_text('{"schema": "other"}')
    with pytest.raises(ValueError, match=r"meta.json: expected schema .* found 'other'"):
        checkpoint.load(path)
    (path / checkpoint.META).write_text("{")
    with pytest.raises(ValueError, match="expected JSON in UTF-8"):
        checkpoint.load(path)
