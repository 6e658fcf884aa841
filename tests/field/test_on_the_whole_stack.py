"""Failures from the field that need K-ORC and Keystone themselves: D2, D6, D13, D14 and D15, for projects.

Each test is named after what must hold; the numbers are those of the field reports.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable

import pytest

from deploy.local import kube
from deploy.local.api import ApiError
from deploy.local.part import PartError
from tests.audit import Request, requests
from tests.e2e.stage import CHILDREN, TARGET, Object, Order, Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]

CRD = "customresourcedefinitions.apiextensions.k8s.io"


async def test_d2_somebody_elses_project_is_never_adopted(real_stack: Stage, place: Place) -> None:
    """Nor is a longer name, or the same name in another domain, a match."""
    billing = place("billing")
    longer = place("billing", project=f"{billing.name}-2")
    elsewhere = place("elsewhere")
    domain = await real_stack.keystone.create("domains", name=elsewhere.name)
    foreign = await real_stack.keystone.create("projects", name=billing.name, domain_id="default")
    namesake = await real_stack.keystone.create("projects", name=elsewhere.name, domain_id=domain["id"])
    try:
        seen = asyncio.create_task(reasons(billing, "ProjectCollision"))
        await asyncio.gather(*(order.place() for order in (billing, longer, elsewhere)))
        assert set(await seen) <= {"", "ProbingForCollision", "ProjectCollision"}
        await asyncio.gather(longer.is_ready(), elsewhere.is_ready())
        written = [r for r in asked_of(real_stack, billing.child) if r.name == billing.child and r.verb == "patch"]
        assert written == [], "no managed Project may ever be applied"
        await billing.delete()
        await billing.gone()
        assert [row["id"] for row in await billing.rows()] == [foreign["id"]]
    finally:
        for project in (foreign, namesake):
            await real_stack.keystone.delete("projects", project["id"])
        await real_stack.keystone.delete("domains", domain["id"])


async def test_d6_a_worker_killed_between_making_and_recording_makes_no_second_one(
    real_stack: Stage, place: Place
) -> None:
    order = place("unrecorded")
    killed = asyncio.create_task(kill_when_made(real_stack, order))
    await order.place()
    await killed
    assert "projectID" not in await order.status(), "killed too late to prove anything"
    await real_stack.start("worker")
    live = await order.is_ready(90)
    (row,) = await order.rows()
    assert live["status"]["projectID"] == row["id"]
    managed = await order.managed()
    assert managed is not None
    assert managed["metadata"]["generation"] == 1
    assert "rror" not in str(live["status"])


async def test_d13_a_cluster_with_a_name_too_long_is_said_and_its_orders_can_go(
    real_stack: Stage, place: Place
) -> None:
    """The target cluster, registered under 64 characters for a while: no write, no hot loop, and a way out."""
    here, long = real_stack.stack, unique("a-cluster").ljust(64, "x")
    secret = await kube.get(here, "management", "secrets", "c5c3-clusters", TARGET)
    assert secret is not None
    meta = {"namespace": "c5c3-clusters", "labels": secret["metadata"]["labels"]}
    body: Object = {"apiVersion": "v1", "kind": "Secret", "data": secret["data"]}
    await real_stack.delete("management", "secrets", "c5c3-clusters", TARGET)
    order = place("toolong", cluster="target")
    handle = real_stack.temporal.get_workflow_handle(f"KeystoneProject:team-a/{order.name}@{long}")
    try:
        await kube.apply(here, "management", [{**body, "metadata": {**meta, "name": long}}])
        await order.place()
        said = await order.reads("ClusterNameTooLong")
        assert long in said["message"]
        await asyncio.sleep(2)
        length = (await handle.describe()).history_length
        await asyncio.sleep(15)
        assert (await handle.describe()).history_length == length, "nobody looks again"
        live = await order.live()
        assert live is not None
        assert "finalizers" not in live["metadata"]
        await order.delete()
        await order.gone(15)
    finally:
        await real_stack.delete("management", "secrets", "c5c3-clusters", long)
        await kube.apply(here, "management", [{**body, "metadata": {**meta, "name": TARGET}}])
    assert await order.children() == []
    again = await place("edge", cluster="target").place()
    await again.is_ready(90)


async def test_d13_names_of_63_and_64_characters_and_namesakes(real_stack: Stage, place: Place) -> None:
    fits = place("fits".ljust(56, "x"))
    namesake = real_stack.order(fits.name, namespace="team-b", project=unique("namesake"))
    assert len(fits.name) == 63
    fits = real_stack.order(fits.name, project=unique("fits"))
    over = real_stack.order(unique("over").ljust(64, "x"), project=unique("over"))
    with pytest.raises(ApiError) as refused:
        await kube.call(real_stack.stack, "management", "POST",
                        "/apis/c5c3.io/v1alpha1/namespaces/team-a/keystoneprojects", over.body)  # fmt: skip
    assert "metadata.name must be at most 63 bytes" in str(refused.value)
    try:
        await asyncio.gather(fits.place(), namesake.place())
        await asyncio.gather(fits.is_ready(), namesake.is_ready())
        assert fits.child != namesake.child
        for order in (fits, namesake):
            assert len(order.child) <= 253
            assert await order.managed() is not None
    finally:
        await asyncio.gather(fits.delete(), namesake.delete())
    await asyncio.gather(fits.gone(), namesake.gone())
    await asyncio.gather(fits.left_nothing(), namesake.left_nothing())


async def test_d13_without_our_rules_a_long_name_gets_a_reason_and_can_be_deleted(
    real_stack: Stage, place: Place
) -> None:
    """The target cluster's definition loses its CEL rules for a while, as an older installation would lack them."""
    here, name = real_stack.stack, "keystoneprojects.c5c3.io"
    before = await kube.get(here, "target", CRD, None, name)
    assert before is not None
    bare = [
        {**version, "schema": {"openAPIV3Schema": without_rules(version["schema"]["openAPIV3Schema"])}}
        for version in before["spec"]["versions"]
    ]
    over = place("over".ljust(57, "x"), cluster="target")
    assert len(over.name) == 64
    over.project = unique("over")
    try:
        await kube.patch(here, "target", CRD, None, name, {"spec": {"versions": bare}})
        await until(lambda: placed(over), bool, 20, pause=0.5)
        said = await over.reads("ProjectError")
        assert "63" in said["message"]
        assert await over.rows() == []
        await over.delete()
        await over.gone(20)
    finally:
        await kube.patch(here, "target", CRD, None, name, {"spec": {"versions": before["spec"]["versions"]}})


