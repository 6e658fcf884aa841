"""KeystoneProject's steps, provision_project and remove_project: what is seen is judged in `workflows`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from temporalio import activity

from activities import claims
from activities.cluster import (
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    Cluster,
    Kind,
)
from activities.clusters import Clusters
from activities.errors import ClusterError, NotServed, at_boundary
from activities.instrument import instrument
from activities.job import Job
from activities.orders import Looked
from activities.pen import Pen
from activities.projection import Projection
from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneproject import KeystoneProjectSpec
from workflows.keystoneproject import children, reasons
from workflows.keystoneproject.judge import judge
from workflows.scaffold import gates
from workflows.scaffold import korc as meaning
from workflows.scaffold.child import Seen
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.order import OrderRef
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.steps import OrderSeen, Removal, Task
from workflows.scaffold.verdict import FROZEN_SECONDS, Decision, Outcome, Verdict

_log = logging.getLogger(__name__)

_KINDS = ("Project",)
"""The kinds of an order's children, in the order in which they are taken back."""

_BLOCK = "KeystoneProjectProvision"


class _Given(Job):
    kind = KEYSTONE_PROJECT


class KeystoneProjects:
    """The kind's activities, and what the shared ones need to know of it."""

    kind = KEYSTONE_PROJECT
    finalizer = children.FINALIZER
    finalizer_first = False
    condition_types: tuple[str, ...] = reasons.CONDITIONS
    blocks: tuple[str, ...] = (_BLOCK,)

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._management = clusters.management

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> gates.Gate | None:
        return gates.assignment(ref, plane_key, plane)

    def gate(self, plane: ControlPlane) -> gates.Gate | None:
        return gates.admin_credential(plane)

    def refused(self, order: OrderSeen, gate: gates.Gate) -> tuple[Verdict, ...]:
        said = gate.model_dump(exclude={"type", "reason"})
        return (Verdict(type=reasons.PROJECT_READY, reason=gate.reason or reasons.ERROR, **said),)

    @activity.defn(name="provision_project")
    async def provision_project(self, task: Task) -> Outcome:
        with at_boundary():
            pen = await self._pen(task)
            if pen is not None:
                return await self.provide(task, pen)
            with instrument(_BLOCK):
                return (await self.look(task)).outcome

    @activity.defn(name="remove_project")
    async def remove_project(self, task: Task) -> Removal:
        with at_boundary():
            pen = await self._pen(task, deleting=True)
            if pen is None:
                return Removal(left=(task.order.paused,))
            held = await self._held(task)
            if held:
                return Removal(held=held)
            if gates.cluster_name(task.ref) or gates.order_name(task.ref):
                return Removal()  # no child can carry such a label (contracts 14.8)
            if task.plane is None:
                await self._fail_open(task, pen)
                return Removal()
            async with self._projection(task, pen) as projection:
                await projection.follow(task.order.plane_namespace, _KINDS)
                removing = await projection.drive(_removal_of(task))
            if not removing.left:
                await self._drop_claims(task, pen)
            return Removal(left=removing.left)

    async def provide(self, task: Task, pen: Pen) -> Outcome:
        with instrument(_BLOCK):
            async with self._projection(task, pen) as projection:
                await self._read(projection, task)
                return (await projection.drive(_judge_of(task))).outcome

    async def look(self, task: Task) -> Looked:
        async with self._projection(task) as projection:
            await self._read(projection, task)
            decision = await projection.look(_judge_of(task))
        return Looked(outcome=decision.outcome, due=bool(decision.do))

    async def look_removal(self, task: Task) -> Removal:
        held = await self._held(task)
        if held or task.plane is None:
            return Removal(held=held)
        async with self._projection(task) as projection:
            await projection.list(task.order.plane_namespace, _KINDS)
            removing = await projection.look(_removal_of(task))
        return Removal(left=("a write is due",) if removing.do else removing.left)

    def _projection(self, task: Task, pen: Pen | None = None) -> Projection:
        return Projection(self._management, task.ref, children.marks(task.ref), pen)

    async def _read(self, projection: Projection, task: Task) -> None:
        """Reads the managed Project, and the probe if there may be one that matters."""
        plane, name = _plane_and_name(task)
        project = children.project(task.ref, plane, name)
        await projection.get(project)
        live = projection.seen.of(project)
        undecided = live is None or (meaning.terminal(live) is not None and not live.status.id)
        # Nobody has reported on a new order: if there is a Project all the same, a pass broke off, and left a probe.
        if undecided if task.order.status.get("conditions") else live is not None:
            await projection.get(children.probe(task.ref, plane, name))

    async def _pen(self, task: Task, *, deleting: bool = False) -> Pen | None:
        begun = time.monotonic()
        home = await self._clusters.get(task.ref.cluster)
        return _Given(task, self._management, home, begun).pen(deleting=deleting)

    async def _held(self, task: Task) -> tuple[Verdict, ...]:
        """The verdict of what still names the order as its project; assignments are looked at first."""
        home = await self._clusters.get(task.ref.cluster)
        for kind, reason in _REFERENCES:
            names = await _referring(home, kind, task)
            if names:
                message = (
                    f"Deletion waits: {kind.kind}s in namespace {task.ref.namespace} name this order as their project:"
                    f" {', '.join(repr(name) for name in names)}. Delete them first."
                )
                type_ = reasons.PROJECT_READY
                return (Verdict(type=type_, status=False, reason=reason, message=message, again=FROZEN_SECONDS),)
        return ()

    async def _fail_open(self, task: Task, pen: Pen) -> None:
        """The plane is gone and K-ORC has no credentials left: the deletes are issued, their outcome gates nothing."""
        await pen.lift()
        try:
            async with self._projection(task, pen) as projection:
                await projection.list(task.order.plane_namespace, _KINDS)
                await projection.drive(_removal_of(task))
            await self._drop_claims(task, pen)
        except ClusterError as error:
            _log.warning("the ControlPlane is gone and a child may be left: %s", error, extra={"order": task.ref.workflow_id})  # fmt: skip  # noqa: E501

    async def _drop_claims(self, task: Task, pen: Pen) -> None:
        await pen.lift()
        await claims.drop(self._management, task.order.plane_namespace, ownership_labels(task.ref))


_REFERENCES = (
    (KEYSTONE_ROLE_ASSIGNMENT, reasons.REFERENCED_BY_ASSIGNMENTS),
    (KEYSTONE_APPLICATION_CREDENTIAL, reasons.REFERENCED_BY_CREDENTIALS),
)


async def _referring(home: Cluster, kind: Kind, task: Task) -> list[str]:
    """Names of the objects of that kind beside the order that name it; a kind that is not served names nothing."""
    try:
        found = await home.list(kind, task.ref.namespace)
    except NotServed:
        return []
    return sorted(
        item["metadata"]["name"]
        for item in found["items"]
        if ((item.get("spec") or {}).get("projectRef") or {}).get("name") == task.ref.name
    )


def _plane_and_name(task: Task) -> tuple[ControlPlane, str]:
    if task.plane is None:
        raise ValueError("a project is provisioned only past the gate that reads its plane")
    return task.plane, KeystoneProjectSpec.model_validate(task.order.spec).effective_name(task.ref.name)


def _judge_of(task: Task) -> Callable[[Seen], Decision]:
    plane, name = _plane_and_name(task)
    return lambda seen: judge(task.ref, name, plane, seen)


def _removal_of(task: Task) -> Callable[[Seen], Removing]:
    return lambda seen: judge_removal(_KINDS, children.marks(task.ref), task.plane, seen)
