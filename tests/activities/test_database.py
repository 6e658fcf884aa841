"""A database's steps on a real API server: gates, refusals, what is written where, and what is left alone."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.cluster import (
    CONTROL_PLANE,
    DATABASE,
    EVENT,
    EXTERNAL_SECRET,
    MARIADB,
    SECRET,
    SERVICE_ACCOUNT,
    Cluster,
    Kind,
)
from activities.errors import ClusterError, NotServed, OpenBaoError
from tests.audit import Audit, writes
from tests.ordered import Ordering, ready_on
from tests.world import CRD, TARGET, World, definition, run, until
from workflows.mariadbdatabase import children, reasons
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import State

pytestmark = pytest.mark.api


@pytest_asyncio.fixture
async def ordering(world: World) -> Ordering:
    return Ordering(world)


READS = (
    "mariadbdatabases", "controlplanes", "mariadbs", "databases", "certificates", "secretstores", "secrets",
    "vaultdynamicsecrets", "externalsecrets", "secrets", "secrets",
)  # fmt: skip
"""What a pass over a Ready order reads: of Secrets the client's certificate, the credential and what is delivered."""


async def both(ordering: Ordering, ref: OrderRef) -> tuple[str, str]:
    found = await ordering.reasons(ref)
    return found["DatabaseReady"], found["DeliveryReady"]


@pytest.mark.row("M02")
async def test_without_an_assignment_nothing_is_read_or_written_beyond_the_plane(ordering: Ordering) -> None:
    world = ordering.world
    await ordering.plane(assigned=False)
    ref = await ordering.order()
    audit = Audit(world.stack)
    admitted = await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("NamespaceNotAssigned", "NamespaceNotAssigned")
    assert {v.again for v in admitted.refused} == {60}
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert [(one.verb, one.resource) for one in asked if one.namespace == world.plane_ns] == [("get", "controlplanes")]
    assert [one.split(" ->")[0] for one in writes(asked)] == [f"patch mariadbdatabases/status {ref.key}"]
    assert not (await ordering.live(ref))["metadata"].get("finalizers")
    assert ordering.vault.calls == []
    assert await ordering.admin.get(SERVICE_ACCOUNT, world.plane_ns, "order-db-creds") is None


