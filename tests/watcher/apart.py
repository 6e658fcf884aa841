"""Real API servers as the watcher and its neighbours see them: by the operator's own rights, and by the admin's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from activities.cluster import CONTROL_PLANE, KEYSTONE_PROJECT, KORC_PROJECT, Cluster, Kind
from activities.clusters import connect_management
from activities.errors import ClusterError, Conflict
from deploy.local import kube
from deploy.local.part import Stack
from tests.product import alone
from tests.watcher.objects import Recorder, ref, until
from tests.watcher.running import running
from watcher.dispatch import Rates
from watcher.doorbell import Doorbell
from watcher.engine import Engine
from watcher.mapping import Plane
from watcher.stream import Pace
from workflows.scaffold.order import OrderRef

Object = dict[str, Any]
T = TypeVar("T")
NAMESPACE = Kind("", "v1", "namespaces", "Namespace")
PLANE_NAMESPACE = "openstack"
RATES = Rates(fold=0.2, hold=0, cold=200, first_pause=0.05, longest_pause=0.5)


async def admin(stack: Stack, cluster: str = "management") -> Cluster:
    return await connect_management(kube.kubeconfig(stack, cluster))


async def operator(stack: Stack, folder: Path, port: int | None = None) -> Cluster:
    """The management cluster with exactly the operator's rights, through another local port if one is given."""
    config = kube.kubeconfig(stack, "management", "operator")
    if port:
        content = yaml.safe_load(config.read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        config = folder / "kubeconfig"
        config.write_text(yaml.safe_dump(content))
    return await connect_management(config)


def api_port(stack: Stack) -> int:
    content = yaml.safe_load(kube.kubeconfig(stack, "management", "operator").read_text())
    return int(content["clusters"][0]["cluster"]["server"].rpartition(":")[2])


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks again what a loaded API server did not answer in time: the test's own requests prove nothing."""
    for _ in range(12):
        try:
            return await ask()
        except ClusterError as error:
            if not error.passing or isinstance(error, Conflict):
                raise
            await asyncio.sleep(0.5)
    return await ask()


async def created(cluster: Cluster, kind: Kind, body: Object) -> Object:
    meta = body["metadata"]
    try:
        return await patiently(lambda: cluster.create(kind, body))
    except Conflict:  # an earlier try was heard after all
        found = await patiently(lambda: cluster.get(kind, meta.get("namespace"), meta["name"]))
        assert found
        return found


class Place:
    """Objects of one test, in namespaces of its own, on both clusters."""

    def __init__(self, management: Cluster, target: Cluster) -> None:
        self.management = management
        self.target = target
        self.namespace = f"watched-{uuid.uuid4().hex[:8]}"
        self.plane = f"cp-{uuid.uuid4().hex[:8]}"
        self._made: list[tuple[Cluster, Kind, Object]] = []

    def ref(self, name: str = "reporting", cluster: str = "") -> OrderRef:
        return ref(name, self.namespace, cluster)

    async def create(self, kind: Kind, body: Object, cluster: Cluster | None = None) -> Object:
        made = await created(cluster or self.management, kind, body)
        self._made.append((cluster or self.management, kind, made))
        return made

    async def order(self, name: str = "reporting", cluster: Cluster | None = None, **meta: Any) -> Object:
        spec = {"controlPlaneRef": {"name": self.plane, "namespace": PLANE_NAMESPACE}}
        body = {"metadata": {"name": name, "namespace": self.namespace, **meta}, "spec": spec}
        return await self.create(KEYSTONE_PROJECT, body, cluster)

    async def create_plane(self) -> Object:
        meta = {"name": self.plane, "namespace": PLANE_NAMESPACE}
        spec = {"openStackRelease": "2026.2", "infrastructure": {}}
        return await self.create(CONTROL_PLANE, {"metadata": meta, "spec": spec})

    async def child(self, name: str, of: OrderRef) -> Object:
        labels = {"c5c3.io/keystoneproject-name": of.name, "c5c3.io/keystoneproject-namespace": of.namespace,
                  "c5c3.io/keystoneproject-cluster": of.cluster}  # fmt: skip
        spec = {
            "cloudCredentialsRef": {"cloudName": "x", "secretName": "x"},
            "managementPolicy": "managed",
            "resource": {"name": name},
        }
        meta = {"name": name, "namespace": self.namespace, "labels": labels}
        return await self.create(KORC_PROJECT, {"metadata": meta, "spec": spec})

    async def status(self, kind: Kind, found: Object, status: Object, cluster: Cluster | None = None) -> Object:
        meta = found["metadata"]
        to, body = cluster or self.management, {"status": status}
        return await patiently(lambda: to.patch(kind, meta["namespace"], meta["name"], body, sub="status"))

    async def patch(self, kind: Kind, name: str, body: Object, cluster: Cluster | None = None) -> Object:
        to = cluster or self.management
        return await patiently(lambda: to.patch(kind, self.namespace, name, body))

    async def delete(self, kind: Kind, found: Object, cluster: Cluster | None = None) -> None:
        meta = found["metadata"]
        of = cluster or self.management
        await patiently(lambda: of.delete(kind, meta["namespace"], meta["name"], meta["uid"]))

    async def clear(self) -> None:
        await asyncio.gather(*(self.delete(kind, found, cluster) for cluster, kind, found in self._made))
        await self.management.close()
        await self.target.close()


@asynccontextmanager
async def place_on(stack: Stack) -> AsyncIterator[Place]:
    await alone(stack)
    place = Place(await admin(stack), await admin(stack, "target"))
    for cluster in (place.management, place.target):
        await created(cluster, NAMESPACE, {"metadata": {"name": place.namespace}})
    try:
        yield place
    finally:
        await place.clear()


class Mine(Recorder):
    """A doorbell that hears of some namespaces' orders only: others test on the same API server."""

    def __init__(self, *namespaces: str) -> None:
        super().__init__()
        self.namespaces = namespaces

    async def ring(self, ref: OrderRef, plane: Plane | None) -> str:
        return await super().ring(ref, plane) if ref.namespace in self.namespaces else "rung"

    def take(self) -> list[OrderRef]:
        """The rings since the last time."""
        rung, self.rings = self.rung, []
        return rung


@asynccontextmanager
async def watching(
    cluster: Cluster, doorbell: Doorbell, pace: Pace | None = None, rates: Rates = RATES
) -> AsyncIterator[Engine]:
    """The active replica, once everything it counts was heard."""
    try:
        async with running(Engine(cluster, doorbell, "c5c3-clusters", rates=rates, pace=pace)) as engine:
            await until(lambda: not engine.stale(90))
            yield engine
    finally:
        await cluster.close()


async def quiet(doorbell: Mine, seconds: float = 1.0) -> Sequence[OrderRef]:
    """What was rung, once nothing was for so long."""
    rung: list[OrderRef] = []
    while True:
        await asyncio.sleep(seconds)
        if not (more := doorbell.take()):
            return rung
        rung += more


async def woken(doorbell: Mine, *orders: OrderRef) -> None:
    """These orders were rung, and then nobody else."""
    await until(lambda: set(orders) <= set(doorbell.rung))
    assert set(await quiet(doorbell)) == set(orders)
