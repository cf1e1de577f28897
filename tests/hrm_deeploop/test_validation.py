"""The held-out loss: its floor by hand, what it is the loss of, and that training ignores it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import make_trainer, small_config, small_dataset

from arc_data.tokens import PAD, VOCAB_SIZE
from eval.run_curves import read_metrics
from hrm_deeploop.config import DiagnosticsConfig
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.losses import IGNORE_LABEL, TOKEN_LOSSES
from hrm_deeploop.reasoner import Reasoner
from hrm_deeploop.validation import Validation, constant_guess_loss

DATA = small_dataset()


def test_best_constant_guess_by_hand() -> None:
    # Rows weigh the same: token 2 has (2/2 + 1/4) / 2 = 5/8, token 3 has (0 + 3/4) / 2 = 3/8.
    labels = np.array([[2, PAD, 2, PAD], [3, 2, 3, 3]], dtype=np.uint8)
    by_hand = 5 / 8 * math.log(8 / 5) + 3 / 8 * math.log(8 / 3)
    assert constant_guess_loss(labels) == pytest.approx(by_hand, abs=1e-12)
    assert constant_guess_loss(np.full((3, 2), 7, dtype=np.uint8)) == 0
    every = np.arange(1, 12, dtype=np.uint8)[None]
    assert constant_guess_loss(every) == pytest.approx(math.log(11), abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_constant_logits_have_a_smaller_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, VOCAB_SIZE, (3, 6)).astype(np.uint8)
    labels[:, 0] = 2  # every row has a labelled cell
    targets = torch.from_numpy(labels.astype(np.int64)).masked_fill(
        torch.from_numpy(labels == PAD), IGNORE_LABEL
    )
    counted = (targets != IGNORE_LABEL).sum(-1, keepdim=True)
    logits = torch.from_numpy(rng.normal(0, 3, VOCAB_SIZE)).expand(3, 6, -1)
    for token_loss in TOKEN_LOSSES.values():
        loss = float((token_loss(logits, targets) / counted).sum(-1).mean())
        assert constant_guess_loss(labels) <= loss + 1e-6


def test_the_loss_is_the_mean_over_examples_whatever_the_batches_and_processes() -> None:
    config = small_config()
    reasoner = Reasoner(config, DATA.canvas, DATA.num_puzzle_identifiers)
    reasoner.initialise(0)
    chosen = Validation(DATA.test, 10)
    total = DATA.test.num_examples
    assert chosen.rows.tolist() == [i * total // 10 for i in range(10)]
    whole = chosen.loss(reasoner, 512, Ranks())
    assert chosen.loss(reasoner, 3, Ranks()) == pytest.approx(whole, rel=1e-6)
    alone = []
    for row in chosen.rows:
        one = Validation(DATA.test, total)
        one.rows = np.array([row])
        alone.append(one.loss(reasoner, 1, Ranks()))
    assert whole == pytest.approx(np.mean(alone), rel=1e-6)

    class Half(Ranks):
        """Two processes whose sum is only this one's part."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank, self.size = rank, 2

        def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor

    halves = [chosen.loss(reasoner, 512, Half(rank)) for rank in (0, 1)]
    assert sum(halves) == pytest.approx(whole, rel=1e-6)


def test_training_is_the_same_and_looks_are_at_multiples_and_the_end(tmp_path: Path) -> None:
    config = small_config(max_steps=5, log_every_steps=100)
    looking = replace(config, diagnostics=DiagnosticsConfig(validation_every_steps=2))
    weights = []
    for name, own in (("blind", config), ("looking", looking)):
        trainer = make_trainer(own, DATA, tmp_path / name)
        trainer.fit()
        weights.append(trainer.workload.tensors())
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key]), key
    metrics = read_metrics(tmp_path / "looking" / "metrics.jsonl")
    steps, losses = metrics["validation_loss"]
    assert steps == [2, 4, 5]
    trained = trainer.workload.reasoner
    assert losses[-1] == Validation(DATA.test, 512).loss(trained, 512, Ranks())
    assert metrics["validation_floor"][1] == [Validation(DATA.test, 512).floor] * 3
    assert "validation_loss" not in read_metrics(tmp_path / "blind" / "metrics.jsonl")


def test_a_loss_that_is_not_finite_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(diagnostics=DiagnosticsConfig(validation_every_steps=1))
    monkeypatch.setattr(Validation, "loss", lambda *_: math.nan)
    with pytest.raises(FloatingPointError, match="validation_loss is nan after step 1"):
        make_trainer(config, DATA, tmp_path / "run").fit()


def test_without_known_answers_there_is_nothing_to_look_at() -> None:
    class Unknown:
        num_examples = 2

        def materialise(self, rows: np.ndarray) -> dict[str, np.ndarray]:
            return {"labels": np.full((len(rows), 4), PAD, dtype=np.uint8)}

    with pytest.raises(ValueError, match="needs held-out pairs with known answers"):
        Validation(Unknown(), 5)  # type: ignore[arg-type]
