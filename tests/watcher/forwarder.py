"""What lies between us and an API server: forwards bytes until it is told to swallow them, without closing anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Forwarder:
    """After `swallow`, open connections stay open and carry nothing, and new ones are taken and wait for `heal`."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: list[asyncio.StreamWriter] = []
        self.port = 0
        self.connections = 0

    def swallow(self) -> None:
        """Every connection there is goes dead for good; those that are made after `heal` are well."""
        self._may_pass = asyncio.Event()
        for task in self._tasks:
            task.cancel()

    def heal(self) -> None:
        self._may_pass.set()

    def cut(self) -> None:
        """Closes every connection there is."""
        for writer in self._kept:
            writer.close()
        self._kept.clear()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._kept.append(writer)
        await self._may_pass.wait()
        out, back = await asyncio.open_connection(*self._to)
        self._kept.append(back)
        for source, sink in ((reader, back), (out, writer)):
            task = asyncio.ensure_future(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.close()
        except OSError:
            sink.close()


@asynccontextmanager
async def forwarding(host: str, port: int) -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(host, port)
    server = await asyncio.start_server(forwarder.take, "127.0.0.1", 0)
    forwarder.port = server.sockets[0].getsockname()[1]
    try:
        yield forwarder
    finally:
        forwarder.heal()
        forwarder.swallow()
        server.close()
        forwarder.cut()
