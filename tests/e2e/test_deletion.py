"""Deletion on real parts: what holds it, in which order children go, and what it never touches."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus

from deploy.local import kube
from deploy.local.api import ApiError
from tests.audit import requests
from tests.e2e.stage import CHILDREN, FINALIZER, Object, Order, Plane, Stage, condition, reason, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]

ASSIGNMENTS, CREDENTIALS = "keystoneroleassignments.c5c3.io", "keystoneapplicationcredentials.c5c3.io"
CRD = "customresourcedefinitions.apiextensions.k8s.io"


def naming(order: Order, kind: str, name: str, **spec: object) -> Object:
    """An object beside the order that names it as its project."""
    plane = {"name": order.plane.name, "namespace": order.plane.namespace}
    return {
        "apiVersion": "c5c3.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": order.namespace},
        "spec": {
            "controlPlaneRef": plane, "userRef": {"name": "somebody"}, "projectRef": {"name": order.name}, **spec,
        },
    }  # fmt: skip


async def asks_to_wait(order: Order) -> Object:
    """The order while it is being deleted and cannot go: it is there, and `Ready` says what it waits for."""
    found = await until(
        order.live, lambda live: condition(live, "Ready").get("message", "").startswith("Deletion waits"), 60
    )
    assert found is not None
    return found


@pytest.mark.row("P08")
@pytest.mark.row("T11")
async def test_references_hold_a_deletion_and_it_goes_on_by_itself(real_stack: Stage, place: Place) -> None:
    order = await place("held").place()
    live = await order.is_ready()
    project, (served,) = live["status"]["projectID"], await order.open_runs()
    here = real_stack.stack
    await kube.apply(here, "management", [
        naming(order, "KeystoneRoleAssignment", f"{order.name}-b", role="member"),
        naming(order, "KeystoneRoleAssignment", f"{order.name}-a", role="member"),
        naming(order, "KeystoneApplicationCredential", f"{order.name}-c"),
    ])  # fmt: skip
    await order.delete()

    said = await order.reads("ReferencedByRoleAssignments")
    assert f"'{order.name}-a', '{order.name}-b'" in said["message"]
    held = await order.managed()
    assert held is not None
    assert "deletionTimestamp" not in held["metadata"]
    assert [row["id"] for row in await order.rows()] == [project]

    # Teardown is a type of its own under the same id; the provisioning run ended before it began.
    (teardown,) = await until(order.open_runs, lambda runs: len(runs) == 1, 10)
    assert (teardown.id, teardown.workflow_type) == (order.workflow_id, "KeystoneProjectTeardown")
    (before,) = [run for run in await order.runs() if run.run_id == served.run_id]
    assert before.workflow_type == "KeystoneProject"
    assert before.status is WorkflowExecutionStatus.CONTINUED_AS_NEW
    assert before.close_time is not None
    assert before.close_time <= teardown.start_time

    await real_stack.delete("management", ASSIGNMENTS, order.namespace, f"{order.name}-a")
    await until(order.live, lambda live: "-a'" not in condition(live, "ProjectReady")["message"], 15)
    await real_stack.delete("management", ASSIGNMENTS, order.namespace, f"{order.name}-b")
    said = await order.reads("ReferencedByApplicationCredentials", seconds=15)
    assert f"'{order.name}-c'" in said["message"]
    assert [row["id"] for row in await order.rows()] == [project]

    await real_stack.delete("management", CREDENTIALS, order.namespace, f"{order.name}-c")
    await order.gone(30)
    await order.left_nothing()
    spans = sorted((run.start_time, run.close_time) for run in await order.runs() if run.close_time)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans)), "runs overlapped"


async def test_an_order_deleted_the_moment_it_was_placed_leaves_nothing(place: Place) -> None:
    """The deletion arrives while the provisioning pass runs, a little later for each of them."""
    orders = [place("brief") for _ in range(6)]

    async def brief(order: Order, pause: float) -> None:
        await order.place()
        await asyncio.sleep(pause)
        await order.delete()
        await order.gone(90)
        await order.left_nothing()

    await asyncio.gather(*(brief(order, 0.25 * number) for number, order in enumerate(orders)))


@pytest.mark.row("P09")
async def test_the_managed_project_goes_before_a_probe(real_stack: Stage, place: Place) -> None:
    """A probe that was left behind (by a crash, say) is deleted too, after the managed Project."""
    order = await place("leftover").place()
    await order.is_ready()
    meta = {"name": order.probe, "namespace": "openstack", "labels": order.labels}
    spec: Object = {
        "managementPolicy": "unmanaged",
        "cloudCredentialsRef": {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"},
        "import": {"filter": {"name": order.name, "domainRef": "cp-domain-default"}},
    }
    probe = {"apiVersion": "openstack.k-orc.cloud/v1alpha1", "kind": "Project", "metadata": meta, "spec": spec}
    await kube.apply(real_stack.stack, "management", [probe])
    await until(order.asked, kube.condition("Available"))
    await order.delete()
    await order.gone()
    await order.left_nothing()
    deleted = [
        request.name
        for request in requests(real_stack.stack, "management", real_stack.begun)
        if request.verb == "delete" and request.name in (order.child, order.probe)
    ]
    # The first delete is the probe of the order's own beginning.
    assert deleted[1:] == [order.child, order.probe]


@pytest_asyncio.fixture
async def own_plane(real_stack: Stage) -> AsyncIterator[Plane]:
    """A plane that a test may break: the local one's spec under another name."""
    plane = Plane(unique("cp"), unique("plane"))
    spec: Object = {
        "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
        "services": {"keystone": {"mode": "Managed"}},
    }
    await real_stack.plane(plane, spec, "team-b")
    yield plane
    await real_stack.drop_plane(plane)


