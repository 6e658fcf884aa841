"""What was asked of an API server, from its own audit log: the only count that no code of ours can embellish.

A watch is written down when it starts and again when it ends: it is one request, with the last code it got.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deploy.local.part import Stack
from deploy.local.parts.operator import ACCOUNT, SYSTEM

OPERATOR = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
"""Watcher and worker."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Request:
    """One request. `at` is in epoch seconds; `resource` has its subresource; `name` is the object's, also created."""

    at: float
    user: str
    verb: str
    resource: str
    group: str
    namespace: str
    name: str
    uri: str
    code: int

    @property
    def kind(self) -> str:
        """As RBAC names it: `projects.openstack.k-orc.cloud`, `keystoneprojects/status.c5c3.io`, `secrets`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.namespace}/{self.name} -> {self.code}"


class Audit:
    """One cluster's log from now on. Requests are told apart by their namespaces: each test has its own."""

    def __init__(self, stack: Stack, cluster: str = "management") -> None:
        self.path: Path = stack.folder / "logs" / f"audit-{cluster}.jsonl"
        self._from = self.mark()

    def mark(self) -> int:
        """A place in the log to read on from."""
        return self.path.stat().st_size if self.path.exists() else 0

    def since(self, mark: int, user: str = "") -> list[Request]:
        """Every request (of the user) that was written down after the mark, in order of arrival."""
        if self.mark() < mark:
            raise RuntimeError("the audit log was begun anew meanwhile: measure again")
        found: dict[str, Request] = {}
        with self.path.open("rb") as log:
            log.seek(mark)
            for line in log:
                if user.encode() not in line:
                    continue
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # one that a killed server left half-written, or that is being written now
                if user in ("", entry["user"].get("username", "")):
                    found[entry["auditID"]] = _request(entry)
        return sorted(found.values(), key=lambda request: request.at)

    async def asked(self, *namespaces: str, settle: float = 0.3) -> list[Request]:
        """Every request of the operator in these namespaces since the log was opened."""
        await asyncio.sleep(settle)
        return [request for request in self.since(self._from, OPERATOR) if request.namespace in namespaces]


def requests(stack: Stack, cluster: str, since: float = 0) -> list[Request]:
    """Every request of the operator since a moment, however long the log has been written."""
    return [request for request in Audit(stack, cluster).since(0, OPERATOR) if request.at >= since]


def writes(asked: Iterable[Request]) -> list[str]:
    """Those that would change something, as text."""
    return [str(one) for one in asked if one.verb in WRITES]


def naming(requests: Iterable[Request], names: Collection[str], token: str | None = None) -> list[Request]:
    """Those that name one of the objects. `token` is a text that the names carry, to look for in selectors as well."""
    known = frozenset(names)
    return [
        request
        for request in requests
        if request.name in known
        or (token and token in request.uri)
        or (not token and any(name in request.uri for name in known))
    ]


def of(requests: Iterable[Request], *users: str) -> list[Request]:
    return [request for request in requests if request.user in users]


def _request(entry: dict[str, Any]) -> Request:
    target = entry.get("objectRef") or {}
    uri = unquote(entry["requestURI"])
    sub = f"/{target['subresource']}" if target.get("subresource") else ""
    return Request(
        at=datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(),
        user=entry["user"].get("username", ""),
        verb=entry["verb"],
        resource=target.get("resource", uri) + sub,
        group=target.get("apiGroup", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        uri=uri,
        code=(entry.get("responseStatus") or {}).get("code", 0),
    )
