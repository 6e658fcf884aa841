"""Which target clusters are registered: one task per registration Secret, told when the Secret changes.

Only the Secrets' metadata comes over the stream; the one who is told fetches the Secret it needs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence

from activities.cluster import Object
from watcher import changes

Engage = Callable[[str, asyncio.Event], Awaitable[None]]
"""Serves one registration, by its name, until it is cancelled; the event says that the Secret changed."""


class Registrations:
    """The listener of the stream of registration Secrets."""

    def __init__(self, engage: Engage) -> None:
        self._engage = engage
        self._known: dict[str, bytes] = {}
        self._tasks: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._dirty: asyncio.Queue[str] = asyncio.Queue()

    def listed(self, items: Sequence[Object]) -> None:
        present = {item["metadata"]["name"] for item in items}
        for name in [name for name in self._known if name not in present]:
            self._gone(name)
        for item in items:
            self._seen(item)

    def heard(self, type_: str, found: Object) -> None:
        if type_ == "DELETED":
            self._gone(found["metadata"]["name"])
        else:
            self._seen(found)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                name = await self._dirty.get()
                task, changed = self._tasks.get(name, (None, asyncio.Event()))
                if name not in self._known:
                    if task is not None:
                        task.cancel()
                        await asyncio.wait([task])
                        self._tasks.pop(name)
                elif task is None or task.done():
                    self._tasks[name] = (group.create_task(self._serve(name, changed)), changed)
                else:
                    changed.set()

    async def _serve(self, name: str, changed: asyncio.Event) -> None:
        await self._engage(name, changed)

    def _seen(self, found: Object) -> None:
        name, now = found["metadata"]["name"], changes.digest(changes.registration(found))
        if self._known.get(name) != now:
            self._known[name] = now
            self._dirty.put_nowait(name)

    def _gone(self, name: str) -> None:
        if self._known.pop(name, None) is not None:
            self._dirty.put_nowait(name)


def namespaces_of(secret: Object) -> list[str] | None:
    """The namespaces a registration is limited to (a comma list under the key `namespaces`); None for all."""
    try:
        text = base64.b64decode((secret.get("data") or {}).get("namespaces") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return sorted({part.strip() for part in text.split(",")} - {""}) or None
