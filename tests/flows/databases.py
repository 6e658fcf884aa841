"""The made-up world of a MariaDBDatabase: what its steps find is a test's to dictate.

The shared steps are the product's own, as in `tests.flows.world`, and so are the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from temporalio import activity

from activities.cluster import CONTROL_PLANE, MARIADB_DATABASE
from activities.clusters import Clusters
from activities.errors import at_boundary
from activities.orders import Looked, Orders
from activities.pen import Pen
from tests.flows.world import PLANE_KEY, FakeClusters, World
from workflows.api.controlplane import ControlPlane
from workflows.mariadbdatabase import children, delivery, gates, reasons
from workflows.scaffold import gates as shared
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import OrderSeen, Removal, Task
from workflows.scaffold.verdict import Outcome, Verdict

Finding = Verdict | Exception


def there() -> Verdict:
    return Verdict(type=reasons.DATABASE_READY, status=True, reason=reasons.PROVISIONED, message="It is there.")


def delivered() -> Verdict:
    return Verdict(type=reasons.DELIVERY_READY, status=True, reason=reasons.DELIVERED, message="It is delivered.")


def waits(reason: str, type_: str = reasons.DATABASE_READY, again: float | None = 10.0) -> Verdict:
    return Verdict(type=type_, status=False, reason=reason, message="for something", again=again)


class DatabaseWorld(World):
    """One order. `database` and `parcel` are what its steps find next."""

    order_kind = MARIADB_DATABASE
    finalizer = children.FINALIZER

    def __init__(self, name: str, *, cluster: str = "") -> None:
        self.database: Finding = there()
        self.parcel: Finding = delivered()
        super().__init__(name, cluster=cluster)

    def plane(self, *, assigned: bool = True, ready: bool = True, annotations: Mapping[str, str] | None = None) -> None:
        condition = {"type": "DBCredentialsReady", "status": str(ready), "message": "m" * 1000}
        namespace, _, name = PLANE_KEY.partition("/")
        meta = {"name": name, "namespace": namespace, "uid": "plane", "annotations": annotations or {}}
        cluster = {"targetClusterRef": {"name": self.ref.cluster}} if self.ref.cluster else {}
        entries = [{"namespace": self.ref.namespace, **cluster}] if assigned else []
        database = {"database": {"clusterRef": {"name": "mariadb"}}}
        spec = {"namespaceAssignments": entries, "infrastructure": database}
        body = {"metadata": meta, "spec": spec, "status": {"conditions": [condition]}}
        self.management.put(CONTROL_PLANE, body)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self.condition(type_).get("reason", "") for type_ in reasons.CONDITIONS)

    def activities(self) -> list[Callable[..., Any]]:
        kind = FakeDatabase(self)
        orders = Orders(cast(Clusters, FakeClusters(self)), {"MariaDBDatabase": kind})
        steps = (
            orders.admit, orders.examine, orders.report, orders.release, orders.settle, kind.provision_database,
            kind.deliver_database, kind.remove_database,
        )  # fmt: skip
        return [self._watched(step) for step in steps]


class FakeDatabase:
    """What `Orders` asks a kind, and the kind's steps."""

    kind = MARIADB_DATABASE
    finalizer = children.FINALIZER
    finalizer_first = False
    condition_types: tuple[str, ...] = reasons.CONDITIONS
    blocks: tuple[str, ...] = ()

    def __init__(self, world: DatabaseWorld) -> None:
        self._world = world

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> shared.Gate | None:
        return shared.assignment(ref, plane_key, plane)

    def gate(self, plane: ControlPlane) -> shared.Gate | None:
        return gates.dynamic(plane)

    def refused(self, order: OrderSeen, gate: shared.Gate) -> tuple[Verdict, ...]:
        return gates.refused(gate)

    async def provision_database(self, task: Task) -> Outcome:
        return Outcome(verdicts=(_found(self._world.database),), fields={"roleName": "order.openstack.x"})

    async def deliver_database(self, task: Task) -> Outcome:
        return Outcome(verdicts=(_found(self._world.parcel),), fields={"secretName": "x-credentials"})

    async def provide(self, task: Task, pen: Pen) -> Outcome | None:
        return self._both()

    async def remove_database(self, task: Task) -> Removal:
        with at_boundary():
            return self._removal()

    async def look(self, task: Task) -> Looked:
        """`admit` looks at an order that was Ready; that it is at rest is the test's to say."""
        if activity.info().activity_type == "admit":
            return Looked(self._both(), due=not self._world.at_rest)
        self._world.looks += 1
        return Looked(self._both(), due=False)

    async def look_removal(self, task: Task) -> Removal:
        self._world.looks += 1
        return self._removal()

    def _both(self) -> Outcome:
        database = _found(self._world.database)
        parcel = _found(self._world.parcel) if database.status else delivery.skipped(database)
        return Outcome(verdicts=(database, parcel))

    def _removal(self) -> Removal:
        if isinstance(self._world.remove, Exception):
            raise self._world.remove
        return self._world.remove


def _found(finding: Finding) -> Verdict:
    with at_boundary():
        if isinstance(finding, Exception):
            raise finding
    return finding
