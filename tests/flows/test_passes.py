"""A pass: what it costs, what it says, and to whom."""

from __future__ import annotations

import re

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType

from activities.errors import ClusterError
from tests.flows.conftest import Serve
from tests.flows.flow import until
from tests.flows.world import Stop, World, waiting
from workflows.api.controlplane import PAUSED
from workflows.keystoneproject import children, reasons
from workflows.scaffold import search, steps
from workflows.scaffold.steps import Task
from workflows.scaffold.verdict import Decision, Outcome, Verdict


async def test_a_new_order_becomes_ready_in_one_step(serve: Serve) -> None:
    world = World("one-pass")
    world.order(finalized=False)
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert world.calls == ["admit"]
        assert world.home.writes == ["update keystoneprojects", "patch keystoneprojects"]
        assert world.live is not None
        assert world.live["metadata"]["finalizers"] == [children.FINALIZER]
        assert world.live["status"] == {
            "observedGeneration": 1,
            "projectID": "id-1",
            "projectName": "one-pass",
            "domainName": "Default",
            "conditions": world.live["status"]["conditions"],
        }
        said = {each["type"]: (each["status"], each["reason"]) for each in world.live["status"]["conditions"]}
        assert said == {"ProjectReady": ("True", "ProjectProvisioned"), "Ready": ("True", "AllReady")}
        assert len(await flow.events()) <= 12


async def test_what_fails_in_the_admission_of_a_new_order_is_left_to_its_step(serve: Serve) -> None:
    world = World("left-to-steps")
    world.order(finalized=False)

    async def provision(task: Task) -> Outcome:
        if activity.info().activity_type == "admit":
            raise ClusterError("creating Project", 503, "Unavailable", "for a moment")
        return world.provisioned().outcome

    world.provision = provision
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert world.calls == ["admit", "provision_project", "report"]
        assert world.condition("Ready")["status"] == "True"


async def test_a_new_order_that_moved_before_its_report_is_read_again(serve: Serve) -> None:
    world = World("moved-in-admit")
    world.order(finalized=False)

    async def provision(task: Task) -> Outcome:
        if world.count("admit") == 1:
            world.touch(generation=2)
        return world.provisioned().outcome

    world.provision = provision
    async with serve(world) as flow:
        await flow.ring()
        await until(lambda: world.condition("Ready").get("observedGeneration") == 2)
        assert [call for call in world.calls if call != "settle"][:3] == ["admit", "report", "admit"]


async def test_a_pass_that_changes_nothing_costs_at_most_16_events(serve: Serve) -> None:
    world = World("no-change")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        before = len(await flow.events())
        await flow.ring()
        await flow.idle(2)
        assert len(await flow.events()) - before <= 16
        assert world.count("report") == 1, "an equal status is not written again"


async def test_an_order_that_is_ready_and_stays_so_is_a_pass_of_one_step(serve: Serve) -> None:
    world = World("at-rest-still")
    world.at_rest = True
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        before = len(await flow.events())
        await flow.ring()
        await flow.idle(2)
        assert world.calls == ["admit", "provision_project", "report", "admit"]
        assert len(await flow.events()) - before <= 10


async def test_a_status_that_somebody_wiped_is_written_again(serve: Serve) -> None:
    world = World("wiped")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.order()
        assert world.condition("Ready") == {}
        await flow.ring()
        await flow.idle(2)
        assert world.condition("Ready")["status"] == "True"


async def test_a_converged_order_at_home_waits_for_a_ring_alone(serve: Serve) -> None:
    world = World("at-rest")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        events, reads = len(await flow.events()), dict(world.management.reads)
        await flow.pass_time(hours=24)
        assert len(await flow.events()) == events
        assert world.management.reads == reads
        assert (await flow.describe()).next_look_seconds is None


