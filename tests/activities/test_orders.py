"""The steps that every kind shares, on a real API server: what they read as absence, write, release, and wait for."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities import projection
from activities.cluster import CONTROL_PLANE, KEYSTONE_PROJECT, KORC_PROJECT
from activities.clusters import Clusters
from activities.errors import ClusterError, Conflict
from activities.keystoneproject import KeystoneProjects
from activities.orders import Orders
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.world import CRD, REGISTRATIONS, TARGET, World, definition, run, run_attempt, until
from workflows.keystoneproject import children, reasons
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import State, Task, Wait
from workflows.scaffold.verdict import Outcome, Verdict

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


def through(meddled: Meddled) -> Orders:
    clusters = Clusters(meddled, REGISTRATIONS)
    return Orders(clusters, {"KeystoneProject": KeystoneProjects(clusters)})


def failing(world: World, plural: str, status: int) -> Orders:
    """The steps, while the API server answers reads of that kind with this status."""
    meddled = Meddled(world.clusters.management)

    async def refuse(call: Call) -> None:
        if call.plural == plural:
            raise ClusterError(str(call), status, "Refused", "by the test")

    meddled.before = refuse
    return through(meddled)


# -- reading ---------------------------------------------------------------------------------------------------------


async def test_a_vanished_order_is_gone_and_any_other_error_is_an_error(world: World) -> None:
    ref = await world.order()
    for step in ("admit", "examine"):
        for status in (0, 429, 500, 503):
            with pytest.raises(ApplicationError) as caught:
                await run(getattr(failing(world, "keystoneprojects", status), step), ref)
            assert not caught.value.non_retryable, status
        for status in (401, 403):
            with pytest.raises(ApplicationError) as caught:
                await run(getattr(failing(world, "keystoneprojects", status), step), ref)
            assert caught.value.non_retryable, status
    await world.delete(ref)
    for step in ("admit", "examine"):
        assert (await run(getattr(world.orders, step), ref)).state is State.GONE


async def test_an_unreadable_plane_is_retried_and_then_a_trouble_never_an_absent_plane(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    orders = failing(world, "controlplanes", 503)
    with pytest.raises(ApplicationError) as caught:
        await run(orders.admit, ref)
    assert not caught.value.non_retryable
    for step, status, attempt in (("admit", 503, 6), ("admit", 403, 1), ("examine", 503, 6), ("examine", 403, 1)):
        seen = await run_attempt(attempt, getattr(failing(world, "controlplanes", status), step), ref)
        assert seen.plane is None
        assert str(status) in seen.trouble
        assert seen.order.uid
        assert seen.refused == ()


async def test_an_order_on_a_cluster_that_nobody_registered_is_skipped(world: World) -> None:
    audit = Audit(world.stack)
    ref = OrderRef(kind="KeystoneProject", cluster="nowhere", namespace=world.order_ns, name="reporting")
    assert (await run(world.orders.admit, ref)).state is State.GONE
    assert writes(await audit.asked(world.plane_ns, world.order_ns)) == []


async def test_an_order_that_goes_while_it_gets_its_finalizer_is_gone(world: World) -> None:
    await world.plane()
    ref = await world.order()
    meddled = Meddled(world.clusters.management)

    async def remove(call: Call) -> None:
        if call.method == "PUT":
            await world.delete(ref)

    meddled.before = remove
    assert (await run(through(meddled).admit, ref)).state is State.GONE


async def test_a_finalizer_never_overwrites_what_another_wrote_meanwhile(world: World) -> None:
    await world.plane()
    ref = await world.order()
    meddled = Meddled(world.clusters.management)

    async def write(call: Call) -> None:
        if call.method == "PUT":
            await world.annotate(ref, "example.org/note", "theirs")

    meddled.before = write
    with pytest.raises(ApplicationError) as caught:
        await run(through(meddled).admit, ref)
    assert not caught.value.non_retryable
    await run(world.orders.admit, ref)
    meta = (await world.live(ref))["metadata"]
    assert meta["annotations"]["example.org/note"] == "theirs"
    assert meta["finalizers"] == [children.FINALIZER]


# -- status ----------------------------------------------------------------------------------------------------------


def said(status: bool, reason: str, message: str = "words") -> Outcome:
    return Outcome(verdicts=(Verdict(type="ProjectReady", status=status, reason=reason, message=message),))


@pytest.mark.row("S19")
async def test_time_moves_only_with_the_status_and_ready_sums_up(world: World) -> None:
    await world.plane()
    ref = await world.order()

    async def say(outcome: Outcome, note: str = "") -> bool | None:
        return await world.report(ref, await run(world.orders.admit, ref), outcome, note)

    assert await say(said(False, "WaitingForProject"))
    first = await world.conditions(ref)
    assert (first["Ready"]["status"], first["Ready"]["reason"]) == ("False", "NotAllReady")
    await asyncio.sleep(1.1)
    assert await say(said(False, "ProjectFailed", "other words"))
    second = await world.conditions(ref)
    assert second["ProjectReady"]["reason"] == "ProjectFailed"
    for type_ in ("Ready", "ProjectReady"):
        assert second[type_]["lastTransitionTime"] == first[type_]["lastTransitionTime"]
    assert await say(said(True, "ProjectProvisioned"))
    third = await world.conditions(ref)
    assert (third["Ready"]["status"], third["Ready"]["reason"]) == ("True", "AllReady")
    for type_ in ("Ready", "ProjectReady"):
        assert third[type_]["lastTransitionTime"] > first[type_]["lastTransitionTime"]
    # The same again is no write at all; a note makes Ready False and moves nothing else.
    version = (await world.live(ref))["metadata"]["resourceVersion"]
    assert await say(said(True, "ProjectProvisioned")) is None
    assert (await world.live(ref))["metadata"]["resourceVersion"] == version
    assert await say(said(True, "ProjectProvisioned"), note="held back")
    noted = await world.conditions(ref)
    assert (noted["Ready"]["status"], noted["Ready"]["message"]) == ("False", "held back")
    assert noted["ProjectReady"] == third["ProjectReady"]


@pytest.mark.row("S19")
async def test_without_its_condition_ready_is_not_true_and_a_wiped_status_comes_back(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    before = (await world.live(ref))["status"]
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"status": None}, sub="status")
    admitted = await run(world.orders.admit, ref)
    await world.report(ref, admitted, Outcome(verdicts=()))
    assert (await world.conditions(ref))["Ready"]["status"] == "False"
    await world.one_pass(ref)
    after = (await world.live(ref))["status"]
    assert {k: after[k] for k in ("projectID", "projectName", "domainName", "observedGeneration")} == {
        k: before[k] for k in ("projectID", "projectName", "domainName", "observedGeneration")
    }
    assert (await world.conditions(ref))["Ready"]["status"] == "True"


async def test_a_status_is_written_only_onto_the_version_it_was_judged_on(world: World) -> None:
    await world.plane()
    ref = await world.order()
    seen = await run(world.orders.admit, ref)
    theirs = {
        "type": "example.org/Seen", "status": "True", "reason": "Theirs", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    body = {"status": {"conditions": [theirs]}}
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, body, sub="status")
    assert await world.report(ref, seen, said(False, "WaitingForProject")) is False
    assert (await world.live(ref))["status"]["conditions"] == [theirs]
    seen = await run(world.orders.admit, ref)
    assert await world.report(ref, seen, said(False, "WaitingForProject"))
    assert (await world.conditions(ref))["example.org/Seen"] == theirs
    # A re-created order of the same name is another one; one that is gone is no error.
    old = await run(world.orders.admit, ref)
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    await world.delete(ref)
    assert await world.report(ref, old, said(False, "ProjectFailed")) is False
    await world.order()
    assert await world.report(ref, old, said(False, "ProjectFailed")) is False
    assert "status" not in await world.live(ref)


# -- release ---------------------------------------------------------------------------------------------------------


async def test_release_writes_nothing_when_our_finalizer_is_not_there(world: World) -> None:
    ref = await world.order(finalizers=("example.org/hold",))
    await world.delete(ref)
    task = await world.removal(ref)
    assert not task.order.finalized
    audit = Audit(world.stack)
    await run(world.orders.release, task)
    assert writes(await audit.asked(world.order_ns)) == []
    assert (await world.live(ref))["metadata"]["finalizers"] == ["example.org/hold"]


# -- a missing kind --------------------------------------------------------------------------------------------------


@pytest.mark.row("S28")
async def test_with_the_control_planes_kind_missing_no_finalizer_is_released(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    frozen = await world.order("other")
    await world.delete(ref)
    path = definition("upstream/controlplanes.yaml")
    live = await world.admin.get(CRD, None, path["metadata"]["name"])
    assert live is not None
    try:
        await world.admin._request("DELETE", CRD, None, path["metadata"]["name"])
        await until(lambda: _unserved(world), 60)
        for step in (world.orders.examine, world.orders.admit):
            seen = await run(step, ref if step == world.orders.examine else frozen)
            assert seen.plane is None
            assert "ControlPlane" in seen.trouble
            assert "CRD" in seen.trouble
            assert seen.refused == ()
        assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
        assert await world.names() == [world.project_of(ref)]
    finally:
        await _restore(world, live)
    # The plane itself went with its kind: that is a plane that is gone, and is read as one.
    examined = await run(world.orders.examine, ref)
    assert (examined.plane, examined.trouble) == (None, "")


async def _unserved(world: World) -> bool:
    try:
        await world.clusters.management.get(CONTROL_PLANE, world.plane_ns, "cp")
    except ClusterError as error:
        return error.reason == "NotServed"
    return False


async def _served(world: World) -> bool:
    try:
        await world.clusters.management.list(CONTROL_PLANE, world.plane_ns)
    except ClusterError:
        return False
    return True


async def _restore(world: World, live: dict[str, Any]) -> None:
    async def created() -> bool:
        meta = {key: live["metadata"][key] for key in ("name", "labels", "annotations") if key in live["metadata"]}
        try:
            await world.admin.create(CRD, {"metadata": meta, "spec": live["spec"]})
        except Conflict:
            return False
        return True

    await until(created, 60)
    await until(lambda: _served(world), 60)


@pytest.mark.row("S28")
async def test_an_order_kind_that_is_not_served_is_an_error_and_never_a_vanished_order(world: World) -> None:
    ref = OrderRef(kind="KeystoneProject", cluster="", namespace=world.order_ns, name="reporting")
    meddled = Meddled(world.clusters.management)
    orders = through(meddled)
    orders._kinds["KeystoneProject"].kind = dataclasses.replace(KEYSTONE_PROJECT, group="nobody.example.org")
    with pytest.raises(ApplicationError) as caught:
        await run(orders.examine, ref)
    assert caught.value.type in ("NotServed", "Forbidden")


# -- waiting ---------------------------------------------------------------------------------------------------------


async def looks(
    world: World, ref: OrderRef, wait: Wait, *, attempt: int = 2, age: float = 0, orders: Orders | None = None
) -> ApplicationError | None:
    """One attempt of `settle`: what it says, or None when it calls for a pass."""
    environment = ActivityEnvironment()
    now = datetime.now(UTC)
    environment.info = dataclasses.replace(
        environment.info, attempt=attempt, started_time=now, scheduled_time=now - timedelta(seconds=age)
    )
    said: ApplicationError | None = None
    try:
        await environment.run((orders or world.orders).settle, wait)
    except ApplicationError as error:
        said = error
    if said is not None:
        assert (said.type, said.category) == ("Settling", ApplicationErrorCategory.BENIGN)
    return said


async def waiting(world: World, ref: OrderRef) -> Wait:
    """What the workflow would wait with after a pass."""
    admitted = await run(world.orders.admit, ref)
    verdicts = admitted.refused
    if not verdicts:
        task = Task(ref=ref, order=admitted.order, plane=admitted.plane)
        verdicts = (await run(world.projects.provision_project, task)).verdicts
    return Wait(
        ref=ref, generation=admitted.order.generation, paused=admitted.order.paused, verdicts=verdicts, every=10,
        refresh=600 if ref.cluster else None, words="waits for the test",
    )  # fmt: skip


async def test_a_look_writes_nothing_and_says_when_the_next_is(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.waits_for(world.probe_of(ref), "Domain/x")
    wait = await waiting(world, ref)
    audit = Audit(world.stack)
    said = await looks(world, ref, wait)
    assert said is not None
    assert said.next_retry_delay == timedelta(seconds=10)
    assert "waits for the test" in said.message
    asked = await audit.asked(world.plane_ns, world.order_ns)
    assert [f"{one.verb} {one.resource}" for one in asked] == [
        "get keystoneprojects", "get controlplanes", "get projects", "get projects",
    ]  # fmt: skip


async def test_what_calls_for_a_pass(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.waits_for(world.probe_of(ref), "Domain/x")
    wait = await waiting(world, ref)
    assert await looks(world, ref, wait) is not None
    # The words of K-ORC, a write that falls due, a pause, a gate, a new generation, an error, the end.
    await world.korc.waits_for(world.probe_of(ref), "Domain/y")
    assert await looks(world, ref, wait) is None
    await world.korc.absent(world.probe_of(ref))
    assert await looks(world, ref, wait) is None
    await world.korc.waits_for(world.probe_of(ref), "Domain/x")
    assert await looks(world, ref, wait) is not None
    await world.annotate(ref, "c5c3.io/paused", "true")
    assert await looks(world, ref, wait) is None
    await world.annotate(ref, "c5c3.io/paused", None)
    await world.assign()
    assert await looks(world, ref, wait) is None
    await world.assign("")
    assert await looks(world, ref, wait) is not None
    assert await looks(world, ref, wait, orders=failing(world, "controlplanes", 503)) is None
    assert await looks(world, ref, wait, orders=failing(world, "projects", 503)) is None
    assert await looks(world, ref, wait, orders=failing(world, "keystoneprojects", 403)) is None
    blind = wait.model_copy(update={"blind": True})
    assert await looks(world, ref, blind, attempt=1) is not None
    assert await looks(world, ref, blind) is None
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"spec": {"projectName": ref.name}})
    assert await looks(world, ref, wait) is None
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    await world.delete(ref)
    assert await looks(world, ref, wait) is None


async def test_a_frozen_order_and_a_missing_finalizer_are_noticed(world: World) -> None:
    ref = await world.order()
    wait = await waiting(world, ref)
    assert await looks(world, ref, wait) is not None
    await world.plane()
    assert await looks(world, ref, wait) is None
    async with world.korc.playing():
        await world.passes_until(ref, reasons.PROVISIONED)
    wait = await waiting(world, ref)
    assert await looks(world, ref, wait) is not None
    await world.admin.patch(KEYSTONE_PROJECT, ref.namespace, ref.name, {"metadata": {"finalizers": None}})
    assert await looks(world, ref, wait) is None


async def test_an_order_on_a_target_cluster_is_refreshed_in_any_case(world: World) -> None:
    await world.plane()
    ref = await world.ready(cluster=TARGET)
    wait = await waiting(world, ref)
    first = await looks(world, ref, wait, attempt=1)
    assert first is not None
    assert first.next_retry_delay == timedelta(seconds=10)
    nearly = await looks(world, ref, wait, age=597)
    assert nearly is not None
    assert nearly.next_retry_delay is not None
    assert nearly.next_retry_delay <= timedelta(seconds=3.1)
    assert await looks(world, ref, wait, age=600) is None


async def test_a_missing_child_calls_for_a_pass_of_a_converged_order(world: World) -> None:
    await world.plane()
    ref = await world.ready(cluster=TARGET)
    wait = await waiting(world, ref)
    edit = {"spec": {"cloudCredentialsRef": {"secretName": "elsewhere"}}}
    assert await looks(world, ref, wait) is not None
    await world.admin.patch(KORC_PROJECT, world.plane_ns, world.project_of(ref), edit)
    assert await looks(world, ref, wait) is None
    live = await world.korc.there(world.project_of(ref))
    await world.admin.delete(KORC_PROJECT, world.plane_ns, world.project_of(ref), live["metadata"]["uid"])
    await world.korc.let_go(world.project_of(ref))
    assert await looks(world, ref, wait) is None
