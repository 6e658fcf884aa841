"""Waiting: it costs no history, says what it waits for, looks when the contracts say, and pauses longer in trouble."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster import CONTROL_PLANE
from activities.errors import ClusterError, Conflict
from tests.flows.conftest import Serve
from tests.flows.flow import Flow, until
from tests.flows.world import World, waiting
from tests.workflows import things
from workflows.keystoneproject.judge import judge
from workflows.scaffold.child import Seen

PLANES = CONTROL_PLANE.plural
FORBIDDEN = ClusterError("applying Project", 403, "Forbidden", "no right to patch projects")


@pytest.mark.row("T05")
async def test_an_hour_of_waiting_adds_no_history_and_says_what_it_waits_for(serve: Serve) -> None:
    world = World("waits-an-hour")
    world.plane(assigned=False)
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        events, admits = len(await flow.events()), world.count("admit")
        await flow.pass_time(hours=1)
        assert len(await flow.events()) == events
        assert world.count("admit") == admits

        look = await flow.settled()
        assert 60 <= look.attempt <= 63
        told = look.last_failure.message
        assert told.startswith(
            "NamespaceNotAssigned: No entry of spec.namespaceAssignments on ControlPlane openstack/cp"
        )
        assert told.endswith("(next look in 60 s)")
        next_look = look.next_attempt_schedule_time.ToDatetime() - look.last_attempt_complete_time.ToDatetime()
        assert 55 < next_look.total_seconds() < 65
        assert (await flow.describe()).next_look_seconds == 60


@pytest.mark.row("T05")
async def test_a_wait_ends_with_the_look_that_finds_something_else(serve: Serve) -> None:
    world = World("waits-for-korc")
    world.find = waiting("K-ORC: creating")
    async with serve(world) as flow:
        await flow.ring()
        look = await flow.settled()
        assert look.last_failure.message == "WaitingForProject: K-ORC: creating (next look in 10 s)"
        await flow.pass_time(minutes=2)
        assert 11 <= world.looks <= 18
        assert world.count("admit") == 1
        world.find = world.provisioned()
        await flow.pass_time(seconds=15)
        await flow.idle(2)
        assert world.condition("Ready")["status"] == "True"


@pytest.mark.row("T05")
async def test_a_ring_ends_a_wait_at_once(serve: Serve) -> None:
    world = World("rung-while-waiting")
    world.find = waiting("it", again=600)
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        world.find = world.provisioned()
        await flow.ring()
        await flow.idle(2)
        assert world.condition("Ready")["status"] == "True"
        assert world.looks == 0


async def interval(flow: Flow) -> float:
    """Seconds between the look that was and the next, as the server has them. No load on this machine moves them."""
    look = await flow.settled()
    return look.current_retry_interval.ToTimedelta().total_seconds()


@pytest.mark.row("P15")
async def test_an_order_on_a_target_cluster_is_passed_every_ten_minutes(serve: Serve) -> None:
    world = World("refreshed", cluster="edge-1")
    async with serve(world) as flow:
        await flow.ring()
        for passes in (1, 2, 3):
            await until(lambda passes=passes: world.count("admit") == passes)  # type: ignore[misc]
            assert await interval(flow) == pytest.approx(600, abs=5)
            assert world.home.reads["keystoneprojects"] == passes, "nothing is read between two passes"
            await flow.pass_time(minutes=10)
        assert world.count("report") == 1


@pytest.mark.row("P15")
async def test_a_wait_on_a_target_cluster_is_refreshed_too(serve: Serve) -> None:
    world = World("waits-and-refreshed", cluster="edge-1")
    world.find = waiting("it", again=60)
    async with serve(world) as flow:
        await flow.ring()
        assert await interval(flow) == pytest.approx(60, abs=1)
        await flow.pass_time(minutes=5)
        assert world.count("admit") == 1
        assert world.looks >= 4
        await flow.pass_time(minutes=5, seconds=30)
        await until(lambda: world.count("admit") == 2)
        assert world.looks <= 10


@pytest.mark.row("P15")
@pytest.mark.parametrize("cluster", ["", "edge-1"])
async def test_a_reserved_name_is_looked_at_every_ten_minutes(serve: Serve, cluster: str) -> None:
    world = World("reserved", cluster=cluster)
    world.find = judge(world.ref, "service-Nova", things.plane(), Seen(now=things.NOW))
    async with serve(world) as flow:
        await flow.ring()
        for times in (1, 2, 3):
            await until(lambda times=times: world.management.reads.get(PLANES) == times)  # type: ignore[misc]
            assert await interval(flow) == pytest.approx(600, abs=5)
            await flow.pass_time(minutes=10)
        assert world.condition("ProjectReady")["reason"] == "ProjectCollision"


@pytest.mark.row("P15")
@pytest.mark.parametrize("cluster", ["", "edge-1"])
async def test_a_frozen_order_is_looked_at_every_minute(serve: Serve, cluster: str) -> None:
    world = World("frozen", cluster=cluster)
    world.plane(assigned=False)
    async with serve(world) as flow:
        await flow.ring()
        for times in (1, 2, 3, 4):
            await until(lambda times=times: world.management.reads.get(PLANES, 0) >= times)  # type: ignore[misc]
            assert await interval(flow) == pytest.approx(60, abs=1)
            await flow.pass_time(minutes=1)
        assert world.count("admit") == 1
        assert world.condition("ProjectReady")["reason"] == "NamespaceNotAssigned"
        world.plane()
        await flow.pass_time(minutes=1)
        await until(lambda: world.condition("Ready")["status"] == "True")


@pytest.mark.row("P15")
async def test_an_order_on_a_cluster_whose_name_is_too_long_is_never_looked_at(serve: Serve) -> None:
    world = World("too-long", cluster="c" * 64)
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert world.condition("ProjectReady")["reason"] == "ClusterNameTooLong"
        events = len(await flow.events())
        await flow.pass_time(hours=5)
        assert len(await flow.events()) == events
        assert world.count("settle") == 0
        assert world.management.reads == {}, "nothing is read but the order"
        await flow.ring()
        await flow.idle(2)


async def test_trouble_pauses_longer_each_time_and_a_resync_clears_that(serve: Serve) -> None:
    world = World("troubled")
    world.find = FORBIDDEN
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        await flow.pass_time(minutes=17, seconds=30)
        waits = await flow.waits()
        assert [wait.every for wait in waits] == [10, 20, 40, 80, 160, 300, 300, 300]
        assert all(wait.blind for wait in waits)
        assert world.count("provision_project") == 8, "a pass after each pause and none in between"
        assert world.count("report") == 1, "the same trouble is not written again"

        await flow.resync()
        await until(lambda: world.count("provision_project") == 9)
        await flow.settled()
        assert [wait.every for wait in await flow.waits()][-1] == 10

        world.find = world.provisioned()
        await flow.pass_time(seconds=15)
        await until(lambda: world.condition("Ready")["status"] == "True")
        world.find = FORBIDDEN
        await flow.ring()
        await until(lambda: world.condition("Ready")["status"] == "False")
        await flow.settled()
        assert [wait.every for wait in await flow.waits()][-1] == 10, "a pass without trouble forgets it"


async def test_trouble_at_the_first_step_pauses_longer_each_time(serve: Serve) -> None:
    world = World("unreadable")
    world.home.refuse["get keystoneprojects"] = ClusterError("reading", 403, "Forbidden", "no right to read it")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        await flow.pass_time(minutes=7)
        assert [wait.every for wait in await flow.waits()] == [10, 20, 40, 80, 160, 300]
        assert "no right to read it" in (await flow.describe()).note
        assert "no right to read it" in (await flow.settled()).last_failure.message
        assert world.home.writes == []
        world.home.refuse.clear()
        await flow.resync()
        await until(lambda: world.condition("Ready").get("status") == "True")


async def test_an_order_that_somebody_writes_without_end_is_not_read_without_end(serve: Serve) -> None:
    world = World("moves")
    world.home.refuse["patch keystoneprojects"] = Conflict("patch", 409, "Conflict", "it has changed")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        await flow.pass_time(seconds=60)
        assert 6 <= world.count("admit") <= 16
        pauses = [wait.every for wait in await flow.waits()]
        assert pauses[:6] == [0.4, 0.8, 1.6, 3.2, 6.4, 10]
        assert max(pauses) == 10
        world.home.refuse.clear()
        await flow.pass_time(seconds=15)
        await until(lambda: world.condition("Ready").get("status") == "True")


async def test_looks_that_fail_for_good_do_not_make_it_pass_at_full_speed(serve: Serve) -> None:
    world = World("no-looks")
    world.find = waiting("it")

    async def fail() -> None:
        raise ApplicationError("the look cannot be made", non_retryable=True)

    world.hold = {"settle": fail}
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.count("settle") == 1)
        await flow.pass_time(seconds=60)
        assert 5 <= world.count("admit") <= 12
        world.find = world.provisioned()
        await flow.ring()
        await until(lambda: world.condition("Ready").get("status") == "True")
