"""Published checkpoints and evaluation files, in and out, against the golden files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from golden_reasoner import ATOL, PREFIX, Golden, assert_close

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source
from arc_data.tasks import Pair, Task
from arc_data.tokens import COLOR_OFFSET, crop
from eval.scoring import SCORE_NAMES
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.act import evaluate
from hrm_deeploop.cli.main import main
from hrm_deeploop.published import (
    export_checkpoint,
    import_checkpoint,
    read_all_preds,
    read_config,
    read_tensors,
)
from hrm_deeploop.reasoner import Reasoner

GOLDEN = Path(__file__).parents[1] / "golden"
PUBLISHABLE = ["hrm_tiny_rope", "hrm_tiny_learned", "trm_tiny"]
OPTIM = ("lr", "weight_decay", "beta1", "beta2", "puzzle_emb_lr", "puzzle_emb_weight_decay")
NOT_ARCH = ("batch_size", "seq_len", "num_puzzle_identifiers", "vocab_size")


def hand_made(tasks: list[Task], canvas: int, num_aug: int) -> CompiledDataset:
    source = Source("hand", None, (("evaluation", tuple(tasks)),), frozenset({"evaluation"}))
    return build([source], BuildOptions(num_aug=num_aug, canvas=canvas))


def eleven_ids(canvas: int) -> CompiledDataset:
    """Two tasks of five variants each, and the blank id."""
    grid = np.arange(6, dtype=np.uint8).reshape(2, 3)
    pair = Pair(grid, grid + 1)
    return hand_made([Task(name, (pair,), (pair,)) for name in "ab"], canvas, num_aug=4)


def write_published(name: str, folder: Path, prefix: str = "", **changes: Any) -> Path:
    """A golden file's final state as the published trainer would have saved it."""
    golden = Golden(name, "cpu")
    meta = golden.meta
    arch = {k: v for k, v in meta["config"].items() if k not in NOT_ARCH}
    arch |= {"name": "any", "loss": {"name": "losses@ACTLossHead", "loss_type": meta["loss"]}}
    config = {"arch": {**arch, **changes}, "epochs": 7, "seed": meta["seed"], "data_path": "x"}
    config |= {"global_batch_size": 4, **{key: meta[key] for key in OPTIM}}
    folder.mkdir(parents=True)
    (folder / "all_config.yaml").write_text(yaml.dump(config))
    state = {prefix + key: value for key, value in golden.group("final/").items()}
    torch.save(state, folder / "step_5")
    return folder / "step_5"


@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
@pytest.mark.parametrize("name", PUBLISHABLE)
def test_an_imported_checkpoint_evaluates_to_the_golden_logits(
    name: str, prefix: str, tmp_path: Path
) -> None:
    golden = Golden(name, "cpu")
    dataset = eleven_ids(canvas=round(golden.meta["config"]["seq_len"] ** 0.5))
    dataset.save(tmp_path / "data")
    file = write_published(name, tmp_path / "published", prefix)
    path = import_checkpoint(file, dataset, tmp_path / "data", tmp_path / "run")
    reasoner = Reasoner.from_checkpoint(checkpoints.load(tmp_path / "run"))
    batch = golden.batch(golden.meta["steps"])
    with torch.no_grad():
        rows = reasoner.table.rows(batch.puzzle_identifiers)
    out = evaluate(reasoner.model, batch, rows)
    expected = golden.group("eval/")
    assert_close(out.logits, expected["logits"], ATOL, "logits")
    assert_close(out.q_halt_logits, expected["q_halt_logits"], ATOL, "q_halt_logits")

    exported = export_checkpoint(path, tmp_path / "exported")
    assert exported.name == "step_5"
    state = torch.load(exported, weights_only=True)
    assert state.keys() == {PREFIX + key for key in reasoner.tensors()}
    for key, value in golden.group("final/").items():
        assert torch.equal(state[key], value), key
    again = read_config(exported.parent / "all_config.yaml")
    assert (again.arch, again.optim) == (reasoner.config.arch, reasoner.config.optim)

    assert main(["eval", str(tmp_path / "run")]) == 0
    results = json.loads((tmp_path / "run/eval/step_000000005/results.json").read_text())
    assert results["num_predictions"] == 10
    assert results["checkpoint"]["rule"] == "step"


