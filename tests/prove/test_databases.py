"""A batch of ordered databases through everything that may die or fall silent, and what is left of it: what was kept.

C5C3_PROVE_DATABASES  how many at once (100); a rehearsal takes 10
C5C3_PROVE_SEALED     how long OpenBao is sealed, in each half (20 s)

On the instance of the end-to-end tests (C5C3_E2E_INSTANCE), for it has the stores and the stand-in.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable

import pytest

from deploy.local import kube
from deploy.local.parts import mariadb
from tests.audit import OPERATOR, Audit
from tests.e2e.databases import (
    DATABASES,
    EXTERNALS,
    GENERATORS,
    LOGIN,
    ORDERS,
    Database,
    Estate,
    Witness,
    estate,
    sealed,
)
from tests.e2e.stage import Object, Stage, condition, unique, until

COUNT = int(os.environ.get("C5C3_PROVE_DATABASES", "100"))
SEALED = float(os.environ.get("C5C3_PROVE_SEALED", "20"))
PATIENCE = 900.0
HANDS = 8

pytestmark = [pytest.mark.prove, pytest.mark.real, pytest.mark.timeout(2 * PATIENCE)]


class Batch:
    """Databases of one plane: every second is dropped with its order, and every fifth is ordered on the target."""

    def __init__(self, ground: Estate, count: int) -> None:
        self.ground, self.stage, self.name = ground, ground.stage, unique("p")
        self.orders = [
            ground.database(
                f"{self.name}-{number}",
                cluster="target" if number % 5 == 0 else "management",
                policy="Delete" if number % 2 else "Retain",
            )
            for number in range(count)
        ]

    @property
    def kept(self) -> list[Database]:
        return [order for order in self.orders if order.policy == "Retain"]

    async def each(self, act: Callable[[Database], Awaitable[object]], of: Iterable[Database] | None = None) -> None:
        """Does it to every one, some at once."""
        hands = asyncio.Semaphore(HANDS)

        async def one(order: Database) -> None:
            async with hands:
                await act(order)

        await asyncio.gather(*(one(order) for order in of or self.orders))

    async def live(self) -> list[Object]:
        found = [
            one
            for cluster in ("management", "target")
            for one in await kube.items(self.stage.stack, cluster, ORDERS, "team-a")
        ]
        return [one for one in found if one["metadata"]["name"].startswith(self.name)]

    async def ready(self) -> int:
        return len([one for one in await self.live() if condition(one, "Ready").get("status") == "True"])

    async def gone(self) -> int:
        return len(self.orders) - len(await self.live())

    async def schemas(self) -> set[str]:
        rows = await asyncio.to_thread(mariadb.execute, self.stage.stack, ("SHOW DATABASES", ()))
        return {row[0] for row in rows} & {order.effective for order in self.orders}

    async def users(self) -> set[str]:
        """SQL users that may do something in a schema of the batch."""
        rows = await asyncio.to_thread(mariadb.execute, self.stage.stack, ("SELECT User, Db FROM mysql.db", ()))
        names = {order.effective for order in self.orders}
        return {user for user, schema in rows if schema.replace("\\_", "_") in names}

    async def engine_users(self) -> set[str]:
        """Every SQL user that was made for this batch's plane, whether or not it may do anything yet."""
        rows = await asyncio.to_thread(mariadb.execute, self.stage.stack, ("SELECT User FROM mysql.user", ()))
        return {row[0] for row in rows if row[0].startswith("v-")}

    async def roles(self) -> set[str]:
        found = await asyncio.to_thread(self.ground.bao.list, "database/mariadb/roles")
        return {role for role in found["data"]["keys"] if role.startswith(f"order.{self.ground.namespace}.")}

    async def leases(self) -> int:
        return sum([len(await self.ground.leases(order.role)) for order in self.orders])

    async def children(self) -> list[str]:
        """Of every kind that an order makes, but what is shared."""
        kinds = (DATABASES, GENERATORS, EXTERNALS, "leases.coordination.k8s.io", "secrets")
        found = [one for kind in kinds for one in await self.ground.items(kind)]
        found += [
            one
            for cluster in ("management", "target")
            for one in await kube.items(self.stage.stack, cluster, "secrets", "team-a")
        ]
        return [one["metadata"]["name"] for one in found if _names(one, self.name)]

    async def runs(self) -> list[str]:
        query = 'ExecutionStatus = "Running" AND OrderKind = "MariaDBDatabase"'
        return [run.id async for run in self.stage.temporal.list_workflows(query) if f"/{self.name}-" in run.id]

    async def log_in(self) -> None:
        """Each as the user that was delivered to it, into the schema that is its own and into no other's."""

        async def one(order: Database) -> None:
            data = await order.delivered()
            seen = {row[0] for row in await order.sql(data, "SHOW DATABASES")}
            assert seen == {"information_schema", order.effective}
            await order.sql(data, f"CREATE TABLE `{order.effective}`.`t` (a INT)")

        await self.each(one)


