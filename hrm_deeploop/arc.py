"""The ARC reasoner as a workload: compiled data in, loss sums out, the K ladder at the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from arc_data.batches import EpochOrder
from arc_data.compiled import CompiledDataset
from hrm_deeploop.act import (
    ActOutput,
    Batch,
    Carry,
    carry_of,
    carry_tensors,
    compile_train_segment,
    exploration_min_steps,
    initial_carry,
    refill,
    train_segment,
)
from hrm_deeploop.alignment import measure_kappa
from hrm_deeploop.attention import choose_kernel
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.reasoner import Reasoner, to_batch
from hrm_deeploop.scaling import format_table
from hrm_deeploop.streams import stream_diagnostics
from hrm_deeploop.validation import Validation
from hrm_deeploop.visits import VisibleRegion
from hrm_deeploop.workload import GlobalBatches, StepOutput, compiles, to_device

PER_ROW_METRICS = ("lm_loss", "q_halt_loss", "q_continue_loss")


class ArcWorkload:
    """Trains a reasoner on a compiled data set; see ``workload.Workload``.

    Each part of a global batch has its own carry, and no part knows how many there are.

    Args:
        config: The run.
        dataset: Its data.
        device: Where to compute.
        ranks: The processes that train together; None: this one alone.

    Raises:
        ValueError: If the run has no whole batch, it cannot be cut into equal parts, or a held-out
            loss is asked for and nothing is held out.
    """

    shown: ClassVar = {"lm_loss": "loss {:.4f}", "exact_accuracy": "exact {:.1%}"}

    def __init__(
        self,
        config: TrainConfig,
        dataset: CompiledDataset,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.device = device
        self.ranks = ranks or Ranks()
        self.reasoner = Reasoner(config, dataset.canvas, dataset.num_puzzle_identifiers)
        self.reasoner.initialise(config.seed)
        self.reasoner.to(device)
        self.module: nn.Module = self.reasoner.model
        self.order = EpochOrder(dataset.train, config.seed)
        self._batches = GlobalBatches(config, self.order, self.ranks)
        self.horizon_steps = self._batches.horizon_steps
        self.examples_per_step = self._batches.size
        self.tokens_per_step = self._batches.size * self.reasoner.model.num_tokens
        self.examples_per_epoch = self.order.examples_per_epoch
        self.num_parts = self._batches.num_parts
        diagnostics = config.diagnostics
        self._validation: Validation | None = None
        if diagnostics.validation_every_steps is not None:
            self._validation = Validation(dataset.test, diagnostics.validation_rows)
        self._segment: Callable[..., ActOutput] = train_segment
        self.segment_backend = "eager"
        self._carries: list[Carry | None] = [None] * self.num_parts
        self._rows: list[Tensor | None] = [None] * self.num_parts
        self._drawn = torch.zeros(dataset.num_puzzle_identifiers, dtype=torch.bool, device=device)

    def compile(self) -> None:
        """Compiles the step by trying it on the first batch; leaves no trace in the state."""
        self._segment = compile_train_segment()
        self.segment_backend = "inductor"
        if not compiles(lambda: self.step(1, 0).loss.backward()):
            self._segment = train_segment
            self.segment_backend = "eager, torch.compile failed"
        self.module.zero_grad()
        self._carries[0] = self._rows[0] = None
        self._drawn.fill_(False)

    def dataset_facts(self) -> dict[str, Any]:
        """Name and digest of the data set."""
        from eval.ladder import dataset_name

        return {"name": dataset_name(self.dataset), "digest": self.dataset.digest}

    def checkpoint_meta(self) -> dict[str, Any]:
        """Sizes of canvas and puzzle table, and the data set by name, digest and tasks."""
        return {
            "canvas": self.dataset.canvas,
            "num_puzzle_identifiers": self.dataset.num_puzzle_identifiers,
            "dataset": {**self.dataset_facts(), "tasks": self.dataset.manifest["tasks"]},
        }

    def parameter_counts(self) -> dict[str, int]:
        """Dense weights, puzzle table, total."""
        return self.reasoner.parameter_counts()

    def residual(self) -> dict[str, Any]:
        """Resolved scaling per level."""
        return self.reasoner.model.scales.as_dict()

    def scaling_table(self) -> str:
        """Resolved scaling of both levels, and the bound."""
        return format_table(self.reasoner.model.scales, self.config.arch)

    def backends(self) -> dict[str, str]:
        """What the step is computed with, for provenance."""
        model = self.reasoner.model
        kernel = choose_kernel(model.num_tokens, model.compute_dtype, self.device.type)
        return {
            "device": self.device.type,
            "processes": f"{self.ranks.size}"
            + (f" ({self.ranks.backend})" if self.ranks.backend else ""),
            "parts": str(self.num_parts),
            "threads": str(torch.get_num_threads()),
            "dtype": self.config.arch.forward_dtype,
            "segment": self.segment_backend,
            "attention": str(kernel),
        }

    def step(self, step: int, part: int) -> StepOutput:
        """One segment on a part's carry, refilled from its rows of batch ``step``."""
        model, table = self.reasoner.model, self.reasoner.table
        batch = self.load_batch(step, part)
        carry = refill(model, self._carries[part] or initial_carry(model, batch), batch)
        ids = carry.current.puzzle_identifiers
        rows = table.rows(ids)
        self._drawn[ids] = True
        out = self._segment(model, carry, rows, self._min_steps(step, part))
        self._rows[part], self._carries[part] = rows, out.carry
        return StepOutput(out.losses.total / self.examples_per_step, out.losses.metrics)

    def load_batch(self, step: int, part: int) -> Batch:
        """The examples that step 1, 2, ... offers to a part's halted rows."""
        rows = self._batches.rows(step, part)
        return to_batch(self.dataset.train.materialise(rows), self.device)

    def _min_steps(self, step: int, part: int) -> Tensor | None:
        arch = self.config.arch
        if arch.halt_exploration_prob == 0 or arch.halt_max_steps == 1:
            return None
        draws = exploration_min_steps(
            seed=self.config.seed,
            step=step,
            global_batch_size=self.examples_per_step,
            probability=arch.halt_exploration_prob,
            halt_max_steps=arch.halt_max_steps,
        )
        return to_device(self._batches.part_of(draws, part), self.device)

    def after_backward(self, lr_ratio: float) -> None:
        """Sign-SGD on the table rows of all carries' current examples, of all processes."""
        ids, gradients = [], []
        for carry, rows in zip(self._carries, self._rows, strict=True):
            assert carry is not None
            assert rows is not None
            assert rows.grad is not None
            ids.append(carry.current.puzzle_identifiers)
            gradients.append(rows.grad)
        self.reasoner.table.sign_sgd_(
            self.ranks.join_rows(torch.cat(ids)),
            self.ranks.join_rows(torch.cat(gradients)),
            lr=self.config.optim.puzzle_emb_lr * lr_ratio,
            weight_decay=self.config.optim.puzzle_emb_weight_decay,
        )

    def summarise(self, sums: dict[str, np.ndarray]) -> dict[str, float]:
        """Losses per row; the rest per finished row that has labels."""
        num_rows = len(sums["count"]) * self.examples_per_step
        count = float(sums["count"].sum())
        summary = {"count": count}
        for key, values in sums.items():
            if key in PER_ROW_METRICS:
                summary[key] = float(values.sum() / num_rows)
            elif key != "count" and count > 0:
                summary[key] = float(values.sum() / count)
        return summary

    def diagnostics(self) -> dict[str, float]:
        """Table rows that no batch has held yet, and the streams of this process's first part."""
        (carry, *_) = self._carries
        assert carry is not None
        with torch.no_grad():
            rows = self.reasoner.table.rows(carry.current.puzzle_identifiers)
        trained = np.unique(self.dataset.train.puzzle_identifiers).astype(np.int64)
        drawn = self._drawn_by_all()[torch.from_numpy(trained).to(self.device)]
        streams = stream_diagnostics(VisibleRegion(self.reasoner.model, carry, rows))
        return {"rows_never_drawn": int((~drawn).sum()), **streams}

    def validation(self) -> dict[str, float]:
        """The held-out loss of the weights as they are, eagerly computed, and its floor."""
        assert self._validation is not None
        loss = self._validation.loss(self.reasoner, self.config.eval.batch_size, self.ranks)
        return {"validation_loss": loss, "validation_floor": self._validation.floor}

    def kappa(self) -> dict[str, float]:
        """Both levels' kappa, gamma and alignments, and the bound; eagerly, in the run's dtype."""
        model, config = self.reasoner.model, self.config
        rows = self.order.batch_rows(0, config.diagnostics.kappa_rows)
        batch = to_batch(self.dataset.train.materialise(rows), self.device)
        carry = refill(model, initial_carry(model, batch), batch)
        table_rows = self.reasoner.table.rows(batch.puzzle_identifiers).detach()
        return measure_kappa(VisibleRegion(model, carry, table_rows), config.optim).metrics()

    def _drawn_by_all(self) -> Tensor:
        return self.ranks.sum_(self._drawn.to(torch.int32)) > 0

    def tensors(self) -> dict[str, Tensor]:
        """Weights, fixed states and table."""
        return self.reasoner.tensors()

    def state(self) -> dict[str, Any]:
        """The carry of the whole global batch, and which table rows were ever drawn."""
        state: dict[str, Any] = {"drawn": self._drawn_by_all(), "carry": None}
        carries = [carry_tensors(carry) for carry in self._carries if carry is not None]
        if carries:
            state["carry"] = {
                key: self.ranks.join_rows(torch.cat([carry[key] for carry in carries]))
                for key in carries[0]
            }
        return state

    def load(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Takes over weights, table and this process's part of the carry."""
        self.reasoner.load_tensors(tensors)
        self._drawn.copy_(state["drawn"])
        if state["carry"] is not None:
            own = {k: self.ranks.own_rows(v).to(self.device) for k, v in state["carry"].items()}
            parts = {key: rows.chunk(self.num_parts) for key, rows in own.items()}
            self._carries = [
                carry_of({key: rows[part] for key, rows in parts.items()})
                for part in range(self.num_parts)
            ]

    def evaluate(self, checkpoint: Path, out: Path, *, partial: bool) -> dict[str, Any]:
        """Predicts the test split with the saved weights and votes, into the folder ``out``."""
        # Scoring needs scipy; training alone must not.
        from eval.ladder import vote
        from hrm_deeploop.inference import predict_checkpoint

        selection = {}
        if partial:
            selection = {"num_aug": self.config.eval.num_aug, "tasks": self._some_tasks()}
        store = out / "predictions"
        predict_checkpoint(
            checkpoint,
            self.dataset,
            store,
            device=self.device,
            batch_size=self.config.eval.batch_size,
            part=(self.ranks.rank, self.ranks.size),
            **selection,
        )
        self.ranks.agree([0])  # all have written their part
        return self.ranks.main_does(lambda: vote(store, self.dataset, out))

    def scores(self, results: dict[str, Any]) -> dict[str, float]:
        """The strict score at every K, percent."""
        strict = results["scores"]["task_accuracy_strict"]
        return {f"strict@{k}": strict[k] for k in sorted(strict, key=int)}

    def rating(self, results: dict[str, Any]) -> float:
        """The strict score at K = 2."""
        return results["scores"]["task_accuracy_strict"]["2"]

    def headline(self, results: dict[str, Any]) -> str:
        """The strict score at K = 2."""
        partial = " (partial)" if results["voting"]["partial"] else ""
        return f"strict@2 {self.rating(results):.2f} %{partial}"

    def format(self, results: dict[str, Any]) -> str:
        """The K ladder."""
        from eval.scoring import format_ladder

        return format_ladder(results)

    def write_page(self, run_dir: Path) -> Path:
        """The run's page."""
        from eval.report import write_report

        return write_report(run_dir, self.dataset)

    def _some_tasks(self) -> list[str] | None:
        """eval.tasks of the tasks that have test pairs, spread evenly over their sorted names."""
        names = sorted(self.dataset.truth())
        count = self.config.eval.tasks
        if count is None or count >= len(names):
            return None
        return [names[place * len(names) // count] for place in range(count)]
