"""One step's task: what every kind needs to do it. A kind's own words for it are in a class of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from temporalio import activity

from activities.cluster import Cluster, Kind
from activities.pen import Pen
from workflows.api.controlplane import ControlPlane
from workflows.scaffold import gates
from workflows.scaffold.steps import Task


@dataclass(frozen=True)
class Job:
    """A task and the clusters it is about.

    management  where planes are, and what is beside them
    home        where the order is
    begun       the `time.monotonic()` at which the step began, before anything was waited for
    """

    task: Task
    management: Cluster
    home: Cluster
    begun: float

    kind: ClassVar[Kind]

    @property
    def plane(self) -> ControlPlane:
        if self.task.plane is None:
            raise ValueError("an order is provisioned only past the gate that reads its plane")
        return self.task.plane

    @property
    def log(self) -> dict[str, str]:
        return {"order": self.task.ref.workflow_id}

    def consent(self, plane: ControlPlane | None) -> gates.Gate | None:
        """The gate that freezes an order, asked of its plane as it is now."""
        return gates.assignment(self.task.ref, self.task.order.plane_key, plane)

    def pen(self, *, deleting: bool = False) -> Pen | None:
        """The right to write, lent when the step began; a paused order gives none.

        Before its first write a step looks at the plane again, but for the first attempt of a removal: the step just
        before it has read nothing else.
        """
        task = self.task
        if task.order.paused:
            return None
        looks = task.plane is not None and not (deleting and activity.info().attempt == 1)
        plane = task.order.plane_key if looks else ""
        return Pen(
            self.home, self.kind, task.ref, task.order.uid,
            deleting=deleting, gone=task.gone, begun=self.begun, planes=self.management, plane=plane,
            consent=self.consent if looks and not deleting else None,
        )  # fmt: skip
