"""Configuration dataclasses <-> plain values, strictly; the names and digest of what they set.

``digest`` names an arm: the sha256 of the result-changing settings that differ from their
defaults, so that a new setting whose default is the old behaviour changes no old digest.
"""

import dataclasses
import difflib
import hashlib
import json
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

MAX_FLOAT = sys.float_info.max
# A setting with this mark cannot change a result: paths, cadence, tracking, workers, seeds.
NOT_RESULT = {"result": False}


def require(condition: bool, message: str) -> None:
    """Raises ``ValueError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(message)


def from_dict(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Builds a configuration strictly from nested plain values.

    Args:
        cls: A dataclass of this module.
        values: Plain values as read from YAML; keys that are absent keep their defaults.
        prefix: Dotted name of ``values`` in messages, ending in a dot.

    Returns:
        The configuration.

    Raises:
        ValueError: Unknown key (with the nearest known one), wrong type, or impossible value.
    """
    hints = get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    arguments = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(unknown_key_message(prefix + key, [prefix + name for name in known]))
        arguments[key] = _convert(hints[key], value, prefix + key)
    return cls(**arguments)


def unknown_key_message(key: str, known: list[str]) -> str:
    """One line that names an unknown key and the nearest known one."""
    return f"unknown setting {key}{nearest(key, known)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` with the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _convert(hint: Any, value: Any, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a group of settings; got {value!r}")
        return from_dict(hint, value, key + ".")  # type: ignore[arg-type]
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if get_origin(option) is Literal:
            if value in get_args(option) and not isinstance(value, bool):
                return value
        elif option is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                if not abs(value) <= MAX_FLOAT:  # NaN too
                    raise ValueError(f"{key} must be finite; got {str(value)[:12]}")
                return float(value)
        elif isinstance(value, option) and (option is bool or not isinstance(value, bool)):
            return value
    expected = " or ".join(_describe(option) for option in options)
    choices = [choice for option in options for choice in get_args(option)]
    raise ValueError(f"{key} must be {expected}; got {value!r}{nearest(str(value), choices)}")


def _describe(option: Any) -> str:
    if get_origin(option) is Literal:
        return "one of " + ", ".join(get_args(option))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(option, "null")


def to_dict(config: Any) -> dict[str, Any]:
    """Nested plain values of a configuration, every setting present."""
    return dataclasses.asdict(config)


def leaf_keys(cls: type, prefix: str = "") -> list[str]:
    """Dotted names of all settings below ``cls``."""
    hints = get_type_hints(cls)
    keys: list[str] = []
    for f in dataclasses.fields(cls):
        hint = hints[f.name]
        nested = dataclasses.is_dataclass(hint)
        keys += leaf_keys(hint, f"{prefix}{f.name}.") if nested else [prefix + f.name]
    return keys


def result_settings(config: Any) -> dict[str, Any]:
    """The result-changing settings that differ from their defaults, by dotted name, sorted."""
    return dict(sorted(_result_settings(config, "").items()))


def _result_settings(config: Any, prefix: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        default = f.default if f.default is not MISSING else None
        if dataclasses.is_dataclass(value):
            settings.update(_result_settings(value, f"{prefix}{f.name}."))
        elif f.metadata.get("result", True) and value != default:
            settings[prefix + f.name] = value
    return settings


def changed_settings(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any, bool]]:
    """Settings that differ between two configurations of one class, by dotted name.

    Returns:
        Old value, new value, and whether the setting can change a result; the seed can.
    """
    changes: dict[str, tuple[Any, Any, bool]] = {}
    for f in dataclasses.fields(old):
        before, after = getattr(old, f.name), getattr(new, f.name)
        if dataclasses.is_dataclass(before):
            changes.update(changed_settings(before, after, f"{prefix}{f.name}."))
        elif before != after:
            matters = f.metadata.get("result", True) or f.name == "seed"
            changes[prefix + f.name] = (before, after, matters)
    return changes


def departures(config: Any, recipe: Any) -> dict[str, dict[str, Any]]:
    """Where a run departs from its recipe, in settings that can change a result (the seed apart).

    Returns:
        ``recipe`` and ``run``, the two values, by dotted name.
    """
    return {
        key: {"recipe": planned, "run": own}
        for key, (planned, own, matters) in changed_settings(recipe, config).items()
        if matters and key != "seed"
    }


def digest(config: Any) -> str:
    """Names the arm: sha256 of the canonical JSON of ``result_settings``, hexadecimal."""
    text = json.dumps(result_settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
