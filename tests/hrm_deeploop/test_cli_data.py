"""The ``data`` commands: own sources through configuration, and every subcommand."""

import json
from pathlib import Path

import numpy as np
import pytest

from arc_data.compiled import CompiledDataset
from eval.predictions import PredictionsWriter, make_header
from hrm_deeploop.cli.compose import compose
from hrm_deeploop.cli.main import main
from hrm_deeploop.config import DataConfig
from hrm_deeploop.settings import digest, from_dict

PAIR = {"input": [[1, 2]], "output": [[2]]}
TASK = {"train": [PAIR, PAIR], "test": [PAIR]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Runs a command that must fail on bad input; returns its one line."""
    assert main(["data", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hrm-deeploop data: ") and error.count("\n") == 1
    return error


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Runs a command that must succeed; returns what it prints."""
    capsys.readouterr()
    status = main(["data", *words])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    return shown.out


FOLDER = "own, tasks [1] = ä %&"


@pytest.fixture
def own_folder(here: Path) -> list[str]:
    write(here / FOLDER / "training" / "a b.json", TASK)
    write(here / FOLDER / "evaluation" / "c|é.json", {**TASK, "test": [PAIR, PAIR]})
    (here / FOLDER / "training" / ".DS_Store").write_text("x")
    (here / FOLDER / "empty").mkdir()
    return ["data=folder", f"data.folder_dir={FOLDER}", "data.num_aug=2"]


def test_a_folder_through_configuration(
    here: Path, own_folder: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = output(capsys, "build", *own_folder).splitlines()
    assert printed[:2] == ["skipped empty/", "skipped training/.DS_Store"]
    assert printed[2].startswith("built data/folder-canvas30-aug2-seed42: 2 tasks, 7 puzzle ids,")
    assert "is there already: 2 tasks" in output(capsys, "build", *own_folder)
    write(here / FOLDER / "training" / "a b.json", {**TASK, "test": [{"input": [[7]]}]})
    assert "(1 tasks differ: a b)" in failure(capsys, "build", *own_folder)
    assert "data.protocol is strict" in failure(
        capsys,
        "build",
        *own_folder,
        "data.protocol=strict",
        "data_dir=data/folder-canvas30-aug2-seed42",
    )


def test_protocol_and_role_through_configuration(
    here: Path, own_folder: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "4 test examples" not in output(
        capsys, "build", *own_folder, "data.role=train", "data_dir=t"
    )
    manifest = json.loads((here / "t" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["audit"]["tasks"] == {"evaluation": 0, "training": 2}
    printed = output(capsys, "build", *own_folder, "data.protocol=strict")
    assert printed.splitlines()[-1].startswith("built data/folder-canvas30-aug2-seed42-strict: ")
    assert "protocol strict" in printed
    assert "found no other tasks" in failure(capsys, "build", "data.protocol=strict")


@pytest.mark.parametrize("protocol", ["published", "strict"])
def test_results_name_the_protocol(here: Path, own_folder: list[str], protocol: str) -> None:
    assert main(["data", "build", *own_folder, f"data.protocol={protocol}", "data_dir=d"]) == 0
    dataset = CompiledDataset.load("d")
    rows = np.arange(dataset.test.num_examples)
    told, known = dataset.test.materialise(rows), dataset.test.describe(rows)
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=30,
        split="folder",
        num_aug=2,
        producer={},
        puzzle_id="right",
        halting="fixed",
    )
    PredictionsWriter("store", header).append(
        task_id=np.array(dataset.task_names)[known["task"]],
        test_index=known["test_index"],
        dihedral=known["dihedral"],
        color_map=known["color_map"],
        segment=np.ones(len(rows), np.int32),
        source=np.full(len(rows), "truth"),
        tokens=told["labels"],
        q_halt_logit=np.zeros(len(rows), np.float32),
    )
    assert main(["vote", "store", "--data", "d", "--out", "out"]) == 0
    results = json.loads((here / "out" / "results.json").read_text(encoding="utf-8"))
    assert results["protocol"] == protocol
    assert results["scores"]["task_accuracy_strict"]["1"] == 100
    assert list(results["tasks"]) == ["c|é"]


def test_kaggle_files_through_configuration(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = {"train": [PAIR], "test": [{"input": [[1]]}]}
    for kind in ("evaluation", "training"):
        write(here / f"{kind} challenges=1.json", {kind[0]: hidden})
        write(here / f"{kind}_solutions.json", {kind[0]: [[[3]]]})
    words = ["data=kaggle", "data.num_aug=0", "data.challenges_file=evaluation challenges=1.json"]
    assert "1 train and 1 test examples" in output(capsys, "build", *words, "data_dir=hidden")
    words += [
        "data.solutions_file=evaluation_solutions.json",
        "data.more_challenges_file=training challenges=1.json",
        "data.more_solutions_file=training_solutions.json",
    ]
    assert "3 train and 1 test examples" in output(capsys, "build", *words)
    words[-1] = "data.more_solutions_file=evaluation_solutions.json"
    assert "found 1 missing (t)" in failure(capsys, "build", *words, "data_dir=other")
    assert not (here / "other").exists()


def test_large_tasks(here: Path, own_folder: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write(here / FOLDER / "training" / "big.json", {**TASK, "test": [{"input": [[1] * 7]}]})
    words = [*own_folder, "data.canvas=6"]
    assert "'big' must fit data.canvas=6" in failure(capsys, "build", *words)
    printed = output(capsys, "build", *words, "data.leave_out_large=true")
    assert "left out big: a grid of 1 x 7" in printed
    assert "is there already" in output(capsys, "build", *words, "data.leave_out_large=true")
    manifest = json.loads((here / "data/folder-canvas6-aug2-seed42/manifest.json").read_text())
    assert manifest["left_out"] == {"big": [1, 7]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data=folder"], "data.folder_dir must be a folder of ARC JSON files"),
        (["data=kaggle"], "data.challenges_file must be an ARC Prize file"),
        (["data.folder_dir=x"], "data.folder_dir has no effect without data=folder"),
        (["data.challenges_file=x"], "data.challenges_file has no effect without data=kaggle"),
        (
            ["data=kaggle", "data.solutions_file=x"],
            "data.solutions_file has no effect without data.challenges_file",
        ),
        (["data.role=train"], "data.role=train has no effect with data=mini"),
        (["data.protocol=stric"], "did you mean strict?"),
        (["data=folder", "data.folder_dir=nowhere"], "nowhere: expected a folder"),
        (["data=kaggle", "data.challenges_file=test.json"], "test.json: expected a JSON file"),
    ],
)
def test_settings_that_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in failure(capsys, "build", *words)
    assert list(here.iterdir()) == []


def test_new_settings_name_no_old_arm_anew() -> None:
    default = compose([])
    assert digest(compose(["data.protocol=strict"])) != digest(default)
    assert digest(compose(["data=folder", "data.folder_dir=x"])) == digest(compose(["data=folder"]))
    assert from_dict(DataConfig, {}).protocol == "published"


def test_verify_full_records_and_checks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "build", "data.num_aug=0", "data_dir=mini")
    assert "mini is intact" in output(capsys, "verify", "mini")
    assert not (here / "mini" / "arrays.json").exists()
    first = json.loads(output(capsys, "verify", "mini", "--full"))
    file = here / "mini" / "arrays.json"
    assert json.loads(file.read_text(encoding="utf-8")) == first
    assert json.loads(output(capsys, "verify", "mini", "--full")) == first
    first["test"]["labels"]["sha256"] = "0" * 64
    write(file, first)
    assert "arrays.json: test.labels.sha256 must be" in failure(capsys, "verify", "mini", "--full")
    assert "mini is intact" in output(capsys, "verify", "mini")


def test_audit_diff_export_import_and_show(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for num_aug in ("0", "1"):
        output(capsys, "build", f"data.num_aug={num_aug}", f"data_dir=mini{num_aug}")
    audit = output(capsys, "audit", "mini1")
    assert audit.startswith(
        "mini1: protocol published, num_aug 1\ntasks: 46 evaluation, 0 training"
    )
    assert "bdad9b1f/0 = bdad9b1f train 1" in audit
    manifest = json.loads((here / "mini1" / "manifest.json").read_text(encoding="utf-8"))
    assert json.loads(output(capsys, "audit", "mini1", "--json")) == manifest["audit"]
    assert output(capsys, "diff", "mini1", "mini1") == "no difference\n"
    lines = output(capsys, "diff", "mini0", "mini1").splitlines()
    assert lines[0] == "data.num_aug: 0 -> 1"
    assert "task 27a28665: 0 -> 1 variants" in lines
    output(capsys, "export", "mini1", "layout")
    assert np.load(here / "layout/train/all__inputs.npy").shape == (176 * 2, 36)
    assert "wrote again: 46 tasks" in output(capsys, "import", "layout", "again")
    assert output(capsys, "diff", "mini1", "again") == "data.seed: 42 -> None\n"
    assert "expected a path that does not exist" in failure(capsys, "export", "mini1", "layout")
    shown = output(capsys, "show", "mini1", "27a28665", "--variants", "0")
    assert shown.startswith("27a28665\n  train 0\n    ")
    assert "wrote a.png" in output(capsys, "show", "mini1", "27a28665", "--png", "a.png")
    assert (here / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "did you mean '27a28665'" in failure(capsys, "show", "mini1", "27a28664")
