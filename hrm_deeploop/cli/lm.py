"""``hrm-deeploop lm``: text for the looped language model, its validation loss, its writing."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hrm_deeploop.cli.predict import positive

if TYPE_CHECKING:
    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.looped_lm.data import TokenDataset

SUMMARIES = {
    "data": "make a token folder from text",
    "eval": "validation loss of a checkpoint",
    "sample": "let a checkpoint continue a text, for a look",
    "harness": "accuracy of a checkpoint on lm-evaluation-harness's tasks",
}
HARNESS = "harness.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    data, evaluate, sample, harness = (
        actions.add_parser(name, help=text, description=text) for name, text in SUMMARIES.items()
    )
    data.set_defaults(run_action=run_data)
    data.add_argument("name", metavar="NAME", help="stdlib, or a name for your own text")
    source = data.add_mutually_exclusive_group()
    source.add_argument(
        "--text", nargs="+", metavar="FILE", help="files, a document each; -: stdin"
    )
    source.add_argument("--jsonl", nargs="+", metavar="FILE", help="a document per line; -: stdin")
    data.add_argument("--field", default="text", help="key of the text in JSON lines")
    data.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json; default: plain bytes"
    )
    data.add_argument("--end-of-text", default="<|endoftext|>", metavar="TOKEN")
    data.add_argument(
        "--validation-share", type=_share, default=0.05, metavar="P", help="default 0.05"
    )
    data.add_argument("--out", type=Path, metavar="DIR", help="default: data/lm-NAME")

    evaluate.set_defaults(run_action=run_eval)
    evaluate.add_argument("checkpoint", type=Path, help="run directory or checkpoint folder")
    evaluate.add_argument("--data", type=Path, help="token folder; default: the run's")
    evaluate.add_argument("--documents", type=positive, metavar="N", help="only the first")
    evaluate.add_argument(
        "--out", type=Path, help="folder for results.json; default: eval/ of the run directory"
    )
    evaluate.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="windows per forward pass; default: the run's",
    )

    sample.set_defaults(run_action=run_sample)
    sample.add_argument("checkpoint", type=Path, help="run directory or checkpoint folder")
    sample.add_argument("--data", type=Path, help="token folder; default: the run's")
    sample.add_argument("--prompt", default="", help="default: the end of a document")
    sample.add_argument("--tokens", type=positive, default=256, metavar="N")
    sample.add_argument("--temperature", type=_temperature, default=1.0, metavar="T")
    sample.add_argument("--top-k", type=positive, metavar="K")
    sample.add_argument("--seed", type=int, default=0)
    _add_harness_arguments(harness)
    for action in (evaluate, sample, harness):
        action.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _add_harness_arguments(harness: argparse.ArgumentParser) -> None:
    harness.set_defaults(run_action=run_harness)
    harness.add_argument("checkpoint", type=Path, help="run directory or checkpoint folder")
    harness.add_argument("--data", type=Path, help="token folder; default: the run's")
    harness.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="default: the eight of DeepLoop's paper"
    )
    harness.add_argument(
        "--task-dir",
        type=Path,
        metavar="DIR",
        help="task files (YAML) to take instead of lm_eval's own; --tasks then defaults to all",
    )
    harness.add_argument(
        "--shots",
        type=_shots,
        default=(0, 1),
        metavar="N,N",
        help="solved examples before the question; default 0,1",
    )
    harness.add_argument(
        "--limit", type=positive, metavar="N", help="only the first documents of each task"
    )
    harness.add_argument(
        "--out", type=Path, metavar="FILE", help="default: harness.json in eval/ of the run"
    )
    harness.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="windows per forward pass; default: the run's",
    )


def run(options: argparse.Namespace) -> None:
    """Runs the chosen subcommand."""
    options.run_action(options)


def run_data(options: argparse.Namespace) -> None:
    """Writes a token folder; the standard library's only if an equal one is not there."""
    import tempfile

    from hrm_deeploop.looped_lm import text
    from hrm_deeploop.looped_lm.config import LmConfig
    from hrm_deeploop.looped_lm.data import verify, write_tokens
    from hrm_deeploop.looped_lm.tokenizer import ByteTokenizer, FileTokenizer, Tokenizer

    name = LmConfig(dataset=options.name).dataset
    is_stdlib = name == text.STDLIB
    given = options.text or options.jsonl
    if is_stdlib == bool(given):
        raise ValueError(
            f"{name} is the standard library's source; choose another name for your own text"
            if is_stdlib
            else f"{name} needs --text or --jsonl; only stdlib is known without"
        )
    out = options.out or Path(f"data/lm-{name}")
    tokenizer: Tokenizer = ByteTokenizer()
    if options.tokenizer is not None:
        tokenizer = FileTokenizer(options.tokenizer, options.end_of_text)
    if is_stdlib:
        documents, upstream = text.stdlib_documents(), text.stdlib_upstream()
    elif options.text:
        documents, upstream = text.text_documents(options.text), "text files"
    else:
        documents, upstream = text.json_documents(options.jsonl, options.field), "JSON lines"
    if sys.stderr.isatty():
        from tqdm import tqdm

        documents = tqdm(documents, "documents", unit="")
    described: dict[str, Any] = {
        "name": name,
        "upstream": upstream,
        "tokenizer": tokenizer,
        "validation_share": options.validation_share,
    }
    if not (is_stdlib and out.exists()):
        write_tokens(documents, out, **described)
        print(f"made {out}: {_summary(verify(out))}")
        return
    found = verify(out, name)
    with tempfile.TemporaryDirectory() as folder:
        fresh = write_tokens(documents, Path(folder) / "fresh", **described)
    if fresh["digest"] != found.digest:
        raise ValueError(
            f"{out} holds {found.manifest['sources'][0]['upstream']} made with other options or "
            f"sources than {upstream} now; give another --out, or remove it"
        )
    print(f"{out} is there already: {_summary(found)}")


