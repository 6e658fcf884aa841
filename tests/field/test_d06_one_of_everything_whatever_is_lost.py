"""D6: killed between creating and recording, or an answer that never comes: one of everything, and no error left."""

from __future__ import annotations

import pytest

from activities import projection
from activities.cluster import Cluster
from deploy.local.part import Stack
from tests.meddled import Call, Meddled, lost
from tests.product import Product, alone
from tests.world import World, made, retried
from workflows.keystoneproject import children, reasons
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Task

pytestmark = pytest.mark.api

WRITES = (
    "PUT keystoneprojects", "POST projects", "POST leases", "DELETE projects", "PATCH projects",
    "PATCH keystoneprojects/status",
)  # fmt: skip


async def one_of_everything(world: World, ref: OrderRef) -> None:
    assert await world.names() == [world.project_of(ref)]
    assert len(await world.leases()) == 1
    live = await world.live(ref)
    assert live["metadata"]["finalizers"] == [children.FINALIZER]
    assert live["status"]["projectID"] == world.korc.keystone[ref.name]
    assert [c["status"] for c in live["status"]["conditions"]] == ["True", "True"]
    assert list(world.korc.keystone) == [ref.name]


@pytest.mark.parametrize("which", WRITES)
async def test_the_answer_of_a_write_is_lost_after_the_server_did_it(api_stack: Stack, which: str) -> None:
    lines: list[Meddled] = []

    def through(cluster: Cluster) -> Meddled:
        lines.append(Meddled(cluster))
        return lines[0]

    await alone(api_stack)
    async with made(api_stack, through) as world:
        times = 0

        async def lose(call: Call) -> None:
            nonlocal times
            if str(call) == which and times == 0:
                times += 1
                raise lost(call)

        lines[0].after = lose
        await world.plane()
        ref = await world.order()
        async with world.korc.playing():
            for _ in range(6):
                admitted = await retried(world.orders.admit, ref)
                outcome = admitted.found
                if outcome is None:
                    task = Task(ref=ref, order=admitted.order, plane=admitted.plane)
                    outcome = await retried(world.projects.provision_project, task)
                try:
                    written = await world.report(ref, admitted, outcome)
                except Exception:
                    written = False  # lost: the next pass finds it written
                if written is None and outcome.verdicts[0].status:
                    break
            await world.probe_gone(ref)
        assert times == 1, "the write was never made, so nothing was tried"
        await one_of_everything(world, ref)


async def test_the_answer_of_each_write_of_a_removal_is_lost(api_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 1)
    lines: list[Meddled] = []

    def through(cluster: Cluster) -> Meddled:
        lines.append(Meddled(cluster))
        return lines[0]

    await alone(api_stack)
    async with made(api_stack, through) as world:
        await world.plane()
        ref = await world.ready()
        dropped: set[str] = set()

        async def lose(call: Call) -> None:
            if call.writes and str(call) not in dropped:
                dropped.add(str(call))
                raise lost(call)

        lines[0].after = lose
        await world.delete(ref)
        async with world.korc.playing():
            while await world.find(ref) is not None:
                task = await world.removal(ref)
                removal = await retried(world.projects.remove_project, task)
                if not removal.left:
                    await retried(world.orders.release, task)
        assert dropped == {"DELETE projects", "DELETE leases", "PUT keystoneprojects"}
        assert await world.names() == []
        assert await world.leases() == []
        assert world.korc.keystone == {}


async def test_the_worker_is_killed_between_the_project_and_the_status(product: Product) -> None:
    world = product.world
    await world.plane()
    ref = await world.order()
    await world.korc.there(world.probe_of(ref))
    assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    await world.korc.absent(world.probe_of(ref))
    first = await world.korc.there(world.project_of(ref), 30)
    await product.kill("worker")
    assert not (await world.live(ref)).get("status", {}).get("projectID")
    async with world.korc.playing():
        await product.start("worker")
        await product.reads(ref, reasons.PROVISIONED, 90)
        assert (await world.korc.there(world.project_of(ref)))["metadata"]["uid"] == first["metadata"]["uid"]
        await one_of_everything(world, ref)
