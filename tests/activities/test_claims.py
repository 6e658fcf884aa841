"""Two orders for one project name: exactly one gets it, whatever the timing.

K-ORC takes over what carries the name, so both probes reading absent is the dangerous moment. Every interleaving of
the two steps is forced here by holding the writes of one back at each of its writes in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities import projection
from activities.cluster import LEASE
from activities.clusters import Clusters
from activities.keystoneproject import KeystoneProjects
from tests.meddled import Call, Meddled
from tests.world import REGISTRATIONS, World, retried, run
from workflows.keystoneproject import children, reasons
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Task

pytestmark = [pytest.mark.api, pytest.mark.row("P14")]


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.05)


@pytest_asyncio.fixture
async def two(world: World) -> AsyncIterator[tuple[OrderRef, OrderRef]]:
    """Two orders for one name, spelled as only Keystone finds equal, both told that it does not exist."""
    await world.plane()
    one, other = await world.order("first", "finance"), await world.order("second", "Fínance")
    for ref in (one, other):
        await world.one_pass(ref)
        await world.korc.absent(world.probe_of(ref))
    yield one, other


class Killed(BaseException):
    """The worker dies here."""


async def decide(world: World, ref: OrderRef, task: Task, cluster: Meddled | None = None) -> str:
    projects = world.projects if cluster is None else KeystoneProjects(Clusters(cluster, REGISTRATIONS))
    (verdict,) = (await retried(projects.provision_project, task)).verdicts
    return verdict.reason


async def made_by(world: World, *refs: OrderRef) -> list[OrderRef]:
    """The orders that have a managed Project."""
    names = await world.names()
    return [ref for ref in refs if world.project_of(ref) in names]


@pytest.mark.parametrize("at", range(4))
async def test_one_held_back_at_each_of_its_writes(world: World, two: tuple[OrderRef, OrderRef], at: int) -> None:
    slow, quick = two
    reached, go, written = asyncio.Event(), asyncio.Event(), 0
    meddled = Meddled(world.clusters.management)

    async def hold(call: Call) -> None:
        nonlocal written
        if call.writes:
            if written == at:
                reached.set()
                await go.wait()
            written += 1

    meddled.before = hold
    tasks = {ref: await world.task(ref) for ref in two}
    slowly = asyncio.create_task(decide(world, slow, tasks[slow], meddled))
    done = asyncio.create_task(reached.wait())
    await asyncio.wait([slowly, done], return_when=asyncio.FIRST_COMPLETED)
    assert reached.is_set() or at == 3, "the step makes fewer writes than this test thinks"
    done.cancel()
    fast = await decide(world, quick, tasks[quick])
    go.set()
    reasons_ = {slow: await slowly, quick: fast}
    (winner,) = await made_by(world, slow, quick)
    (loser,) = {slow, quick} - {winner}
    assert reasons_[winner] == reasons.WAITING
    assert reasons_[loser] == reasons.COLLISION
    assert winner == (quick if at == 0 else slow)
    (lease,) = await world.leases()
    assert lease["spec"]["holderIdentity"] == winner.workflow_id
    assert "c5c3-claim-" in lease["metadata"]["name"]


async def test_both_at_once_again_and_again(world: World) -> None:
    await world.plane()
    for turn in range(8):
        refs = [await world.order(f"order-{turn}-{side}", f"name-{turn}") for side in "ab"]
        tasks = {}
        for ref in refs:
            await world.one_pass(ref)
            await world.korc.absent(world.probe_of(ref))
            tasks[ref] = await world.task(ref)
        found = await asyncio.gather(*(decide(world, ref, tasks[ref]) for ref in refs))
        assert sorted(found) == sorted([reasons.COLLISION, reasons.WAITING]), turn
        assert len(await made_by(world, *refs)) == 1


async def test_the_loser_waits_without_passes_and_gets_it_once_the_winner_is_gone(
    world: World, two: tuple[OrderRef, OrderRef]
) -> None:
    winner, loser = two
    for ref in two:
        await world.one_pass(ref)
    assert await world.reason(loser) == reasons.COLLISION
    message = (await world.conditions(loser))["ProjectReady"]["message"]
    assert "c5c3-claim-" in message
    before = [each["metadata"]["resourceVersion"] for each in await world.children()]
    task = await world.task(loser)
    (verdict,) = (await retried(world.projects.provision_project, task)).verdicts
    assert (await world.projects.look(task)).outcome.verdicts == (verdict,)
    assert (await world.projects.look(task)).due is False
    assert [each["metadata"]["resourceVersion"] for each in await world.children()] == before
    await world.removed(winner)
    assert await world.leases() == []
    assert (await world.projects.look(await world.task(loser))).due
    await world.korc.let_go(world.project_of(winner))
    await world.one_pass(loser)
    assert await made_by(world, winner, loser) == [loser]
    (lease,) = await world.leases()
    assert lease["spec"]["holderIdentity"] == loser.workflow_id


async def test_the_same_name_in_another_case_is_the_same_claim_and_a_neighbour_is_not(world: World) -> None:
    await world.plane()
    refs = [
        await world.order(f"order-{index}", name)
        for index, name in enumerate(("Straße", "STRAßE", "Strasse", "straßé", "straß"))
    ]
    for ref in refs:
        await world.one_pass(ref)
        await world.korc.absent(world.probe_of(ref))
        await world.one_pass(ref)
    assert await made_by(world, *refs) == [refs[0], refs[2], refs[4]]


async def test_a_claim_of_nobodys_is_a_collision_that_names_the_lease(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.absent(world.probe_of(ref))
    task = await world.task(ref)
    assert task.plane is not None
    lease = children.claim(task.plane, ref.name)
    await world.admin.create(LEASE, {"metadata": {"name": lease, "namespace": world.plane_ns}, "spec": {}})
    await world.one_pass(ref)
    found = (await world.conditions(ref))["ProjectReady"]
    assert found["reason"] == reasons.COLLISION
    assert f"{world.plane_ns}/{lease}" in found["message"]
    assert await made_by(world, ref) == []


async def test_a_claim_survives_a_crash_between_it_and_the_project(world: World) -> None:
    """The second attempt finds its own claim and goes on."""
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.absent(world.probe_of(ref))
    meddled = Meddled(world.clusters.management)

    async def die(call: Call) -> None:
        if call.plural == "projects" and call.method == "PATCH":
            raise Killed

    meddled.before = die
    with pytest.raises(Killed):
        await run(KeystoneProjects(Clusters(meddled, REGISTRATIONS)).provision_project, await world.task(ref))
    assert len(await world.leases()) == 1
    async with world.korc.playing():
        await world.passes_until(ref, reasons.PROVISIONED)
    assert len(await world.leases()) == 1
