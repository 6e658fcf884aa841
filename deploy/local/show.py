"""Shows a person how far each part is: a live table on a terminal, plain lines anywhere else.

Plain lines come only when a part's state changes, or its detail after a while: a build log in CI stays readable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

COLOURS = {"ready": "green", "failed": "red", "waiting": "dim", "stopped": "dim"}
QUIET_SECONDS = 15


class Shown:
    """A `Progress`: call it with (part, state, detail)."""

    def __init__(self, console: Console, live: bool) -> None:
        self.console, self.live = console, live
        self.rows: dict[str, tuple[str, str, float]] = {}
        self.printed: dict[str, tuple[str, str, float]] = {}
        self.began = time.monotonic()

    def __call__(self, part: str, state: str, detail: str) -> None:
        now = time.monotonic()
        before = self.rows.get(part)
        since = before[2] if before and before[0] == state else now
        self.rows[part] = (state, detail, since)
        if not self.live:
            last_state, last_detail, last_time = self.printed.get(part, ("", "", 0.0))
            if state != last_state or (detail and not last_detail) or now - last_time > QUIET_SECONDS:
                self.printed[part] = (state, detail, now)
                print(f"{now - self.began:6.1f} s  {part:22} {state} {detail}".rstrip(), flush=True)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self.live:
            self.console.print(text)
        else:
            print(text, flush=True)

    def __rich__(self) -> Table:
        table = Table(box=None, padding=(0, 1), show_header=False)
        now = time.monotonic()
        for part, (state, detail, since) in self.rows.items():
            colour = COLOURS.get(state, "yellow")
            # A part that is done shows when it was done, one that is busy for how long.
            passed = since - self.began if state in ("ready", "stopped") else now - since
            first = detail.splitlines()[0] if detail else ""
            table.add_row(part, f"[{colour}]{state}[/]", f"{passed:5.0f} s", first[:90])
        return table


@contextmanager
def shown() -> Iterator[Shown]:
    """While the block runs, progress is on the screen."""
    console = Console()
    table = Shown(console, console.is_terminal)
    if not table.live:
        yield table
        return
    with Live(table, console=console, refresh_per_second=4):
        yield table
