"""Orders served by the real watcher and the real worker on real API servers, K-ORC played by hand."""

from __future__ import annotations

import asyncio
import time

import pytest

from activities.cluster import CONTROL_PLANE, KEYSTONE_PROJECT, KEYSTONE_ROLE_ASSIGNMENT, KORC_PROJECT
from tests.audit import WRITES, Audit
from tests.product import Product
from tests.world import TARGET, until
from workflows.keystoneproject import reasons

pytestmark = pytest.mark.api


async def test_an_order_is_answered_step_by_step_and_becomes_ready(product: Product) -> None:
    world = product.world
    await world.plane()
    ref = await world.order(project="finance")
    await world.korc.notice(world.probe_of(ref))
    await product.reads(ref, reasons.PROBING)
    await world.korc.absent(world.probe_of(ref))
    await world.korc.let_go(world.probe_of(ref))
    await world.korc.waits_for(world.project_of(ref), "Domain/cp-domain-default")
    live = await product.reads(ref, reasons.WAITING)
    await world.korc.available(world.project_of(ref), "0123456789abcdef")
    live = await product.reads(ref, reasons.PROVISIONED)
    status = live["status"]
    assert status["projectID"] == "0123456789abcdef"
    assert (status["projectName"], status["domainName"], status["observedGeneration"]) == ("finance", "Default", 1)
    assert await world.names() == [world.project_of(ref)]


async def test_a_ready_order_costs_few_events_and_requests(product: Product) -> None:
    world = product.world
    await world.plane()
    for cluster in ("", TARGET):
        home, target = Audit(world.stack), Audit(world.stack, "target")
        async with world.korc.playing():
            ref = await world.order("reporting" if not cluster else "edge", cluster=cluster)
            await product.reads(ref, reasons.PROVISIONED)
        events = await product.quiet(ref)
        asked = await home.asked(world.plane_ns, world.order_ns) + await target.asked(world.order_ns)
        asked.sort(key=lambda one: one.at)
        until_ready = next(i for i, one in enumerate(asked, 1) if one.resource == "keystoneprojects/status")
        print(f"{ref.workflow_id}: {events} events, {until_ready} requests to Ready, {len(asked)} until quiet")
        assert events <= 90
        assert until_ready <= 15, [str(one) for one in asked]
        # What the watcher heard of the steps' own writes makes a pass or two more, which find nothing to do.
        assert len(asked) <= 24, [str(one) for one in asked]
        assert [one for one in asked[until_ready:] if one.verb in WRITES] == []


@pytest.mark.row("P13")
async def test_a_plane_and_its_assignment_wake_their_orders_at_once(product: Product) -> None:
    world = product.world
    ref = await world.order()
    await product.reads(ref, "ControlPlaneNotFound")
    begun = time.monotonic()
    await world.plane(assigned=False, credential=False)
    await product.reads(ref, "NamespaceNotAssigned", 9)
    await world.assign("")
    await product.reads(ref, "WaitingForAdminCredential", 9)
    await world.credential(True)
    await product.reads(ref, reasons.PROBING, 9)
    # Their own looks would have come after 10, 60 and 10 seconds.
    print(f"{time.monotonic() - begun:.1f} s for three gates")


@pytest.mark.row("S18")
async def test_an_order_without_our_finalizer_is_left_alone_when_it_is_deleted(product: Product) -> None:
    world = product.world
    ref = await world.order(finalizers=("example.org/hold",))
    await product.reads(ref, "ControlPlaneNotFound")
    before = await world.live(ref)
    await world.delete(ref)
    await product.closed(ref)
    live = await world.live(ref)
    assert live["metadata"]["finalizers"] == ["example.org/hold"]
    assert live.get("status") == before["status"]
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    await product.gone(ref)
    await asyncio.sleep(2)
    assert not await product.is_open(ref)


