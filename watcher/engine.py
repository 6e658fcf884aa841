"""What the active replica does: streams on every cluster, and the bells they ring.

An engine begins with nothing and rings everything once, so starting one is always right and stopping one loses
nothing. A target cluster is a task of its own: whatever is wrong with it stays with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from activities.cluster import ORDER_KINDS, SECRET, Cluster, Object
from activities.clusters import REGISTRATION_LABEL, BadKubeconfig, connect_target, kubeconfig_of
from activities.errors import ClusterError
from watcher.dispatch import Bells, Rates
from watcher.doorbell import Doorbell, NotTaken
from watcher.ear import Ear
from watcher.mapping import SOURCES, Index, Source
from watcher.metrics import Sight
from watcher.registrations import Registrations, namespaces_of
from watcher.stream import Pace, Stream, cluster_name
from workflows.scaffold.order import OrderRef

_log = logging.getLogger(__name__)


MISSED_SECONDS = 300.0
"""How often orders without a run are looked for; one is rung when it is found so twice, so within twice as long."""


class Engine:
    """Runs until it is cancelled; what it hears and rings can be looked at meanwhile."""

    def __init__(
        self,
        management: Cluster,
        doorbell: Doorbell,
        clusters_namespace: str,
        *,
        rates: Rates | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.index = Index()
        self.bells = Bells(doorbell, self.index, rates)
        self.streams: list[Stream] = []
        self.engaged: dict[str, bool] = {}
        self._management = management
        self._doorbell = doorbell
        self._clusters_namespace = clusters_namespace
        self._pace = pace or Pace()
        self._first_lists: asyncio.Queue[tuple[str, str, str | None]] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.bells.run())
            group.create_task(self._ring_orphans())
            group.create_task(self._ring_the_runless())
            registrations = Registrations(self._engage)
            group.create_task(registrations.run())
            streams = self._streams(self._management, None)
            group.create_task(_say_when_listed(streams))
            for stream in streams:
                group.create_task(stream.run())
            secrets = Stream(
                self._management, SECRET, registrations, namespace=self._clusters_namespace,
                labels=REGISTRATION_LABEL, metadata_only=True, pace=self._pace,
            )  # fmt: skip
            self.streams.append(secrets)
            group.create_task(secrets.run())

    def stale(self, seconds: float) -> list[str]:
        """The streams that count and were not heard for longer, or never, each with what is known of why."""
        if not self.streams:
            return ["no stream has begun"]
        return [
            f"{stream}: not heard for {stream.age:.0f} s" + (f" ({stream.trouble})" if stream.trouble else "")
            for stream in self.streams
            if stream.counts and (stream.served is None or stream.age > seconds)
        ]

    def sight(self) -> Sight:
        ages: dict[tuple[str, str], float] = {}
        for stream in self.streams:
            key = (stream.cluster.name, stream.kind.kind)
            if stream.served is not False:
                ages[key] = max(ages.get(key, 0.0), stream.age)
        census = self.index.census
        return Sight(
            stream_ages=ages, clusters=dict(self.engaged), orders=census.counts(), unready=census.oldest_unready(),
            deletions=census.oldest_deletion(), orphans=self._orphans(), pending=self.bells.pending,
            backlog=self.bells.backlog, oldest_pending=self.bells.oldest, leading=True,
        )  # fmt: skip

    def _orphans(self) -> dict[str, int]:
        """Children of orders that are gone, by kind. Of an order where nobody has listed the orders, who knows."""
        listed = {(each.cluster.name, each.kind.kind, each.namespace) for each in self.streams if each.served}

        def known(ref: OrderRef) -> bool:
            return not listed.isdisjoint((ref.cluster, ref.kind, where) for where in (None, ref.namespace))

        found = Counter({source.kind.kind: 0 for source in SOURCES if source.is_child})
        for stream in self.streams:
            if stream.kind.kind in found and isinstance(stream.listener, Ear):
                found[stream.kind.kind] += stream.listener.orphans(known)
        return dict(found)

    def _streams(self, cluster: Cluster, namespaces: Sequence[str | None] | None) -> list[Stream]:
        """One stream per kind; of a target cluster per namespace, where its registration names some."""
        made = [
            self._stream(source, cluster, namespace)
            for source in SOURCES
            if not cluster.name or source.on_targets
            for namespace in namespaces or (None,)
        ]
        self.streams += made
        return made

    def _stream(self, source: Source, cluster: Cluster, namespace: str | None) -> Stream:
        def cold(unconverged: Sequence[OrderRef], converged: Sequence[OrderRef]) -> None:
            self.bells.cold(unconverged, converged)
            self._first_lists.put_nowait((source.kind.kind, cluster.name, namespace))

        ring = partial(self.bells.ring, of_child=source.is_child)
        ear = Ear(source, cluster.name, self.index, ring, cold)
        return Stream(
            cluster, source.kind, ear, namespace=namespace, metadata_only=source.metadata_only, pace=self._pace
        )

    async def _ring_orphans(self) -> None:
        """After each first list of orders, rings the open runs whose order is not there: it vanished unheard."""
        pause = 0.5
        while True:
            kind, cluster, namespace = where = await self._first_lists.get()
            try:
                async for ref in self._doorbell.open_runs(kind):
                    here = ref.cluster == cluster and namespace in (None, ref.namespace)
                    if here and ref not in self.index:
                        self.bells.ring([ref])
                pause = 0.5
            except NotTaken as error:
                _log.warning("the open runs of %s cannot be listed yet: %s", kind, error)
                self._first_lists.put_nowait(where)
                await asyncio.sleep(pause * random.uniform(0.5, 1))
                pause = min(30.0, pause * 2)

    async def _ring_the_runless(self) -> None:
        """Rings orders whose run is not open: somebody ended it, and what they wait for may never be heard of.

        Of every order in the index a run should be open: it ends only when the order is gone, carries no finalizer of
        ours on its way out, or is on a cluster that is not registered, and then the order is not in the index. A run
        that has just begun, or begins anew at this moment, may not be listed yet; so one look is not believed.
        """
        before = frozenset[OrderRef]()
        while True:
            await asyncio.sleep(MISSED_SECONDS)
            missing = frozenset[OrderRef]()
            for kind in ORDER_KINDS:
                orders = self.index.of_kind(kind)
                try:
                    missing |= orders - {ref async for ref in self._doorbell.open_runs(kind)} if orders else orders
                except NotTaken as error:
                    _log.warning("the open runs of %s cannot be listed: %s", kind, error)
            runless = sorted((ref for ref in missing & before if ref in self.index), key=lambda ref: ref.workflow_id)
            if runless:
                _log.warning("%d orders have no run and are rung, %s first", len(runless), runless[0].workflow_id)
                self.bells.cold((), runless)
            before = missing.difference(runless)

    async def _engage(self, name: str, changed: asyncio.Event) -> None:
        """Listens to a target cluster as long as its registration stands; returns when the Secret is gone."""
        pause = 0.5
        try:
            while True:
                changed.clear()
                try:
                    secret = await self._management.get(SECRET, self._clusters_namespace, name)
                    if secret is None:
                        return
                    cluster = await connect_target(name, kubeconfig_of(secret))
                except ClusterError as error:
                    _log.warning("the registration of cluster %s cannot be read yet: %s", name, error)
                    await asyncio.sleep(pause * random.uniform(0.5, 1))
                    pause = min(30.0, pause * 2)
                except Exception as error:  # whatever somebody put into a Secret must not end the others' streams
                    self.engaged[name] = False
                    text = str(error) if isinstance(error, BadKubeconfig) else f"its kubeconfig: {type(error).__name__}"
                    _log.error(
                        "cluster %s is not listened to: %s. Correct the Secret; it is read again then", name, text
                    )
                    await changed.wait()
                else:
                    pause = 0.5
                    try:
                        await self._listen(cluster, secret, changed)
                    finally:
                        await cluster.close()
        finally:
            self.engaged.pop(name, None)

    async def _listen(self, cluster: Cluster, secret: Object, changed: asyncio.Event) -> None:
        """Runs the streams of a target cluster until its Secret says something else."""
        name = cluster.name
        streams = self._streams(cluster, namespaces_of(secret))
        self.engaged[name] = True
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(stream.run()) for stream in streams]
                tasks.append(group.create_task(_say_when_listed(streams)))
                await self._until_different(secret, changed)
                for task in tasks:
                    task.cancel()
        finally:
            self.streams = [stream for stream in self.streams if stream not in streams]
            self.index.drop_cluster(name)
            _log.info("cluster %s: no longer listening to it as it was registered", name)

    async def _until_different(self, secret: Object, changed: asyncio.Event) -> None:
        """Returns when the Secret's content is not what it was: another kubeconfig, other namespaces, or gone."""
        while True:
            await changed.wait()
            changed.clear()
            try:
                now = await self._management.get(SECRET, self._clusters_namespace, secret["metadata"]["name"])
            except ClusterError:
                changed.set()
                await asyncio.sleep(5)
                continue
            if now is None or _content(now) != _content(secret):
                changed.set()
                return


async def _say_when_listed(streams: Sequence[Stream]) -> None:
    began = time.monotonic()
    for stream in streams:
        await stream.answered.wait()
    served = sum(stream.served is True for stream in streams)
    where, took = cluster_name(streams[0].cluster.name), time.monotonic() - began
    _log.info("listening to %s: %d of %d kinds are served there, listed in %.1f s", where, served, len(streams), took)


def _content(secret: Object) -> bytes:
    return hashlib.sha256(json.dumps(secret.get("data"), sort_keys=True).encode()).digest()
