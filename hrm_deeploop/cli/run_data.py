"""The data that runs of a configuration are trained on, checked."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arc_data import manifest
from arc_data.batches import EpochOrder
from hrm_deeploop.cli.data import build_options
from hrm_deeploop.cli.train import find_data
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.looped_lm import data as tokens
from hrm_deeploop.scaling import resolve

if TYPE_CHECKING:
    from arc_data.batches import EpochStream
    from arc_data.compiled import CompiledDataset


class RunData:
    """Finds the data of runs; each folder's hashes are recomputed once."""

    def __init__(self) -> None:
        self._verify_arc = functools.cache(manifest.verify)
        self._verify_tokens = functools.cache(tokens.verify)

    def arc(self, config: TrainConfig, overrides: Sequence[str]) -> "CompiledDataset":
        """The tasks of a reasoner; its scaling is checked too.

        Args:
            config: The run.
            overrides: What it was composed from, for messages.

        Raises:
            FileNotFoundError: If they are not there; says how to build them.
            ValueError: If a file is damaged, or they are built with other options.
        """
        resolve(config.residual, config.arch)
        dataset = self._verify_arc(find_data(config, overrides))
        manifest.check_built_as(dataset, config.data.name, build_options(config.data))
        return dataset

    def lm(self, config: TrainConfig, overrides: Sequence[str]) -> tokens.TokenDataset:
        """The text of a language model; arguments and errors as for ``arc``."""
        return self._verify_tokens(find_data(config, overrides), config.lm.dataset)

    def num_steps(self, config: TrainConfig, overrides: Sequence[str]) -> int:
        """Training steps of a run, its data checked; arguments and errors as for ``arc``."""
        order: EpochStream
        if config.workload == "arc":
            order = EpochOrder(self.arc(config, overrides).train, config.seed)
        else:
            text = self.lm(config, overrides).train
            order = tokens.WindowOrder(len(text), config.lm.context, config.seed)
        horizon = config.optim.total_steps or order.total_steps(
            config.epochs, config.optim.global_batch_size
        )
        return horizon if config.max_steps is None else min(horizon, config.max_steps)
