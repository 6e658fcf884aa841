"""The right to write: from when it is lent, and what ends it. No server is needed to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster import Cluster
from activities.clusters import Clusters
from activities.job import Job
from activities.keystoneaccount import Accounts
from activities.keystoneproject import KeystoneProjects
from activities.mariadbdatabase import MariaDBDatabases
from activities.openbao import OpenBao
from activities.pen import Pen
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
