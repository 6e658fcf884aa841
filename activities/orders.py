"""The steps that every kind of order shares: admit, examine, report, release, settle.

They read and write orders and read planes; what a reading means is decided in `workflows.scaffold.gates` and by the
kind's own judge.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.cluster import CONTROL_PLANE, Cluster, Kind, Object
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError, Conflict, NotServed, OpenBaoError, at_boundary
from activities.instrument import observe
from activities.pen import Pen
from workflows.api.controlplane import PAUSED, ControlPlane
from workflows.scaffold import conditions, gates
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import RETRY, Admitted, OrderSeen, Removal, Report, State, Task, Wait
from workflows.scaffold.verdict import Outcome, Verdict

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Looked:
    """What a look finds of an order, and whether a step would write something now."""

    outcome: Outcome
    due: bool


class KindSteps(Protocol):
    """What a kind tells the shared steps about itself. Its looks only read.

    finalizer_first  whether an order without consent gets the finalizer as well
    blocks           the metric names of its steps (contracts 9.3)
    consent          the gate that freezes an order: its plane is there, and serves its namespace
    gate             the gate after that one
    refused          a gate's answer on the kind's conditions
    provide          all of its steps in one go, for an order that is new; None where they are to be seen one by one
    """

    kind: Kind
    finalizer: str
    finalizer_first: bool
    condition_types: tuple[str, ...]
    blocks: tuple[str, ...]

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> gates.Gate | None: ...

    def gate(self, plane: ControlPlane) -> gates.Gate | None: ...

    def refused(self, order: OrderSeen, gate: gates.Gate) -> tuple[Verdict, ...]: ...

    async def provide(self, task: Task, pen: Pen) -> Outcome | None: ...

    async def look(self, task: Task) -> Looked: ...

    async def look_removal(self, task: Task) -> Removal: ...


class Orders:
    """The shared activities, over the clusters and the kinds."""

    def __init__(self, clusters: Clusters, kinds: Mapping[str, KindSteps]) -> None:
        self._clusters = clusters
        self._kinds = kinds

    @activity.defn(name="admit")
    async def admit(self, ref: OrderRef) -> Admitted:
        begun = time.monotonic()
        with at_boundary():
            admitted, raw, home = await self._read(ref, gated=True)
            if admitted.state is not State.PRESENT or raw is None or home is None or admitted.trouble:
                return admitted
            if not self._owes_finalizer(ref, admitted):
                return admitted.model_copy(update={"found": await self._found(ref, admitted)})
            kind = self._kinds[ref.kind]
            meta = raw["metadata"]
            body = {**raw, "metadata": {**meta, "finalizers": [*(meta.get("finalizers") or []), kind.finalizer]}}
            try:
                live = await home.update(kind.kind, body)
            except ClusterError as error:
                if error.status == 404 and not isinstance(error, NotServed):
                    return Admitted(state=State.GONE)
                raise
            _log.info("finalizer set", extra={"order": ref.workflow_id})
            order = admitted.order.model_copy(
                update={"finalized": True, "resource_version": live["metadata"]["resourceVersion"]}
            )
            admitted = admitted.model_copy(update={"order": order, "begun": True})
            if admitted.refused:
                return admitted
            # That write succeeded only onto the order as read, so the pen needs no look of its own.
            pen = Pen(home, kind.kind, ref, order.uid, deleting=False, begun=begun, looked=True)
            return await self._gone_on(Task(ref=ref, order=order, plane=admitted.plane), admitted, home, pen)

    @activity.defn(name="examine")
    async def examine(self, ref: OrderRef) -> Admitted:
        with at_boundary():
            admitted, _, _ = await self._read(ref, gated=False)
            return admitted

    @activity.defn(name="report")
    async def report(self, report: Report) -> bool:
        with at_boundary():
            return await self._report(await self._home(report.ref), report) is not None

    @activity.defn(name="release")
    async def release(self, task: Task) -> None:
        with at_boundary():
            home, kind = await self._home(task.ref), self._kinds[task.ref.kind]
            raw = await home.get(kind.kind, task.ref.namespace, task.ref.name)
            if raw is None or raw["metadata"]["uid"] != task.order.uid:
                return
            kept = [each for each in raw["metadata"].get("finalizers") or [] if each != kind.finalizer]
            if kept == (raw["metadata"].get("finalizers") or []):
                return
            try:
                await home.update(kind.kind, {**raw, "metadata": {**raw["metadata"], "finalizers": kept}})
            except ClusterError as error:
                if error.status != 404 or isinstance(error, NotServed):
                    raise
            _log.info("finalizer released", extra={"order": task.ref.workflow_id})

    @activity.defn(name="settle")
    async def settle(self, wait: Wait) -> None:
        info = activity.info()
        # Both times are the server's: a worker whose clock is wrong must not refresh too early or never.
        age = (info.started_time - info.scheduled_time).total_seconds()
        due = wait.refresh is not None and age > wait.refresh - 1
        # The pass that began this wait has just read everything: the first attempt only says when to look.
        if due or (info.attempt > 1 and (wait.blind or await self._moved_on(wait))):
            return
        delay = wait.every if wait.refresh is None else max(1.0, min(wait.every, wait.refresh - age))
        raise ApplicationError(
            f"{wait.words} (next look in {delay:.0f} s)",
            type="Settling",
            category=ApplicationErrorCategory.BENIGN,
            next_retry_delay=timedelta(seconds=delay),
        )

    async def _moved_on(self, wait: Wait) -> bool:
        """Whether a pass would find, or do, anything else than was reported. A read that fails is for the pass."""
        try:
            admitted, _, _ = await self._read(wait.ref, gated=not wait.tearing_down)
            expected = State.DELETING if wait.tearing_down else State.PRESENT
            order = admitted.order
            if admitted.trouble or admitted.state is not expected:
                return True
            if order.generation != wait.generation or order.paused != wait.paused:
                return True
            task = Task(ref=wait.ref, order=order, plane=admitted.plane)
            kind = self._kinds[wait.ref.kind]
            if wait.tearing_down:
                if order.paused:
                    return False
                removal = await kind.look_removal(task)
                return removal.left != wait.left or removal.held != wait.verdicts
            if admitted.refused:
                return admitted.refused != wait.verdicts
            if self._owes_finalizer(wait.ref, admitted):
                return True
            looked = await kind.look(task)
            return (looked.due and not order.paused) or looked.outcome.verdicts != wait.verdicts
        except Exception as error:
            _log.info("a look failed, a pass follows: %s", error, extra={"order": wait.ref.workflow_id})
            return True

    async def _gone_on(self, task: Task, admitted: Admitted, home: Cluster, pen: Pen) -> Admitted:
        """A new order's first pass to its end: every step is a turn of the workflow that somebody waits for.

        What goes wrong here is left to the steps: they are tried again by themselves, and people see which it is.
        """
        ref, order = task.ref, task.order
        kind = self._kinds[ref.kind]
        try:
            found = await kind.provide(task, pen)
            if found is None:
                return admitted
            admitted = admitted.model_copy(update={"found": found})
            patch = conditions.changes(
                order.status, order.generation, kind.condition_types, found.verdicts, found.fields, order.paused,
                datetime.now(UTC),
            )  # fmt: skip
            if patch is None:
                return admitted
            report = Report(ref=ref, uid=order.uid, resource_version=order.resource_version, status=patch)
            live = await self._report(home, report)
        except Exception as error:
            _log.info("the steps go on by themselves: %s", error, extra={"order": ref.workflow_id})
            return admitted
        return admitted if live is None else admitted.model_copy(update={"order": _seen(live, kind.finalizer)})

    async def _report(self, home: Cluster, report: Report) -> Object | None:
        """Writes the status; None when the order has moved since it was read."""
        meta = {"resourceVersion": report.resource_version, "uid": report.uid}
        body = {"metadata": meta, "status": report.status}
        kind = self._kinds[report.ref.kind].kind
        try:
            live = await home.patch(kind, report.ref.namespace, report.ref.name, body, sub="status")
        except Conflict:
            return None
        except ClusterError as error:
            if error.status == 404 and not isinstance(error, NotServed):
                return None
            raise
        said = {"order": report.ref.workflow_id, "says": _says(live.get("status") or {})}
        _log.info("status written", extra=said)
        return live

    async def _found(self, ref: OrderRef, admitted: Admitted) -> Outcome | None:
        """How an order that was Ready stands, if a look finds it so still; None leaves it to the steps.

        Most passes find nothing to do, and this one activity is then all of them. An order that was not Ready would
        only be looked at twice.
        """
        if admitted.refused or not admitted.order.was_ready:
            return None
        kind, began = self._kinds[ref.kind], time.perf_counter()
        try:
            looked = await kind.look(Task(ref=ref, order=admitted.order, plane=admitted.plane))
        except (ClusterError, OpenBaoError):
            return None  # the steps meet it as well, and say it on their own conditions
        if looked.due or not all(verdict.status for verdict in looked.outcome.verdicts):
            return None
        for block in kind.blocks:
            observe(block, time.perf_counter() - began)
        return looked.outcome

    async def _read(self, ref: OrderRef, *, gated: bool) -> tuple[Admitted, Object | None, Cluster | None]:
        """The order, its plane and, if asked, the gates. Writes nothing."""
        try:
            home = await self._home(ref)
        except Unregistered as error:
            _log.info("skipped: %s", error, extra={"order": ref.workflow_id, "cluster": ref.cluster})
            return Admitted(state=State.GONE, unknown=True), None, None
        kind = self._kinds[ref.kind]
        raw = await home.get(kind.kind, ref.namespace, ref.name)
        if raw is None:
            return Admitted(state=State.GONE), None, home
        order = _seen(raw, kind.finalizer)
        state = State.DELETING if raw["metadata"].get("deletionTimestamp") else State.PRESENT
        if gated and state is State.DELETING:
            return Admitted(state=state, order=order), raw, home
        if gated and (gate := gates.cluster_name(ref) or gates.order_name(ref)):
            return Admitted(state=state, order=order, refused=kind.refused(order, gate)), raw, home
        try:
            plane = await self._plane(order)
        except ClusterError as error:
            if error.passing and activity.info().attempt < RETRY.maximum_attempts:
                raise
            return Admitted(state=state, order=order, trouble=str(error)), raw, home
        refused = kind.consent(ref, order.plane_key, plane) if gated else None
        if plane is not None and refused is None:
            # Only past that gate: who is not assigned must not learn from a pause that the plane exists.
            if plane.paused and not order.paused:
                paused = f"The annotation {PAUSED} on ControlPlane {plane.key} stops every write for this order."
                order = order.model_copy(update={"paused": paused})
            refused = kind.gate(plane) if gated else None
        verdicts = kind.refused(order, refused) if refused else ()
        return Admitted(state=state, order=order, plane=plane, refused=verdicts), raw, home

    def _owes_finalizer(self, ref: OrderRef, admitted: Admitted) -> bool:
        """The finalizer comes before every child, and only where there can be one; a paused order gets none."""
        kind, order, plane = self._kinds[ref.kind], admitted.order, admitted.plane
        if order.finalized or order.paused or gates.cluster_name(ref) or gates.order_name(ref):
            return False
        return kind.finalizer_first or kind.consent(ref, order.plane_key, plane) is None

    async def _home(self, ref: OrderRef) -> Cluster:
        try:
            return await self._clusters.get(ref.cluster)
        except BadKubeconfig as error:
            raise ApplicationError(str(error), type="BadKubeconfig", non_retryable=True) from None

    async def _plane(self, order: OrderSeen) -> ControlPlane | None:
        namespace, _, name = order.plane_key.partition("/")
        raw = await self._clusters.management.get(CONTROL_PLANE, namespace, name) if name else None
        return ControlPlane.model_validate(raw).lean() if raw else None


def _says(status: Object) -> str:
    """A status in a few words: its conditions without what they say to people."""
    return ", ".join(f"{c['type']} {c['status']} {c['reason']}" for c in status.get("conditions") or ())


def _seen(raw: Object, finalizer: str) -> OrderSeen:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    plane = spec.get("controlPlaneRef") or {}
    paused = (meta.get("annotations") or {}).get(PAUSED) == "true"
    return OrderSeen(
        uid=meta["uid"],
        generation=meta.get("generation") or 0,
        resource_version=meta["resourceVersion"],
        plane_key=f"{plane.get('namespace') or meta['namespace']}/{plane.get('name') or ''}",
        finalized=finalizer in (meta.get("finalizers") or []),
        paused=f"The annotation {PAUSED} on this order stops every write for it." if paused else "",
        spec=spec,
        status=raw.get("status") or {},
    )
