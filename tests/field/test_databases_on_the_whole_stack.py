"""Field reports about databases, on the real stack: revocation before the role, twice, and a user in another schema."""

from __future__ import annotations

import asyncio

import pymysql
import pytest

from deploy.local.parts import mariadb
from tests.e2e.databases import LOGIN, LOGOUT, Witness, estate
from tests.e2e.stage import Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


@pytest.mark.row("M23", "M25")
async def test_d10_leases_are_revoked_before_their_role_goes_and_a_failure_keeps_everything(real_stack: Stage) -> None:
    async with estate(real_stack) as ground:
        order = await ground.database(unique("leased")).place()
        await order.settles()
        await order.refresh()
        await until(lambda: ground.leases(order.role), lambda leases: len(leases) >= 2, 10)
        await order.settles()

        # A revocation that fails: MariaDB refuses the root that OpenBao knows.
        name = f"database/mariadb/config/{ground.tenant.name}"
        password = await asyncio.to_thread(mariadb.root_password, real_stack.stack)
        broken = {**ground.tenant.connection("wrong"), "verify_connection": False}
        await asyncio.to_thread(ground.bao.write_data, name, data=broken)
        witness = Witness(real_stack)
        await order.delete()
        held = await until(
            order.live, lambda live: condition(live, "Ready").get("message", "").startswith("removing OpenBao"), 60
        )
        assert f'database role "{order.role}"' in condition(held, "Ready")["message"]
        asked = await witness.asked()
        assert not [one for one in asked if one.startswith("delete")], "the role stays while its leases are there"
        assert asked.count(LOGIN) == asked.count(LOGOUT)
        assert await ground.role(order.role) is not None
        assert len(await order.children()) == 5
        assert await order.secret() is not None

        await asyncio.to_thread(ground.bao.write_data, name, data=ground.tenant.connection(password))
        await order.gone(180)
        assert await order.users() == set()
        assert await ground.leases(order.role) == []


@pytest.mark.row("M23")
async def test_d11_a_revocation_that_was_made_already_is_done(real_stack: Stage) -> None:
    """A worker that dies after it has revoked, and a user that somebody drops by hand, stop no later teardown."""
    async with estate(real_stack) as ground:
        order = await ground.database(unique("twice")).place()
        await order.settles()
        for user in await order.users():
            await asyncio.to_thread(mariadb.execute, real_stack.stack, (f"DROP USER '{user}'@'%'", ()))
        await real_stack.kill("worker")
        revoke = f"sys/leases/revoke-prefix/database/mariadb/creds/{order.role}"
        await asyncio.to_thread(ground.bao.write_data, revoke, data={"sync": True})
        await order.delete()
        await asyncio.to_thread(ground.bao.delete, f"database/mariadb/roles/{order.role}")
        await real_stack.start("worker")
        await order.gone(60)
        assert await order.children() == []


@pytest.mark.row("M12")
async def test_d12_no_tenant_reads_another_whose_name_differs_by_a_wildcard(real_stack: Stage) -> None:
    async with estate(real_stack) as ground:
        mark = unique("d").replace("-", "")
        orders = [
            ground.database(unique(f"w{index}"), schema=schema)
            for index, schema in enumerate((f"{mark}_a", f"{mark}xa", f"{mark}__", f"{mark}_a_"))
        ]
        await asyncio.gather(*(order.place() for order in orders))
        await asyncio.gather(*(order.settles() for order in orders))
        for order in orders:
            data = await order.delivered()
            seen = {row[0] for row in await order.sql(data, "SHOW DATABASES")}
            assert seen == {"information_schema", order.schema}
            for other in orders:
                if other is not order:
                    with pytest.raises(pymysql.err.OperationalError, match="denied"):
                        await order.sql(data, f"CREATE TABLE `{other.schema}`.`t` (a INT)")
            stored = await ground.role(order.role)
            assert stored is not None
            escaped = order.schema.replace("_", "\\_")
            assert f"`{escaped}`" in stored["creation_statements"][1]


async def test_d06_one_of_everything_however_often_the_worker_dies(real_stack: Stage) -> None:
    async with estate(real_stack) as ground:
        orders = [await ground.database(unique("mortal")).place() for _ in range(3)]
        for _ in range(4):
            await asyncio.sleep(0.35)
            await real_stack.kill("worker")
            await real_stack.start("worker")
        await asyncio.gather(*(order.is_ready(120) for order in orders))
        for order in orders:
            live = await order.settles(120)
            kinds = [one["metadata"]["name"] for one in await order.children()]
            assert len(kinds) == 5
            assert await order.logs_in(await order.delivered())
            assert condition(live, "Ready")["message"] == "Everything that was ordered is there."
            assert len(await order.users()) <= 2
