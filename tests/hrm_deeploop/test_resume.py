"""Going on with a run: bit for bit, after any end; what is refused; signals; full disks."""

import dataclasses
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import make_trainer, small_config, small_dataset

from arc_data.compiled import CompiledDataset
from hrm_deeploop import checkpoint
from hrm_deeploop.config import DiagnosticsConfig, EvalConfig, OptimConfig, TrainConfig
from hrm_deeploop.signals import Stopped, StopSignals
from hrm_deeploop.training import Trainer

TIMES = {"time_s", "rows_per_s", "tokens_per_s"}


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    return small_dataset()


def full_config(**departures: Any) -> TrainConfig:
    """Shuffled epochs, halting with exploration, averages, pending sums between records."""
    optim = OptimConfig(global_batch_size=8, lr=1e-3, lr_warmup_steps=3, ema=0.9)
    values: dict[str, Any] = {
        "optim": optim,
        "max_steps": 20,
        "log_every_steps": 4,
        "diagnostics": DiagnosticsConfig(every_steps=5),
        "keep_last": None,
    }
    return small_config(**{**values, **departures})


def go_on(config: TrainConfig, dataset: CompiledDataset, path: Path) -> Trainer:
    trainer = make_trainer(config, dataset, path, exists=True)
    if saved := checkpoint.all_of(path):
        trainer.resume(*checkpoint.load_to_resume(saved[-1]))
    return trainer


def records(path: Path) -> list[dict[str, float]]:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]


def assert_same_run(one: Path, other: Path) -> None:
    """Equal records, and in the newest checkpoints equal weights and training state."""
    assert records(one) == records(other)
    ends = [checkpoint.find(path) for path in (one, other)]
    assert ends[0].name == ends[1].name
    loaded = [checkpoint.load(end, workload=None) for end in ends]
    for key, value in loaded[0].tensors.items():
        assert torch.equal(value, loaded[1].tensors[key]), key
    assert_equal(loaded[0].load_state(), loaded[1].load_state())


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list):
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    else:
        assert one == other


def stop_at(trainer: Trainer, step: int, signum: int = signal.SIGTERM) -> None:
    """Trains; the signal comes while ``step`` is computed."""
    stop = StopSignals()
    compute = trainer.workload.step

    def step_and_signal(number: int, part: int) -> Any:
        if number == step:
            stop.received = signum
        return compute(number, part)

    trainer.workload.step = step_and_signal  # type: ignore[method-assign]
    with pytest.raises(Stopped, match=f"step {step} is saved; go on with"):
        trainer.fit(stop)


@pytest.mark.parametrize("first", [1, 10, 19, 20])
def test_two_parts_are_one_run(first: int, dataset: CompiledDataset, tmp_path: Path) -> None:
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    make_trainer(full_config(), dataset, straight).fit()
    trainer = make_trainer(full_config(), dataset, parts)
    stop_at(trainer, first)
    trainer.run.release()
    go_on(full_config(), dataset, parts).fit()
    assert_same_run(straight, parts)


