"""What keeps the worker from starting, on real API servers: each one sentence with the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.cluster import Cluster
from activities.clusters import connect_management
from deploy.local import kube, pki
from deploy.local.part import Stack
from worker import checks
from worker.checks import REFERENCE_LEASE, CannotStart, check_cluster
from worker.settings import WorkerSettings

pytestmark = pytest.mark.api

NAMESPACE = "c5c3-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@asynccontextmanager
async def cluster_of(kubeconfig: Path) -> AsyncIterator[Cluster]:
    cluster = await connect_management(kubeconfig)
    try:
        yield cluster
    finally:
        await cluster.close()


async def refusal(kubeconfig: Path, settings: WorkerSettings | None = None) -> str:
    async with cluster_of(kubeconfig) as cluster:
        with pytest.raises(CannotStart) as error:
            await check_cluster(cluster, settings or WorkerSettings(kubeconfig=kubeconfig), patience=1)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
async def lease(api_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lease]:
    monkeypatch.setattr(checks, "_RENEWED_WITHIN", 3.0)
    yield Lease(api_stack)
    await kube.call(api_stack, "management", "DELETE", f"{LEASES}/{REFERENCE_LEASE}")


class Lease:
    """The reference operator's Lease, as its leader writes it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def renew(self, holder: str = "c5c3-operator-0_1") -> None:
        spec: dict[str, object] = {"leaseDurationSeconds": 15, "leaseTransitions": 0}
        if holder:
            spec |= {"holderIdentity": holder, "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        meta = {"name": REFERENCE_LEASE, "namespace": NAMESPACE}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        await kube.apply(self._stack, "management", [body])

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        async def go_on() -> None:
            while True:
                await self.renew()
                await asyncio.sleep(0.5)

        await self.renew()
        renewing = asyncio.create_task(go_on())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])


async def test_the_operators_own_rights_are_enough(api_stack: Stack) -> None:
    async with cluster_of(kube.kubeconfig(api_stack, "management", "operator")) as cluster:
        await check_cluster(cluster, WorkerSettings())


async def test_refuses_while_the_reference_operator_renews_its_lease(api_stack: Stack, lease: Lease) -> None:
    operator = kube.kubeconfig(api_stack, "management", "operator")
    async with lease.held():
        said = await refusal(operator)
        async with cluster_of(operator) as cluster:
            await check_cluster(cluster, WorkerSettings(serve_beside_reference=True))
    assert said.startswith(
        "the reference operator is running: c5c3-operator-0_1 renews the Lease c5c3-system/c5c3.openstack.c5c3.io"
    )
    assert "C5C3_SERVE_BESIDE_REFERENCE=true" in said


async def test_the_reference_operator_is_looked_for_where_it_is_and_not_where_we_are(
    api_stack: Stack, lease: Lease
) -> None:
    operator = kube.kubeconfig(api_stack, "management", "operator")
    async with lease.held():
        said = await refusal(operator, WorkerSettings(operator_namespace="elsewhere"))
        async with cluster_of(operator) as cluster:
            await check_cluster(cluster, WorkerSettings(reference_namespace="elsewhere"))
    assert f"renews the Lease {NAMESPACE}/{REFERENCE_LEASE}" in said


async def test_a_lease_that_nobody_renews_is_a_dead_operators(api_stack: Stack, lease: Lease) -> None:
    """However recent its time: it is watched, not compared with a clock."""
    await lease.renew()
    async with cluster_of(kube.kubeconfig(api_stack, "management", "operator")) as cluster:
        await check_cluster(cluster, WorkerSettings())


async def test_a_released_lease_is_nobodys(api_stack: Stack, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_RENEWED_WITHIN", 600.0)
    await lease.renew(holder="")
    async with cluster_of(kube.kubeconfig(api_stack, "management", "operator")) as cluster:
        await asyncio.wait_for(check_cluster(cluster, WorkerSettings()), 10)


async def test_kinds_that_are_not_served(api_stack: Stack) -> None:
    """The target cluster serves the order kinds that live there and nothing of the plane's."""
    said = await refusal(kube.kubeconfig(api_stack, "target"))
    assert said.startswith(
        "the management cluster does not serve KeystoneService (c5c3.io/v1alpha1), ControlPlane (c5c3.io/v1alpha1), "
        "Project (openstack."
    )
    assert "install the CustomResourceDefinitions" in said


async def test_no_permission(api_stack: Stack, tmp_path: Path) -> None:
    pki.client_kubeconfig(api_stack, "management", "nobody", tmp_path / "nobody")
    said = await refusal(tmp_path / "nobody")
    assert said.startswith("no permission to read leases.coordination.k8s.io: bind the roles of deploy/rbac")


async def test_a_login_that_is_not_known(api_stack: Stack, tmp_path: Path) -> None:
    config = kube.kubeconfig(api_stack, "management", "operator").read_text()
    token = (api_stack.folder / "kube" / "operator.token").read_text()
    broken = tmp_path / "broken"
    broken.write_text(config.replace(token, "no-such-token"))
    said = await refusal(broken)
    assert said == f"the management cluster does not know us (401): check the kubeconfig {broken}"


async def test_a_cluster_that_does_not_answer(api_stack: Stack, tmp_path: Path) -> None:
    config = kube.kubeconfig(api_stack, "management", "operator").read_text()
    absent = tmp_path / "absent"
    absent.write_text(config.replace(str(api_stack.ports["management"]), "9"))
    said = await refusal(absent)
    assert said.startswith("the management cluster cannot be used: reading Lease")
    assert said.endswith(f"check the kubeconfig {absent}")
