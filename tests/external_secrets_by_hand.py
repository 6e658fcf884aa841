"""External Secrets played by hand over a dictionary that stands for OpenBao: pushes, fetches, and what it says of both.

Like the real one it acts on a PushSecret when its generation, labels or annotations changed, never when the source
did; keeps `Ready` True across a push that is due; and gives what it makes the labels of its ExternalSecret.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from activities.cluster import EXTERNAL_SECRET, PUSH_SECRET, SECRET, Cluster, Kind, Object
from activities.errors import ClusterError

FINALIZER = "pushsecret.externalsecrets.io/finalizer"


def version(live: Object) -> str:
    meta = live["metadata"]
    marks = json.dumps([meta.get("labels") or {}, meta.get("annotations") or {}], sort_keys=True)
    return f"{meta['generation']}-{hashlib.sha256(marks.encode()).hexdigest()[:16]}"


@dataclass
class ExternalSecretsByHand:
    """One namespace's External Secrets. `bao` is what OpenBao holds, by its path."""

    cluster: Cluster
    namespace: str
    bao: dict[str, dict[str, str]] = field(default_factory=dict)
    sealed: str = ""
    """Why every push fails, if it does."""

    # -- one answer at a time ------------------------------------------------------------------------------------

    async def push(self, name: str) -> Object:
        """Acts on the PushSecret of that name, whether or not it changed."""
        live = await self._there(PUSH_SECRET, name)
        if FINALIZER not in (live["metadata"].get("finalizers") or []):
            meta = {**live["metadata"], "finalizers": [*(live["metadata"].get("finalizers") or []), FINALIZER]}
            live = await self.cluster.update(PUSH_SECRET, {**live, "metadata": meta})
        source = await self.cluster.get(SECRET, self.namespace, live["spec"]["selector"]["secret"]["name"])
        if self.sealed or source is None:
            return await self._say(PUSH_SECRET, live, "False", "Errored", self.sealed or "source not found")
        self.bao[_key(live)] = {k: b64decode(v).decode() for k, v in source["data"].items()}
        return await self._say(PUSH_SECRET, live, "True", "Synced", "PushSecret synced", version(live))

    async def fetch(self, name: str) -> Object:
        """Acts on the ExternalSecret of that name, whether or not it changed."""
        live = await self._there(EXTERNAL_SECRET, name)
        data = {}
        for each in live["spec"]["data"]:
            value = self.bao.get(each["remoteRef"]["key"], {}).get(each["remoteRef"]["property"])
            if value is None:
                return await self._say(EXTERNAL_SECRET, live, "False", "SecretSyncedError", "could not get secret data")
            data[each["secretKey"]] = b64encode(value.encode()).decode()
        meta = live["metadata"]
        owner = {"apiVersion": EXTERNAL_SECRET.api_version, "kind": "ExternalSecret", "name": name, "uid": meta["uid"],
                 "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        made: Object = {
            "metadata": {"name": live["spec"]["target"]["name"], "namespace": self.namespace,
                         "labels": meta.get("labels") or {}, "ownerReferences": [owner]},
            "data": data,
        }  # fmt: skip
        there = await self.cluster.get(SECRET, self.namespace, made["metadata"]["name"])
        if there is None:
            await self.cluster.create(SECRET, made)
        elif there.get("data") != data:
            await self.cluster.update(SECRET, {**there, "data": data})
        return await self._say(EXTERNAL_SECRET, live, "True", "SecretSynced", "secret synced", version(live))

    async def _there(self, kind: Kind, name: str) -> Object:
        for _ in range(500):
            if (live := await self.cluster.get(kind, self.namespace, name)) is not None:
                return live
            await asyncio.sleep(0.02)
        raise AssertionError(f"there is no {kind.kind} {self.namespace}/{name}")

    async def _say(self, kind: Kind, live: Object, ready: str, reason: str, words: str, synced: str = "") -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": ready, "reason": reason, "message": words, "lastTransitionTime": now}
        status: dict[str, Any] = {"conditions": [condition], "refreshTime": now}
        if synced:
            status["syncedResourceVersion"] = synced
        return await self.cluster.patch(
            kind, self.namespace, live["metadata"]["name"], {"status": status}, sub="status"
        )  # fmt: skip

    # -- answering by itself -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Answers every object of the namespace until the block ends."""
        changed = asyncio.Event()
        kinds = (PUSH_SECRET, EXTERNAL_SECRET, SECRET)
        tasks = [asyncio.create_task(self._hear(kind, changed)) for kind in kinds]
        tasks.append(asyncio.create_task(self._play(changed)))
        try:
            yield
            if tasks[-1].done():
                tasks[-1].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self, kind: Kind, changed: asyncio.Event) -> None:
        while True:
            with suppress(ClusterError):
                async for event in self.cluster.watch(kind, self.namespace, "", seconds=300):
                    if event["type"] != "BOOKMARK":
                        changed.set()

    async def _play(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            with suppress(ClusterError):
                for live in (await self.cluster.list(PUSH_SECRET, self.namespace))["items"]:
                    await self._answer_push(live)
                for live in (await self.cluster.list(EXTERNAL_SECRET, self.namespace))["items"]:
                    await self._answer_fetch(live)

    async def _answer_push(self, live: Object) -> None:
        name, meta = live["metadata"]["name"], live["metadata"]
        if meta.get("deletionTimestamp"):
            self.bao.pop(_key(live), None)
            kept = [each for each in meta.get("finalizers") or [] if each != FINALIZER]
            if kept != (meta.get("finalizers") or []):
                await self.cluster.update(PUSH_SECRET, {**live, "metadata": {**meta, "finalizers": kept}})
        elif (live.get("status") or {}).get("syncedResourceVersion") != version(live):
            await self.push(name)

    async def _answer_fetch(self, live: Object) -> None:
        if live["metadata"].get("deletionTimestamp") or "data" not in live["spec"]:
            return
        there = await self.cluster.get(SECRET, self.namespace, live["spec"]["target"]["name"])
        synced = (live.get("status") or {}).get("syncedResourceVersion")
        if there is None or synced != version(live):
            await self.fetch(live["metadata"]["name"])


def _key(live: Object) -> str:
    return str(live["spec"]["data"][0]["match"]["remoteRef"]["remoteKey"])
