"""An ordered database on the whole real stack: schema, credential and what it may; refreshed, repaired, moved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pymysql
import pytest
import pytest_asyncio

from deploy.local import kube
from deploy.local.parts import mariadb, planes
from tests.audit import Audit, requests, writes
from tests.e2e.databases import (
    CERTIFICATES,
    CLIENT,
    DATABASES,
    ESO,
    EXTERNALS,
    FINALIZER,
    GENERATORS,
    LOGIN,
    LOGOUT,
    Estate,
    Witness,
    estate,
)
from tests.e2e.stage import Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(real_stack: Stage) -> AsyncIterator[Estate]:
    """One plane for the tests of this file that leave it as it is."""
    async with estate(real_stack) as made:
        yield made


@pytest.mark.row("M01", "M10", "M11", "M14", "M17")
async def test_an_order_gets_its_schema_and_a_credential_for_it_alone(real_stack: Stage) -> None:
    async with estate(real_stack) as ground:
        order, other = ground.database(unique("reports")), ground.database(unique("reports"), namespace="team-b")
        witness = Witness(real_stack)
        live = await (await order.place()).is_ready()
        await (await other.place()).is_ready()

        status, data = live["status"], await order.delivered()
        host = f"mariadb.{ground.namespace}.svc"
        assert (status["databaseName"], status["roleName"]) == (order.effective, order.role)
        assert (status["host"], status["port"], status["secretName"]) == (host, 3306, f"{order.name}-credentials")
        assert status["secretKeys"] == ["host", "port", "database", "username", "password"]
        assert set(data) == set(status["secretKeys"])
        assert (data["host"], data["port"], data["database"]) == (host, "3306", order.effective)
        assert data["username"].startswith("v-")
        assert live["metadata"]["finalizers"] == [FINALIZER]

        # What the credential may do, and what not.
        await order.sql(data, f"CREATE TABLE `{order.effective}`.`t` (a INT)")
        await order.sql(data, f"INSERT INTO `{order.effective}`.`t` VALUES (7)")
        assert await order.sql(data, f"SELECT a FROM `{order.effective}`.`t`") == [(7,)]
        for statement in (f"CREATE TABLE `{other.effective}`.`t` (a INT)", "SELECT * FROM mysql.user", "CREATE USER x"):
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                await order.sql(data, statement)

        # What is shared is nobody's.
        account, certificate = await ground.get("serviceaccounts", ESO), await ground.get(CERTIFICATES, CLIENT)
        for shared in (account, certificate):
            assert shared is not None
            assert "labels" not in shared["metadata"]
            assert "ownerReferences" not in shared["metadata"]
        assert certificate is not None
        assert certificate["spec"] == {
            "secretName": CLIENT,
            "duration": "8760h",
            "renewBefore": "720h",
            "usages": ["client auth"],
            "commonName": f"{CLIENT}.{ground.namespace}.svc",
            "issuerRef": {"name": "openbao-ca-issuer", "kind": "ClusterIssuer"},
        }

        # What is each order's own.
        role = await ground.role(order.role)
        assert role is not None
        escaped = order.effective.replace("_", "\\_")
        assert {key: role[key] for key in ("db_name", "default_ttl", "max_ttl")} == {
            "db_name": f"keystone-{ground.namespace}",
            "default_ttl": 172800,
            "max_ttl": 259200,
        }
        assert role["creation_statements"] == [
            "CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}';",
            f"GRANT ALL PRIVILEGES ON `{escaped}`.* TO '{{{{name}}}}'@'%';",
        ]
        assert role["revocation_statements"] == ["DROP USER IF EXISTS '{{name}}'@'%';"]
        database = await order.live_database()
        assert database is not None
        assert database["spec"]["mariaDbRef"] == {"name": "mariadb", "waitForIt": True}
        assert (database["spec"]["name"], database["spec"]["cleanupPolicy"]) == (order.effective, "Skip")
        for child in await order.children():
            assert order.labels.items() <= child["metadata"]["labels"].items()
        secret = await order.secret()
        assert secret is not None
        named = {key: value for key, value in order.labels.items() if not key.endswith("-cluster")}
        assert (secret["type"], secret["metadata"]["labels"]) == ("Opaque", named)
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("MariaDBDatabase", live["metadata"]["uid"], True)

        # Written once, read each time, one login each, taken back.
        asked = await witness.asked()
        path = f"database/mariadb/roles/{order.role}"
        assert [one for one in asked if path in one][:2] == [f"read {path}", f"create {path}"]
        assert asked.count(LOGIN) == asked.count(LOGOUT)
        await order.settles()
        witness = Witness(real_stack)
        await order.resync()
        assert await witness.asked() == [LOGIN, f"read {path}", LOGOUT]


@pytest.mark.row("M11")
async def test_a_role_that_differs_is_repaired_once(real_stack: Stage, ground: Estate) -> None:
    order = await ground.database(unique("repaired")).place()
    await order.is_ready()
    right = await ground.role(order.role)
    assert right is not None
    body = {key: right[key] for key in ("db_name", "revocation_statements", "default_ttl", "max_ttl")}
    loose = [statement.replace("\\_", "_") + " " for statement in right["creation_statements"]]
    await asyncio.to_thread(
        ground.bao.write_data, f"database/mariadb/roles/{order.role}", data={**body, "creation_statements": loose}
    )
    await order.resync()
    assert await ground.role(order.role) == right
    witness = Witness(real_stack)
    await order.resync()
    assert not [one for one in await witness.asked() if one.startswith(("update database", "create database"))]


@pytest.mark.row("M12")
async def test_an_underscore_is_no_wildcard(ground: Estate) -> None:
    one, two = ground.database(unique("one"), schema="tenant_a"), ground.database(unique("two"), schema="tenantxa")
    for each in (one, two):
        each.policy = "Delete"
    await asyncio.gather(one.place(), two.place())
    await asyncio.gather(one.is_ready(), two.is_ready())
    mine = await one.delivered()
    await two.sql(await two.delivered(), f"CREATE TABLE IF NOT EXISTS `{two.schema}`.`t` (a INT)")
    assert {row[0] for row in await one.sql(mine, "SHOW DATABASES")} == {"information_schema", one.schema}
    with pytest.raises(pymysql.err.OperationalError, match="denied"):
        await one.sql(mine, f"SELECT * FROM `{two.schema}`.`t`")


@pytest.mark.row("M16", "M27")
async def test_ten_passes_and_a_restart_make_no_new_user_and_write_nothing(real_stack: Stage, ground: Estate) -> None:
    order = await ground.database(unique("steady")).place()
    await order.settles()
    before, users = await order.external(), await order.users()
    audits = [(Audit(real_stack.stack), order.namespace), (Audit(real_stack.stack), ground.namespace)]
    await _silence(real_stack)
    witness = Witness(real_stack)
    await asyncio.sleep(12)  # longer than any order looks that waits for something
    assert await witness.asked() == [], "while nothing rings nobody logs in"
    asked = [one for audit, namespace in audits for one in await audit.asked(namespace)]
    assert [str(one) for one in asked if order.name in one.name or order.name in one.uri] == []
    audits = [(Audit(real_stack.stack), order.namespace), (Audit(real_stack.stack), ground.namespace)]
    for _ in range(9):
        await order.resync()
    await real_stack.kill("worker")
    await real_stack.start("worker")
    await order.resync()
    after = await order.external()
    assert (before or {})["metadata"] == (after or {})["metadata"]
    assert (before or {})["status"] == (after or {})["status"]
    assert await order.users() == users
    asked = [one for audit, namespace in audits for one in await audit.asked(namespace)]
    assert [one for one in writes(asked) if order.name in one] == []
    told = await witness.asked()
    passes = len(told) // 3  # the restarted worker may find a pass of its own to make
    assert passes in (10, 11)
    assert told == [LOGIN, f"read database/mariadb/roles/{order.role}", LOGOUT] * passes
    reads = [one for one in asked if order.name in one.name or one.namespace == ground.namespace]
    assert len([one for one in reads if one.verb != "watch"]) == 11 * passes


@pytest.mark.row("M18")
async def test_a_forced_refresh_delivers_the_new_user_and_says_so_once(real_stack: Stage, ground: Estate) -> None:
    order = await ground.database(unique("fresh")).place()
    refreshed = (await order.settles())["status"]["credentialsRefreshedAt"]
    first, users = await order.delivered(), await order.users()

    def said() -> list[dict[str, str]]:
        lines = [json.loads(line) for line in real_stack.log("worker").splitlines() if line.startswith("{")]
        text = "delivered a refreshed database credential"
        return [one for one in lines if one["message"] == text and one["order"] == order.workflow_id]

    before = said()
    assert len(before) <= len(users) - 1  # the first delivery is none of them
    await asyncio.sleep(1.1)
    await order.refresh()
    second = await until(order.delivered, lambda data: data["username"] != first["username"], 10)
    assert await order.logs_in(second)
    assert await order.logs_in(first)  # it works on until its own time is over
    await until(order.status, lambda status: status["credentialsRefreshedAt"] > refreshed, 10)
    await order.resync()
    await order.settles()
    lines, second = said()[len(before) :], await order.delivered()
    assert len({line["username"] for line in lines}) == len(lines) in (1, 2)
    assert lines[-1]["username"] == second["username"]
    assert all(line["refreshTime"] for line in lines)
    assert len(await order.users() - users) in (1, 2)  # External Secrets may fetch twice, see `settles`


@pytest.mark.row("M20")
async def test_an_order_on_a_target_cluster_is_provisioned_at_home_and_delivered_there(
    real_stack: Stage, ground: Estate
) -> None:
    order = ground.database(unique("edge"), cluster="target")
    twin = ground.database(order.name, schema=f"{order.effective}_home")
    await asyncio.gather(order.place(), twin.place())
    live, _ = await asyncio.gather(order.is_ready(), twin.is_ready())
    port = str(real_stack.stack.ports["mariadb"])
    data = await order.delivered()
    assert (data["host"], data["port"]) == ("127.0.0.1", port)
    assert (live["status"]["host"], live["status"]["port"]) == ("127.0.0.1", int(port))
    assert await order.logs_in(data)
    assert order.role != twin.role
    assert len(await order.children()) == 5
    home = await kube.get(real_stack.stack, "management", "secrets", order.namespace, f"{order.name}-credentials")
    assert home is not None, "the order of the same name at home has its own"
    assert home["metadata"]["ownerReferences"][0]["uid"] != live["metadata"]["uid"]

    # An edit of the endpoint is heard at once, for planes ring orders wherever they are.
    await ground.patch("controlplanes.c5c3.io", ground.name, {"spec": {"infrastructure": {"publishedDatabaseEndpoint": f"[::1]:{port}"}}})  # noqa: E501  # fmt: skip
    await until(order.delivered, lambda data: data["host"] == "::1", 10)
    await ground.patch("controlplanes.c5c3.io", ground.name, {"spec": {"infrastructure": {"publishedDatabaseEndpoint": None}}})  # noqa: E501  # fmt: skip
    said = await order.reads("DeliveryReady", "DatabaseNotPublished")
    assert "publishedDatabaseEndpoint" in said["message"]
    status = await order.status()
    assert (status["host"], status["secretName"]) == ("::1", f"{order.name}-credentials")  # kept as delivered
    await ground.patch("controlplanes.c5c3.io", ground.name, {"spec": {"infrastructure": {"publishedDatabaseEndpoint": f"127.0.0.1:{port}"}}})  # noqa: E501  # fmt: skip
    await order.is_ready()
    await order.delete()
    await order.gone()
    assert await order.secret() is None
    assert await order.children() == []
    assert await twin.is_ready()


@pytest.mark.row("M22")
async def test_an_edited_or_deleted_secret_comes_back_and_a_strangers_stays(real_stack: Stage, ground: Estate) -> None:
    order = await ground.database(unique("mended")).place()
    await order.settles()
    right = await order.delivered()
    name = f"{order.name}-credentials"
    edited = {"data": {"password": "d3Jvbmc=", "theirs": "a2VwdA=="}}
    await kube.patch(real_stack.stack, "management", "secrets", order.namespace, name, edited)
    await until(order.delivered, lambda data: data == {**right, "theirs": "kept"}, 10)
    await real_stack.delete("management", "secrets", order.namespace, name)
    await until(order.delivered, lambda data: data == right, 10)

    other = ground.database(unique("refused"))
    theirs = planes.secret(other.namespace, f"{other.name}-credentials", password="theirs")
    await kube.apply(real_stack.stack, "management", [theirs])
    before = await other.secret()
    await other.place()
    said = await other.reads("DeliveryReady", "DeliveryRefused")
    assert f"{other.name}-credentials" in said["message"]
    await other.resync()
    assert await other.secret() == before
    await other.delete()
    await other.gone()
    assert await other.secret() == before
    await real_stack.delete("management", "secrets", other.namespace, f"{other.name}-credentials")


@pytest.mark.row("M10", "M11", "M22")
async def test_whatever_is_deleted_or_edited_by_hand_comes_back(real_stack: Stage) -> None:
    """What is watched at once; what is shared by a plane's orders, and the role, by the next pass."""
    async with estate(real_stack) as ground:
        order = await ground.database(unique("restored")).place()
        await order.settles()
        await order.sql(await order.delivered(), f"CREATE TABLE `{order.effective}`.`t` (a INT)")
        credentials = f"{order.prefix}-credentials"

        async def uid(resource: str, name: str) -> str:
            found = await ground.get(resource, name)
            return str(found["metadata"]["uid"]) if found else ""

        for resource, name in (
            (DATABASES, f"{order.prefix}-database"),
            (GENERATORS, credentials),
            (EXTERNALS, credentials),
            ("secrets", credentials),
        ):
            before = await uid(resource, name)
            await real_stack.delete("management", resource, ground.namespace, name)
            await until(lambda w=(resource, name): uid(*w), lambda now, old=before: now not in ("", old), 30)  # type: ignore[misc]
            await order.is_ready()
        for resource, name in ((CERTIFICATES, CLIENT), ("secrets", CLIENT), ("serviceaccounts", ESO)):
            before = await uid(resource, name)
            await real_stack.delete("management", resource, ground.namespace, name)
            if name == ESO:
                await order.refresh()  # the identity is looked for again when it is found lacking
            else:
                await order.resync()
            await until(lambda w=(resource, name): uid(*w), lambda now, old=before: now not in ("", old), 60)  # type: ignore[misc]
        await asyncio.to_thread(ground.bao.delete, f"database/mariadb/roles/{order.role}")
        await order.resync()
        await order.is_ready(120)
        assert await ground.role(order.role) is not None

        def said(found: object) -> tuple[str, str]:
            spec = found["spec"] if isinstance(found, dict) else {}
            return str(spec.get("path")), str(spec.get("refreshInterval"))

        await ground.patch(GENERATORS, credentials, {"spec": {"path": "database/mariadb/creds/other"}})
        await until(lambda: ground.get(GENERATORS, credentials), lambda live: said(live)[0].endswith(order.role), 30)
        await ground.patch(EXTERNALS, credentials, {"spec": {"refreshInterval": "1h"}})
        await until(order.external, lambda live: said(live)[1] == "24h", 30)
        await order.settles(120)
        data = await order.delivered()
        assert await order.sql(data, f"SHOW TABLES FROM `{order.effective}`") == [("t",)]


