"""Cells, tables and notes of sigma's plain texts, whatever is measured."""

from collections.abc import Mapping, Sequence
from typing import Any

UNDEFINED = "undefined"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as aligned columns, two blanks apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits after the point."""
    return UNDEFINED if value is None else f"{value:z.{digits}f}"


def probability(p: float | None) -> str:
    """A p value with 4 digits, never as 0."""
    return "<0.0001" if p is not None and p < 5e-5 else number(p, 4)


def signed(value: float, digits: int = 2) -> str:
    """A difference; ``-0`` has no minus."""
    return f"{value:+z.{digits}f}"


def bracketed(interval: Sequence[float] | None, digits: int = 2) -> str:
    """Both ends of an interval."""
    if interval is None:
        return UNDEFINED
    return f"[{interval[0]:z.{digits}f}, {interval[1]:z.{digits}f}]"


def listed(values: Sequence[Any]) -> str:
    """Values in a row."""
    return ", ".join("-" if value is None else str(value) for value in values)


def fact(value: Any) -> str:
    """A condition's value, or those that differ."""
    if isinstance(value, Mapping):
        return " / ".join(map(fact, value["differs"]))
    return "-" if value is None else str(value)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Everything that takes from a report, as at most one paragraph."""
    lines = [f"WARNING: {warning}" for warning in summary["warnings"]]
    for run in summary["unfinished"]:
        who = "" if run["seed"] is None else f" (arm {run['arm'] or 'unknown'}, seed {run['seed']})"
        lines.append(f"not counted: {run['path']}{who} is {run['state']}: {run['why']}")
    lines += [
        f"missing seeds of {arm['label']}: {listed(arm['missing_seeds'])}; n is {len(arm['seeds'])}"
        for arm in summary["arms"]
        if arm["missing_seeds"]
    ]
    return ["\n".join(lines)] if lines else []


def flips(found: Mapping[str, Any]) -> str:
    """What the sign-flip test of paired differences is."""
    test = found["sign_flip"]
    how = "all patterns" if test["exact"] else f"random, seed {test['seed']}"
    if found["n"] == 1:
        return "sign-flip test: undefined with one pair"
    return (
        f"sign-flip test: {test['num_flips']} patterns ({how}); with {found['n']} seeds p cannot"
        f" go below {test['smallest_p']:.3g}"
    )


def markdown(
    tables: Sequence[Sequence[Sequence[str]]], paragraphs: Sequence[str], words: Sequence[str]
) -> str:
    """Markdown tables, what is to be said below, the closing sentences last.

    Args:
        tables: The head and the body of each, rows of equal length.
        paragraphs: Lines of each are kept.
        words: Sentences.
    """
    body = [text.replace("\n", "  \n") for text in (*paragraphs, " ".join(words))]
    return "\n\n".join([*map(_markdown_table, tables), *body]) + "\n"


def _markdown_table(rows: Sequence[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    lines.insert(1, f"|{' --- |' * len(rows[0])}")
    return "\n".join(lines)
