"""D5: late news of an order that was released neither puts a finalizer back, nor a child, nor leaves a run open."""

from __future__ import annotations

import asyncio

import pytest

from activities.cluster import KEYSTONE_PROJECT
from tests.audit import Audit, writes
from tests.product import Product
from tests.world import run
from workflows.keystoneproject import reasons
from workflows.scaffold.order import RING
from workflows.scaffold.steps import State

pytestmark = pytest.mark.api

HOLD = "example.org/hold"


async def test_late_news_of_a_released_order_changes_nothing(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order(finalizers=(HOLD,))
        await product.reads(ref, reasons.PROVISIONED)
        await world.delete(ref)
        await product.closed(ref)
    audit = Audit(world.stack)
    # A MODIFIED with deletionTimestamp and without our finalizer, as the watcher hears it.
    await world.annotate(ref, "example.org/late", "news")
    # And a run that is started for it all the same, as a second replica with older news would.
    await product.client.start_workflow(
        "KeystoneProject", id=ref.workflow_id, task_queue="c5c3-orders", start_signal=RING
    )
    await product.closed(ref)
    assert (await run(world.orders.admit, ref)).state is State.DELETING
    assert (await world.live(ref))["metadata"]["finalizers"] == [HOLD]
    # Then the DELETED.
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    await product.gone(ref)
    await asyncio.sleep(2)
    await product.client.start_workflow(
        "KeystoneProject", id=ref.workflow_id, task_queue="c5c3-orders", start_signal=RING
    )
    await product.closed(ref)
    assert writes(await audit.asked(world.plane_ns, world.order_ns)) == []
    assert await world.names() == []
    assert await world.leases() == []


async def test_an_order_of_the_same_name_is_served_anew(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        first = (await product.reads(ref, reasons.PROVISIONED))["status"]["projectID"]
        await world.delete(ref)
        await product.gone(ref)
        again = await world.order()
        assert again.workflow_id == ref.workflow_id
        second = (await product.reads(again, reasons.PROVISIONED))["status"]["projectID"]
    assert first != second
    assert list(world.korc.keystone.values()) == [second]
