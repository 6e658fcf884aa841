"""The table that a run prints: by hand, ordered, how many times as much, and what it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line. A row without a limit is only told."""

    what: str
    by_hand: str
    ordered: str
    ratio: str
    limit: str
    kept: bool

    @classmethod
    def seconds(cls, what: str, by_hand: float, ordered: float, limit: float) -> Row:
        ratio = ordered / by_hand
        return cls(what, f"{by_hand:.2f} s", f"{ordered:.2f} s", f"{ratio:.2f}", f"{limit}", ratio <= limit)

    @classmethod
    def counted(cls, what: str, found: int, limit: int | None = None, by_hand: int | None = None) -> Row:
        beside = "" if by_hand is None else str(by_hand)
        return cls(what, beside, str(found), "", "" if limit is None else str(limit), limit is None or found <= limit)


def printed(rows: Sequence[Row]) -> str:
    head = ("", "by hand", "ordered", "ratio", "limit", "")
    lines = [head, *((r.what, r.by_hand, r.ordered, r.ratio, r.limit, "" if r.kept else "MISSED") for r in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width) if column == 0 else text.rjust(width) for column, (text, width) in
                  enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )  # fmt: skip
