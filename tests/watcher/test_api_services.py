"""KeystoneServices on real API servers, by the operator's own rights: who is woken by an object of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.cluster import CONTROL_PLANE, KEYSTONE_SERVICE, KINDS, KORC_PROJECT, KORC_USER, PUSH_SECRET, SECRET
from deploy.local.part import Stack
from tests.watcher.apart import (
    NAMESPACE,
    PLANE_NAMESPACE,
    Mine,
    Object,
    Place,
    created,
    operator,
    patiently,
    place_on,
    quiet,
    watching,
    woken,
)
from tests.watcher.objects import service, until
from tests.workflows.test_registration import FULL, everything
from watcher.dispatch import Rates
from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import delivery, sweep
from workflows.keystoneservice.children import GENERATION, Registration, prefix
from workflows.scaffold.order import OrderRef

pytestmark = [pytest.mark.api, pytest.mark.row("S21")]
RATES = Rates(fold=0.2, fold_child=0.2, hold=0, cold=200, first_pause=0.05, longest_pause=0.5)
WHEN = "2026-11-30T00:00:00Z"


class Services:
    """Registrations in two namespaces, and what one of them makes, all of it by the test's hand."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.near, self.far = place.namespace, f"{place.namespace}-b"

    async def order(self, ref: OrderRef) -> Object:
        catalog, account = (block.model_dump(mode="json", by_alias=True, exclude_unset=True) for block in FULL)
        plane = {"name": self.place.plane, "namespace": PLANE_NAMESPACE}
        spec = {"controlPlaneRef": plane, "catalog": catalog, "account": account}
        meta = {"name": ref.name, "namespace": ref.namespace}
        return await self.place.create(KEYSTONE_SERVICE, {"metadata": meta, "spec": spec})

    def children(self, order: Object) -> list[Object]:
        """Everything that a registration with both blocks makes."""
        meta = order["metadata"]
        plane = {"metadata": {"name": self.place.plane, "namespace": PLANE_NAMESPACE, "uid": "p"}, "spec": {}}
        reg = Registration(
            order=service(meta["name"], meta["namespace"]), uid=meta["uid"], plane=ControlPlane.model_validate(plane)
        )
        return everything(reg, FULL)

    async def make(self, body: Object) -> Object:
        return await self.place.create(KINDS[body["kind"]], body)

    async def says(self, child: Object, status: str, **more: object) -> None:
        """K-ORC or External Secrets reports on an object; a Secret is written, for nobody reports on one."""
        kind, meta = KINDS[child["kind"]], child["metadata"]
        if kind == SECRET:
            await self.touch(child, {"written": status})
            return
        type_ = "Available" if kind.group == KORC_USER.group else "Ready"
        condition = {"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": WHEN}
        if type_ == "Available":
            condition["observedGeneration"] = meta["generation"]
        await self.place.status(kind, child, {"conditions": [condition], **more})

    async def touch(self, child: Object, annotations: dict[str, str]) -> Object:
        kind, meta = KINDS[child["kind"]], child["metadata"]
        body = {"metadata": {"annotations": annotations}}
        to = self.place.management
        return await patiently(lambda: to.patch(kind, meta["namespace"], meta["name"], body))

    async def secret(self, name: str, namespace: str) -> Object:
        return await self.make({"kind": "Secret", "metadata": {"name": name, "namespace": namespace}})

    async def delete(self, child: Object) -> None:
        await self.place.delete(KINDS[child["kind"]], child)


@pytest.fixture
async def services(api_stack: Stack) -> AsyncIterator[Services]:
    async with place_on(api_stack) as place:
        services = Services(place)
        await created(place.management, NAMESPACE, {"metadata": {"name": services.far}})
        yield services


async def test_each_source_wakes_exactly_its_registrations(
    api_stack: Stack, services: Services, tmp_path: Path
) -> None:
    mine, beside, away = (
        service("images", services.near), service("volumes", services.near), service("images", services.far),
    )  # fmt: skip
    everyone = (mine, beside, away)
    doorbell = Mine(services.near, services.far)
    async with watching(await operator(api_stack, tmp_path), doorbell, rates=RATES) as engine:
        order = await services.order(mine)
        await woken(doorbell, mine)
        for ref in (beside, away):
            await services.order(ref)
            await woken(doorbell, ref)

        made = [await services.make(body) for body in services.children(order)]
        kinds = {child["kind"] for child in made}
        assert kinds == {*sweep.BESIDE_THE_PLANE, *sweep.BESIDE_THE_ORDER, sweep.SECRETS}
        assert await quiet(doorbell) == [], "what it made itself"
        first = {child["kind"]: child for child in reversed(made)}
        secrets = [child for child in made if child["kind"] == "Secret"]
        assert [child["metadata"]["namespace"] for child in secrets] == [PLANE_NAMESPACE, services.near]
        for child in (*(first[kind] for kind in sorted(kinds - {"Secret"})), *secrets):
            await services.says(child, "False")
            await woken(doorbell, mine)
        for child in (*(first[kind] for kind in sorted(kinds - {"Secret"})), *secrets):
            await services.delete(child)
            await woken(doorbell, mine)

        await of_nobody(services, doorbell, mine, made)
        await by_owner(services, doorbell, mine, order)
        await by_name(services, doorbell, mine, away)
        await by_plane(services, doorbell, everyone)
        assert engine.stale(90) == []


