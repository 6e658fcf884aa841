"""The workflow of a KeystoneService: two blocks side by side, what each may do to the other, and rotation."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from activities.errors import ClusterError, Conflict, Moved
from tests.flows.conftest import Serve
from tests.flows.flow import Flow, until
from tests.flows.services import ServiceWorld, provisioned, waits
from tests.flows.world import Stop, World
from workflows.api.controlplane import PAUSED
from workflows.keystoneservice import reasons
from workflows.keystoneservice.workflow import Rotated
from workflows.scaffold import steps
from workflows.scaffold.run import MANY_RINGS

FORBIDDEN = ClusterError("applying User", 403, "Forbidden", "no right")
HELD = waits(reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT)


async def rotate(flow: Flow) -> Rotated:
    answer: Rotated = await flow.handle.execute_update("rotate", result_type=Rotated)
    return answer


async def refused(flow: Flow) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await rotate(flow)
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause.message


def steps_since(world: World, mark: int = 0) -> list[str]:
    return [call for call in world.calls[mark:] if call != "settle"]


# -- a pass -----------------------------------------------------------------------------------------------------


@pytest.mark.row("S20")
async def test_the_blocks_are_provisioned_side_by_side_and_reported_in_one_write(serve: Serve) -> None:
    world = ServiceWorld("side-by-side")
    catalog, account = Stop(), Stop()
    world.hold = {"provision_catalog": catalog, "provision_account": account}
    async with serve(world) as flow:
        await flow.ring()
        await asyncio.gather(catalog.reached(), account.reached())
        assert world.running == {"provision_catalog", "provision_account"}
        catalog.go_on()
        account.go_on()
        await flow.idle(1)
        assert world.count("report") == 1
        assert world.reasons == (reasons.CATALOG_REGISTERED, reasons.ACCOUNT_PROVISIONED)
        assert world.condition("Ready")["status"] == "True"
        assert (world.live or {})["status"]["account"] == {"secretName": "x-credentials", "passwordGeneration": 1}


@pytest.mark.row("S20", "C11")
async def test_an_error_of_one_block_is_its_own_and_the_other_reports(serve: Serve) -> None:
    world = ServiceWorld("one-fails")
    world.catalog = ClusterError("applying Service", 403, "Forbidden", "no right")
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.reasons == (reasons.CATALOG_ERROR, reasons.ACCOUNT_PROVISIONED))
        assert "applying Service: 403 Forbidden: no right" in world.condition(reasons.CATALOG_READY)["message"]
        assert world.condition("Ready")["status"] == "False"
        assert (world.live or {})["status"]["account"]["passwordGeneration"] == 1
        # A whole pass follows by itself, after a pause.
        await flow.settled()
        world.catalog = ServiceWorld("x").catalog
        await flow.pass_time(seconds=11)
        await until(lambda: world.condition("Ready")["status"] == "True")


@pytest.mark.row("S20", "S27")
async def test_an_error_of_publishing_keeps_what_is_known_of_the_account(serve: Serve) -> None:
    world = ServiceWorld("publish-fails")
    world.generation, world.published = 3, FORBIDDEN
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.reasons == (reasons.CATALOG_REGISTERED, reasons.ACCOUNT_ERROR))
        assert (world.live or {})["status"]["account"]["passwordGeneration"] == 3


async def test_a_clearing_that_is_refused_reads_as_such(serve: Serve) -> None:
    world = ServiceWorld("retry-refused")
    world.account = ClusterError("patching", 403, steps.TRANSPORT_RETRY_FAILED, "no right")
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.reasons == (reasons.CATALOG_REGISTERED, steps.TRANSPORT_RETRY_FAILED))


@pytest.mark.row("S20")
@pytest.mark.parametrize("which", ["catalog", "account"])
async def test_an_order_that_moves_under_one_block_begins_anew_once_the_other_is_done(serve: Serve, which: str) -> None:
    world = ServiceWorld(f"moved-{which}")
    other = "account" if which == "catalog" else "catalog"
    world.hold = {f"provision_{other}": (stop := Stop())}
    setattr(world, which, Moved("it is being deleted"))
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        await until(lambda: world.count(f"provision_{which}") == 1 and f"provision_{which}" not in world.running)
        setattr(world, which, getattr(ServiceWorld("x"), which))
        await asyncio.sleep(0.5)
        assert world.count("admit") == 1, "no pass begins while a step of the last one runs"
        stop.go_on()
        await until(lambda: world.condition("Ready").get("status") == "True")
        assert world.count("admit") == 2


async def test_a_status_that_was_written_meanwhile_begins_another_pass(serve: Serve) -> None:
    world = ServiceWorld("report-conflicts")
    world.home.refuse["patch keystoneservices"] = Conflict("patch", 409, "Conflict", "it has changed")
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.count("report") > 1)
        world.home.refuse.clear()
        await until(lambda: world.condition("Ready").get("status") == "True")


@pytest.mark.row("S26", "A19")
async def test_nothing_is_published_before_the_user_can_log_in(serve: Serve) -> None:
    world = ServiceWorld("no-publish")
    world.account = HELD
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.count("publish_account") == 0
        assert world.reasons == (reasons.CATALOG_REGISTERED, reasons.WAITING_FOR_ACCOUNT)
        world.account, world.published = provisioned("A user is there."), waits(
            reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT, "for OpenBao"
        )  # fmt: skip
        await flow.resync_now()
        assert world.condition(reasons.ACCOUNT_READY)["message"] == "for OpenBao"
        # What publishes works on what the step before it has found.
        (known,) = [task for name, task in world.tasks if name == "publish_account"]
        assert known.order.status["account"]["passwordGeneration"] == 1
        world.published = provisioned()
        await flow.resync_now()
        assert world.condition("Ready")["status"] == "True"


# -- blocks that are not declared -------------------------------------------------------------------------------


@pytest.mark.row("S03", "S22")
async def test_an_undeclared_block_is_looked_at_by_every_pass(serve: Serve) -> None:
    """A child of it may come back out of a backup, and a step that is left out would not see it."""
    world = ServiceWorld("catalog-only", "catalog")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert world.count("provision_account") == 1
        assert world.count("publish_account") == 0
        assert world.reasons == (reasons.CATALOG_REGISTERED, reasons.ACCOUNT_NOT_DECLARED)
        assert "account" not in (world.live or {})["status"]
        await flow.ring()
        await flow.idle(2)
        assert world.count("provision_account") == 2
        # A pass that finds all at rest is its admit alone, which has looked at it as well.
        world.at_rest = True
        await flow.ring()
        await flow.idle(3)
        assert world.count("provision_account") == 2
        world.at_rest = False
        world.declare("catalog", "account")
        await flow.ring()
        await flow.idle(4)
        assert (world.live or {})["status"]["account"]["passwordGeneration"] == 1
        before = world.count("provision_account")
        world.declare("catalog")
        await flow.resync_now()
        assert world.count("provision_account") > before
        assert "account" not in (world.live or {})["status"]


@pytest.mark.row("S07", "S13")
async def test_a_block_that_was_taken_out_behind_a_gate_is_swept_when_the_gate_opens(serve: Serve) -> None:
    world = ServiceWorld("frozen-edit")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.plane(assigned=False)
        world.declare("catalog")
        await flow.ring()
        await until(lambda: world.reasons == (reasons.NAMESPACE_NOT_ALLOWED, reasons.ACCOUNT_NOT_DECLARED))
        await flow.settled()
        assert world.count("provision_account") == 1
        world.plane()
        await flow.ring()
        await until(lambda: world.condition("Ready")["status"] == "True")
        assert world.count("provision_account") == 2


@pytest.mark.row("S13")
async def test_trouble_says_nothing_of_an_order_that_it_could_not_look_at(serve: Serve) -> None:
    """What was found of the order as it was before must not read as found of the order as it is now."""
    world = ServiceWorld("trouble-after-edit")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.declare("catalog")
        world.management.refuse["get controlplanes"] = ClusterError(
            "reading ControlPlane", 403, "Forbidden", "no right"
        )
        await flow.ring()
        await until(lambda: "no right" in world.condition("Ready").get("message", ""))
        assert world.condition(reasons.ACCOUNT_READY)["observedGeneration"] == 1
        assert (await flow.describe()).verdicts, "they are known still"
        world.management.refuse.clear()
        await flow.resync()
        await until(lambda: world.condition("Ready")["status"] == "True")
        assert [name for name, _ in world.tasks].count("provision_account") == 2, "the removed block was swept"


@pytest.mark.row("S07", "S05")
async def test_a_frozen_order_keeps_its_status_and_runs_no_step(serve: Serve) -> None:
    world = ServiceWorld("frozen")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        before, mark = (world.live or {})["status"], len(world.calls)
        world.plane(assigned=False)
        await flow.ring()
        await until(lambda: world.reasons == (reasons.NAMESPACE_NOT_ALLOWED,) * 2)
        assert {"provision_catalog", "provision_account", "publish_account"} & set(steps_since(world, mark)) == set()
        after = (world.live or {})["status"]
        assert (after["catalog"], after["account"]) == (before["catalog"], before["account"])


@pytest.mark.row("S22")
async def test_a_pass_over_an_order_at_rest_is_one_step_and_no_write(serve: Serve) -> None:
    world = ServiceWorld("at-rest")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.at_rest = True
        writes, mark = list(world.management.writes), len(world.calls)
        await flow.ring()
        await flow.idle(2)
        assert steps_since(world, mark) == ["admit"]
        assert world.management.writes == writes


@pytest.mark.row("T02")
async def test_resync_now_answers_both_blocks(serve: Serve) -> None:
    world = ServiceWorld("resync")
    world.account = HELD
    async with serve(world) as flow:
        await flow.ring()
        found = await flow.resync_now()
        assert [(v.type, v.reason) for v in found.verdicts] == [
            (reasons.CATALOG_READY, reasons.CATALOG_REGISTERED),
            (reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT),
        ]
        assert not found.ready
        assert "AccountReady" in await flow.details()


@pytest.mark.row("P16")
async def test_a_paused_order_is_reported_on_with_the_reason(serve: Serve) -> None:
    world = ServiceWorld("paused")
    world.account = HELD
    async with serve(world) as flow:
        world.touch(annotations={PAUSED: "true"})
        await flow.ring()
        await until(lambda: PAUSED in world.condition("Ready").get("message", ""))
        assert world.reasons == (reasons.CATALOG_REGISTERED, reasons.WAITING_FOR_ACCOUNT)
        world.touch(annotations={})
        world.account = provisioned("A user is there.")
        await flow.ring()
        await until(lambda: world.condition("Ready")["status"] == "True")


# -- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.row("T11", "S18")
async def test_a_deleted_order_goes_on_as_its_teardown_under_the_same_id(serve: Serve) -> None:
    world = ServiceWorld("teardown")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.remove = World.left("User openstack/x to be gone")
        world.delete()
        await flow.ring()
        await until(lambda: "User openstack/x to be gone" in world.condition("Ready").get("message", ""))
        described = await flow.describe()
        assert described.phase == "being torn down"
        started = (await flow.events())[0].workflow_execution_started_event_attributes
        assert started.workflow_type.name == "KeystoneServiceTeardown"
        assert (world.live or {})["metadata"]["finalizers"], "held while something is left"
        world.remove = World.left()
        await flow.ring()
        await flow.ended()
        assert world.live is None


@pytest.mark.row("S18")
async def test_an_order_without_our_finalizer_is_left_alone(serve: Serve) -> None:
    world = ServiceWorld("foreign")
    world.touch(finalizers=["example.org/hold"], deletionTimestamp="2026-01-01T00:00:00Z")
    async with serve(world) as flow:
        await flow.ring()
        await flow.ended()
        assert world.management.writes == []
        assert steps_since(world) == ["admit"]


@pytest.mark.row("P16")
async def test_the_deletion_of_a_paused_order_waits_and_says_so(serve: Serve) -> None:
    world = ServiceWorld("paused-deletion")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.touch(annotations={PAUSED: "true"})
        world.delete()
        await flow.ring()
        await until(lambda: world.condition("Ready").get("message", "").startswith("Deletion waits"))
        assert world.count("remove_registration") == 0
        world.touch(annotations={})
        await flow.ring()
        await flow.ended()
        assert world.live is None


@pytest.mark.row("T14")
async def test_a_step_that_timed_out_outlives_no_teardown(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The teardown waits until it cannot write any more, though the other block's step is long done."""
    monkeypatch.setattr(steps, "START_TO_CLOSE", timedelta(seconds=2))
    monkeypatch.setattr(steps, "STEP_DEADLINE", timedelta(seconds=3))
    monkeypatch.setattr(steps, "RETRY", RetryPolicy(maximum_attempts=1))
    world = ServiceWorld("late-step")
    world.hold = {"provision_account": (stop := Stop())}
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        world.delete()
        await flow.ring()
        await flow.ended()
        stop.go_on()
        assert world.count("remove_registration") == 1
        timers = [event for event in await flow.events() if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED]
        assert len(timers) == 1
        assert b"timed out" in timers[0].user_metadata.summary.data


