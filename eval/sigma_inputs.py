"""From paths to results that sigma may use: the search for runs, and strict reading."""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json
from eval.run_status import STATUS_FILE, run_state
from eval.scoring import SCHEMA, SCORE_NAMES

FINAL, BEST_ON_TEST = "final", "best-on-test"
PRIMARY_SCORE, PRIMARY_K = SCORE_NAMES[0], "2"
_EVALUATION = re.compile(r"step_\d+")
_SEED_LINE = re.compile(r"^seed: (\d+)$", re.MULTILINE)
_TEXT = (str, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    "protocol": (str,),
    "split": (str,),
    "dataset.manifest_sha256": (str,),
    "voting.rule": (str,),
    "voting.halting": _TEXT,
    "voting.num_aug": (int, type(None)),
    "voting.sources": (list,),
    "voting.puzzle_id": _TEXT,
    "voting.partial": (bool,),
    "checkpoint.step": (int, type(None)),
    "checkpoint.weights": _TEXT,
    "checkpoint.rule": _TEXT,
    "seed": (int, type(None)),
    "arm.name": _TEXT,
    "arm.digest": _TEXT,
    "tasks": (dict,),
    "unscored": (list,),
    "num_test_pairs": (int,),
}


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One results.json, read and checked."""

    path: Path
    content: dict[str, Any]
    """What the file holds."""
    rule: str | None
    """The checkpoint's rule: final, ``step N``, best-on-test; None for a foreign solver."""
    run_dir: Path | None = None
    """The run it belongs to, if any."""
    state: str | None = None
    """That run's state, see ``run_status``; None where no status.json says it."""

    def field(self, name: str) -> Any:
        """The value at a dotted name; its presence was checked by ``read_result``."""
        value: Any = self.content
        for key in name.split("."):
            value = value[key]
        return value


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A run that has no result to use."""

    path: Path
    state: str
    why: str
    arm: str | None
    seed: int | None
    newest: RunResult | None = None
    """Its newest evaluation, of whatever checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a search found, in an order that does not depend on that of the paths."""

    results: tuple[RunResult, ...]
    unfinished: tuple[Unfinished, ...]


def collect(paths: Sequence[Path], checkpoint: str = FINAL) -> Inputs:
    """Finds and reads results.

    Args:
        paths: Each a results.json, a run directory, or a folder that is searched for both. The
            same file found twice counts once.
        checkpoint: Which evaluation of a run is meant: ``final``, a step number, or
            ``best-on-test``, the evaluated checkpoint with the best strict score at K = 2.

    Returns:
        The results, and the runs without one.

    Raises:
        FileNotFoundError: If a path does not exist or a folder holds neither.
        ValueError: If a file is damaged, or is of another checkpoint than ``checkpoint``.
    """
    if checkpoint not in (FINAL, BEST_ON_TEST) and not checkpoint.isdecimal():
        raise ValueError(
            f"checkpoint must be {FINAL}, {BEST_ON_TEST} or a step number, found {checkpoint!r}"
        )
    results: dict[Path, RunResult] = {}
    unfinished: dict[Path, Unfinished] = {}
    for given in paths:
        for path in _search(given):
            if path.is_dir():
                found = _read_run(path, checkpoint)
            else:
                found = _with_rule(read_result(path), checkpoint)
            if isinstance(found, Unfinished):
                unfinished.setdefault(path.resolve(), found)
            else:
                results.setdefault(found.path.resolve(), found)
    return Inputs(
        results=tuple(results[key] for key in sorted(results)),
        unfinished=tuple(unfinished[key] for key in sorted(unfinished)),
    )


def read_result(path: Path) -> RunResult:
    """Reads one results.json strictly.

    Args:
        path: The file.

    Returns:
        The result; ``rule`` as the file has it.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, of another schema, or lacks a field that sigma needs.
    """
    content = read_json(path)
    found = content.get("schema") if isinstance(content, dict) else content
    if not isinstance(content, dict) or found != SCHEMA:
        raise ValueError(
            f"{path}: schema must be {SCHEMA!r}, found {str(found)[:60]!r}; give a results.json of"
            " this version, or evaluate the run again"
        )
    for name, kinds in _KINDS.items():
        value = _lookup(content, name, path)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            raise ValueError(
                f"{path}: {name} must be {names}, found {str(value)[:60]!r}; evaluate again"
            )
    check_scores(content, path)
    check_test_pairs(content["unscored"], "unscored", path)
    _check_tasks(content, path)
    run_dir = path.absolute().parents[2] if path.absolute().parent.parent.name == "eval" else None
    result = RunResult(path=path, content=content, rule=content["checkpoint"]["rule"])
    if run_dir is None or not (run_dir / STATUS_FILE).is_file():
        return result
    return replace(result, run_dir=run_dir, state=run_state(run_dir))


def _lookup(content: Mapping[str, Any], name: str, path: Path) -> Any:
    value: Any = content
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"{path}: {name} is missing; evaluate the run again")
        value = value[key]
    return value


def check_scores(content: Mapping[str, Any], path: Path) -> None:
    """Refuses ``scores`` that are not percentages by score name and K.

    Args:
        content: A result, or its part without seen pairs.
        path: The file, for the message.

    Raises:
        ValueError: If a score is missing or none.
    """
    for name in SCORE_NAMES:
        ladder = _lookup(content, f"scores.{name}", path)
        if not isinstance(ladder, dict) or not ladder:
            raise ValueError(f"{path}: scores.{name} must hold a score per K, found {ladder!r}")
        for k, value in ladder.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_k = k.isdecimal() and int(k) >= 1
            if not is_k or not is_number or not 0 <= value <= 100:  # NaN too
                raise ValueError(
                    f"{path}: scores.{name} must be percentages by K, found {k!r}: {value!r};"
                    " evaluate again"
                )


def check_test_pairs(value: Any, name: str, path: Path) -> None:
    """Refuses anything but a list of ``task/index``; arguments as in ``check_scores``."""
    if not isinstance(value, list) or not all(isinstance(pair, str) for pair in value):
        raise ValueError(
            f"{path}: {name} must list test pairs as text, found {str(value)[:60]}; evaluate again"
        )


def _check_tasks(content: Mapping[str, Any], path: Path) -> None:
    if not content["tasks"]:
        raise ValueError(f"{path}: tasks must hold at least one task, found none; evaluate again")
    for task, outcomes in content["tasks"].items():
        ranks = [o.get("rank", 0) for o in outcomes if isinstance(o, dict)]
        good = all(rank is None or (type(rank) is int and rank >= 1) for rank in ranks)
        if not isinstance(outcomes, list) or not ranks or len(ranks) < len(outcomes) or not good:
            raise ValueError(
                f"{path}: tasks.{task} must list a rank (from 1, or null) per test pair, found"
                f" {str(outcomes)[:60]}; evaluate again"
            )


def _search(path: Path) -> Iterator[Path]:
    """Run directories, and results.json outside of them, below ``path``."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise FileNotFoundError(
            f"{path} does not exist; give run directories, folders of them, or results.json files"
        )
    empty = True
    seen: set[Path] = set()
    for folder, below, files in os.walk(path, onerror=_refuse, followlinks=True):
        if Path(folder).resolve() in seen:  # links may lead in circles
            below.clear()
            continue
        seen.add(Path(folder).resolve())
        is_run = STATUS_FILE in files or any(_evaluations(Path(folder)))
        if is_run or "results.json" in files:
            empty = False
            below.clear()
            yield Path(folder) if is_run else Path(folder) / "results.json"
        below[:] = [name for name in below if not name.startswith(".")]
    if empty:
        raise FileNotFoundError(
            f"{path} holds no run and no results.json; train a run, or score a store with"
            " hrm-deeploop vote"
        )


