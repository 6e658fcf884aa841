"""Claims: one Lease per identity that is about to be created in Keystone, so that two orders never both create it.

Creation of the Lease is the atomic test; it is marked like a child and goes with the children (contracts 14.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from activities.cluster import LEASE, Cluster
from activities.errors import Conflict


async def claim(cluster: Cluster, namespace: str, name: str, holder: str, labels: Mapping[str, str]) -> str | None:
    """Claims, and answers who holds the claim now; None when it vanished between the two looks: ask again."""
    body = {
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {"holderIdentity": holder, "acquireTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
    }
    try:
        await cluster.create(LEASE, body)
    except Conflict:
        return await holder_of(cluster, namespace, name)
    return holder


async def holder_of(cluster: Cluster, namespace: str, name: str) -> str | None:
    """Who holds the claim, None when nobody does."""
    live = await cluster.get(LEASE, namespace, name)
    return str((live.get("spec") or {}).get("holderIdentity") or "") if live else None


async def drop(cluster: Cluster, namespace: str, labels: Mapping[str, str], keep: Collection[str] = ()) -> None:
    """Drops every claim that carries the labels, but for those of these names."""
    await cluster.delete_all(LEASE, namespace, labels, keep)
