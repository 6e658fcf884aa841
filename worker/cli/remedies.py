"""What would help with a condition's reason: the tables of docs/reasons.md, which are the one place that says so.

The file is packaged beside this module (in the repository by a link), and read as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Remedy:
    """One row. `types` are the conditions that its table is about, none for a table about all."""

    kind: str
    types: tuple[str, ...]
    reason: str
    meaning: str
    help: str


def remedy(kind: str, type_: str, reason: str) -> Remedy | None:
    """The row for a reason on a condition of a kind. Where a kind says nothing of its own, another's row holds."""
    rows = [row for row in _rows() if row.reason == reason]
    return min(rows, key=lambda row: (row.kind != kind, type_ not in row.types, bool(row.types)), default=None)


@cache
def _rows() -> tuple[Remedy, ...]:
    return parse((resources.files("worker.cli") / "reasons.md").read_text())


def parse(text: str) -> tuple[Remedy, ...]:
    """The rows of every table that has a column for a meaning.

    A heading names the kind, one below it (or the table's first column) the conditions.
    """
    rows: list[Remedy] = []
    kind, types, columns = "", tuple[str, ...](), list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            kind, types = line.removeprefix("## "), ()
        elif line.startswith("### "):
            types = _quoted(line)
        elif not line.startswith("|"):
            columns = []
        elif not columns:
            columns = _cells(line)
        elif "meaning" in columns and (named := _quoted(_cells(line)[0])):
            cells = dict(zip(columns, _cells(line), strict=False))
            row = Remedy(kind, _quoted(columns[0]) or types, named[0], cells["meaning"], cells.get("what to do", ""))
            rows.append(_spelled_out(row, rows))
    return tuple(rows)


def _spelled_out(row: Remedy, before: list[Remedy]) -> Remedy:
    """A row with what it says of another one put in: "As `X`." and "The same." """
    if named := re.fullmatch(r"As `(\w+)`\.", row.meaning):
        other = next((each for each in reversed(before) if each.reason == named[1]), row)
        return replace(row, meaning=other.meaning, help=other.help)
    return replace(row, help=before[-1].help) if row.help == "The same." and before else row


def _quoted(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(\w+)`", text))


def _cells(line: str) -> list[str]:
    """The cells of a table's line, of a link only its words."""
    return [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell.strip()) for cell in line.strip().strip("|").split("|")]