@pytest.mark.row("M09", "M15")
async def test_a_schema_that_somebody_else_has_is_refused_without_a_name(real_stack: Stage, ground: Estate) -> None:
    first = await ground.database(unique("first"), schema=unique("s").replace("-", "_")).place()
    await first.is_ready()
    second = await ground.database(unique("second"), namespace="team-b", schema=first.schema).place()
    said = await second.reads("DatabaseReady", "DatabaseCollision")
    for word in (first.name, first.namespace, first.prefix):
        assert word not in said["message"]
    assert first.schema in said["message"]
    lines = [json.loads(line) for line in real_stack.log("worker").splitlines() if line.startswith("{")]
    taken = [
        one["takenBy"]
        for one in lines
        if one["message"] == "the database an order names is taken on the shared MariaDB"
        and one["order"] == second.workflow_id
    ]
    assert taken[0] == f"Database {ground.namespace}/{first.prefix}-database"
    assert condition(await second.live(), "DeliveryReady")["reason"] == "WaitingForCredentials"
    assert await second.children() == []
    assert await ground.role(second.role) is None

    # Keystone's own schema, which no Database names here, and the server's own.
    for schema, reason in (("keystone", "DatabaseCollision"), ("Performance_Schema", "DatabaseNameReserved")):
        order = await ground.database(unique("own"), schema=schema).place()
        await order.reads("DatabaseReady", reason)
        assert await order.children() == []