def test_the_number_of_puzzle_ids_is_compared_first(tmp_path: Path) -> None:
    file = write_published("hrm_tiny_rope", tmp_path / "p", hidden_size=32)  # wrong too
    dataset = hand_made([eleven_ids_task("a")], 5, num_aug=3)
    with pytest.raises(ValueError, match=r"step_5 has 11 puzzle ids, the data set 5; use the data"):
        import_checkpoint(file, dataset, tmp_path, tmp_path / "run")
    with pytest.raises(ValueError, match=r"weight H_init has shape \(16,\) in the checkpoint"):
        import_checkpoint(file, eleven_ids(5), tmp_path, tmp_path / "run")
    with pytest.raises(ValueError, match=r"weight H_level.layers.1\S* is missing from the check"):
        more = write_published("hrm_tiny_rope", tmp_path / "q", H_layers=2)
        import_checkpoint(more, eleven_ids(5), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def eleven_ids_task(name: str) -> Task:
    grid = np.arange(6, dtype=np.uint8).reshape(2, 3)
    return Task(name, (Pair(grid, grid + 1),), (Pair(grid, grid + 1),))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlp_t": True}, "arch.mlp_t must be false"),
        ({"n_layers": 4}, "unknown setting arch.n_layers"),
        ({"hidden_size": 15}, "hidden_size must be a multiple"),
    ],
)
def test_settings_are_read_strictly(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write_published("hrm_tiny_rope", tmp_path / "p", **changes)
    with pytest.raises(ValueError, match=rf"all_config.yaml: .*{message}"):
        import_checkpoint(file, eleven_ids(5), tmp_path, tmp_path / "run")


def test_settings_are_never_executed(tmp_path: Path) -> None:
    file = tmp_path / "all_config.yaml"
    file.write_text("arch: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ValueError, match=r"all_config.yaml: expected YAML, found could not"):
        read_config(file)
    with pytest.raises(FileNotFoundError, match="expected beside the checkpoint"):
        read_config(tmp_path / "absent.yaml")


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    file = write_published("hrm_tiny_rope", tmp_path / "p")
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"step_5: expected a whole torch.save file") as error:
        read_tensors(file)
    assert "\n" not in str(error.value)
    torch.save({"encoder.weight": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match=r"start with model.inner., found 'encoder.weight'"):
        read_tensors(file)
    torch.save([1], file)
    with pytest.raises(ValueError, match="expected a dict of tensors, found list"):
        read_tensors(file)
    with pytest.raises(ValueError, match="a published checkpoint is named step_N"):
        import_checkpoint(tmp_path / "model.pt", eleven_ids(5), tmp_path, tmp_path / "run")


def test_what_the_published_code_cannot_compute_is_not_exported(tmp_path: Path) -> None:
    file = write_published("hrm_tiny_rope", tmp_path / "p")
    path = import_checkpoint(file, eleven_ids(5), tmp_path, tmp_path / "run")
    meta = json.loads((path / "meta.json").read_text())
    meta["config"]["residual"]["preset"] = "deeploop"
    (path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=r"residual.H.alpha is \S+, and the published code"):
        export_checkpoint(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def one_grid(tokens: np.ndarray) -> np.ndarray:
    rows, cols = crop(tokens[None], 30)
    return tokens.reshape(30, 30)[: rows[0], : cols[0]] - COLOR_OFFSET


@pytest.fixture(scope="module")
def public() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "votes_public.npz", allow_pickle=False) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def public_dataset(public: dict[str, np.ndarray]) -> CompiledDataset:
    tests: dict[str, list[Pair]] = {}
    for row, name in enumerate(public["puzzle_name"].tolist()):
        if "_t" not in name:
            pair = Pair(one_grid(public["inputs"][row]), one_grid(public["labels"][row]))
            tests.setdefault(name, []).append(pair)
    demonstration = eleven_ids_task("x").train
    tasks = [Task(name, demonstration, tuple(pairs)) for name, pairs in tests.items()]
    return hand_made(tasks, 30, num_aug=0)


def write_all_preds(public: dict[str, np.ndarray], folder: Path, *, trm: bool) -> list[Path]:
    """The golden votes as two ranks would have saved them, padded to equal length."""
    names = sorted(set(public["puzzle_name"].tolist()))
    ids = np.array([names.index(name) + 1 for name in public["puzzle_name"].tolist()])
    if trm:
        names = ["|||t".join(n.split("_t")).replace("_", "|||") for n in names]
    (folder / "identifiers.json").write_text(json.dumps(["<blank>", *names]))
    paths = []
    for rank in (0, 1):
        rows = np.arange(rank, len(ids), 2)
        tokens = torch.from_numpy(np.minimum(public["preds"][rows], 11).astype(np.int64))
        logits = torch.nn.functional.one_hot(tokens, 12).to(torch.bfloat16)
        saved = {
            "inputs": torch.from_numpy(public["inputs"][rows].astype(np.int32)),
            "labels": torch.from_numpy(public["labels"][rows].astype(np.int32)),
            "puzzle_identifiers": torch.from_numpy(ids[rows].astype(np.int32)),
            "logits": logits,
            "q_halt_logits": torch.from_numpy(public["q_halt_logits"][rows]),
            "q_continue_logits": torch.from_numpy(public["q_halt_logits"][rows]),
        }
        pad = {k: torch.zeros(1 + rank, *v.shape[1:], dtype=v.dtype) for k, v in saved.items()}
        saved = {key: torch.cat([value, pad[key]]) for key, value in saved.items()}
        paths.append(folder / f"step_9_all_preds.{rank}")
        torch.save(saved, paths[-1])
    return paths


@pytest.mark.parametrize("trm", [False, True])
def test_all_preds_files_vote_to_the_golden_ladder(
    public: dict[str, np.ndarray],
    public_dataset: CompiledDataset,
    trm: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert int(public["preds"].max()) <= 11  # every token has a logit
    paths = write_all_preds(public, tmp_path, trm=trm)
    public_dataset.save(tmp_path / "data")
    words = ["vote", *map(str, paths[::-1]), "--data", str(tmp_path / "data")]
    words += ["--identifiers", str(tmp_path / "identifiers.json"), "--out", str(tmp_path / "out")]
    assert main(words) == 0, capsys.readouterr().err
    results = json.loads((tmp_path / "out/results.json").read_text())
    golden = json.loads((GOLDEN / "votes_public.json").read_text())
    assert results["num_predictions"] == golden["num_predictions"]
    assert results["num_test_pairs"] == golden["num_test_pairs"]
    for name in SCORE_NAMES:
        found = [results["scores"][name][str(k)] for k in golden["top_k"]]
        assert found == pytest.approx(golden[f"{name}_percent"], abs=1e-6, rel=0)


def test_all_preds_errors(
    public: dict[str, np.ndarray],
    public_dataset: CompiledDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hrm_deeploop.published.CHUNK_ROWS", 50)
    paths = write_all_preds(public, tmp_path, trm=False)
    with pytest.raises(ValueError, match=r"all_preds.0: puzzle identifiers must be in 0..37"):
        read_all_preds(paths, public_dataset)
    names = tmp_path / "identifiers.json"
    with pytest.raises(ValueError, match=r"all_preds.0: row 0: variant name 'd931c21c'"):
        read_all_preds(paths, eleven_ids(30), names)
    with pytest.raises(ValueError, match=r"all_preds.0: row 0: .* once, found it again"):
        read_all_preds([paths[0], paths[0]], public_dataset, names)
    saved = torch.load(paths[1], weights_only=True)
    saved["inputs"][120, :2] = torch.tensor([11, 2])
    torch.save(saved, paths[1])
    with pytest.raises(ValueError, match=r"all_preds.1: row 120: the undone input of '"):
        read_all_preds(paths, public_dataset, names)
    torch.save({"inputs": torch.zeros(1, 900)}, paths[0])
    with pytest.raises(ValueError, match=r"all_preds.0: expected tensors inputs, .*found none"):
        read_all_preds(paths, public_dataset, names)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_all_preds([tmp_path / "step_1_all_preds.0"], public_dataset, names)
