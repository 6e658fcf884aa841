"""The right to write for one order during one step: lent for as long as the step's deadline, to the order as read.

A worker may be stopped at any line and go on minutes later; what it writes then must not outlive a teardown that
has looked for the last time meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from activities.cluster import CONTROL_PLANE, Cluster, Kind, Object
from activities.errors import Moved, StepExpired
from workflows.api.controlplane import PAUSED, ControlPlane
from workflows.scaffold.gates import Gate
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import STEP_DEADLINE


class Pen:
    """Ask `lift` before every write. The first time it looks at the order again, and at its plane: same uid, same
    direction, no pause, and consent as before. So whoever pauses one of them, or takes consent back, sees the last
    write after `STEP_DEADLINE`, and a request's time.

    gone     the order is no more, and has to stay so: one that comes after it would have the children as its own
    begun    the `time.monotonic()` at which the step began: Temporal's limit runs from there, so the deadline does
    looked   the step has just read the plane and written the order, onto the version that it read: that was the look
    planes   where the plane is; `plane` is its key, empty when there is none
    consent  the gate that asks the plane, by which a removal is not stopped
    """

    def __init__(
        self,
        home: Cluster,
        kind: Kind,
        ref: OrderRef,
        uid: str,
        *,
        deleting: bool,
        gone: bool = False,
        begun: float,
        looked: bool = False,
        planes: Cluster | None = None,
        plane: str = "",
        consent: Callable[[ControlPlane | None], Gate | None] | None = None,
    ) -> None:
        self._home = home
        self._kind = kind
        self._ref = ref
        self._uid = uid
        self._deleting = deleting
        self._gone = gone
        self._looked = looked
        self._planes = planes
        self._plane = plane
        self._consent = consent
        self._until = begun + STEP_DEADLINE.total_seconds()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._until - time.monotonic()

    async def lift(self) -> None:
        """Raises `Moved` when the order is not what the step was started for, `StepExpired` past the deadline."""
        if not self._looked:
            order, plane = await asyncio.gather(
                self._home.get(self._kind, self._ref.namespace, self._ref.name), self._read_plane()
            )
            self._compare(order["metadata"] if order else {})
            if _paused(order) or _paused(plane):
                raise Moved(f"{self._ref.key} is paused")
            if self._consent is not None:
                gate = self._consent(ControlPlane.model_validate(plane) if plane else None)
                if gate is not None:
                    raise Moved(f"{self._ref.key} is not served any more: {gate.reason}")
            self._looked = True
        if self.left <= 0:
            raise StepExpired(f"the step for {self._ref.key} took longer than its deadline")

    def _compare(self, meta: Object) -> None:
        if self._gone:
            if meta:
                raise Moved(f"{self._ref.key} is there again")
            return
        if meta.get("uid") != self._uid:
            raise Moved(f"{self._ref.key} is gone")
        if bool(meta.get("deletionTimestamp")) != self._deleting:
            raise Moved(f"{self._ref.key} is {'not ' if self._deleting else ''}being deleted")

    async def _read_plane(self) -> Object | None:
        namespace, _, name = self._plane.partition("/")
        return await self._planes.get(CONTROL_PLANE, namespace, name) if self._planes and name else None


def _paused(found: Object | None) -> bool:
    return ((found or {}).get("metadata", {}).get("annotations") or {}).get(PAUSED) == "true"
