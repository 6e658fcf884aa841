"""What the API server itself wrote down of every request: who asked, for what. Nobody's own count is taken.

A watch is written down when it starts and again when it ends; it counts once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deploy.local.part import Stack
from deploy.local.parts.operator import ACCOUNT, SYSTEM

OPERATOR = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
"""Watcher and worker."""


@dataclass(frozen=True)
class Request:
    """One request. `name` is the object's, also when it was created."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    uri: str
    code: int
    at: str

    def __str__(self) -> str:
        return f"{self.at} {self.user} {self.verb} {self.resource} {self.namespace}/{self.name} {self.code}"


class Audit:
    """The audit log of one cluster's API server."""

    def __init__(self, stack: Stack, cluster: str = "management") -> None:
        self.path: Path = stack.folder / "logs" / f"audit-{cluster}.jsonl"

    def mark(self) -> int:
        """A place in the log to read on from."""
        return self.path.stat().st_size

    def since(self, mark: int) -> list[Request]:
        """Every request written down after the mark."""
        if self.path.stat().st_size < mark:
            raise RuntimeError("the audit log was begun anew meanwhile: measure again")
        found: dict[str, Request] = {}
        with self.path.open("rb") as log:
            log.seek(mark)
            for line in log:
                if line.endswith(b"\n"):
                    entry = json.loads(line)
                    found.setdefault(entry["auditID"], _request(entry))
        return list(found.values())


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
    object_ = entry.get("objectRef") or {}
    sub = f"/{object_['subresource']}" if object_.get("subresource") else ""
    return Request(
        user=entry["user"].get("username", ""),
        verb=entry["verb"],
        resource=object_.get("resource", "") + sub,
        namespace=object_.get("namespace", ""),
        name=object_.get("name", ""),
        uri=unquote(entry["requestURI"]),
        code=(entry.get("responseStatus") or {}).get("code", 0),
        at=entry["requestReceivedTimestamp"],
    )
