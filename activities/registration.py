"""A registration as its steps read it: what the order declares, what it said last, where its children are."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from activities import claims, passwords
from activities.cluster import KEYSTONE_SERVICE, Cluster, Object
from activities.errors import NotServed
from activities.pen import Pen
from activities.projection import Projection
from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneservice import Account, AccountStatus, KeystoneServiceSpec
from workflows.keystoneservice import children, delivery, gates, reasons, sweep
from workflows.keystoneservice.children import Registration
from workflows.scaffold.child import Body, Seen
from workflows.scaffold.naming import CLAIMS
from workflows.scaffold.ownership import Marks
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.steps import Task
from workflows.scaffold.verdict import Decision

_log = logging.getLogger(__name__)

Judge = Callable[[Seen], Decision]


@dataclass(frozen=True)
class Given:
    """One step's task, in the words of the kind."""

    task: Task

    @property
    def plane(self) -> ControlPlane:
        if self.task.plane is None:
            raise ValueError("a registration is provisioned only past the gate that reads its plane")
        return self.task.plane

    @property
    def reg(self) -> Registration:
        return Registration(order=self.task.ref, uid=self.task.order.uid, plane=self.plane)

    @property
    def spec(self) -> KeystoneServiceSpec:
        return KeystoneServiceSpec.model_validate(self.task.order.spec)

    @property
    def account(self) -> Account:
        account = self.spec.account
        if account is None:
            raise ValueError("only a declared account is published or rotated")
        return account

    @property
    def status(self) -> AccountStatus:
        return AccountStatus.model_validate(self.task.order.status.get("account") or {})

    @property
    def marks(self) -> Marks:
        return children.marks(self.task.ref, self.task.order.uid)

    def fresh(self, seen: Seen) -> bool:
        """Whether there can be nothing but what the spec declares: it never changed, no pass has reported on the order
        yet, and nothing that it declares is there.
        """
        order = self.task.order
        return order.generation == 1 and not order.status.get("conditions") and not seen.children

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Where children are, the plane's first; once if it is the order's own."""
        return tuple(dict.fromkeys((self.task.order.plane_namespace, self.task.ref.namespace)))

    def may_have_undeclared(self, block: str, seen: Seen) -> bool:
        """Whether children may be there that the spec does not declare any more: it changed, or they still go.

        seen  what is there of what the block declares
        """
        order = self.task.order
        return not self.fresh(seen) and not gates.swept(order.status, order.generation, block)

    def removal(self, kinds: tuple[str, ...], *, keep_declared: bool = False) -> Callable[[Seen], Removing]:
        """The judge of what goes: all children of these kinds, or those that the spec does not declare."""
        spec = self.spec

        def stays(name: str) -> bool:
            return keep_declared and sweep.keeps(self.task.ref, spec, name)

        return lambda seen: judge_removal(kinds, self.marks, self.task.plane, seen, stays)

    def pen(self, cluster: Cluster, *, deleting: bool = False) -> Pen | None:
        """The right to write, from now on; a paused order gives none."""
        if self.task.order.paused:
            return None
        uid, begun = self.task.order.uid, time.monotonic()
        return Pen(cluster, KEYSTONE_SERVICE, self.task.ref, uid, deleting=deleting, begun=begun)

    def projection(
        self, cluster: Cluster, pen: Pen | None = None, fill: Callable[[Object], Object] | None = None
    ) -> Projection:
        fill = fill or with_password
        return Projection(cluster, self.task.ref, self.marks, pen, reasons.TRANSPORT_RETRY_FAILED, fill)

    async def ask(self, projection: Projection, judge: Judge) -> Decision:
        """Does what the judge wants, or for a paused order says what it finds."""
        return await (projection.look(judge) if self.task.order.paused else projection.drive(judge))

    async def unless_not_served(self, reading: Awaitable[None]) -> None:
        """Reads delivery objects. Where External Secrets is not installed, nothing was ever delivered."""
        try:
            await reading
        except NotServed as error:
            _log.info("no delivery objects: %s", error, extra={"order": self.task.ref.workflow_id})

    async def drop_claims(self, cluster: Cluster, pen: Pen | None, *kinds: str) -> None:
        """Drops the order's claims: those of these kinds, or all."""
        if pen is not None:
            await pen.lift()
        for labels in [{CLAIMS: kind.lower()} for kind in kinds] or [{}]:
            await claims.drop(cluster, self.task.order.plane_namespace, {**self.marks.labels, **labels})

    def delivery_objects(self) -> tuple[Body, ...]:
        """PushSecret and ExternalSecret, by name: those of the reference operator do not carry our labels."""
        ref = self.task.ref
        return (
            {"kind": "PushSecret", "metadata": {"name": delivery.backup_name(ref), "namespace": ref.namespace}},
            {"kind": "ExternalSecret", "metadata": {"name": delivery.consumer_name(ref), "namespace": ref.namespace}},
        )


def with_password(body: Object) -> Object:
    """A password Secret's body with a password, made at the moment of writing."""
    return {**body, "data": delivery.password_data(passwords.new())} if body["kind"] == "Secret" else body


def without_id(projection: Projection, child: Body) -> bool:
    """Whether the child's probe matters: the child is not there, or K-ORC never got an id of it."""
    live = projection.seen.of(child)
    return live is None or not live.status.id
