"""The looped language model as a subject of the probes."""

from dataclasses import replace

import torch

from arc_data.manifest import check_digest
from hrm_deeploop.checkpoint import Checkpoint
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.looped_lm.data import TokenDataset, WindowOrder, windows
from hrm_deeploop.looped_lm.model import LoopedGPT
from hrm_deeploop.looped_lm.visits import LoopRegion
from hrm_deeploop.probes import Subject, set_precision
from hrm_deeploop.workload import to_device


class LmSubject(Subject):
    """Language models on the first training windows; see ``probes.Subject``."""

    workload = "lm"
    loop = "rounds"
    dataset: TokenDataset

    def with_loops(self, config: TrainConfig, count: int) -> TrainConfig:
        """R."""
        return replace(config, lm=replace(config.lm, rounds=count))

    def fresh(self, config: TrainConfig) -> LoopRegion:
        """A model at initialisation."""
        model = LoopedGPT(config.lm, self.dataset.vocab_size)
        model.init_weights(torch.Generator().manual_seed(config.seed))
        return self._region(model, config.seed)

    def saved(self, checkpoint: Checkpoint) -> LoopRegion:
        """A saved model."""
        check_digest(checkpoint.meta["dataset"]["digest"], self.dataset)
        return self._region(LoopedGPT.from_checkpoint(checkpoint), checkpoint.meta["seed"])

    def _region(self, model: LoopedGPT, seed: int) -> LoopRegion:
        set_precision(model.to(self.device), self.precision)
        ids, context = self.dataset.train, model.config.context
        rows = WindowOrder(len(ids), context, seed).batch_rows(0, self.batch_size)
        return LoopRegion(model, to_device(windows(ids, rows, context + 1), self.device))