@pytest.mark.row("M09")
async def test_of_two_orders_for_one_schema_exactly_one_gets_it(ground: Estate) -> None:
    schema = unique("race").replace("-", "_")
    orders = [ground.database(unique("racer"), namespace=f"team-{'ab'[i % 2]}", schema=schema) for i in range(4)]
    await asyncio.gather(*(order.place() for order in orders))
    reasons = await asyncio.gather(
        *(order.reads("DatabaseReady", "DatabaseCollision", "DatabaseProvisioned") for order in orders)
    )
    assert sorted(said["reason"] for said in reasons) == ["DatabaseCollision"] * 3 + ["DatabaseProvisioned"]
    assert len(await orders[0].users()) in (1, 2)
    winner = next(o for o, said in zip(orders, reasons, strict=True) if said["reason"] == "DatabaseProvisioned")
    await winner.delete()
    await winner.gone()
    assert not await winner.users()


async def _silence(stage: Stage) -> None:
    """Until OpenBao was not asked for longer than news folds: orders of other tests come to rest in their own time."""
    for _ in range(10):
        witness = Witness(stage)
        await asyncio.sleep(6)
        if not await witness.asked():
            return


@pytest.mark.row("M03")
async def test_a_withdrawn_assignment_freezes_and_deletion_goes_on_all_the_same(real_stack: Stage) -> None:
    async with estate(real_stack) as ground:
        order = await ground.database(unique("frozen")).place()
        before = (await order.is_ready())["status"]
        children = [one["metadata"]["uid"] for one in await order.children()]
        await ground.assign()
        await order.reads("DatabaseReady", "NamespaceNotAssigned")
        await order.reads("DeliveryReady", "NamespaceNotAssigned")
        edited = {"data": {"password": "d3Jvbmc="}}
        await _silence(real_stack)
        witness = Witness(real_stack)
        name = f"{order.name}-credentials"
        await kube.patch(real_stack.stack, "management", "secrets", order.namespace, name, edited)
        await order.resync()
        await asyncio.sleep(2)
        assert (await order.delivered())["password"] == "wrong"
        assert [one["metadata"]["uid"] for one in await order.children()] == children
        assert await ground.role(order.role) is not None
        assert await witness.asked() == []
        after = await order.status()
        for kept in ("databaseName", "host", "port", "roleName", "secretName", "secretKeys", "credentialsRefreshedAt"):
            assert after[kept] == before[kept]
        await order.delete()
        await order.gone()
        assert await order.children() == []
        assert await ground.role(order.role) is None