async def test_a_held_deletion_goes_on_by_itself(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)
        spec = {
            "controlPlaneRef": {"name": "cp", "namespace": world.plane_ns},
            "userRef": {"name": "someone"},
            "projectRef": {"name": ref.name},
            "role": "member",
        }
        meta = {"name": "member", "namespace": ref.namespace}
        assignment = await world.admin.create(KEYSTONE_ROLE_ASSIGNMENT, {"metadata": meta, "spec": spec})
        await world.delete(ref)
        live = await product.reads(ref, reasons.REFERENCED_BY_ASSIGNMENTS)
        assert "deletionTimestamp" in live["metadata"]
        assert await world.names() == [world.project_of(ref)]
        await world.admin.delete(KEYSTONE_ROLE_ASSIGNMENT, ref.namespace, "member", assignment["metadata"]["uid"])
        await product.gone(ref, 45)  # its own look comes after a minute
        await product.closed(ref)
    assert world.korc.keystone == {}


@pytest.mark.row("P16")
async def test_the_deletion_of_a_paused_order_waits_and_says_so(product: Product) -> None:
    world = product.world
    await world.plane()
    on, off = ({"metadata": {"annotations": {"c5c3.io/paused": value}}} for value in ("true", None))

    async def says(where: str) -> bool:
        message = str((await world.conditions(ref))["Ready"]["message"])
        return message.startswith("Deletion waits") and "c5c3.io/paused" in message and where in message

    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)
        await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, on)
        await world.delete(ref)
        await until(lambda: says("on this order"))
        # The plane's brake goes on before the order's comes off.
        await world.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", on)
        await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, off)
        await until(lambda: says("on ControlPlane"))
        assert await world.names() == [world.project_of(ref)]
        assert "deletionTimestamp" not in (await world.korc.there(world.project_of(ref)))["metadata"]
        await world.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", off)
        await product.gone(ref, 45)


async def test_every_wait_converges_by_its_own_look(product: Product) -> None:
    """The watcher is stopped: nobody rings, and each wait ends by itself."""
    world = product.world
    ref = await world.order()
    await product.reads(ref, "ControlPlaneNotFound")
    await product.stop("watcher")
    try:
        took = {}

        async def comes(reason: str, seconds: float) -> None:
            begun = time.monotonic()
            await product.reads(ref, reason, seconds)
            took[reason] = round(time.monotonic() - begun, 1)

        await world.plane(credential=False)
        await comes("WaitingForAdminCredential", 40)
        await world.credential(True)
        await comes(reasons.PROBING, 40)
        await world.korc.absent(world.probe_of(ref))
        await world.korc.let_go(world.probe_of(ref))
        await world.korc.there(world.project_of(ref), 40)
        await world.korc.let_go(world.probe_of(ref))
        await world.korc.terminal(world.project_of(ref), "invalid configuration creating resource: no such domain")
        await comes(reasons.FAILED, 40)
        await world.korc.available(world.project_of(ref))
        await comes(reasons.PROVISIONED, 40)
        print(took)
    finally:
        await product.start("watcher")


@pytest.mark.row("T15")
async def test_runs_whose_order_vanished_while_the_watcher_was_down_end_by_themselves(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ready = await world.order("ready")
        await product.reads(ready, reasons.PROVISIONED)
    waiting = await world.order("waiting")
    await product.reads(waiting, reasons.PROBING)
    await product.stop("watcher")
    for ref in (ready, waiting):
        await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
        await world.delete(ref)
        await product.gone(ref)
    await product.closed(waiting, 40)  # by its own look
    assert await product.is_open(ready)  # nobody told it
    await product.start("watcher")
    await product.closed(ready, 40)


async def test_an_unready_order_heals_from_each_of_its_children(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)
        first = (await world.live(ref))["status"]["projectID"]
        live = await world.korc.there(world.project_of(ref))
        await world.admin.delete(KORC_PROJECT, world.plane_ns, world.project_of(ref), live["metadata"]["uid"])

        async def another() -> bool:
            status = (await world.live(ref)).get("status") or {}
            return bool(status.get("projectID") != first and status["conditions"][0]["status"] == "True")

        await until(another, 60)
        await world.probe_gone(ref)
    assert await world.names() == [world.project_of(ref)]
