"""The token loss on held-out examples, and the least that a constant guess could have there."""

import numpy as np
import torch
from numpy.typing import NDArray

from arc_data.split import Split
from arc_data.tokens import PAD, VOCAB_SIZE
from hrm_deeploop.act import evaluate
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.reasoner import Reasoner, to_batch


class Validation:
    """A fixed choice of held-out examples.

    Args:
        split: The test split.
        most: Examples, spread evenly over the split; all where it has no more.

    Attributes:
        rows: The examples, (n,) int64.
        floor: ``constant_guess_loss`` of their labels.

    Raises:
        ValueError: If no example has a known answer.
    """

    def __init__(self, split: Split, most: int) -> None:
        self._split = split
        count = min(most, split.num_examples)
        self.rows = np.arange(count, dtype=np.int64) * split.num_examples // max(count, 1)
        labels = split.materialise(self.rows)["labels"]
        if not (labels != PAD).any():
            raise ValueError(
                "diagnostics.validation_every_steps needs held-out pairs with known answers; the "
                "data set has none; set it to null"
            )
        self.floor = constant_guess_loss(labels)

    def loss(self, reasoner: Reasoner, batch_size: int, ranks: Ranks) -> float:
        """Token loss after all segments: the mean over examples of the mean over labelled cells.

        The same quantity as ``lm_loss`` in training, on fresh states.

        Args:
            reasoner: Model and table.
            batch_size: Examples per forward pass.
            ranks: The processes that share the examples; all must call it.
        """
        own = self.rows[ranks.rank :: ranks.size]
        total = torch.zeros((), dtype=torch.float64, device=reasoner.device)
        for start in range(0, len(own), batch_size):
            rows = own[start : start + batch_size]
            batch = to_batch(self._split.materialise(rows), reasoner.device)
            table_rows = reasoner.table.rows(batch.puzzle_identifiers).detach()
            total += evaluate(reasoner.model, batch, table_rows).losses.metrics["lm_loss"]
        return float(ranks.sum_(total)) / len(self.rows)


def constant_guess_loss(labels: NDArray[np.uint8]) -> float:
    """The least token loss of a guess that is one distribution over tokens, the same in all cells.

    With w_v the share of token v, averaged over rows as the loss is (each row's labelled cells
    weigh the same together, however many they are), the loss of a distribution q is
    -sum_v w_v log q_v, least at q = w: the entropy of w.

    Args:
        labels: (n, cells) tokens; PAD where nothing is asked.

    Returns:
        Nats per token.

    **Source**: the unigram floor of DeepLoop's p-sweep (arXiv 2607.13491 v2).  Differs: rows of
    unequal length weigh the same, as in HRM's loss.
    """
    counts = np.stack([(labels == token).sum(axis=1) for token in range(VOCAB_SIZE)], axis=1)
    counts[:, PAD] = 0  # (n, V)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    weights = shares.mean(axis=0)
    present = weights[weights > 0]
    return float(-(present * np.log(present / present.sum())).sum())
