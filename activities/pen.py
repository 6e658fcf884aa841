"""The right to write for one order during one step: lent for as long as the step's deadline, to the order as read.

A worker may be stopped at any line and go on minutes later; what it writes then must not outlive a teardown that
has looked for the last time meanwhile.
"""

from __future__ import annotations

import time

from activities.cluster import Cluster, Kind
from activities.errors import Moved, StepExpired
from workflows.api.controlplane import PAUSED
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import STEP_DEADLINE


class Pen:
    """Ask `lift` before every write. The first time it looks at the order again: same uid, same direction.

    begun   the `time.monotonic()` at which the step began: Temporal's limit runs from there, so the deadline does
    looked  the step has just written the order, onto the version that it had read: that was the look
    """

    def __init__(
        self, home: Cluster, kind: Kind, ref: OrderRef, uid: str, *, deleting: bool, begun: float, looked: bool = False
    ) -> None:
        self._home = home
        self._kind = kind
        self._ref = ref
        self._uid = uid
        self._deleting = deleting
        self._looked = looked
        self._until = begun + STEP_DEADLINE.total_seconds()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._until - time.monotonic()

    async def lift(self) -> None:
        """Raises `Moved` when the order is not what the step was started for, `StepExpired` past the deadline."""
        if not self._looked:
            order = await self._home.get(self._kind, self._ref.namespace, self._ref.name)
            meta = order["metadata"] if order else {}
            if meta.get("uid") != self._uid:
                raise Moved(f"{self._ref.key} is gone")
            if bool(meta.get("deletionTimestamp")) != self._deleting:
                raise Moved(f"{self._ref.key} is {'not ' if self._deleting else ''}being deleted")
            if (meta.get("annotations") or {}).get(PAUSED) == "true":
                raise Moved(f"{self._ref.key} is paused")
            self._looked = True
        if self.left <= 0:
            raise StepExpired(f"the step for {self._ref.key} took longer than its deadline")