async def of_nobody(services: Services, doorbell: Mine, mine: OrderRef, made: list[Object]) -> None:
    """Half of the name, or none, is nobody's, as is what somebody else has with the same prefix."""
    spec = next(child["spec"] for child in made if child["kind"] == KORC_PROJECT.kind)
    name, namespace = "c5c3.io/keystoneservice-name", "c5c3.io/keystoneservice-namespace"
    for labels in ({}, {name: mine.name}, {name: "", namespace: mine.namespace}):
        meta = {"name": f"{prefix(mine)}{len(labels)}{len(str(labels))}", "namespace": PLANE_NAMESPACE}
        for body in ({"kind": "Project", "spec": spec}, {"kind": "Secret"}):
            child = await services.make({**body, "metadata": {**meta, "labels": labels}})
            await services.says(child, "True")
            await services.delete(child)
    assert await quiet(doorbell) == []


async def by_owner(services: Services, doorbell: Mine, mine: OrderRef, order: Object) -> None:
    """The reference operator leaves the labels off its delivery objects."""
    for body in services.children(order):
        if body["kind"] in sweep.BESIDE_THE_ORDER:
            meta = {**body["metadata"], "name": f"{body['metadata']['name']}-x", "labels": {}}
            assert meta["ownerReferences"][0]["uid"] == order["metadata"]["uid"]
            child = await services.make({**body, "metadata": meta})
            await services.says(child, "True")
            await woken(doorbell, mine)
            await services.delete(child)
            await woken(doorbell, mine)
            stray = await services.make({**body, "metadata": {**meta, "ownerReferences": []}})
            await services.says(stray, "True")
            await services.delete(stray)
            assert await quiet(doorbell) == []


async def by_name(services: Services, doorbell: Mine, mine: OrderRef, away: OrderRef) -> None:
    """The consumer Secret, of a registration that there is."""
    for ref in (mine, away):
        consumer = await services.secret(delivery.consumer_name(ref), ref.namespace)
        await woken(doorbell, ref)
        await services.touch(consumer, {"a": "b"})
        await woken(doorbell, ref)
        await services.delete(consumer)
        await woken(doorbell, ref)
    for name in ("absent-credentials", "images", f"{prefix(mine)}stranger"):
        theirs = await services.secret(name, services.near)
        await services.touch(theirs, {"a": "b"})
        await services.delete(theirs)
    assert await quiet(doorbell) == []


async def by_plane(services: Services, doorbell: Mine, everyone: tuple[OrderRef, ...]) -> None:
    """Gate and allow-list, at once and in every namespace."""
    plane = await services.place.create_plane()
    await woken(doorbell, *everyone)
    for status in ("False", "True"):
        condition = {"type": "AdminCredentialReady", "status": status, "reason": "R", "message": "m",
                     "lastTransitionTime": WHEN}  # fmt: skip
        await services.place.status(CONTROL_PLANE, plane, {"conditions": [condition]})
        await woken(doorbell, *everyone)
    allowed = {"spec": {"korc": {"serviceRegistrations": {"allowedNamespaces": [services.far]}}}}
    to, name = services.place.management, services.place.plane
    await patiently(lambda: to.patch(CONTROL_PLANE, PLANE_NAMESPACE, name, allowed))
    await woken(doorbell, *everyone)
    await services.place.delete(CONTROL_PLANE, plane)
    await woken(doorbell, *everyone)


@pytest.mark.row("A20")
async def test_one_that_is_ready_hears_of_what_people_do_and_not_that_all_is_well(
    api_stack: Stack, services: Services, tmp_path: Path
) -> None:
    mine, doorbell = service("images", services.near), Mine(services.near)
    async with watching(await operator(api_stack, tmp_path), doorbell, rates=RATES) as engine:
        order = await services.order(mine)
        made = [await services.make(body) for body in services.children(order)]
        consumer = await services.secret(delivery.consumer_name(mine), mine.namespace)
        ready = {"type": "Ready", "status": "True", "reason": "AllReady", "message": "", "observedGeneration": 1,
                 "lastTransitionTime": WHEN}  # fmt: skip
        await services.place.status(KEYSTONE_SERVICE, order, {"conditions": [ready]})
        await until(lambda: engine.index.is_ready(mine))
        await quiet(doorbell)
        for child in made:
            if child["kind"] != "Secret":
                more = {"syncedResourceVersion": "1-a"} if child["kind"] == PUSH_SECRET.kind else {}
                await services.says(child, "True", **more)
        by_name = {child["metadata"]["name"].removeprefix(prefix(mine)): child for child in made}
        await services.delete(by_name["user-probe"])
        assert await quiet(doorbell) == []

        await services.touch(by_name["user"], {GENERATION: ""})
        await woken(doorbell, mine)
        for child in (by_name["domain"], next(child for child in made if child["kind"] == "Role")):
            await services.delete(child)
            await woken(doorbell, mine)
        await services.says(by_name["service"], "False")
        await woken(doorbell, mine)
        await services.touch(by_name["backup"], {delivery.PUSH_HASH: "0"})
        await woken(doorbell, mine)
        for child in (consumer, by_name["source"], by_name["password-v1"]):
            await services.touch(child, {"a": "b"})
            await woken(doorbell, mine)
            await services.delete(child)
            await woken(doorbell, mine)
        await services.secret(delivery.consumer_name(mine), mine.namespace)
        assert await quiet(doorbell) == [], "what it waits for is there again, and it never ceased to be Ready"
