"""An order from its creation to a real project and away again, at home and on the target cluster."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable

import pytest

from deploy.local import kube
from tests.audit import requests
from tests.e2e.stage import CHILDREN, FINALIZER, LEASES, Order, Stage, condition, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


@pytest.mark.row("P01")
async def test_an_order_becomes_a_project_in_keystone_and_goes_without_a_trace(place: Place) -> None:
    order = await place().place()
    live = await order.is_ready()

    (row,) = await order.rows()
    status = live["status"]
    assert (status["projectID"], status["projectName"], status["domainName"]) == (row["id"], order.name, "Default")
    assert status["observedGeneration"] == live["metadata"]["generation"]
    assert condition(live, "ProjectReady")["reason"] == "ProjectProvisioned"
    assert condition(live, "Ready")["reason"] == "AllReady"
    assert live["metadata"]["finalizers"] == [FINALIZER]

    managed = await order.managed()
    assert managed is not None
    assert managed["status"]["id"] == row["id"]
    assert managed["spec"] == {
        "managementPolicy": "managed",
        "cloudCredentialsRef": {"secretName": "cp-admin-password-cloud", "cloudName": "admin"},
        "resource": {"name": order.name, "domainRef": "cp-domain-default"},
    }
    for child in await order.children():
        claims = {"c5c3.io/claims": "project"} if child["metadata"]["name"].startswith("c5c3-claim-") else {}
        assert child["metadata"]["labels"] == order.labels | claims
        assert "ownerReferences" not in child["metadata"]
    assert await order.asked() is None, "the probe outlived its answer"

    await order.delete()
    await order.gone()
    await order.left_nothing()


async def test_the_probe_was_asked_before_the_managed_project_was_made(real_stack: Stage, place: Place) -> None:
    """By the API server's own audit log: the probe first, and deleted as soon as the managed Project is applied."""
    order = await place().place()
    await order.is_ready()
    writes = [
        (request.verb, request.name)
        for request in requests(real_stack.stack, "management", real_stack.begun)
        if request.name.startswith(order.child) and request.verb not in ("get", "list", "watch")
    ]
    assert writes == [("create", order.probe), ("patch", order.child), ("delete", order.probe)]


async def test_an_order_on_the_target_cluster_is_provisioned_at_home(real_stack: Stage, place: Place) -> None:
    order = await place("edge", cluster="target").place()
    live = await order.is_ready()

    (row,) = await order.rows()
    assert live["status"]["projectID"] == row["id"]
    managed = await order.managed()
    assert managed is not None
    assert managed["metadata"]["labels"] == order.labels
    assert await kube.items(real_stack.stack, "target", CHILDREN) == []
    assert await kube.get(real_stack.stack, "management", "keystoneprojects.c5c3.io", "team-a", order.name) is None

    await order.delete()
    await order.gone()
    await order.left_nothing()


@pytest.mark.row("P02")
async def test_reserved_names_are_refused_in_any_case_or_accent(real_stack: Stage, place: Place) -> None:
    services = [f"service-{name}" for name in ("glance", "placement", "barbican", "neutron", "cinder", "nova")]
    spellings = ["ADMIN", "àdmin", "SERVICE-GLANCE", "service-glancé", unicodedata.normalize("NFD", "service-nóva")]
    orders = [place("reserved", project=name) for name in ("admin", *services, *spellings)]
    before = {row["id"] for row in await real_stack.keystone.projects()}
    await asyncio.gather(*(order.place() for order in orders))

    for order in orders:
        said = await order.reads("ProjectCollision")
        assert order.project in said["message"]
        assert "reserves" in said["message"]
        assert await order.children() == []
    assert {row["id"] for row in await real_stack.keystone.projects()} == before

    await asyncio.gather(*(order.delete() for order in orders))
    await asyncio.gather(*(order.gone() for order in orders))
    assert {row["id"] for row in await real_stack.keystone.projects()} == before, "a reserved project was deleted"


@pytest.mark.row("P03")
async def test_an_existing_project_survives_and_other_domains_do_not_collide(real_stack: Stage, place: Place) -> None:
    taken, elsewhere = place("taken"), place("elsewhere")
    domain = await real_stack.keystone.create("domains", name=elsewhere.name)
    foreign = await real_stack.keystone.create("projects", name=taken.name, domain_id="default")
    namesake = await real_stack.keystone.create("projects", name=elsewhere.name, domain_id=domain["id"])
    try:
        await asyncio.gather(taken.place(), elsewhere.place())
        said = await taken.reads("ProjectCollision")
        assert "never taken over" in said["message"]
        assert await taken.managed() is None
        live = await elsewhere.is_ready()
        assert live["status"]["projectID"] != namesake["id"]

        await asyncio.gather(taken.delete(), elsewhere.delete())
        await asyncio.gather(taken.gone(), elsewhere.gone())
        assert [row["id"] for row in await taken.rows()] == [foreign["id"]]
        kept = await real_stack.keystone.projects(name=elsewhere.name)
        assert [row["id"] for row in kept] == [namesake["id"]]
    finally:
        await real_stack.keystone.delete("projects", foreign["id"])
        await real_stack.keystone.delete("projects", namesake["id"])
        await real_stack.keystone.delete("domains", domain["id"])


async def test_of_two_orders_for_one_name_exactly_one_gets_it(real_stack: Stage, place: Place) -> None:
    """Placed in the same moment, from two namespaces."""
    first = place("twin")
    second = place("twin", namespace="team-b", project=first.name)
    await asyncio.gather(first.place(), second.place())

    async def reasons() -> set[str]:
        return {condition(await each.live(), "ProjectReady").get("reason", "") for each in (first, second)}

    await until(reasons, lambda seen: seen == {"ProjectProvisioned", "ProjectCollision"})
    assert len(await first.rows()) == 1
    won, lost = (first, second) if await first.managed() else (second, first)
    assert await lost.managed() is None
    claims = await kube.items(real_stack.stack, "management", LEASES, "openstack")
    holders = [lease["spec"]["holderIdentity"] for lease in claims]
    assert holders.count(won.workflow_id) == 1
    assert lost.workflow_id not in holders
