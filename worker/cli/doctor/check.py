"""What a check answers, and how a question that could not be put is told apart from a bad answer."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum

from activities.errors import ClusterError
from workflows.api.meta import Model

ASK = "ask as somebody who may"


class State(Enum):
    """warn: it works, or it cannot be told from here; fail: somebody has to do something."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Model):
    """One line. `area` groups them; `remedy` is empty when nothing is to be done, or when the text says it."""

    area: str
    state: State
    text: str
    remedy: str = ""


class Diagnosis(Model):
    """Everything that was checked; `healthy` when nothing failed."""

    healthy: bool
    checks: tuple[Check, ...]


def ok(area: str, text: str) -> Check:
    return Check(area=area, state=State.OK, text=text)


def warn(area: str, text: str, remedy: str = "") -> Check:
    return Check(area=area, state=State.WARN, text=text, remedy=remedy)


def fail(area: str, text: str, remedy: str = "") -> Check:
    return Check(area=area, state=State.FAIL, text=text, remedy=remedy)


async def asked(area: str, checking: Awaitable[list[Check]]) -> list[Check]:
    """A cluster that refuses or does not answer leaves its checks open, and the others go on."""
    try:
        return await checking
    except ClusterError as error:
        if error.status == 403:
            return [warn(area, f"you may not look: {error}", ASK)]
        return [fail(area, str(error), "see that the API server answers")]
