"""An ordered database being deleted, and OpenBao in trouble: what is revoked, in which order, and what holds."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from deploy.local import kube
from deploy.local.parts import openbao, operator
from tests.audit import requests, writes
from tests.bao_by_hand import expired
from tests.e2e.databases import (
    CERTIFICATES,
    CLIENT,
    DATABASES,
    LOGIN,
    LOGOUT,
    Estate,
    Witness,
    estate,
    sealed,
)
from tests.e2e.stage import Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(real_stack: Stage) -> AsyncIterator[Estate]:
    """One plane for the tests of this file that leave it as it is."""
    async with estate(real_stack) as made:
        yield made


def removed_in(stage: Stage, since: float, name: str) -> list[str]:
    """The deletes and policy changes that were asked for, in order, by the API server's own log."""
    return [
        f"{one.verb} {one.resource}"
        for one in requests(stage.stack, "management", since)
        if name in one.name and one.verb in ("delete", "patch") and "status" not in one.resource
    ]


@pytest.mark.row("M23", "M24", "B01")
async def test_leases_and_role_go_before_the_children_and_retain_keeps_the_schema(
    real_stack: Stage, ground: Estate
) -> None:
    order = await ground.database(unique("kept")).place()
    await order.settles()
    await order.refresh()  # two live leases
    await until(order.users, lambda users: len(users) >= 2, 10)
    await order.settles()
    data, users = await order.delivered(), await order.users()
    await order.sql(data, f"CREATE TABLE `{order.effective}`.`t` (a INT)")
    assert len(await ground.leases(order.role)) == len(users)
    witness, since = Witness(real_stack), time.time()
    await order.delete()
    await order.gone()

    path = f"database/mariadb/roles/{order.role}"
    revoke = f"update sys/leases/revoke-prefix/database/mariadb/creds/{order.role}"
    moments = await witness.moments()
    asked = [what for _, what in moments]
    assert asked[:4] == [LOGIN, revoke, f"delete {path}", LOGOUT]
    assert asked.count(LOGIN) == asked.count(LOGOUT)
    mine = [one for one in requests(real_stack.stack, "management", since) if order.name in one.name]
    assert moments[2][0] < min(one.at for one in mine if one.verb == "delete"), "the role is gone before anything else"
    assert removed_in(real_stack, since, order.name) == [
        "delete externalsecrets",
        "delete vaultdynamicsecrets",
        "delete databases",
        "delete secrets",
    ]
    assert await order.users() == set()
    assert await order.children() == []
    assert await ground.role(order.role) is None
    assert await ground.leases(order.role) == []
    assert not await order.logs_in(data)
    assert await order.has_schema()

    # The schema is there for whoever orders it again.
    again = await order.place()
    await again.is_ready()
    assert await again.sql(await again.delivered(), "SHOW TABLES FROM `" + again.effective + "`") == [("t",)]


@pytest.mark.row("M15", "M24")
async def test_delete_drops_the_schema_and_a_policy_edit_in_the_same_second_counts(
    real_stack: Stage, ground: Estate
) -> None:
    dropped, late, spared = (
        ground.database(unique("dropped"), policy="Delete"),
        ground.database(unique("late"), policy="Retain"),
        ground.database(unique("spared"), policy="Delete"),
    )
    await asyncio.gather(*(order.place() for order in (dropped, late, spared)))
    await asyncio.gather(*(order.is_ready() for order in (dropped, late, spared)))

    # An edit reaches the live Database by itself.
    def policy(found: object) -> object:
        return found["spec"]["cleanupPolicy"] if isinstance(found, dict) else None

    for wanted, written in (("Retain", "Skip"), ("Delete", "Delete")):
        dropped.policy = wanted
        await dropped.place()
        await until(dropped.live_database, lambda found, written=written: policy(found) == written, 10)  # type: ignore[misc]
    # And one that is followed at once by the deletion is the one that counts.
    since = time.time()
    for order, wanted in ((late, "Delete"), (spared, "Retain")):
        order.policy = wanted
        await order.place()
        await order.delete()
    await dropped.delete()
    await asyncio.gather(*(order.gone() for order in (dropped, late, spared)))
    assert [await order.has_schema() for order in (dropped, late, spared)] == [False, False, True]
    seen = removed_in(real_stack, since, late.name)
    assert seen.index("patch databases") < seen.index("delete databases") < seen.index("delete secrets")


