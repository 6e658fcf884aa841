"""The right to write: from when it is lent, and what ends it. No server is needed to tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster import CONTROL_PLANE, Cluster, Kind
from activities.clusters import Clusters
from activities.errors import Moved
from activities.job import Job
from activities.keystoneaccount import Accounts
from activities.keystoneproject import KeystoneProjects
from activities.mariadbdatabase import MariaDBDatabases
from activities.openbao import OpenBao
from activities.ordered import Given as Ordered
from activities.pen import Pen
from activities.registration import Given as Registered
from workflows.api.controlplane import ControlPlane
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import STEP_DEADLINE, OrderSeen, Task

SLOW = 0.3

PLANE = ControlPlane.model_validate({"metadata": {"name": "cp", "namespace": "openstack", "uid": "p"}, "spec": {}})


class SlowCluster:
    async def get(self, *_: Any) -> None:
        await asyncio.sleep(SLOW)


class SlowClusters:
    """A target cluster whose registration takes a while to be read."""

    management = SlowCluster()

    async def get(self, name: str) -> SlowCluster:
        await asyncio.sleep(SLOW)
        return self.management


def task(kind: str) -> Task:
    ref = OrderRef(kind=kind, cluster="" if kind == "KeystoneService" else "edge", namespace="team-a", name="o")
    order = OrderSeen(uid="u", generation=1, plane_key="openstack/cp", spec={"account": {"userName": "u"}})
    return Task(ref=ref, order=order, plane=PLANE)


class Standing:
    """One order, and its plane as it is by now."""

    def __init__(self, plane: dict[str, Any] | None, *, deleting: bool) -> None:
        self._plane = plane
        self._order = {"metadata": {"uid": "u", **({"deletionTimestamp": "now"} if deleting else {})}}

    async def get(self, kind: Kind, *_: Any) -> dict[str, Any] | None:
        return self._plane if kind is CONTROL_PLANE else self._order


class Lent(Exception):
    """Ends the step that was lent a pen."""


_CLUSTERS = cast(Clusters, SlowClusters())
_DATABASES = MariaDBDatabases(_CLUSTERS, cast(OpenBao, SimpleNamespace()))
_PROJECTS = KeystoneProjects(_CLUSTERS)
_ACCOUNTS = Accounts(cast(Cluster, SlowClusters.management))


@pytest.mark.row("T14")
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("MariaDBDatabase", _DATABASES.provision_database),
        ("MariaDBDatabase", _DATABASES.deliver_database),
        ("MariaDBDatabase", _DATABASES.remove_database),
        ("KeystoneProject", _PROJECTS.provision_project),
        ("KeystoneProject", _PROJECTS.remove_project),
        ("KeystoneService", _ACCOUNTS.publish_account),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
async def test_a_pen_is_lent_when_the_step_begins_however_long_it_reads_first(
    monkeypatch: pytest.MonkeyPatch, kind: str, step: Callable[[Task], Awaitable[Any]]
) -> None:
    """Temporal gives the step up that long after its beginning, and by then its last write must be over."""
    left: list[float] = []
    lend = Job.pen

    def pen(self: Job, **how: Any) -> Pen | None:
        lent = lend(self, **how)
        assert lent is not None
        left.append(lent.left)
        raise Lent

    monkeypatch.setattr(Job, "pen", pen)
    with pytest.raises(Lent):
        await ActivityEnvironment().run(step, task(kind))
    assert left[0] < STEP_DEADLINE.total_seconds() - SLOW / 2


def plane_with(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cp", "namespace": "openstack", "uid": "p"}, "spec": spec}


_ASSIGNED = plane_with(namespaceAssignments=[{"namespace": "team-a", "targetClusterRef": {"name": "edge"}}])
_ALLOWED = plane_with(korc={"serviceRegistrations": {"allowedNamespaces": ["team-a"]}})


async def lifted(made: type[Job], plane: dict[str, Any] | None, *, deleting: bool = False) -> None:
    """By the second attempt of a step: a removal's first one looks at no plane."""
    cluster = cast(Cluster, Standing(plane, deleting=deleting))
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=2)

    async def step() -> None:
        pen = made(task(made.kind.kind), cluster, cluster, time.monotonic()).pen(deleting=deleting)
        assert pen is not None
        await pen.lift()

    await environment.run(step)


@pytest.mark.row("S07", "M03")
@pytest.mark.parametrize(("made", "consents"), [(Registered, _ALLOWED), (Ordered, _ASSIGNED)], ids=["service", "other"])
@pytest.mark.parametrize("now", [plane_with(), None], ids=["consents no more", "is gone"])
async def test_a_pen_writes_nothing_once_the_plane_consents_no_more_but_for_a_removal(
    made: type[Job], consents: dict[str, Any], now: dict[str, Any] | None
) -> None:
    """A step's later attempts come minutes after its pass was admitted."""
    await lifted(made, consents)
    with pytest.raises(Moved, match="not served any more"):
        await lifted(made, now)
    await lifted(made, now, deleting=True)
