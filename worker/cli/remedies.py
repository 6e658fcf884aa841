"""What would help with a condition's reason: the tables of docs/reasons.md, which are the one place that says so.

The file is packaged beside this module (in the repository by a link), and read as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Remedy:
    """One row. `type` is the condition that the row's table is about, empty for a table about several."""

    kind: str
    type: str
    reason: str
    meaning: str
    help: str


def remedy(kind: str, type_: str, reason: str) -> Remedy | None:
    """The row for a reason on a condition of a kind. Rows that a kind shares stand under the kind read first."""
    rows = [row for row in _rows() if row.reason == reason]
    nearest = sorted(rows, key=lambda row: (row.kind != kind, row.type != type_, bool(row.type)))
    return nearest[0] if nearest else None


@cache
def _rows() -> tuple[Remedy, ...]:
    return parse((resources.files("worker.cli") / "reasons.md").read_text())


def parse(text: str) -> tuple[Remedy, ...]:
    """The rows of every table that has a column for a meaning and one for what to do."""
    rows: list[Remedy] = []
    kind, columns = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            kind, columns = line.lstrip("# "), []
        elif not line.startswith("|"):
            columns = []
        elif not columns:
            columns = _cells(line)
        elif "meaning" in columns and (named := re.match(r"\|\s*`(\w+)`", line)):
            cells = dict(zip(columns, _cells(line), strict=False))
            about = columns[0].strip("`")
            rows.append(
                Remedy(
                    kind=kind,
                    type=about if columns[0].startswith("`") else "",
                    reason=named[1],
                    meaning=cells["meaning"],
                    help=cells.get("what to do", ""),
                )
            )
            rows[-1] = _spelled_out(rows)
    return tuple(rows)


def _spelled_out(rows: list[Remedy]) -> Remedy:
    """The last row, with what it says of another one put in: "As `X`." and "The same." """
    row = rows[-1]
    if named := re.fullmatch(r"As `(\w+)`\.", row.meaning):
        other = next((each for each in reversed(rows[:-1]) if each.reason == named[1]), row)
        return Remedy(row.kind, row.type, row.reason, other.meaning, other.help)
    if row.help == "The same." and len(rows) > 1:
        return Remedy(row.kind, row.type, row.reason, row.meaning, rows[-2].help)
    return row


def _cells(line: str) -> list[str]:
    return [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell.strip()) for cell in line.strip().strip("|").split("|")]
