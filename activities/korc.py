"""K-ORC children as objects: reading, creating, applying, following and clearing them, for every kind of order.

What a child means is `workflows.scaffold.korc`'s; which one to write next is the kind's judge's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.cluster import Cluster, Kind, Object
from activities.errors import ClusterError, Conflict
from workflows.api.korc import KorcObject
from workflows.scaffold.korc import UNLATCHED_AT

_log = logging.getLogger(__name__)

LINGER_SECONDS = 4.0
"""How long a step that has just written stays to see what K-ORC makes of it: K-ORC answers in about a second, and
an answer seen here saves a ring, a pass and their requests."""


async def read(cluster: Cluster, kind: Kind, namespace: str, name: str) -> KorcObject | None:
    raw = await cluster.get(kind, namespace, name)
    return KorcObject.model_validate(raw) if raw else None


async def owned_by(cluster: Cluster, kind: Kind, namespace: str, labels: Mapping[str, str]) -> tuple[KorcObject, ...]:
    """Every object of the kind that carries the labels."""
    found = await cluster.list(kind, namespace, labels=labels)
    return tuple(KorcObject.model_validate(item) for item in found["items"])


async def create(cluster: Cluster, kind: Kind, body: Object) -> KorcObject | None:
    """Creates a child; None when an object has the name already, whosever it is: it is not touched."""
    try:
        return KorcObject.model_validate(await cluster.create(kind, body))
    except Conflict:
        return None


async def apply(cluster: Cluster, kind: Kind, body: Object, live: KorcObject | None) -> KorcObject:
    """Applies a child onto the very object that was read, or onto none (contracts 14.5). `Conflict` if it moved."""
    if live is not None:
        body = {**body, "metadata": {**body["metadata"], "uid": live.metadata.uid}}
    return KorcObject.model_validate(await cluster.apply(kind, body, force=live is not None))


async def follow(cluster: Cluster, kind: Kind, child: KorcObject, seconds: float) -> AsyncGenerator[KorcObject | None]:
    """The child as it changes, None when it is gone, for at most so long. A watch that fails just ends."""
    until = time.monotonic() + seconds
    meta = child.metadata
    events = cluster.watch(
        kind, meta.namespace, meta.resource_version, name=meta.name, seconds=max(1, round(seconds) + 1)
    )
    try:
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()), aclosing(events):
            async for event in events:
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield KorcObject.model_validate(event["object"])
                elif event["type"] == "DELETED":
                    yield None
    except TimeoutError:
        return
    except ClusterError as error:
        _log.debug("stopped following %s: %s", meta.name, error)


async def unlatch(cluster: Cluster, kind: Kind, child: KorcObject, failed: str) -> KorcObject | None:
    """Clears `Progressing` so that K-ORC tries again; None when the moment was wrong and the next pass will see.

    failed  error type when the API server refuses it for good (contracts 4.14)
    """
    meta = child.metadata
    kept: list[dict[str, Any]] = [
        condition.model_dump(mode="json", by_alias=True, exclude_none=True)
        for condition in child.status.conditions
        if condition.type != "Progressing"
    ]
    body = {"metadata": {"resourceVersion": meta.resource_version}, "status": {"conditions": kept}}
    try:
        cleared = await cluster.patch(kind, meta.namespace, meta.name, body, sub="status")
    except ClusterError as error:
        if error.passing or error.status == 404:
            _log.info("a latched transport error is cleared later: %s", error)
            return None
        raise ApplicationError(str(error), type=failed, non_retryable=True) from None
    _log.info("cleared a latched transport error", extra={"child": f"{kind.kind} {meta.namespace}/{meta.name}"})
    stamp = {"metadata": {"annotations": {UNLATCHED_AT: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}}
    try:
        cleared = await cluster.patch(kind, meta.namespace, meta.name, stamp)
    except ClusterError as error:
        _log.info("the clearing could not be stamped: %s", error)
    return KorcObject.model_validate(cleared)


async def detach(cluster: Cluster, kind: Kind, child: KorcObject) -> KorcObject:
    """Makes K-ORC forget the resource instead of deleting it, when the child goes."""
    meta = child.metadata
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "spec": {"managedOptions": {"onDelete": "detach"}},
    }
    live = await cluster.patch(kind, meta.namespace, meta.name, body)
    _log.warning(
        "let go of a resource in Keystone that may be a stranger's: it stays when the child is deleted",
        extra={"child": f"{kind.kind} {meta.namespace}/{meta.name}"},
    )
    return KorcObject.model_validate(live)
