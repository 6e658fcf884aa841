"""Worker deployment versioning on orders: a version that is made current takes them over, whatever they are doing."""

from __future__ import annotations

import asyncio

import pytest

from tests.upgrades.rollout import Rollout
from tests.upgrades.states import all_come_out, in_every_state, one_is_in_a_step, ringing, touched
from tests.world import until
from workflows.scaffold.order import RESYNC
from workflows.scaffold.run import MANY_RINGS

pytestmark = [pytest.mark.api, pytest.mark.timeout(420)]


@pytest.mark.row("T06")
async def test_a_version_gets_no_order_until_it_is_current_and_then_every_one(rollout: Rollout) -> None:
    world = rollout.world
    await world.plane()
    first = await rollout.worker("1")
    await first.logs("gets no orders, for workers without a version are current")
    early = await world.order("early")
    await asyncio.sleep(3)
    assert await world.conditions(early) == {}
    await rollout.make_current(first)
    async with world.korc.playing():
        await rollout.becomes_ready(early)
    orders = await in_every_state(rollout)

    second = await rollout.worker("2", "guarded")
    await second.logs("gets no orders, for version 1 is current")
    await touched(rollout, early)
    assert set(await rollout.served_by(early)) == {"1"}
    await one_is_in_a_step(rollout, orders)
    await rollout.make_current(second)
    await rollout.leave(first)
    await all_come_out(rollout, orders)
    await touched(rollout, *orders.living)
    for ref in orders.living:
        assert (await rollout.served_by(ref))[-1] == "2"
        assert not await rollout.patched(ref), "a run that has passed without the new step goes on without it"

    # Runs that begin under the new version take its way: continued as new, handed over, or started.
    handle = rollout.client.get_workflow_handle(early.workflow_id)
    run = (await handle.describe()).run_id
    await asyncio.gather(*(handle.signal(RESYNC) for _ in range(MANY_RINGS + 1)))
    await world.delete(late := orders.living[1])  # nobody plays K-ORC: its teardown waits
    fresh = await world.order("fresh")

    async def all_patched() -> bool:
        return all([await rollout.patched(ref) for ref in (early, late, fresh)])

    await until(all_patched)
    assert (await handle.describe()).run_id != run
    assert set(await rollout.served_by(early)) == {"2"}
    async with world.korc.playing():
        await rollout.becomes_ready(fresh)
        await rollout.gone(late)
    assert await rollout.failures() == []


@pytest.mark.row("T06")
async def test_ramping_serves_orders_with_both_and_a_killed_version_loses_none(rollout: Rollout) -> None:
    world = rollout.world
    await world.plane()
    first = await rollout.worker("1")
    await rollout.make_current(first)
    old = await in_every_state(rollout)
    second = await rollout.worker("2", "guarded")
    await second.logs("gets no orders")
    await rollout.ramp("2", 50)
    await second.logs("is ramping: it gets 50 % of the orders", 60)
    async with world.korc.playing():
        new = [await world.order(f"new-{number}") for number in range(12)]
        await rollout.becomes_ready(*old.living, *new)
        await rollout.gone(old.dying)
    builds = {(await rollout.served_by(ref))[-1] for ref in new}
    assert builds == {"1", "2"}
    late = await world.order("late")
    await world.korc.there(world.probe_of(late))
    await rollout.make_current(second)
    await first.kill()  # in the middle of a step, if `late` is its
    async with world.korc.playing():
        await rollout.becomes_ready(late)
        await touched(rollout, *old.living, *new)
    for ref in (*old.living, *new, late):
        assert (await rollout.served_by(ref))[-1] == "2"
    assert await rollout.failures() == []


@pytest.mark.row("T06")
async def test_a_release_that_cannot_follow_fails_runs_which_come_back_clean_and_so_does_going_back(
    rollout: Rollout,
) -> None:
    world = rollout.world
    await world.plane()
    first = await rollout.worker("1")
    await rollout.make_current(first)
    orders = await in_every_state(rollout)
    second = await rollout.worker("2", "unguarded")
    await one_is_in_a_step(rollout, orders)
    await rollout.make_current(second)
    await rollout.leave(first)
    await all_come_out(rollout, orders)
    failed = await rollout.failures()
    assert failed
    assert all(each.startswith("[TMPRL1100] Nondeterminism") for each in failed)
    third = await rollout.worker("1")
    await rollout.make_current(third)
    await rollout.leave(second)
    async with world.korc.playing():
        await ringing(rollout, *orders.living)

        async def passed_again() -> bool:
            return all([(await rollout.served_by(ref))[-1:] == ["1"] for ref in orders.living])

        await until(passed_again, 90)
        await rollout.becomes_ready(*orders.living)
    assert all(each.startswith("[TMPRL1100] Nondeterminism") for each in await rollout.failures())


@pytest.mark.row("T06")
async def test_without_versions_two_releases_serve_side_by_side_and_then_the_later_alone(rollout: Rollout) -> None:
    """As a Deployment is updated. A run that the later has led may fall to the earlier, and fail there."""
    world = rollout.world
    await world.plane()
    first = await rollout.worker()
    orders = await in_every_state(rollout)
    await rollout.worker(release="guarded")
    await one_is_in_a_step(rollout, orders)
    async with world.korc.playing():
        new = [await world.order(f"new-{number}") for number in range(8)]
        await rollout.becomes_ready(*new)
        await ringing(rollout, *new)
        await rollout.leave(first)
        await rollout.becomes_ready(*orders.living, *new, await world.order("late"))
        await rollout.gone(orders.dying)
        await touched(rollout, *orders.living)
    failed = await rollout.failures()
    print(f"{len(failed)} runs failed and came back")
    assert all(each.startswith("[TMPRL1100] Nondeterminism") for each in failed)


@pytest.mark.row("T06")
async def test_orders_of_workers_without_a_version_move_to_one_that_has_one(rollout: Rollout) -> None:
    world = rollout.world
    await world.plane()
    first = await rollout.worker()
    orders = await in_every_state(rollout)
    second = await rollout.worker("2", "guarded")
    await one_is_in_a_step(rollout, orders)
    await rollout.make_current(second)
    await rollout.leave(first)
    await all_come_out(rollout, orders)
    await touched(rollout, *orders.living)
    for ref in orders.living:
        assert (await rollout.served_by(ref))[-1] == "2"
    assert await rollout.failures() == []