def test_going_back_to_a_checkpoint_repeats_what_followed(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    straight, again = tmp_path / "straight", tmp_path / "again"
    config = full_config(checkpoint_every_steps=5)
    make_trainer(config, dataset, straight).fit()
    trainer = make_trainer(config, dataset, again)
    trainer.fit()
    evaluation = again / "eval" / "step_000000015-partial"
    evaluation.mkdir(parents=True)
    aside = trainer.run.set_aside_after(10)
    trainer.run.release()
    assert [str(p.relative_to(again)) for p in aside] == [
        "set_aside/1/checkpoints/step_000000015",
        "set_aside/1/checkpoints/step_000000020",
        "set_aside/1/eval/step_000000015-partial",
    ]
    assert not list(again.glob("eval/*"))  # reports must not take the old one for the run's
    go_on(config, dataset, again).fit()
    assert_same_run(straight, again)


def test_a_damaged_checkpoint_is_named_and_the_whole_one_before(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    trainer = make_trainer(full_config(checkpoint_every_steps=5), dataset, path)
    trainer.fit()
    steps = checkpoint.all_of(path)
    for broken in steps[2:]:
        data = (broken / checkpoint.STATE).read_bytes()
        (broken / checkpoint.STATE).write_bytes(data[:-1])
    with pytest.raises(
        ValueError, match=r"20/state.pt is damaged: .*; the one before is whole: resume=.*000010$"
    ):
        checkpoint.load_to_resume(steps[-1])
    for broken in steps[:2]:
        (broken / checkpoint.WEIGHTS).unlink()
    with pytest.raises(ValueError, match="no checkpoint before it is whole"):
        checkpoint.load_to_resume(steps[-1])


def test_a_record_cut_off_by_a_dying_process_is_dropped(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    make_trainer(full_config(), dataset, straight).fit()
    trainer = make_trainer(full_config(), dataset, cut)
    stop_at(trainer, 10)
    trainer.run.release()
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12, "lm_loss": 1}\n{"step": 16, "lm_')
    go_on(full_config(), dataset, cut).fit()
    assert_same_run(straight, cut)


def test_averages_are_not_invented(dataset: CompiledDataset, tmp_path: Path) -> None:
    trainer = make_trainer(full_config(), dataset, tmp_path / "run")
    stop_at(trainer, 3)
    trainer.run.release()
    other = full_config(optim=dataclasses.replace(full_config().optim, ema=None))
    with pytest.raises(ValueError, match=r"optim.ema is None, but .* has averaged weights"):
        go_on(other, dataset, tmp_path / "run")


def test_a_run_that_is_past_its_end(dataset: CompiledDataset, tmp_path: Path) -> None:
    trainer = make_trainer(full_config(), dataset, tmp_path / "run")
    stop_at(trainer, 5)
    trainer.run.release()
    with pytest.raises(ValueError, match=r"is of step 5, but the run is to end after 4 steps"):
        go_on(full_config(max_steps=4), dataset, tmp_path / "run")


def test_evaluating_in_the_middle_changes_nothing_and_equals_the_saved_file(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    plain, looked = tmp_path / "plain", tmp_path / "looked"
    config = full_config(keep_last=None)
    make_trainer(config, dataset, plain).fit()
    some = EvalConfig(every=8, tasks=5, num_aug=0)
    trainer = make_trainer(full_config(eval=some, keep_last=None), dataset, looked)
    trainer.fit()
    assert records(plain) == records(looked)
    assert list(trainer.scores) == [8, 16]
    results = json.loads((looked / "eval/step_000000016-partial/results.json").read_text())
    assert results["voting"]["partial"]
    assert results["num_tasks"] == 5
    assert results["checkpoint"]["weights"] == "ema"
    again = trainer.workload.evaluate(
        looked / "checkpoints/step_000000016", tmp_path / "again", partial=True
    )
    assert again["scores"] == results["scores"]
    assert trainer.scores[16] == again["scores"]["task_accuracy_strict"]["2"]


def test_evaluation_by_epochs_comes_at_the_first_step_past_them(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    config = full_config(eval=EvalConfig(every_epochs=2))
    trainer = make_trainer(config, dataset, tmp_path / "run")
    per_epoch = trainer.workload.examples_per_epoch
    due = []
    for step in range(200):
        trainer.step = step
        if trainer._evaluates():
            due.append(step)
    assert due == [-(-2 * n * per_epoch // 8) for n in range(1, len(due) + 1)]
    assert len(due) > 2


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({"keep_last": None}, [2, 4, 6, 8, 10]),
        ({"keep_last": 2}, [8, 10]),
        ({"keep_last": 1, "keep_every_steps": 4}, [4, 8, 10]),
        ({"keep_last": 1, "keep_best": 2}, [4, 6, 10]),  # of equal scores the newer
    ],
)
def test_retention(rules: dict[str, int], kept: list[int], tmp_path: Path) -> None:
    for step in (2, 4, 6, 8, 10):
        (tmp_path / "checkpoints" / checkpoint.step_folder(step)).mkdir(parents=True)
    given = {"keep_last": None, "keep_every_steps": None, "keep_best": None, **rules}
    scores = {2: 1.0, 4: 5.0, 6: 5.0, 8: 1.0, 9: 9.0}
    checkpoint.retire(tmp_path, **given, scores=scores)
    assert [checkpoint.step_of(path) for path in checkpoint.all_of(tmp_path)] == kept


def test_a_checkpoint_by_time(dataset: CompiledDataset, tmp_path: Path) -> None:
    config = full_config(checkpoint_every_minutes=1e-9)
    make_trainer(config, dataset, tmp_path / "run").fit()
    assert len(checkpoint.all_of(tmp_path / "run")) == 20


def test_a_gradient_that_is_not_finite_is_named_with_step_and_last_checkpoint(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    trainer = make_trainer(full_config(checkpoint_every_steps=5), dataset, tmp_path / "run")
    compute = trainer.workload.step

    def poisoned(step: int, part: int) -> Any:
        out = compute(step, part)
        return out._replace(loss=out.loss * (1.0 if step < 7 else float("inf")))

    trainer.workload.step = poisoned  # type: ignore[method-assign]
    with pytest.raises(
        FloatingPointError, match=r"grad_norm is (nan|inf) at step 7; .* checkpoint is .*000005$"
    ):
        trainer.fit()
    assert len(checkpoint.all_of(tmp_path / "run")) == 1


@contextmanager
def full_disk(path: Path, kilobytes: int) -> Iterator[None]:
    """A file system of that size at ``path``."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # files may be mapped


def test_a_full_disk_loses_nothing(dataset: CompiledDataset, tmp_path: Path) -> None:
    disk, straight = tmp_path / "disk", tmp_path / "straight"
    config = full_config(checkpoint_every_steps=5)
    make_trainer(config, dataset, straight).fit()
    size = sum(file.stat().st_size for file in checkpoint.find(straight).iterdir()) // 1024
    with full_disk(disk, size * 5 // 2):
        trainer = make_trainer(config, dataset, disk / "run")
        with (
            pytest.raises(OSError, match=r"15 could not be written: .*; the last good .*000010$"),
            trainer.run.tracked(),
        ):
            trainer.fit()
        assert {p.name[-2:] for p in (disk / "run/checkpoints").iterdir()} == {"05", "10"}
        shutil.rmtree(checkpoint.all_of(disk / "run")[0])  # room again
        trainer = go_on(dataclasses.replace(config, keep_last=1), dataset, disk / "run")
        trainer.fit()
        trainer.run.release()
        assert_same_run(straight, disk / "run")