@pytest.mark.row("M04")
@pytest.mark.parametrize("shape", ["external", "brownfield", "dedicated", "static"])
async def test_planes_that_issue_nothing_are_refused_on_both_conditions(ordering: Ordering, shape: str) -> None:
    shared = {"clusterRef": {"name": "mariadb"}}
    keystone = {"mode": "Managed", "dedicatedBackingServices": {"database": shared}}
    specs: dict[str, dict[str, Any]] = {
        "external": {"external": True},
        "brownfield": {"infrastructure": {"database": {"host": "db.example.org"}}},
        "dedicated": {"services": {"keystone": keystone}},
        "static": {"infrastructure": {"database": {**shared, "credentialsMode": "Static"}}},
    }
    await ordering.plane(**specs[shape])
    ref = await ordering.order()
    admitted = await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("DynamicCredentialsUnavailable", "DynamicCredentialsUnavailable")
    assert {v.again for v in admitted.refused} == {600}
    assert await ordering.children() == []
    assert (await ordering.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    assert ordering.vault.calls == []


@pytest.mark.row("M05")
async def test_a_plane_that_is_not_onboarded_yet_is_waited_for(ordering: Ordering) -> None:
    await ordering.plane(credentials=False)
    ref = await ordering.order()
    admitted = await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("WaitingForDBCredentials", "WaitingForDBCredentials")
    assert {v.again for v in admitted.refused} == {10}
    await ordering.flip("True")
    async with ordering.neighbours():
        await ordering.passes_until(ref, reasons.DELIVERED)


@pytest.mark.row("M06")
async def test_clusters_that_are_not_there(ordering: Ordering, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = OrderRef(kind="MariaDBDatabase", cluster="edge-9", namespace=ordering.world.order_ns, name="far")
    with caplog.at_level("INFO"):
        assert (await run(ordering.orders.admit, elsewhere)).state is State.GONE
    assert "edge-9" in caplog.text
    keystone = {"mode": "Managed", "targetClusterRef": {"name": "edge-9"}}
    await ordering.plane(services={"keystone": keystone})
    ref = await ordering.order()
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("TargetClusterUnavailable", "WaitingForCredentials")
    assert "edge-9" in (await ordering.conditions(ref))["DatabaseReady"]["message"]


@pytest.mark.row("M06")
async def test_a_server_that_is_not_ready(ordering: Ordering) -> None:
    await ordering.plane(mariadb=False)
    ref = await ordering.order()
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("ClusterNotReady", "WaitingForCredentials")
    await ordering.server("False")
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("ClusterNotReady", "WaitingForCredentials")
    assert await ordering.children() == []
    await ordering.server()
    async with ordering.neighbours():
        await ordering.passes_until(ref, reasons.DELIVERED)


@pytest.mark.row("M08")
@pytest.mark.parametrize("schema", ["MySQL", "information_schema", "PERFORMANCE_SCHEMA", "sys"])
async def test_reserved_schemas_are_refused_and_nothing_is_written(ordering: Ordering, schema: str) -> None:
    await ordering.plane()
    ref = await ordering.order(databaseName=schema)
    audit = Audit(ordering.world.stack)
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("DatabaseNameReserved", "WaitingForCredentials")
    asked = await audit.asked(ordering.world.plane_ns)
    assert writes(asked) == []
    looked = await ordering.databases.look(await ordering.task(ref))
    assert (looked.due, [v.again for v in looked.outcome.verdicts]) == (False, [600, 600])
    assert ordering.vault.calls == []


async def test_a_whole_pass_writes_each_thing_once_and_in_order(ordering: Ordering) -> None:
    world = ordering.world
    await ordering.plane()
    audit = Audit(world.stack)
    ref = await ordering.ready()
    role = children.role_name(ref, world.plane_ns)
    assert ordering.vault.calls[:4] == ["login", "read", "write", "close"]
    assert ordering.vault.roles.keys() == {role}
    done = [one.split(" ")[1] for one in writes(await audit.asked(world.plane_ns))]
    assert done == ["leases", "serviceaccounts", "certificates", "databases", "vaultdynamicsecrets", "externalsecrets"]
    data = await ordering.delivered(ref)
    assert data["host"] == f"mariadb.{world.plane_ns}.svc"
    assert data["username"].startswith("v-user")
    # And a pass over what is there reads what the contract lists, and no more.
    audit, calls = Audit(world.stack), len(ordering.vault.calls)
    await ordering.one_pass(ref)
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert writes(asked) == []
    assert sorted(one.resource for one in asked) == sorted(READS)
    assert ordering.vault.calls[calls:] == ["login", "read", "close"]


@pytest.mark.row("M29")
async def test_status_says_it_all_and_keeps_it_and_there_are_no_events(ordering: Ordering) -> None:
    world = ordering.world
    await ordering.plane()
    ref = await ordering.ready()
    before = await ordering.status(ref)
    told = {key: before[key] for key in before if key not in ("conditions", "observedGeneration")}
    assert told == {
        "databaseName": "reports",
        "roleName": children.role_name(ref, world.plane_ns),
        "host": f"mariadb.{world.plane_ns}.svc",
        "port": 3306,
        "credentialsRefreshedAt": told["credentialsRefreshedAt"],
        "secretName": "reports-credentials",
        "secretKeys": ["host", "port", "database", "username", "password"],
    }
    await ordering.server("False")
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("ClusterNotReady", "WaitingForCredentials")
    after = await ordering.status(ref)
    assert {key: after[key] for key in told} == told
    for cluster in (world.admin, world.target):
        assert (await cluster.list(EVENT, world.order_ns))["items"] == []


@pytest.mark.row("M15")
async def test_a_strangers_database_of_the_childs_name_is_left_alone(ordering: Ordering) -> None:
    world = ordering.world
    await ordering.plane()
    ref = await ordering.order()
    name = f"{children.prefix(ref)}database"
    spec = {"mariaDbRef": {"name": "other"}, "name": "theirs", "cleanupPolicy": "Skip"}
    theirs = await ordering.admin.create(
        DATABASE, {"metadata": {"name": name, "namespace": world.plane_ns}, "spec": spec}
    )
    async with ordering.neighbours(database=False):
        await ordering.passes_until(ref, reasons.COLLISION, reasons.DATABASE_READY)
    assert await ordering.database(ref) == theirs


@pytest.mark.row("M15")
async def test_a_policy_edit_reaches_the_live_database(ordering: Ordering) -> None:
    await ordering.plane()
    ref = await ordering.ready()
    for policy, cleanup in (("Delete", "Delete"), ("Retain", "Skip")):
        await ordering.edit(ref, deletionPolicy=policy)
        await ordering.one_pass(ref)
        live = await ordering.database(ref)
        assert live is not None
        assert live["spec"]["cleanupPolicy"] == cleanup


@pytest.mark.row("M21")
async def test_an_authority_comes_with_tls_and_goes_without_it(ordering: Ordering) -> None:
    world = ordering.world

    async def tls(mode: str) -> None:
        database = {"database": {"tls": {"mode": mode, "caBundleSecretRef": {"name": "ca", "key": "other"}}}}
        await ordering.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", {"spec": {"infrastructure": database}})

    await ordering.plane()
    ref = await ordering.ready()
    await tls("verify-full")
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("DatabaseProvisioned", "WaitingForCABundle")
    assert "ca.crt" not in await ordering.delivered(ref)
    bundle = {"metadata": {"name": "ca", "namespace": world.plane_ns}, "data": {"ca.crt": b64encode(b"PEM").decode()}}
    await ordering.admin.create(SECRET, bundle)
    await ordering.one_pass(ref)
    assert (await ordering.delivered(ref))["ca.crt"] == "PEM"
    assert (await ordering.status(ref))["secretKeys"][-1] == "ca.crt"
    audit = Audit(world.stack)
    await ordering.one_pass(ref)
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert writes(asked) == []
    assert sorted(one.resource for one in asked) == sorted((*READS, "secrets")), "and the authority"
    await ordering.admin.patch(SECRET, ref.namespace, children.delivered_name(ref), {"data": {"theirs": "a2VwdA=="}})
    await tls("disabled")
    await ordering.one_pass(ref)
    data = await ordering.delivered(ref)
    assert "ca.crt" not in data
    assert data["theirs"] == "kept"
    assert (await ordering.status(ref))["secretKeys"][-1] == "password"


@pytest_asyncio.fixture
async def operator_there(ordering: Ordering) -> AsyncIterator[None]:
    """The kinds of mariadb-operator on the target cluster, for as long as a test needs them there."""
    target, files = ordering.world.target, ("mariadbs.yaml", "databases.yaml")
    definitions = [definition(f"../local/crds/{file}") for file in files]
    for each in definitions:
        await target.create(CRD, each)
    for kind in (MARIADB, DATABASE):
        await until(lambda kind=kind: _served(target, kind))  # type: ignore[misc]
    yield
    for each in definitions:
        live = await target.get(CRD, None, each["metadata"]["name"])
        assert live is not None
        await target._request("DELETE", CRD, None, live["metadata"]["name"])


async def _served(cluster: Cluster, kind: Kind) -> bool:
    try:
        await cluster.list(kind)
    except NotServed:
        return False
    return True


@pytest.mark.row("M20")
async def test_keystone_on_another_cluster_and_in_another_namespace(ordering: Ordering, operator_there: None) -> None:
    """MariaDB and Database are where Keystone is; identity and credential stay beside the plane."""
    world = ordering.world
    keystone = {"mode": "Managed", "targetClusterRef": {"name": TARGET}, "namespace": {"name": world.order_ns}}
    await ordering.plane(mariadb=False, services={"keystone": keystone})
    await world.target.create(MARIADB, {"metadata": {"name": "mariadb", "namespace": world.order_ns}, "spec": {}})
    await ready_on(world.target, MARIADB, world.order_ns, "mariadb")
    ref = await ordering.order(cluster=TARGET)
    name = f"{children.prefix(ref)}database"

    async def made() -> bool:
        return await world.target.get(DATABASE, world.order_ns, name) is not None

    async def schema() -> None:
        await until(made)
        await ready_on(world.target, DATABASE, world.order_ns, name)

    async with ordering.neighbours(database=False):
        playing = asyncio.create_task(schema())
        await ordering.passes_until(ref, reasons.DELIVERED)
        await playing
    assert await ordering.admin.get(DATABASE, world.plane_ns, name) is None
    assert (await ordering.delivered(ref))["host"] == f"mariadb.{world.order_ns}.svc"
    await ordering.delete(ref)
    while await ordering.find(ref) is not None:
        await ordering.torn_down(ref)
    assert not await made()


@pytest.mark.row("M22")
async def test_a_refreshed_credential_is_delivered_and_said_once(
    ordering: Ordering, caplog: pytest.LogCaptureFixture
) -> None:
    await ordering.plane()
    text = "delivered a refreshed database credential"
    with caplog.at_level("INFO"):
        ref = await ordering.ready()
        assert text not in caplog.text
        user = await ordering.issue(children.credentials_name(ref))
        await ordering.one_pass(ref)
        await ordering.one_pass(ref)
    assert (await ordering.delivered(ref))["username"] == user
    (said,) = [record for record in caplog.records if record.message == text]
    assert said.__dict__["username"] == user
    assert said.__dict__["order"] == ref.workflow_id


@pytest.mark.row("M18", "M29")
async def test_the_time_of_a_refresh_is_that_of_the_user_that_is_delivered(ordering: Ordering) -> None:
    """External Secrets writes the Secret first, and we hear of it before it has said when it did."""
    await ordering.plane()
    ref = await ordering.ready()
    name, when = children.credentials_name(ref), "2031-01-01T00:00:00Z"

    async def later() -> None:
        await asyncio.sleep(0.7)
        assert (await ordering.delivered(ref))["username"] == user, "the Secret does not wait for it"
        await ordering.say(name, when)

    user = await ordering.write(name)
    saying = asyncio.create_task(later())
    await ordering.one_pass(ref)
    await saying
    assert (await ordering.status(ref))["credentialsRefreshedAt"] == when
    # One that never says it holds nothing up for long, and what it says in the end is read by the next pass.
    user = await ordering.write(name)
    await ordering.one_pass(ref)
    assert (await ordering.delivered(ref))["username"] == user
    assert await both(ordering, ref) == ("DatabaseProvisioned", "Delivered")
    await ordering.say(name, "2031-01-02T00:00:00Z")
    await ordering.one_pass(ref)
    assert (await ordering.status(ref))["credentialsRefreshedAt"] == "2031-01-02T00:00:00Z"


async def test_a_wait_does_not_log_in_at_each_look(ordering: Ordering) -> None:
    await ordering.plane()
    ref = await ordering.order()
    async with ordering.neighbours(external=False):
        await ordering.one_pass(ref)
    assert (await ordering.reasons(ref))["DatabaseReady"] == "WaitingForCredentials"
    calls = len(ordering.vault.calls)
    looked = await ordering.databases.look(await ordering.task(ref))
    assert not looked.due
    assert [v.reason for v in looked.outcome.verdicts] == ["WaitingForCredentials", "WaitingForCredentials"]
    live = await ordering.conditions(ref)
    assert looked.outcome.verdicts[0].message == live["DatabaseReady"]["message"]
    assert ordering.vault.calls[calls:] == []


async def test_openbao_refusing_is_an_error_of_its_own_kind_and_the_session_is_closed(ordering: Ordering) -> None:
    await ordering.plane()
    ref = await ordering.order()
    async with ordering.neighbours():
        ordering.vault.refuse["write"] = OpenBaoError("OpenBao answered 400 to POST x: no", 400)
        await run(ordering.orders.admit, ref)
        with pytest.raises(ApplicationError) as caught:
            await run(ordering.databases.provision_database, await ordering.task(ref))
    assert (caught.value.type, caught.value.non_retryable) == ("OpenBaoError", True)
    assert ordering.vault.calls[-3:] == ["read", "write", "close"]
    assert await ordering.database(ref) is None, "no Database before its role"


@pytest.mark.row("M29")
async def test_a_step_that_fails_once_the_role_may_be_there_tells_its_name(
    ordering: Ordering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For it is by status.roleName that a person finds the role when nothing else can take it back."""
    await ordering.plane()
    ref = await ordering.order()
    named = ({"roleName": children.role_name(ref, ordering.world.plane_ns)},)

    async def told() -> tuple[object, ...]:
        with pytest.raises(ApplicationError) as caught:
            await run(ordering.databases.provision_database, await ordering.task(ref))
        return tuple(caught.value.details)

    async with ordering.neighbours():
        ordering.vault.refuse["login"] = OpenBaoError("OpenBao gave no answer")
        await run(ordering.orders.admit, ref)
        assert await told() == ()
        ordering.vault.refuse = {"write": OpenBaoError("OpenBao gave no answer")}
        assert await told() == named
        ordering.vault.refuse.clear()
        real = Cluster.apply

        async def refused(self: Cluster, kind: Kind, *rest: Any, **more: Any) -> Any:
            if kind is DATABASE:
                raise ClusterError("applying Database", 503, "ServiceUnavailable", "")
            return await real(self, kind, *rest, **more)

        monkeypatch.setattr(Cluster, "apply", refused)
        assert await told() == named


@pytest.mark.row("M25")
@pytest.mark.parametrize("call", ["login", "revoke", "delete"])
async def test_an_openbao_that_fails_in_teardown_holds_everything(ordering: Ordering, call: str) -> None:
    await ordering.plane()
    ref = await ordering.ready()
    before = await ordering.children()
    await ordering.delete(ref)
    ordering.vault.refuse[call] = OpenBaoError("OpenBao answered 400 to POST x: no", 400)
    with pytest.raises(ApplicationError, match='removing OpenBao database role "order'):
        await ordering.torn_down(ref)
    assert await ordering.children() == before
    assert await ordering.secret(ref) is not None
    assert (await ordering.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    if call == "revoke":
        assert ordering.vault.roles, "the role stays while its leases are not revoked"
    ordering.vault.refuse.clear()
    async with asyncio.timeout(30):
        while await ordering.find(ref) is not None:
            await ordering.torn_down(ref)
    assert [one for one in await ordering.children() if not one.startswith("Certificate")] == []
    assert ordering.vault.roles == {}


@pytest.mark.row("M23")
async def test_what_was_fetched_during_the_teardown_is_revoked_before_the_end(ordering: Ordering) -> None:
    await ordering.plane()
    ref = await ordering.ready()
    await ordering.delete(ref)
    calls = len(ordering.vault.calls)
    while await ordering.find(ref) is not None:
        await ordering.torn_down(ref)
    session = ["login", "revoke", "delete", "close"]
    assert ordering.vault.calls[calls:] == [*session, *session]


@pytest.mark.row("M25")
async def test_kinds_that_nobody_serves_hold_a_deletion_only_where_the_plane_needs_them(ordering: Ordering) -> None:
    """A plane that issues no credentials need not have mariadb-operator; of another one it may be away for a moment."""
    far: dict[str, Any] = {"services": {"keystone": {"mode": "Managed", "targetClusterRef": {"name": TARGET}}}}
    database = {"clusterRef": {"name": "mariadb"}, "credentialsMode": "Static"}
    static: dict[str, Any] = {"infrastructure": {"database": database}}
    await ordering.plane(mariadb=False, **far, **static)
    ref = await ordering.order()
    await ordering.one_pass(ref)
    assert await both(ordering, ref) == ("DynamicCredentialsUnavailable", "DynamicCredentialsUnavailable")
    await ordering.delete(ref)
    dynamic = {"infrastructure": {"database": {"credentialsMode": "Dynamic"}}}
    await ordering.admin.patch(CONTROL_PLANE, ordering.world.plane_ns, "cp", {"spec": dynamic})
    with pytest.raises(ApplicationError, match="is its CRD there"):
        await ordering.torn_down(ref)
    task = await ordering.task(ref)
    with pytest.raises(NotServed):
        await ordering.databases.look_removal(task)
    await ordering.admin.patch(CONTROL_PLANE, ordering.world.plane_ns, "cp", {"spec": static})
    assert (await ordering.databases.look_removal(await ordering.task(ref))).left == ()
    await ordering.torn_down(ref)
    assert await ordering.find(ref) is None


@pytest.mark.row("M26")
async def test_a_role_is_said_to_be_left_once_whatever_is_there_of_the_order(
    ordering: Ordering, caplog: pytest.LogCaptureFixture
) -> None:
    """Here only its Database, which somebody holds for a while."""
    await ordering.plane()
    ref = await ordering.order()
    async with ordering.neighbours(database=False):
        await ordering.passes_until(ref, reasons.WAITING_FOR_DATABASE, reasons.DATABASE_READY)
    held = await ordering.database(ref)
    assert held is not None
    hold = {"metadata": {"finalizers": ["example.org/hold"]}}
    await ordering.admin.patch(DATABASE, ordering.world.plane_ns, held["metadata"]["name"], hold)
    client = await ordering.admin.get(SECRET, ordering.world.plane_ns, children.CLIENT)
    assert client is not None
    await ordering.admin.delete(SECRET, ordering.world.plane_ns, children.CLIENT, client["metadata"]["uid"])
    await ordering.delete(ref)
    with caplog.at_level("WARNING"):
        for _ in range(2):
            assert (await ordering.torn_down(ref)).left
    free: dict[str, Any] = {"metadata": {"finalizers": []}}
    await ordering.admin.patch(DATABASE, ordering.world.plane_ns, held["metadata"]["name"], free)
    while await ordering.find(ref) is not None:
        await ordering.torn_down(ref)
    role = children.role_name(ref, ordering.world.plane_ns)
    text = f'the OpenBao client certificate is gone; leaving database role "{role}" to its TTLs'
    assert [record.message for record in caplog.records].count(text) == 1
    assert ordering.vault.roles.keys() == {role}


@pytest.mark.row("M26")
async def test_with_the_plane_gone_openbao_is_looked_for_where_the_reference_has_it(
    ordering: Ordering, caplog: pytest.LogCaptureFixture
) -> None:
    await ordering.plane()
    ref = await ordering.ready()
    await ordering.world.delete_plane()
    await ordering.delete(ref)
    ordering.vault.refuse["login"] = OpenBaoError("OpenBao gave no answer")
    with caplog.at_level("ERROR"):
        await ordering.torn_down(ref)
    assert await ordering.find(ref) is None
    assert ordering.vault.servers[-1].server == "https://openbao.shared-services.svc:8200"
    assert "OpenBao gave no answer" in caplog.text
    assert await ordering.secret(ref) is None
    assert await ordering.admin.get(EXTERNAL_SECRET, ordering.world.plane_ns, children.credentials_name(ref)) is None


async def test_a_name_too_long_for_a_label_is_released_at_once(ordering: Ordering) -> None:
    ref = OrderRef(kind="MariaDBDatabase", cluster="", namespace=ordering.world.order_ns, name="a" * 64)
    await ordering.plane()
    short = await ordering.order(finalizers=(children.FINALIZER,))
    await ordering.delete(short)
    task = (await ordering.task(short)).model_copy(update={"ref": ref})
    assert not (await run(ordering.databases.remove_database, task)).left
    assert ordering.vault.calls == []
