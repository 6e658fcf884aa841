"""A plane, its namespaces and its orders on the real API servers, for one test, and the steps called as Temporal would.

Everything of a test lives in namespaces of its own, so tests neither meet nor clean up after each other. The product's
steps run with the operator's own rights; the admin's hand only arranges and looks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import yaml
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster import (
    CONTROL_PLANE,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    KINDS,
    KORC_PROJECT,
    LEASE,
    ORDER_KINDS,
    Cluster,
    Kind,
    Object,
)
from activities.clusters import Clusters, connect_management, connect_target
from activities.errors import ClusterError, NotServed
from activities.keystoneproject import KeystoneProjects
from activities.keystoneservice import KeystoneServices
from activities.orders import KindSteps, Orders
from deploy.local import kube
from deploy.local.part import Stack
from tests.audit import Audit
from tests.korc_by_hand import KorcByHand
from workflows.keystoneproject import children, reasons
from workflows.scaffold import conditions
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Admitted, Removal, Report, State, Task
from workflows.scaffold.verdict import Outcome

NAMESPACE = Kind("", "v1", "namespaces", "Namespace")
CRD = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
REGISTRATIONS = "c5c3-clusters"
TARGET = "edge-1"
DEPLOY = Path(__file__).parents[1] / "deploy"

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


async def run(
    step: Callable[Parameters, Coroutine[Any, Any, Answer]], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Answer:
    """One attempt of a step, the first."""
    return await run_attempt(1, step, *args, **kwargs)


async def run_attempt(
    attempt: int,
    step: Callable[Parameters, Coroutine[Any, Any, Answer]],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Answer:
    """One attempt of a step, whichever."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, attempt=attempt, scheduled_time=datetime.now(UTC))
    return await environment.run(step, *args, **kwargs)


