"""KeystoneProject's steps: provision_project and remove_project, each a loop of look, judge, one write.

The judge is asked after every write and every change that K-ORC makes while the step lingers; nothing is decided
here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities import claims, korc
from activities.cluster import (
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    KORC_PROJECT,
    Cluster,
    Kind,
)
from activities.clusters import Clusters
from activities.errors import ClusterError, NotServed, at_boundary
from activities.instrument import instrument, observe
from activities.pen import Pen
from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneproject import KeystoneProjectSpec
from workflows.api.korc import KorcObject
from workflows.keystoneproject import children, reasons
from workflows.keystoneproject.judge import Seen, judge, judge_abandoned, judge_removal
from workflows.scaffold import gates
from workflows.scaffold import korc as meaning
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.ownership import owned, sweepable
from workflows.scaffold.steps import Removal, Task
from workflows.scaffold.verdict import FROZEN_SECONDS, Decision, Next, Outcome, Verdict

_log = logging.getLogger(__name__)

Judge = Callable[[Seen], Decision]


class KeystoneProjects:
    """The kind's activities, and what the shared ones need to know of it."""

    kind = KEYSTONE_PROJECT
    finalizer = children.FINALIZER
    condition_types: tuple[str, ...] = reasons.CONDITIONS
    error_reason = reasons.ERROR

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._management = clusters.management

    def gate(self, plane: ControlPlane) -> gates.Gate | None:
        return gates.admin_credential(plane)

    @activity.defn(name="provision_project")
    async def provision_project(self, task: Task) -> Outcome:
        with at_boundary(), instrument("KeystoneProjectProvision"):
            if task.order.paused:
                return (await self.look(task)).outcome
            decide, plane = _judge_of(task)
            pen = await self._pen(task, deleting=False)
            first = not task.order.status.get("conditions")
            seen = await self._see(task, plane, probe=not first)
            return (await self._drive(task, plane, pen, seen, decide)).outcome

    @activity.defn(name="remove_project")
    async def remove_project(self, task: Task) -> Removal:
        with at_boundary():
            pen = await self._pen(task, deleting=True)
            held = await self._held(task)
            if held:
                return Removal(held=held)
            if gates.cluster_name(task.ref) or gates.order_name(task.ref, reasons.ERROR):
                return Removal()  # no child can carry such a label (contracts 14.8)
            if task.plane is None:
                await self._fail_open(task, pen)
                return Removal()
            return await self._remove(task, task.plane, pen)

    async def look(self, task: Task) -> Decision:
        decide, plane = _judge_of(task)
        seen = await self._see(task, plane, probe=True)
        decision = decide(seen)
        if decision.do is not Next.CLAIM:
            return decision
        # Whose claim it is can be read; without that every look of the order that lost would call for a pass.
        holder = await claims.holder_of(self._management, plane.namespace, children.claim(plane, _project_name(task)))
        return decide(seen.model_copy(update={"claimed_by": holder}))

    async def still(self, task: Task) -> Outcome | None:
        """Counts as a call of the block that would have found the same."""
        began = time.perf_counter()
        decision = await self.look(task)
        if decision.do is not Next.NOTHING or not decision.verdict.status:
            return None
        observe("KeystoneProjectProvision", time.perf_counter() - began)
        return decision.outcome

    async def look_removal(self, task: Task) -> Removal:
        held = await self._held(task)
        if held or task.plane is None:
            return Removal(held=held)
        left = await self._children(task)
        decision = judge_removal(_seen_of(task, left))
        undeleted = decision.verdict.status and any(not child.deleting for child in left)
        if undeleted or decision.do is not Next.NOTHING:
            return Removal(left=("a write is due",))
        return Removal(left=_words(left, decision))

    # -- provisioning -------------------------------------------------------------------------------------------

    async def _see(self, task: Task, plane: ControlPlane, *, probe: bool) -> Seen:
        """Reads the managed Project, and the probe if there may be one that matters."""
        project = await korc.read(self._management, KORC_PROJECT, plane.namespace, children.project_name(task.ref))
        asked: KorcObject | None = None
        if probe and (project is None or (meaning.terminal(project) is not None and not project.status.id)):
            asked = await korc.read(self._management, KORC_PROJECT, plane.namespace, children.probe_name(task.ref))
        return Seen(project=project, probe=asked, now=datetime.now(UTC))

    async def _drive(self, task: Task, plane: ControlPlane, pen: Pen, seen: Seen, decide: Judge) -> Decision:
        """Writes what the judge wants until it wants nothing, and lingers for K-ORC's answer to each write."""
        until: float | None = None
        decision = decide(seen)
        for _ in range(_MOST_WRITES):
            decision = decide(seen)
            if decision.do is not Next.NOTHING:
                await pen.lift()
                seen = await self._act(decision.do, task, plane, seen)
                until = time.monotonic() + min(korc.LINGER_SECONDS, pen.left)
                continue
            if until is None or time.monotonic() >= until or decision.verdict.reason not in _LINGER_ON:
                return decision
            seen, changed = await self._linger(seen, until, decide)
            if not changed:
                return decide(seen)
        _log.warning("writes do not stick, a later pass goes on", extra={"order": task.ref.workflow_id})
        return decision

    async def _act(self, do: Next, task: Task, plane: ControlPlane, seen: Seen) -> Seen:
        """The one write, and what is known after it."""
        name, changed = _project_name(task), dict[str, Any]()
        match do:
            case Next.APPLY_PROBE:
                body = children.probe(task.ref, plane, name)
                probe = await korc.create(self._management, KORC_PROJECT, body)
                changed["probe"] = probe or await self._read_probe(task, plane)
            case Next.DROP_PROBE:
                await self._delete(task, seen.probe)
                changed["probe"] = await self._read_probe(task, plane)
            case Next.CLAIM:
                lease, labels = children.claim(plane, name), ownership_labels(task.ref)
                holder = task.ref.workflow_id
                changed["claimed_by"] = await claims.claim(self._management, plane.namespace, lease, holder, labels)
            case Next.APPLY:
                # Before the child, so that a crash between the two asks again instead of leaving a probe behind.
                await self._delete(task, seen.probe)
                body = children.project(task.ref, plane, name)
                changed["probe"] = None
                changed["project"] = await korc.apply(self._management, KORC_PROJECT, body, seen.project)
            case Next.UNLATCH if seen.project is not None:
                failed = reasons.TRANSPORT_RETRY_FAILED
                cleared = await korc.unlatch(self._management, KORC_PROJECT, seen.project, failed)
                # Not before: a clearing that is refused comes again after a pause, and a probe made anew for each
                # attempt would cut that pause short by its own events.
                await self._delete(task, seen.probe)
                again = await self._see(task, plane, probe=False) if cleared is None else seen
                changed = {"probe": None, "project": cleared or again.project}
            case Next.DETACH if seen.project is not None:
                changed["project"] = await korc.detach(self._management, KORC_PROJECT, seen.project)
        _log.info("%s", do.value, extra={"order": task.ref.workflow_id})
        return seen.model_copy(update={**changed, "now": datetime.now(UTC)})

    async def _linger(self, seen: Seen, until: float, decide: Judge) -> tuple[Seen, bool]:
        """Follows the child that is waited on; True as soon as the judge says something that ends the wait."""
        field = "probe" if seen.project is None or (seen.probe is not None and not seen.project.deleting) else "project"
        child: KorcObject | None = getattr(seen, field)
        if child is None:
            return seen, False
        async with aclosing(korc.follow(self._management, KORC_PROJECT, child, until - time.monotonic())) as changes:
            async for change in changes:
                seen = seen.model_copy(update={field: change, "now": datetime.now(UTC)})
                decision = decide(seen)
                if decision.do is not Next.NOTHING or decision.verdict.reason not in _LINGER_ON:
                    return seen, True
        return seen, False

    async def _read_probe(self, task: Task, plane: ControlPlane) -> KorcObject | None:
        return await korc.read(self._management, KORC_PROJECT, plane.namespace, children.probe_name(task.ref))

    async def _delete(self, task: Task, child: KorcObject | None) -> None:
        """Deletes a child of the order. A managed one without an id goes only as it was judged: K-ORC, which deletes
        such a one by name, may have begun to make it since."""
        if child is None or child.deleting or not owned(child.metadata.labels, ownership_labels(task.ref)):
            return
        meta = child.metadata
        settled = child.status.id or child.spec.get("managementPolicy") == "unmanaged"
        version = "" if settled else meta.resource_version
        await self._management.delete(KORC_PROJECT, meta.namespace, meta.name, meta.uid, version)

    async def _pen(self, task: Task, *, deleting: bool) -> Pen:
        begun = time.monotonic()
        home = await self._clusters.get(task.ref.cluster)
        return Pen(home, KEYSTONE_PROJECT, task.ref, task.order.uid, deleting=deleting, begun=begun)

    # -- removal ------------------------------------------------------------------------------------------------

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

    async def _children(self, task: Task) -> list[KorcObject]:
        """The order's children, the managed one first."""
        labels, prefix = ownership_labels(task.ref), children.prefix(task.ref)
        found = await korc.owned_by(self._management, KORC_PROJECT, task.order.plane_namespace, labels)
        ours = [child for child in found if sweepable(child.metadata.name, child.metadata.labels, labels, prefix)]
        return sorted(ours, key=lambda child: child.spec.get("managementPolicy") == "unmanaged")

    async def _remove(self, task: Task, plane: ControlPlane, pen: Pen) -> Removal:
        """Deletes what is there and stays a moment to see it go; what is left is in the answer."""
        left = await self._children(task)
        if left:
            decision = judge_removal(_seen_of(task, left))
            if not decision.verdict.status:
                decision = await self._drive(task, plane, pen, _seen_of(task, left), judge_removal)
                left = await self._children(task)
            if not decision.verdict.status:
                return Removal(left=_words(left, decision))
            for child in left:
                await pen.lift()
                await self._delete(task, child)
            if left:
                async with aclosing(korc.follow(self._management, KORC_PROJECT, left[0], korc.LINGER_SECONDS)) as going:
                    async for change in going:
                        if change is None:
                            break
                left = await self._children(task)
        if not left:
            await pen.lift()
            await claims.drop(self._management, task.order.plane_namespace, ownership_labels(task.ref))
        return Removal(left=_words(left, None))

    async def _fail_open(self, task: Task, pen: Pen) -> None:
        """The plane is gone and K-ORC has no credentials left: the deletes are issued, their outcome gates nothing."""
        await pen.lift()
        try:
            left = await self._children(task)
            if (project := _seen_of(task, left).project) and judge_abandoned(project).do is Next.DETACH:
                await korc.detach(self._management, KORC_PROJECT, project)
                left = await self._children(task)
            for child in left:
                await self._delete(task, child)
            await claims.drop(self._management, task.order.plane_namespace, ownership_labels(task.ref))
        except ClusterError as error:
            _log.warning("the ControlPlane is gone and a child may be left: %s", error, extra={"order": task.ref.workflow_id})  # fmt: skip  # noqa: E501


_MOST_WRITES = 12
"""Writes of one step; a server that changes what is applied would otherwise be written to until the deadline."""

_LINGER_ON = frozenset({reasons.PROBING, reasons.WAITING})

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


def _project_name(task: Task) -> str:
    return KeystoneProjectSpec.model_validate(task.order.spec).effective_name(task.ref.name)


def _judge_of(task: Task) -> tuple[Judge, ControlPlane]:
    plane, name = task.plane, _project_name(task)
    if plane is None:
        raise ValueError("a project is provisioned only past the gate that reads its plane")
    return (lambda seen: judge(task.ref, name, plane, seen)), plane


def _seen_of(task: Task, left: list[KorcObject]) -> Seen:
    named = {child.metadata.name: child for child in left}
    return Seen(
        project=named.get(children.project_name(task.ref)),
        probe=named.get(children.probe_name(task.ref)),
        now=datetime.now(UTC),
    )


def _words(left: list[KorcObject], decision: Decision | None) -> tuple[str, ...]:
    if decision is not None and not decision.verdict.status:
        return (decision.verdict.message,)
    return tuple(
        f"Project {child.metadata.namespace}/{child.metadata.name} to be gone (K-ORC: {meaning.words(child)})"
        for child in left
    )
