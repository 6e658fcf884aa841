"""Removal: what holds it, what it deletes and in which order, and what it must never take along.

K-ORC deletes a resource whose id it does not know by its name, so a child without an id is the dangerous one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.cluster import KEYSTONE_APPLICATION_CREDENTIAL, KEYSTONE_ROLE_ASSIGNMENT, KORC_PROJECT
from activities.clusters import Clusters
from activities.errors import ClusterError
from activities.keystoneproject import KeystoneProjects
from tests import korc_by_hand as words
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.world import REGISTRATIONS, TARGET, World, retried, run, until
from workflows.keystoneproject import children, reasons
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Removal

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


async def remove(world: World, ref: OrderRef) -> Removal:
    return await retried(world.projects.remove_project, await world.removal(ref))


async def without_id(world: World, name: str = "reporting") -> OrderRef:
    """An order whose managed Project K-ORC has taken up, and that has no id yet."""
    await world.plane()
    ref = await world.order(name)
    await world.one_pass(ref)
    await world.korc.absent(world.probe_of(ref))
    await world.one_pass(ref)
    await world.korc.let_go(world.probe_of(ref))
    await world.korc.notice(world.project_of(ref))
    return ref


async def _no_children(world: World) -> bool:
    return not await world.names()


async def policy(world: World, ref: OrderRef) -> tuple[Any, bool]:
    """The managed Project's onDelete, and whether it is being deleted."""
    live = await world.korc.there(world.project_of(ref))
    return (live["spec"].get("managedOptions") or {}).get("onDelete"), "deletionTimestamp" in live["metadata"]


# -- holds -----------------------------------------------------------------------------------------------------------


def referring(ref: OrderRef, world: World, kind: str, project: str, plane: str = "cp") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "controlPlaneRef": {"name": plane, "namespace": world.plane_ns},
        "userRef": {"name": "someone"},
        "projectRef": {"name": project},
    }
    if kind == "assignment":
        spec["role"] = "member"
    return {"metadata": {"namespace": ref.namespace}, "spec": spec}


@pytest.mark.parametrize("cluster", ["", TARGET])
async def test_references_hold_the_deletion_assignments_first(world: World, cluster: str) -> None:
    await world.plane()
    ref = await world.ready(cluster=cluster)
    home = world.home(cluster)
    for name, kind, project in (("b", "assignment", ref.name), ("a", "assignment", ref.name), ("c", "assignment", "x")):
        body = referring(ref, world, kind, project, plane="another")
        body["metadata"] |= {"name": name}
        await home.create(KEYSTONE_ROLE_ASSIGNMENT, body)
    body = referring(ref, world, "credential", ref.name)
    await home.create(KEYSTONE_APPLICATION_CREDENTIAL, {**body, "metadata": {**body["metadata"], "name": "key"}})
    if cluster:  # one of the same names beside nothing of ours
        body = referring(ref, world, "assignment", ref.name)
        await world.admin.create(KEYSTONE_ROLE_ASSIGNMENT, {**body, "metadata": {**body["metadata"], "name": "other"}})
    await world.delete(ref)
    before = await world.children()
    audit = Audit(world.stack)
    removal = await remove(world, ref)
    (verdict,) = removal.held
    assert (verdict.type, verdict.status, verdict.again) == ("ProjectReady", False, 60)
    assert verdict.reason == reasons.REFERENCED_BY_ASSIGNMENTS
    assert "'a', 'b'" in verdict.message
    assert "'c'" not in verdict.message
    assert "'other'" not in verdict.message
    assert ref.namespace in verdict.message
    assert removal.left == ()
    assert writes(await audit.asked(world.plane_ns, world.order_ns)) == []
    assert (await world.projects.look_removal(await world.removal(ref))) == removal
    # An assignment that is itself being deleted holds still.
    await home.patch(KEYSTONE_ROLE_ASSIGNMENT, ref.namespace, "a", {"metadata": {"finalizers": ["example.org/x"]}})
    for name in ("a", "b"):
        live = await home.get(KEYSTONE_ROLE_ASSIGNMENT, ref.namespace, name)
        assert live is not None
        await home.delete(KEYSTONE_ROLE_ASSIGNMENT, ref.namespace, name, live["metadata"]["uid"])
    assert "'a'." in (await remove(world, ref)).held[0].message
    await home.patch(KEYSTONE_ROLE_ASSIGNMENT, ref.namespace, "a", {"metadata": {"finalizers": None}})
    held = (await remove(world, ref)).held
    assert [v.reason for v in held] == [reasons.REFERENCED_BY_CREDENTIALS]
    assert "'key'" in held[0].message
    assert await world.children() == before
    live = await home.get(KEYSTONE_APPLICATION_CREDENTIAL, ref.namespace, "key")
    assert live is not None
    await home.delete(KEYSTONE_APPLICATION_CREDENTIAL, ref.namespace, "key", live["metadata"]["uid"])
    async with world.korc.playing(), asyncio.timeout(60):
        while await world.find(ref) is not None:
            await world.torn_down(ref)
    assert await world.names() == []


