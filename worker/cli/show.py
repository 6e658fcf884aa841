"""How it looks: tables for people, fitted to a terminal and whole anywhere else, and JSON for machines.

Whatever comes from a cluster is text, never markup or a terminal's control sequence.
"""

from __future__ import annotations

import os
import re
import sys

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.cli.orders import Listed, age
from worker.cli.reach import MANAGEMENT

_UNCUT = 100_000
_WIDE = 120
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "True": "green", "False": "yellow"}


def console() -> Console:
    """Stdout: as wide as the terminal, or COLUMNS; into a pipe or a file nothing is cut and nothing coloured."""
    told = os.environ.get("COLUMNS", "")
    width = int(told) if told.isdigit() else None if sys.stdout.isatty() else _UNCUT
    return Console(width=width, highlight=False, markup=False, soft_wrap=False)


def json(model: BaseModel) -> None:
    """The documented shape: camel-cased, every field, in one object."""
    print(model.model_dump_json(by_alias=True, indent=2))


def complain(text: str) -> None:
    print(plain(text), file=sys.stderr)


def plain(text: str) -> str:
    """Without control characters, on one line: words of a cluster's must not move a terminal's cursor."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()


def said(text: str, style: str = "") -> Text:
    return Text(plain(text), style=style or COLOURS.get(text, ""))


def beside(out: Console, text: str, more: str) -> Text:
    """Both in one cell: on one line where there is room for it, else one below the other."""
    return said(text).append(f"{'  ' if out.width >= _WIDE else chr(10)}{plain(more)}" if more else "")


def put(out: Console, table: Table) -> None:
    """Prints a table, without the blanks that fill its last column up."""
    with out.capture() as lines:
        out.print(table)
    out.file.write("".join(f"{line.rstrip()}\n" for line in lines.get().splitlines()))


def grid(*titles: str, last: str | None = None, fold: bool = False) -> Table:
    """A table without lines. `last` is a column that takes what is left: cut there, or with `fold` told in full."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=bool(any(titles)))
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    if last is not None:
        table.add_column(last, no_wrap=not fold, overflow="fold" if fold else "ellipsis", ratio=1)
    return table


def orders(out: Console, found: Listed) -> None:
    """The list, a line an order. A narrow terminal leaves plane and message out, and cuts names before words."""
    wide = out.width >= _WIDE
    table = grid(
        "KIND", "ORDER", "READY", "REASON", "AGE", *(("PLANE",) if wide else ()), last="MESSAGE" if wide else None
    )
    table.expand = wide and out.width < _UNCUT
    for column in table.columns:
        column.no_wrap = wide or column.header not in ("ORDER", "REASON")
    for order in found.orders:
        place = f"{order.namespace}/{order.name}" + (f"@{order.cluster}" if order.cluster != MANAGEMENT else "")
        cells = [order.kind, place, str(order.ready), order.reason, age(order.created)]
        cells += [order.control_plane, "" if order.ready else order.message] if wide else []
        table.add_row(*map(said, cells))
    if found.orders:
        put(out, table)
    else:
        out.print("no orders")
