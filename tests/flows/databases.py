"""The made-up world of a MariaDBDatabase: what its steps find is a test's to dictate.

The shared steps are the product's own, as in `tests.flows.world`, and so are the gates.
"""

from __future__ import annotations

from typing import Any

from activities.cluster import MARIADB_DATABASE
from activities.mariadbdatabase import MariaDBDatabases
from activities.orders import KindSteps, Looked
from activities.pen import Pen
from tests.flows.world import Dictated, World, found, raised
from workflows.mariadbdatabase import children, delivery, reasons
from workflows.scaffold.steps import Removal, Task
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
    steps = ("provision_database", "deliver_database", "remove_database")
    gated_by = "DBCredentialsReady"

    def __init__(self, name: str, *, cluster: str = "") -> None:
        self.database: Finding = there()
        self.parcel: Finding = delivered()
        super().__init__(name, cluster=cluster)

    def plane_spec(self, assigned: bool) -> dict[str, Any]:
        return {
            **super().plane_spec(assigned),
            "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
        }

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self.condition(type_).get("reason", "") for type_ in reasons.CONDITIONS)

    def kind(self) -> KindSteps:
        return FakeDatabase(self)


class FakeDatabase(Dictated, MariaDBDatabases):
    """MariaDBDatabases that find what the world says."""

    _world: DatabaseWorld

    def __init__(self, world: DatabaseWorld) -> None:
        self._world = world

    async def provision_database(self, task: Task) -> Outcome:
        return Outcome(verdicts=(found(self._world.database),), fields={"roleName": "order.openstack.x"})

    async def deliver_database(self, task: Task) -> Outcome:
        return Outcome(verdicts=(found(self._world.parcel),), fields={"secretName": "x-credentials"})

    async def provide(self, task: Task, pen: Pen) -> Outcome | None:
        return self._both()

    async def remove_database(self, task: Task) -> Removal:
        return found(self._world.remove)

    async def look(self, task: Task) -> Looked:
        return self.looked(self._both())

    def _both(self) -> Outcome:
        database = raised(self._world.database)
        parcel = raised(self._world.parcel) if database.status else delivery.skipped(database)
        return Outcome(verdicts=(database, parcel))
