"""What the product does seldom, done once on the whole real stack: latches of every kind, and a Keystone elsewhere.

Chance decides which child an outage latches, so here the latch is written by hand, as K-ORC writes it.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from deploy.local import kube
from deploy.local.parts import crds, operator
from tests.e2e.databases import DATABASES, Estate, estate
from tests.e2e.services import RESOURCES, Service, account, catalog
from tests.e2e.stage import Object, Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Register = Callable[..., Service]
KINDS = {"Service", "Endpoint", "Domain", "Project", "User", "Role", "RoleAssignment"}
UNLATCHED_AT = "c5c3.io/korc-transport-unlatched-at"


@pytest.mark.row("S24")
async def test_a_latch_of_any_kind_is_cleared(real_stack: Stage, register: Register) -> None:
    """Of an account in a domain of its own, imports and assignments included; then the registration is whole again."""
    domain = await real_stack.keystone.create("domains", name=unique("domain"))
    service = register(
        "latched", catalog=catalog("public"),
        account=lambda name: account(f"{name}-project", "member", domainName=domain["name"]),
    )  # fmt: skip
    try:
        await (await service.place()).is_ready()
        children = {
            name: one for name, one in (await service.objects()).items() if name.split("/")[0] in KINDS
            if not name.endswith("-probe")
        }  # fmt: skip
        assert {name.split("/")[0] for name in children} == KINDS
        for name, child in children.items():
            await latch(real_stack, name.split("/")[0], child)
        for name, child in children.items():
            await until(lambda name=name, child=child: cleared(real_stack, name, child), bool)  # type: ignore[misc]
        await service.is_ready()
    finally:
        await service.delete()
        await service.gone(120)
        await real_stack.keystone.delete("domains", domain["id"])


async def latch(stage: Stage, kind: str, child: Object) -> None:
    """As K-ORC gives up on a create or update whose connection failed."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    failed = {"reason": "InvalidConfiguration", "message": "dial tcp 192.0.2.1:5000: connect: connection refused"}
    failed |= {"observedGeneration": child["metadata"]["generation"], "lastTransitionTime": now}
    conditions = [{"type": kind_, "status": "False", **failed} for kind_ in ("Available", "Progressing")]
    meta = child["metadata"]
    where = (RESOURCES[kind], meta["namespace"], meta["name"])
    await kube.patch(stage.stack, "management", *where, {"status": {"conditions": conditions}}, "status")


async def cleared(stage: Stage, name: str, child: Object) -> bool:
    """Whether we have cleared it, and K-ORC has looked again."""
    meta = child["metadata"]
    where = (RESOURCES[name.split("/")[0]], meta["namespace"], meta["name"])
    live = await kube.get(stage.stack, "management", *where)
    stamped = UNLATCHED_AT in ((live or {}).get("metadata", {}).get("annotations") or {})
    return stamped and condition(live, "Available").get("status") == "True"


@pytest.mark.row("M20")
async def test_a_database_of_a_keystone_on_another_cluster(real_stack: Stage) -> None:
    """MariaDB and Database are there, where this test plays their operator; credential and order are as ever."""
    placed = {"targetClusterRef": {"name": operator.TARGET}}
    async with estate(real_stack, keystone=placed) as ground, keystone_there(ground):
        order = await ground.database(unique("afar"), cluster="target").place()
        name = f"{order.prefix}-database"

        async def live() -> Object | None:
            return await kube.get(real_stack.stack, "target", DATABASES, ground.namespace, name)

        await until(live, bool)
        await ready(real_stack, DATABASES, ground.namespace, name)
        await order.is_ready()
        assert await order.delivered()
        assert await order.live_database() is None
        await order.delete()
        await order.gone()
        assert await live() is None


@asynccontextmanager
async def keystone_there(ground: Estate) -> AsyncIterator[None]:
    """The estate's Keystone is placed on the target cluster, which serves the kinds of mariadb-operator meanwhile."""
    stage = ground.stage
    there: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ground.namespace}},
        {
            "apiVersion": "k8s.mariadb.com/v1alpha1",
            "kind": "MariaDB",
            "metadata": {"namespace": ground.namespace, "name": "mariadb"},
            "spec": {},
        },
    ]
    kinds = crds.load(*(crds.OURS[1] / f"{name}.yaml" for name in ("databases", "mariadbs")))
    try:
        await kube.apply(stage.stack, "target", [*kinds, *there])
        await ready(stage, "mariadbs.k8s.mariadb.com", ground.namespace, "mariadb")
        await register_anew(stage, base64.b64encode(b"with MariaDB").decode())
        yield
    finally:
        await stage.delete("target", "namespaces", None, ground.namespace)
        for kind in kinds:
            await stage.delete("target", kind["kind"].lower(), None, kind["metadata"]["name"])
        await register_anew(stage, None)


async def register_anew(stage: Stage, note: str | None) -> None:
    """A registration whose content changed is listened to anew; else a kind that comes later is noticed in a minute."""
    where = ("secrets", operator.CLUSTERS, operator.TARGET)
    await kube.patch(stage.stack, "management", *where, {"data": {"note": note}})


async def ready(stage: Stage, resource: str, namespace: str, name: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    good = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Running", "lastTransitionTime": now}
    await kube.patch(stage.stack, "target", resource, namespace, name, {"status": {"conditions": [good]}}, "status")