# -- order of things -------------------------------------------------------------------------------------------------


async def test_the_managed_project_goes_before_the_probe_and_the_finalizer_last(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    plane = (await world.task(ref)).plane
    assert plane is not None
    await world.clusters.management.create(KORC_PROJECT, children.probe(ref, plane, ref.name))
    await world.korc.available(world.probe_of(ref))
    await world.delete(ref)
    audit = Audit(world.stack)
    removal = await remove(world, ref)
    assert len(removal.left) == 2
    assert world.project_of(ref) in removal.left[0]
    assert "K-ORC: " in removal.left[0]
    deleted = [one.name for one in await audit.asked(world.plane_ns) if one.verb == "delete"]
    assert deleted == [world.project_of(ref), world.probe_of(ref)]
    assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    assert len(await world.leases()) == 1
    # A guard of another controller keeps it, and the words say whose turn it is.
    await world.korc.say(
        world.project_of(ref),
        ("True", "Success", "OpenStack resource is available"),
        ("True", "Progressing", "Waiting for finalizer openstack.k-orc.cloud/user to be removed"),
    )
    removal = await remove(world, ref)
    assert "openstack.k-orc.cloud/user" in removal.left[0]
    # Deletes that were issued are not issued again.
    assert [one.name for one in await audit.asked(world.plane_ns) if one.verb == "delete"] == deleted
    assert (await world.projects.look_removal(await world.removal(ref))).left == removal.left
    await world.korc.let_go(world.probe_of(ref))
    await world.korc.let_go(world.project_of(ref))
    assert (await world.torn_down(ref)) == Removal()
    assert await world.find(ref) is None
    assert await world.leases() == []


async def test_with_the_plane_gone_the_deletes_are_issued_and_the_order_goes(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    await world.delete_plane()
    await world.delete(ref)
    assert await world.torn_down(ref) == Removal()
    assert await world.find(ref) is None
    onDelete, deleting = await policy(world, ref)
    assert (onDelete, deleting) == (None, True)
    assert await world.leases() == []


async def test_a_plane_that_went_first_does_not_let_a_child_without_an_id_take_a_strangers_project(
    world: World,
) -> None:
    ref = await without_id(world)
    await world.korc.terminal(world.project_of(ref), words.REFUSED)
    await world.delete_plane()
    await world.delete(ref)
    world.korc.keystone[ref.name] = "strangers"
    assert await world.torn_down(ref) == Removal()
    assert await world.find(ref) is None
    assert await policy(world, ref) == ("detach", True)
    async with world.korc.playing():
        await until(lambda: _no_children(world))
    assert world.korc.keystone == {ref.name: "strangers"}


async def test_nothing_that_only_looks_like_a_child_is_deleted(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    spec = {
        "cloudCredentialsRef": {"secretName": "theirs", "cloudName": "admin"},
        "managementPolicy": "unmanaged",
        "import": {"filter": {"name": "theirs"}},
    }
    labels = ownership_labels(ref)
    other = labels | {"c5c3.io/keystoneproject-namespace": "elsewhere"}
    kept = [
        await world.child("labels-but-not-the-name", {"metadata": {"labels": labels}, "spec": spec}),
        await world.child(f"{children.prefix(ref)}name-but-not-the-labels", {"spec": spec}),
        await world.child(f"{children.prefix(ref)}anothers", {"metadata": {"labels": other}, "spec": spec}),
    ]
    leftover = await world.child(f"{children.prefix(ref)}leftover", {"metadata": {"labels": labels}, "spec": spec})
    await world.delete(ref)
    async with asyncio.timeout(60):
        while await world.find(ref) is not None:
            await world.torn_down(ref)
            for name in (world.project_of(ref), leftover["metadata"]["name"]):
                await world.korc.let_go(name)
    assert sorted(await world.names()) == sorted(each["metadata"]["name"] for each in kept)
    assert [each for each in await world.children() if "deletionTimestamp" in each["metadata"]] == []


# -- children without an id ------------------------------------------------------------------------------------------


async def test_with_an_id_it_is_simply_deleted(world: World) -> None:
    ref = await without_id(world)
    await world.korc.available(world.project_of(ref))
    await world.korc.terminal(world.project_of(ref), words.REFUSED.replace("creating", "updating"))
    await world.delete(ref)
    await remove(world, ref)
    assert await policy(world, ref) == (None, True)
    assert await world.names() == [world.project_of(ref)]


async def test_what_korc_never_took_up_is_simply_deleted(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.absent(world.probe_of(ref))
    await world.one_pass(ref)
    await world.korc.let_go(world.probe_of(ref))
    await world.delete(ref)
    assert await world.torn_down(ref) == Removal()
    assert await world.find(ref) is None


async def test_what_korc_takes_up_between_look_and_delete_is_not_deleted_by_name(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.absent(world.probe_of(ref))
    await world.one_pass(ref)
    await world.korc.let_go(world.probe_of(ref))
    await world.delete(ref)
    meddled = Meddled(world.clusters.management)

    async def slip_in(call: Call) -> None:
        if call.method == "DELETE" and call.name == world.project_of(ref):
            await world.korc.notice(world.project_of(ref))

    meddled.before = slip_in
    task = await world.removal(ref)
    removal = await run(KeystoneProjects(Clusters(meddled, REGISTRATIONS)).remove_project, task)
    assert await policy(world, ref) == (None, False)
    assert "being created at this moment" in removal.left[0]
    assert (await world.projects.look_removal(task)).left == removal.left
    await world.korc.available(world.project_of(ref))
    await remove(world, ref)
    assert await policy(world, ref) == (None, True)


async def test_what_never_reached_keystone_is_let_go_of(world: World) -> None:
    ref = await without_id(world)
    await world.korc.waits_for(world.project_of(ref), "Secret/cp-admin-password-cloud")
    await world.delete(ref)
    await remove(world, ref)
    assert await policy(world, ref) == ("detach", True)
    assert await world.names() == [world.project_of(ref)]


async def test_what_is_being_created_at_this_moment_is_waited_for(world: World) -> None:
    ref = await without_id(world)
    await world.korc.say(
        world.project_of(ref), ("False", "Progressing", "creating"), ("True", "Progressing", "creating")
    )
    await world.delete(ref)
    removal = await remove(world, ref)
    assert "being created at this moment" in removal.left[0]
    assert await policy(world, ref) == (None, False)
    assert await world.names() == [world.project_of(ref)]
    assert (await world.projects.look_removal(await world.removal(ref))).left == removal.left
    await world.korc.available(world.project_of(ref))
    await remove(world, ref)
    assert await policy(world, ref) == (None, True)


@pytest.mark.parametrize("how", ["latched", "failing"])
@pytest.mark.parametrize("strangers", [False, True], ids=["nobody's", "a stranger's"])
async def test_one_that_failed_is_deleted_only_after_a_fresh_probe(world: World, how: str, strangers: bool) -> None:
    ref = await without_id(world)
    name, probe = world.project_of(ref), world.probe_of(ref)
    if how == "latched":
        await world.korc.terminal(name, words.REFUSED)
    else:
        await world.korc.transient(name, words.NO_CONNECTION)
    await world.delete(ref)
    removal = await remove(world, ref)
    assert await policy(world, ref) == (None, False)
    assert sorted(await world.names()) == sorted([name, probe])
    assert name in removal.left[0]
    # Keystone does not answer: nothing moves, however often it is looked at.
    await world.korc.transient(probe, words.NO_CONNECTION)
    for _ in range(2):
        assert words.NO_CONNECTION in (await remove(world, ref)).left[0]
    assert await policy(world, ref) == (None, False)
    if strangers:
        world.korc.keystone[ref.name] = "strangers"
        await world.korc.available(probe, "strangers")
    else:
        await world.korc.absent(probe)
    await remove(world, ref)
    assert await policy(world, ref) == ("detach" if strangers else None, True)
    async with world.korc.playing(), asyncio.timeout(60):
        while await world.find(ref) is not None:
            await world.torn_down(ref)
    assert await world.names() == []
    assert world.korc.keystone == ({ref.name: "strangers"} if strangers else {})


async def test_a_probe_older_than_the_failure_decides_nothing(world: World) -> None:
    ref = await without_id(world)
    task = await world.task(ref)
    assert task.plane is not None
    await world.clusters.management.create(KORC_PROJECT, children.probe(ref, task.plane, ref.name))
    await world.korc.absent(world.probe_of(ref))
    old = (await world.korc.there(world.probe_of(ref)))["metadata"]["uid"]
    await asyncio.sleep(1.1)
    await world.korc.terminal(world.project_of(ref), words.REFUSED)
    await world.delete(ref)
    await remove(world, ref)
    assert await policy(world, ref) == (None, False)
    await world.korc.let_go(world.probe_of(ref))
    await remove(world, ref)
    assert (await world.korc.there(world.probe_of(ref)))["metadata"]["uid"] != old
    assert await policy(world, ref) == (None, False)


# -- refusals --------------------------------------------------------------------------------------------------------


async def test_a_server_that_does_not_answer_never_looks_like_nothing_left(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    await world.delete(ref)
    task = await world.removal(ref)
    for verb in ("GET", "DELETE"):
        meddled = Meddled(world.clusters.management)

        async def refuse(call: Call, verb: str = verb) -> None:
            if call.plural == "projects" and call.method == verb:
                raise ClusterError(str(call), 503, "ServiceUnavailable", "not now")

        meddled.before = refuse
        with pytest.raises(ApplicationError) as caught:
            await run(KeystoneProjects(Clusters(meddled, REGISTRATIONS)).remove_project, task)
        assert not caught.value.non_retryable
    assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]


async def test_a_removal_writes_nothing_for_an_order_that_is_another_by_now(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    await world.delete(ref)
    task = await world.removal(ref)
    await run(world.orders.release, task)
    assert await world.find(ref) is None
    await world.order()
    before = await world.children()
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.remove_project, task)
    assert caught.value.type == "OrderMoved"
    assert await world.children() == before
    # Nor is the new order's finalizer taken.
    await world.task(ref)
    await run(world.orders.release, task)
    assert (await world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]


async def test_the_children_of_an_order_that_went_unseen_go_unless_another_has_come(world: World) -> None:
    await world.plane()
    ref = await world.ready()
    await world.delete(ref)
    task = (await world.removal(ref)).model_copy(update={"gone": True})
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.remove_project, task)
    assert caught.value.type == "OrderMoved", "it is there yet"
    await run(world.orders.release, task)
    assert await world.find(ref) is None
    before = await world.children()
    await world.order()
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.remove_project, task)
    assert caught.value.type == "OrderMoved"
    assert await world.children() == before
    await world.delete(ref)  # it has no finalizer yet
    assert world.project_of(ref) in (await retried(world.projects.remove_project, task)).left[0]
    await world.korc.let_go(world.project_of(ref))
    assert (await retried(world.projects.remove_project, task)) == Removal()
    assert (await world.children(), await world.leases()) == ([], [])
