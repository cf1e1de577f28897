"""One results.json of a run, and what its kind is: the schema, and what sigma must know of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FINAL, BEST_ON_TEST = "final", "best-on-test"
TEXT = (str, type(None))
COMMON_FIELDS: dict[str, tuple[type, ...]] = {
    "split": (str,),
    "dataset.manifest_sha256": (str,),
    "checkpoint.step": (int, type(None)),
    "checkpoint.weights": TEXT,
    "checkpoint.rule": TEXT,
    "seed": (int, type(None)),
    "arm.name": TEXT,
    "arm.digest": TEXT,
}
"""What results of every kind have."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One results.json, read and checked."""

    path: Path
    content: dict[str, Any]
    """What the file holds."""
    kind: "Kind"
    rule: str | None
    """The checkpoint's rule: final, ``step N``, best-on-test; None for a foreign solver."""
    run_dir: Path | None = None
    """The run it belongs to, if any."""
    state: str | None = None
    """That run's state, see ``run_status``; None where no status.json says it."""

    def field(self, name: str) -> Any:
        """The value at a dotted name; its presence was checked by ``sigma_inputs.read_result``."""
        value: Any = self.content
        for key in name.split("."):
            value = value[key]
        return value


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What tells results of one schema from others, for reading, checking and comparing them."""

    schema: str
    fields: Mapping[str, tuple[type, ...]]
    """Dotted name -> types, beyond ``COMMON_FIELDS``."""
    check: Callable[[Mapping[str, Any], Path], None]
    """Refuses content, whose fields have their types, that says something impossible."""
    conditions: Callable[[RunResult], dict[str, Any]]
    """The values that must agree between results, by name."""
    partial: str
    """The field that says whether something was left out, and ..."""
    whole: str
    """... what to evaluate instead."""
    description: tuple[str, ...]
    """What of the results' ``arm`` describes it, beside name and digest."""
    rating: Callable[[RunResult], float]
    """What is best at the best-on-test checkpoint; more is better."""
    chosen: str
    """What a choice by that rating means, for a warning."""


def lookup(content: Mapping[str, Any], name: str, path: Path) -> Any:
    """The value at a dotted name.

    Args:
        content: Of a results.json.
        name: Keys joined by dots.
        path: The file, for the message.

    Raises:
        ValueError: If there is none.
    """
    value: Any = content
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"{path}: {name} is missing; evaluate the run again")
        value = value[key]
    return value


def must_have(content: Mapping[str, Any], fields: Mapping[str, Any], path: Path) -> None:
    """Refuses content in which a field is missing or of another type; ``bool`` is no ``int``."""
    for name, types in fields.items():
        value = lookup(content, name, path)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
            raise ValueError(
                f"{path}: {name} must be {names}, found {str(value)[:60]!r}; evaluate again"
            )
