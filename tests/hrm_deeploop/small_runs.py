"""Small runs that the tests train, stop, kill and go on with."""

import dataclasses
import os
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import torch

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import mini
from hrm_deeploop.arc import ArcWorkload
from hrm_deeploop.cli.main import main
from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig
from hrm_deeploop.run_dir import RunDir, describe_arm
from hrm_deeploop.training import Trainer

CPU = torch.device("cpu")


def small_dataset() -> CompiledDataset:
    """mini with one variant a task."""
    return build([mini()], BuildOptions(num_aug=1, canvas=6))


def small_config(**departures: object) -> TrainConfig:
    """A reasoner that trains hundreds of steps a second."""
    arch = ArchConfig(
        hidden_size=16,
        num_heads=2,
        expansion=1.0,
        H_layers=1,
        L_layers=1,
        halt_max_steps=2,
        halt_exploration_prob=0.5,
        forward_dtype="float32",
    )
    optim = OptimConfig(global_batch_size=8, lr=1e-3, lr_warmup_steps=3)
    values = {"arch": arch, "optim": optim, "max_steps": 4, "log_every_steps": 2}
    return TrainConfig(**{**values, **departures})


def make_trainer(
    config: TrainConfig, dataset: CompiledDataset, path: Path, *, exists: bool = False
) -> Trainer:
    """A trainer in a new run directory, or in one that is there."""
    config = dataclasses.replace(config, run_dir=str(path))
    meta = {
        "run": path.name,
        "arm": describe_arm(config, "arm", {}),
        "canvas": dataset.canvas,
        "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
        "dataset": {"digest": dataset.digest, "tasks": dataset.manifest["tasks"]},
    }
    run = RunDir(path) if exists else RunDir.create(config, "arm")
    return Trainer(ArcWorkload(config, dataset, CPU), config, run, meta)


SMALL = [
    "experiment=mini_deeploop",
    "data.num_aug=1",
    "arch.hidden_size=16",
    "arch.num_heads=2",
    "arch.expansion=1",
    "arch.halt_max_steps=2",
    "optim.global_batch_size=8",
    "optim.ema=0.9",
    "hardware.compile=false",
    "hardware.threads=1",
    "log_every_steps=3",
]
DEADLINE_S = 60


def _child(folder: str, words: list[str], environment: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os._exit(main(["train", *words]))


class Runs:
    """Starts ``train`` in a folder."""

    def __init__(self, context: ForkServerContext, folder: Path) -> None:
        self.context = context
        self.folder = folder

    def start(self, *words: str, **environment: str) -> ForkServerProcess:
        arguments = (str(self.folder), list(words), environment)
        process = self.context.Process(target=_child, args=arguments)
        process.start()
        return process

    def wait_for(self, pattern: str, process: ForkServerProcess) -> None:
        """Waits until a path below the folder matches, and is not an empty file."""
        deadline = time.monotonic() + DEADLINE_S
        while not any(path.stat().st_size for path in self.folder.glob(pattern)):
            assert process.is_alive(), self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def log(self) -> str:
        return (self.folder / "log").read_text()
