"""The looped language model as a workload: windows of tokens in, loss sums out."""

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hrm_deeploop.alignment import measure_kappa
from hrm_deeploop.attention import choose_kernel
from hrm_deeploop.checkpoint import copy_weights
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.looped_lm.data import TokenDataset, WindowOrder, windows
from hrm_deeploop.looped_lm.evaluation import (
    document_losses,
    evaluate_checkpoint,
    format_results,
    headline,
    unigram_entropy,
)
from hrm_deeploop.looped_lm.model import LoopedGPT
from hrm_deeploop.looped_lm.scales import format_scale
from hrm_deeploop.looped_lm.visits import LoopRegion
from hrm_deeploop.workload import GlobalBatches, StepOutput, compiles, to_device


class LmWorkload:
    """Trains a looped GPT on a token folder; see ``workload.Workload``.

    Args:
        config: The run.
        dataset: Its text.
        device: Where to compute.
        ranks: The processes that train together; None: this one alone.

    Raises:
        ValueError: If the text is too short, or a batch cannot be cut into equal parts.
    """

    shown: ClassVar = {"lm_loss": "loss {:.4f}"}

    def __init__(
        self,
        config: TrainConfig,
        dataset: TokenDataset,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.device = device
        self.ranks = ranks or Ranks()
        self.model = LoopedGPT(config.lm, dataset.vocab_size)
        self.model.init_weights(torch.Generator().manual_seed(config.seed))
        self.module: nn.Module = self.model.to(device)
        self._order = order = WindowOrder(len(dataset.train), config.lm.context, config.seed)
        self._batches = GlobalBatches(config, order, self.ranks)
        self.horizon_steps = self._batches.horizon_steps
        self.examples_per_step = self._batches.size
        self.tokens_per_step = self._batches.size * config.lm.context
        self.examples_per_epoch = order.examples_per_epoch
        self.num_parts = self._batches.num_parts
        num_windows = config.diagnostics.validation_rows
        # One token more than the windows have: the last prediction's.
        self._validation_ids = dataset.validation[: num_windows * config.lm.context + 1]
        self._floor = unigram_entropy(self._validation_ids[1:], dataset.vocab_size)
        self.block_backend = "eager"

    def compile(self) -> None:
        """Compiles the block by trying it on the first batch; all visits share the one graph."""
        self.model.compile_blocks()
        self.block_backend = "inductor"
        with warnings.catch_warnings():
            # Tracing looks at .grad of the stream and the cast weights, which have none.
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            succeeded = compiles(lambda: self.step(1, 0).loss.backward())
        if not succeeded:
            self.model.compile_blocks(False)
            self.block_backend = "eager, torch.compile failed"
        self.module.zero_grad()

    def dataset_facts(self) -> dict[str, Any]:
        """Name and digest of the text."""
        return {"name": self.dataset.name, "digest": self.dataset.digest}

    def checkpoint_meta(self) -> dict[str, Any]:
        """Size of the vocabulary, and the text by name and digest."""
        return {"vocab_size": self.dataset.vocab_size, "dataset": self.dataset_facts()}

    def parameter_counts(self) -> dict[str, int]:
        """Weights of the blocks, of the one table of words, total."""
        total = sum(p.numel() for p in self.model.parameters())
        words = self.model.embed_tokens.embedding_weight.numel()
        return {"blocks": total - words, "embedding": words, "total": total}

    def residual(self) -> dict[str, Any]:
        """Resolved scaling."""
        return self.model.scale.as_dict()

    def scaling_table(self) -> str:
        """Resolved scaling."""
        return format_scale(self.model.scale)

    def backends(self) -> dict[str, str]:
        """What the step is computed with, for provenance."""
        model = self.model
        context, device = model.config.context, self.device.type
        kernel = choose_kernel(context, model.compute_dtype, device, is_causal=True)
        return {
            "device": self.device.type,
            "processes": f"{self.ranks.size}"
            + (f" ({self.ranks.backend})" if self.ranks.backend else ""),
            "parts": str(self.num_parts),
            "threads": str(torch.get_num_threads()),
            "dtype": model.config.forward_dtype,
            "block": self.block_backend,
            "attention": str(kernel),
        }

    def step(self, step: int, part: int) -> StepOutput:
        """Mean cross-entropy of a part's windows of batch ``step``."""
        context = self.config.lm.context
        rows = self._batches.rows(step, part)
        ids = to_device(windows(self.dataset.train, rows, context + 1), self.device)
        loss = self.model.token_losses(ids[:, :-1], ids[:, 1:]).sum() / context
        return StepOutput(loss / self.examples_per_step, {"lm_loss": loss.detach()})

    def after_backward(self, lr_ratio: float) -> None:
        """Everything is dense."""

    def summarise(self, sums: dict[str, np.ndarray]) -> dict[str, float]:
        """Nats per token."""
        values = sums["lm_loss"]
        return {"lm_loss": float(values.sum() / (len(values) * self.examples_per_step))}

    def diagnostics(self) -> dict[str, float]:
        """Nothing beside what the trainer looks at."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Weights."""
        return self.model.state_dict()

    def state(self) -> dict[str, Any]:
        """Nothing: batches follow from seed and step."""
        return {}

    def load(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Takes over weights."""
        copy_weights(tensors, self.tensors())

    def evaluate(self, checkpoint: Path, out: Path, *, partial: bool) -> dict[str, Any]:
        """Validation loss with the saved weights; the processes share the windows."""
        return evaluate_checkpoint(
            checkpoint,
            self.dataset,
            out,
            device=self.device,
            batch_size=self.config.eval.batch_size,
            num_documents=self.config.eval.documents if partial else None,
            ranks=self.ranks,
        )

    def scores(self, results: dict[str, Any]) -> dict[str, float]:
        """The scores that are numbers."""
        return {key: value for key, value in results["scores"].items() if value is not None}

    def validation(self) -> dict[str, float]:
        """Nats per token of the first validation windows, and the floor of just these tokens."""
        ids = self._validation_ids
        nats, tokens = document_losses(
            self.model,
            ids,
            np.array([0, len(ids)]),
            batch_size=self.config.eval.batch_size,
            ranks=self.ranks,
        )
        return {"validation_loss": float(nats[0] / tokens[0]), "validation_floor": self._floor}

    def kappa(self) -> dict[str, float]:
        """The blocks' kappa, gamma and alignments, and the bound of arms with alpha; eagerly."""
        rows = self._order.batch_rows(0, self.config.diagnostics.kappa_rows)
        ids = windows(self.dataset.train, rows, self.config.lm.context + 1)
        region = LoopRegion(self.model, to_device(ids, self.device))
        return measure_kappa(region, self.config.optim).metrics()

    def rating(self, results: dict[str, Any]) -> float:
        """Minus the validation loss."""
        return -results["scores"]["validation_loss"]

    def headline(self, results: dict[str, Any]) -> str:
        """Validation loss."""
        return headline(results)

    def write_page(self, run_dir: Path) -> Path:
        """The run's page: losses and curves."""
        # Here, since drawing needs what training alone must not.
        from eval.report import write_report

        return write_report(run_dir, None)

    def format(self, results: dict[str, Any]) -> str:
        """Validation loss, unigram floor, bits per byte."""
        return format_results(results)
