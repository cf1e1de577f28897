"""The held-out loss during training: of what it is the mean, its floor, and that training ignores
it.
"""

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from test_looped_training import CPU, LM, OPTIM, lm_config, make_trainer

from hrm_deeploop.config import DiagnosticsConfig
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.looped_lm.data import TokenDataset
from hrm_deeploop.looped_lm.workload import LmWorkload

WINDOWS = 5
LOOKS = DiagnosticsConfig(validation_every_steps=2, validation_rows=WINDOWS)


class Half(Ranks):
    """One of two processes, whose sum is only this one's part."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.size = rank, 2

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


@pytest.mark.parametrize("batch_size", [2, 64])
def test_the_mean_over_the_first_windows_whatever_batches_and_processes(
    batch_size: int, toy: TokenDataset
) -> None:
    config = lm_config(diagnostics=LOOKS)
    config = dataclasses.replace(
        config, eval=dataclasses.replace(config.eval, batch_size=batch_size)
    )
    workload = LmWorkload(config, toy, CPU)
    found = workload.validation()
    context = LM.context
    ids = torch.from_numpy(toy.validation[: WINDOWS * context + 1].astype("int64"))
    windows = ids[:-1].view(WINDOWS, context)
    with torch.no_grad():
        logits = workload.model(windows)  # (windows, context, V)
    by_hand = torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), ids[1:])
    assert found["validation_loss"] == pytest.approx(float(by_hand), rel=1e-6)
    shares = [n / (WINDOWS * context) for n in Counter(ids[1:].tolist()).values()]
    assert found["validation_floor"] == pytest.approx(-sum(s * math.log(s) for s in shares))
    halves = [LmWorkload(config, toy, CPU, Half(rank)).validation() for rank in (0, 1)]
    # Each has the sum over its windows, divided by all tokens.
    assert sum(half["validation_loss"] for half in halves) == pytest.approx(
        found["validation_loss"], rel=1e-6
    )
    assert min(half["validation_loss"] for half in halves) > 1
    assert {half["validation_floor"] for half in halves} == {found["validation_floor"]}


def test_weights_without_a_say_have_the_loss_of_a_uniform_guess(toy: TokenDataset) -> None:
    workload = LmWorkload(lm_config(diagnostics=LOOKS), toy, CPU)
    with torch.no_grad():
        workload.model.embed_tokens.embedding_weight.zero_()
    assert workload.validation()["validation_loss"] == pytest.approx(math.log(256), rel=1e-6)


def test_a_text_with_fewer_windows_is_taken_whole(toy: TokenDataset) -> None:
    many = DiagnosticsConfig(validation_every_steps=2, validation_rows=10**6)
    workload = LmWorkload(lm_config(diagnostics=many), toy, CPU)
    counts = Counter(toy.validation[1:].tolist())
    shares = [n / counts.total() for n in counts.values()]
    floor = workload.validation()["validation_floor"]
    assert floor == pytest.approx(-sum(s * math.log(s) for s in shares))


def test_training_is_the_same_and_looks_are_at_multiples_and_the_end(
    toy: TokenDataset, tmp_path: Path
) -> None:
    config = lm_config(optim=dataclasses.replace(OPTIM, total_steps=5), log_every_steps=100)
    weights = {}
    for name, diagnostics in (("blind", DiagnosticsConfig()), ("looking", LOOKS)):
        trainer = make_trainer(
            dataclasses.replace(config, diagnostics=diagnostics), toy, tmp_path / name
        )
        trainer.fit()
        weights[name] = trainer.workload.tensors()
    for key, value in weights["blind"].items():
        assert torch.equal(value, weights["looking"][key]), key
    lines = (tmp_path / "looking/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["step"] for r in records] == [2, 4, 5]
    assert records[-1]["validation_loss"] == trainer.workload.validation()["validation_loss"]
    assert "validation_loss" not in (tmp_path / "blind/metrics.jsonl").read_text()
