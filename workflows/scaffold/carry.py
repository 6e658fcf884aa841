"""What a run says of itself: to the run after it, and to people who ask."""

from __future__ import annotations

from datetime import datetime

from workflows.api.meta import Model
from workflows.scaffold.steps import Task
from workflows.scaffold.verdict import Verdict


class Carry(Model):
    """What one run tells the next.

    late_until  until when a step that timed out, or was left behind, might still be writing
    bereft      what is to be taken down if the order is gone: it got its finalizer, and was not seen with it since
    """

    verdicts: tuple[Verdict, ...] = ()
    troubles: int = 0
    troubled_since: datetime | None = None
    late_until: datetime | None = None
    bereft: Task | None = None


class Described(Model):
    """What `describe` and `resync_now` answer: the verdicts of the last pass, and what is waited for.

    left  what a deletion waits for, in words
    """

    order: str
    phase: str
    verdicts: tuple[Verdict, ...] = ()
    ready: bool = False
    note: str = ""
    left: tuple[str, ...] = ()
    next_look_seconds: float | None = None
