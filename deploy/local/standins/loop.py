"""What both stand-ins share: a plain way to the API server, and one task per object that looks again when it is rung.

kopf only watches for them (`on.event`). Its handlers that keep state would write annotations and finalizers of their
own onto the objects, and the real controllers write none of that.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
from kubernetes.aio import client, config

Object = dict[str, Any]
Key = tuple[str, str]
GONE = -1.0
_log = logging.getLogger("standin")


class ClusterError(Exception):
    """The API server refused; `status` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Cluster:
    """Namespaced objects as plain dicts. `resource` is "group/version/plural", or "v1/plural" for the core group."""

    def __init__(self) -> None:
        self._client: client.ApiClient | None = None

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """The object as it is now, or None."""
        try:
            return await self._send("GET", resource, namespace, name)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def items(self, resource: str, namespace: str) -> list[Object]:
        """All of a kind in a namespace."""
        return list((await self._send("GET", resource, namespace, ""))["items"] or ())

    async def patch(self, resource: str, namespace: str, name: str, body: Object, part: str = "") -> Object | None:
        """A JSON merge patch; None when the object is gone."""
        try:
            return await self._send("PATCH", resource, namespace, name + (f"/{part}" if part else ""), body)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def add_finalizer(self, resource: str, seen: Object, finalizer: str) -> Object | None:
        """Puts a finalizer on an object as it was read, unless it has it or is being deleted; answers what it wrote."""
        meta = seen["metadata"]
        if finalizer not in meta.get("finalizers", []) and "deletionTimestamp" not in meta:
            return await self._finalizers(resource, meta, [*meta.get("finalizers", []), finalizer])
        return None

    async def drop_finalizer(self, resource: str, seen: Object, finalizer: str) -> None:
        """Takes one finalizer off an object that was just read, if it has it."""
        meta = seen["metadata"]
        if finalizer in meta.get("finalizers", []):
            await self._finalizers(resource, meta, [f for f in meta["finalizers"] if f != finalizer])

    async def _finalizers(self, resource: str, meta: Object, wanted: list[str]) -> Object | None:
        body = {"metadata": {"finalizers": wanted, "resourceVersion": meta["resourceVersion"]}}
        return await self.patch(resource, meta["namespace"], meta["name"], body)

    async def _send(self, method: str, resource: str, namespace: str, path: str, body: Object | None = None) -> Object:
        if self._client is None:
            settings = client.Configuration()
            load: Any = config.load_kube_config  # not typed
            await load(client_configuration=settings, persist_config=False)
            self._client = client.ApiClient(settings)
        api, _, plural = resource.rpartition("/")
        root = f"api/{api}" if "/" not in api else f"apis/{api}"
        url = f"{self._client.configuration.host}/{root}/namespaces/{namespace}/{plural}/{path}".rstrip("/")
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        answer = await self._client.call_api(method, url, headers, body, _request_timeout=20)
        text: bytes = await answer.response.read()
        content = json.loads(text or b"{}")
        if answer.status >= 400:
            raise ClusterError(answer.status, str(content.get("message", "")))
        return dict(content)


class Rings:
    """One task per object. `look` answers when to look again by itself: seconds, None for never, GONE to forget it."""

    def __init__(self, look: Callable[[Key], Awaitable[float | None]]) -> None:
        self._look = look
        self._bells: dict[Key, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ring(self, key: Key) -> None:
        """Something about this object moved."""
        if key in self._bells:
            self._bells[key].set()
            return
        self._bells[key] = asyncio.Event()
        task = asyncio.create_task(self._tend(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tend(self, key: Key) -> None:
        bell, failures = self._bells[key], 0
        while True:
            bell.clear()
            try:
                pause = await self._look(key)
                failures = 0
            except Exception as error:  # a stand-in has no better answer to anything unforeseen than to look again
                conflict = isinstance(error, ClusterError) and error.status == 409
                if not conflict:
                    _log.warning("%s/%s: %s", *key, error)
                failures += 1
                pause = 0.05 if conflict else min(30.0, 0.5 * 2**failures)
            if pause == GONE and not bell.is_set():
                del self._bells[key]
                return
            try:
                async with asyncio.timeout(pause):
                    await bell.wait()
            except TimeoutError:
                pass


def key_of(body: kopf.Body) -> Key:
    """Namespace and name."""
    return str(body["metadata"]["namespace"]), str(body["metadata"]["name"])


@kopf.on.startup()
async def _quiet(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Keeps kopf from posting Events about its own work, and bounds the watches that may fall silent."""
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    # An API server that restarts on a crowded machine is away for minutes; past the last of these kopf stands still.
    settings.networking.error_backoffs = [0.2, 0.5, 1, 2, *[5] * 120]


@kopf.on.login()
def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """The kubeconfig that this process was given, nothing else."""
    return kopf.login_with_kubeconfig(**kwargs)