@pytest.mark.row("P09")
async def test_deletion_is_patient_with_a_plane_and_fails_open_without(
    real_stack: Stage, place: Place, own_plane: Plane
) -> None:
    """One order of a plane that stays and one of a plane that goes, both deleted while Keystone does not answer."""
    patient, orphan = place("patient"), place("orphan", namespace="team-b", plane=own_plane)
    await asyncio.gather(patient.place(), orphan.place())
    await asyncio.gather(patient.is_ready(), orphan.is_ready())
    rows = [*await patient.rows(), *await orphan.rows()]
    assert len(rows) == 2

    async with real_stack.without("keystone"):
        await asyncio.gather(patient.delete(), orphan.delete())
        for order in (patient, orphan):
            live = await asks_to_wait(order)
            assert order.child in condition(live, "Ready")["message"]
            assert FINALIZER in live["metadata"]["finalizers"]

        # K-ORC's own words reach the person who wonders.
        await until(patient.live, lambda live: "connection refused" in condition(live, "Ready").get("message", ""), 45)

        await real_stack.delete("management", "controlplanes.c5c3.io", own_plane.namespace, own_plane.name)
        await orphan.gone(30)
        left = await orphan.managed()
        assert left is not None
        assert "deletionTimestamp" in left["metadata"], "the deletes are issued all the same"
        assert await patient.live() is not None

    await patient.gone(150)
    await patient.left_nothing()
    await until(orphan.managed, lambda child: child is None, 150)
    assert await orphan.rows() == []


@pytest.mark.row("S28")
async def test_a_plane_kind_that_is_not_served_releases_no_finalizer(real_stack: Stage, place: Place) -> None:
    """The definition stops being served while an order is deleted; nothing reads that as a plane that is gone."""
    order = await place("unserved").place()
    await order.is_ready()

    async def serve(served: bool) -> None:
        crd = await kube.get(real_stack.stack, "management", CRD, None, "controlplanes.c5c3.io")
        assert crd is not None
        versions = [{**version, "served": served} for version in crd["spec"]["versions"]]
        change = {"spec": {"versions": versions}}
        await kube.patch(real_stack.stack, "management", CRD, None, "controlplanes.c5c3.io", change)

        async def answers() -> bool:
            path = "/apis/c5c3.io/v1alpha1/namespaces/openstack/controlplanes/cp"
            try:
                await kube.call(real_stack.stack, "management", "GET", path)
            except ApiError:
                return False
            return True

        await until(answers, lambda seen: seen is served, 20)

    try:
        await serve(False)
        await order.delete()
        live = await until(order.live, lambda live: "not serve" in str((live or {}).get("status")) or live is None, 60)
        assert live is not None, "the finalizer was released although nobody knows whether the plane exists"
        assert FINALIZER in live["metadata"]["finalizers"]
        held = await order.managed()
        assert held is not None
        assert "deletionTimestamp" not in held["metadata"]
    finally:
        await serve(True)
    await order.gone(120)
    await order.left_nothing()


async def test_a_withdrawn_assignment_freezes_and_deletion_still_tears_down(
    real_stack: Stage, place: Place, own_plane: Plane
) -> None:
    order = await place("frozen", namespace="team-b", plane=own_plane).place()
    live = await order.is_ready()
    change: Object = {"spec": {"namespaceAssignments": []}}
    where = (real_stack.stack, "management", "controlplanes.c5c3.io", own_plane.namespace, own_plane.name)
    await kube.patch(*where, change)
    await order.reads("NamespaceNotAssigned")
    frozen = await order.live()
    assert frozen is not None
    assert frozen["status"]["projectID"] == live["status"]["projectID"]
    assert len(await order.rows()) == 1
    assert reason(frozen) == "NamespaceNotAssigned"

    await order.delete()
    await order.gone()
    await order.left_nothing()
    assert await kube.items(real_stack.stack, "management", CHILDREN, own_plane.namespace) == []
