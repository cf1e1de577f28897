"""Published checkpoints and evaluation files: read, written, voted on.

A published checkpoint is a file ``step_N``, the state dict as ``torch.save`` writes it, with
``all_config.yaml`` beside it.  HRM's and TRM's are the same in form.

**Source**: HRM @42410da and TRM @e7b6871: ``pretrain.py``, ``evaluate.py``, ``config/arch``.
"""

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

import hrm_deeploop
from arc_data.compiled import BLANK_NAME, CompiledDataset
from arc_data.json_files import read_json
from arc_data.sources import SOURCE_NAMES
from eval.ladder import Ballots, dataset_name
from eval.published_votes import PublishedVotes
from hrm_deeploop import checkpoint as checkpoints
from hrm_deeploop.config import ArchConfig, DataConfig, OptimConfig, TrainConfig
from hrm_deeploop.reasoner import TABLE_PREFIX, Reasoner
from hrm_deeploop.run_dir import describe_arm
from hrm_deeploop.scaling import resolve
from hrm_deeploop.settings import from_dict, to_dict

CONFIG_FILE = "all_config.yaml"
KEY_PREFIX = "model.inner."
COMPILED_PREFIX = "_orig_mod."
TABLE = TABLE_PREFIX + "weights"
STATE_KEYS = ("H_init", "L_init")  # stored in the compute dtype
HRM_NAME = "hrm.hrm_act_v1@HierarchicalReasoningModel_ACTV1"
TRM_NAME = "recursive_reasoning.trm@TinyRecursiveReasoningModel_ACTV1"
LOSS_SUFFIX = "_cross_entropy"
TRM_EMA_RATE = 0.999  # the published default
CHUNK_ROWS = 4096
"""Rows of logits taken at once: 12 GB of them are never in memory together."""

_SAME_ARCH_KEYS = (
    "halt_exploration_prob",
    "halt_max_steps",
    "H_cycles",
    "L_cycles",
    "H_layers",
    "L_layers",
    "hidden_size",
    "num_heads",
    "expansion",
    "puzzle_emb_ndim",
    "puzzle_emb_len",
    "pos_encodings",
    "rope_theta",
    "rms_norm_eps",
    "forward_dtype",
)
_OTHER_ARCH_KEYS = ("name", "loss", "mlp_t", "no_ACT_continue")
_SAME_OPTIM_KEYS = (
    "global_batch_size",
    "lr",
    "lr_min_ratio",
    "lr_warmup_steps",
    "weight_decay",
    "beta1",
    "beta2",
    "puzzle_emb_lr",
    "puzzle_emb_weight_decay",
)
_UNREADABLE = (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError)


