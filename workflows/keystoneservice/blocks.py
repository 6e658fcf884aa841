"""What both blocks of a registration share: which finding a block reports, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.scaffold import korc
from workflows.scaffold.child import Found, Standing
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import WAIT_SECONDS, Decision, Verdict, Write


def blocking(found: Sequence[Found]) -> Found | None:
    """What a block reports: the first of what stands worst, so that a terminal error comes before a wait."""
    worst_first = list(Standing)
    unready = [each for each in found if not each.ready]
    return min(unready, key=lambda each: worst_first.index(each.standing), default=None)


def said(
    plane: ControlPlane, blocker: Found, reasons: Mapping[Standing, str], waited_on: Sequence[Found]
) -> tuple[str, str, bool]:
    """Reason and message of what blocks a block, and whether K-ORC may end it within seconds.

    A wait on an External plane reads as the cause that K-ORC names, if it names one (contracts 5).
    """
    if blocker.standing not in (Standing.PROBING, Standing.WAITING):
        return reasons[blocker.standing], blocker.message, False
    classified = korc.classify_wait(plane, [each.child for each in waited_on if each.child is not None])
    if classified is not None:
        return (*classified, False)
    return reasons[blocker.standing], blocker.message, True


def writes(found: Sequence[Found]) -> tuple[Write, ...]:
    return tuple(write for each in found for write in each.do)


def held(swept: Removing, type_: str, reason: str) -> Decision | None:
    """The block waits while what was declared once is still being removed (contracts 4.3, 4.8)."""
    if not swept.left:
        return None
    message = f"{len(swept.left)} children that are not declared any more are being removed: {swept.left[0]}"
    return Decision(verdict=false(type_, reason, message), do=swept.do, stays=swept.stays)


def replaced(swept: Removing, was: str, type_: str, reason: str, fields: dict[str, Any]) -> Decision:
    """The block waits until the children are gone that stand for what it declared before."""
    message = f"The order declared {was} before, which goes first: {'; '.join(swept.left) or 'it is being looked at'}"
    return Decision(verdict=false(type_, reason, message), do=swept.do, fields=fields, stays=swept.stays)


def false(type_: str, reason: str, message: str, again: float | None = WAIT_SECONDS) -> Verdict:
    return Verdict(type=type_, status=False, reason=reason, message=message, again=again)
