"""A saved model under EleutherAI's lm-evaluation-harness, which the extra ``harness`` installs.

Only this module imports ``lm_eval``, and nothing imports this module before it is asked for.

**Source** of tasks, shots and measure: arXiv 2607.13491 v2, downstream table. What a request is,
and which tokens may be seen: ``lm_eval.api.model``. Differs: a continuation longer than the
context is scored in windows, where the harness's own models refuse it; with bytes, answers can be
that long.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lm_eval.api.model import TemplateLM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from lm_eval.utils import hash_string
from numpy.typing import NDArray

from arc_data.json_files import write_json
from arc_data.manifest import check_digest
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.inference import producer_of
from hrm_deeploop.layers import at_least_float32
from hrm_deeploop.looped_lm.data import TokenDataset
from hrm_deeploop.looped_lm.model import LoopedGPT, generate
from hrm_deeploop.looped_lm.tokenizer import Tokenizer
from hrm_deeploop.progress import Progress
from hrm_deeploop.settings import nearest

SCHEMA = "hrm_deeploop.lm_harness/1"
PAPER_TASKS = (
    "arc_challenge",
    "arc_easy",
    "hellaswag",
    "openbookqa",
    "piqa",
    "sciq",
    "social_iqa",
    "winogrande",
)
FEWSHOT_SEED = 1234  # the harness's own default
MAX_NEW_TOKENS = 256  # likewise
NEW_TOKENS_AT_ONCE = 16
ACCURACY = "acc"


class Window(NamedTuple):
    """One forward pass: the last ``len(targets)`` of ``inputs`` each predict a target."""

    inputs: list[int]
    targets: list[int]


def windows(tokens: Sequence[int], num_scored: int, context: int) -> list[Window]:
    """Forward passes that predict the last ``num_scored`` tokens once each.

    Every window but the last scores ``context`` tokens; each sees as much before them as fits, so
    a long beginning is cut on the left.

    Args:
        tokens: Beginning and what is scored; at least one more than ``num_scored``.
        num_scored: How many at the end.
        context: Most tokens that a pass can take.

    Returns:
        As many as it takes; none for ``num_scored`` 0.
    """
    found = []
    for start in range(len(tokens) - num_scored, len(tokens), context):
        end = min(start + context, len(tokens))
        inputs = tokens[max(0, end - 1 - context) : end - 1]
        found.append(Window(list(inputs), list(tokens[start:end])))
    return found


class HarnessModel(TemplateLM):
    """A looped GPT as the harness asks a model.

    Args:
        model: On its device.
        tokenizer: Of the text it was trained on.
        batch_size: Windows per forward pass.
    """

    def __init__(self, model: LoopedGPT, tokenizer: Tokenizer, *, batch_size: int) -> None:
        super().__init__()
        self.model = model
        self.text_tokenizer = tokenizer  # ``tokenizer`` would be taken for a Hugging Face one
        self.batch_size = batch_size
        self._device = model.embed_tokens.embedding_weight.device

    @property
    def eot_token_id(self) -> int:
        """What stands before an empty context, as before a document."""
        return self.text_tokenizer.end_of_text

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Ids of a text; there are no special tokens to add."""
        return self.text_tokenizer.encode([string.encode()])[0].tolist()

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether each token is the likeliest) of each continuation."""
        sequences = []
        for _, context, continuation in requests:
            before = context or [self.eot_token_id]  # a context of spaces moves to the continuation
            sequences.append(([*before, *continuation], len(continuation)))
        return self._score(sequences)

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of each whole text in nats, after an end of text."""
        texts = [self.tok_encode(request.args[0]) for request in requests]
        scored = self._score([([self.eot_token_id, *ids], len(ids)) for ids in texts])
        return [likelihood for likelihood, _ in scored]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The likeliest continuation of each context, up to the first stop string, end of text or
        ``max_gen_toks``.

        Raises:
            ValueError: If a request wants random draws.
        """
        return [self._continue(*request.args) for request in requests]

    def _continue(self, context: str, settings: Mapping[str, Any]) -> str:
        if settings.get("do_sample"):
            raise ValueError("generation is greedy here, but the task has do_sample; set it false")
        until = settings.get("until") or []
        stops = [until] if isinstance(until, str) else [stop for stop in until if stop]
        left = settings.get("max_gen_toks", MAX_NEW_TOKENS)
        prompt = self.tok_encode(context) or [self.eot_token_id]
        tokens = torch.tensor(prompt, device=self.device)
        while True:
            # A few at once, since the weights are cast anew for every call.
            count = min(left, NEW_TOKENS_AT_ONCE)
            tokens = generate(
                self.model,
                tokens,
                count,
                temperature=0,
                top_k=None,
                generator=torch.Generator(),
            )
            left -= count
            new = tokens[len(prompt) :].tolist()
            is_over = left == 0 or self.eot_token_id in new
            if self.eot_token_id in new:
                new = new[: new.index(self.eot_token_id)]
            text = self.text_tokenizer.decode(new)
            ends = [text.index(stop) for stop in stops if stop in text]
            if ends or is_over:
                return text[: min(ends, default=len(text))]

    def _score(self, sequences: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
        """What ``_loglikelihood_tokens`` returns, of (tokens, number scored at the end) each."""
        pieces = [
            (index, window)
            for index, (tokens, num_scored) in enumerate(sequences)
            for window in windows(tokens, num_scored, self.model.config.context)
        ]
        pieces.sort(key=lambda piece: -len(piece[1].inputs))  # little padding; the widest first
        likelihoods, is_greedy = np.zeros(len(sequences)), np.ones(len(sequences), bool)
        progress = Progress(len(pieces), "window")
        for start in progress.track(range(0, len(pieces), self.batch_size), self.batch_size):
            batch = pieces[start : start + self.batch_size]
            found = self._score_batch([window for _, window in batch])
            for (index, _), likelihood, greedy in zip(batch, *found, strict=True):
                likelihoods[index] += likelihood
                is_greedy[index] &= greedy
        progress.close()
        return list(zip(likelihoods.tolist(), is_greedy.tolist(), strict=True))

    @torch.no_grad()
    def _score_batch(
        self, batch: Sequence[Window]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Log-likelihood and greediness of each window, (B,) each."""
        inputs = np.zeros((len(batch), max(len(w.inputs) for w in batch)), np.int64)
        for row, window in enumerate(batch):
            inputs[row, : len(window.inputs)] = window.inputs  # padding comes after, unseen
        counts = [len(window.targets) for window in batch]
        rows = np.repeat(np.arange(len(batch)), counts)  # (T,), T targets in all
        places = np.concatenate([np.arange(len(w.inputs))[-len(w.targets) :] for w in batch])
        targets = np.concatenate([window.targets for window in batch])
        model = self.model
        weights = model.weights()
        stream = model.loop(weights, model.embed(weights, self._tensor(inputs)))  # (B, S, D)
        # Logits at the scored places only: all of (B, S, V) would need far more memory.
        logits = at_least_float32(
            model.logits(weights, stream[self._tensor(rows), self._tensor(places)])
        )  # (T, V)
        at_targets = logits.log_softmax(-1).gather(1, self._tensor(targets)[:, None]).flatten()
        is_likeliest = logits.argmax(-1).cpu().numpy() == targets
        # Summed on the CPU, where the order is fixed.
        likelihoods, is_greedy = np.zeros(len(batch)), np.ones(len(batch), bool)
        np.add.at(likelihoods, rows, at_targets.double().cpu().numpy())
        np.logical_and.at(is_greedy, rows, is_likeliest)
        return likelihoods, is_greedy

    def _tensor(self, array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def evaluate_harness(
    path: Path,
    dataset: TokenDataset,
    out: Path,
    *,
    device: torch.device,
    batch_size: int,
    tasks: Sequence[str] | None = None,
    shots: Sequence[int] = (0, 1),
    limit: int | None = None,
    task_dir: Path | None = None,
) -> dict[str, Any]:
    """Measures a checkpoint's accuracy on tasks of the harness and writes it to ``out``.

    Args:
        path: A checkpoint, or a run directory (its newest checkpoint).
        dataset: The text it was trained on, which is checked by digest; its tokenizer is used.
        out: The JSON file, written once all is measured.
        device: Where to compute.
        batch_size: Windows per forward pass.
        tasks: Names; None: the paper's eight, or all of ``task_dir``.
        shots: Numbers of solved examples before the question.
        limit: Only the first documents of each task; None: all.
        task_dir: Folder of task files (YAML) to take instead of the harness's own.

    Returns:
        What the file holds.

    Raises:
        FileNotFoundError: If there is no checkpoint, or a task's data are not to be had.
        ValueError: If the checkpoint is damaged, the text is another one, or a task is unknown,
            reports no accuracy or forbids the number of shots.
    """
    checkpoint = checkpoints.load(path, "lm")
    check_digest(checkpoint.meta["dataset"]["digest"], dataset)
    manager = TaskManager(include_path=task_dir, include_defaults=task_dir is None)
    default = PAPER_TASKS if task_dir is None else manager.all_subtasks
    names = known_tasks(manager, tasks or default)
    loaded = {num_shots: load_tasks(manager, names, num_shots) for num_shots in shots}
    model = LoopedGPT.from_checkpoint(checkpoint).to(device)
    asked = HarnessModel(model, dataset.tokenizer(), batch_size=batch_size)
    producer = producer_of(checkpoint.meta)
    results: dict[str, Any] = {
        "schema": SCHEMA,
        "lm_eval": {"version": version("lm_eval"), "fewshot_seed": FEWSHOT_SEED},
        "dataset": {"name": dataset.name, "manifest_sha256": dataset.digest},
        "evaluation": {"context": model.config.context, "partial": limit is not None},
        "checkpoint": producer["checkpoint"],
        "seed": producer["seed"],
        "arm": producer["arm"],
        "shots": {},
    }
    for num_shots, of_names in loaded.items():
        found = evaluate(lm=asked, task_dict={"tasks": of_names}, limit=limit)
        results["shots"][str(num_shots)] = summary(found, names)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, results)
    return results