async def test_search_attributes_and_details_say_what_an_order_waits_for(serve: Serve) -> None:
    world = World("searched", cluster="edge-1")
    world.find = waiting("K-ORC is creating it")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        attributes = (await flow.handle.describe()).typed_search_attributes
        assert {key.name: attributes.get(key) for key in search.ALL} == {
            "OrderKind": "KeystoneProject",
            "OrderNamespace": "team-a",
            "OrderCluster": "edge-1",
            "ControlPlane": "openstack/cp",
            "OrderReady": "False",
            "OrderReason": "WaitingForProject",
        }
        details = await flow.details()
        assert "`team-a/searched` is serving" in details
        assert "- **ProjectReady** False `WaitingForProject`: K-ORC is creating it" in details
        assert "next look in 10 s" in details

        world.find = world.provisioned()
        await flow.resync_now()
        attributes = (await flow.handle.describe()).typed_search_attributes
        assert (attributes.get(search.READY), attributes.get(search.REASON)) == ("True", "AllReady")
        assert "- **ProjectReady** True `ProjectProvisioned`" in await flow.details()
        upserts = [e for e in await flow.events() if e.event_type == _UPSERTED]
        assert len(upserts) == 2, "an event only when a value changed"


_UPSERTED = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES


async def test_texts_of_any_length_and_script_are_taken_by_the_server(serve: Serve) -> None:
    """Names that nothing bounds, in letters of several bytes, must not make the server refuse what a pass asks for."""
    world = World("long")
    world.order(plane="ü" * 3000)
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.condition("ProjectReady")["reason"] == "ControlPlaneNotFound"
        world.order()
        world.find = waiting("€" * 20000)
        await flow.ring()
        await until(lambda: world.condition("ProjectReady").get("reason") == "WaitingForProject")
        assert len(world.condition("ProjectReady")["message"].encode()) <= 32768
        await flow.settled()


async def test_a_paused_order_is_only_reported(serve: Serve) -> None:
    world = World("paused")
    world.order(finalized=False, annotations={PAUSED: "true"})
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.home.writes == ["patch keystoneprojects"], "its status alone"
        assert world.condition("ProjectReady")["status"] == "True"
        assert world.condition("Ready")["status"] == "False"
        assert PAUSED in world.condition("Ready")["message"]
        assert not (await flow.describe()).ready

        await flow.pass_time(seconds=70)
        assert world.looks == 1, "it looks once a minute whether it is still paused"
        world.touch(annotations={})
        await flow.pass_time(seconds=70)
        await until(lambda: world.condition("Ready")["status"] == "True")


async def test_a_paused_plane_stays_hidden_from_the_unassigned(serve: Serve) -> None:
    """Else an order on a target cluster could ask which planes there are (contracts 4.11)."""
    worlds = World("hidden", cluster="edge-1"), World("hidden", cluster="edge-2")
    worlds[0].plane(assigned=False, annotations={PAUSED: "true"})
    worlds[1].management.objects = {k: v for k, v in worlds[1].management.objects.items() if k[0] != "controlplanes"}
    said = []
    for world in worlds:
        async with serve(world) as flow:
            await flow.ring()
            await flow.settled()
            said.append(str(world.live and world.live["status"]["conditions"]).replace(world.ref.cluster, "CLUSTER"))
    assert _without_times(said[0]) == _without_times(said[1])


def _without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", text)


async def test_an_error_reads_as_its_condition_and_goes(serve: Serve) -> None:
    world = World("refused-by-the-server")
    world.find = ClusterError("applying Project", 403, "Forbidden", "no right to patch projects")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.condition("ProjectReady")["reason"] == reasons.ERROR
        assert "no right to patch projects" in world.condition("ProjectReady")["message"]
        world.find = world.provisioned()
        await flow.pass_time(seconds=15)
        await until(lambda: world.condition("Ready")["status"] == "True")


async def test_a_refused_clearing_reads_as_its_own_reason(serve: Serve) -> None:
    world = World("unlatch-refused")
    world.find = ClusterError("clearing", 403, steps.TRANSPORT_RETRY_FAILED, "no right to patch projects/status")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.condition("ProjectReady")["reason"] == "TransportErrorRetryFailed"


