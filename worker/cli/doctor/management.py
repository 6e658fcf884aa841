"""The management cluster: the kinds it serves, the active watcher, and that the reference operator does not run.

Whether a Lease is alive is seen by its being renewed while we look, for clocks of machines differ.
"""

from __future__ import annotations

import asyncio

from activities.cluster import (
    CONTROL_PLANE,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_ROLE_ASSIGNMENT,
    KINDS,
    ORDER_KINDS,
    SECRET_STORE,
    Cluster,
    Kind,
)
from activities.errors import ClusterError, NotServed
from worker.checks import REFERENCE_LEASE, renewal
from worker.cli.doctor.check import ASK, Check, asked, fail, ok, warn
from worker.cli.reach import PeopleSettings
from workflows.scaffold.naming import WATCHER_LEASE

AREA = "management"
OURS = (*ORDER_KINDS.values(), KEYSTONE_ROLE_ASSIGNMENT, KEYSTONE_APPLICATION_CREDENTIAL)
_INSTALL = {
    "c5c3.io": "helm upgrade the chart (crds.install=true), or without Helm: kubectl apply --server-side -f"
    " deploy/crds/ (ControlPlane's comes with its operator)",
    "openstack.k-orc.cloud": "install K-ORC with its CustomResourceDefinitions",
    "external-secrets.io": "install External Secrets",
    "generators.external-secrets.io": "install External Secrets with its generators",
    "k8s.mariadb.com": "install mariadb-operator, which MariaDBDatabases need",
    "cert-manager.io": "install cert-manager, which MariaDBDatabases need",
}
_OTHERS = (*(kind for kind in KINDS.values() if kind.group in _INSTALL), SECRET_STORE)
_NOBODY = "c5c3-orders-doctor"
"""A name that no object has: the question is whether it may be asked for."""


async def checks(cluster: Cluster, settings: PeopleSettings) -> list[Check]:
    namespace = settings.operator_namespace
    found = await asyncio.gather(
        asked(AREA, served(AREA, cluster, (*OURS, CONTROL_PLANE, *_OTHERS), namespace)),
        asked(AREA, _watcher(cluster, namespace)),
        asked(AREA, _reference(cluster, settings)),
    )
    return [check for one in found for check in one]


async def served(area: str, cluster: Cluster, kinds: tuple[Kind, ...], namespace: str) -> list[Check]:
    """Whether the kinds are served, at the versions that are asked for."""
    answers = await asyncio.gather(*(_is_served(cluster, kind, namespace) for kind in kinds))
    found = [
        fail(area, f"{kind.kind} ({kind.api_version}) is not served", _INSTALL.get(kind.group, ""))
        for kind, answer in zip(kinds, answers, strict=True)
        if answer is False
    ]
    if hidden := [kind.plural for kind, answer in zip(kinds, answers, strict=True) if answer is None]:
        found.append(warn(area, f"you may not see whether {', '.join(hidden)} are served", ASK))
    return found or [ok(area, f"all {len(kinds)} kinds are served at the versions that are needed")]


async def _is_served(cluster: Cluster, kind: Kind, namespace: str) -> bool | None:
    """None when we may neither list nor get objects of the kind: rights are asked about before kinds."""
    try:
        try:
            await cluster.list(kind, namespace, name=_NOBODY, metadata_only=True)
        except ClusterError as error:
            if error.status != 403:
                raise
            await cluster.get(kind, namespace, _NOBODY)
    except NotServed:
        return False
    except ClusterError as error:
        if error.status != 403:
            raise
        return None
    return True


async def _watcher(cluster: Cluster, namespace: str) -> list[Check]:
    holder, renewed = await renewal(cluster, namespace, WATCHER_LEASE)
    lease = f"the Lease {namespace}/{WATCHER_LEASE}"
    if renewed:
        return [ok(AREA, f"the watcher {holder} is the active one and renews {lease}")]
    remedy = "start `python -m watcher` (docs/operating.md); one with C5C3_LEADER_ELECTION=false holds no Lease"
    if not holder:
        return [fail(AREA, f"no watcher is active: nobody holds {lease}", remedy)]
    return [fail(AREA, f"no watcher is active: {holder} holds {lease} and did not renew it while we looked", remedy)]


async def _reference(cluster: Cluster, settings: PeopleSettings) -> list[Check]:
    holder, renewed = await renewal(cluster, settings.reference_namespace, REFERENCE_LEASE)
    if not renewed:
        return [ok(AREA, "no reference operator is running beside us")]
    lease = f"{settings.reference_namespace}/{REFERENCE_LEASE}"
    text = f"the reference operator {holder} is running: it renews the Lease {lease}"
    if settings.serve_beside_reference:
        return [warn(AREA, f"{text}, which C5C3_SERVE_BESIDE_REFERENCE allows", "see that it serves other kinds only")]
    return [fail(AREA, text, "scale it to zero: two writers would fight over every status")]