async def retried(
    step: Callable[Parameters, Coroutine[Any, Any, Answer]], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Answer:
    """Attempts as Temporal makes them: until success or an error that says not to, without its pauses."""
    for attempt in range(1, 6):
        try:
            return await run_attempt(attempt, step, *args, **kwargs)
        except ApplicationError as error:
            if error.non_retryable:
                raise
    return await run_attempt(6, step, *args, **kwargs)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    """Looks until it holds; past the limit it is an error."""
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, f"it did not come to hold within {seconds:g} s"
        await asyncio.sleep(0.05)


@dataclass
class World:
    """One test's part of the two clusters.

    admin, target  the clusters by the admin's hand
    clusters       the same as the product reaches them
    plane_ns, order_ns  namespaces of this test alone; `order_ns` is there on both clusters
    """

    stack: Stack
    admin: Cluster
    target: Cluster
    clusters: Clusters
    plane_ns: str
    order_ns: str
    korc: KorcByHand
    audit: Audit

    def __post_init__(self) -> None:
        self.projects = KeystoneProjects(self.clusters)
        self.services = KeystoneServices(self.clusters)
        self.kinds: dict[str, KindSteps] = {"KeystoneProject": self.projects, "KeystoneService": self.services}
        self.orders = Orders(self.clusters, self.kinds)

    # -- arranging ----------------------------------------------------------------------------------------------

    async def plane(
        self,
        *,
        assigned: bool = True,
        credential: bool = True,
        external: bool = False,
        name: str = "cp",
        clusters: tuple[str, ...] = ("", TARGET),
        **spec: Any,
    ) -> Object:
        """A ControlPlane, assigning the test's namespace on these clusters."""
        keystone: Object = {"mode": "Managed"}
        if external:
            keystone = {"mode": "External", "external": {"authURL": "https://keystone.example.org/v3"}}
        body = {
            "metadata": {"name": name, "namespace": self.plane_ns},
            "spec": {
                "openStackRelease": "2025.2",
                "services": {"keystone": keystone},
                "namespaceAssignments": self.entries(*clusters) if assigned else [],
                "korc": {
                    "adminCredential": {
                        "cloudCredentialsRef": {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"},
                        "userName": "admin",
                        "projectName": "admin",
                        "domainName": "Default",
                    }
                },
                **({} if external else {"infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}}}),
                **spec,
            },
        }
        await self.admin.create(CONTROL_PLANE, body)
        return await self.credential(credential, name=name)

    def entries(self, *clusters: str) -> list[Object]:
        return [
            {"namespace": self.order_ns, **({"targetClusterRef": {"name": cluster}} if cluster else {})}
            for cluster in clusters
        ]

    async def assign(self, *clusters: str, name: str = "cp") -> None:
        """Makes these clusters, and no others, the ones the test's namespace is assigned on."""
        body = {"spec": {"namespaceAssignments": self.entries(*clusters)}}
        await self.admin.patch(CONTROL_PLANE, self.plane_ns, name, body)

    async def credential(self, ready: bool, *, name: str = "cp") -> Object:
        condition = {
            "type": "AdminCredentialReady",
            "status": "True" if ready else "False",
            "reason": "AdminCredentialReady" if ready else "WaitingForKORC",
            "message": "",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return await self.admin.patch(
            CONTROL_PLANE, self.plane_ns, name, {"status": {"conditions": [condition]}}, sub="status"
        )

    async def order(
        self,
        name: str = "reporting",
        project: str | None = None,
        *,
        cluster: str = "",
        plane: str = "cp",
        finalizers: tuple[str, ...] = (),
        annotations: dict[str, str] | None = None,
    ) -> OrderRef:
        """An order in the test's namespace."""
        body: Object = {
            "metadata": {
                "name": name,
                "namespace": self.order_ns,
                "finalizers": list(finalizers),
                "annotations": annotations or {},
            },
            "spec": {"controlPlaneRef": {"name": plane, "namespace": self.plane_ns}},
        }
        if project is not None:
            body["spec"]["projectName"] = project
        await self.home(cluster).create(KEYSTONE_PROJECT, body)
        return OrderRef(kind="KeystoneProject", cluster=cluster, namespace=self.order_ns, name=name)

    def home(self, cluster: str) -> Cluster:
        return self.target if cluster else self.admin

    async def annotate(self, ref: OrderRef, key: str, value: str | None) -> Object:
        body = {"metadata": {"annotations": {key: value}}}
        return await self.home(ref.cluster).patch(ORDER_KINDS[ref.kind], ref.namespace, ref.name, body)

    async def delete(self, ref: OrderRef) -> None:
        live = await self.live(ref)
        await self.home(ref.cluster).delete(ORDER_KINDS[ref.kind], ref.namespace, ref.name, live["metadata"]["uid"])

    async def delete_plane(self, name: str = "cp") -> None:
        live = await self.admin.get(CONTROL_PLANE, self.plane_ns, name)
        assert live is not None
        await self.admin.delete(CONTROL_PLANE, self.plane_ns, name, live["metadata"]["uid"])

    async def child(self, name: str, body: Object) -> Object:
        """An object at that name in the plane's namespace, made by somebody else."""
        meta = {**body.get("metadata", {}), "name": name, "namespace": self.plane_ns}
        return await self.admin.create(KORC_PROJECT, {**body, "metadata": meta})

    # -- looking ------------------------------------------------------------------------------------------------

    async def find(self, ref: OrderRef) -> Object | None:
        return await self.home(ref.cluster).get(ORDER_KINDS[ref.kind], ref.namespace, ref.name)

    async def live(self, ref: OrderRef) -> Object:
        found = await self.find(ref)
        assert found is not None, f"{ref.key} is gone"
        return found

    async def conditions(self, ref: OrderRef) -> dict[str, Object]:
        live = await self.live(ref)
        return {each["type"]: each for each in (live.get("status") or {}).get("conditions") or []}

    async def reason(self, ref: OrderRef) -> str:
        return str((await self.conditions(ref))["ProjectReady"]["reason"])

    async def children(self) -> list[Object]:
        """Every K-ORC Project in the plane's namespace."""
        return list((await self.admin.list(KORC_PROJECT, self.plane_ns))["items"])

    async def names(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in await self.children())

    async def leases(self) -> list[Object]:
        return list((await self.admin.list(LEASE, self.plane_ns))["items"])

    # -- the product's steps ------------------------------------------------------------------------------------

    async def task(self, ref: OrderRef) -> Task:
        """What `admit` hands to the kind's step, which it does not take itself where the finalizer is on already."""
        meta = (await self.live(ref))["metadata"]
        finalizer = self.kinds[ref.kind].finalizer
        if finalizer not in (finalizers := meta.get("finalizers") or []):
            body = {"metadata": {"finalizers": [*finalizers, finalizer]}}
            await self.home(ref.cluster).patch(ORDER_KINDS[ref.kind], ref.namespace, ref.name, body)
        admitted = await run(self.orders.admit, ref)
        assert admitted.state is State.PRESENT, admitted
        assert not admitted.refused, admitted.refused
        assert not admitted.trouble, admitted.trouble
        return Task(ref=ref, order=admitted.order, plane=admitted.plane)

    async def removal(self, ref: OrderRef) -> Task:
        """What `examine` hands to the teardown's steps."""
        examined = await run(self.orders.examine, ref)
        assert examined.state is State.DELETING, examined
        assert not examined.trouble, examined.trouble
        return Task(ref=ref, order=examined.order, plane=examined.plane)

    async def one_pass(self, ref: OrderRef) -> Admitted:
        """A pass as the workflow walks it, with the real steps and without Temporal."""
        admitted = await run(self.orders.admit, ref)
        assert admitted.state is State.PRESENT, admitted
        assert not admitted.trouble, admitted.trouble
        if admitted.refused:
            outcome = Outcome(verdicts=admitted.refused)
        elif admitted.found is not None:
            outcome = admitted.found
        else:
            task = Task(ref=ref, order=admitted.order, plane=admitted.plane)
            outcome = await retried(self.projects.provision_project, task)
        await self.report(ref, admitted, outcome, admitted.order.paused)
        return admitted

    async def report(self, ref: OrderRef, seen: Admitted, outcome: Outcome, note: str = "") -> bool | None:
        """Writes the status as the workflow would; None when it says so already."""
        order = seen.order
        patch = conditions.changes(
            order.status, order.generation, reasons.CONDITIONS, outcome.verdicts, outcome.fields, note,
            datetime.now(UTC),
        )  # fmt: skip
        if patch is None:
            return None
        report = Report(ref=ref, uid=order.uid, resource_version=order.resource_version, status=patch)
        return await run(self.orders.report, report)

    async def ready(self, name: str = "reporting", project: str | None = None, *, cluster: str = "") -> OrderRef:
        """An order that was provisioned by the product, K-ORC playing along."""
        ref = await self.order(name, project, cluster=cluster)
        async with self.korc.playing():
            await self.passes_until(ref, reasons.PROVISIONED)
            await self.probe_gone(ref)
        return ref

    async def probe_gone(self, ref: OrderRef) -> None:
        """K-ORC lets go of a deleted probe in its own time, an order may be Ready before."""

        async def gone() -> bool:
            return self.probe_of(ref) not in await self.names()

        await until(gone)

    async def passes_until(self, ref: OrderRef, reason: str, seconds: float = 60) -> None:
        """Passes until the order reads so; the first is enough unless K-ORC, or this machine, is slow."""
        async with asyncio.timeout(seconds):
            await self.one_pass(ref)
            while await self.reason(ref) != reason:
                await self.one_pass(ref)

    async def removed(self, ref: OrderRef, seconds: float = 60) -> None:
        """Deletes the order and tears it down, K-ORC playing along, until it is gone."""
        await self.delete(ref)
        async with self.korc.playing(), asyncio.timeout(seconds):
            while await self.find(ref) is not None:
                await self.torn_down(ref)

    async def torn_down(self, ref: OrderRef) -> Removal:
        """A teardown's pass: what is left, after the release if nothing is."""
        task = await self.removal(ref)
        removal = await retried(self.projects.remove_project, task)
        if not removal.left and not removal.held:
            await run(self.orders.release, task)
        return removal

    def project_of(self, ref: OrderRef) -> str:
        return children.project_name(ref)

    def probe_of(self, ref: OrderRef) -> str:
        return children.probe_name(ref)


@asynccontextmanager
async def made(stack: Stack, through: Callable[[Cluster], Cluster] = lambda cluster: cluster) -> AsyncIterator[World]:
    """A world for one test; it is swept when the test ends, whatever its finalizers say.

    through  what the product's connection to the management cluster is led through
    """
    mark = uuid.uuid4().hex[:8]
    admin = await connect_management(kube.kubeconfig(stack, "management"))
    target = await connect_target("target", await asyncio.to_thread(kube.kubeconfig(stack, "target").read_bytes))
    operator = await connect_management(kube.kubeconfig(stack, "management", "operator"))
    plane_ns, order_ns = f"plane-{mark}", f"orders-{mark}"
    for cluster, name in ((admin, plane_ns), (admin, order_ns), (target, order_ns)):
        await cluster.create(NAMESPACE, {"metadata": {"name": name}})
    world = World(
        stack=stack, admin=admin, target=target, clusters=Clusters(through(operator), REGISTRATIONS),
        plane_ns=plane_ns, order_ns=order_ns, korc=KorcByHand(admin, plane_ns), audit=Audit(stack),
    )  # fmt: skip
    try:
        yield world
    finally:
        await _swept(world)
        await world.clusters.close()
        await target.close()
        await admin.close()


async def _swept(world: World) -> None:
    """What is left goes, whatever its finalizers say. The namespaces stay: to end one, Kubernetes asks for every kind
    that is served, hundreds of requests each, and for ever if an order in it has kept its finalizer."""
    kinds = (
        *KINDS.values(),
        *ORDER_KINDS.values(),
        CONTROL_PLANE,
        KEYSTONE_ROLE_ASSIGNMENT,
        KEYSTONE_APPLICATION_CREDENTIAL,
    )
    places = ((world.admin, world.plane_ns), (world.admin, world.order_ns), (world.target, world.order_ns))
    await asyncio.gather(*(_emptied(cluster, kind, where) for cluster, where in places for kind in kinds))


async def _emptied(cluster: Cluster, kind: Kind, namespace: str) -> None:
    try:
        found = (await cluster.list(kind, namespace))["items"]
    except NotServed:
        return
    for meta in (item["metadata"] for item in found):
        held = await cluster.delete(kind, namespace, meta["name"], meta["uid"])
        if held:
            body = {"metadata": {"uid": meta["uid"], "finalizers": None}}
            try:
                await cluster.patch(kind, namespace, meta["name"], body)
            except ClusterError as error:
                if error.status not in (404, 409):  # whoever held it has let it go meanwhile
                    raise


def definition(file: str) -> Object:
    """A CustomResourceDefinition of this repository."""
    found: Object = yaml.safe_load((DEPLOY / "crds" / file).read_text())
    return found