def _names(found: Object, batch: str) -> bool:
    meta = found["metadata"]
    labelled = (meta.get("labels") or {}).get("c5c3.io/mariadbdatabase-name", "")
    return bool(meta["name"].startswith(batch) or labelled.startswith(f"{batch}-"))


Fault = Callable[[], Awaitable[None]]


@pytest.mark.row("M01", "M13", "M23", "M24", "M25")
async def test_a_batch_amid_kills_and_a_sealed_openbao_is_served_and_taken_back_whole(
    real_stack: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both programs and OpenBao are killed or sealed, amid the provisioning and amid the deletion."""

    def killed(part: str) -> Fault:
        async def act() -> None:
            await real_stack.kill(part)
            await real_stack.start(part)

        return act

    async def silenced() -> None:
        async with sealed(real_stack):
            await asyncio.sleep(SEALED)

    async def faults(done: Callable[[], Awaitable[int]], *when: tuple[float, Fault]) -> None:
        """Each once so much of the batch is done."""
        for share, act in when:
            await until(done, lambda count, share=share: count >= share * COUNT, PATIENCE, pause=0.2)  # type: ignore[misc]
            await act()

    async with estate(real_stack) as ground:
        batch = Batch(ground, COUNT)
        before = await batch.engine_users()
        audit, witness = Audit(real_stack.stack), Witness(real_stack)
        mark, began = audit.mark(), time.perf_counter()
        hurting = asyncio.create_task(
            faults(batch.ready, (0.1, killed("worker")), (0.2, silenced), (0.4, killed("watcher")),
                   (0.5, killed("openbao")), (0.7, killed("worker")))
        )  # fmt: skip
        await batch.each(lambda order: order.place())
        await until(batch.ready, lambda count: count == COUNT, PATIENCE, pause=0.5)
        served = time.perf_counter() - began
        await hurting
        asked = [one for one in audit.since(mark, OPERATOR) if batch.name in one.uri or batch.name in one.name]
        logins = (await witness.asked()).count(LOGIN)
        await batch.log_in()
        assert await batch.schemas() == {order.effective for order in batch.orders}
        assert await batch.roles() == {order.role for order in batch.orders}
        issued = len(await batch.users())
        assert issued >= COUNT

        began = time.perf_counter()
        hurting = asyncio.create_task(
            faults(batch.gone, (0.1, killed("worker")), (0.2, silenced), (0.4, killed("openbao")),
                   (0.6, killed("watcher")))
        )  # fmt: skip
        await batch.each(lambda order: order.delete())
        await until(batch.gone, lambda count: count == COUNT, PATIENCE, pause=0.5)
        gone = time.perf_counter() - began
        await hurting
        assert await batch.schemas() == {order.effective for order in batch.kept}
        assert await batch.roles() == set()
        assert await batch.leases() == 0
        assert await batch.users() == set()
        assert await batch.engine_users() <= before
        assert await batch.children() == []
        await until(batch.runs, lambda runs: not runs, 60)
        for order in batch.kept:  # what was kept is taken by hand, for nobody orders it again
            statement = f"DROP DATABASE `{order.effective}`"
            await asyncio.to_thread(mariadb.execute, real_stack.stack, (statement, ()))
    with capsys.disabled():
        print(
            f"\n{COUNT} databases, three kills, OpenBao killed and sealed for {SEALED:.0f} s: all Ready after"
            f" {served:.0f} s, {issued} credentials issued, {len(asked) / COUNT:.0f} requests and {logins / COUNT:.1f}"
            f" logins each to Ready; all gone {gone:.0f} s after their deletion, with two kills and OpenBao killed and"
            f" sealed again; {len(batch.kept)} schemas left, nothing else"
        )
