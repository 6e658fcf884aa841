"""The brake: `c5c3.io/paused` on an order or on its plane stops every write but status, and says so."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.cluster import CONTROL_PLANE, KORC_PROJECT
from tests.audit import Audit, writes
from tests.registered import Registered
from tests.world import TARGET, World, run
from workflows.keystoneproject import children, reasons
from workflows.scaffold.order import OrderRef

pytestmark = [pytest.mark.api, pytest.mark.row("P16")]


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


async def pause(world: World, ref: OrderRef, where: str, value: str | None = "true") -> None:
    if where == "order":
        await world.annotate(ref, "c5c3.io/paused", value)
    else:
        body = {"metadata": {"annotations": {"c5c3.io/paused": value}}}
        await world.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", body)


def only_status(asked: list[str]) -> bool:
    return all(" keystoneprojects/status " in each for each in asked)


@pytest.mark.parametrize("where", ["order", "plane"])
async def test_a_new_order_that_is_paused_gets_nothing_but_its_status(world: World, where: str) -> None:
    await world.plane()
    ref = await world.order()
    await pause(world, ref, where)
    audit = Audit(world.stack)
    await world.one_pass(ref)
    await world.one_pass(ref)
    asked = writes(await audit.asked(world.plane_ns, world.order_ns))
    assert only_status(asked), asked
    assert len(asked) == 1
    conditions = await world.conditions(ref)
    assert conditions["ProjectReady"]["reason"] == reasons.PROBING
    assert conditions["Ready"]["status"] == "False"
    assert "c5c3.io/paused" in conditions["Ready"]["message"]
    assert ("ControlPlane" in conditions["Ready"]["message"]) == (where == "plane")
    assert not (await world.live(ref))["metadata"].get("finalizers")
    await pause(world, ref, where, None)
    async with world.korc.playing():
        await world.passes_until(ref, reasons.PROVISIONED)
    assert (await world.conditions(ref))["Ready"]["status"] == "True"


@pytest.mark.parametrize("where", ["order", "plane"])
async def test_a_served_order_is_still_looked_at_but_not_repaired_nor_deleted(world: World, where: str) -> None:
    await world.plane()
    ref = await world.ready()
    await pause(world, ref, where)
    edit = {"spec": {"cloudCredentialsRef": {"secretName": "elsewhere"}}}
    await world.admin.patch(KORC_PROJECT, world.plane_ns, world.project_of(ref), edit)
    audit = Audit(world.stack)
    await world.one_pass(ref)
    conditions = await world.conditions(ref)
    assert conditions["ProjectReady"]["reason"] == reasons.WAITING
    assert "c5c3.io/paused" in conditions["Ready"]["message"]
    assert only_status(writes(await audit.asked(world.plane_ns, world.order_ns)))
    await world.delete(ref)
    task = await world.removal(ref)
    assert "c5c3.io/paused" in task.order.paused
    assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    await pause(world, ref, where, None)
    assert (await world.removal(ref)).order.paused == ""


async def test_a_pause_that_comes_after_the_look_holds_the_first_write(world: World) -> None:
    await world.plane()
    ref = await world.order()
    task = await world.task(ref)
    await world.annotate(ref, "c5c3.io/paused", "true")
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.provision_project, task)
    assert caught.value.type == "OrderMoved"
    assert await world.names() == []
    await world.annotate(ref, "c5c3.io/paused", None)
    async with world.korc.playing():
        await world.passes_until(ref, reasons.PROVISIONED)
    await world.delete(ref)
    removal = await world.removal(ref)
    await world.annotate(ref, "c5c3.io/paused", "true")
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.remove_project, removal)
    assert caught.value.type == "OrderMoved"
    live = await world.korc.there(world.project_of(ref))
    assert "deletionTimestamp" not in live["metadata"]


async def test_a_pause_of_the_plane_that_comes_after_the_look_holds_the_first_write(
    world: World, registered: Registered
) -> None:
    """Of every step, not only of the next: it looks at the plane as it does at its order."""
    await world.plane()
    project = await world.order()
    task = await world.task(project)
    await pause(world, project, "plane")
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.provision_project, task)
    assert caught.value.type == "OrderMoved"
    assert await world.names() == []
    await world.delete_plane()
    await registered.plane()
    service = await registered.order()
    task = await world.task(service)
    await pause(world, service, "plane")
    for step in (world.services.provision_catalog, world.services.accounts.provision_account):
        with pytest.raises(ApplicationError) as caught:
            await run(step, task)
        assert caught.value.type == "OrderMoved"
    assert await registered.children() == []


async def test_with_the_plane_gone_a_paused_order_is_still_not_torn_down(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    await world.delete(ref)
    await world.delete_plane()
    task = await world.removal(ref)
    await world.annotate(ref, "c5c3.io/paused", "true")
    assert "c5c3.io/paused" in (await world.removal(ref)).order.paused
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.remove_project, task)
    assert caught.value.type == "OrderMoved"
    live = await world.korc.there(world.project_of(ref))
    assert "deletionTimestamp" not in live["metadata"]


async def test_any_other_value_is_no_pause(world: World) -> None:
    await world.plane()
    ref = await world.order()
    for value in ("false", "", "True", "yes"):
        await world.annotate(ref, "c5c3.io/paused", value)
        assert (await run(world.orders.admit, ref)).order.paused == ""


async def test_who_is_not_assigned_does_not_learn_from_a_pause_that_the_plane_exists(world: World) -> None:
    ref = await world.order(cluster=TARGET)
    await world.one_pass(ref)
    before = await world.conditions(ref)
    await world.plane(clusters=())
    await pause(world, ref, "plane")
    await world.one_pass(ref)
    assert await world.conditions(ref) == before


async def test_a_paused_order_that_lost_the_name_rests(world: World) -> None:
    """Its looks judge as its passes do; otherwise each look would call for a pass."""
    await world.plane()
    winner, loser = await world.order("first", "finance"), await world.order("second", "finance")
    for ref in (winner, loser):
        await world.one_pass(ref)
        await world.korc.absent(world.probe_of(ref))
        await world.one_pass(ref)
    await pause(world, loser, "order")
    await world.one_pass(loser)
    assert await world.reason(loser) == reasons.COLLISION
    task = await world.task(loser)
    paused = await run(world.projects.provision_project, task)
    assert (await world.projects.look(task)).outcome == paused
