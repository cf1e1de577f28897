"""Prediction: modes, selections, pooled sources, parts, resuming, batch sizes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import mini
from eval.ladder import read_ballots, vote
from eval.predictions import FIELDS, Predictions, read
from eval.voting import rank
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop import inference
from hrm_deeploop.cli.main import main
from hrm_deeploop.config import ArchConfig, TrainConfig
from hrm_deeploop.inference import evaluate_checkpoint, predict, predict_checkpoint
from hrm_deeploop.prediction_mode import PredictionMode, Selection
from hrm_deeploop.reasoner import Reasoner
from hrm_deeploop.run_dir import describe_arm
from hrm_deeploop.settings import to_dict

CPU = torch.device("cpu")
LOGIT_ATOL = 1e-5  # float32, between batch sizes
TASKS = ["0d3d703e", "25ff71a9"]


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    return build([mini()], BuildOptions(num_aug=2, canvas=6))


def make_reasoner(dataset: CompiledDataset, seed: int) -> Reasoner:
    """Random weights whose q values differ from row to row, so that rows halt apart."""
    arch = ArchConfig(
        hidden_size=16,
        num_heads=2,
        expansion=1.0,
        H_layers=1,
        L_layers=1,
        halt_max_steps=3,
        forward_dtype="float32",
    )
    reasoner = Reasoner(TrainConfig(arch=arch), 6, dataset.num_puzzle_identifiers)
    reasoner.initialise(seed)
    generator = torch.Generator().manual_seed(seed)
    reasoner.table.weights.normal_(generator=generator)
    with torch.no_grad():
        reasoner.model.q_head.weight.normal_(std=3.0, generator=generator)
    return reasoner


def save_run(path: Path, dataset: CompiledDataset, seed: int, data_dir: Path | None = None) -> Path:
    reasoner = make_reasoner(dataset, seed)
    config = TrainConfig(
        arch=reasoner.config.arch, seed=seed, data_dir=None if data_dir is None else str(data_dir)
    )
    meta = {
        "config": to_dict(config),
        "seed": seed,
        "final_step": 7,
        "run": path.name,
        "arm": describe_arm(config, "arm", {}),
        "canvas": 6,
        "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
        "dataset": {"digest": dataset.digest, "tasks": dataset.manifest["tasks"]},
    }
    checkpoints.save(path / "checkpoints", step=7, tensors=reasoner.tensors(), state={}, meta=meta)
    return path


def stored(
    dataset: CompiledDataset, out: Path, *, batch_size: int | None = 50, **mode: Any
) -> Predictions:
    reasoner = make_reasoner(dataset, 0)
    chosen = PredictionMode(**mode)
    predict(reasoner, dataset, out, producer={}, batch_size=batch_size, mode=chosen)
    return read(out)


def assert_same_rows(found: Predictions, expected: Predictions) -> None:
    for field in FIELDS:
        a, b = getattr(found, field), getattr(expected, field)
        if field == "q_halt_logit":
            np.testing.assert_allclose(a, b, atol=LOGIT_ATOL)
        else:
            np.testing.assert_array_equal(a, b, err_msg=field)


def test_every_segment_and_adaptive_halting(dataset: CompiledDataset, tmp_path: Path) -> None:
    fixed = stored(dataset, tmp_path / "fixed")
    every = stored(dataset, tmp_path / "every", every_segment=True)
    adaptive = stored(dataset, tmp_path / "adaptive", halting="adaptive")
    both = stored(dataset, tmp_path / "both", halting="adaptive", every_segment=True)
    num_examples = dataset.test.num_examples
    assert (len(fixed), len(every), len(adaptive)) == (num_examples, 3 * num_examples, num_examples)
    assert np.array_equal(every.segment, np.tile([1, 2, 3], num_examples))
    assert_same_rows(every.select(every.segment == 3), fixed)
    ended = set(np.unique(adaptive.segment).tolist())
    assert {1, 3} <= ended  # the random q head makes rows end apart
    row = 3 * np.arange(num_examples) + adaptive.segment - 1
    assert_same_rows(adaptive, every.select(row))
    kept = every.segment <= np.repeat(adaptive.segment, 3)
    assert_same_rows(both, every.select(kept))
    results = vote(tmp_path / "adaptive", dataset, tmp_path)
    counts = np.bincount(adaptive.segment)
    assert results["segments"] == {str(s): int(counts[s]) for s in sorted(ended)}
    assert results["voting"]["halting"] == "adaptive"
    assert not results["voting"]["partial"]
    results = vote(tmp_path / "every", dataset, tmp_path)
    assert results["voting"]["halting"] == "fixed, every segment"
    assert results["num_predictions"] == 3 * num_examples
    assert not results["voting"]["partial"]


def test_puzzle_ids(dataset: CompiledDataset, tmp_path: Path) -> None:
    rows = np.arange(dataset.test.num_examples)
    right = dataset.test.materialise(rows)["puzzle_identifiers"]
    shown = {
        mode: Selection(dataset, PredictionMode(puzzle_id=mode)).materialise(rows)  # type: ignore[arg-type]
        for mode in ("right", "blank", "shuffled")
    }
    assert np.array_equal(shown["right"]["puzzle_identifiers"], right)
    assert not shown["blank"]["puzzle_identifiers"].any()
    shuffled = shown["shuffled"]["puzzle_identifiers"]
    variant_task = dataset.plan.variant_task
    assert (variant_task[shuffled - 1] != variant_task[right - 1]).all()
    assert len(np.unique(variant_task[shuffled - 1])) == 46
    few = Selection(dataset, PredictionMode(puzzle_id="shuffled", tasks=TASKS))
    assert np.array_equal(few.materialise(rows[5:9])["puzzle_identifiers"], shuffled[5:9])
    for mode in ("blank", "shuffled"):
        stored(dataset, tmp_path / mode, puzzle_id=mode)
        assert vote(tmp_path / mode, dataset, tmp_path)["voting"]["puzzle_id"] == mode
    one, other = (read(tmp_path / mode) for mode in ("blank", "shuffled"))
    assert not np.array_equal(one.q_halt_logit, other.q_halt_logit)


def test_partial_runs_are_labelled(dataset: CompiledDataset, tmp_path: Path) -> None:
    whole = stored(dataset, tmp_path / "whole")
    few = stored(dataset, tmp_path / "few", tasks=TASKS[::-1])
    assert_same_rows(few, whole.select(np.isin(whole.task_id, TASKS)))
    assert few.header["tasks"] == [t for t in dataset.truth() if t in TASKS]
    results = vote(tmp_path / "few", dataset, tmp_path)
    assert results["voting"]["partial"]
    assert results["num_tasks"] == 2
    assert results["missing"] == []
    assert set(results["tasks"]) == set(TASKS)
    assert len(json.loads((tmp_path / "submission.json").read_text())) == 46
    others = [place for place in results["submission_fillers"] if place[:8] not in TASKS]
    assert len(others) == 2 * (53 - results["num_test_pairs"])

    one = stored(dataset, tmp_path / "one", num_aug=1)
    results = vote(tmp_path / "one", dataset, tmp_path)
    assert (results["voting"]["partial"], results["voting"]["num_aug"]) == (True, 1)
    assert results["num_predictions"] == len(one) == 2 * 53
    original = stored(dataset, tmp_path / "original", num_aug=0)
    assert (original.dihedral == 0).all()
    ballots = [
        rank(read_ballots(tmp_path / name, dataset).votes, rule)
        for name, rule in (("original", "count-first"), ("whole", "original-only"))
    ]
    digests = [{pair: [c.digest for c in cs] for pair, cs in r.items()} for r in ballots]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ({"tasks": ["0d3d703"]}, "'0d3d703' has no held-out test pair .* did you mean 0d3d703e"),
        ({"tasks": []}, "tasks must name at least one task"),
        ({"num_aug": 3}, r"num_aug must be in 0\.\.2, the data set's; got 3"),
        ({"num_aug": -1}, "num_aug must be in"),
        ({"puzzle_id": "left"}, "puzzle_id must be one of right, blank, shuffled; got 'left'"),
        ({"halting": "early"}, "halting must be one of fixed, adaptive; got 'early'"),
    ],
)
def test_wrong_modes_write_nothing(
    mode: dict[str, Any], message: str, dataset: CompiledDataset, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        stored(dataset, tmp_path / "store", **mode)
    assert list(tmp_path.iterdir()) == []


def test_pooled_checkpoints_are_named_sources(dataset: CompiledDataset, tmp_path: Path) -> None:
    runs = [save_run(tmp_path / f"run {seed}", dataset, seed) for seed in (0, 1)]
    results = evaluate_checkpoint(runs, dataset, tmp_path / "pool", device=CPU)
    names = ["run 0/step_000000007", "run 1/step_000000007"]
    assert results["voting"]["sources"] == names
    assert results["seed"] is None
    assert results["checkpoint"]["run"] is None
    assert not results["voting"]["partial"]
    assert results["num_predictions"] == 2 * dataset.test.num_examples
    pooled = read(tmp_path / "pool/predictions")
    assert list(pooled.header["producer"]["sources"]) == names
    for run, name in zip(runs, names, strict=True):
        alone = evaluate_checkpoint(run, dataset, tmp_path / run.name / "alone", device=CPU)
        assert alone["voting"]["sources"] == ["model"]
        assert alone["checkpoint"]["rule"] == "final"
        part, whole = read(tmp_path / run.name / "alone/predictions"), pooled
        chosen = whole.select(whole.source == name)
        np.testing.assert_array_equal(chosen.tokens, part.tokens)
    with pytest.raises(ValueError, match=r"2 checkpoints are named run 0/step_000000007"):
        predict_checkpoint([runs[0], runs[0]], dataset, tmp_path / "x", device=CPU)
    assert not (tmp_path / "x").exists()


def test_parts_interruptions_and_batch_sizes_give_one_store(
    dataset: CompiledDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "ROWS_PER_SHARD", 20)
    run = save_run(tmp_path / "run", dataset, 0)
    mode = {"halting": "adaptive", "every_segment": True}

    def store(name: str, **options: Any) -> Path:
        out = tmp_path / name
        predict_checkpoint(run, dataset, out, device=CPU, **{"batch_size": 8, **options}, **mode)
        return out

    whole = store("whole")
    for part in (2, 0, 1):
        parts = store("parts", part=(part, 3))
    for name in (shard.name for shard in whole.iterdir()):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()

    predicted = inference._predict_batch
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return predicted(*arguments)

    monkeypatch.setattr(inference, "_predict_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store("resumed")
    assert 0 < len(list((tmp_path / "resumed").glob("part-*"))) < len(list(whole.glob("part-*")))
    resumed = store("resumed")
    for name in (shard.name for shard in whole.iterdir()):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes()
    before = calls
    store("resumed")
    assert calls == before  # nothing is computed again

    ladders = [vote(whole, dataset, tmp_path / "votes")]
    for size in (1, 7, None):
        other = store(f"size {size}", batch_size=size)
        assert_same_rows(read(other), read(whole))
        ladders.append(vote(other, dataset, tmp_path / "votes"))
    assert all(ladder["tasks"] == ladders[0]["tasks"] for ladder in ladders)


def test_a_found_batch_size_halves_when_memory_runs_out(
    dataset: CompiledDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = stored(dataset, tmp_path / "expected")
    run_segments = inference.evaluate_segments
    sizes = []

    def small_memory(model: Any, batch: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(batch.inputs))
        if sizes[-1] > 30:
            raise torch.OutOfMemoryError("no room")
        return run_segments(model, batch, *arguments, **options)

    monkeypatch.setattr(inference, "evaluate_segments", small_memory)
    assert_same_rows(stored(dataset, tmp_path / "found", batch_size=None), expected)
    assert max(sizes) > 30
    assert sizes[-1] <= 30
    with pytest.raises(torch.OutOfMemoryError):
        stored(dataset, tmp_path / "given", batch_size=64)


def test_a_store_of_another_selection_is_not_continued(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    stored(dataset, tmp_path / "store", tasks=TASKS)
    with pytest.raises(ValueError, match="tasks must be None to resume, found"):
        stored(dataset, tmp_path / "store")
    with pytest.raises(ValueError, match="halting must be 'adaptive' to resume, found 'fixed'"):
        stored(dataset, tmp_path / "store", tasks=TASKS, halting="adaptive")


def test_evaluation_eval_and_vote_agree_to_the_last_digit(
    dataset: CompiledDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset.save(tmp_path / "data")
    run = save_run(tmp_path / "run", dataset, 0, tmp_path / "data")
    path = checkpoints.find(run)
    trained = evaluate_checkpoint(path, dataset, tmp_path / "trained", device=CPU, batch_size=9)
    out = run / "eval/step_000000007"
    assert main(["eval", str(run)]) == 0
    capsys.readouterr()
    evaluated = json.loads((out / "results.json").read_text())
    words = ["vote", str(out / "predictions"), "--data", str(tmp_path / "data")]
    assert main([*words, "--out", str(tmp_path / "voted"), "--show", TASKS[0]]) == 0
    assert f"{TASKS[0]}/0" in capsys.readouterr().out
    voted = json.loads((tmp_path / "voted/results.json").read_text())
    assert trained == evaluated == voted
    assert main([*words, "--rule", "confidence-first", "--k", "5,1,2"]) == 0
    other = json.loads((out / "confidence-first/results.json").read_text())
    assert other["voting"]["rule"] == "confidence-first"
    assert list(other["scores"]["test_pair_accuracy"]) == ["1", "2", "5"]
    assert json.loads((out / "results.json").read_text()) == evaluated  # the headline stays
    assert main(["eval", str(run), "--halting", "adaptive"]) == 2
    assert "is for the evaluation as published; give --out" in capsys.readouterr().err
    small = ["--tasks", *TASKS, "--num-aug", "0", "--out", str(tmp_path / "small")]
    assert main(["eval", str(run), *small, "--halting", "adaptive"]) == 0
    assert "partial: not comparable" in capsys.readouterr().out
    pooled = [str(run), str(path), "--data", str(tmp_path / "data")]
    assert main(["predict", *pooled, "--out", str(tmp_path / "pooled"), "--part", "1/2"]) == 2
    assert "2 checkpoints are named run/step_000000007" in capsys.readouterr().err
