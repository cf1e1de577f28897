"""Validation loss over documents, by hand and by slow sums."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hrm_deeploop.distributed import Ranks
from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.looped_lm.data import TokenDataset
from hrm_deeploop.looped_lm.evaluation import document_losses, summary, unigram_entropy
from hrm_deeploop.looped_lm.model import LoopedGPT

TINY = LmConfig(num_blocks=1, hidden_size=16, num_heads=2, context=10, forward_dtype="float32")


def test_unigram_floor_by_hand() -> None:
    # "aabc": a half of the time, b and c a quarter each: 1/2 ln 2 + 1/2 ln 4.
    ids = np.frombuffer(b"aabc", np.uint8)
    assert unigram_entropy(ids, 256) == pytest.approx(1.5 * math.log(2))
    assert unigram_entropy(np.zeros(5, np.uint16), 256) == 0


def test_every_token_but_the_first_is_predicted_once_in_its_document(toy: TokenDataset) -> None:
    model = LoopedGPT(TINY, 256)
    model.init_weights(torch.Generator().manual_seed(0))
    ids, starts = toy.validation, toy.documents
    found, tokens = document_losses(model, ids, starts, batch_size=7, ranks=Ranks())
    expected = np.zeros(len(starts) - 1)
    counts = np.zeros(len(starts) - 1, np.int64)
    for first in range(0, len(ids) - 1, 10):
        window = torch.from_numpy(ids[first : first + 11].astype(np.int64))
        logits = model(window[:-1].unsqueeze(0))[0].log_softmax(-1)
        for place, target in enumerate(window[1:].tolist()):
            document = max(d for d in range(len(counts)) if starts[d] <= first + place + 1)
            expected[document] -= logits[place, target].item()
            counts[document] += 1
    assert np.array_equal(tokens, counts)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_portions_and_processes_do_not_matter(toy: TokenDataset) -> None:
    model = LoopedGPT(replace(TINY, arm="deeploop", rounds=3), 256)
    model.init_weights(torch.Generator().manual_seed(0))

    def losses(batch_size: int, ranks: Ranks) -> np.ndarray:
        return document_losses(
            model, toy.validation, toy.documents, batch_size=batch_size, ranks=ranks
        )[0]

    class Third(Ranks):
        """One of three processes; sums stay its own."""

        size = 3

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor

    whole = losses(64, Ranks())
    np.testing.assert_allclose(losses(3, Ranks()), whole, rtol=1e-5)
    np.testing.assert_allclose(sum(losses(3, Third(rank)) for rank in range(3)), whole, rtol=1e-5)


def test_standard_error_over_documents() -> None:
    nats, tokens = np.array([2.0, 6.0, 1.0]), np.array([1, 2, 1])
    scores = summary(nats, tokens, 3.0, is_bytes=True)
    assert scores["validation_loss"] == 9 / 4
    # Residuals nats - loss * tokens: -1/4, 3/2, -5/4; 3/2 of their squares' sum, over 4 tokens.
    assert scores["validation_loss_se"] == pytest.approx(
        math.sqrt(1.5 * (0.25**2 + 1.5**2 + 1.25**2)) / 4
    )
    assert scores["bits_per_byte"] == pytest.approx(9 / 4 / math.log(2))
    alone = summary(nats[:1], tokens[:1], 3.0, is_bytes=False)
    assert alone["validation_loss_se"] is None
    assert alone["bits_per_byte"] is None


def test_standard_error_is_right_on_simulated_documents() -> None:
    rng = np.random.default_rng(0)
    losses, errors = [], []
    for _ in range(2000):
        tokens = rng.integers(1, 50, 40)
        nats = tokens * rng.normal(2, 0.3, 40)
        scores = summary(nats, tokens, 0.0, is_bytes=False)
        losses.append(scores["validation_loss"])
        errors.append(scores["validation_loss_se"])
    assert np.mean(errors) == pytest.approx(np.std(losses), rel=0.05)
