"""lm-evaluation-harness's requests and results, against the model's own logits."""

import json
import math
import os
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli import files

from hrm_deeploop import checkpoint
from hrm_deeploop.cli.main import main
from hrm_deeploop.distributed import Ranks
from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.looped_lm.evaluation import document_losses
from hrm_deeploop.looped_lm.model import LoopedGPT, generate
from hrm_deeploop.looped_lm.tokenizer import ByteTokenizer

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}  # read when they are imported
lm_eval = pytest.importorskip("lm_eval", reason="the extra harness is not installed")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from hrm_deeploop.looped_lm.harness import (  # noqa: E402
    PAPER_TASKS,
    HarnessModel,
    known_tasks,
    windows,
)

CONTEXT = 16
PAPER_FOLDERS = (
    "arc",
    "hellaswag",
    "openbookqa",
    "piqa",
    "sciq",
    "siqa",
    "winogrande",
)


@pytest.fixture(scope="module")
def model() -> LoopedGPT:
    """Random weights that never prefer what is no printable character."""
    config = LmConfig(
        num_blocks=1,
        rounds=2,
        hidden_size=16,
        num_heads=2,
        context=CONTEXT,
        arm="deeploop",
        embedding_std=1.0,
        forward_dtype="float32",
    )
    model = LoopedGPT(config, 256)
    model.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():
        table = model.embed_tokens.embedding_weight
        table[:32] = table[127:] = 0
    return model


@pytest.fixture(scope="module")
def asked(model: LoopedGPT) -> HarnessModel:
    return HarnessModel(model, ByteTokenizer(), batch_size=3)


def request(kind: str, *arguments: object) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def by_hand(model: LoopedGPT, before: bytes, scored: bytes) -> float:
    """Log-likelihood of up to a context's length of bytes, one pass, plain logits."""
    ids = list(before + scored)[-model.config.context - 1 :]
    with torch.no_grad():
        logs = model(torch.tensor([ids[:-1]]))[0].double().log_softmax(-1)
    places = range(len(ids) - 1 - len(scored), len(ids) - 1)
    return math.fsum(logs[place, ids[place + 1]].item() for place in places)


def greedy_text(model: LoopedGPT, prompt: bytes, num_tokens: int) -> str:
    ids = torch.tensor(list(prompt))
    drawn = generate(model, ids, num_tokens, temperature=0, top_k=None, generator=torch.Generator())
    return bytes(drawn[len(prompt) :].tolist()).decode("ascii")


def test_windows_score_every_token_once_with_as_much_context_as_fits() -> None:
    tokens = list(range(12))
    assert windows(tokens, 2, 20) == [(list(range(11)), [10, 11])]
    assert windows(tokens, 2, 4) == [([7, 8, 9, 10], [10, 11])]  # cut on the left
    assert windows(tokens, 7, 4) == [([4, 5, 6, 7], [5, 6, 7, 8]), ([7, 8, 9, 10], [9, 10, 11])]
    assert windows(tokens, 0, 4) == []


@pytest.mark.parametrize(
    ("context", "continuation", "before", "scored"),
    [
        ("3 and", " 4", b"3 and", b" 4"),
        ("3 and ", "4", b"3 and", b" 4"),  # the harness's rule for spaces at the end
        ("", "make", b"\0", b"make"),
        ("  ", "make", b"\0", b"  make"),
        ("a context longer than the model's", " 7", b"a context longer than the model's", b" 7"),
        ("caf\u00e9", " \u00e9", "caf\u00e9".encode(), " \u00e9".encode()),
    ],
)
def test_loglikelihood(
    context: str,
    continuation: str,
    before: bytes,
    scored: bytes,
    model: LoopedGPT,
    asked: HarnessModel,
) -> None:
    ((found, _),) = asked.loglikelihood([request("loglikelihood", context, continuation)])
    assert found == pytest.approx(by_hand(model, before, scored), rel=1e-5)


def test_a_continuation_longer_than_the_context(model: LoopedGPT, asked: HarnessModel) -> None:
    before, scored = b"3 and 4 make", b" seven, which is more than six"
    assert len(scored) == 30 > CONTEXT
    ((found, _),) = asked.loglikelihood(
        [request("loglikelihood", before.decode(), scored.decode())]
    )
    first, last = scored[:CONTEXT], scored[CONTEXT:]
    expected = by_hand(model, before, first) + by_hand(model, before + first, last)
    assert found == pytest.approx(expected, rel=1e-5)


def test_order_and_batches_do_not_matter(model: LoopedGPT, asked: HarnessModel) -> None:
    asks = [
        request("loglikelihood", "x" * length, " yes" * (1 + length % 3)) for length in range(1, 20)
    ]
    found = asked.loglikelihood(asks)
    assert found == asked.loglikelihood(asks)
    alone = HarnessModel(model, ByteTokenizer(), batch_size=1).loglikelihood(asks[::-1])[::-1]
    np.testing.assert_allclose([f for f, _ in found], [f for f, _ in alone], rtol=1e-5)


