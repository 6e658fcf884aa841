"""What must hold of the management cluster before the worker starts, each with the remedy when it does not.

No check writes anything. The reference operator's Lease is judged by whether it moves while we look, never by a clock:
the other machine's may be wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from activities.cluster import (
    CONTROL_PLANE,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_ROLE_ASSIGNMENT,
    KINDS,
    KORC_PROJECT,
    LEASE,
    ORDER_KINDS,
    SECRET,
    Cluster,
    Kind,
)
from activities.errors import ClusterError, NotServed
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)

REFERENCE_LEASE = "c5c3.openstack.c5c3.io"
"""Lease by which the reference operator elects its leader (contracts 9.2)."""
_RENEWED_WITHIN = 10.0  # the reference renews every 2 s and gives up leading after 10
_LOOK_SECONDS = 1.0
_KINDS = (
    *ORDER_KINDS.values(),
    KEYSTONE_ROLE_ASSIGNMENT,
    KEYSTONE_APPLICATION_CREDENTIAL,
    CONTROL_PLANE,
    KORC_PROJECT,
)


class CannotStart(Exception):
    """The worker must not, or cannot, start; one sentence with the remedy."""


async def check_cluster(cluster: Cluster, settings: WorkerSettings, *, patience: float = 30.0) -> None:
    """Raises CannotStart unless the management cluster answers, serves our kinds, lets us read them and is ours."""
    await _answers(cluster, settings, patience)
    if missing := await _unserved(cluster, _KINDS, settings.operator_namespace):
        raise CannotStart(
            f"the management cluster does not serve {missing}: install the CustomResourceDefinitions of deploy/crds for"
            " our kinds, and ControlPlane's and K-ORC's with their operators"
        )
    others = [kind for kind in KINDS.values() if kind not in _KINDS and kind.group not in (LEASE.group, SECRET.group)]
    if missing := await _unserved(cluster, others, settings.operator_namespace):
        _log.warning("the management cluster does not serve %s: orders that need them will say so", missing)
    if not settings.serve_beside_reference:
        await _check_alone(cluster, settings.reference_namespace)


async def _answers(cluster: Cluster, settings: WorkerSettings, patience: float) -> None:
    """A server that is just coming up is waited for a while."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        try:
            await cluster.get(LEASE, settings.reference_namespace, REFERENCE_LEASE)
            return
        except ClusterError as error:
            where = f"the kubeconfig {settings.kubeconfig}" if settings.kubeconfig else "the pod's ServiceAccount"
            if error.status == 403:
                raise _forbidden(LEASE, error) from None
            if error.status == 401:
                raise CannotStart(f"the management cluster does not know us (401): check {where}") from None
            if not error.passing or asyncio.get_running_loop().time() >= end:
                raise CannotStart(f"the management cluster cannot be used: {error}; check {where}") from None
            _log.warning("waiting for the management cluster: %s", error)
        await asyncio.sleep(_LOOK_SECONDS)


async def _unserved(cluster: Cluster, kinds: Sequence[Kind], namespace: str) -> str:
    """The kinds that are not served, in words."""
    missing = [kind for kind in kinds if not await _served(cluster, kind, namespace)]
    return ", ".join(f"{kind.kind} ({kind.api_version})" for kind in missing)


async def _served(cluster: Cluster, kind: Kind, namespace: str) -> bool:
    try:
        await cluster.list(kind, namespace, metadata_only=True)
    except NotServed:
        return False
    except ClusterError as error:
        raise _forbidden(kind, error) if error.status == 403 else error from None
    return True


def _forbidden(kind: Kind, error: ClusterError) -> CannotStart:
    where = "bind the roles of deploy/rbac to the worker's identity"
    return CannotStart(f"no permission to read {kind.plural}.{kind.group}: {where} ({error})")


async def _check_alone(cluster: Cluster, namespace: str) -> None:
    """The reference operator is running when its Lease has a holder and is renewed while we look."""
    holder, renewed = await renewal(cluster, namespace, REFERENCE_LEASE)
    if renewed:
        raise CannotStart(
            f"the reference operator is running: {holder} renews the Lease {namespace}/{REFERENCE_LEASE}, and two"
            " writers would fight over every status. Scale it to zero, or set C5C3_SERVE_BESIDE_REFERENCE=true if it"
            " serves other kinds only"
        )


async def renewal(cluster: Cluster, namespace: str, name: str) -> tuple[str, bool]:
    """Who holds the Lease, if anybody, and whether it was renewed while we looked. A stopped holder takes a while."""
    first = await _lease(cluster, namespace, name)
    holder = str(first.get("holderIdentity") or "")
    if not holder:
        return "", False
    _log.info("looking whether %s renews the Lease %s/%s", holder, namespace, name)
    end = asyncio.get_running_loop().time() + _RENEWED_WITHIN
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_LOOK_SECONDS)
        now = await _lease(cluster, namespace, name)
        if now.get("holderIdentity") and now != first:
            return str(now["holderIdentity"]), True
    return holder, False


async def _lease(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    lease = await cluster.get(LEASE, namespace, name)
    spec: dict[str, Any] = (lease or {}).get("spec") or {}
    return spec
