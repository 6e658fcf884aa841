"""Deletion: another workflow type under the same id, and back, with no late write between the two."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.common import RetryPolicy

from activities import pen as pens
from activities.cluster import KEYSTONE_PROJECT, Cluster
from activities.errors import ClusterError, StepExpired
from activities.pen import Pen
from tests.flows.conftest import Serve
from tests.flows.flow import Flow, until
from tests.flows.world import Stop, World
from tests.upgrades.releases import UnguardedTeardown
from workflows.api.controlplane import PAUSED
from workflows.keystoneproject import children, reasons
from workflows.keystoneproject.workflow import KeystoneProject
from workflows.scaffold import search, steps
from workflows.scaffold.carry import Carry
from workflows.scaffold.steps import Removal, Task
from workflows.scaffold.verdict import Outcome, Verdict

LEFT = "Project openstack/x to be gone"


async def type_of(flow: Flow) -> str:
    return (await flow.handle.describe()).workflow_type


async def test_a_deletion_goes_on_under_the_same_id_and_ends_with_the_finalizer(serve: Serve) -> None:
    world = World("deleted")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.remove = World.left(LEFT)
        world.delete()
        await flow.ring()
        look = await flow.settled()
        assert await type_of(flow) == "KeystoneProjectTeardown"
        assert look.last_failure.message == f"{LEFT} (next look in 10 s)"
        assert world.condition("Ready")["message"] == f"Deletion waits for {LEFT}"
        assert world.condition("ProjectReady")["status"] == "True", "what no step says is kept"
        attributes = (await flow.handle.describe()).typed_search_attributes
        assert (attributes.get(search.READY), attributes.get(search.REASON)) == ("False", "Deleting")
        assert attributes.get(search.NAMESPACE) == "team-a"
        assert f"- waits for {LEFT}" in await flow.details()
        events = len(await flow.events())
        await flow.pass_time(minutes=1)
        assert len(await flow.events()) == events, "waiting for a deletion costs no history either"

        world.remove = Removal()
        await flow.pass_time(seconds=15)
        await flow.ended()
        assert world.live is None
        assert world.calls[-1] == "release"
        assert world.count("provision_project") == 1


async def test_an_order_that_went_while_its_finalizer_was_written_leaves_nothing(serve: Serve) -> None:
    """The API server deletes at once what had no finalizer when it was asked, though one was written meanwhile."""
    world = World("raced")
    world.order(finalized=False)

    async def provision(_: Task) -> Outcome:
        world.vanish()
        return world.provisioned().outcome

    seen: list[Task] = []

    async def take_down(task: Task) -> Removal:
        seen.append(task)
        return World.left(LEFT) if len(seen) == 1 else Removal()

    world.provision, world.take_down = provision, take_down
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: bool(seen))
        look = await flow.settled()
        assert await type_of(flow) == "KeystoneProjectTeardown"
        assert look.last_failure.message == f"{LEFT} (next look in 10 s)"
        await flow.pass_time(seconds=15)
        await flow.ended()
        assert [(task.gone, task.order.uid) for task in seen] == [(True, "uid-1")] * 2
        assert "release" not in world.calls


async def test_an_order_that_was_reported_on_and_lost_its_finalizer_is_let_go(serve: Serve) -> None:
    """Whoever takes a finalizer off by hand means it."""
    world = World("let-go")
    world.order(finalized=False)
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert world.condition("Ready")["status"] == "True"
        world.vanish()
        await flow.ring()
        await flow.ended()
        assert world.count("remove_project") == 0


async def test_one_that_comes_after_an_order_that_went_so_keeps_its_children(serve: Serve) -> None:
    world = World("raced-and-replaced")
    world.order(finalized=False)

    async def provision(_: Task) -> Outcome:
        if world.count("admit") == 1:
            world.vanish()
        return world.provisioned().outcome

    async def take_down(_: Task) -> Removal:
        world.order(uid="uid-2")
        return World.left(LEFT)

    world.provision, world.take_down = provision, take_down
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.count("remove_project") == 1)
        await flow.pass_time(seconds=15)
        await flow.idle(1)
        assert await type_of(flow) == "KeystoneProject"
        assert world.condition("Ready")["status"] == "True"
        world.vanish()  # by now its finalizer has been seen: who takes that off by hand means it
        await flow.ring()
        await flow.ended()
        assert world.count("remove_project") == 1


async def test_other_finalizers_stay_and_the_teardown_is_not_done_twice(serve: Serve) -> None:
    world = World("held-by-others")
    world.touch(finalizers=["example.org/hold", children.FINALIZER, "example.org/other"])
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.ended()
        assert world.live is not None
        assert world.live["metadata"]["finalizers"] == ["example.org/hold", "example.org/other"]
        await flow.ring()
        await flow.ended()
        assert world.count("remove_project") == 1
        assert world.live["metadata"]["finalizers"] == ["example.org/hold", "example.org/other"]


async def test_what_refers_to_the_order_holds_its_deletion_and_is_looked_at_every_minute(serve: Serve) -> None:
    world = World("referred-to")
    reason = reasons.REFERENCED_BY_ASSIGNMENTS
    held = Verdict(type=reasons.PROJECT_READY, status=False, reason=reason, message="Deletion waits: 'a'", again=60)
    world.remove = Removal(held=(held,))
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
        assert world.condition("ProjectReady")["reason"] == "ReferencedByRoleAssignments"
        await flow.pass_time(minutes=3, seconds=10)
        assert world.looks == 3
        assert world.count("remove_project") == 1
        world.remove = Removal()
        await flow.pass_time(seconds=70)
        await flow.ended()
        assert world.live is None


@pytest.mark.parametrize("what", ["order", "plane"])
async def test_the_deletion_of_a_paused_order_waits_and_says_so(serve: Serve, what: str) -> None:
    world = World(f"paused-{what}")
    if what == "order":
        world.touch(annotations={PAUSED: "true"})
    else:
        world.plane(annotations={PAUSED: "true"})
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
        assert world.condition("Ready")["message"].startswith("Deletion waits: ")
        assert PAUSED in world.condition("Ready")["message"]
        await flow.pass_time(minutes=2)
        assert world.count("remove_project") == 0
        world.touch(annotations={})
        world.plane()
        await flow.pass_time(seconds=70)
        await flow.ended()
        assert world.live is None


async def test_an_order_that_was_never_ours_is_gone_without_a_step(serve: Serve) -> None:
    world = World("never-ours")
    world.order(finalized=False)
    async with serve(world) as flow:
        world.delete()
        await flow.ring()
        await flow.ended()
        assert world.calls == ["admit"]


async def test_trouble_holds_the_finalizer_and_is_told(serve: Serve) -> None:
    world = World("troubled-deletion")
    world.remove = ClusterError("deleting Project", 403, "Forbidden", "no right to delete it")
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
        assert "no right to delete it" in world.condition("Ready")["message"]
        assert world.live is not None
        assert children.FINALIZER in world.live["metadata"]["finalizers"]
        world.remove = Removal()
        await flow.pass_time(seconds=15)
        await flow.ended()
        assert world.live is None


async def test_an_unreadable_plane_is_not_a_gone_one(serve: Serve) -> None:
    world = World("unreadable-plane-deletion")
    world.management.refuse["get controlplanes"] = ClusterError("reading", 403, "Forbidden", "no")
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
        assert world.count("remove_project") == 0
        assert world.count("release") == 0


async def test_a_re_created_order_is_served_by_the_same_id(serve: Serve) -> None:
    world = World("re-created")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.delete()
        await flow.ring()
        await flow.ended()
        world.order(uid="uid-2", finalized=False)
        await flow.ring()
        await until(lambda: world.condition("Ready").get("status") == "True")
        assert await type_of(flow) == "KeystoneProject"
        assert world.live is not None
        assert world.live["metadata"]["uid"] == "uid-2"


async def test_a_run_goes_on_with_an_order_that_was_replaced_unseen(serve: Serve) -> None:
    world = World("replaced")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        first = (await flow.handle.describe()).run_id
        world.order(uid="uid-2", finalized=False)
        await flow.ring()
        await flow.idle(2)
        assert world.condition("Ready")["status"] == "True"
        assert (await flow.handle.describe()).run_id == first


async def test_a_teardown_re_enters_provisioning_for_a_re_created_order(serve: Serve) -> None:
    world = World("replaced-in-teardown")
    world.remove = World.left(LEFT)
    async with serve(world) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
        assert await type_of(flow) == "KeystoneProjectTeardown"
        world.order(uid="uid-2", finalized=False)
        await flow.pass_time(seconds=15)
        await until(lambda: world.condition("Ready").get("status") == "True")
        assert await type_of(flow) == "KeystoneProject"
        assert world.count("release") == 0


START_TO_CLOSE, DEADLINE = 2.0, 10.0


@pytest.fixture
def quick_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step times out sooner than it stops writing: what a stalled worker looks like to everybody else."""
    monkeypatch.setattr(steps, "START_TO_CLOSE", timedelta(seconds=START_TO_CLOSE))
    monkeypatch.setattr(steps, "STEP_DEADLINE", timedelta(seconds=DEADLINE))
    monkeypatch.setattr(steps, "RETRY", RetryPolicy(maximum_attempts=1))
    monkeypatch.setattr(pens, "STEP_DEADLINE", timedelta(seconds=DEADLINE))


