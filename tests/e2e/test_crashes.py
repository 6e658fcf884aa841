"""kill -9: of the worker at many moments of many orders, and of everything that it and the watcher stand on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from deploy.local import kube
from tests.e2e.stage import Order, Stage, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


async def exactly_one_of_everything(orders: list[Order]) -> None:
    """In Keystone one project each, in the cluster one Project and one claim each, in Temporal one open run each."""
    for order in orders:
        (row,) = await order.rows()
        live = await order.live()
        assert live is not None
        assert live["status"]["projectID"] == row["id"]
        # K-ORC may take a moment to let a probe go that was deleted before its project was made.
        children = await until(order.children, lambda found: len(found) == 2, 30)
        assert children[0]["metadata"]["name"] == order.child
        assert len(await until(order.open_runs, lambda runs: len(runs) == 1, 15)) == 1


@pytest.mark.row("T09")
async def test_a_worker_killed_at_any_step_loses_and_duplicates_nothing(real_stack: Stage, place: Place) -> None:
    """Orders begin one after the other, so that each kill finds them at different steps; likewise their deletions."""
    orders = [place("killed") for _ in range(12)]

    async def spread(act: Callable[[Order], object], seconds: float) -> None:
        for order in orders:
            await act(order)  # type: ignore[misc]
            await asyncio.sleep(seconds)

    async def murder(*moments: float) -> None:
        for pause in moments:
            await asyncio.sleep(pause)
            await real_stack.kill("worker")
            await real_stack.start("worker")

    await asyncio.gather(spread(lambda order: order.place(), 0.25), murder(1.5, 1.0))
    await asyncio.gather(*(order.is_ready(150) for order in orders))
    await exactly_one_of_everything(orders)
    for order in orders:
        (live,) = [await order.live()]
        assert "rror" not in str((live or {}).get("status")), "no error may be left in the conditions"

    await asyncio.gather(spread(lambda order: order.delete(), 0.25), murder(1.5))
    await asyncio.gather(*(order.gone(150) for order in orders))
    for order in orders:
        await order.left_nothing()


@pytest.mark.row("T10")
async def test_orders_written_while_the_watcher_is_dead_are_served(real_stack: Stage, place: Place) -> None:
    changed, deleted = await place("before").place(), await place("before").place()
    await asyncio.gather(changed.is_ready(), deleted.is_ready())
    await real_stack.kill("watcher")
    created = place("meanwhile")
    try:
        await created.place()
        await deleted.delete()
        await asyncio.sleep(2)
        assert await created.status() == {}
    finally:
        await real_stack.start("watcher")
    await asyncio.gather(created.is_ready(), deleted.gone())
    await deleted.left_nothing()
    await exactly_one_of_everything([changed, created])


@pytest.mark.row("T10")
async def test_orders_written_while_temporal_is_dead_are_served(real_stack: Stage, place: Place) -> None:
    kept, deleted = await place("before").place(), await place("before").place()
    await asyncio.gather(kept.is_ready(), deleted.is_ready())
    await real_stack.kill("temporal")
    created = place("meanwhile")
    try:
        await created.place()
        await deleted.delete()
        await asyncio.sleep(2)
        assert await created.status() == {}
    finally:
        await real_stack.start("temporal")
    await asyncio.gather(created.is_ready(90), deleted.gone(90))
    await deleted.left_nothing()
    await exactly_one_of_everything([kept, created])


@pytest.mark.row("T10")
async def test_orders_written_while_the_api_servers_die_are_served(real_stack: Stage, place: Place) -> None:
    """The management server dies: an order written on the target cluster meanwhile. Then the target's: one at home."""
    kept = await place("before").place()
    await kept.is_ready()
    edge, home = place("edge", cluster="target"), place("home")
    began = time.time()
    await real_stack.kill("management")
    try:
        await edge.place()
        await asyncio.sleep(2)
    finally:
        await real_stack.start("management")
    await edge.is_ready(120)

    await real_stack.kill("target")
    try:
        await home.place()
        await home.is_ready(90)
    finally:
        await real_stack.start("target")
    late = await place("late", cluster="target").place()
    await late.is_ready(120)
    # A server that has just started refuses everybody for a moment, until it has read who may do what.
    real_stack.provoked.append((began, time.time()))
    await exactly_one_of_everything([kept, edge, home, late])
    await edge.delete()
    await edge.gone(90)
    await edge.left_nothing()


async def test_a_controller_that_is_away_is_waited_for(real_stack: Stage, place: Place) -> None:
    """K-ORC is killed between probe and project: the order says what it waits for, and goes on when K-ORC is back."""
    order = place("away")
    await real_stack.kill("korc")
    try:
        await order.place()
        said = await order.reads("ProbingForCollision")
        assert "K-ORC has not reported on it yet" in said["message"]
        probe = await kube.get(real_stack.stack, "management", "projects.openstack.k-orc.cloud", "openstack",
                               order.probe)  # fmt: skip
        assert probe is not None
    finally:
        await real_stack.start("korc")
    await order.is_ready(90)
    await exactly_one_of_everything([order])