# -- rotation ---------------------------------------------------------------------------------------------------


@pytest.mark.row("T16", "A12")
async def test_rotate_answers_the_new_generation_and_that_it_is_delivered(serve: Serve) -> None:
    world = ServiceWorld("rotate")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.at_rest = True  # the nudge makes a look find something to do, and so it does here
        world.hold = {"nudge_account": _unrest(world)}
        assert await rotate(flow) == Rotated(generation=2, delivered=True)
        assert world.generation == 2
        assert (world.live or {})["status"]["account"]["passwordGeneration"] == 2


def _unrest(world: ServiceWorld) -> Any:
    async def hook() -> None:
        world.at_rest = False

    return hook


@pytest.mark.row("T16", "A19")
async def test_rotate_answers_what_it_waits_on(serve: Serve) -> None:
    world = ServiceWorld("rotate-waits")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.published = waits(reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT, "for OpenBao")
        found = await rotate(flow)
        assert (found.generation, found.delivered) == (2, False)
        assert found.waits_on == "WaitingForServiceAccounts: for OpenBao"
        # Asked again before it is there: another generation, as by hand.
        assert (await rotate(flow)).generation == 3


@pytest.mark.row("A13")
async def test_rotations_that_come_together_are_one_generation(serve: Serve) -> None:
    world = ServiceWorld("rotate-twice")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.hold = {"provision_catalog": (stop := Stop())}
        await flow.ring()
        await stop.reached()
        asked = [asyncio.create_task(rotate(flow)) for _ in range(2)]
        await until(lambda: world.count("nudge_account") == 2)
        world.hold = {}
        stop.go_on()
        assert [each.generation for each in await asyncio.gather(*asked)] == [2, 2]
        assert world.generation == 2