def _refuse(error: OSError) -> None:
    """A folder that cannot be read may hold a run: better to stop than to leave it out."""
    raise error


def _evaluations(run_dir: Path) -> list[Path]:
    """The run's own evaluations, earliest step first."""
    found = run_dir.glob("eval/step_*/results.json")
    own = [path for path in found if _EVALUATION.fullmatch(path.parent.name)]
    return sorted(own, key=lambda path: int(path.parent.name.removeprefix("step_")))


def _read_run(run_dir: Path, checkpoint: str) -> RunResult | Unfinished:
    state = run_state(run_dir) if (run_dir / STATUS_FILE).is_file() else None
    read = [read_result(path) for path in _evaluations(run_dir)]
    evaluations = [replace(result, run_dir=run_dir, state=state) for result in read]
    newest = _at_step(evaluations[-1]) if evaluations else None
    arm, seed = _arm_and_seed(run_dir)
    unfinished = Unfinished(
        path=run_dir, state=state or "unknown", why="it is training", arm=arm, seed=seed,
        newest=newest,
    )  # fmt: skip
    if state == "running":
        return unfinished
    has_ended = any(result.rule == FINAL for result in evaluations)
    if checkpoint == BEST_ON_TEST and evaluations and has_ended:
        best = max(evaluations, key=_test_score)  # the first of equals
        return replace(best, rule=BEST_ON_TEST)
    for result in reversed(evaluations):
        if checkpoint == FINAL and result.rule == FINAL:
            return result
        if checkpoint == str(result.field("checkpoint.step")):
            return _at_step(result)
    what = f"of step {checkpoint}" if checkpoint.isdecimal() else "of its final checkpoint"
    mend = f"; run hrm-deeploop eval {run_dir}" if state == "finished" else ""
    return replace(unfinished, why=f"no evaluation {what}{mend}")