def import_checkpoint(path: Path, dataset: CompiledDataset, data_dir: Path, out: Path) -> Path:
    """Converts a published checkpoint into a run directory with one checkpoint.

    Args:
        path: The file ``step_N``; ``all_config.yaml`` stands beside it.
        dataset: The data set it was trained on, in its order of puzzle ids. That the *number* of
            ids agrees is checked; their order cannot be, a published file does not say it.
        data_dir: Where the data set is, for later commands.
        out: The folder to make, which must not exist.

    Returns:
        The checkpoint's folder.

    Raises:
        FileExistsError: If ``out`` exists.
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, a setting is unknown, the number of puzzle ids is
            another one, or a weight has another name or shape.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; give a new folder with --out")
    step = _step(path)
    config = read_config(path.parent / CONFIG_FILE)
    tensors = read_tensors(path)
    num_rows = len(tensors[TABLE]) if TABLE in tensors else 0
    if num_rows != dataset.num_puzzle_identifiers:
        raise ValueError(
            f"{path} has {num_rows} puzzle ids, the data set {dataset.num_puzzle_identifiers};"
            " use the data set the checkpoint was trained on"
        )
    config = replace(config, data=_data_config(dataset), data_dir=str(data_dir.resolve()))
    reasoner = Reasoner(config, dataset.canvas, num_rows)
    reasoner.load_tensors(tensors)  # checks every name and shape
    name = f"published-{'trm' if config.arch.share_levels else 'hrm'}"
    examples = config.epochs * dataset.train.num_groups * _mean_examples(dataset)
    meta = {
        "hrm_deeploop": hrm_deeploop.__version__,
        "config": to_dict(config),
        "seed": config.seed,
        # The published trainer drops short batches, so its last step comes a little before this.
        "final_step": int(examples / config.optim.global_batch_size),
        "run": out.name,
        "arm": describe_arm(config, name, resolve(config.residual, config.arch).as_dict()),
        "canvas": dataset.canvas,
        "num_puzzle_identifiers": num_rows,
        "dataset": {
            "name": dataset_name(dataset),
            "digest": dataset.digest,
            "tasks": dataset.manifest["tasks"],
        },
    }
    return checkpoints.save(
        out / "checkpoints", step=step, tensors=reasoner.tensors(), state={}, meta=meta
    )


def export_checkpoint(path: Path, out: Path) -> Path:
    """Writes a checkpoint in the published format: ``step_N`` and ``all_config.yaml``.

    Averaged weights are written where there are any, as published for TRM.

    Args:
        path: A checkpoint, or a run directory (its newest checkpoint).
        out: The folder to make, which must not exist.

    Returns:
        The file ``step_N``.

    Raises:
        FileExistsError: If ``out`` exists.
        FileNotFoundError: If there is no checkpoint.
        ValueError: If it is damaged, or the published code would compute something else with it.
    """
    import yaml

    if out.exists():
        raise FileExistsError(f"{out} exists; give a new folder with --out")
    checkpoint = checkpoints.load(path)
    reasoner = Reasoner.from_checkpoint(checkpoint)
    config = reasoner.config
    scales = resolve(config.residual, config.arch)
    for level, scale in (("H", scales.H), ("L", scales.L)):
        if scale.alpha != 1:
            raise ValueError(
                f"{checkpoint.path}: residual.{level}.alpha is {scale.alpha:g}, and the published"
                " code knows only 1: it would compute something else without a word"
            )
    dtype = reasoner.model.compute_dtype
    state = {
        KEY_PREFIX + key: (value.to(dtype) if key in STATE_KEYS else value).contiguous().clone()
        for key, value in reasoner.tensors().items()
    }
    out.mkdir(parents=True)
    file = out / f"step_{checkpoint.meta['step']}"
    torch.save(state, file)
    text = yaml.safe_dump(_published_config(config), sort_keys=False)
    (out / CONFIG_FILE).write_text(text, encoding="utf-8")
    return file


def read_config(path: Path) -> TrainConfig:
    """Reads ``all_config.yaml``.

    Args:
        path: The file.

    Returns:
        What this project calls the same settings; data settings are the defaults.

    Raises:
        FileNotFoundError: If it is missing.
        ValueError: If it is no YAML, or a setting of the architecture is unknown or impossible.
    """
    import yaml

    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected beside the checkpoint, found no file; copy it")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: expected YAML, found {reason}; copy it again") from error
    if not isinstance(values, dict) or not isinstance(values.get("arch"), dict):
        raise ValueError(f"{path}: expected settings with a group arch, found none; copy it again")
    arch = values["arch"]
    for key in sorted(arch.keys() - {*_SAME_ARCH_KEYS, *_OTHER_ARCH_KEYS}):
        raise ValueError(f"{path}: unknown setting arch.{key}; this model has no such option")
    if arch.get("mlp_t"):
        raise ValueError(f"{path}: arch.mlp_t must be false, found true; it is not supported")
    is_trm = arch.get("H_layers") == 0
    group = arch.get("loss")
    if not isinstance(group, dict) or not isinstance(group.get("loss_type"), str):
        raise ValueError(f"{path}: arch.loss.loss_type must be a name, found {group!r}; add it")
    optim = {key: values[key] for key in _SAME_OPTIM_KEYS if key in values}
    if values.get("ema"):
        optim["ema"] = values.get("ema_rate", TRM_EMA_RATE)
    own = {
        "arch": {
            **{key: arch[key] for key in _SAME_ARCH_KEYS if key in arch},
            "loss": group["loss_type"].removesuffix(LOSS_SUFFIX),
            "share_levels": is_trm,
            "grad_scope": "last_cycle" if is_trm else "last_step",
            "q_continue": not arch.get("no_ACT_continue", is_trm),
        },
        "optim": optim,
        **{key: values[key] for key in ("seed", "epochs") if key in values},
    }
    try:
        return from_dict(TrainConfig, own)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads the weights of a published checkpoint under this project's names, on the CPU.

    Args:
        path: The file ``step_N``; nothing in it but tensors is ever loaded.

    Raises:
        FileNotFoundError: If it is missing.
        ValueError: If it is damaged, or holds anything but named tensors.
    """
    state = _load(path)
    if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()):
        raise ValueError(f"{path}: expected named tensors only, found others; give a step_N file")
    tensors = {}
    for key, value in state.items():
        name = key.removeprefix(COMPILED_PREFIX)
        if not name.startswith(KEY_PREFIX):
            raise ValueError(
                f"{path}: expected names that start with {KEY_PREFIX}, found {key!r}; give the"
                " checkpoint of a published HRM or TRM"
            )
        tensors[name.removeprefix(KEY_PREFIX)] = value
    return tensors


