"""An API server that misbehaves on demand: what each list and each watch request gets is written down beforehand.

Real HTTP over a real socket; only the answers are made up. Requests are kept, so that tests can count them.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from activities.cluster import KEYSTONE_PROJECT, LEASE, SECRET, Cluster
from watcher.mapping import SOURCES

Object = dict[str, Any]
Send = Callable[[str, Object], Awaitable[None]]
Behaviour = Callable[["Watching"], Awaitable[None]]


@dataclass(eq=False)
class Watching:
    """One watch that is open: events go out until the behaviour returns, which ends it cleanly."""

    server: Server
    response: web.StreamResponse
    version: str
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_cut(self, behaviour: Behaviour) -> None:
        tasks = [asyncio.ensure_future(behaviour(self)), asyncio.ensure_future(self.cut.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, type_: str, found: Object) -> None:
        await self.response.write(json.dumps({"type": type_, "object": found}).encode() + b"\n")


class Server:
    """One kind, KeystoneProject unless it is `of` another. `objects` is what a list answers; `lists` and `watches` hold
    what the next requests get instead of the usual.
    """

    def __init__(self) -> None:
        self._others: dict[str, Server] = {}
        self.objects: list[Object] = []
        self.version = "100"
        self.lists: deque[web.Response | None] = deque()
        self.watches: deque[web.Response | Behaviour] = deque()
        self.usual: web.Response | Behaviour | None = None
        self.always: Callable[[], web.Response] | None = None
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.url = ""
        self.said: list[tuple[int, str, Object]] = []
        self._open: set[Watching] = set()

    @property
    def listed(self) -> int:
        return sum(what == "list" for what, _, _ in self.requests)

    @property
    def versions(self) -> list[str | None]:
        """The version that each watch was asked for from."""
        return [query.get("resourceVersion") for what, query, _ in self.requests if what == "watch"]

    def of(self, plural: str) -> Server:
        """The same for another kind."""
        return self if plural == KEYSTONE_PROJECT.plural else self._others.setdefault(plural, Server())

    async def route(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        known = {kind.plural for kind in (SECRET, LEASE, *(source.kind for source in SOURCES))}
        at = next(n for n, part in enumerate(parts) if part in known)
        server, name = self.of(parts[at]), "/".join(parts[at + 1 :])
        return server.named(name) if name else await server.answer(request)

    def named(self, name: str) -> web.Response:
        """A get of one object."""
        self.requests.append(("get", {"name": name}, ""))
        found = next((item for item in self.objects if item["metadata"]["name"] == name), None)
        return web.json_response(found) if found else refusal(404, "NotFound", name=name)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        what = "watch" if query.get("watch") == "true" else "list"
        self.requests.append((what, query, request.headers.get("Accept", "")))
        if self.always:
            return self.always()
        if what == "list":
            return (self.lists.popleft() if self.lists else None) or web.json_response(
                {"kind": "List", "metadata": {"resourceVersion": self.version}, "items": self.objects}
            )
        behaviour = self.watches.popleft() if self.watches else self.usual or idle
        if isinstance(behaviour, web.Response):
            return behaviour
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        watching = Watching(self, response, query.get("resourceVersion", ""))
        self._open.add(watching)
        try:
            await watching.until_cut(behaviour)
        finally:
            self._open.discard(watching)
        return response

    async def say(self, type_: str, found: Object) -> None:
        """Something happens to an object: every watch that is open, or begins at an earlier version, hears of it."""
        self.version = str(int(self.version) + 1)
        found["metadata"]["resourceVersion"] = self.version
        self.objects = [item for item in self.objects if item["metadata"]["name"] != found["metadata"]["name"]]
        if type_ != "DELETED":
            self.objects.append(found)
        self.said.append((int(self.version), type_, found))
        for watching in tuple(self._open):
            await watching.send(type_, found)

    def cut(self) -> None:
        """Ends every watch that is open."""
        for watching in tuple(self._open):
            watching.cut.set()


async def idle(watching: Watching) -> None:
    """What a healthy server does: what was said since the version, then bookmarks."""
    for said, type_, found in watching.server.said:
        if said > int(watching.version):
            await watching.send(type_, found)
    while True:
        await asyncio.sleep(0.1)
        await watching.send("BOOKMARK", {"metadata": {"resourceVersion": watching.server.version}})


async def silent(_: Watching) -> None:
    """Open, and nothing comes."""
    await asyncio.sleep(3600)


async def ended(_: Watching) -> None:
    """Over at once."""


def saying(*events: tuple[str, Object], then: Behaviour = idle) -> Behaviour:
    async def say(watching: Watching) -> None:
        for type_, found in events:
            await watching.send(type_, found)
        await then(watching)

    return say


def refusal(code: int, reason: str, message: str = "", **details: str) -> web.Response:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return web.json_response(status, status=code)


def gone() -> Object:
    return {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old resource version"}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, Cluster]]:
    """The server and a client of it, as the management cluster."""
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.route)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    cluster = client(server.url)
    try:
        yield server, cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def client(url: str, name: str = "") -> Cluster:
    return Cluster(name, ApiClient(configuration=Configuration(host=url)))
