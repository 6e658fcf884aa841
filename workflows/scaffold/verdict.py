"""A verdict: something that was found out about an order, as its conditions will say it. Data, never raised."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import Field

from workflows.api.meta import Model

MESSAGE_LIMIT = 32768
"""Bytes a condition's message may have (metav1.Condition)."""
_CUT = " […truncated]"

WAIT_SECONDS = 10.0
"""Next look while K-ORC, a store or a credential is waited for (contracts 4)."""
FROZEN_SECONDS = 60.0
"""Next look of an order without an assignment, and of a deletion held by references."""
REFRESH_SECONDS = 600.0
"""Next full pass of an order on a target cluster, and of a refusal that only an edit elsewhere cures."""


class Verdict(Model):
    """One condition's finding.

    type     condition type
    again    seconds until the next look by our own; None waits for a ring alone
    trouble  it could not be found out: after `again` a whole pass follows, not a look
    """

    type: str
    status: bool
    reason: str
    message: str
    again: float | None = None
    trouble: bool = False


class Outcome(Model):
    """What a step found: its verdicts, and the status fields it knows now. Fields it does not name are kept."""

    verdicts: tuple[Verdict, ...]
    fields: dict[str, Any] = Field(default_factory=dict)


class Act(Enum):
    """One write to a child, or for one."""

    CREATE = "create, unless an object has the name"
    APPLY = "apply"
    PATCH = "change"
    DELETE = "delete"
    CLAIM = "claim the identity"
    UNLATCH = "clear a latched transport error"
    DETACH = "let go of what was made of it"


class Write(Model):
    """A write that a judge wants. `namespace` and `name` are the child's; for a claim the Lease's name.

    exact  nobody may have written the object since it was read, or the write is refused
    """

    act: Act
    kind: str
    name: str
    namespace: str = ""
    body: dict[str, Any] = Field(default_factory=dict)
    exact: bool = False


class Decision(Model):
    """A judge's answer: how things stand, and the writes that would move them on.

    do     writes that may be made at the same time; the judge is asked again after them
    stays  K-ORC may answer within seconds, so a step that has just written waits for it
    """

    verdict: Verdict
    do: tuple[Write, ...] = ()
    fields: dict[str, Any] = Field(default_factory=dict)
    stays: bool = False

    @property
    def outcome(self) -> Outcome:
        return Outcome(verdicts=(self.verdict,), fields=self.fields)


def cut(message: str) -> str:
    """The message, cut to `MESSAGE_LIMIT` bytes on a character boundary, saying so."""
    raw = message.encode()
    if len(raw) <= MESSAGE_LIMIT:
        return message
    return raw[: MESSAGE_LIMIT - len(_CUT.encode())].decode(errors="ignore") + _CUT