class Late:
    """A provisioning that stalls between its look at the order and its write of a child."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stalled = Stop()
        self.children: set[str] = set()
        self.wrote = False
        self.expired = False
        world.provision, world.take_down = self.provision, self.take_down

    async def provision(self, task: Task) -> Outcome:
        home: Cluster = self.world.home  # type: ignore[assignment]
        uid = task.order.uid
        pen = Pen(home, KEYSTONE_PROJECT, task.ref, uid, deleting=False, begun=time.monotonic())
        await pen.lift()
        await _through_cancellation(self.stalled)
        try:
            await pen.lift()
        except StepExpired:
            self.expired = True
            raise
        self.children.add("project")
        self.wrote = True
        return self.world.provisioned().outcome

    async def take_down(self, task: Task) -> Removal:
        self.children.clear()
        return Removal()


async def _through_cancellation(stalled: Stop) -> None:
    """A process that stands still does not hear either that its step is cancelled."""
    waiting = asyncio.ensure_future(stalled())
    while not waiting.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(waiting)


@pytest.mark.row("T14")
async def test_teardown_outwaits_a_step_that_may_still_write(serve: Serve, quick_limits: None) -> None:
    world = World("late-write")
    late = Late(world)
    async with serve(world) as flow:
        await flow.ring()
        await late.stalled.reached()
        begun = time.monotonic()
        world.delete()
        await flow.ring()
        await until_timed_out(flow)
        assert time.monotonic() - begun < DEADLINE - 1, "too slow a machine to write late and yet in time"
        late.stalled.go_on()
        await until(lambda: late.wrote)
        assert world.count("remove_project") == 0, "the last look is still to come"
        await flow.ended()
        assert late.children == set()
        assert world.live is None
        timers = [event.user_metadata for event in await flow.events() if event.event_type == _TIMER]
        assert len(timers) == 1
        assert b"timed out" in timers[0].summary.data


_TIMER = EventType.EVENT_TYPE_TIMER_STARTED


async def until_timed_out(flow: Flow) -> None:
    """Until the server has given the step up; the run may have gone on to its teardown by then."""

    async def timed_out() -> bool:
        histories = await flow.runs()
        kinds = [event.event_type for events in histories for event in events]
        return EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT in kinds

    await until(timed_out)


@pytest.mark.row("T14")
async def test_a_step_that_wakes_after_its_deadline_writes_nothing(serve: Serve, quick_limits: None) -> None:
    world = World("too-late-write")
    late = Late(world)
    async with serve(world) as flow:
        await flow.ring()
        await late.stalled.reached()
        world.delete()
        await flow.ring()
        await flow.ended()
        assert world.live is None
        late.stalled.go_on()
        await until(lambda: late.expired)
        assert not late.wrote
        assert late.children == set()


async def waits_for_late_writes(flow: Flow) -> None:
    """Until the teardown waits, before it has looked at anything."""

    async def waits() -> bool:
        kinds = [event.event_type for event in await flow.events()]
        return await type_of(flow) == "KeystoneProjectTeardown" and _TIMER in kinds

    await until(waits)


@pytest.mark.row("T14")
@pytest.mark.parametrize("how", ["terminated", "cancelled"])
async def test_a_teardown_outwaits_the_step_of_a_run_that_somebody_ended(serve: Serve, how: str) -> None:
    """The server has given that step up; it is alive all the same, and may have lifted its pen a moment ago. (A run
    that is cancelled in a step goes on, without it.)"""
    world = World(f"ended-{how}")
    late = Late(world)
    async with serve(world) as flow:
        await flow.ring()
        await late.stalled.reached()
        await (flow.handle.terminate() if how == "terminated" else flow.handle.cancel())
        world.delete()
        await flow.ring()
        await waits_for_late_writes(flow)
        late.stalled.go_on()
        await until(lambda: late.wrote)
        await flow.pass_time(seconds=steps.START_TO_CLOSE.total_seconds() - 5)
        assert world.count("remove_project") == 0, "its last write may last as long as that"
        await flow.pass_time(seconds=10)
        await flow.ended()
        assert late.children == set()
        assert world.live is None


@pytest.mark.row("T06", "T14")
async def test_a_teardown_that_comes_back_outwaits_its_own_steps(serve: Serve) -> None:
    """It failed because its history does not fit the code any more, which no step of it hears either."""
    world = World("reborn-in-teardown")
    world.remove = World.left(LEFT)
    async with serve(world, workflows=(KeystoneProject, UnguardedTeardown)) as flow:
        world.delete()
        await flow.ring(carry=Carry())
        await flow.settled()
    removals = world.count("remove_project")
    async with serve(world, after=flow) as flow:
        world.remove = Removal()
        await flow.ring()
        await waits_for_late_writes(flow)
        assert (await flow.events())[0].workflow_execution_started_event_attributes.attempt == 2
        await asyncio.sleep(1)
        assert world.count("remove_project") == removals
        await flow.pass_time(seconds=30)
        await flow.ended()
        assert world.live is None


async def test_no_step_that_timed_out_is_no_wait(serve: Serve) -> None:
    world = World("no-wait")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.delete()
        await flow.ring()
        await asyncio.wait_for(flow.ended(), 30)
        assert not [event for event in await flow.events() if event.event_type == _TIMER]
