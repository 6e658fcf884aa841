"""Target clusters: registered readably, reachable, serving our kinds, with the rights of what registers them.

The registration is the product's own login there, so its rights are asked about as our own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from activities.cluster import (
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    MARIADB_DATABASE,
)
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError
from worker.cli import orders
from worker.cli.doctor import management, rights
from worker.cli.doctor.check import Check, fail, ok
from worker.cli.doctor.planes import planes_of
from workflows.api.controlplane import ControlPlane

AREA = "targets"
KINDS = (KEYSTONE_PROJECT, MARIADB_DATABASE, KEYSTONE_ROLE_ASSIGNMENT, KEYSTONE_APPLICATION_CREDENTIAL)
_WIDEN = "add it to the list under the key namespaces of the Secret {}: changes of Databases there are not heard of"


async def checks(clusters: Clusters) -> list[Check]:
    names = await clusters.registered()
    if not names:
        return [ok(AREA, "no target cluster is registered")]
    planes: list[ControlPlane] = []
    with suppress(ClusterError):  # said where planes are looked at
        planes = await planes_of(clusters)
    found = await asyncio.gather(*(_one(clusters, name, planes) for name in names))
    return [check for one in found for check in one]


async def _one(clusters: Clusters, name: str, planes: list[ControlPlane]) -> list[Check]:
    try:
        cluster = await clusters.get(name)
        served = await orders.served_in(clusters, name)
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
    found += await management.served(AREA, cluster, KINDS, served[0] or "default")
    keystones = {plane.keystone_namespace: plane.key for plane in planes if plane.keystone_cluster == name}
    found += [
        fail(AREA, f"{name} is not registered for {namespace}, where {plane} has its Keystone", _WIDEN.format(name))
        for namespace, plane in keystones.items()
        if None not in served and namespace not in served
    ]
    return [*found, *await rights.on_target(AREA, cluster, served, list(keystones))]
