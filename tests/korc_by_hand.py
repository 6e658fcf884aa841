"""K-ORC played by hand: its finalizers and its two conditions, as version 2.6.0 writes them, and nothing it would not.

No K-ORC runs in the instances of these tests, so a test decides what K-ORC found and when. `play` answers by itself,
over a set of projects that stands for Keystone: adopt-or-create, deletion by name when there is no id, and all.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from activities.cluster import KORC_PROJECT, KORC_ROLE, KORC_SERVICE, KORC_USER, Cluster, Kind, Object
from activities.errors import ClusterError

ABSENT = "Waiting for OpenStack resource to be created externally"
REFUSED = (
    "invalid configuration creating resource: Post \"http://127.0.0.1:5000/v3/projects\": dial tcp 127.0.0.1:5000:"
    " connect: connection refused"
)  # fmt: skip
UNAUTHORIZED = (
    "providerClient authentication err: Expected HTTP response code [201 202] when accessing"
    " [POST http://127.0.0.1:5000/v3/auth/tokens], but got 401 instead:"
    " {\"error\":{\"code\":401,\"title\":\"Unauthorized\"}}"
)  # fmt: skip
NO_CONNECTION = (
    "providerClient authentication err: Post \"http://127.0.0.1:5000/v3/auth/tokens\": dial tcp 127.0.0.1:5000:"
    " connect: connection refused"
)  # fmt: skip
AMBIGUOUS = "invalid configuration: found more than one matching OpenStack resource during import"
VANISHED = "resource has been deleted from OpenStack"
_JOINS = (
    ("roleID", "roleRef", KORC_ROLE),
    ("userID", "userRef", KORC_USER),
    ("projectID", "projectRef", KORC_PROJECT),
    ("serviceID", "serviceRef", KORC_SERVICE),
)


@dataclass
class KorcByHand:
    """One namespace's K-ORC for one kind. Every method acts on the object of that name."""

    cluster: Cluster
    namespace: str
    keystone: dict[str, str] = field(default_factory=dict)
    """Projects that exist in the admin domain, id by name; `play` reads and writes it."""
    kind: Kind = KORC_PROJECT

    @property
    def finalizer(self) -> str:
        return f"openstack.k-orc.cloud/{self.kind.kind.lower()}"

    async def get(self, name: str) -> Object | None:
        return await self.cluster.get(self.kind, self.namespace, name)

    async def there(self, name: str, seconds: float = 10) -> Object:
        """Waits until the object exists."""
        until = time.monotonic() + seconds
        while (found := await self.get(name)) is None:
            assert time.monotonic() < until, f"there is no {self.kind.kind} {self.namespace}/{name} after {seconds} s"
            await asyncio.sleep(0.02)
        return found

    async def notice(self, name: str) -> Object:
        """The finalizer goes on before anything else happens."""
        live = await self.there(name)
        finalizers = live["metadata"].get("finalizers") or []
        if self.finalizer in finalizers or live["metadata"].get("deletionTimestamp"):
            return live
        return await self.cluster.update(
            self.kind, {**live, "metadata": {**live["metadata"], "finalizers": [*finalizers, self.finalizer]}}
        )

    async def absent(self, name: str) -> Object:
        """An import of something that is not there."""
        return await self.say(name, ("False", "Progressing", ABSENT), ("True", "Progressing", ABSENT))

    async def available(
        self,
        name: str,
        id_: str | None = None,
        *,
        generation: int | None = None,
        resource: dict[str, Any] | None = None,
    ) -> Object:
        """Done: an import that found its resource, or a managed one that exists. It keeps the id that it has."""
        known = (await self.there(name)).get("status") or {}
        return await self.say(
            name,
            ("True", "Success", "OpenStack resource is available"),
            ("False", "Success", "OpenStack resource is up to date"),
            id_=id_ or known.get("id") or uuid.uuid4().hex,
            generation=generation,
            resource=resource,
        )

    async def waits_for(self, name: str, what: str) -> Object:
        words = f"Waiting for {what} to be created"
        return await self.say(name, ("False", "Progressing", words), ("True", "Progressing", words))

    async def transient(self, name: str, words: str) -> Object:
        return await self.say(name, ("False", "TransientError", words), ("True", "TransientError", words))

    async def terminal(
        self, name: str, words: str, reason: str = "InvalidConfiguration", *, id_: str | None = None
    ) -> Object:
        available = "Unknown" if id_ else "False"
        return await self.say(name, (available, reason, words), ("False", reason, words), id_=id_)

    async def say(
        self,
        name: str,
        available: tuple[str, str, str],
        progressing: tuple[str, str, str],
        *,
        id_: str | None = None,
        generation: int | None = None,
        resource: dict[str, Any] | None = None,
    ) -> Object:
        """Writes both conditions: (status, reason, message) each, by a forced apply of the status as K-ORC does it."""
        live = await self.notice(name)
        before = {c["type"]: c for c in (live.get("status") or {}).get("conditions") or []}
        observed = live["metadata"]["generation"] if generation is None else generation
        conditions = []
        for type_, (status, reason, message) in (("Available", available), ("Progressing", progressing)):
            said: Object = {"type": type_, "status": status, "reason": reason, "message": message}
            said |= {"observedGeneration": observed}
            old = before.get(type_, {})
            same = {key: old.get(key) for key in said} == said
            since = old["lastTransitionTime"] if same else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions.append({**said, "lastTransitionTime": since})
        status_: dict[str, Any] = {"conditions": conditions}
        before_ = live.get("status") or {}
        known = id_ or before_.get("id")
        if known and self.kind.kind != "RoleAssignment":
            status_ |= {"id": known}
        if known:
            status_ |= {"resource": {**(before_.get("resource") or {}), **await self._found(live), **(resource or {})}}
        body = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "status": status_,
        }
        return await self.cluster._request(
            "PATCH", self.kind, self.namespace, name, sub="status", body=body,
            query={"fieldManager": f"{self.finalizer}controller", "force": "true"},
            content_type="application/apply-patch+yaml",
        )  # fmt: skip

    async def let_go(self, name: str) -> None:
        """The deletion is done: K-ORC's finalizer goes. Others on the object stay."""
        live = await self.get(name)
        if live is None:
            return
        kept = [each for each in live["metadata"].get("finalizers") or [] if each != self.finalizer]
        body = {**live, "metadata": {**live["metadata"], "finalizers": kept}}
        with suppress(ClusterError):
            await self.cluster.update(self.kind, body)

    async def _found(self, live: Object) -> dict[str, Any]:
        """What K-ORC says of the resource, as far as anybody reads it."""
        match self.kind.kind:
            case "RoleAssignment":
                return await self._joined(live)
            case "Endpoint":
                wanted = live["spec"]["resource"]
                said = {"interface": wanted["interface"], "url": wanted["url"], "enabled": True}
                return {**said, **await self._joined(live)}
            case "Service":
                return {"name": _wanted(live), "type": "t", "enabled": True}
            case "Domain" | "Role":
                return {"name": _wanted(live)}
            case _:
                return {"name": _wanted(live), "domainID": "default", "enabled": True}

    async def _joined(self, live: Object) -> dict[str, str]:
        """The ids of what it is made of, as far as those are answered."""
        said, ids = live["spec"].get("resource") or {}, {}
        for field_, ref, kind in _JOINS:
            other = await self.cluster.get(kind, self.namespace, said[ref]) if ref in said else None
            if id_ := ((other or {}).get("status") or {}).get("id"):
                ids[field_] = id_
        return ids

    # -- answering by itself -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Answers every Project of the namespace until the block ends."""
        task = asyncio.create_task(self.play())
        try:
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def play(self) -> None:
        while True:
            found = await self.cluster.list(self.kind, self.namespace)
            for item in found["items"]:
                with suppress(ClusterError):
                    await self._answer(item)
            events = self.cluster.watch(self.kind, self.namespace, found["metadata"]["resourceVersion"], seconds=300)
            with suppress(ClusterError):
                async for event in events:
                    if event["type"] in ("ADDED", "MODIFIED"):
                        with suppress(ClusterError, TimeoutError):
                            await self._answer(event["object"])

    async def _answer(self, live: Object) -> None:
        name, wanted, status = live["metadata"]["name"], _wanted(live), live.get("status") or {}
        managed = live["spec"].get("managementPolicy") != "unmanaged"
        if live["metadata"].get("deletionTimestamp"):
            detached = (live["spec"].get("managedOptions") or {}).get("onDelete") == "detach"
            if managed and not detached:
                known = status.get("id")
                for each, id_ in list(self.keystone.items()):
                    if id_ == known or (known is None and each == wanted):
                        del self.keystone[each]
            await self.let_go(name)
            return
        progressing = next((c for c in status.get("conditions") or [] if c["type"] == "Progressing"), None)
        if (
            progressing
            and progressing["status"] == "False"
            and progressing["observedGeneration"] == live["metadata"]["generation"]
        ):
            return
        if managed:
            id_ = status.get("id") or self.keystone.setdefault(wanted, uuid.uuid4().hex)
            await self.available(name, id_)
        elif wanted in self.keystone:
            await self.available(name, self.keystone[wanted])
        elif progressing is None:
            await self.absent(name)


def _wanted(live: Object) -> str:
    spec = live["spec"]
    name = (spec.get("resource") or {}).get("name") or ((spec.get("import") or {}).get("filter") or {}).get("name")
    return str(name or live["metadata"]["name"])
