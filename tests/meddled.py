"""A connection that a test can meddle with: hold a request back, lose its answer, or slip something in before it.

The requests themselves are real; only their moment and their answer are in the test's hand.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activities.cluster import Cluster, Kind, Object
from activities.errors import ClusterError


@dataclass(frozen=True)
class Call:
    """One request, as a test recognises it."""

    method: str
    plural: str
    name: str
    sub: str
    body: Object | None

    def __str__(self) -> str:
        return f"{self.method} {self.plural}{'/' + self.sub if self.sub else ''}"

    @property
    def writes(self) -> bool:
        return self.method != "GET"


Hook = Callable[[Call], Awaitable[None]]


class Meddled(Cluster):
    """A cluster whose requests pass a test's hooks. `calls` lists what was sent, in order."""

    def __init__(self, inner: Cluster) -> None:
        super().__init__(inner.name, inner._api)
        self.calls: list[Call] = []
        self.before: Hook | None = None
        self.after: Hook | None = None

    async def _request(
        self,
        method: str,
        kind: Kind,
        namespace: str | None,
        name: str | None = None,
        *,
        sub: str | None = None,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
    ) -> Object:
        meta: dict[str, Any] = (body or {}).get("metadata") or {}
        call = Call(method, kind.plural, name or meta.get("name") or "", sub or "", body)
        if self.before is not None:
            await self.before(call)
        self.calls.append(call)
        answer = await super()._request(
            method, kind, namespace, name, sub=sub, body=body, query=query, content_type=content_type, accept=accept
        )
        if self.after is not None:
            await self.after(call)
        return answer

    async def watch(self, kind: Kind, *args: Any, **options: Any) -> AsyncGenerator[Object]:
        call = Call("GET", kind.plural, "", "", None)
        if self.before is not None:
            await self.before(call)
        self.calls.append(call)
        async for event in super().watch(kind, *args, **options):
            yield event

    def sent(self) -> list[str]:
        return [str(call) for call in self.calls]


def lost(call: Call) -> ClusterError:
    """The error of a request whose answer never came."""
    return ClusterError(str(call), 0, "ServerDisconnectedError", "the answer was lost")