@pytest.mark.row("P16")
async def test_rotate_is_refused_with_the_reason(serve: Serve) -> None:
    world = ServiceWorld("rotate-refused", "catalog")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert "declares no account" in await refused(flow)
        world.generation = 0
        world.declare("catalog", "account")
        world.account = HELD
        await flow.resync_now()
        assert "no user yet" in await refused(flow)
        world.generation, world.account = 1, provisioned("A user is there.")
        world.touch(annotations={PAUSED: "true"})
        await flow.resync_now()
        assert PAUSED in await refused(flow)
        # A frozen order is not written to, however it is asked.
        world.touch(annotations={})
        world.plane(assigned=False)
        await flow.resync_now()
        assert reasons.NAMESPACE_NOT_ALLOWED in await refused(flow)
        assert world.count("nudge_account") == 0
        world.plane()
        await flow.resync_now()
        world.nudge = ClusterError("patching User", 403, "Forbidden", "no right")
        assert "no right" in await refused(flow)
        world.nudge = None
        assert (await rotate(flow)).generation == 2


@pytest.mark.row("T16")
async def test_a_rotation_that_comes_with_the_run_waits_for_its_first_pass(serve: Serve) -> None:
    """A new run knows nothing of the account yet; that is no reason to turn anybody away."""
    world = ServiceWorld("rotate-first")
    world.hold = {"admit": (stop := Stop())}
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        asked = asyncio.create_task(rotate(flow))
        await asyncio.sleep(1)
        assert not asked.done()
        stop.go_on()
        assert await asked == Rotated(generation=2, delivered=True)
    bare = ServiceWorld("rotate-first-in-vain", "catalog")
    bare.hold = {"admit": (stop := Stop())}
    async with serve(bare) as flow:
        await flow.ring()
        await stop.reached()
        turned_away = asyncio.create_task(refused(flow))
        await asyncio.sleep(0.5)
        stop.go_on()
        assert "declares no account" in await turned_away


