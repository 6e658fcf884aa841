"""The active replica on real API servers, by exactly the operator's rights: who is woken by what, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.cluster import (
    CONTROL_PLANE,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    KORC_PROJECT,
    Cluster,
    Kind,
)
from activities.clusters import connect_management
from deploy.local import kube
from deploy.local.part import Stack
from tests.watcher.apart import PLANE_NAMESPACE, Mine, Place, operator, place_on, quiet, watching, woken
from tests.watcher.objects import Object, until
from watcher.checks import CannotStart, check_cluster
from watcher.leader import Leader
from watcher.settings import WatcherSettings

pytestmark = pytest.mark.api
EDGE = "edge-1"


@pytest.fixture
async def place(api_stack: Stack) -> AsyncIterator[Place]:
    async with place_on(api_stack) as place:
        yield place


def condition(status: str, type_: str = "Available", **more: object) -> Object:
    return {"type": type_, "status": status, "reason": "Progressing", "message": "m", "observedGeneration": 1,
            "lastTransitionTime": "2026-11-30T00:00:00Z", **more}  # fmt: skip


@pytest.mark.row("S21", "S22")
async def test_each_source_wakes_exactly_its_orders_and_our_own_writes_nobody(
    api_stack: Stack, place: Place, tmp_path: Path
) -> None:
    doorbell = Mine(place.namespace)
    home, away = place.ref(), place.ref("far", EDGE)
    async with watching(await operator(api_stack, tmp_path), doorbell) as engine:
        await until(lambda: engine.engaged.get(EDGE))
        near = await place.order()
        await woken(doorbell, home)
        far = await place.order("far", place.target)
        await woken(doorbell, away)
        await place.order("bystander")
        await woken(doorbell, place.ref("bystander"))

        await place.status(
            KEYSTONE_PROJECT, near, {"observedGeneration": 1, "conditions": [condition("False", "Ready")]}
        )
        await place.status(KEYSTONE_PROJECT, far, {"observedGeneration": 1}, place.target)
        await place.patch(KEYSTONE_PROJECT, "reporting",
            {"metadata": {"finalizers": ["c5c3.io/keystoneproject-teardown"]}},
        )  # fmt: skip
        assert await quiet(doorbell) == [], "our own status and finalizer writes"

        for of in (home, away):
            child = await place.child(f"{of.name}-project", of)
            assert await quiet(doorbell) == [], "our own creation of a child"
            await place.status(KORC_PROJECT, child, {"conditions": [condition("False")]})
            await woken(doorbell, of)
            await place.status(KORC_PROJECT, child, {"conditions": [condition("True")], "id": "1234"})
            await woken(doorbell, of)
            await place.delete(KORC_PROJECT, child)
            await woken(doorbell, of)

        await wakes_by_reference(place, doorbell, KEYSTONE_ROLE_ASSIGNMENT, {})
        await wakes_by_reference(place, doorbell, KEYSTONE_APPLICATION_CREDENTIAL, {})

        plane = await place.create_plane()
        everyone = {home, away, place.ref("bystander")}
        await woken(doorbell, *everyone)
        await place.status(CONTROL_PLANE, plane, {"conditions": [condition("False", "AdminCredentialReady")]})
        await woken(doorbell, *everyone)
        other = [condition("False", "AdminCredentialReady", message="other words"), condition("True", "Ready")]
        await place.status(CONTROL_PLANE, plane, {"conditions": other})
        assert await quiet(doorbell) == [], "a status of the plane's that no gate reads"
        await place.status(CONTROL_PLANE, plane, {"conditions": [condition("True", "AdminCredentialReady")]})
        await woken(doorbell, *everyone)
        await place.delete(CONTROL_PLANE, plane)
        await woken(doorbell, *everyone)
        await place.patch(KEYSTONE_PROJECT, "reporting", {"metadata": {"finalizers": None}})
        assert engine.stale(90) == []


async def wakes_by_reference(place: Place, doorbell: Mine, kind: Kind, spec: Object) -> None:
    """An order that names a project wakes that of its own cluster when it comes and when it goes, not in between."""
    spec = {
        "controlPlaneRef": {"name": place.plane, "namespace": PLANE_NAMESPACE},
        "userRef": {"name": "u"}, "projectRef": {"name": "far"}, **spec,
    }  # fmt: skip
    if kind == KEYSTONE_ROLE_ASSIGNMENT:
        spec["role"] = "member"
    for cluster, of in ((place.target, place.ref("far", EDGE)), (place.management, place.ref("far"))):
        made = await place.create(
            kind, {"metadata": {"name": "naming", "namespace": place.namespace}, "spec": spec}, cluster
        )
        await woken(doorbell, of)
        await place.patch(kind, "naming", {"metadata": {"labels": {"a": "b"}}}, cluster)
        assert await quiet(doorbell) == []
        await place.delete(kind, made, cluster)
        await woken(doorbell, of)


@pytest.mark.row("S18")
async def test_an_order_that_goes_without_our_finalizer_is_left_alone(
    api_stack: Stack, place: Place, tmp_path: Path
) -> None:
    doorbell = Mine(place.namespace)
    made = await place.order(finalizers=["example.com/foreign"])
    await place.delete(KEYSTONE_PROJECT, made)
    async with watching(await operator(api_stack, tmp_path), doorbell):
        await until(lambda: doorbell.rings)
        assert not doorbell.started(place.ref()), "nothing is started for it after a cold start"
        await place.patch(KEYSTONE_PROJECT, "reporting", {"metadata": {"labels": {"a": "b"}}})
        await quiet(doorbell)
        assert not any(start for _, _, start in doorbell.rings)
        held = await place.management.get(KEYSTONE_PROJECT, place.namespace, "reporting")
        assert held
        assert held["metadata"]["finalizers"] == ["example.com/foreign"]
        await place.patch(KEYSTONE_PROJECT, "reporting", {"metadata": {"finalizers": None}})
        await quiet(doorbell)
    assert not any(start for _, _, start in doorbell.rings)


async def test_the_operators_rights_are_enough_to_start(api_stack: Stack, tmp_path: Path) -> None:
    cluster = await operator(api_stack, tmp_path)
    await check_cluster(cluster, WatcherSettings())
    await cluster.close()


async def test_what_may_not_be_listed_is_named_in_one_sentence(api_stack: Stack, tmp_path: Path) -> None:
    cluster = await stranger(api_stack, tmp_path)
    with pytest.raises(CannotStart) as error:
        await check_cluster(cluster, WatcherSettings())
    for missing in ("keystoneprojects.c5c3.io", "controlplanes.c5c3.io", "projects.openstack.k-orc.cloud",
                    "secrets in namespace c5c3-clusters", "deploy/rbac"):  # fmt: skip
        assert missing in str(error.value)
    await cluster.close()


async def stranger(stack: Stack, folder: Path) -> Cluster:
    """The management cluster for somebody who may do nothing on it."""
    path = "/api/v1/namespaces/c5c3-system/serviceaccounts/default/token"
    token: str = (await kube.call(stack, "management", "POST", path, {"spec": {}}))["status"]["token"]
    text = kube.kubeconfig(stack, "management", "operator").read_text()
    config = folder / "stranger"
    old = (await asyncio.to_thread((stack.folder / "kube" / "operator.token").read_text)).strip()
    assert old in text
    config.write_text(text.replace(old, token))
    return await connect_management(config)


async def test_the_lease_changes_hands_on_a_real_api_server(api_stack: Stack, tmp_path: Path) -> None:
    cluster = await operator(api_stack, tmp_path)
    terms: list[str] = []

    async def lead(name: str) -> None:
        terms.append(name)
        await asyncio.sleep(3600)

    def replica(name: str) -> tuple[Leader, asyncio.Task[None]]:
        leader = Leader(cluster, "c5c3-system", name, duration=3, renew=1)
        return leader, asyncio.ensure_future(leader.run(lambda: lead(name)))

    (one, first), (_, second) = replica("one"), replica("two")
    await until(lambda: terms)
    if terms == ["two"]:
        first, second = second, first
    await asyncio.sleep(2)
    assert len(terms) == 1
    first.cancel()
    await asyncio.wait([first])
    await until(lambda: len(terms) == 2)
    assert set(terms) == {"one", "two"}
    second.cancel()
    await asyncio.wait([second])
    await one.release()
    await cluster.close()