def read_all_preds(
    paths: Sequence[Path], dataset: CompiledDataset, identifiers: Path | None = None
) -> Ballots:
    """Reads the files that the published evaluation writes, one per rank, as votes.

    Args:
        paths: ``step_N_all_preds.RANK`` files of one evaluation.
        dataset: The data set: test pairs are found by their undone inputs.
        identifiers: ``identifiers.json`` of the data folder the evaluation read; None: the data
            set's own names.

    Returns:
        The votes; ``partial`` if fewer than all variants are there.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, an identifier has no name, or a row belongs to no test
            pair of the data set.
    """
    names = dataset.identifiers() if identifiers is None else read_json(identifiers)
    if not isinstance(names, list) or names[:1] != [BLANK_NAME]:
        raise ValueError(
            f"{identifiers}: expected a list of names with {BLANK_NAME} first, found something"
            " else; give the identifiers.json of the data folder"
        )
    collected = PublishedVotes(dataset.test_inputs())
    for path in sorted(paths, key=_rank):
        first_row = 0
        for rows in _all_preds_rows(path, names):
            collected.add(*rows, origin=f"{path}: ", first_row=first_row)
            first_row += len(rows[0])
    votes = collected.votes()
    return Ballots(
        votes=votes,
        truth=dataset.truth(),
        sources=[],
        partial=len(votes) < dataset.test.num_examples,
        halting="fixed",
        puzzle_id="right",
        num_aug=dataset.num_aug,
    )


def _all_preds_rows(
    path: Path, names: Sequence[str]
) -> Iterator[tuple[list[str], NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Yields names, input tokens, predicted tokens and halting logits, some rows at a time."""
    found = _load(path, mmap=True)
    keys = ("inputs", "puzzle_identifiers", "logits", "q_halt_logits")
    for key in keys:
        if not isinstance(found.get(key), Tensor) or len(found[key]) != len(found["inputs"]):
            raise ValueError(
                f"{path}: expected tensors {', '.join(keys)} of equal length, found none such for"
                f" {key}; evaluate with these in eval_save_outputs"
            )
    for start in range(0, len(found["inputs"]), CHUNK_ROWS):
        inputs, ids, logits, halt = (found[key][start : start + CHUNK_ROWS] for key in keys)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(names):
            raise ValueError(
                f"{path}: puzzle identifiers must be in 0..{len(names) - 1}, found {int(ids.min())}"
                f"..{int(ids.max())}; use the data set it was made on, or --identifiers"
            )
        yield (
            [names[i] for i in ids.tolist()],
            inputs.numpy(),
            logits.argmax(-1).to(torch.uint8).numpy(),
            halt.float().numpy(),
        )


def _load(path: Path, *, mmap: bool = False) -> dict[Any, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except _UNREADABLE as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no data"
        raise ValueError(
            f"{path}: expected a whole torch.save file of tensors, found {reason}; copy it again"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(
            f"{path}: expected a dict of tensors, found {type(content).__name__}; give another file"
        )
    return dict(content)


def _step(path: Path) -> int:
    match = re.fullmatch(r"step_(\d+)", path.name)
    if match is None:
        raise ValueError(f"{path}: a published checkpoint is named step_N; rename it")
    return int(match[1])


def _rank(path: Path) -> tuple[int, str]:
    last = path.name.rpartition(".")[2]
    return (int(last) if last.isdecimal() else 0, path.name)


def _mean_examples(dataset: CompiledDataset) -> float:
    return dataset.train.num_examples / len(dataset.train.puzzle_identifiers)


def _data_config(dataset: CompiledDataset) -> DataConfig:
    """The data settings that build the data set, where it is one of the known ones."""
    sources = tuple(source["name"] for source in dataset.manifest["sources"])
    known = [name for name, parts in SOURCE_NAMES.items() if tuple(parts) == sources]
    fields = {"num_aug": dataset.num_aug, "canvas": dataset.canvas, "protocol": dataset.protocol}
    if dataset.seed is not None:
        fields["seed"] = dataset.seed
    return from_dict(DataConfig, {**fields, "name": known[0] if known else "folder"})


def _published_config(config: TrainConfig) -> dict[str, Any]:
    arch: ArchConfig = config.arch
    optim: OptimConfig = config.optim
    own = asdict(arch)
    own["puzzle_emb_ndim"] = arch.puzzle_row_size
    group: dict[str, Any] = {
        "name": TRM_NAME if arch.share_levels else HRM_NAME,
        "loss": {"name": "losses@ACTLossHead", "loss_type": arch.loss + LOSS_SUFFIX},
        **{key: own[key] for key in _SAME_ARCH_KEYS if own[key] is not None},
    }
    if arch.share_levels:
        group |= {"mlp_t": False, "no_ACT_continue": not arch.q_continue}
    top: dict[str, Any] = {
        "arch": group,
        "data_path": config.resolved_data_dir,
        "epochs": config.epochs,
        "seed": config.seed,
        **{key: getattr(optim, key) for key in _SAME_OPTIM_KEYS},
    }
    if optim.ema is not None:
        top |= {"ema": True, "ema_rate": optim.ema}
    return top
