"""All of K-ORC played by hand, over a dictionary that stands for Keystone: dependencies, adopt-or-create, passwords.

It does what contracts 6.3 says of the real one: takes over what carries the name, deletes by name what it has no id of,
sends a password when the reference changes, and only records the first one of a user that was there before.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from activities.cluster import (
    KORC_DOMAIN,
    KORC_ENDPOINT,
    KORC_PROJECT,
    KORC_ROLE,
    KORC_ROLE_ASSIGNMENT,
    KORC_SERVICE,
    KORC_USER,
    SECRET,
    Cluster,
    Kind,
    Object,
)
from activities.errors import ClusterError
from tests.korc_by_hand import KorcByHand

KINDS = (KORC_DOMAIN, KORC_PROJECT, KORC_USER, KORC_ROLE, KORC_ROLE_ASSIGNMENT, KORC_SERVICE, KORC_ENDPOINT)
_REFERENCES = (
    ("domainRef", "Domain"),
    ("serviceRef", "Service"),
    ("defaultProjectRef", "Project"),
    ("projectRef", "Project"),
    ("roleRef", "Role"),
    ("userRef", "User"),
)
Identity = tuple[str, ...]


class Keystone:
    """What exists, by kind and by what it is found by; and which Secret each user's password came from."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, Identity], str] = {}
        self.passwords: dict[str, str] = {}

    def add(self, kind: str, *identity: str) -> str:
        """Something that was there before. A user's and a project's identity is (handle of the domain, name)."""
        return self.rows.setdefault((kind, identity), uuid.uuid4().hex)

    def of(self, kind: str) -> list[str]:
        return sorted(identity[-1] for each, identity in self.rows if each == kind)


class Korc:
    """One namespace's K-ORC. `of` is the hand for one kind; `playing` answers all by itself."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.keystone = Keystone()
        self._hands = {kind.kind: KorcByHand(cluster, namespace, kind=kind) for kind in KINDS}
        self._live: dict[tuple[str, str], Object] = {}
        self._secrets: set[str] = set()

    def of(self, kind: str) -> KorcByHand:
        return self._hands[kind]

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        self._live.clear()
        tasks = [asyncio.create_task(self._hear(kind, changed)) for kind in (*KINDS, SECRET)]
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
                async for event in self._cluster.watch(kind, self._namespace, "", seconds=300):
                    name = event["object"]["metadata"].get("name")
                    if event["type"] == "BOOKMARK":
                        continue
                    if kind is SECRET:
                        (self._secrets.discard if event["type"] == "DELETED" else self._secrets.add)(name)
                    elif event["type"] == "DELETED":
                        self._live.pop((kind.kind, name), None)
                    else:
                        self._live[kind.kind, name] = event["object"]
                    changed.set()

    async def _play(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            for (kind, _), live in list(self._live.items()):
                with suppress(ClusterError, AssertionError):
                    await self._answer(kind, live)

    async def _answer(self, kind: str, live: Object) -> None:
        hand, name, status = self._hands[kind], live["metadata"]["name"], live.get("status") or {}
        managed = live["spec"].get("managementPolicy") != "unmanaged"
        if "id" in (live["spec"].get("import") or {}):
            return  # a stranger's, which the test answers itself
        identity = _identity(kind, live)
        if live["metadata"].get("deletionTimestamp"):
            detached = (live["spec"].get("managedOptions") or {}).get("onDelete") == "detach"
            if managed and not detached:
                self._delete(kind, identity, status.get("id"))
            await hand.let_go(name)
            return
        conditions = status.get("conditions") or []
        progressing: Object = next((c for c in conditions if c["type"] == "Progressing"), {})
        if progressing.get("status") == "False" and progressing["observedGeneration"] == live["metadata"]["generation"]:
            return
        said = live["spec"].get("resource") or (live["spec"].get("import") or {}).get("filter") or {}
        if (missing := self._missing(said)) is not None:
            words = f"Waiting for {missing} to be created"
            if progressing.get("message") != words:
                await hand.waits_for(name, missing)
            return
        if not managed:
            id_ = self.keystone.rows.get((kind, identity))
            if id_ is not None:
                await hand.available(name, id_)
            elif not progressing or "externally" not in progressing["message"]:
                await hand.absent(name)
            return
        existed = (kind, identity) in self.keystone.rows
        id_ = status.get("id") or self.keystone.add(kind, *identity)
        resource: dict[str, Any] = {}
        if kind == "User":
            before, wanted = (status.get("resource") or {}).get("appliedPasswordRef"), said["passwordRef"]
            if before or not existed:
                self.keystone.passwords[id_] = wanted
            resource = {"appliedPasswordRef": wanted}
        await hand.available(name, id_, resource=resource)

    def _missing(self, said: Object) -> str | None:
        for field, kind in _REFERENCES:
            if (name := said.get(field)) and not _available(self._live.get((kind, name))):
                return f"{kind}/{name}"
        secret = said.get("passwordRef")
        return f"Secret/{secret}" if secret and secret not in self._secrets else None

    def _delete(self, kind: str, identity: Identity, id_: str | None) -> None:
        for row, known in list(self.keystone.rows.items()):
            if row[0] == kind and (known == id_ if id_ else row[1] == identity):
                del self.keystone.rows[row]


def _identity(kind: str, live: Object) -> Identity:
    said = live["spec"].get("resource") or (live["spec"].get("import") or {}).get("filter") or {}
    match kind:
        case "Service":
            return said["type"], said["name"]
        case "User" | "Project":
            return said["domainRef"], said["name"]
        case "Domain" | "Role":
            return (said["name"],)
        case _:
            return (live["metadata"]["name"],)


def _available(live: Object | None) -> bool:
    conditions = ((live or {}).get("status") or {}).get("conditions") or []
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)
