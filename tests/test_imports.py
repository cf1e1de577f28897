"""Who may import whom, and that data, votes and sigma run where torch cannot be imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THIRD_PARTY = {
    "arc_data": {"numpy", "tqdm"},
    "eval": {"numpy", "scipy", "tqdm"},
    "hrm_deeploop": {"torch", "numpy", "einops", "safetensors", "tqdm", "yaml"},
}
OURS = {"arc_data": set(), "eval": {"arc_data"}, "hrm_deeploop": {"arc_data", "eval"}}
ONLY_IN = {
    "hydra": "hrm_deeploop/cli/",
    "omegaconf": "hrm_deeploop/cli/",
    "wandb": "hrm_deeploop/tracking.py",
    "matplotlib": "eval/plots.py",
    "jinja2": "eval/html.py",
    "markupsafe": "eval/html.py",
    "rich": ("arc_data/show.py", "eval/candidates.py", "hrm_deeploop/cli/sweep_display.py"),
    "submitit": "hrm_deeploop/sweeps.py",
    "tokenizers": "hrm_deeploop/looped_lm/tokenizer.py",
    "lm_eval": "hrm_deeploop/looped_lm/harness.py",
    "PIL": "arc_data/show.py",
}
FILES = sorted(p.relative_to(ROOT) for package in OURS for p in (ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.add(str(node.module))
    return modules


@pytest.mark.parametrize("path", FILES, ids=str)
def test_import_directions(path: Path) -> None:
    package = path.parts[0]
    allowed = THIRD_PARTY[package] | OURS[package] | {package} | set(sys.stdlib_module_names)
    for module in imported(path):
        top = module.partition(".")[0]
        if top in ONLY_IN:
            assert path.as_posix().startswith(ONLY_IN[top]), f"{path} imports {module}"
        else:
            assert top in allowed, f"{path} imports {module}"


def test_only_the_command_line_imports_the_command_line() -> None:
    for path in FILES:
        if "cli" not in path.parts:
            assert not any(m.startswith("hrm_deeploop.cli") for m in imported(path)), path


def test_votes_pages_and_sigma_run_without_torch(tmp_path: Path) -> None:
    program = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked in this test")
sys.meta_path.insert(0, NoTorch())
import numpy as np
from arc_data.build import BuildOptions, build
from arc_data.sources import mini
from eval.predictions import PredictionsWriter, make_header
from hrm_deeploop.cli.main import main

dataset = build([mini()], BuildOptions(num_aug=1, canvas=6))
dataset.save("data")
header = make_header(data_manifest_sha256=dataset.digest, canvas=6, split="mini", num_aug=1,
                     producer={}, puzzle_id="right", halting="fixed")
rows = np.arange(dataset.test.num_examples)
told, known = dataset.test.materialise(rows), dataset.test.describe(rows)
PredictionsWriter("store", header).append(
    task_id=np.array(dataset.task_names)[known["task"]], test_index=known["test_index"],
    dihedral=known["dihedral"], color_map=known["color_map"],
    segment=np.ones(len(rows), np.int32), source=np.full(len(rows), "truth"),
    tokens=told["labels"], q_halt_logit=np.zeros(len(rows), np.float32))
assert main(["data", "verify", "data"]) == 0
assert main(["vote", "store", "--data", "data", "--out", "out"]) == 0
for what in (["halting", "store"], ["variants", "store"], ["sizes", "out"]):
    assert main(["analyse", *what, "--data", "data", "--out", "out"]) == 0
assert main(["report", "out", "--predictions", "store", "--data", "data"]) == 0
assert main(["sigma", "out/results.json"]) == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "100.00" in done.stdout  # the truth voted for itself
    assert "undefined" in done.stdout  # one seed has no sigma