def _at_step(result: RunResult) -> RunResult:
    return replace(result, rule=f"step {result.field('checkpoint.step')}")


def _test_score(result: RunResult) -> float:
    ladder = result.field(f"scores.{PRIMARY_SCORE}")
    if PRIMARY_K not in ladder:
        raise ValueError(
            f"{result.path}: {BEST_ON_TEST} needs a score at K = {PRIMARY_K}, found {list(ladder)};"
            " evaluate again"
        )
    return float(ladder[PRIMARY_K])


def _with_rule(result: RunResult, checkpoint: str) -> RunResult:
    """Checks that a file given by itself is of the checkpoint that was asked for."""
    step = result.field("checkpoint.step")
    if checkpoint.isdecimal():
        if str(step) == checkpoint:
            return _at_step(result)
        raise ValueError(
            f"{result.path}: checkpoint.step must be {checkpoint} as asked for, found {step!r};"
            " leave the file out or change --checkpoint"
        )
    if result.rule not in (None, checkpoint):
        other = str(step) if result.rule == "step" else str(result.rule)
        raise ValueError(
            f"{result.path}: checkpoint.rule must be {checkpoint!r} as asked for, found"
            f" {result.rule!r}; to use it, say --checkpoint {other}"
        )
    return result


def _arm_and_seed(run_dir: Path) -> tuple[str | None, int | None]:
    """As far as a run that may have died early says."""
    arm = seed = None
    provenance, config = run_dir / "provenance.json", run_dir / "config.yaml"
    if provenance.is_file():
        about = read_json(provenance)
        entry = about.get("arm") if isinstance(about, dict) else None
        arm = entry.get("name") if isinstance(entry, dict) else None
    if config.is_file():
        line = _SEED_LINE.search(config.read_text(encoding="utf-8", errors="replace"))
        seed = int(line.group(1)) if line else None
    return arm, seed


def task_ranks(result: RunResult, leave_out: Sequence[str] = ()) -> dict[str, float]:
    """The K from which each task is solved: the worst rank of its scored test pairs.

    Args:
        result: One result.
        leave_out: Further test pairs, ``task/index``, that do not count.

    Returns:
        Task -> rank, infinite where a right grid was never voted for; tasks without a scored test
        pair are absent. Sorted by task.
    """
    without = {*result.content["unscored"], *leave_out}
    ranks: dict[str, float] = {}
    for task, outcomes in sorted(result.content["tasks"].items()):
        counted = [o["rank"] for i, o in enumerate(outcomes) if f"{task}/{i}" not in without]
        if counted:
            ranks[task] = max(math.inf if rank is None else rank for rank in counted)
    return ranks
