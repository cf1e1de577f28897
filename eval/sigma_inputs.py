"""From paths to results that sigma may use: the search for runs, and strict reading."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arc_data.json_files import read_json
from eval.arc_results import ARC
from eval.loss_results import LOSS
from eval.run_results import BEST_ON_TEST, COMMON_FIELDS, FINAL, RunResult, must_have
from eval.run_status import STATUS_FILE, run_state

KINDS = (ARC, LOSS)
_EVALUATION = re.compile(r"step_\d+")
_SEED_LINE = re.compile(r"^seed: (\d+)$", re.MULTILINE)


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

    @property
    def evaluations(self) -> list[RunResult]:
        """The results, and the newest evaluations of the runs without one."""
        left = (run.newest for run in self.unfinished)
        return [*self.results, *(newest for newest in left if newest is not None)]


def collect(paths: Sequence[Path], checkpoint: str = FINAL) -> Inputs:
    """Finds and reads results.

    Args:
        paths: Each a results.json, a run directory, or a folder that is searched for both. The
            same file found twice counts once.
        checkpoint: Which evaluation of a run is meant: ``final``, a step number, or
            ``best-on-test``, the evaluated checkpoint with the best strict score at K = 2, or of a
            language model the lowest loss.

    Returns:
        The results, and the runs without one.

    Raises:
        FileNotFoundError: If a path does not exist or a folder holds neither.
        ValueError: If a file is damaged, is of another checkpoint than ``checkpoint``, or is of
            another kind than the others.
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
    inputs = Inputs(
        results=tuple(results[key] for key in sorted(results)),
        unfinished=tuple(unfinished[key] for key in sorted(unfinished)),
    )
    for result in inputs.evaluations:
        first = inputs.evaluations[0]
        if result.kind is not first.kind:
            raise ValueError(
                f"{result.path}: schema must be {first.kind.schema!r} as in {first.path}, found"
                f" {result.kind.schema!r}; compare results of one kind"
            )
    return inputs


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
    kind = next((kind for kind in KINDS if kind.schema == found), None)
    if kind is None or not isinstance(content, dict):
        known = " or ".join(repr(kind.schema) for kind in KINDS)
        raise ValueError(
            f"{path}: schema must be {known}, found {str(found)[:60]!r}; give a results.json of"
            " this version, or evaluate the run again"
        )
    must_have(content, COMMON_FIELDS, path)
    must_have(content, kind.fields, path)
    kind.check(content, path)
    run_dir = path.absolute().parents[2] if path.absolute().parent.parent.name == "eval" else None
    result = RunResult(path=path, content=content, kind=kind, rule=content["checkpoint"]["rule"])
    if run_dir is None or not (run_dir / STATUS_FILE).is_file():
        return result
    return replace(result, run_dir=run_dir, state=run_state(run_dir))


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
        # The first of equals.
        best = max(evaluations, key=lambda result: result.kind.rating(result))
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
