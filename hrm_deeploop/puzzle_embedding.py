"""The puzzle table and its sign-SGD.

Each row is one (task, augmentation); the reasoner is told which puzzle it sees by this row alone.
The table is a buffer, not a parameter: only the rows of a batch ever have a gradient.

**Source**: HRM @42410da, ``CastedSparseEmbedding`` with ``SignSGD_Distributed`` semantics.
"""

import torch
from torch import Tensor, nn


class PuzzleEmbedding(nn.Module):
    """A table (num_puzzle_identifiers, ndim), float32, zeros at first; row 0 is the blank id."""

    weights: Tensor

    def __init__(self, num_puzzle_identifiers: int, ndim: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros(num_puzzle_identifiers, ndim))

    def rows(self, puzzle_identifiers: Tensor) -> Tensor:
        """A batch's rows as a leaf of its own, (B, ndim) float32, that collects their gradient.

        Args:
            puzzle_identifiers: (B,) integer ids.
        """
        return self.weights[puzzle_identifiers].requires_grad_(torch.is_grad_enabled())

    @torch.no_grad()
    def sign_sgd_(
        self, puzzle_identifiers: Tensor, gradients: Tensor, *, lr: float, weight_decay: float
    ) -> None:
        """row <- row (1 - lr wd) - lr sign(sum of its gradients), for the ids present only.

        Args:
            puzzle_identifiers: (B,) ids of the whole global batch; an id may repeat.
            gradients: (B, ndim) float32, one row each.
            lr: Learning rate.
            weight_decay: Decoupled, relative to lr.
        """
        # Products of a fixed size: the same sums on every process, and nobody waits to learn how
        # many ids there are.  Rows of one id all take the sum made for its first.
        same = puzzle_identifiers[:, None] == puzzle_identifiers  # (B, B)
        total = (same.to(gradients.dtype) @ gradients)[same.int().argmax(1)]  # (B, ndim)
        rows = self.weights[puzzle_identifiers]
        self.weights[puzzle_identifiers] = rows * (1 - lr * weight_decay) - lr * total.sign()
