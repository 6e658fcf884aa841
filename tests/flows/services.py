"""The made-up world of a KeystoneService: its steps' findings are a test's to dictate, its password generation is kept.

The shared steps are the product's own, as in `tests.flows.world`, and so are the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster import CONTROL_PLANE, KEYSTONE_SERVICE
from activities.clusters import Clusters
from activities.errors import at_boundary
from activities.orders import Looked, Orders
from activities.pen import Pen
from tests.flows.world import PLANE_KEY, FakeClusters, World
from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import children, gates, reasons
from workflows.scaffold import gates as shared
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Nudge, OrderSeen, Removal, Task
from workflows.scaffold.verdict import Outcome, Verdict

CATALOG = {"serviceType": "image", "serviceName": "images"}
ACCOUNT = {"project": {"name": "service"}}
Finding = Verdict | Exception


def registered() -> Verdict:
    return Verdict(type=reasons.CATALOG_READY, status=True, reason=reasons.CATALOG_REGISTERED, message="It is there.")


def provisioned(message: str = "It can log in.") -> Verdict:
    return Verdict(type=reasons.ACCOUNT_READY, status=True, reason=reasons.ACCOUNT_PROVISIONED, message=message)


def waits(type_: str, reason: str, message: str = "for K-ORC", again: float | None = 10.0) -> Verdict:
    return Verdict(type=type_, status=False, reason=reason, message=message, again=again)


class ServiceWorld(World):
    """One registration. `catalog`, `account` and `published` are what its steps find next."""

    order_kind = KEYSTONE_SERVICE
    finalizer = children.FINALIZER

    def __init__(self, name: str, *blocks: str) -> None:
        self.blocks = blocks or ("catalog", "account")
        self.catalog: Finding = registered()
        self.account: Finding = provisioned("A user is there.")
        self.published: Finding = provisioned()
        self.nudge: Exception | None = None
        self.generation = 1
        """Of the password that the User refers to; 0 while there is no User."""
        self.nudged = False
        self.tasks: list[tuple[str, Task]] = []
        super().__init__(name)

    def declared(self) -> dict[str, Any]:
        every = {"catalog": CATALOG, "account": ACCOUNT}
        return {block: every[block] for block in self.blocks}

    def declare(self, *blocks: str) -> None:
        """An edit of the spec: a new generation."""
        self.blocks, live = blocks, self.live
        assert live is not None
        meta = {**live["metadata"], "generation": live["metadata"]["generation"] + 1}
        spec = {"controlPlaneRef": live["spec"]["controlPlaneRef"], **self.declared()}
        self.home.put(self.order_kind, {**live, "metadata": meta, "spec": spec})

    def plane(self, *, assigned: bool = True, ready: bool = True, annotations: Mapping[str, str] | None = None) -> None:
        condition = {"type": "AdminCredentialReady", "status": str(ready), "message": "m" * 1000}
        namespace, _, name = PLANE_KEY.partition("/")
        meta = {"name": name, "namespace": namespace, "uid": "plane", "annotations": annotations or {}}
        allowed = [self.ref.namespace] if assigned else []
        spec = {"korc": {"serviceRegistrations": {"allowedNamespaces": allowed}}}
        body = {"metadata": meta, "spec": spec, "status": {"conditions": [condition]}}
        self.management.put(CONTROL_PLANE, body)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self.condition(type_).get("reason", "") for type_ in reasons.CONDITIONS)

    def activities(self) -> list[Callable[..., Any]]:
        kind = FakeService(self)
        orders = Orders(cast(Clusters, FakeClusters(self)), {"KeystoneService": kind})
        steps = (
            orders.admit, orders.examine, orders.report, orders.release, orders.settle, kind.provision_catalog,
            kind.provision_account, kind.publish_account, kind.nudge_account, kind.remove_registration,
        )  # fmt: skip
        return [self._watched(step) for step in steps]


class FakeService:
    """What `Orders` asks a kind, and the kind's steps."""

    kind = KEYSTONE_SERVICE
    finalizer = children.FINALIZER
    finalizer_first = True
    condition_types: tuple[str, ...] = reasons.CONDITIONS
    blocks: tuple[str, ...] = ()

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> shared.Gate | None:
        return gates.consent(ref, plane_key, plane)

    def gate(self, plane: ControlPlane) -> shared.Gate | None:
        return shared.admin_credential(plane)

    def refused(self, order: OrderSeen, gate: shared.Gate) -> tuple[Verdict, ...]:
        return gates.refused(order.spec, gate)

    async def provide(self, task: Task, pen: Pen) -> Outcome | None:
        """As the product's: its steps are to be seen one by one."""
        return None

    async def provision_catalog(self, task: Task) -> Outcome:
        self._world.tasks.append(("provision_catalog", task))
        if not task.order.spec.get("catalog"):
            return Outcome(verdicts=(gates.undeclared("catalog"),), fields={"catalog": None})
        return Outcome(verdicts=(_found(self._world.catalog),), fields={"catalog": {"serviceID": "s"}})

    async def provision_account(self, task: Task) -> Outcome:
        self._world.tasks.append(("provision_account", task))
        if not task.order.spec.get("account"):
            return Outcome(verdicts=(gates.undeclared("account"),), fields={"account": None})
        found = _found(self._world.account)
        if self._world.nudged:
            self._world.nudged, self._world.generation = False, self._world.generation + 1
        return Outcome(verdicts=(found,), fields=self._fields())

    async def publish_account(self, task: Task) -> Outcome:
        self._world.tasks.append(("publish_account", task))
        return Outcome(verdicts=(_found(self._world.published),))

    async def nudge_account(self, nudge: Nudge) -> None:
        if self._world.nudge is not None:
            with at_boundary():
                raise self._world.nudge
        if not self._world.generation:
            raise ApplicationError("the account has no user yet", type="NoUser", non_retryable=True)
        if nudge.generation == self._world.generation:
            self._world.nudged = True

    async def remove_registration(self, task: Task) -> Removal:
        with at_boundary():
            return self._removal()

    async def look(self, task: Task) -> Looked:
        """`admit` looks at an order that was Ready; that it is at rest is the test's to say."""
        world = self._world
        spec = task.order.spec
        catalog = _found(world.catalog) if spec.get("catalog") else gates.undeclared("catalog")
        account = gates.undeclared("account")
        if spec.get("account"):
            account = _found(world.account)
            account = _found(world.published) if account.status else account
        outcome = Outcome(verdicts=(catalog, account), fields=self._fields())
        if activity.info().activity_type == "admit":
            return Looked(outcome, due=not world.at_rest)
        world.looks += 1
        return Looked(outcome, due=world.nudged)

    async def look_removal(self, task: Task) -> Removal:
        self._world.looks += 1
        return self._removal()

    def _fields(self) -> dict[str, Any]:
        generation = {"passwordGeneration": self._world.generation} if self._world.generation else {}
        return {"account": {"secretName": "x-credentials", **generation}} if "account" in self._world.blocks else {}

    def _removal(self) -> Removal:
        if isinstance(self._world.remove, Exception):
            raise self._world.remove
        return self._world.remove


def _found(finding: Finding) -> Verdict:
    with at_boundary():
        if isinstance(finding, Exception):
            raise finding
    return finding