async def test_d14_every_spelling_of_a_reserved_name_is_refused_and_neighbours_pass(place: Place) -> None:
    decomposed = unicodedata.normalize("NFD", "service-glancé")
    spellings = ("Service-Glance", "SERVICE-GLANCE", "service-glancé", decomposed, "Ádmin")
    refused = [place("reserved", project=name) for name in spellings]
    neighbours = [place("neighbour", project=name) for name in ("administrator", "service-glance2", "xservice-glance")]
    await asyncio.gather(*(order.place() for order in (*refused, *neighbours)))
    for order in refused:
        await order.reads("ProjectCollision")
        assert await order.children() == []
    for order in neighbours:
        await order.is_ready()
        assert len(await order.rows()) == 1


async def test_d14_an_existing_project_in_another_spelling_collides(real_stack: Stage, place: Place) -> None:
    """Keystone on MariaDB compares without case and accents, so K-ORC's probe finds it."""
    order = place("spelling")
    foreign = await real_stack.keystone.create("projects", name=order.name.upper(), domain_id="default")
    try:
        await order.place()
        await order.reads("ProjectCollision")
        assert await order.managed() is None
    finally:
        await real_stack.keystone.delete("projects", foreign["id"])


async def test_d15_an_order_left_alone_is_left_alone_and_a_storm_folds(real_stack: Stage, place: Place) -> None:
    """Half a minute without a request, an event or a write; then forty changes of a child make a handful of passes."""
    orders = [await place("calm").place() for _ in range(3)]
    for order in orders:
        await order.is_ready()
    await asyncio.sleep(5)
    before = [await order.live() for order in orders]
    lengths = [(await order.handle.describe()).history_length for order in orders]
    asked = sum(len(asked_of(real_stack, order.name)) for order in orders)
    await asyncio.sleep(30)
    assert [await order.live() for order in orders] == before
    assert [(await order.handle.describe()).history_length for order in orders] == lengths
    assert sum(len(asked_of(real_stack, order.name)) for order in orders) == asked

    order = orders[0]
    passes = await order.passes()
    for number in range(40):
        label: Object = {"metadata": {"labels": {"example.org/storm": str(number)}}}
        await kube.patch(real_stack.stack, "management", CHILDREN, "openstack", order.child, label)
    await asyncio.sleep(3)
    assert await order.passes() - passes <= 20, "the storm was not folded"
    assert await order.live() == before[0], "nothing about the order changed, so nothing is written"


async def test_d15_a_message_moves_without_the_time_of_its_condition(real_stack: Stage, place: Place) -> None:
    """K-ORC's words change while the order goes on waiting: the message follows, `lastTransitionTime` does not."""
    order = place("worded")
    async with real_stack.without("korc"):
        await order.place()
        first = await order.reads("ProbingForCollision")
        status: Object = {"conditions": [words("first words"), words("first words", "Progressing", "True")]}
        await kube.patch(
            real_stack.stack, "management", CHILDREN, "openstack", order.probe, {"status": status}, "status"
        )
        await until(order.live, lambda live: "first words" in condition(live, "ProjectReady")["message"], 20)
        live = await order.live()
        assert condition(live, "ProjectReady")["lastTransitionTime"] == first["lastTransitionTime"]
        assert condition(live, "ProjectReady")["status"] == "False"
    await order.is_ready(90)


def words(message: str, type_: str = "Available", status: str = "False") -> Object:
    return {
        "type": type_, "status": status, "reason": "Progressing", "message": message, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }  # fmt: skip


async def reasons(order: Order, last: str) -> list[str]:
    """Every reason the order is seen to read, until it reads the last."""
    found: list[str] = []
    while last not in found:
        found.append(condition(await order.live(), "ProjectReady").get("reason", ""))
        await asyncio.sleep(0.05)
    return found


async def kill_when_made(stage: Stage, order: Order) -> None:
    """Kills the worker the moment the managed Project is there."""
    await until(order.managed, lambda child: child is not None, pause=0.02)
    await stage.kill("worker")


async def placed(order: Order) -> bool:
    """Places an order; False while the server still has the old rules."""
    try:
        await order.place()
    except PartError:
        return False
    return True


def asked_of(stage: Stage, name: str) -> list[Request]:
    return [r for r in requests(stage.stack, "management", stage.begun) if r.name.startswith(name)]


def without_rules(schema: object) -> object:
    """The schema without CEL rules, at any depth."""
    if isinstance(schema, dict):
        return {key: without_rules(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
    return [without_rules(one) for one in schema] if isinstance(schema, list) else schema
