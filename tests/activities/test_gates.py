"""The gates before a project's own steps: who is served, what a refusal reads, and that nothing moves behind it."""

from __future__ import annotations

import pytest

from activities.cluster import KEYSTONE_PROJECT, KORC_PROJECT
from tests.audit import Audit, writes
from tests.world import TARGET, World, run
from workflows.keystoneproject import children, reasons
from workflows.scaffold.steps import State

pytestmark = pytest.mark.api


@pytest.mark.row("P06")
async def test_without_an_assignment_nothing_is_read_or_written_beyond_the_plane(world: World) -> None:
    await world.plane(assigned=False)
    ref = await world.order()
    audit = Audit(world.stack)
    admitted = await world.one_pass(ref)
    (verdict,) = admitted.refused
    assert (verdict.reason, verdict.again) == ("NamespaceNotAssigned", 60)
    for word in ("spec.namespaceAssignments", world.order_ns, "the management cluster"):
        assert word in verdict.message
    assert not (await world.live(ref))["metadata"].get("finalizers")
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert [(one.verb, one.resource) for one in asked if one.namespace == world.plane_ns] == [("get", "controlplanes")]
    assert [one.split(" ->")[0] for one in writes(asked)] == [
        f"patch keystoneprojects/status {world.order_ns}/{ref.name}"
    ]
    conditions = await world.conditions(ref)
    assert conditions["Ready"]["reason"] == "NotAllReady"
    assert conditions["ProjectReady"]["observedGeneration"] == 1


@pytest.mark.row("P06")
async def test_an_assignment_on_another_cluster_is_none(world: World) -> None:
    await world.plane(clusters=(TARGET,))
    ref = await world.order()
    assert (await run(world.orders.admit, ref)).refused[0].reason == "NamespaceNotAssigned"
    await world.assign("")
    assert (await run(world.orders.admit, ref)).order.finalized


@pytest.mark.row("P06")
async def test_a_withdrawn_assignment_freezes_the_order_with_its_project(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    before = (await world.live(ref))["status"]
    await world.assign()
    # What a served order would repair: a frozen one leaves it, and reads nothing of it.
    meta = {"metadata": {"labels": {"example.org/touched": "yes"}}, "spec": {"resource": {"description": "edited"}}}
    await world.admin.patch(KORC_PROJECT, world.plane_ns, world.project_of(ref), meta)
    project = await world.korc.get(world.project_of(ref))
    audit = Audit(world.stack)
    await world.one_pass(ref)
    asked = await audit.asked(world.plane_ns)
    assert [(one.verb, one.resource) for one in asked] == [("get", "controlplanes")]
    assert await world.korc.get(world.project_of(ref)) == project
    after = (await world.live(ref))["status"]
    assert await world.reason(ref) == "NamespaceNotAssigned"
    for field in ("projectID", "projectName", "domainName"):
        assert after[field] == before[field]
    assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    # Deletion does not ask for the assignment.
    await world.removed(ref)
    assert await world.names() == []
    assert world.korc.keystone == {}


@pytest.mark.row("P07")
async def test_on_a_target_cluster_a_plane_that_is_not_there_reads_like_one_that_does_not_assign(world: World) -> None:
    dangling = await world.order(cluster=TARGET)
    await world.one_pass(dangling)
    without = await world.conditions(dangling)
    first = await run(world.orders.admit, dangling)
    await world.plane(clusters=("",))
    with_plane = await run(world.orders.admit, dangling)
    await world.one_pass(dangling)
    assert with_plane.refused == first.refused
    assert [v.reason for v in first.refused] == ["NamespaceNotAssigned"]
    assert await world.conditions(dangling) == without
    assert not (await world.live(dangling))["metadata"].get("finalizers")
    await world.assign(TARGET)
    assert (await run(world.orders.admit, dangling)).order.finalized


@pytest.mark.row("P13")
async def test_at_home_a_plane_that_is_not_there_is_named_and_the_order_heals_when_it_comes(world: World) -> None:
    ref = await world.order()
    await world.one_pass(ref)
    ready = (await world.conditions(ref))["ProjectReady"]
    assert ready["reason"] == "ControlPlaneNotFound"
    assert f"{world.plane_ns}/cp" in ready["message"]
    assert (await run(world.orders.admit, ref)).refused[0].again == 10
    assert not (await world.live(ref))["metadata"].get("finalizers")
    await world.plane()
    async with world.korc.playing():
        await world.passes_until(ref, reasons.PROVISIONED)


@pytest.mark.row("P13")
async def test_an_unready_admin_credential_is_waited_for_past_the_finalizer_and_keeps_the_status(world: World) -> None:
    await world.plane(credential=False)
    ref = await world.order()
    await world.one_pass(ref)
    ready = (await world.conditions(ref))["ProjectReady"]
    assert ready["reason"] == "WaitingForAdminCredential"
    assert f"{world.plane_ns}/cp" in ready["message"]
    live = await world.live(ref)
    assert live["metadata"]["finalizers"] == [children.FINALIZER]
    assert live["status"]["observedGeneration"] == live["metadata"]["generation"]
    assert not {"projectID", "projectName", "domainName"} & set(live["status"])
    assert await world.names() == []
    await world.credential(True)
    async with world.korc.playing():
        await world.passes_until(ref, reasons.PROVISIONED)
    status = (await world.live(ref))["status"]
    assert (status["projectName"], status["domainName"]) == (ref.name, "Default")
    assert status["projectID"] == world.korc.keystone[ref.name]
    # Lost again later: what is known stays, the condition says what is missing.
    await world.credential(False)
    await world.one_pass(ref)
    frozen = (await world.live(ref))["status"]
    assert await world.reason(ref) == "WaitingForAdminCredential"
    assert {key: frozen[key] for key in ("projectID", "projectName", "domainName")} == {
        key: status[key] for key in ("projectID", "projectName", "domainName")
    }


@pytest.mark.row("P13")
async def test_the_observed_generation_follows_the_order(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    # Writing out the default is no rename, and still a new generation.
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"spec": {"projectName": ref.name}})
    before = await world.conditions(ref)
    await world.one_pass(ref)
    live = await world.live(ref)
    assert live["metadata"]["generation"] == 2
    assert live["status"]["observedGeneration"] == 2
    after = await world.conditions(ref)
    assert {each["observedGeneration"] for each in after.values()} == {2}
    assert {t: c["lastTransitionTime"] for t, c in after.items()} == {t: c["lastTransitionTime"] for t, c in before.items()}  # fmt: skip  # noqa: E501


async def test_an_order_that_is_gone_or_being_deleted_passes_no_gate(world: World) -> None:
    await world.plane()
    ref = await world.order(finalizers=("example.org/hold",))
    await world.delete(ref)
    admitted = await run(world.orders.admit, ref)
    assert admitted.state is State.DELETING
    # Never a finalizer on what is being deleted (the server would answer 422).
    assert (await world.live(ref))["metadata"]["finalizers"] == ["example.org/hold"]
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    assert (await run(world.orders.admit, ref)).state is State.GONE
    assert (await run(world.orders.examine, ref)).state is State.GONE
