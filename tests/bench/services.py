"""The desk for services: a catalog entry with two endpoints, an account with its own project and two roles."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence

from activities.cluster import (
    EXTERNAL_SECRET,
    KEYSTONE_SERVICE,
    KORC_ENDPOINT,
    KORC_PROJECT,
    KORC_ROLE,
    KORC_ROLE_ASSIGNMENT,
    KORC_SERVICE,
    KORC_USER,
    PUSH_SECRET,
    SECRET,
    Object,
)
from tests.bench.desk import LABEL, NAMESPACE, Desk, Sight, available
from workflows.api.keystoneservice import KeystoneServiceSpec
from workflows.api.korc import KorcObject
from workflows.api.meta import is_true
from workflows.keystoneservice import children, delivery
from workflows.keystoneservice.children import Registration


class ServiceDesk(Desk):
    """The same for services: by hand as fast as dependencies let a script be, catalog and account side by side."""

    kind = KEYSTONE_SERVICE
    segment = "keystoneservice"
    made = (KORC_ROLE_ASSIGNMENT, KORC_ROLE, KORC_ENDPOINT, KORC_SERVICE, KORC_USER, KORC_PROJECT, SECRET)
    beside = (PUSH_SECRET, EXTERNAL_SECRET)

    def spec(self, name: str) -> Object:
        urls = (("public", f"https://{name}.example.com/v1"), ("internal", f"http://{name}.team-a.svc:8080/v1"))
        return {
            "catalog": {"serviceType": "bench", "endpoints": [{"interface": i, "url": url} for i, url in urls]},
            "account": {"project": {"name": name, "create": True}, "roles": ["member", "reader"]},
        }

    async def make(self, name: str, labels: Mapping[str, str], sights: Mapping[str, Sight]) -> None:
        reg = Registration(order=self.reference(name), uid="", plane=self.plane)
        await asyncio.gather(self._catalog(reg, labels, sights), self._account(reg, labels, sights))

    async def _catalog(self, reg: Registration, labels: Mapping[str, str], sights: Mapping[str, Sight]) -> None:
        catalog = self._declared(reg).catalog
        assert catalog is not None
        probe, service = children.service_probe(reg, catalog), children.service(reg, catalog)
        await self.gated(probe, service, labels, sights)
        endpoints = (children.endpoint(reg, each) for each in catalog.endpoints)
        await asyncio.gather(*(self.wrote(body, labels, sights, available) for body in endpoints))

    async def _account(self, reg: Registration, labels: Mapping[str, str], sights: Mapping[str, Sight]) -> None:
        account = self._declared(reg).account
        assert account is not None
        password = secrets.token_urlsafe(32)
        kept = {**delivery.password_secret(reg, 1), "data": delivery.password_data(password)}
        roles = [children.role_import(reg, role) for role in account.roles]
        await asyncio.gather(
            self.gated(children.project_probe(reg, account), children.project(reg, account), labels, sights),
            *(self.wrote(role, labels, sights, available) for role in roles),
            self.wrote(kept, labels, sights, lambda _: True),
        )
        user = children.user(reg, account, 1, "1")
        await self.gated(children.user_probe(reg, account), user, labels, sights)
        bound = (children.assignment(reg, role) for role in account.roles)
        await asyncio.gather(*(self.wrote(body, labels, sights, available) for body in bound))
        await self._deliver(reg, password, labels, sights)

    async def _deliver(
        self, reg: Registration, password: str, labels: Mapping[str, str], sights: Mapping[str, Sight]
    ) -> None:
        account = self._declared(reg).account
        assert account is not None
        source = delivery.source(reg, account, password)
        marks = {**source["metadata"], "labels": dict(labels)}
        marks.pop("ownerReferences", None)
        await self.cluster.create(SECRET, {**source, "metadata": marks})
        content = delivery.digest(delivery.clouds_yaml(reg, account, password))
        pushed = await self.wrote(delivery.push_secret(reg, content), labels, sights, _ready)
        synced = pushed["status"]["syncedResourceVersion"]
        await self.wrote(delivery.external_secret(reg, content, synced), labels, sights, _ready)

    async def clear(self, batch: str) -> float:
        """Source Secrets lie beside the order, under the batch's label, and nothing waits for them."""
        took = await super().clear(batch)
        await self.delete_all(SECRET, NAMESPACE, {LABEL: batch})
        return took

    def named(self, names: Sequence[str], namespace: str = NAMESPACE) -> set[str]:
        """The names of the orders, and of everything that carries one in its own."""
        return set(names)

    def _declared(self, reg: Registration) -> KeystoneServiceSpec:
        plane = {"controlPlaneRef": {"name": self.plane.metadata.name}}
        return KeystoneServiceSpec.model_validate({**plane, **self.spec(reg.order.name)})


def _ready(found: Object) -> bool:
    return is_true(KorcObject.model_validate(found).status.conditions, "Ready")
