"""Overrides on the command line -> hydra configuration -> a strict ``TrainConfig``.

Keys and group choices are checked here before hydra sees them, so that a mistake gets one line
with the nearest name, and paths are set after hydra is done, so that any character works in them.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hrm_deeploop.config import PATH_KEYS, ArchConfig, TrainConfig
from hrm_deeploop.gamma_file import read_gammas
from hrm_deeploop.settings import from_dict, leaf_keys, nearest, to_dict, unknown_key_message

GROUPS = ("arch", "residual", "data", "optim", "hardware", "tracking", "experiment")


def compose(overrides: Sequence[str]) -> TrainConfig:
    """Composes configs/train.yaml with overrides.

    Args:
        overrides: ``key=value`` each; a key is a setting's dotted name or a group.

    Returns:
        The validated configuration.

    Raises:
        ValueError: If an override is malformed, unknown or impossible.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    given: dict[str, str] = {}
    paths: dict[str, str] = {}
    ours: list[str] = []
    for key, value, override in _split_all(overrides):
        given[key] = value
        if key in PATH_KEYS:
            paths[key] = value
        else:
            _check_grammar(override)
            ours.append(override)
    ConfigStore.instance().store("defaults", to_dict(TrainConfig()))
    try:
        with initialize_config_module("configs", version_base="1.3"):
            composed = hydra_compose("train", ours)
        values: Any = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ValueError(f"cannot read the overrides {' '.join(ours)}: {first_line}") from error
    values["experiment"] = given.get("experiment")
    for key, path in paths.items():
        _set(values, key, path or None)
    if values["residual"]["gamma_file"] is not None:
        _set_gammas(values)
    return from_dict(TrainConfig, values)


def _set_gammas(values: Any) -> None:
    """Reads the kappa probe's file once: a run keeps the numbers, whatever becomes of the file."""
    residual, path = values["residual"], Path(values["residual"]["gamma_file"])
    gammas = read_gammas(path, from_dict(ArchConfig, values["arch"], "arch."))
    for level, gamma in gammas.items():
        own = residual[level]
        if own["gamma"] is not None:
            raise ValueError(
                f"residual.{level}.gamma={own['gamma']} and residual.gamma_file={path} exclude "
                "each other; give one of them"
            )
        if (own["preset"] or residual["preset"]) == "measured" and own["p"] is None:
            own["gamma"] = gamma


def override_saved(saved: TrainConfig, overrides: Sequence[str]) -> TrainConfig:
    """A run's own configuration with single settings changed, for going on with it.

    Args:
        saved: What the run's config.yaml says.
        overrides: ``key=value`` each, without groups: a group would undo other settings.

    Raises:
        ValueError: As for ``compose``, and for a group.
    """
    values = to_dict(saved)
    values["resume_with_changes"] = False  # holds for one resumption only
    for key, text, override in _split_all(overrides):
        if key in GROUPS:
            raise ValueError(
                f"{override} cannot be combined with resume=: the run keeps its own configuration; "
                "change single settings"
            )
        if key == "residual.gamma_file":
            raise ValueError(
                f"{override} cannot be combined with resume=: the run keeps the gammas that it "
                "began with"
            )
        value = (text or None) if key in PATH_KEYS else _check_grammar(override)
        _set(values, key, value)
    return from_dict(TrainConfig, values)


def _set(values: Any, key: str, value: Any) -> None:
    *groups, leaf = key.split(".")
    for group in groups:
        values = values[group]
    values[leaf] = value


def _split_all(overrides: Sequence[str]) -> list[tuple[str, str, str]]:
    """Key, value and whole text of each override."""
    given: dict[str, str] = {}
    for override in overrides:
        key, value = _split(override)
        if key in given:
            raise ValueError(f"{key} is given twice: {given[key]!r} and {value!r}")
        given[key] = value
    return [(key, value, o) for (key, value), o in zip(given.items(), overrides, strict=True)]


def _split(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise ValueError(f"expected key=value; got {override!r}")
    known = [*leaf_keys(TrainConfig), *GROUPS]
    bare = key.lstrip("+~")
    if bare not in known:
        raise ValueError(unknown_key_message(bare, known))
    if bare != key:
        raise ValueError(f"write {bare}={value}, without {key[: len(key) - len(bare)]}")
    if key in GROUPS:
        choices = group_choices(key)
        if value not in choices:
            raise ValueError(
                f"unknown {key} {value!r}; choose from {', '.join(choices)}"
                f"{nearest(value, choices)}"
            )
    return key, value


def _check_grammar(override: str) -> Any:
    """The value of a well-formed override."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"cannot read {override}: {reason}") from error
    if parsed.is_sweep_override():
        raise ValueError(f"{override} gives several values; a run takes one")
    return parsed.value()


def group_choices(group: str) -> list[str]:
    """Names of a group's files, sorted."""
    folder = resources.files("configs") / group
    names = [file.name for file in folder.iterdir() if file.name.endswith(".yaml")]
    return sorted(n.removesuffix(".yaml") for n in names if not n.endswith("_common.yaml"))
