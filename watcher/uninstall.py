"""`python -m watcher.uninstall`: fails while there are orders, naming them; `helm uninstall` runs it first.

An order whose operator is gone keeps its finalizer, and what was made for it, for ever. So a cluster that cannot be
looked at counts as one that has orders. It only reads.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from activities.cluster import SECRET, Cluster
from activities.clusters import REGISTRATION_LABEL, BadKubeconfig, connect_management, connect_target, kubeconfig_of
from activities.errors import ClusterError, NotServed
from watcher.mapping import SOURCES
from watcher.registrations import namespaces_of
from watcher.settings import WatcherSettings
from worker.settings import BadSettings, load

_NAMED = 5
"""How many orders of a kind are named; people look for the rest themselves."""


async def orders_left(settings: WatcherSettings) -> list[str]:
    """What speaks against an uninstall, a sentence each. Raises ClusterError and BadKubeconfig of home."""
    home = await connect_management(settings.kubeconfig)
    try:
        said = await _on(home, [None])
        registered = await home.list(SECRET, settings.clusters_namespace, labels=REGISTRATION_LABEL)
        for secret in registered["items"]:
            name = secret["metadata"]["name"]
            try:
                target = await connect_target(name, kubeconfig_of(secret))
                try:
                    said += await _on(target, namespaces_of(secret) or [None])
                finally:
                    await target.close()
            except (ClusterError, BadKubeconfig) as error:
                said.append(
                    f"whether cluster {name} has orders is not known ({error}): mend or delete its registration"
                )
    finally:
        await home.close()
    return said


async def _on(cluster: Cluster, namespaces: Sequence[str | None]) -> list[str]:
    said = []
    where = f"on cluster {cluster.name}" if cluster.name else "on the management cluster"
    for kind in (source.kind for source in SOURCES if source.is_order and (source.on_targets or not cluster.name)):
        found: list[str] = []
        for namespace in namespaces:
            try:
                listed = await cluster.list(kind, namespace, metadata_only=True)
            except NotServed:
                continue
            found += [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in listed["items"]]
        if found:
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            said.append(f"{kind.kind} {', '.join(found[:_NAMED])}{more} {where}: delete what is ordered first")
    return said


def main() -> int:
    """The program."""
    try:
        said = asyncio.run(orders_left(load(WatcherSettings)))
    except (BadSettings, BadKubeconfig, ClusterError) as error:
        said = [str(error)]
    if said:
        print("c5c3-orders stays: nobody else would serve or release these.", *said, sep="\n", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
