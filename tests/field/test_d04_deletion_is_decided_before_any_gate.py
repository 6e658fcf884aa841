"""D4: an order can always be deleted: its plane not ready, gone in the same second, or its namespace going too."""

from __future__ import annotations

import asyncio

import pytest

from activities.cluster import CONTROL_PLANE, KORC_PROJECT
from tests.audit import Audit
from tests.product import Product
from tests.world import NAMESPACE, until
from workflows.keystoneproject import children, reasons

pytestmark = pytest.mark.api


async def test_a_plane_whose_credential_is_not_ready_is_patient_until_the_children_are_gone(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)

        async def alone() -> bool:  # the probe has been let go
            return await world.names() == [world.project_of(ref)]

        await until(alone)
    await world.credential(False)
    await product.reads(ref, "WaitingForAdminCredential")
    await world.delete(ref)

    async def deleting() -> bool:
        return "deletionTimestamp" in (await world.korc.there(world.project_of(ref)))["metadata"]

    async def said() -> bool:
        return "Deletion waits" in (await world.conditions(ref))["Ready"]["message"]

    await until(deleting)
    await until(said)  # as soon as the step no longer stays for K-ORC's answer
    live = await world.live(ref)
    assert live["metadata"]["finalizers"] == [children.FINALIZER]
    ready = (await world.conditions(ref))["Ready"]
    assert world.project_of(ref) in ready["message"]
    await world.korc.let_go(world.project_of(ref))
    await product.gone(ref)
    await product.closed(ref)


async def test_an_order_that_waits_for_the_credential_from_the_start_can_be_deleted(product: Product) -> None:
    world = product.world
    await world.plane(credential=False)
    ref = await world.order()
    await product.reads(ref, "WaitingForAdminCredential")
    await world.delete(ref)
    await product.gone(ref)
    await product.closed(ref)


async def test_with_the_plane_gone_in_the_same_second_the_deletes_are_issued_and_the_order_goes(
    product: Product,
) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        ref = await world.order()
        await product.reads(ref, reasons.PROVISIONED)
    await world.delete_plane()
    await world.delete(ref)
    await product.gone(ref)
    await product.closed(ref)
    for child in await world.children():
        assert "deletionTimestamp" in child["metadata"]


async def test_a_namespace_that_goes_takes_its_orders_along(product: Product) -> None:
    world = product.world
    await world.plane()
    async with world.korc.playing():
        refs = [await world.order(f"order-{number}") for number in range(3)]
        for ref in refs:
            await product.reads(ref, reasons.PROVISIONED)
        await world.admin._request("DELETE", NAMESPACE, None, world.order_ns)
        for ref in refs:
            await product.gone(ref, 240)
            await product.closed(ref)

        async def gone() -> bool:
            return await world.admin.get(NAMESPACE, None, world.order_ns) is None

        await until(gone, 60)
    assert world.korc.keystone == {}
    assert await world.names() == []


async def test_in_a_terminating_namespace_nothing_is_created_and_nothing_loops(product: Product) -> None:
    """The plane's namespace cannot go, held by somebody's finalizers, and takes no new object meanwhile."""
    world = product.world
    await world.plane()
    hold = {"metadata": {"finalizers": ["example.org/hold"]}}
    await world.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", hold)
    spec = {
        "cloudCredentialsRef": {"secretName": "theirs", "cloudName": "admin"},
        "managementPolicy": "unmanaged",
        "import": {"filter": {"name": "theirs"}},
    }
    await world.child("theirs", {**hold, "spec": spec})
    await world.admin._request("DELETE", NAMESPACE, None, world.plane_ns)

    async def refuses() -> bool:
        found = await world.admin.get(NAMESPACE, None, world.plane_ns)
        return found is not None and found["status"]["phase"] == "Terminating"

    await until(refuses)
    audit = Audit(world.stack)
    ref = await world.order()
    live = await product.reads(ref, reasons.ERROR)
    message = live["status"]["conditions"][0]["message"]
    assert "terminated" in message
    await asyncio.sleep(15)
    asked = await audit.asked(world.plane_ns)
    creates = [one for one in asked if one.verb in ("create", "patch")]
    assert {one.code for one in creates} == {403}
    assert len(creates) <= 4, [str(one) for one in creates]
    assert await world.names() == ["theirs"]
    await world.delete(ref)
    await product.gone(ref)
    await product.closed(ref)
    await world.admin.patch(KORC_PROJECT, world.plane_ns, "theirs", {"metadata": {"finalizers": None}})
    await world.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", {"metadata": {"finalizers": None}})
