"""What orders there are and how they stand, of what the streams have said anyway: no number costs a request.

Labels are closed sets, whatever somebody may write into a status. What is deleted counts from its deletion on, as long
as it carries our finalizer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from activities.cluster import ORDER_KINDS, Object
from watcher import changes, metrics
from workflows.keystoneproject import reasons as project
from workflows.keystoneservice import reasons as service
from workflows.mariadbdatabase import reasons as database
from workflows.scaffold import gates, korc, steps
from workflows.scaffold.conditions import ALL_READY, NOT_ALL_READY
from workflows.scaffold.order import OrderRef

CONDITIONS: Mapping[str, tuple[str, ...]] = {
    "KeystoneProject": project.CONDITIONS,
    "KeystoneService": service.CONDITIONS,
    "MariaDBDatabase": database.CONDITIONS,
}
HOLDS = frozenset({project.REFERENCED_BY_ASSIGNMENTS, project.REFERENCED_BY_CREDENTIALS})
"""Why a deletion has not begun; any other is under way, whatever was reported before it."""
DELETING = "Deleting"
NOT_OBSERVED = "NotObserved"
"""Of an order, as it is written now, nobody has reported anything."""
OTHER = "Other"
REASONS = frozenset(
    value
    for module in (project, service, database, gates)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
) | {*korc.CLASSES, steps.TRANSPORT_RETRY_FAILED, ALL_READY, NOT_ALL_READY, DELETING, NOT_OBSERVED}


class Standing(NamedTuple):
    """How an order stands, and since when (epoch seconds) it is not Ready, or being deleted."""

    ready: bool
    deleting: bool
    reason: str
    since: float


class Census:
    """The orders there are. Whoever hears of one says so here."""

    def __init__(self) -> None:
        self._standing: dict[OrderRef, Standing] = {}
        self._begun: dict[OrderRef, float] = {}

    def put(self, ref: OrderRef, found: Object) -> None:
        before = self._standing.get(ref)
        now = self._standing[ref] = standing(ref.kind, found, before)
        if before is None and now.reason == NOT_OBSERVED and not _condition(found, "Ready"):
            # A new one. Creations are told in whole seconds: what was heard at once began now.
            age = time.time() - _seconds(found["metadata"].get("creationTimestamp"))
            self._begun[ref] = time.monotonic() - max(0.0, age - 1)
        elif now.deleting:
            self._begun.pop(ref, None)
        elif now.ready and (begun := self._begun.pop(ref, None)) is not None:
            metrics.TIME_TO_READY.record(time.monotonic() - begun, {"kind": ref.kind})

    def drop(self, ref: OrderRef) -> None:
        self._standing.pop(ref, None)
        self._begun.pop(ref, None)

    def counts(self) -> Counter[tuple[str, bool, str]]:
        """How many orders of a kind are Ready or not, by reason. A kind without any is counted as well."""
        none = Counter({(kind, True, ALL_READY): 0 for kind in ORDER_KINDS})
        none.update((ref.kind, each.ready, each.reason) for ref, each in self._standing.items())
        return none

    def oldest_unready(self) -> dict[tuple[str, str], float]:
        """Seconds since the first of a kind and reason ceased to be Ready, or was created."""
        return _oldest((ref, each) for ref, each in self._standing.items() if not each.ready and not each.deleting)

    def oldest_deletion(self) -> dict[tuple[str, str], float]:
        """Seconds since the first of a kind was deleted that is still here."""
        return _oldest((ref, each) for ref, each in self._standing.items() if each.deleting)


def standing(kind: str, found: Object, before: Standing | None = None) -> Standing:
    """How an order says that it stands. `before` is how it stood when it was heard of last."""
    meta = found["metadata"]
    unmet = [each for type_ in CONDITIONS[kind] if (each := _condition(found, type_)).get("status", "True") != "True"]
    reason = str(unmet[0].get("reason")) if unmet else NOT_ALL_READY
    reason = reason if reason in REASONS else OTHER
    if meta.get("deletionTimestamp"):
        since = _seconds(meta["deletionTimestamp"])
        return Standing(False, True, reason if reason in HOLDS else DELETING, since)
    if changes.converged(found):
        return Standing(True, False, ALL_READY, 0.0)
    ready = _condition(found, "Ready")
    if not ready:
        return Standing(False, False, NOT_OBSERVED, _seconds(meta.get("creationTimestamp")))
    if ready.get("status") != "True":
        return Standing(False, False, reason, _seconds(ready.get("lastTransitionTime")))
    # Ready as it was written before; when it was edited is nowhere said.
    return Standing(False, False, NOT_OBSERVED, before.since if before and not before.ready else time.time())


def _oldest(orders: Iterable[tuple[OrderRef, Standing]]) -> dict[tuple[str, str], float]:
    """The first of each kind and reason, in seconds until now."""
    now, oldest = time.time(), dict[tuple[str, str], float]()
    for ref, each in orders:
        key = (ref.kind, each.reason)
        oldest[key] = max(oldest.get(key, 0.0), now - each.since)
    return oldest


def _condition(found: Object, type_: str) -> dict[str, Any]:
    return next((each for each in changes.conditions_of(found) if each.get("type") == type_), {})


def _seconds(stamp: object) -> float:
    """A time of the API server's; what cannot be read is now."""
    try:
        return datetime.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return time.time()
