"""Target clusters: registered readably, reachable, serving our kinds, with the rights of what registers them.

The registration is the product's own login there, so its rights are asked about as our own.
"""

from __future__ import annotations

import asyncio

from activities.cluster import (
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    MARIADB_DATABASE,
)
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError
from worker.cli.doctor import management, rights
from worker.cli.doctor.check import Check, fail, ok

AREA = "targets"
KINDS = (KEYSTONE_PROJECT, MARIADB_DATABASE, KEYSTONE_ROLE_ASSIGNMENT, KEYSTONE_APPLICATION_CREDENTIAL)


async def checks(clusters: Clusters) -> list[Check]:
    names = await clusters.registered()
    if not names:
        return [ok(AREA, "no target cluster is registered")]
    found = await asyncio.gather(*(_one(clusters, name) for name in names))
    return [check for one in found for check in one]


async def _one(clusters: Clusters, name: str) -> list[Check]:
    try:
        cluster = await clusters.get(name)
        who = await rights.who(cluster)
    except (Unregistered, BadKubeconfig) as error:
        return [fail(AREA, f"{name} cannot be used: {error}", "mend the kubeconfig in the Secret that registers it")]
    except ClusterError as error:
        if error.status == 401:
            return [
                fail(AREA, f"{name} does not know its registration's login (401)", "put a valid token into the Secret")
            ]
        remedy = f"see that its API server is reachable from here; or deregister it: delete the Secret {name}"
        return [fail(AREA, f"{name} does not answer: {error}", remedy)]
    found = [ok(AREA, f"{name} answers, to {who}")]
    found += await management.served(AREA, cluster, KINDS, "default")
    found += await rights.granted(AREA, cluster, rights.needed("target"), None, "target", f"{name}'s registration")
    return found