def run_eval(options: argparse.Namespace) -> None:
    """Measures a checkpoint and prints its validation loss."""
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.looped_lm.evaluation import RESULTS, evaluate_checkpoint, format_results

    path, dataset, config = _checkpoint_and_text(options)
    out = options.out or _evaluation_folder(path, partial=options.documents is not None)
    results = evaluate_checkpoint(
        path,
        dataset,
        out,
        device=choose_device(options.device),
        batch_size=options.batch_size or config.eval.batch_size,
        num_documents=options.documents,
    )
    print(format_results(results))
    print(f"results {out / RESULTS}")


def run_sample(options: argparse.Namespace) -> None:
    """Prints a continuation."""
    import torch

    from hrm_deeploop import checkpoint as checkpoints
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.looped_lm.model import LoopedGPT, generate

    path, dataset, _ = _checkpoint_and_text(options)
    device = choose_device(options.device)
    model = LoopedGPT.from_checkpoint(checkpoints.load(path, "lm")).to(device)
    tokenizer = dataset.tokenizer()
    prompt = [tokenizer.end_of_text, *tokenizer.encode([options.prompt.encode()])[0].tolist()]
    tokens = generate(
        model,
        torch.tensor(prompt, device=device),
        options.tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        generator=torch.Generator().manual_seed(options.seed),
    )
    print(tokenizer.decode(tokens[1:].tolist()))


def run_harness(options: argparse.Namespace) -> None:
    """Measures a checkpoint on lm-evaluation-harness's tasks and prints its accuracies."""
    import logging
    from importlib.util import find_spec

    from hrm_deeploop.cli.devices import choose_device

    if find_spec("lm_eval") is None:
        raise ValueError(
            "lm harness needs the package lm_eval, which is not installed: pip install "
            '"hrm_deeploop[harness]"'
        )
    path, dataset, config = _checkpoint_and_text(options)
    out = options.out or _evaluation_folder(path, partial=options.limit is not None) / HARNESS
    if out.is_dir():
        raise IsADirectoryError(f"{out}: expected a file to write, found a folder; name a file")
    if options.task_dir is not None and not options.task_dir.is_dir():
        raise FileNotFoundError(f"--task-dir {options.task_dir}: expected a folder, found none")

    from hrm_deeploop.looped_lm.harness import evaluate_harness, format_results

    for name in ("lm_eval", "datasets", "huggingface_hub"):  # what matters is an error or a result
        logging.getLogger(name).setLevel(logging.ERROR)
    results = evaluate_harness(
        path,
        dataset,
        out,
        device=choose_device(options.device),
        batch_size=options.batch_size or config.eval.batch_size,
        tasks=options.tasks,
        shots=options.shots,
        limit=options.limit,
        task_dir=options.task_dir,
    )
    print(format_results(results))
    print(f"results {out}")


def _evaluation_folder(path: Path, *, partial: bool) -> Path:
    """Where a run keeps what was measured of a checkpoint."""
    if path.parent.name != "checkpoints":
        raise ValueError(f"{path} is not in a run directory; give --out")
    return path.parent.parent / "eval" / (path.name + ("-partial" if partial else ""))


def _checkpoint_and_text(
    options: argparse.Namespace,
) -> tuple[Path, "TokenDataset", "TrainConfig"]:
    """The checkpoint meant, the text it was trained on, checked, and its run's settings."""
    from arc_data.manifest import check_digest
    from hrm_deeploop import checkpoint as checkpoints
    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.looped_lm.data import verify
    from hrm_deeploop.settings import from_dict

    path = checkpoints.find(options.checkpoint)
    if path.parent.name != "checkpoints":
        path = path.resolve()  # it may have been named from inside the run directory
    meta = checkpoints.read_meta(path, "lm")
    config = from_dict(TrainConfig, meta["config"])
    data = options.data
    if data is None:
        data = Path(config.resolved_data_dir)
        if not data.is_dir():
            raise FileNotFoundError(f"the run's data_dir {data} is not here; give it with --data")
    dataset = verify(data)
    check_digest(meta["dataset"]["digest"], dataset)
    return path, dataset, config


def _shots(text: str) -> tuple[int, ...]:
    numbers = tuple(int(word) for word in text.split(","))
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"must be different numbers, 0 or more; got {text}")
    return numbers


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be more than 0 and less than 1; got {text}")
    return value


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or more; got {text}")
    return value


def _summary(dataset: "TokenDataset") -> str:
    files = dataset.manifest["files"]
    return (
        f"{files['train.bin']['num_tokens']:,} train and "
        f"{files['validation.bin']['num_tokens']:,} validation tokens, "
        f"{len(dataset.documents) - 1} validation documents, vocabulary {dataset.vocab_size}, "
        f"digest {dataset.digest[:12]}"
    )
