"""D15: nothing is written, asked or recorded while nothing changes; a storm of news folds into very few passes."""

from __future__ import annotations

import asyncio

import pytest

from activities.cluster import KORC_PROJECT
from tests.audit import Audit
from tests.product import Product
from tests.world import until
from workflows.keystoneproject import reasons

pytestmark = pytest.mark.api


@pytest.mark.row("S22")
async def test_a_minute_alone_costs_no_request_and_no_event(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)
    events = await product.quiet(ref, still=5)
    version = (await world.live(ref))["metadata"]["resourceVersion"]
    audit = Audit(world.stack)
    await asyncio.sleep(60)
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert asked == []
    assert await product.events(ref) == events
    assert await product.pending(ref) == []
    assert (await world.live(ref))["metadata"]["resourceVersion"] == version


@pytest.mark.row("S22")
async def test_our_own_status_write_starts_no_pass(product: Product) -> None:
    world = product.world
    await world.plane()
    ref = await world.order()
    await product.reads(ref, reasons.PROBING)
    await product.quiet(ref, still=3)
    before = await product.passes(ref)
    # One piece of news makes one pass; its status write makes none.
    await world.korc.waits_for(world.probe_of(ref), "Domain/cp-domain-default")

    async def says() -> bool:
        return "cp-domain-default" in str((await world.conditions(ref))["ProjectReady"]["message"])

    await until(says)
    await product.quiet(ref, still=3)
    # K-ORC's finalizer and its conditions are two writes, so up to two pieces of news.
    assert await product.passes(ref) - before <= 2


@pytest.mark.row("S22")
async def test_a_storm_of_labels_on_the_child_folds_into_few_passes(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)
    await product.quiet(ref, still=3)
    before, events = await product.passes(ref), await product.events(ref)
    name = world.project_of(ref)
    few = asyncio.Semaphore(4)  # more at once only make the API server retry among themselves

    async def touch(number: int) -> None:
        labels = {"metadata": {"labels": {"example.org/touched": str(number)}}}
        async with few:
            await world.admin.patch(KORC_PROJECT, world.plane_ns, name, labels)

    begun = asyncio.get_running_loop().time()
    await asyncio.gather(*(touch(number) for number in range(200)))
    took = asyncio.get_running_loop().time() - begun
    after = await product.quiet(ref, still=3)
    passes = await product.passes(ref) - before
    print(f"200 touches in {took:.1f} s: {passes} passes, {after - events} events")
    # A foreign label on a child that is as it should be is nothing to a Ready order: no pass is right, too.
    assert passes <= 5 * took + 2
    assert passes <= 40
    assert await product.reads(ref, reasons.PROVISIONED)


async def test_when_only_a_message_changes_time_stands_still(product: Product) -> None:
    world = product.world
    await world.plane()
    ref = await world.order()
    await world.korc.waits_for(world.probe_of(ref), "Domain/first")
    await product.reads(ref, reasons.PROBING)

    async def said(word: str) -> dict[str, str]:
        async def holds() -> bool:
            return word in str((await world.conditions(ref))["ProjectReady"]["message"])

        await until(holds)
        return (await world.conditions(ref))["ProjectReady"]

    first = await said("Domain/first")
    await asyncio.sleep(1.1)
    await world.korc.waits_for(world.probe_of(ref), "Domain/second")
    second = await said("Domain/second")
    assert second["lastTransitionTime"] == first["lastTransitionTime"]
