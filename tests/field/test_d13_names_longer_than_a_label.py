"""D13: a name that fits no label gets a stated reason, no hot loop and no child, and can still be deleted."""

from __future__ import annotations

import asyncio

import pytest

from activities.cluster import KEYSTONE_PROJECT
from tests.audit import Audit, writes
from tests.lawless import an_order, without_rules
from tests.product import Product
from tests.world import TARGET, until
from workflows.keystoneproject import reasons
from workflows.scaffold.order import OrderRef

pytestmark = pytest.mark.api


@pytest.mark.row("P10")
async def test_where_no_rule_refuses_it_a_long_name_reads_its_reason_and_goes_at_once(product: Product) -> None:
    world = product.world
    await world.plane()
    audit = Audit(world.stack)
    async with without_rules(world):
        for name in ("x" * 64, "with.dots." + "y" * 243):
            await world.target.create(KEYSTONE_PROJECT, an_order(world, name))
            ref = OrderRef(kind="KeystoneProject", cluster=TARGET, namespace=world.order_ns, name=name)
            live = await product.reads(ref, reasons.ERROR)
            assert "63" in live["status"]["conditions"][0]["message"]
            assert not live["metadata"].get("finalizers")
            events = await product.quiet(ref, still=3)
            await asyncio.sleep(5)
            assert await product.events(ref) == events
            await world.delete(ref)
            await product.gone(ref)
            await product.closed(ref)
    assert writes(await audit.asked(world.plane_ns)) == []


async def test_the_longest_name_is_served_and_two_of_one_name_have_different_children(product: Product) -> None:
    world = product.world
    await world.plane()
    name = "a." + "x" * 61
    async with world.korc.playing():
        here, there = await world.order(name, "here"), await world.order(name, "there", cluster=TARGET)
        for ref in (here, there):
            await product.reads(ref, reasons.PROVISIONED)
        wanted = sorted([world.project_of(here), world.project_of(there)])

        async def alone() -> bool:  # the probes are on their way out
            return await world.names() == wanted

        await until(alone)
    names = await world.names()
    assert len(set(names)) == 2
    assert all(len(each) <= 253 for each in names)