@pytest.mark.row("T16")
async def test_a_rotation_is_answered_across_continue_as_new(serve: Serve) -> None:
    """So many rings that the run begins anew: not before the rotation has heard of its own pass."""
    world = ServiceWorld("rotate-anew")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        first = (await flow.handle.describe()).run_id
        world.hold = {"nudge_account": (nudging := Stop())}
        asked = asyncio.create_task(rotate(flow))
        await nudging.reached()
        for _ in range(10):
            await asyncio.gather(*(flow.ring() for _ in range(MANY_RINGS // 10 + 1)))
        world.hold = {}
        nudging.go_on()
        assert await asked == Rotated(generation=2, delivered=True)

        async def anew() -> bool:
            return bool((await flow.handle.describe()).run_id != first)

        await until(anew)
        assert (await rotate(flow)).generation == 3


@pytest.mark.row("T16")
async def test_a_rotation_is_answered_when_the_order_is_torn_down(serve: Serve) -> None:
    world = ServiceWorld("rotate-deleted")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.hold = {"nudge_account": (nudging := Stop())}
        asked = asyncio.create_task(rotate(flow))
        await nudging.reached()
        world.remove = World.left("User openstack/x to be gone")
        world.delete()
        await flow.ring()
        await until(lambda: world.count("admit") == 2)
        nudging.go_on()
        answer = await asked
        assert not answer.delivered
        assert answer.waits_on
        await until(lambda: world.count("remove_registration") > 0)
        with pytest.raises(WorkflowUpdateFailedError):
            await rotate(flow)


# -- what Temporal keeps ----------------------------------------------------------------------------------------


@pytest.mark.row("T07")
async def test_a_task_in_the_history_carries_names_and_no_more(serve: Serve) -> None:
    """Whatever a step is given and answers is in the history for ever."""
    world = ServiceWorld("history")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        await rotate(flow)
        text = "".join(str(event) for event in await flow.events())
        assert "mmmm" not in text, "a plane travels without what no step reads"
        for word in ("password:", "clouds:"):
            assert word not in text.lower()