def known_tasks(manager: TaskManager, names: Iterable[str]) -> list[str]:
    """The names, each once.

    Raises:
        ValueError: If there is none, or one is no single task; the nearest is named.
    """
    wanted, known = list(dict.fromkeys(names)), manager.all_subtasks
    if not wanted:
        raise ValueError("--task-dir: expected task files (*.yaml) with a task, found none")
    for name in wanted:
        if name not in known:
            raise ValueError(
                f"--tasks: expected names of lm_eval's tasks, or of --task-dir's where it is "
                f"given, found {name}{nearest(name, known)}"
            )
    return wanted


def load_tasks(manager: TaskManager, names: Sequence[str], num_shots: int) -> dict[str, Any]:
    """The tasks with their data, set to a number of shots.

    Raises:
        FileNotFoundError: If a task's data are neither in the cache nor reachable.
        ValueError: If a task reports no accuracy or forbids the number of shots.
    """
    tasks = {}
    for name in names:
        try:
            task = manager.load(name)["tasks"][name]
        except OSError as error:  # the packages' network errors are of this kind
            raise FileNotFoundError(
                f"the data of task {name} are neither in the cache nor reachable ({error}); run "
                "once with a network, or point HF_HOME to a cache that has them"
            ) from None
        if ACCURACY not in task.aggregation():
            raise ValueError(
                f"task {name}: expected the metric {ACCURACY}, found "
                f"{', '.join(task.aggregation())}; take a task that reports accuracy"
            )
        if num_shots and task.get_config("num_fewshot") == 0:
            raise ValueError(
                f"task {name} allows no shots (num_fewshot: 0), found --shots {num_shots}; give "
                "--shots 0"
            )
        task.set_config("num_fewshot", num_shots)
        task.set_fewshot_seed(FEWSHOT_SEED)
        tasks[name] = task
    return tasks


