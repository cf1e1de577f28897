"""The model and its puzzle table as one thing: built, initialised, saved and loaded together."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from arc_data.tokens import PAD, VOCAB_SIZE
from hrm_deeploop.act import Batch
from hrm_deeploop.checkpoint import Checkpoint, copy_weights
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.ema import split_averages
from hrm_deeploop.losses import IGNORE_LABEL
from hrm_deeploop.model import HRM
from hrm_deeploop.puzzle_embedding import PuzzleEmbedding
from hrm_deeploop.scaling import resolve
from hrm_deeploop.settings import from_dict
from hrm_deeploop.workload import to_device

TABLE_PREFIX = "puzzle_emb."


class Reasoner:
    """A model and its puzzle table for one canvas and one set of puzzle ids.

    Args:
        config: Architecture and residual scaling.
        canvas: Side of the token canvas, cells.
        num_puzzle_identifiers: Rows of the table, the blank id included.

    The model's weights are undefined until ``initialise`` or ``load_tensors``.
    """

    def __init__(self, config: TrainConfig, canvas: int, num_puzzle_identifiers: int) -> None:
        arch = config.arch
        scales = resolve(config.residual, arch)
        self.config = config
        self.canvas = canvas
        self.model = HRM(arch, scales, vocab_size=VOCAB_SIZE, seq_len=canvas * canvas)
        self.table = PuzzleEmbedding(num_puzzle_identifiers, arch.puzzle_row_size)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "Reasoner":
        """The reasoner of a checkpoint, with its EMA weights where it has them."""
        meta = checkpoint.meta
        config = from_dict(TrainConfig, meta["config"])
        reasoner = cls(config, meta["canvas"], meta["num_puzzle_identifiers"])
        own, averages = split_averages(checkpoint.tensors)
        reasoner.load_tensors({**own, **averages})
        return reasoner

    def initialise(self, seed: int) -> None:
        """Draws initial weights from the run seed; the table is zero."""
        self.model.init_weights(torch.Generator().manual_seed(seed))

    def to(self, device: torch.device) -> "Reasoner":
        """Moves both parts; returns itself."""
        self.model.to(device)
        self.table.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the parts are."""
        return self.table.weights.device

    def tensors(self) -> dict[str, Tensor]:
        """Weights, fixed states and table under the published checkpoints' names."""
        table = {TABLE_PREFIX + key: value for key, value in self.table.state_dict().items()}
        return {**self.model.state_dict(), **table}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Takes over what ``tensors`` returned.

        Raises:
            ValueError: If names or shapes differ; the message names the first.
        """
        copy_weights(tensors, self.tensors())

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of weights: ``core`` (dense), ``puzzle_table`` and ``total``."""
        core = sum(p.numel() for p in self.model.parameters())
        table = self.table.weights.numel()
        return {"core": core, "puzzle_table": table, "total": core + table}


def to_batch(arrays: dict[str, Any], device: torch.device) -> Batch:
    """Examples from ``Split.materialise`` as the model reads them.

    Args:
        arrays: ``inputs`` and ``labels`` uint8 (B, cells), ``puzzle_identifiers`` (B,).
        device: Where the tensors go.
    """
    labels = to_device(arrays["labels"].astype(np.int64), device)
    return Batch(
        inputs=to_device(arrays["inputs"].astype(np.int64), device),
        labels=labels.masked_fill(labels == PAD, IGNORE_LABEL),
        puzzle_identifiers=to_device(arrays["puzzle_identifiers"].astype(np.int64), device),
    )