def test_is_greedy(model: LoopedGPT, asked: HarnessModel) -> None:
    text = greedy_text(model, b"3 and 4", 8)
    wrong_end = text[:-1] + chr(ord(text[-1]) ^ 1)
    wrong_start = chr(ord(text[0]) ^ 1) + text[1:]
    asks = [request("loglikelihood", "3 and 4", t) for t in (text, wrong_end, wrong_start, "")]
    found = asked.loglikelihood(asks)
    assert [is_greedy for _, is_greedy in found] == [True, False, False, True]
    assert found[3] == (0, True)


@pytest.mark.parametrize("length", [CONTEXT, 3 * CONTEXT])
def test_rolling_is_the_validation_loss(length: int, model: LoopedGPT, asked: HarnessModel) -> None:
    text = ("3 and 4 make 7; " * 9)[5 : 5 + length]
    ids = np.frombuffer(b"\0" + text.encode(), np.uint8)
    nats, tokens = document_losses(model, ids, np.array([0, len(ids)]), batch_size=2, ranks=Ranks())
    assert tokens.tolist() == [length]
    (found,) = asked.loglikelihood_rolling([request("loglikelihood_rolling", text)])
    assert found == pytest.approx(-nats.sum(), rel=1e-6)


def test_rolling_gives_the_last_window_its_full_context(
    model: LoopedGPT, asked: HarnessModel
) -> None:
    text = b"3 and 4 make 7; 5 and"
    rolled = asked.loglikelihood_rolling([request("loglikelihood_rolling", text.decode())])
    first, last = text[:CONTEXT], text[CONTEXT:]
    expected = by_hand(model, b"\0", first) + by_hand(model, b"\0" + first, last)
    assert rolled == [pytest.approx(expected, rel=1e-5)]
    assert asked.loglikelihood_rolling([request("loglikelihood_rolling", "")]) == [0]


def test_generation_stops(model: LoopedGPT, asked: HarnessModel) -> None:
    text = greedy_text(model, b"3 and 4", 40)

    def generated(model: HarnessModel, **settings: object) -> str:
        (found,) = model.generate_until([request("generate_until", "3 and 4", settings)])
        return found

    stop = text[20:23]
    assert generated(asked, until=["\n\n", "", stop]) == text[: text.index(stop)]
    later = text[22:25]  # in the same portion; the first to come counts, not the first named
    assert generated(asked, until=[later, stop]) == text[: min(text.index(stop), text.index(later))]
    assert generated(asked, until=stop, max_gen_toks=40) == text[: text.index(stop)]
    assert generated(asked, until=["\n\n"], max_gen_toks=37) == text[:37]

    class Ends(ByteTokenizer):
        """Ends documents with what the model writes."""

        end_of_text = ord(text[4])

    ending = HarnessModel(model, Ends(), batch_size=3)
    assert generated(ending, until=[]) == text[: text.index(text[4])]
    with pytest.raises(ValueError, match="generation is greedy here"):
        generated(asked, do_sample=True)


def test_the_papers_tasks_are_the_harnesss() -> None:
    own = Path(lm_eval.__file__).parent / "tasks"
    manager = TaskManager(
        include_path=[own / folder for folder in PAPER_FOLDERS], include_defaults=False
    )
    assert known_tasks(manager, PAPER_TASKS) == list(PAPER_TASKS)
    with pytest.raises(ValueError, match="found arc_esay; did you mean arc_easy"):
        known_tasks(manager, ["arc_esay"])
    with pytest.raises(ValueError, match="found ai2_arc"):  # a group of them
        known_tasks(manager, ["ai2_arc"])


SHOWN = {"question": "1 and 1 make", "choices": ["2", "11"], "answer": 0}
ASKED = [
    {"question": f"{n} and {n} make", "choices": [f"{2 * n}", f"{n}{n}", "0"], "answer": n % 3}
    for n in range(2, 9)
]
RUN = [
    "experiment=lm_tiny_deeploop",
    "data_dir=data/lm-toy",
    "lm.dataset=toy",
    "lm.num_blocks=1",
    "lm.rounds=2",
    "lm.hidden_size=16",
    "lm.num_heads=2",
    "lm.context=24",
    "lm.forward_dtype=float32",
    "optim.global_batch_size=8",
    "optim.ema=0.5",
    "hardware.compile=false",
    "hardware.threads=1",
    "max_steps=8",
    "run_dir=run",
]


def write_task(folder: Path, name: str, *more: str) -> None:
    """A task of two files, as the harness reads it."""
    folder.mkdir(exist_ok=True)
    for split, documents in (("train", [SHOWN]), ("test", ASKED)):
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{split}.jsonl").write_text(lines)
    data_files = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    settings = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": data_files, "cache_dir": str(folder / "cache")},
        "output_type": "multiple_choice",
        "training_split": "train",
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answer",
        "doc_to_choice": "choices",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.5},
    }
    for line in more:
        settings |= json.loads(line)
    # JSON is YAML.
    (folder / f"{name}.yaml").write_text(json.dumps(settings))


