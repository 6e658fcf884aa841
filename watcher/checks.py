"""What must hold of the management cluster before the watcher starts, each with the remedy when it does not.

A server that is down is waited for; one that answers and cannot serve us as it is ends the start with one sentence.
"""

from __future__ import annotations

import asyncio
import logging

from activities.cluster import LEASE, SECRET, Cluster, Kind
from activities.clusters import REGISTRATION_LABEL
from activities.errors import ClusterError, NotServed
from watcher.leader import NAME
from watcher.mapping import SOURCES
from watcher.settings import WatcherSettings

_log = logging.getLogger(__name__)

_NONE = {"c5c3.io/start-check": "none"}
"""Labels that no object has: the list proves the right and carries nothing."""
_LONGEST_PAUSE = 10.0


class CannotStart(Exception):
    """The watcher cannot start; one sentence with the remedy."""


async def check_cluster(cluster: Cluster, settings: WatcherSettings) -> None:
    """Returns once the management cluster answers; raises CannotStart when what it answers will not do."""
    missing: list[str] = []
    for source in SOURCES:
        if not await _may_list(cluster, source.kind, None, _NONE):
            missing.append(_name(source.kind))
    if not await _may_list(cluster, SECRET, settings.clusters_namespace, REGISTRATION_LABEL | _NONE):
        missing.append(f"secrets in namespace {settings.clusters_namespace}")
    if missing:
        raise CannotStart(
            f"no permission to list {', '.join(missing)} on the management cluster: bind the roles of deploy/rbac to"
            " the watcher's identity (it needs list and watch on each)"
        )
    if settings.leader_election:
        await _check_lease(cluster, settings)


async def _may_list(cluster: Cluster, kind: Kind, namespace: str | None, labels: dict[str, str]) -> bool:
    pause = 0.5
    while True:
        try:
            await cluster.list(kind, namespace, labels=labels, metadata_only=True)
            return True
        except NotServed:
            if any(source.is_order and source.kind == kind for source in SOURCES):
                raise CannotStart(
                    f"the management cluster does not serve {kind.kind} ({kind.api_version}): install the"
                    " CustomResourceDefinitions of deploy/crds (kubectl apply --server-side -f deploy/crds)"
                ) from None
            _log.info("%s is not served here; it is asked for again every minute", _name(kind))
            return True
        except ClusterError as error:
            if error.status == 403:
                return False
            await _pause_or_give_up(error, pause)
        pause = min(_LONGEST_PAUSE, pause * 2)


async def _check_lease(cluster: Cluster, settings: WatcherSettings) -> None:
    pause = 0.5
    while True:
        try:
            await cluster.get(LEASE, settings.operator_namespace, NAME)
            return
        except ClusterError as error:
            if error.status == 403:
                raise CannotStart(
                    f"no permission on the Lease {settings.operator_namespace}/{NAME}: bind the roles of deploy/rbac"
                    " to the watcher's identity (get, create and update on leases there), set"
                    " C5C3_OPERATOR_NAMESPACE to the watcher's namespace, or C5C3_LEADER_ELECTION=false"
                ) from None
            await _pause_or_give_up(error, pause)
        pause = min(_LONGEST_PAUSE, pause * 2)


async def _pause_or_give_up(error: ClusterError, pause: float) -> None:
    if error.status == 401:
        raise CannotStart(
            "the management cluster does not know us (401): check the kubeconfig in C5C3_KUBECONFIG, or the pod's"
            " ServiceAccount"
        ) from None
    if not error.passing:
        raise CannotStart(f"the management cluster cannot be used: {error}") from None
    _log.warning("waiting for the management cluster, next look in %g s: %s", pause, error)
    await asyncio.sleep(pause)


def _name(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural
