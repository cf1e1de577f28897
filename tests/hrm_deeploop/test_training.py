"""The loop: schedule, a whole small run, its files, what it must not touch, EMA, tracking."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import CPU, make_trainer, small_config, small_dataset
from torch._dynamo.exc import TorchDynamoException

from arc_data.compiled import CompiledDataset
from arc_data.tokens import PAD
from hrm_deeploop import checkpoint
from hrm_deeploop.arc import ArcWorkload
from hrm_deeploop.config import (
    DataConfig,
    DiagnosticsConfig,
    LevelResidualConfig,
    OptimConfig,
    ResidualConfig,
    TrainConfig,
)
from hrm_deeploop.ema import EMA
from hrm_deeploop.inference import check_fits, predict
from hrm_deeploop.losses import IGNORE_LABEL
from hrm_deeploop.reasoner import Reasoner, to_batch
from hrm_deeploop.run_dir import RunDir, arm_name
from hrm_deeploop.schedule import lr_ratio


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    return small_dataset()


def test_schedule() -> None:
    constant = OptimConfig(lr_warmup_steps=4)
    ratios = [lr_ratio(t, constant, 100) for t in (1, 2, 3, 4, 5, 100)]
    assert ratios == [0.25, 0.5, 0.75, 1, 1, 1]
    cosine = OptimConfig(lr_warmup_steps=0, lr_min_ratio=0.1)
    assert lr_ratio(50, cosine, 100) == pytest.approx(0.55)
    assert lr_ratio(100, cosine, 100) == pytest.approx(0.1)
    assert lr_ratio(25, cosine, 100) == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi / 4)))


def test_a_run_and_its_files(dataset: CompiledDataset, tmp_path: Path) -> None:
    path = tmp_path / "out dir" / "lr=1e-4, seed=0 [a]"
    trainer = make_trainer(small_config(checkpoint_every_steps=2), dataset, path)
    with trainer.run.tracked():
        final = trainer.fit()
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == [
        "step_000000002",
        "step_000000004",
    ]
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [2, 4]
    assert all(math.isfinite(r["lm_loss"]) for r in records)
    assert records[0]["lr"] == pytest.approx(1e-3 * 2 / 3)
    assert json.loads((path / "status.json").read_text())["state"] == "finished"

    results = trainer.workload.evaluate(final, path / "eval" / final.name, partial=False)
    assert results["num_tasks"] == 46
    assert results["num_predictions"] == dataset.test.num_examples
    assert results["checkpoint"]["rule"] == "final"
    assert not results["voting"]["partial"]
    attempts = json.loads((path / "eval" / final.name / "submission.json").read_text())
    assert len(attempts) == 46


def test_runs_repeat_bitwise(dataset: CompiledDataset, tmp_path: Path) -> None:
    states = []
    for name in ("a", "b"):
        torch.manual_seed(hash(name) % 1000)  # the global generators must not matter
        trainer = make_trainer(small_config(), dataset, tmp_path / name)
        trainer.fit()
        states.append(trainer.workload.tensors())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_diagnostics_come_at_their_own_interval_and_change_nothing(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    ends, kept = [], []
    for every in (3, None):
        config = small_config(diagnostics=DiagnosticsConfig(every_steps=every))
        trainer = make_trainer(config, dataset, tmp_path / str(every))
        trainer.fit()
        ends.append(trainer.workload.tensors())
        text = (tmp_path / str(every) / "metrics.jsonl").read_text()
        kept.append([json.loads(line) for line in text.splitlines()])
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
    assert [r["step"] for r in kept[0]] == [2, 3, 4]
    assert [r["step"] for r in kept[1]] == [2, 4]
    looked = kept[0][1]
    assert looked["update_norm"] > 0
    assert looked["stream_rms_H"] == pytest.approx(1, abs=1e-3)
    assert looked["unchanged_L"] < 0.01
    drawn = set()
    workload = ArcWorkload(small_config(), dataset, CPU)
    for step in (1, 2, 3):
        workload.step(step, 0)
        (carry,) = workload._carries
        assert carry is not None
        drawn |= set(carry.current.puzzle_identifiers.tolist())
    trained = set(dataset.train.puzzle_identifiers.tolist())
    assert looked["rows_never_drawn"] == len(trained - drawn)
    assert all(record["grad_norm"] > 0 for record in kept[1])
    assert "update_norm" not in kept[1][0]


def test_seed_zero_and_one_differ_and_arms_of_one_seed_share_draws(
    dataset: CompiledDataset,
) -> None:
    def first_weights(**changes: object) -> dict[str, torch.Tensor]:
        return ArcWorkload(small_config(**changes), dataset, CPU).tensors()

    zero, one = first_weights(seed=0), first_weights(seed=1)
    key = "embed_tokens.embedding_weight"
    assert not torch.equal(zero[key], one[key])
    scaled = first_weights(residual=ResidualConfig(preset="deeploop"))
    assert torch.equal(zero[key], scaled[key])


def test_training_leaves_table_rows_outside_its_batches_alone(dataset: CompiledDataset) -> None:
    workload = ArcWorkload(small_config(), dataset, CPU)
    table = workload.reasoner.table.weights
    workload.step(1, 0).loss.backward()
    workload.after_backward(1.0)
    (carry,) = workload._carries
    assert carry is not None
    touched = carry.current.puzzle_identifiers.unique()
    rows = table.abs().sum(-1) > 0
    assert set(rows.nonzero().flatten().tolist()) <= set(touched.tolist())
    assert rows.any()


def test_pad_labels_become_ignored_and_nothing_else(dataset: CompiledDataset) -> None:
    arrays = dataset.train.materialise(np.arange(20))
    batch = to_batch(arrays, CPU)
    ignored = (batch.labels == IGNORE_LABEL).numpy()
    assert np.array_equal(ignored, arrays["labels"] == PAD)
    assert np.array_equal(batch.labels.numpy()[~ignored], arrays["labels"][~ignored])
    assert np.array_equal(batch.inputs.numpy(), arrays["inputs"])


def test_a_loss_that_is_not_finite_stops_the_run(dataset: CompiledDataset, tmp_path: Path) -> None:
    trainer = make_trainer(small_config(), dataset, tmp_path / "run")
    with torch.no_grad():
        trainer.workload.module.lm_head.weight.fill_(math.nan)  # type: ignore[union-attr,operator]
    with (
        pytest.raises(FloatingPointError, match="lm_loss is nan at step 1; training stopped"),
        trainer.run.tracked(),
    ):
        trainer.fit()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert "lm_loss is nan" in status["error"]
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_ema() -> None:
    module = torch.nn.Linear(2, 1)
    ema = EMA(module, 0.9)
    before = module.weight.detach().clone()
    with torch.no_grad():
        module.weight.add_(1.0)
    ema.update(module)
    torch.testing.assert_close(ema.average["weight"], before + 0.1)


def test_evaluation_uses_the_average_where_there_is_one(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    optim = OptimConfig(global_batch_size=8, lr=1e-2, lr_warmup_steps=0, ema=0.5)
    trainer = make_trainer(small_config(optim=optim), dataset, tmp_path / "run")
    loaded = checkpoint.load(trainer.fit())
    reasoner = Reasoner.from_checkpoint(loaded)
    assert trainer.ema is not None
    key = "lm_head.weight"
    assert torch.equal(reasoner.model.lm_head.weight, trainer.ema.average[key])
    assert not torch.equal(loaded.tensors[key], loaded.tensors["ema." + key])
    assert torch.equal(reasoner.table.weights, loaded.tensors["puzzle_emb.weights"])


def test_prediction_continues_a_store_and_ignores_the_batch_size(
    dataset: CompiledDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eval.predictions import read
    from hrm_deeploop import inference

    monkeypatch.setattr(inference, "ROWS_PER_SHARD", 30)
    reasoner = Reasoner(small_config(), 6, dataset.num_puzzle_identifiers)
    reasoner.initialise(0)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    predict(reasoner, dataset, whole, producer={}, batch_size=512)
    predict(reasoner, dataset, parts, producer={}, batch_size=7)
    last = sorted(parts.glob("part-*.npz"))[-1]
    last.unlink()
    rows = predict(reasoner, dataset, parts, producer={}, batch_size=7)
    assert rows == dataset.test.num_examples
    other = tmp_path / "other"
    other.mkdir()
    for name, source in (("part-00000.npz", last.name), ("header.json", "header.json")):
        (other / name).write_bytes((parts / source).read_bytes())
    with pytest.raises(ValueError, match="are not those of the data set's rows"):
        predict(reasoner, dataset, other, producer={}, batch_size=7)
    a, b = read(whole), read(parts)
    assert np.array_equal(a.tokens, b.tokens)
    assert np.array_equal(a.task_id, b.task_id)
    assert np.allclose(a.q_halt_logit, b.q_halt_logit, atol=1e-5)


def test_a_puzzle_without_a_row_in_the_table(dataset: CompiledDataset) -> None:
    reasoner = Reasoner(small_config(), 6, dataset.num_puzzle_identifiers - 1)
    name = dataset.identifiers()[-1]
    with pytest.raises(ValueError, match=f"puzzle {name} has id .* but the puzzle table has"):
        check_fits(reasoner, dataset)
    with pytest.raises(ValueError, match="canvas is 6, the model's 5"):
        check_fits(Reasoner(small_config(), 5, 999), dataset)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_compiled_agrees_with_eager(dtype: str, tolerance: float, dataset: CompiledDataset) -> None:
    outputs = []
    arch = dataclasses.replace(small_config().arch, forward_dtype=dtype)
    config = small_config(arch=arch, residual=ResidualConfig(preset="deeploop"))
    for compiled in (False, True):
        workload = ArcWorkload(config, dataset, CPU)
        if compiled:
            workload.compile()
            assert workload.segment_backend == "inductor"
        out = workload.step(1, 0)
        out.loss.backward()
        gradient = workload.reasoner.model.lm_head.weight.grad
        outputs.append((out.loss, out.metrics["lm_loss"], gradient))
    for a, b in zip(*outputs, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_compiled_steps_repeat_bitwise(dataset: CompiledDataset) -> None:
    # Many rows share few words, and two threads work on them: sums that add atomically differ.
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    optim = dataclasses.replace(small_config().optim, global_batch_size=64)
    gradients = []
    try:
        workload = ArcWorkload(small_config(optim=optim), dataset, CPU)
        workload.compile()
        for _ in range(12):
            workload.module.zero_grad()
            workload._carries = [None]  # the first batch again
            workload.step(1, 0).loss.backward()
            gradients.append(workload.reasoner.model.embed_tokens.embedding_weight.grad)
    finally:
        torch.set_num_threads(threads)
    for gradient in gradients[1:]:
        assert torch.equal(gradient, gradients[0])


def test_without_a_compiler_the_run_goes_on_eagerly_with_one_warning(
    dataset: CompiledDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TorchDynamoException("no compiler\nlong trace")

    monkeypatch.setattr("hrm_deeploop.arc.compile_train_segment", lambda: fail)
    workload = ArcWorkload(small_config(), dataset, CPU)
    with pytest.warns(UserWarning, match="running eagerly: torch.compile failed: no compiler$"):
        workload.compile()
    assert workload.segment_backend == "eager, torch.compile failed"
    plain = ArcWorkload(small_config(), dataset, CPU)
    assert torch.equal(workload.step(1, 0).loss, plain.step(1, 0).loss)


def test_status_says_how_a_run_ended(tmp_path: Path) -> None:
    for error, state in ((KeyboardInterrupt(), "interrupted"), (OSError("disk full"), "failed")):
        config = small_config(run_dir=str(tmp_path / state))
        run = RunDir.create(config, "arm")
        assert json.loads((run.path / "status.json").read_text())["state"] == "running"
        with pytest.raises(type(error)), run.tracked():
            raise error
        assert json.loads((run.path / "status.json").read_text())["state"] == state


def test_names_that_are_cut_stay_apart() -> None:
    config = small_config(residual=ResidualConfig(H=LevelResidualConfig(preset="deeploop")))
    other = dataclasses.replace(config, seed=1, data=DataConfig(num_aug=3))
    names = [arm_name(c, TrainConfig()) for c in (config, other)]
    assert all(len(name) == 80 for name in names)
    assert names[0] != names[1]
    assert "H.preset=deeploop" in names[0]


def test_weights_that_are_not_finite_are_not_saved(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    optim = OptimConfig(global_batch_size=8, lr=1e30, lr_warmup_steps=0, weight_decay=1e10)
    config = small_config(optim=optim, max_steps=1)
    trainer = make_trainer(config, dataset, tmp_path / "run")
    with pytest.raises(FloatingPointError, match=r"not finite after step 1; .* is none"):
        trainer.fit()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_no_whole_batch_is_an_error(dataset: CompiledDataset) -> None:
    with pytest.raises(ValueError, match=r"epochs=1 has 176 examples, less than one batch"):
        ArcWorkload(small_config(epochs=1, optim=OptimConfig()), dataset, CPU)
