"""Rings and updates: none is lost or left unanswered, whenever it comes, and no storm makes a history long."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

from activities.errors import ClusterError, Conflict
from tests.flows.conftest import Serve
from tests.flows.flow import Flow, until
from tests.flows.gate import Gate, carries_on, ends
from tests.flows.world import Stop, World, waiting
from workflows.scaffold.carry import Carry
from workflows.scaffold.run import LONG_HISTORY, MANY_RINGS

STORM = 1500


def refused_to_end(events: list[HistoryEvent]) -> bool:
    """Whether Temporal refused a run's last word because something had arrived meanwhile."""
    failed = [e.workflow_task_failed_event_attributes for e in events if e.event_type == _TASK_FAILED]
    return any(each.cause == _UNHANDLED for each in failed)


_TASK_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
_UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND


async def exhaust(flow: Flow, stop: Stop) -> None:
    """Rings a run, whose first pass stands at `stop`, so often that it continues as new after that pass."""
    await flow.ring()
    await stop.reached()
    for _ in range(10):
        await asyncio.gather(*(flow.ring() for _ in range(MANY_RINGS // 10 + 1)))


@pytest.mark.row("T03")
async def test_a_ring_during_a_pass_causes_one_more(serve: Serve) -> None:
    world = World("ring-in-pass")
    world.hold = {"provision_project": (stop := Stop())}
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        for _ in range(5):
            await flow.ring()
        assert world.count("admit") == 1
        stop.go_on()
        await flow.idle(2)
        assert world.count("admit") == 2, "five rings during a pass are one more pass"


@pytest.mark.row("T03")
async def test_a_ring_during_continue_as_new_is_heard_by_a_pass(serve: Serve) -> None:
    world, gate = World("ring-in-between"), Gate(carries_on)
    world.hold = {"provision_project": (stop := Stop())}
    async with serve(world, gate) as flow:
        await exhaust(flow, stop)
        first = (await flow.handle.describe()).run_id
        gate.shut()
        stop.go_on()
        await gate.reached()  # the run has decided to continue as new and Temporal does not know yet
        world.find = waiting("seen after that ring")
        await flow.ring()
        gate.open()
        await until(lambda: "seen after that ring" in world.condition("ProjectReady").get("message", ""))
        assert refused_to_end(await flow.events(first)), "the ring came before the run had ended"
        assert len(await flow.runs()) == 2


@pytest.mark.row("T03")
async def test_a_ring_at_completion_is_heard_by_the_same_run(serve: Serve) -> None:
    """The order is gone; while its run says so, an order of the same name is written and rung."""
    world, gate = World("ring-at-the-end"), Gate(ends)
    world.vanish()
    async with serve(world, gate) as flow:
        gate.shut()
        await flow.ring()
        await gate.reached()
        first = (await flow.handle.describe()).run_id
        world.order(uid="uid-2")
        await flow.ring()
        gate.open()
        await until(lambda: world.condition("Ready").get("status") == "True")
        assert (await flow.handle.describe()).run_id == first
        assert refused_to_end(await flow.events())


@pytest.mark.row("T03")
async def test_a_ring_between_two_runs_starts_the_second(serve: Serve) -> None:
    world = World("ring-after-the-end")
    world.vanish()
    async with serve(world) as flow:
        await flow.ring()
        await flow.ended()
        first = (await flow.handle.describe()).run_id
        world.order(uid="uid-2")
        await flow.ring()
        await until(lambda: world.condition("Ready").get("status") == "True")
        assert (await flow.handle.describe()).run_id != first


@pytest.mark.row("T04")
async def test_a_storm_is_folded_and_leaves_bounded_histories(serve: Serve) -> None:
    world = World("storm")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        for number in range(STORM // 50):
            if number == STORM // 50 - 1:
                world.find = waiting("seen after the storm", again=None)
            await asyncio.gather(*(flow.ring() for _ in range(50)))
        await until(lambda: "seen after the storm" in world.condition("ProjectReady").get("message", ""))
        await until_quiet(flow)
        histories = await flow.runs()
        rings = [sum(event.event_type == _SIGNALED for event in events) for events in histories]
        assert sum(rings) == STORM + 1, "each ring is in exactly one run"
        assert len(histories) > 2
        # The bounds, and what comes during one pass of a slow machine.
        assert max(len(events) for events in histories) < LONG_HISTORY + 700
        assert max(rings) < MANY_RINGS + 500
        assert world.count("admit") < STORM / 2, "rings fold"


_SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED


async def until_quiet(flow: Flow) -> None:
    async def quiet() -> bool:
        raw = (await flow.handle.describe()).raw_description
        return not raw.pending_activities and not raw.HasField("pending_workflow_task")

    await until(quiet)


async def test_an_order_that_converges_with_a_long_history_starts_anew_at_once(serve: Serve) -> None:
    world = World("long-way")
    world.find = waiting("it")
    async with serve(world) as flow:
        for passes in range(1, 8):
            await flow.ring()
            await until(lambda passes=passes: world.count("admit") >= passes)  # type: ignore[misc]
            await flow.settled()
        assert len(await flow.events()) > 100
        assert len(await flow.runs()) == 1
        world.find = world.provisioned()
        await flow.ring()
        await until(lambda: world.condition("Ready").get("status") == "True")
        await until_quiet(flow)
        assert [len(events) > 100 for events in await flow.runs()] == [True, False]


@pytest.mark.row("T16")
async def test_an_update_answers_with_the_pass_it_caused(serve: Serve) -> None:
    world = World("update")
    world.hold = {"provision_project": (stop := Stop())}
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        answer = asyncio.create_task(flow.resync_now())
        await until_accepted(flow)
        world.find = waiting("found by the pass that it caused")
        stop.go_on()
        described = await answer
        assert [verdict.message for verdict in described.verdicts] == ["found by the pass that it caused"]
        assert world.count("provision_project") == 2
        assert described.next_look_seconds == 10
        assert not described.ready


async def until_accepted(flow: Flow) -> None:
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED

    async def seen() -> bool:
        return any(event.event_type == accepted for event in await flow.events())

    await until(seen)


@pytest.mark.row("T16")
async def test_an_update_is_answered_before_its_run_continues_as_new(serve: Serve) -> None:
    world = World("update-before-new")
    world.hold = {"provision_project": (stop := Stop())}
    async with serve(world) as flow:
        await exhaust(flow, stop)
        answer = asyncio.create_task(flow.resync_now())
        await until_accepted(flow)
        first = (await flow.handle.describe()).run_id
        world.find = waiting("found by the pass that it caused")
        stop.go_on()
        assert [verdict.message for verdict in (await answer).verdicts] == ["found by the pass that it caused"]
        await until_run_is_not(flow, first)


async def until_run_is_not(flow: Flow, run_id: str) -> None:
    async def other() -> bool:
        return (await flow.handle.describe()).run_id != run_id

    await until(other)


@pytest.mark.row("T16")
async def test_an_update_that_comes_while_a_run_continues_as_new_is_answered_by_the_next(serve: Serve) -> None:
    world, gate = World("update-in-between"), Gate(carries_on)
    world.hold = {"provision_project": (stop := Stop())}
    async with serve(world, gate) as flow:
        await exhaust(flow, stop)
        first = (await flow.handle.describe()).run_id
        gate.shut()
        stop.go_on()
        await gate.reached()
        world.find = waiting("found by a pass of the next run")
        answer = asyncio.create_task(flow.resync_now())
        await asyncio.sleep(0.5)  # it has reached the server, which cannot say so
        gate.open()
        described = await asyncio.wait_for(answer, 60)
        assert [verdict.message for verdict in described.verdicts] == ["found by a pass of the next run"]
        assert (await flow.handle.describe()).run_id != first


@pytest.mark.row("T16")
async def test_an_update_is_answered_when_the_order_goes_on_to_its_teardown(serve: Serve) -> None:
    world = World("update-then-teardown")
    world.hold = {"admit": (stop := Stop())}
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await stop.reached()
        answer = asyncio.create_task(flow.resync_now())
        await until_accepted(flow)
        stop.go_on()
        described = await asyncio.wait_for(answer, 60)
        assert "KeystoneProjectTeardown" in described.note
        assert not described.ready
        await flow.ended()


@pytest.mark.row("T16")
async def test_an_update_is_answered_when_the_run_ends(serve: Serve) -> None:
    world = World("update-at-the-end")
    world.vanish()
    world.hold = {"admit": (stop := Stop())}
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        answer = asyncio.create_task(flow.resync_now())
        await until_accepted(flow)
        stop.go_on()
        described = await asyncio.wait_for(answer, 60)
        assert not described.ready
        assert described.note
        await flow.ended()


@pytest.mark.row("T16")
async def test_an_update_of_a_teardown_is_answered(serve: Serve) -> None:
    world = World("update-of-teardown")
    world.remove = World.left("Project openstack/x to be gone")
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
        described = await flow.resync_now()
        assert described.phase == "being torn down"
        assert described.left == ("Project openstack/x to be gone",)

        world.hold = {"release": (stop := Stop())}
        world.remove = World.left()
        await flow.ring()
        await stop.reached()
        answer = asyncio.create_task(flow.resync_now())
        await until_two_accepted(flow)
        stop.go_on()
        await asyncio.wait_for(answer, 60)
        await flow.ended()


async def until_two_accepted(flow: Flow) -> None:
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED

    async def seen() -> bool:
        return sum(event.event_type == accepted for event in await flow.events()) == 2

    await until(seen)


@pytest.mark.row("T16")
async def test_an_update_is_answered_in_trouble_too(serve: Serve) -> None:
    """Also after a pass whose order had moved, which is no pass to answer with."""
    world = World("update-in-trouble")
    world.home.refuse["patch keystoneprojects"] = Conflict("patch", 409, "Conflict", "it has changed")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        world.home.refuse["get keystoneprojects"] = ClusterError("reading", 403, "Forbidden", "no right to read it")
        described = await asyncio.wait_for(flow.resync_now(), 60)
        assert "no right to read it" in described.note
        assert not described.ready


async def test_updates_without_end_do_not_keep_a_run_from_starting_anew(serve: Serve) -> None:
    """Ten at a time, each followed by the next, so that one is always accepted and unanswered."""
    world = World("update-storm")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        first = (await flow.handle.describe()).run_id
        over = asyncio.Event()

        async def ask() -> None:
            while not over.is_set():
                described = await flow.resync_now()
                assert described.ready

        askers = [asyncio.create_task(ask()) for _ in range(5)]
        try:
            await asyncio.wait_for(until_run_is_not(flow, first), 120)
        finally:
            over.set()
            await asyncio.gather(*askers)
        assert len(await flow.events(first)) < 2 * LONG_HISTORY + 100
