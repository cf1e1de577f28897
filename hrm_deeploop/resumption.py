"""Going on with a run: what to go on from, what may change, and what is recorded."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.checkpoint import Checkpoint
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.provenance import code_and_machine, not_bitwise
from hrm_deeploop.run_dir import RunDir
from hrm_deeploop.settings import changed_settings

if TYPE_CHECKING:
    from hrm_deeploop.training import Trainer

# The schedule's horizon does not depend on it: a longer run begins as the shorter one did.
ONLY_THE_END = "max_steps"
FOR_THIS_TIME_ONLY = ("resume", "resume_with_changes", "run_dir")


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """What a run goes on from, and how its configuration departs from before.

    Attributes:
        loaded: Checkpoint and training state; None: the run died before its first one and
            begins again.
        changes: (old, new) of every setting that is not as before, by dotted name.
        result_changes: Those of them that can change a result, with the step.
        history: ``result_changes`` of the earlier resumptions and of this one.
    """

    loaded: tuple[Checkpoint, dict[str, Any]] | None
    changes: dict[str, tuple[Any, Any]]
    result_changes: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def step(self) -> int:
        """Steps that are done."""
        return 0 if self.loaded is None else self.loaded[0].meta["step"]


def find_run(path: Path) -> tuple[Path, Path | None]:
    """The run directory and the checkpoint meant by ``resume=``.

    Args:
        path: A run directory (its newest checkpoint), or a checkpoint in one.

    Returns:
        The run directory, and the checkpoint; None where there is none yet.
    """
    if (path / checkpoints.META).is_file():
        path = path.resolve()
        return path.parent.parent, path
    saved = checkpoints.all_of(path)
    return path, saved[-1] if saved else None


def check_changes(saved: TrainConfig, config: TrainConfig) -> dict[str, tuple[Any, Any, bool]]:
    """Settings that differ from those of the run.

    Returns:
        As ``changed_settings``.

    Raises:
        ValueError: If one can change the result and ``resume_with_changes`` is off.
    """
    changed = changed_settings(saved, config)
    for key in FOR_THIS_TIME_ONLY:
        changed.pop(key, None)
    listed = [
        f"{key} from {old} to {new}" for key, (old, new, matters) in changed.items() if matters
    ]
    if listed and not config.resume_with_changes:
        raise ValueError(
            f"going on would change what the run computes: {'; '.join(listed)}; start a new run, "
            "or add resume_with_changes=true, which is recorded"
        )
    return changed


def plan(
    run_dir: RunDir,
    checkpoint: Path | None,
    changed: dict[str, tuple[Any, Any, bool]],
    dataset_digest: str,
    *,
    with_changes: bool,
) -> Resumption:
    """Joins what the run's provenance says with what is different now.

    Args:
        run_dir: The run.
        checkpoint: What to go on from.
        changed: From ``check_changes``.
        dataset_digest: Of the data at hand.
        with_changes: ``resume_with_changes``.

    Raises:
        ValueError: If the data are others and ``with_changes`` is off, or the checkpoint is
            damaged; the message names a whole one.
    """
    provenance = run_dir.read_provenance() or {}
    history = [r["result_changes"] for r in provenance.get("resumes", []) if r["result_changes"]]
    matter: dict[str, Any] = {
        k: [old, new] for k, (old, new, matters) in changed.items() if matters
    }
    matter.pop(ONLY_THE_END, None)
    before = provenance.get("dataset", {}).get("digest", dataset_digest)
    if before != dataset_digest:
        if not with_changes:
            raise ValueError(
                f"the run's data set has digest {before}, the one at hand {dataset_digest}; give "
                "the right one with data_dir=, or add resume_with_changes=true, which is recorded"
            )
        matter["dataset"] = [before, dataset_digest]
    if matter:
        matter["step"] = 0 if checkpoint is None else checkpoints.step_of(checkpoint)
        history.append(matter)
    return Resumption(
        loaded=None if checkpoint is None else checkpoints.load_to_resume(checkpoint),
        changes={key: (old, new) for key, (old, new, _) in changed.items()},
        result_changes=matter,
        history=history,
    )


def apply(resumption: Resumption, trainer: "Trainer", facts: dict[str, Any]) -> list[str]:
    """Puts a trainer where the checkpoint left off, and records that in the run.

    Args:
        resumption: What to go on from.
        trainer: As made for a new run, nothing trained.
        facts: What provenance records of this part of the run, ``backends`` among it.

    Returns:
        Lines for people.
    """
    run = trainer.run
    if resumption.loaded is not None:
        trainer.resume(*resumption.loaded)
    if not trainer.ranks.is_main:
        return []
    lines = [
        f"removed {path.name}, which a dying process had not finished"
        for path in checkpoints.remove_partial(run.path)
    ]
    lines += [f"set aside: {path}" for path in run.set_aside_after(resumption.step)]
    provenance = run.read_provenance()
    if provenance is None:
        run.write_provenance(facts)
    else:
        lines += [
            f"not bit for bit as an undisturbed run: {difference}"
            for difference in not_bitwise(provenance, {**code_and_machine(), **facts})
        ]
        run.add_resumption(
            {
                "from_step": resumption.step,
                "changes": resumption.changes,
                "result_changes": resumption.result_changes,
                **facts,
            }
        )
    run.write_config(replace(trainer.config, resume=None, resume_with_changes=False))
    return [*lines, f"going on after step {resumption.step}"]