async def test_an_unreadable_plane_is_told_in_ready_and_keeps_the_conditions(serve: Serve) -> None:
    world = World("unreadable-plane")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.management.refuse["get controlplanes"] = ClusterError("reading ControlPlane", 403, "Forbidden", "no")
        await flow.ring()
        await flow.settled()
        assert world.condition("ProjectReady")["status"] == "True"
        assert world.condition("Ready")["status"] == "False"
        assert "reading ControlPlane: 403 Forbidden" in world.condition("Ready")["message"]
        assert world.live is not None
        assert world.live["metadata"]["finalizers"] == [children.FINALIZER]


async def test_a_gate_reads_on_the_condition_and_creates_nothing(serve: Serve) -> None:
    world = World("gated")
    world.plane(ready=False)
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.condition("ProjectReady")["reason"] == "WaitingForAdminCredential"
        assert world.count("provision_project") == 0
        world.plane()
        await flow.pass_time(seconds=11)
        await until(lambda: world.condition("Ready")["status"] == "True")


async def test_what_a_step_does_not_say_is_kept(serve: Serve) -> None:
    """Frozen after it was served: the fields stay, the condition changes (P13)."""
    world = World("kept")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.plane(assigned=False)
        await flow.ring()
        await flow.settled()
        assert world.condition("ProjectReady")["reason"] == "NamespaceNotAssigned"
        assert world.live is not None
        assert world.live["status"]["projectID"] == "id-1"
        assert world.live["metadata"]["finalizers"] == [children.FINALIZER]
        assert world.count("provision_project") == 1


async def test_a_plane_with_a_large_annotation_does_not_weigh_on_the_history(serve: Serve) -> None:
    world = World("large-plane")
    world.plane(annotations={"kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000})
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert (await flow.handle.describe()).raw_info.history_size_bytes < 30_000


async def test_an_order_that_is_gone_ends_its_run(serve: Serve) -> None:
    world = World("gone")
    world.vanish()
    async with serve(world) as flow:
        await flow.ring()
        await flow.ended()
        assert world.calls == ["admit"]


async def test_an_order_being_deleted_without_our_finalizer_is_left_alone(serve: Serve) -> None:
    world = World("not-ours")
    world.touch(finalizers=["example.org/hold"], deletionTimestamp="2026-01-01T00:00:00Z")
    async with serve(world) as flow:
        await flow.ring()
        await flow.ended()
        assert world.calls == ["admit"]
        assert world.home.writes == []


async def test_the_order_is_read_again_when_it_changed_under_a_pass(serve: Serve) -> None:
    world = World("moved")
    world.hold = {"provision_project": (stop := Stop())}
    async with serve(world) as flow:
        await flow.ring()
        await stop.reached()
        world.touch(generation=2)
        stop.go_on()
        await until(lambda: world.condition("Ready").get("observedGeneration") == 2)
        assert world.count("report") == 2
        assert world.count("admit") == 2


async def test_a_trouble_verdict_is_no_wait_for_other_verdicts(serve: Serve) -> None:
    """A verdict without a next look, on an order at home: nobody looks, and the history rests."""
    world = World("never")
    verdict = Verdict(type=reasons.PROJECT_READY, status=False, reason=reasons.COLLISION, message="reserved")
    world.find = Decision(verdict=verdict)
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        await flow.pass_time(hours=1)
        assert world.count("settle") == 0


@pytest.mark.parametrize("error", [ValueError("garbage"), ClusterError("reading", 403, "Forbidden", "no")])
async def test_a_look_that_fails_is_followed_by_a_pass_that_says_so(serve: Serve, error: Exception) -> None:
    world = World(f"look-{type(error).__name__.lower()}")
    world.find = waiting("it")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        world.find = error
        await flow.pass_time(seconds=60)
        await until(lambda: world.condition("ProjectReady")["reason"] == reasons.ERROR)