@pytest.mark.row("M13", "M25")
async def test_a_sealed_openbao_is_said_and_holds_deletion_and_heals(real_stack: Stage, ground: Estate) -> None:
    before, after = ground.database(unique("before")), ground.database(unique("after"))
    await before.place()
    await before.settles()
    async with sealed(real_stack):
        since = time.time()
        await after.place()
        await before.delete()
        said = await after.reads("DatabaseReady", "OpenBaoError")
        assert "503" in said["message"]
        assert "sealed" in said["message"]
        assert condition(await after.live(), "DeliveryReady")["reason"] == "WaitingForCredentials"
        held = await until(before.live, lambda live: "removing OpenBao" in condition(live, "Ready").get("message", ""))
        message = condition(held, "Ready")["message"]
        assert message.startswith(f'removing OpenBao database role "{before.role}"')
        assert removed_in(real_stack, since, before.name) == []
        assert len(await before.children()) == 5
    await after.is_ready(120)
    await before.gone(120)
    assert await before.users() == set()


@pytest.mark.row("M13", "M14")
async def test_a_refused_login_names_the_scripts_and_nothing_secret(real_stack: Stage, ground: Estate) -> None:
    """The token is read at each login, so what is wrong with it is wrong, and right again, from then on."""
    file = operator.token_file(real_stack.stack)
    token = file.read_text()
    first = await ground.database(unique("known")).place()
    await first.is_ready()
    order = ground.database(unique("unknown"))
    stranger = "not.a.token"
    file.write_text(stranger)
    try:
        await order.place()
        said = (await order.reads("DatabaseReady", "OpenBaoError"))["message"]
        for word in ("403", "setup-auth.sh", "setup-policies.sh", "setup-database-tenant.sh", "auth/kubernetes/mana"):
            assert word in said
        assert stranger not in said
    finally:
        file.write_text(token)
    await order.is_ready(120)

    # The role of the login is not there.
    mapping = "auth/kubernetes/management/role/c5c3-operator"
    kept = (await asyncio.to_thread(ground.bao.read, mapping))["data"]
    unmapped = ground.database(unique("unmapped"))
    await asyncio.to_thread(ground.bao.delete, mapping)
    try:
        await unmapped.place()
        said = (await unmapped.reads("DatabaseReady", "OpenBaoError"))["message"]
        for word in ("c5c3-operator", "setup-auth.sh", "setup-policies.sh", "setup-database-tenant.sh"):
            assert word in said
    finally:
        await asyncio.to_thread(ground.bao.write_data, mapping, data=kept)
    await unmapped.is_ready(120)

    # A policy that is not there: the login works, the role may not be read, and the token is given back all the same.
    name = "c5c3-operator"
    policy = await asyncio.to_thread(ground.bao.sys.read_policy, name)
    refused = ground.database(unique("refused"))
    witness, began = Witness(real_stack), time.time()
    await asyncio.to_thread(ground.bao.sys.create_or_update_policy, name, 'path "nothing" { capabilities = ["read"] }')
    try:
        await refused.place()
        said = (await refused.reads("DatabaseReady", "OpenBaoError"))["message"]
        assert "403" in said
        assert refused.role in said
    finally:
        rules = policy["data"]["rules"] if "data" in policy else policy["rules"]
        await asyncio.to_thread(ground.bao.sys.create_or_update_policy, name, rules)
        real_stack.provoked.append((began, time.time() + 3))
    asked = await witness.asked()
    assert f"read database/mariadb/roles/{refused.role}!" in asked
    assert asked.count(LOGIN) == asked.count(LOGOUT)
    await refused.is_ready(120)


@pytest.mark.row("M13")
async def test_a_certificate_that_expires_or_changes_hands_is_said_and_read_anew(
    real_stack: Stage, ground: Estate
) -> None:
    """cert-manager would replace it in time; here somebody has put one in its place that is past its time."""
    first = await ground.database(unique("valid")).place()
    await first.settles()
    kept = await ground.get("secrets", CLIENT)
    assert kept is not None
    certificate, key = expired(openbao.authority_pair(real_stack.stack))
    encoded = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
    order = ground.database(unique("expired"))
    async with real_stack.without("cert-manager"):
        await ground.patch("secrets", CLIENT, {"data": encoded})
        try:
            await order.place()
            said = (await order.reads("DatabaseReady", "OpenBaoError"))["message"]
            assert "certificate" in said
            assert "expired" in said
        finally:
            await ground.patch("secrets", CLIENT, {"data": kept["data"]})
    await order.is_ready(120)


