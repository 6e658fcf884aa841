"""What nobody takes back: labelled children and claims whose order is gone, and deletions that do not end.

Children are listed before orders, and a suspect is looked at again: an order that goes at this moment is no trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from activities.cluster import DATABASE, LEASE, ORDER_KINDS, Cluster, Kind, Object
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError, NotServed
from worker.cli.children import LABELLED
from worker.cli.doctor.check import ASK, Check, fail, ok, warn
from worker.cli.doctor.planes import planes_of
from worker.cli.orders import AT_HOME, Order, age
from workflows.api.korc import GROUP
from workflows.scaffold.naming import order_named
from workflows.scaffold.order import OrderRef

AREA = "orders"
Place = tuple[Cluster, str | None, tuple[Kind, ...]]
"""A cluster, a namespace there or None for all, and the kinds that children of orders may be of."""


async def children(clusters: Clusters) -> list[Check]:
    """Children, in all namespaces of the management cluster and beside a Keystone elsewhere, whose order is gone."""
    places: list[Place] = [(clusters.management, None, LABELLED), *await _beside_keystones(clusters)]
    looks = [
        (cluster, kind, order, namespace)
        for cluster, namespace, kinds in places
        for kind in kinds
        for order in ORDER_KINDS.values()
    ]
    listed = await asyncio.gather(*(_labelled(*look) for look in looks))
    hidden: dict[str, dict[str, None]] = {}
    for (cluster, kind, _, namespace), items in zip(looks, listed, strict=True):
        if items is None:
            place = (namespace or "all namespaces") + (f" on cluster {cluster.name}" if cluster.name else "")
            hidden.setdefault(place, {})[kind.plural] = None
    suspects = [
        (cluster, kind, item, ref)
        for (cluster, kind, order, _), items in zip(looks, listed, strict=True)
        for item in items or ()
        if (ref := _order_of(order, item)) is not None
    ]
    refs = {ref for *_, ref in suspects}
    answers = dict(zip(refs, await asyncio.gather(*(_whether(clusters, ref) for ref in refs)), strict=True))
    found = [warn(AREA, f"you may not list {', '.join(kinds)} in {place}", ASK) for place, kinds in hidden.items()]
    for cluster, kind, item, ref in suspects:
        if (gone := answers[ref]) and await _still(cluster, kind, item):
            found.append(_left(cluster, kind, item, ref, gone))
    return found or [ok(AREA, f"no child and no claim is left without its order ({len(suspects)} looked at)")]


async def _beside_keystones(clusters: Clusters) -> list[Place]:
    """Where Databases are, of planes that have their Keystone on a target cluster. Elsewhere anybody may label one."""
    found: list[Place] = []
    for plane in await planes_of(clusters):
        if plane.keystone_cluster:
            with suppress(Unregistered, BadKubeconfig, ClusterError):  # said where planes are looked at
                cluster = await clusters.get(plane.keystone_cluster)
                found.append((cluster, plane.keystone_namespace, (DATABASE,)))
    return found


async def _labelled(cluster: Cluster, kind: Kind, order: Kind, namespace: str | None) -> list[Object] | None:
    """None when they may not be listed there."""
    labels = {f"c5c3.io/{order.kind.lower()}-name": None}
    try:
        listed = await cluster.list(kind, namespace, labels=labels, metadata_only=True)
    except NotServed:
        return []
    except ClusterError as error:
        if error.status == 403:
            return None
        if cluster.name:
            return []  # said where target clusters are looked at
        raise
    return list(listed["items"])


def _order_of(order: Kind, item: Object) -> OrderRef | None:
    return order_named(order.kind, item["metadata"].get("labels") or {}, at_home=order in AT_HOME)


async def _whether(clusters: Clusters, ref: OrderRef) -> str:
    """Why the order is gone; empty when it is there, or cannot be asked for."""
    try:
        home = await clusters.get(ref.cluster)
        live = await home.get(ORDER_KINDS[ref.kind], ref.namespace, ref.name)
    except Unregistered:
        return f"its cluster {ref.cluster} is not registered any more"
    except (BadKubeconfig, ClusterError):
        return ""  # said where target clusters are looked at
    return "" if live else "its order is gone"


async def _still(cluster: Cluster, kind: Kind, item: Object) -> bool:
    meta = item["metadata"]
    listed = await cluster.list(kind, meta["namespace"], name=meta["name"], metadata_only=True)
    return any(each["metadata"]["uid"] == meta["uid"] for each in listed["items"])


def _left(cluster: Cluster, kind: Kind, item: Object, ref: OrderRef, gone: str) -> Check:
    meta = item["metadata"]
    what = "claim" if kind is LEASE else "child"
    at = f" on cluster {cluster.name}" if cluster.name else ""
    text = f"the {what} {kind.kind} {meta['namespace']}/{meta['name']}{at} of {ref.workflow_id} is left: {gone}"
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    remedy = f"look at it, then{at}: kubectl -n {meta['namespace']} delete {resource} {meta['name']}"
    if kind.group == GROUP:
        remedy += " (a managed one takes what it stands for in OpenStack along)"
    if meta.get("deletionTimestamp"):
        held = ", ".join(meta.get("finalizers") or []) or "nobody"
        return warn(
            AREA, f"{text}; it is being deleted, held by {held}", "see its controller, and its words on the object"
        )
    return fail(AREA, text, remedy)


def stuck(orders: Sequence[Order], seconds: float) -> list[Check]:
    """Orders whose deletion we hold for longer than that."""
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    found = [
        fail(
            AREA,
            f"{each.kind} {each.ref.key} on {each.cluster} is being deleted for {age(each.deleting)}: {each.message}",
            f"c5c3-orders explain {each.kind} {each.ref.workflow_id.partition(':')[2]}",
        )
        for each in orders
        if each.finalized and each.deleting is not None and each.deleting < since
    ]
    return found or [ok(AREA, f"no deletion takes longer than {seconds:g} s")]
