"""A registration's catalog on a real API server, K-ORC's answers given by hand: each reason from its cause."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.errors import ClusterError
from tests import korc_by_hand as words
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.registered import CATALOG, Registered
from tests.world import run
from workflows.api.keystoneservice import Catalog
from workflows.keystoneservice import children
from workflows.scaffold.order import OrderRef

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


async def ordered(registered: Registered, **more: object) -> OrderRef:
    await registered.plane()
    return await registered.order(account=None, **more)  # type: ignore[arg-type]


async def service_made(registered: Registered, ref: OrderRef) -> None:
    """The managed Service, made by the product and not answered by K-ORC yet."""
    await registered.catalog(ref)
    hand, probe = registered.hand(ref, "service-probe")
    await hand.absent(probe)
    await registered.catalog(ref)
    await hand.let_go(probe)
    assert await registered.names("Service", "Endpoint") == ["Service/service"]


async def managed(registered: Registered, ref: OrderRef) -> None:
    """The Service is Available; its Endpoints are made, and not answered by K-ORC yet."""
    await service_made(registered, ref)
    hand, name = registered.hand(ref, "service")
    await hand.available(name)
    await registered.catalog(ref)
    assert await registered.names("Service", "Endpoint") == [
        "Endpoint/endpoint-internal", "Endpoint/endpoint-public", "Service/service",
    ]  # fmt: skip


async def done(registered: Registered, ref: OrderRef) -> None:
    await managed(registered, ref)
    for suffix in ("service", "endpoint-internal", "endpoint-public"):
        hand, name = registered.hand(ref, suffix)
        await hand.available(name)
    assert (await registered.catalog(ref)).reason == "CatalogRegistered"


@pytest.mark.row("C02")
async def test_nothing_is_created_while_the_probe_is_pending(registered: Registered) -> None:
    ref = await ordered(registered)
    assert (await registered.catalog(ref)).reason == "ProbingForCollision"
    hand, probe = registered.hand(ref, "service-probe")
    for say in (
        hand.notice(probe),
        hand.waits_for(probe, "Secret/x"),
        hand.transient(probe, words.NO_CONNECTION),
        hand.terminal(probe, "invalid configuration: bad filter"),
    ):
        await say
        found = await registered.catalog(ref)
        assert (found.reason, found.again) == ("ProbingForCollision", 10)
        assert await registered.names() == ["Service/service-probe"]
    assert "bad filter" in found.message


@pytest.mark.row("K04")
async def test_on_a_managed_plane_nothing_is_classified_and_on_an_external_one_it_is(registered: Registered) -> None:
    ref = await ordered(registered)
    await registered.catalog(ref)
    hand, probe = registered.hand(ref, "service-probe")
    for text in (words.NO_CONNECTION, words.UNAUTHORIZED, "x509: unknown authority"):
        await hand.transient(probe, text)
        found = await registered.catalog(ref)
        assert found.reason == "ProbingForCollision"
        assert text in found.message


async def test_on_an_external_plane_waits_are_classified(registered: Registered) -> None:
    await registered.plane(external=True)
    ref = await registered.order(account=None)
    await registered.catalog(ref)
    hand, probe = registered.hand(ref, "service-probe")
    await hand.transient(probe, words.UNAUTHORIZED)
    found = await registered.catalog(ref)
    assert found.reason == "AuthenticationFailed"
    assert found.message == f"https://keystone.example.org/v3: {words.UNAUTHORIZED}"


async def test_a_row_that_exists_is_a_collision_and_untouched_also_by_the_deletion(registered: Registered) -> None:
    ref = await ordered(registered)
    strangers = registered.korc.keystone.add("Service", "image", ref.name)
    async with registered.playing():
        for _ in range(3):
            await registered.one_pass(ref)
    assert (await registered.reasons(ref))[0] == "ServiceCollision"
    assert await registered.names() == ["Service/service-probe"]
    assert not await registered.moved(ref)
    await registered.removed(ref)
    assert registered.korc.keystone.rows["Service", ("image", ref.name)] == strangers


async def test_adopt_cures_it_and_the_row_goes_with_the_order(registered: Registered) -> None:
    ref = await ordered(registered)
    registered.korc.keystone.add("Service", "image", ref.name)
    async with registered.playing():
        await registered.one_pass(ref)
        await registered.one_pass(ref)
        await registered.edit(ref, catalog={**CATALOG, "adopt": True})
        await registered.passes_until_ready(ref)
    assert "Service/service-probe" not in await registered.names()
    await registered.removed(ref)
    assert registered.korc.keystone.of("Service") == []


@pytest.mark.row("C05")
async def test_an_own_service_settles_the_verdict_and_a_probe_that_was_left_goes(registered: Registered) -> None:
    ref = await ordered(registered)
    await done(registered, ref)
    task = await registered.world.task(ref)
    assert task.plane is not None
    reg = children.Registration(order=ref, uid=task.order.uid, plane=task.plane)
    entry = Catalog.model_validate(CATALOG)
    hand, probe = registered.hand(ref, "service-probe")
    audit = Audit(registered.world.stack)
    assert (await registered.catalog(ref)).reason == "CatalogRegistered"
    assert writes(await audit.asked(registered.world.plane_ns)) == [], "no probe is asked"
    await registered.world.clusters.management.create(hand.kind, children.service_probe(reg, entry))
    await hand.available(probe, "found")
    assert (await registered.catalog(ref)).reason == "CatalogRegistered"
    await hand.let_go(probe)
    assert await registered.names("Service") == ["Service/service"]


@pytest.mark.row("C08")
async def test_terminal_errors_are_told_the_services_first(registered: Registered) -> None:
    ref = await ordered(registered)
    await managed(registered, ref)
    service, endpoint = registered.hand(ref, "service"), registered.hand(ref, "endpoint-public")
    await endpoint[0].terminal(endpoint[1], "invalid configuration: bad url")
    found = await registered.catalog(ref)
    assert (found.reason, found.again) == ("CatalogFailed", 10)
    assert "bad url" in found.message
    await service[0].terminal(service[1], "invalid configuration: no such type", "UnrecoverableError")
    assert "no such type" in (await registered.catalog(ref)).message


@pytest.mark.row("C09", "S27")
async def test_available_for_an_older_generation_does_not_count(registered: Registered) -> None:
    ref = await ordered(registered)
    await managed(registered, ref)
    for suffix in ("service", "endpoint-internal"):
        hand, name = registered.hand(ref, suffix)
        await hand.available(name)
    hand, name = registered.hand(ref, "endpoint-public")
    await hand.available(name, "e-1", generation=0)
    found = await registered.catalog(ref)
    assert found.reason == "WaitingForCatalog"
    assert name in found.message
    await hand.available(name, "e-1")
    assert (await registered.catalog(ref)).reason == "CatalogRegistered"
    # A changed address is the same object, and current only once K-ORC says so.
    endpoints = [{"interface": "public", "url": "https://elsewhere"}, CATALOG["endpoints"][1]]
    await registered.edit(ref, catalog={**CATALOG, "endpoints": endpoints})
    assert (await registered.catalog(ref)).reason == "WaitingForCatalog"
    live = await hand.there(name)
    assert live["spec"]["resource"]["url"] == "https://elsewhere"
    await hand.available(name, "e-1")
    assert (await registered.catalog(ref)).reason == "CatalogRegistered"


@pytest.mark.row("S13", "S14")
async def test_a_removed_interface_is_swept_and_holds_the_block_until_it_is_gone(registered: Registered) -> None:
    ref = await ordered(registered)
    await done(registered, ref)
    await registered.one_pass(ref)
    others = children.labels(ref)
    hand, _ = registered.hand(ref, "endpoint-public")
    spec = (await hand.there(registered.name(ref, "endpoint-public")))["spec"]
    strangers = {
        "not-the-prefix": others,
        registered.name(ref, "endpoint-admin"): {k: v for k, v in others.items() if k.endswith("-name")},
    }
    for name, labels in strangers.items():
        meta = {"name": name, "namespace": registered.world.plane_ns, "labels": labels}
        await registered.admin.create(hand.kind, {"metadata": meta, "spec": spec})
    await registered.edit(ref, catalog={**CATALOG, "endpoints": CATALOG["endpoints"][:1]})
    await registered.one_pass(ref)
    going = registered.name(ref, "endpoint-internal")
    assert (await registered.reasons(ref))[0] == "WaitingForCatalog"
    assert going in await registered.message(ref, "CatalogReady")
    assert (await hand.there(going))["metadata"]["deletionTimestamp"]
    await registered.one_pass(ref)
    assert (await registered.reasons(ref))[0] == "WaitingForCatalog"
    assert not await registered.moved(ref)
    await hand.let_go(going)
    assert await registered.moved(ref)
    await registered.one_pass(ref)
    assert (await registered.reasons(ref))[0] == "CatalogRegistered"
    for name in strangers:
        assert "deletionTimestamp" not in (await hand.there(name))["metadata"]
    assert (await registered.status(ref))["catalog"]["endpoints"] == [
        {"interface": "public", "id": (await hand.there(registered.name(ref, "endpoint-public")))["status"]["id"]}
    ]


async def test_an_interface_that_was_dropped_before_anything_was_reported_is_swept(registered: Registered) -> None:
    """The pass that made it died before it said anything of the order."""
    ref = await ordered(registered)
    await managed(registered, ref)
    await registered.edit(ref, catalog={**CATALOG, "endpoints": CATALOG["endpoints"][:1]})
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert await registered.names("Endpoint") == ["Endpoint/endpoint-public"]


async def test_a_block_that_was_added_and_removed_before_anything_was_reported_is_swept(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.order(catalog=None)
    async with registered.playing():
        await registered.passes_until_ready(ref)
        await registered.edit(ref, catalog=CATALOG)
        await registered.catalog(ref)
        await registered.edit(ref, catalog=None)
        await registered.passes_until_ready(ref)
    assert await registered.names("Service", "Endpoint") == []
    assert registered.korc.keystone.of("Service") == []


@pytest.mark.row("C11")
@pytest.mark.parametrize("status", [403, 500])
async def test_a_kubernetes_failure_says_what_was_being_done_and_is_retried_if_it_may_pass(
    registered: Registered, status: int
) -> None:
    ref = await ordered(registered)
    meddled = Meddled(registered.world.clusters.management)

    async def refuse(call: Call) -> None:
        if call.writes:
            raise ClusterError("creating Service", status, "Refused", "by the test")

    meddled.before = refuse
    task = await registered.world.task(ref)
    with pytest.raises(ApplicationError) as caught:
        await run(registered.through(meddled).provision_catalog, task)
    assert caught.value.non_retryable is (status == 403)
    assert "creating Service" in caught.value.message
    registered.through(None)


async def test_a_latch_without_an_id_is_cleared_only_past_a_fresh_probe(registered: Registered) -> None:
    ref = await ordered(registered)
    await service_made(registered, ref)
    hand, name = registered.hand(ref, "service")
    probe = registered.name(ref, "service-probe")
    await asyncio.sleep(1.1)
    await hand.terminal(name, words.REFUSED)
    assert (await registered.catalog(ref)).reason == "WaitingForCatalog"
    await hand.transient(probe, words.NO_CONNECTION)
    # The condition is the probe's to decide; nothing sweeps the probe meanwhile.
    assert (await registered.catalog(ref)).reason == "WaitingForCatalog"
    assert await registered.names("Service") == ["Service/service", "Service/service-probe"]
    await hand.absent(probe)
    await registered.catalog(ref)
    conditions = (await hand.there(name))["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["Available"]
    await hand.available(name)
    await registered.catalog(ref)
    for suffix in ("endpoint-internal", "endpoint-public"):
        each, child = registered.hand(ref, suffix)
        await each.available(child)
    found = await registered.catalog(ref)
    await hand.let_go(probe)
    assert found.reason == "CatalogRegistered"
    assert await registered.names("Service") == ["Service/service"]


@pytest.mark.row("S12")
@pytest.mark.parametrize("suffix", ["service", "service-probe", "endpoint-public"])
async def test_a_strangers_object_is_refused_never_written_and_outlives_the_order(
    registered: Registered, suffix: str
) -> None:
    ref = await ordered(registered)
    hand, name = registered.hand(ref, suffix)
    cred = {"secretName": "theirs", "cloudName": "admin"}
    spec = {"cloudCredentialsRef": cred, "managementPolicy": "unmanaged", "import": {"id": "0" * 32}}
    # One label of two is not both.
    labels = {k: v for k, v in children.labels(ref).items() if k.endswith("-name")}
    meta = {"name": name, "namespace": registered.world.plane_ns, "labels": labels}
    theirs = await registered.admin.create(hand.kind, {"metadata": meta, "spec": spec})
    async with registered.korc.playing():
        for _ in range(3):
            await registered.one_pass(ref)
    assert (await registered.reasons(ref))[0] == "CatalogError"
    assert "was not created by this order" in await registered.message(ref, "CatalogReady")
    assert name in await registered.message(ref, "CatalogReady")
    await registered.removed(ref)
    live = await hand.there(name)
    assert live["spec"] == theirs["spec"]
    assert live["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in live["metadata"]