@pytest.mark.row("M26")
async def test_without_the_client_certificate_the_role_is_left_to_its_ttls(real_stack: Stage) -> None:
    async with estate(real_stack) as ground:
        order = await ground.database(unique("bare")).place()
        await order.settles()
        await real_stack.delete("management", CERTIFICATES, ground.namespace, CLIENT)
        await real_stack.delete("management", "secrets", ground.namespace, CLIENT)
        witness = Witness(real_stack)
        await order.delete()
        await order.gone()
        assert await witness.asked() == []
        text = f'the OpenBao client certificate is gone; leaving database role "{order.role}" to its TTLs'
        lines = [json.loads(line) for line in real_stack.log("worker").splitlines() if line.startswith("{")]
        assert len([one for one in lines if one["message"] == text]) == 1
        assert await ground.role(order.role) is not None
        assert await order.children() == []
        assert await order.secret() is None
        # What is left ends by itself; here by hand.
        root = ground.bao
        await asyncio.to_thread(root.write_data, f"sys/leases/revoke-prefix/database/mariadb/creds/{order.role}", data={})  # noqa: E501  # fmt: skip
        await asyncio.to_thread(root.delete, f"database/mariadb/roles/{order.role}")


@pytest.mark.row("M26")
@pytest.mark.parametrize("cluster", ["management", "target"])
async def test_with_the_plane_gone_all_deletes_are_issued_and_the_order_goes(real_stack: Stage, cluster: str) -> None:
    async with estate(real_stack) as ground:
        order = await ground.database(unique("orphan"), cluster=cluster, policy="Delete").place()
        await order.settles()
        await real_stack.delete("management", "controlplanes.c5c3.io", ground.namespace, ground.name)
        await order.delete()
        await order.gone()
        await until(order.children, lambda left: left == [], 20)
        assert await order.secret() is None
        assert await order.users() == set()
        assert await ground.role(order.role) is None
        await until(order.has_schema, lambda there: not there, 20)


@pytest.mark.row("M23")
async def test_what_somebody_else_owns_survives(real_stack: Stage, ground: Estate) -> None:
    """A Database with our labels and another name, and a generator without them: neither is the order's."""
    order = await ground.database(unique("careful")).place()
    await order.is_ready()
    where = {"namespace": ground.namespace}
    theirs = {
        "apiVersion": "k8s.mariadb.com/v1alpha1",
        "kind": "Database",
        "metadata": {**where, "name": f"theirs-{order.name}", "labels": order.labels},
        "spec": {"mariaDbRef": {"name": "mariadb"}, "name": f"{order.effective}_theirs", "cleanupPolicy": "Delete"},
    }
    await kube.apply(real_stack.stack, "management", [theirs])
    await order.delete()
    await order.gone()
    found = await ground.get(DATABASES, f"theirs-{order.name}")
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    await real_stack.delete("management", DATABASES, ground.namespace, f"theirs-{order.name}")


async def test_nothing_is_written_for_a_paused_order_and_its_deletion_waits(real_stack: Stage, ground: Estate) -> None:
    order = await ground.database(unique("paused")).place()
    await order.settles()
    await order.annotate(**{"c5c3.io/paused": "true"})
    await until(order.live, lambda live: "c5c3.io/paused" in condition(live, "Ready").get("message", ""), 10)
    since = time.time()
    name = f"{order.name}-credentials"
    await kube.patch(
        real_stack.stack, "management", "secrets", order.namespace, name, {"data": {"password": "d3Jvbmc="}}
    )
    await order.resync()
    await order.delete()
    await until(order.live, lambda live: "Deletion waits" in condition(live, "Ready").get("message", ""), 10)
    mine = [one for one in requests(real_stack.stack, "management", since) if order.name in one.name]
    assert {one.split(" ->")[0] for one in writes(mine)} == {
        f"patch mariadbdatabases/status {order.namespace}/{order.name}"
    }
    assert (await order.delivered())["password"] == "wrong"
    await order.annotate(**{"c5c3.io/paused": None})
    await order.gone()
    assert await order.users() == set()
