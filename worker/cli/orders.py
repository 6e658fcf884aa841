"""Orders as people list them: read from the clusters where they live, each as one line that says how it is.

A cluster or a kind that cannot be read is a line as well, with its own words, and never ends the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from activities.cluster import KEYSTONE_SERVICE, ORDER_KINDS, Cluster, Kind, Object
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError
from watcher.registrations import namespaces_of
from worker.cli.reach import MANAGEMENT
from workflows.api.meta import Condition, Meta, Model, find
from workflows.scaffold.order import OrderRef

AT_HOME = (KEYSTONE_SERVICE,)
"""The kinds that are ordered on the management cluster alone."""
_NOBODY_YET = "no status yet: nobody has looked at it (`c5c3-orders doctor` says whether watcher and worker run)"


class Order(Model):
    """One order. `cluster` is `management` or a target cluster's name; `reason` and `message` say what keeps it."""

    kind: str
    cluster: str
    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    control_plane: str
    created: datetime | None = None
    deleting: datetime | None = None
    reasons: tuple[str, ...] = Field((), exclude=True)
    finalized: bool = Field(False, exclude=True)

    @property
    def ref(self) -> OrderRef:
        cluster = "" if self.cluster == MANAGEMENT else self.cluster
        return OrderRef(kind=self.kind, cluster=cluster, namespace=self.namespace, name=self.name)


class Unread(Model):
    """What could not be listed, and why."""

    cluster: str
    what: str
    error: str


class Listed(Model):
    """Everything that a list found."""

    orders: tuple[Order, ...] = ()
    unread: tuple[Unread, ...] = ()


async def listed(clusters: Clusters, kinds: Sequence[Kind], namespace: str | None, cluster: str) -> Listed:
    """Orders of these kinds.

    namespace  None for all
    cluster    `all`, `management`, or a target cluster's name
    """
    names, unread = [MANAGEMENT if cluster == "all" else cluster], []
    if cluster == "all":
        try:
            names += await clusters.registered()
        except ClusterError as error:
            unread.append(Unread(cluster=MANAGEMENT, what="registered target clusters", error=str(error)))
    found = await asyncio.gather(*(_of_cluster(clusters, name, kinds, namespace) for name in names))
    orders = sorted((order for one in found for order in one.orders), key=lambda o: (o.namespace, o.kind, o.name))
    return Listed(orders=tuple(orders), unread=(*unread, *(each for one in found for each in one.unread)))


async def served_in(clusters: Clusters, name: str) -> tuple[str | None, ...]:
    """The namespaces whose orders are served on a cluster: all (None), or those that its registration is limited to."""
    limits = namespaces_of(await clusters.registration(name)) if name else None
    return tuple(limits) if limits else (None,)


async def _of_cluster(clusters: Clusters, name: str, kinds: Sequence[Kind], namespace: str | None) -> Listed:
    try:
        cluster = await clusters.get("" if name == MANAGEMENT else name)
        served = await served_in(clusters, cluster.name)
    except (Unregistered, BadKubeconfig, ClusterError) as error:
        return Listed(unread=(Unread(cluster=name, what="the cluster", error=str(error)),))
    kinds = [kind for kind in kinds if not (cluster.name and kind in AT_HOME)]
    if namespace is not None:
        served = (namespace,) if served == (None,) or namespace in served else ()
    looks = [(kind, each) for kind in kinds for each in served]
    found = await asyncio.gather(*(_of_kind(cluster, name, *look) for look in looks))
    unread = [each for one in found for each in one.unread]
    if len(unread) == len(looks) > 1 and all("no answer" in each.error for each in unread):
        unread = [Unread(cluster=name, what="the cluster", error=unread[0].error)]
    return Listed(orders=tuple(order for one in found for order in one.orders), unread=tuple(unread))


async def _of_kind(cluster: Cluster, name: str, kind: Kind, namespace: str | None) -> Listed:
    try:
        items = (await cluster.list(kind, namespace))["items"]
    except ClusterError as error:
        return Listed(unread=(Unread(cluster=name, what=kind.plural, error=str(error)),))
    return Listed(orders=tuple(order_of(kind, name, item) for item in items))


def order_of(kind: Kind, cluster: str, raw: Object) -> Order:
    """The line of one order as the API server holds it."""
    meta = Meta.model_validate(raw["metadata"])
    conditions = conditions_of(raw)
    ready = find(conditions, "Ready")
    unready = next((each for each in conditions if each.type != "Ready" and each.status != "True"), None)
    said = unready or ready
    reason, message = (said.reason, said.message) if said else ("-", _NOBODY_YET)
    if meta.deletion_timestamp and ready is not None and unready is None:
        reason, message = "Deleting", ready.message
    elif unready is not None and ready is not None and _is_a_note(ready, conditions):
        message = f"{ready.message} {message}"
    ref = (raw.get("spec") or {}).get("controlPlaneRef") or {}
    return Order(
        kind=kind.kind,
        cluster=cluster,
        namespace=meta.namespace,
        name=meta.name,
        ready=ready is not None and ready.status == "True",
        reason=reason,
        message=message,
        control_plane=f"{ref.get('namespace') or meta.namespace}/{ref.get('name') or ''}",
        created=meta.creation_timestamp,
        deleting=meta.deletion_timestamp,
        reasons=tuple(each.reason for each in conditions),
        finalized=f"c5c3.io/{kind.kind.lower()}-teardown" in meta.finalizers,
    )


def _is_a_note(ready: Condition, conditions: Iterable[Condition]) -> bool:
    """Whether Ready says more than which of the others are not True: a pause, an error, a deletion."""
    return not any(ready.message.startswith(each.type) for each in conditions)


def conditions_of(raw: Object) -> tuple[Condition, ...]:
    found: list[Any] = (raw.get("status") or {}).get("conditions") or []
    return tuple(Condition.model_validate(each) for each in found)


def kind_named(text: str) -> Kind | None:
    """The kind of order that a person means: `KeystoneProject`, `keystoneproject`, `keystoneprojects.c5c3.io`."""
    plain = text.lower().removesuffix(".c5c3.io")
    return next((kind for kind in ORDER_KINDS.values() if plain in (kind.kind.lower(), kind.plural)), None)


def age(since: datetime | None, now: datetime | None = None) -> str:
    """How long ago, as kubectl says it; a dash when it never was."""
    if since is None:
        return "-"
    seconds = max(0, round(((now or datetime.now(UTC)) - since).total_seconds()))
    for limit, unit, word in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit}{word}"
    return f"{seconds // 86400}d"
