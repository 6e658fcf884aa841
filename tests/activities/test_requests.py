"""What serving an order costs the API server, by the API server's own audit log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from activities.cluster import Cluster, Object
from activities.clusters import Clusters
from activities.errors import ClusterError
from activities.keystoneproject import KeystoneProjects
from tests.audit import Audit, writes
from tests.world import REGISTRATIONS, TARGET, World, retried, run
from workflows.keystoneproject import reasons

pytestmark = pytest.mark.api


@pytest.mark.parametrize("cluster", ["", TARGET])
async def test_an_order_becomes_ready_within_15_requests(world: World, cluster: str) -> None:
    await world.plane()
    home, target = Audit(world.stack), Audit(world.stack, "target")
    ref = await world.order(cluster=cluster)
    async with world.korc.playing():
        await world.one_pass(ref)
    asked = await home.asked(world.plane_ns, world.order_ns) + await target.asked(world.order_ns)
    assert await world.reason(ref) == reasons.PROVISIONED, [str(one) for one in asked]
    assert len(asked) <= 15, [str(one) for one in asked]
    print(len(asked), "requests:", *asked, sep="\n  ")
    # Every write is wanted: none is repeated and none is refused.
    assert sorted(one.split(" ->")[0].split("/")[0] for one in writes(asked)) == sorted(
        [
            f"create projects {world.plane_ns}", f"create leases {world.plane_ns}", f"delete projects {world.plane_ns}",
            f"patch projects {world.plane_ns}", f"update keystoneprojects {world.order_ns}", "patch keystoneprojects",
        ]
    )  # fmt: skip
    assert [one for one in asked if one.code >= 400 and one.verb != "get"] == []


async def test_a_pass_that_changes_nothing_reads_three_objects_and_writes_none(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    audit = Audit(world.stack)
    await world.one_pass(ref)
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert [f"{one.verb} {one.resource}" for one in asked] == [
        "get keystoneprojects", "get controlplanes", "get projects",
    ]  # fmt: skip


class Older(Cluster):
    """An API server that cannot begin a watch with what is there, as one without the feature WatchList refuses it."""

    refusals = 0

    async def watch(self, *args: Any, initial: bool = False, **options: Any) -> AsyncGenerator[Object]:
        if initial:
            self.refusals += 1
            raise ClusterError(
                "watching", 422, "Invalid", "sendInitialEvents is forbidden for watch unless the feature gate"
            )
        async for event in super().watch(*args, **options):
            yield event


async def test_an_older_api_server_is_listed_before_it_is_watched(world: World) -> None:
    await world.plane()
    for name in ("one", "two"):
        ref = await world.ready(name)
        await world.delete(ref)
        older = Older("", world.clusters.management._api)
        steps = KeystoneProjects(Clusters(older, REGISTRATIONS))
        async with world.korc.playing():
            task = await world.removal(ref)
            removal = await retried(steps.remove_project, task)
            assert (removal.left, older.refusals) == ((), 1)
            await run(world.orders.release, task)
        assert await world.find(ref) is None


async def test_a_removal_costs_what_it_needs(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    await world.delete(ref)
    audit = Audit(world.stack)
    async with world.korc.playing():
        task = await world.removal(ref)
        removal = await retried(world.projects.remove_project, task)
        await run(world.orders.release, task)
    asked = await audit.asked(world.plane_ns, world.order_ns)
    print(len(asked), "requests:", *asked, sep="\n  ")
    assert removal.left == ()
    assert await world.find(ref) is None
    assert len(asked) <= 15
