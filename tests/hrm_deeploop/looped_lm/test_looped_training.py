"""The looped language model in the trainer: files, going on, optimizers, refusals."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import assert_same_run, stop_at

from hrm_deeploop import checkpoint
from hrm_deeploop.config import ArchConfig, EvalConfig, HardwareConfig, OptimConfig, TrainConfig
from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.looped_lm.data import TokenDataset
from hrm_deeploop.looped_lm.workload import LmWorkload
from hrm_deeploop.reasoner import Reasoner
from hrm_deeploop.run_dir import RunDir, arm_name, describe_arm
from hrm_deeploop.settings import digest, from_dict, to_dict
from hrm_deeploop.training import Trainer

CPU = torch.device("cpu")
LM = LmConfig(
    dataset="toy",
    num_blocks=1,
    rounds=2,
    hidden_size=16,
    num_heads=2,
    context=8,
    arm="deeploop",
    forward_dtype="float32",
)
OPTIM = OptimConfig(
    optimizer="adamw",
    global_batch_size=4,
    lr=3e-3,
    lr_warmup_steps=3,
    total_steps=20,
    lr_min_ratio=0.1,
    clip_grad_norm=0.5,
)


def lm_config(**departures: Any) -> TrainConfig:
    values = {"workload": "lm", "lm": LM, "optim": OPTIM, "log_every_steps": 4, "keep_last": None}
    return TrainConfig(**{**values, **departures})


def make_trainer(
    config: TrainConfig, dataset: TokenDataset, path: Path, *, exists: bool = False
) -> Trainer:
    config = dataclasses.replace(config, run_dir=str(path))
    workload = LmWorkload(config, dataset, CPU)
    meta = {
        "run": path.name,
        "arm": describe_arm(config, "arm", workload.residual()),
        **workload.checkpoint_meta(),
    }
    run = RunDir(path) if exists else RunDir.create(config, "arm")
    return Trainer(workload, config, run, meta)


@pytest.mark.parametrize("optimizer", ["adamw", "adam_atan2"])
@pytest.mark.parametrize("first", [1, 10, 19])
def test_two_parts_are_one_run(
    optimizer: str, first: int, toy: TokenDataset, tmp_path: Path
) -> None:
    optim = dataclasses.replace(OPTIM, optimizer=optimizer, ema=0.9)
    config = lm_config(optim=optim)
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    make_trainer(config, toy, straight).fit()
    trainer = make_trainer(config, toy, parts)
    stop_at(trainer, first)
    trainer.run.release()
    trainer = make_trainer(config, toy, parts, exists=True)
    trainer.resume(*checkpoint.load_to_resume(checkpoint.find(parts)))
    trainer.fit()
    assert_same_run(straight, parts)


def test_it_learns_and_its_files_say_so(toy: TokenDataset, tmp_path: Path) -> None:
    optim = dataclasses.replace(OPTIM, lr=1e-2, total_steps=200)
    some = EvalConfig(every=100, documents=3, batch_size=16)
    config = lm_config(optim=optim, eval=some)
    trainer = make_trainer(config, toy, tmp_path / "run")
    final = trainer.fit()
    out = tmp_path / "run/eval" / final.name
    results = trainer.workload.evaluate(final, out, partial=False)
    assert results == json.loads((out / "results.json").read_text())
    scores = results["scores"]
    assert scores["validation_loss"] + 0.2 < scores["unigram_floor"]
    assert results["num_tokens"] == len(toy.validation) - 1
    assert results["checkpoint"]["rule"] == "final"
    assert results["arm"]["residual"]["alpha"] == pytest.approx(2.0)
    assert not results["evaluation"]["partial"]
    partial = json.loads((tmp_path / "run/eval/step_000000100-partial/results.json").read_text())
    assert partial["evaluation"]["partial"]
    assert partial["num_documents"] == 3
    # Checkpoints are ranked by their loss: less is better.
    assert list(trainer.scores) == [100]
    assert trainer.scores[100] == -partial["scores"]["validation_loss"]
    assert "validation loss" in trainer.workload.headline(partial)
    assert "(partial)" in trainer.workload.headline(partial)


def test_parts_of_a_batch_are_one_batch(toy: TokenDataset) -> None:
    whole = LmWorkload(lm_config(), toy, CPU)
    loss = whole.step(3, 0)
    loss.loss.backward()
    cut = LmWorkload(lm_config(hardware=HardwareConfig(accumulate=2)), toy, CPU)
    parts = [cut.step(3, part) for part in range(cut.num_parts)]
    for part in parts:
        part.loss.backward()
    total = sum(part.metrics["lm_loss"] for part in parts)
    torch.testing.assert_close(total, loss.metrics["lm_loss"])
    for one, other in zip(whole.module.parameters(), cut.module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-7, rtol=1e-5)


def test_the_gradient_is_clipped_after_its_norm_is_recorded(
    toy: TokenDataset, tmp_path: Path
) -> None:
    seen = []
    for clip in (None, 1e-3):
        optim = dataclasses.replace(OPTIM, clip_grad_norm=clip, total_steps=1)
        trainer = make_trainer(lm_config(optim=optim), toy, tmp_path / str(clip))
        gradients: list[torch.Tensor] = []
        step = trainer.optimizer.step

        def look(step: Any = step, trainer: Any = trainer, into: Any = gradients) -> None:
            into.extend(p.grad.clone() for p in trainer.workload.module.parameters())
            step()

        trainer.optimizer.step = look  # type: ignore[method-assign]
        trainer.fit()
        record = json.loads((tmp_path / str(clip) / "metrics.jsonl").read_text())
        seen.append((record["grad_norm"], torch.nn.utils.get_total_norm(gradients).item()))
    (norm, plain), (same_norm, clipped) = seen
    assert norm == pytest.approx(plain)
    assert same_norm == norm > 0.01
    assert clipped == pytest.approx(1e-3, rel=1e-3)


def test_the_arms_name_and_digest() -> None:
    base = lm_config()
    assert arm_name(base, base) == "deeploop-R2"
    other = lm_config(lm=dataclasses.replace(LM, rounds=3, num_blocks=4), seed=7)
    assert arm_name(other, base) == "deeploop-R3-num_blocks=4"
    recomputed = dataclasses.replace(LM, activation_checkpointing=True)
    assert digest(lm_config(lm=recomputed)) == digest(base)
    assert digest(other) != digest(base)
    assert from_dict(TrainConfig, to_dict(other)) == other


def test_runs_from_before_there_were_two_workloads_are_read(tmp_path: Path) -> None:
    values = to_dict(TrainConfig(seed=3))
    for key in ("workload", "lm"):
        del values[key]
    for key in ("optimizer", "clip_grad_norm"):
        del values["optim"][key]
    assert from_dict(TrainConfig, values) == TrainConfig(seed=3)
    meta = {"final_step": 1, "seed": 3, "run": "r", "arm": {}, "config": values, "dataset": {}}
    meta |= {"canvas": 6, "num_puzzle_identifiers": 5}
    path = checkpoint.save(tmp_path, step=1, tensors={}, state={}, meta=meta)
    assert checkpoint.load(path).meta["canvas"] == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_a_compiled_run_agrees_with_an_eager_one(toy: TokenDataset, tmp_path: Path) -> None:
    losses = []
    for compiled in (False, True):
        trainer = make_trainer(lm_config(), toy, tmp_path / str(compiled))
        if compiled:
            trainer.workload.compile()
            assert trainer.workload.backends()["block"] == "inductor"
        trainer.fit()
        lines = (tmp_path / str(compiled) / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["lm_loss"] for line in lines])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arch": ArchConfig(hidden_size=64)}, "arch.hidden_size has no effect with workload=lm"),
        ({"workload": "arc"}, r"lm\.\w+ has no effect with workload=arc"),
        ({"optim": OptimConfig(puzzle_emb_lr=1.0)}, "optim.puzzle_emb_lr has no effect"),
    ],
)
def test_settings_of_the_other_workload_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lm_config(**values)


def test_a_checkpoint_is_refused_where_the_other_workloads_are_read(
    toy: TokenDataset, tmp_path: Path
) -> None:
    optim = dataclasses.replace(OPTIM, total_steps=1)
    final = make_trainer(lm_config(optim=optim), toy, tmp_path / "run").fit()
    with pytest.raises(ValueError, match=r"of workload lm, .*; use lm eval or lm sample"):
        Reasoner.from_checkpoint(checkpoint.load(final))
    meta = checkpoint.read_meta(final, "lm")
    del meta["vocab_size"]
    (final / checkpoint.META).write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="vocab_size must be of type int; found None"):
        checkpoint.read_meta(final, "lm")
    meta["config"]["workload"] = "other"
    (final / checkpoint.META).write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="workload must be one of arc, lm; found 'other'"):
        checkpoint.read_meta(final, None)


def test_a_text_that_is_too_short(toy: TokenDataset) -> None:
    long = dataclasses.replace(LM, context=len(toy.train))
    with pytest.raises(ValueError, match=r"needs .* training tokens or more"):
        LmWorkload(lm_config(lm=long), toy, CPU)