@pytest.fixture
def trained(here: Path, toy_dir: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run directory."""
    shutil.copytree(toy_dir, here / "data/lm-toy")
    assert main(["train", *RUN]) == 0, capsys.readouterr().err
    capsys.readouterr()
    return here / "run"


def test_a_task_end_to_end(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task(trained.parent / "tasks", "sums")
    write_task(trained.parent / "tasks", "more", '{"doc_to_target": "{{(answer + 1) % 3}}"}')
    saved = checkpoint.load(trained, "lm")
    model = LoopedGPT.from_checkpoint(saved)
    words = ["lm", "harness", "run", "--task-dir", "tasks", "--tasks", "sums", "more"]
    assert main([*words, "--batch-size", "4"]) == 0
    printed = capsys.readouterr().out
    out = trained / "eval/step_000000008/harness.json"
    assert f"results {out.relative_to(trained.parent)}" in printed
    results = json.loads(out.read_text())
    assert results["checkpoint"]["weights"] == "ema"
    assert results["checkpoint"]["step"] == 8
    assert results["arm"] == saved.meta["arm"]
    assert results["evaluation"] == {"context": 24, "partial": False}
    shown = f"{SHOWN['question']} {SHOWN['choices'][0]}\n\n"
    for shots, prefix in (("0", ""), ("1", shown)):
        found = results["shots"][shots]
        averages, errors = [], []
        for name, shift in (("sums", 0), ("more", 1)):
            prefix_of = prefix if shift == 0 else prefix.replace(" 2\n", " 11\n")
            correct = []
            for document in ASKED:
                likelihoods = [
                    by_hand(model, (prefix_of + document["question"]).encode(), b" " + c.encode())
                    for c in document["choices"]
                ]
                best = int(np.argmax(likelihoods))
                correct.append(int(best == (document["answer"] + shift) % 3))
            task = found["tasks"][name]
            assert task["correct"] == correct, (shots, name)
            assert task["metrics"]["acc"] == pytest.approx(statistics.mean(correct))
            error = statistics.stdev(correct) / math.sqrt(len(correct))
            assert task["metrics"]["acc_stderr"] == pytest.approx(error)
            assert task["version"] == "1.5"
            assert task["num_documents"] == len(ASKED)
            averages.append(statistics.mean(correct))
            errors.append(error)
            assert f"{100 * averages[-1]:.2f} +- {100 * error:5.2f}" in printed
        assert found["macro_average"] == pytest.approx(statistics.mean(averages))
        assert found["macro_average_stderr"] == pytest.approx(math.hypot(*errors) / 2)
    hashes = {results["shots"][n]["tasks"]["sums"]["sha256"] for n in "01"}
    assert len(hashes) == 2  # the prompts differ
    before = out.read_bytes()
    assert main([*words, "--batch-size", "4"]) == 0
    assert out.read_bytes() == before
    assert main([*words, "--shots", "0", "--limit", "1", "--out", "new/few.json"]) == 0
    assert "partial" in capsys.readouterr().out
    few = json.loads((trained.parent / "new/few.json").read_text())
    assert few["evaluation"]["partial"]
    assert list(few["shots"]) == ["0"]
    one = few["shots"]["0"]
    assert one["tasks"]["sums"]["metrics"]["acc_stderr"] is None
    assert one["macro_average_stderr"] is None


def test_bad_input_is_one_line_and_nothing_written(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained.parent / "tasks"
    write_task(folder, "sums")
    write_task(folder, "fixed", '{"num_fewshot": 0}')
    metric = {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}
    rolling = {"output_type": "loglikelihood", "metric_list": [metric], "doc_to_choice": None}
    write_task(folder, "rolling", json.dumps(rolling))
    write_task(folder, "far", '{"dataset_path": "nowhere/nothing", "dataset_kwargs": null}')
    (trained.parent / "empty").mkdir()
    words = ["lm", "harness", "run", "--task-dir", "tasks", "--tasks"]
    assert main([*words, "sums"]) == 0  # the data's cache is written
    (trained / "eval/step_000000008/harness.json").unlink()
    capsys.readouterr()
    before = files(trained)
    for arguments, message in (
        ([*words, "sum"], "found sum; did you mean sums?"),
        ([*words, "fixed"], "task fixed allows no shots (num_fewshot: 0), found --shots 1"),
        ([*words, "rolling"], "task rolling: expected the metric acc, found perplexity"),
        ([*words, "sums", "far"], "the data of task far are neither in the cache nor reachable"),
        ([*words, "sums", "--out", "data"], "data: expected a file to write, found a folder"),
        (["lm", "harness", "run", "--task-dir", "nowhere"], "nowhere: expected a folder"),
        (["lm", "harness", "run", "--task-dir", "empty"], "expected task files"),
    ):
        assert main(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert error.splitlines()[-1].startswith("hrm-deeploop lm: "), error
        assert error.count("\n") == 1, error
        assert message in error
        assert files(trained) == before
