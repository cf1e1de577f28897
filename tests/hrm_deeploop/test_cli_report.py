"""The commands ``analyse`` and ``report``: files, words, defaults, errors in one line."""

import json
from pathlib import Path

import pytest
from made_up import made_up_dataset, write_votes

from eval.ladder import vote
from hrm_deeploop.cli.main import BAD_INPUT, main


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, an evaluation with two segments, one of another mode, and a run around it."""
    root = tmp_path_factory.mktemp("made up")
    dataset = made_up_dataset(9, 3, canvas=6)
    dataset.save(root / "data")
    folder = root / "run" / "eval" / "step_000000010"
    folder.mkdir(parents=True)
    write_votes(folder / "predictions", dataset, segments=(1, 2))
    write_votes(root / "blank", dataset, puzzle_id="blank", seed=1)
    vote(root / "blank", dataset, folder)
    vote(root / "blank", dataset, root / "other")
    (root / "run" / "status.json").write_text('{"state": "finished", "step": 10, "error": null}')
    (root / "run" / "config.yaml").write_text(json.dumps({"data_dir": str(root / "data")}))
    (root / "run" / "metrics.jsonl").write_text('{"step": 10, "lm_loss": 1.5}\n')
    return root


def run(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert status == 0, err
    return out


def test_every_analysis_writes_figure_numbers_and_words(
    made_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = made_up / "run" / "eval" / "step_000000010"
    store, data = evaluation / "predictions", ("--data", made_up / "data")
    for words, name, saying in (
        (("variants", store, *data, "--resamples", 3), "variants", "Strict score at K = 2"),
        (("segments", store, *data, "--top-k", 1, 5), "segments", "Strict score at K = 1"),
        (("puzzle-ids", store, made_up / "blank", *data), "puzzle-ids", "blank ids"),
        (("sizes", made_up / "run", *data), "sizes", "By the largest grid"),
        (("halting", store, *data, "--png"), "halting", "mean confidence"),
        (("discordant", evaluation, made_up / "other"), "discordant", "p = 1"),
    ):
        out = run(capsys, "analyse", *words, "--out", tmp_path / "figures")
        table = json.loads((tmp_path / "figures" / f"{name}.json").read_text())
        assert saying in table["words"]
        assert out.splitlines()[0] == table["words"]
        kind = "png" if "--png" in words else "svg"
        assert (tmp_path / "figures" / f"{name}.{kind}").stat().st_size > 1000
        assert f"{name}.{kind}" in out


def test_report_finds_the_data_of_its_run(
    made_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--predictions", made_up / "blank")
    out = run(capsys, "report", made_up / "run", *store, "--curves", tmp_path / "curves.svg")
    page = made_up / "run" / "report.html"
    assert out == f"page {page}\n"
    assert 'id="task-data"' in page.read_text(encoding="utf-8")
    assert "learning" not in (tmp_path / "curves.svg").read_text(encoding="utf-8")
    evaluation = made_up / "run" / "eval" / "step_000000010"
    run(capsys, "report", evaluation, *store, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "{}/nowhere"), "expected a run directory or evaluation, found no folder"),
        (("report", "{}/other"), "is in no run directory; give the data set with --data"),
        (("report", "{}/other", "--data", "{}/data"), "has no predictions store; name it"),
        (("analyse", "sizes", "{}/data", "--data", "{}/data", "--out", "o"), "no results.json"),
        (
            ("analyse", "variants", "{}/blank", "--data", "{}/data", "--out", "o", "--top-k", "0"),
            "must be 1 or more",
        ),
        (
            ("analyse", "segments", "{}/blank", "--data", "{}/data", "--out", "o"),
            "predict with --every-segment",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    made_up: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    try:
        status = main([word.format(made_up) for word in words])
    except SystemExit as end:  # argparse
        status = int(end.code or 0)
    assert status == BAD_INPUT
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
