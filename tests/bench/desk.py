"""The desk at which orders are placed, and made by hand with the very children an order would have.

Both ways write as the same user over the same client, and learn how it went from one watch that was open before the
first write. Neither ever polls for what is timed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from activities.cluster import CONTROL_PLANE, KEYSTONE_PROJECT, KINDS, KORC_PROJECT, LEASE, Cluster, Kind, Object
from activities.clusters import connect_management
from activities.errors import ClusterError
from deploy.local import kube
from deploy.local.part import Stack
from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.keystoneproject import children
from workflows.scaffold import korc
from workflows.scaffold.order import OrderRef

USER = "bench"
NAMESPACE = "team-a"
PLANE = ("openstack", "cp")
LABEL = "bench.c5c3.io/batch"
PATIENCE = 1500.0
"""Seconds that a batch may take."""
_HANDS = 10
"""Writes on their way at once, both ways."""

_SECONDS = 3600


class Unexpected(Exception):
    """An object went another way than the measurement needs."""


class Sight:
    """Every state of the labelled objects of one kind, as a watch tells them."""

    def __init__(self, cluster: Cluster, kind: Kind, namespace: str, labels: Mapping[str, str]) -> None:
        self._cluster, self._kind, self._namespace, self._labels = cluster, kind, namespace, labels
        self._queues: dict[str, asyncio.Queue[Object | None]] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        listed = await self._cluster.list(self._kind, self._namespace, labels=self._labels)
        task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, name: str, holds: Callable[[Object], bool]) -> Object:
        """The first state of the object, from now on, in which it holds."""
        queue = self._queues.setdefault(name, asyncio.Queue())
        async with asyncio.timeout(PATIENCE):
            while True:
                seen = await queue.get()
                if seen is None:
                    raise Unexpected(f"{self._kind.kind} {name} was deleted, or the watch ended")
                if holds(seen):
                    return seen

    async def _follow(self, version: str) -> None:
        """Goes on where it was when the server goes away for a while."""
        while True:
            try:
                events = self._cluster.watch(
                    self._kind, self._namespace, version, labels=self._labels, seconds=_SECONDS
                )
                async for event in events:
                    seen = event["object"]
                    version = seen["metadata"]["resourceVersion"]
                    if event["type"] == "BOOKMARK":
                        continue
                    queue = self._queues.setdefault(seen["metadata"]["name"], asyncio.Queue())
                    queue.put_nowait(None if event["type"] == "DELETED" else seen)
            except ClusterError as error:
                await asyncio.sleep(0.2)
                if error.status == 410:
                    version = await self._all_anew()

    async def _all_anew(self) -> str:
        """The version from which on the server can tell again, after everything there is now was told."""
        listed = await self._cluster.list(self._kind, self._namespace, labels=self._labels)
        for seen in listed["items"]:
            self._queues.setdefault(seen["metadata"]["name"], asyncio.Queue()).put_nowait(seen)
        return str(listed["metadata"]["resourceVersion"])


class Desk:
    """The desk for projects. Use it with `async with`."""

    kind = KEYSTONE_PROJECT
    segment = "keystoneproject"
    made: tuple[Kind, ...] = (KORC_PROJECT,)
    """The kinds of the children that are made by hand beside the plane."""
    beside: tuple[Kind, ...] = ()
    """The same beside the order."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._writing = asyncio.Semaphore(_HANDS)

    async def __aenter__(self) -> Self:
        self.cluster = await connect_management(await kube.grant(self._stack, "management", USER))
        raw = await self.cluster.get(CONTROL_PLANE, *PLANE)
        if raw is None:
            raise Unexpected(f"there is no ControlPlane {'/'.join(PLANE)}")
        self.plane = ControlPlane.model_validate(raw)
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.cluster.close()

    # -- the two ways -------------------------------------------------------------------------------------------

    async def ordered(self, names: Sequence[str], batch: str) -> list[float]:
        """Orders them all; seconds from each one's first write to Ready."""
        async with self.orders(batch) as sight:
            return list(await asyncio.gather(*(self._ordered(sight, name, batch) for name in names)))

    async def by_hand(self, names: Sequence[str], batch: str) -> list[float]:
        """Makes for each the children that an order would have, as K-ORC's documentation has it, by one script."""
        labels = {LABEL: batch}
        async with AsyncExitStack() as stack:
            sights = {
                kind.kind: await stack.enter_async_context(Sight(self.cluster, kind, namespace, labels).open())
                for kind, namespace in self.places()
            }
            return list(await asyncio.gather(*(self._timed(name, labels, sights) for name in names)))

    def places(self) -> list[tuple[Kind, str]]:
        return [(kind, self.plane.namespace) for kind in self.made] + [(kind, NAMESPACE) for kind in self.beside]

    def orders(self, batch: str) -> AbstractAsyncContextManager[Sight]:
        return Sight(self.cluster, self.kind, NAMESPACE, {LABEL: batch}).open()

    async def order(self, name: str, batch: str, *, namespace: str = NAMESPACE, plane: tuple[str, str] = PLANE) -> None:
        body = {
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: batch}},
            "spec": {"controlPlaneRef": {"namespace": plane[0], "name": plane[1]}, **self.spec(name)},
        }
        async with self._writing:
            await self.cluster.create(self.kind, body)

    def spec(self, name: str) -> Object:
        """What is ordered, beside the plane."""
        return {}

    async def _ordered(self, sight: Sight, name: str, batch: str) -> float:
        began = time.perf_counter()
        await self.order(name, batch)
        await sight.until(name, ready)
        return time.perf_counter() - began

    async def _timed(self, name: str, labels: Mapping[str, str], sights: Mapping[str, Sight]) -> float:
        began = time.perf_counter()
        await self.make(name, labels, sights)
        return time.perf_counter() - began

    async def make(self, name: str, labels: Mapping[str, str], sights: Mapping[str, Sight]) -> None:
        """Probe, look, delete the probe, create the Project, look."""
        ref = self.reference(name)
        await self.gated(children.probe(ref, self.plane, name), children.project(ref, self.plane, name), labels, sights)

    async def gated(
        self, probe: Object, child: Object, labels: Mapping[str, str], sights: Mapping[str, Sight]
    ) -> Object:
        """A managed child past its probe, and as it is once it is Available."""
        seen = await self.wrote(probe, labels, sights, _answered)
        if korc.read_probe(KorcObject.model_validate(seen)) is not korc.Probe.ABSENT:
            raise Unexpected(f"what {probe['metadata']['name']} asks for exists already")
        meta = seen["metadata"]
        async with self._writing:
            await self.cluster.delete(KINDS[probe["kind"]], meta["namespace"], meta["name"], meta["uid"])
        return await self.wrote(child, labels, sights, available)

    async def wrote(
        self, body: Object, labels: Mapping[str, str], sights: Mapping[str, Sight], holds: Callable[[Object], bool]
    ) -> Object:
        """Creates a child, with our label in place of the ownership marks: no order is rung for one made by hand."""
        meta = {key: value for key, value in body["metadata"].items() if key != "ownerReferences"}
        async with self._writing:
            await self.cluster.create(KINDS[body["kind"]], {**body, "metadata": {**meta, "labels": dict(labels)}})
        return await sights[body["kind"]].until(body["metadata"]["name"], holds)

    # -- what is left -------------------------------------------------------------------------------------------

    async def clear(self, batch: str) -> float:
        """Deletes what carries the batch's label, waits until it is gone; seconds that took."""
        began = time.perf_counter()
        for kind, namespace in ((self.kind, NAMESPACE), *self.places()):
            await self.delete_all(kind, namespace, {LABEL: batch})
        await eventually(lambda: self.cleared(batch), PATIENCE)
        return time.perf_counter() - began

    async def cleared(self, batch: str) -> bool:
        """Whether nothing carries the batch's label any more."""
        where = ((self.kind, NAMESPACE), *self.places())
        found = [await self.cluster.list(kind, namespace, labels={LABEL: batch}) for kind, namespace in where]
        return not any(listed["items"] for listed in found)

    async def delete_all(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> None:
        found = await self.cluster.list(kind, namespace, labels=labels)

        async def delete(meta: Mapping[str, str]) -> None:
            async with self._writing:
                await self.cluster.delete(kind, namespace, meta["name"], meta["uid"])

        await asyncio.gather(*(delete(item["metadata"]) for item in found["items"]))

    async def left_of(self, names: Sequence[str]) -> list[str]:
        """Children and claims of orders, in words; none is what a deletion should leave."""
        wanted = set(names)
        found = []
        for kind in (*self.made, LEASE):
            for item in (await self.cluster.list(kind, self.plane.namespace))["items"]:
                labels = item["metadata"].get("labels") or {}
                if labels.get(f"c5c3.io/{self.segment}-name") in wanted:
                    found.append(f"{kind.kind} {item['metadata']['name']}")
        return found

    def named(self, names: Sequence[str], namespace: str = NAMESPACE) -> set[str]:
        """The names of the orders, of their children and of their claims."""
        found = set(names)
        for name in names:
            ref = self.reference(name, namespace)
            found |= {
                children.project_name(ref),
                children.probe_name(ref),
                children.claim(self.plane, name),
            }
        return found

    def reference(self, name: str, namespace: str = NAMESPACE) -> OrderRef:
        return reference(name, namespace, self.kind.kind)


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 60, every: float = 0.2) -> None:
    """Looks until it holds; a TimeoutError past the limit. For what is not timed."""
    async with asyncio.timeout(seconds):
        while True:
            if await holds():
                return
            await asyncio.sleep(every)


def reference(name: str, namespace: str = NAMESPACE, kind: str = KEYSTONE_PROJECT.kind) -> OrderRef:
    return OrderRef(kind=kind, cluster="", namespace=namespace, name=name)


def ready(order: Object) -> bool:
    """Ready, for the generation that it has now."""
    generation = order["metadata"]["generation"]
    conditions = (order.get("status") or {}).get("conditions") or []
    return any(
        c["type"] == "Ready" and c["status"] == "True" and c.get("observedGeneration") == generation
        for c in conditions
    )  # fmt: skip


def _answered(probe: Object) -> bool:
    return korc.read_probe(KorcObject.model_validate(probe)) is not korc.Probe.PENDING


def available(child: Object) -> bool:
    seen = KorcObject.model_validate(child)
    if words := korc.terminal(seen):
        raise Unexpected(f"K-ORC has given up on {seen.metadata.name}: {words}")
    return korc.up_to_date(seen)