@pytest.mark.row("M17", "M30")
async def test_a_connection_that_was_not_opened_for_orders_says_so_and_heals_by_the_bootstrap(
    real_stack: Stage,
) -> None:
    async with estate(real_stack) as ground:
        password = await asyncio.to_thread(mariadb.root_password, real_stack.stack)
        body = {**ground.tenant.connection(password), "allowed_roles": [ground.tenant.name]}
        await asyncio.to_thread(ground.bao.write_data, f"database/mariadb/config/{ground.tenant.name}", data=body)
        order = await ground.database(unique("closed")).place()
        await order.reads("DatabaseReady", "WaitingForCredentials")
        words = "could not get secret data"
        live = await until(order.live, lambda live: words in condition(live, "DatabaseReady").get("message", ""), 30)
        said = condition(live, "DatabaseReady")
        for word in (f"database/mariadb/creds/{order.role}", "setup-database-tenant"):
            assert word in said["message"]
        assert condition(await order.live(), "DeliveryReady")["reason"] == "WaitingForCredentials"
        assert (await order.status())["roleName"] == order.role
        assert await order.secret() is None
        await ground.onboard()
        await order.is_ready(120)
        assert await order.logs_in(await order.delivered())


async def test_what_was_asked_of_the_two_clusters_was_never_refused(real_stack: Stage, ground: Estate) -> None:
    """Our rights are enough for a whole life of an order on either cluster."""
    orders = [ground.database(unique("rights"), cluster=cluster) for cluster in ("management", "target")]
    await asyncio.gather(*(order.place() for order in orders))
    await asyncio.gather(*(order.is_ready() for order in orders))
    await asyncio.gather(*(order.delete() for order in orders))
    await asyncio.gather(*(order.gone() for order in orders))
    for cluster in ("management", "target"):
        refused = [
            str(one)
            for one in requests(real_stack.stack, cluster, real_stack.begun)
            if one.code == 403 and not any(since <= one.at <= until_ for since, until_ in real_stack.provoked)
        ]
        assert refused == []