def summary(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What the file holds of one number of shots.

    Args:
        found: What ``lm_eval`` returns, samples included.
        names: The tasks.

    Returns:
        ``macro_average``, the mean accuracy over tasks, and its standard error, the tasks taken as
        independent (None where a task's is); ``tasks``: of each every metric under its name, with
        ``_stderr`` beside (fractions; None where undefined), version, number of documents, the hash
        that the harness logs of documents, prompts and targets, and each document's ``correct``.
    """
    tasks = {name: _task_summary(found, name) for name in names}
    errors = [task["metrics"][f"{ACCURACY}_stderr"] for task in tasks.values()]
    error = None
    if None not in errors:
        error = math.sqrt(math.fsum(e**2 for e in errors)) / len(errors)
    accuracies = [task["metrics"][ACCURACY] for task in tasks.values()]
    return {
        "macro_average": math.fsum(accuracies) / len(accuracies),
        "macro_average_stderr": error,
        "tasks": tasks,
    }


def _task_summary(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    samples = found["samples"][name]
    metrics = {}
    for key, value in found["results"][name].items():
        metric, _, filtered = key.partition(",")
        if filtered:  # the others are no metrics
            is_number = isinstance(value, int | float) and math.isfinite(value)
            metrics[metric if filtered == "none" else key] = float(value) if is_number else None
    hashes = [s["doc_hash"] + s["prompt_hash"] + s["target_hash"] for s in samples]
    return {
        "metrics": metrics,
        "version": str(found["versions"][name]),
        "num_documents": len(samples),
        "sha256": hash_string("".join(hashes)),
        "correct": [int(sample[ACCURACY]) for sample in samples],
    }


def format_results(results: Mapping[str, Any]) -> str:
    """The table printed for people, in percent."""
    by_shots = results["shots"]
    names = list(next(iter(by_shots.values()))["tasks"])
    width = max(map(len, [*names, "macro average"]))
    lines = ["".join([f"{'task':{width}}", *(f"{n + '-shot':>18}" for n in by_shots)])]
    for name in names:
        metrics = [found["tasks"][name]["metrics"] for found in by_shots.values()]
        cells = (_percent(m[ACCURACY], m[f"{ACCURACY}_stderr"]) for m in metrics)
        lines.append("".join([f"{name:{width}}", *cells]))
    averages = (
        _percent(found["macro_average"], found["macro_average_stderr"])
        for found in by_shots.values()
    )
    lines.append("".join([f"{'macro average':{width}}", *averages]))
    partial = "; partial: the first documents only" if results["evaluation"]["partial"] else ""
    lines.append(f"accuracy in percent, +-: one standard error over documents{partial}")
    return "\n".join(lines)


def _percent(value: float, error: float | None) -> str:
    spread = "" if error is None else f" +- {100 * error:5.2f}"
    return f"{100 * value:.2f}{spread}".rjust(18)
