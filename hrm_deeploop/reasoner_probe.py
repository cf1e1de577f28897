"""The reasoner as a subject of the probes."""

from dataclasses import replace

from arc_data.batches import EpochOrder
from arc_data.compiled import CompiledDataset
from arc_data.manifest import check_digest
from hrm_deeploop.act import initial_carry, refill
from hrm_deeploop.checkpoint import Checkpoint
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.inference import check_fits
from hrm_deeploop.probes import Subject, set_precision
from hrm_deeploop.reasoner import Reasoner, to_batch
from hrm_deeploop.visits import VisibleRegion


class ReasonerSubject(Subject):
    """Reasoners on fresh states of the first training batch; see ``probes.Subject``."""

    workload = "arc"
    loop = "L_cycles"
    dataset: CompiledDataset

    def with_loops(self, config: TrainConfig, count: int) -> TrainConfig:
        """C_L."""
        return replace(config, arch=replace(config.arch, L_cycles=count))

    def fresh(self, config: TrainConfig) -> VisibleRegion:
        """A reasoner at initialisation."""
        reasoner = Reasoner(config, self.dataset.canvas, self.dataset.num_puzzle_identifiers)
        reasoner.initialise(config.seed)
        return self._region(reasoner, config.seed)

    def saved(self, checkpoint: Checkpoint) -> VisibleRegion:
        """A saved reasoner."""
        check_digest(checkpoint.meta["dataset"], self.dataset)
        reasoner = Reasoner.from_checkpoint(checkpoint)
        check_fits(reasoner, self.dataset)
        return self._region(reasoner, checkpoint.meta["seed"])

    def _region(self, reasoner: Reasoner, seed: int) -> VisibleRegion:
        model = reasoner.to(self.device).model
        set_precision(model, self.precision)
        rows = EpochOrder(self.dataset.train, seed).batch_rows(0, self.batch_size)
        batch = to_batch(self.dataset.train.materialise(rows), self.device)
        carry = refill(model, initial_carry(model, batch), batch)
        return VisibleRegion(model, carry, reasoner.table.rows(batch.puzzle_identifiers).detach())
