"""D3: releasing an order strips our finalizer and nothing else, whoever writes the order at the same time."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster import KEYSTONE_PROJECT
from activities.clusters import Clusters
from activities.keystoneproject import KeystoneProjects
from activities.orders import Orders
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.product import Product
from tests.world import REGISTRATIONS, World, run
from workflows.keystoneproject import children, reasons

pytestmark = [pytest.mark.api, pytest.mark.row("S18")]

HOLD = "example.org/audit-hold"


async def test_a_label_written_between_our_read_and_our_write_survives(world: World) -> None:
    await world.plane()
    ref = await world.order(finalizers=(HOLD, children.FINALIZER, "example.org/second"))
    await world.delete(ref)
    task = await world.removal(ref)
    meddled = Meddled(world.clusters.management)
    clusters = Clusters(meddled, REGISTRATIONS)
    orders = Orders(clusters, {"KeystoneProject": KeystoneProjects(clusters)})
    wrote = 0

    async def write(call: Call) -> None:
        nonlocal wrote
        if call.writes:
            wrote += 1
            body = {"metadata": {"labels": {"example.org/note": "theirs"}}}
            if wrote == 1:
                await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, body)

    meddled.before = write
    with pytest.raises(ApplicationError) as caught:
        await run(orders.release, task)
    assert not caught.value.non_retryable
    await run(orders.release, task)
    meta = (await world.live(ref))["metadata"]
    assert meta["finalizers"] == [HOLD, "example.org/second"]
    assert meta["labels"] == {"example.org/note": "theirs"}
    assert wrote == 2


async def test_the_run_ends_and_does_not_tear_down_again_while_another_holds_the_object(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order(finalizers=(HOLD,))
        live = await product.reads(ref, reasons.PROVISIONED)
        assert live["metadata"]["finalizers"] == [HOLD, children.FINALIZER]
        await world.delete(ref)
        await product.closed(ref)
    assert (await world.live(ref))["metadata"]["finalizers"] == [HOLD]
    assert await world.names() == []
    audit = Audit(world.stack)
    for label in ("a", "b"):
        body = {"metadata": {"labels": {"example.org/note": label}}}
        await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, body)
        await asyncio.sleep(1.5)
    assert not await product.is_open(ref)
    assert writes(await audit.asked(world.plane_ns, world.order_ns)) == []
