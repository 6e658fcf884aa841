"""A batch of registrations through everything that may die or fall silent, and what is left of it afterwards: nothing.

C5C3_PROVE_SERVICES  how many registrations at once (100); a rehearsal takes 10
C5C3_PROVE_OUTAGE    how long each outage lasts (120 s)

On the instance of the end-to-end tests (C5C3_E2E_INSTANCE), for it has the stores and the stand-in.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from deploy.local import kube
from deploy.local.parts import openbao
from deploy.openbao.layout import tenant_store
from tests.audit import OPERATOR, Audit
from tests.e2e.databases import sealed
from tests.e2e.services import ORDERS, RESOURCES, Service, account, catalog
from tests.e2e.stage import CP, PLANES, Object, Plane, Stage, condition, unique, until

SERVICES = int(os.environ.get("C5C3_PROVE_SERVICES", "100"))
OUTAGE = float(os.environ.get("C5C3_PROVE_OUTAGE", "120"))
PATIENCE = 1500.0
NAMED = 60.0
"""Seconds after which every order that waits has to name what it waits for."""
HANDS = 8

pytestmark = [pytest.mark.prove, pytest.mark.real, pytest.mark.timeout(2 * PATIENCE + OUTAGE)]


class Batch:
    """Registrations that begin with one name, looked at all together."""

    def __init__(self, stage: Stage, count: int) -> None:
        self.stage, self.name = stage, f"p{secrets.token_hex(3)}"
        self.services = [self._service(number) for number in range(count)]

    def _service(self, number: int) -> Service:
        name = f"{self.name}-{number}"
        block = account(f"{name}-project", "member", "reader")
        return Service(self.stage, name, "team-a", CP, catalog("public", "internal"), block)

    async def live(self) -> dict[str, Object]:
        found = await kube.items(self.stage.stack, "management", ORDERS, "team-a")
        return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"].startswith(self.name)}

    async def unready(self) -> dict[str, Object]:
        found = await self.live()
        return {name: one for name, one in found.items() if condition(one, "Ready").get("status") != "True"}

    async def ready(self) -> int:
        return len(await self.live()) - len(await self.unready())

    async def all_ready(self, seconds: float = PATIENCE) -> None:
        await until(self.ready, lambda count: count == len(self.services), seconds, pause=1)

    async def each(self, act: Callable[[Service], Awaitable[object]], pause: float = 0) -> None:
        """Does it to every one, some at once."""
        hands = asyncio.Semaphore(HANDS)

        async def one(service: Service) -> None:
            async with hands:
                await act(service)
                await asyncio.sleep(pause)

        await asyncio.gather(*(one(service) for service in self.services))

    async def deleted(self) -> None:
        await self.each(lambda service: service.delete())
        await until(self.live, lambda found: not found, PATIENCE, pause=1)

    async def log_in(self) -> None:
        """Each with what was delivered to it, as itself; there is one row of everything for each."""

        async def one(service: Service) -> None:
            token = await service.logs_in()
            assert token is not None, f"{service.name} cannot log in"
            assert token["user"]["name"] == service.name

        await self.each(one)
        rows = await self._rows()
        assert {kind: len(names) for kind, names in rows.items()} == dict.fromkeys(rows, len(self.services))
        assert all(len(set(names)) == len(names) for names in rows.values())

    async def _rows(self) -> dict[str, list[str]]:
        keystone = self.stage.keystone
        found = {
            "users": await keystone.users(), "projects": await keystone.projects(),
            "services": await keystone.services(),
        }  # fmt: skip
        return {
            kind: [row["name"] for row in rows if str(row.get("name")).startswith(self.name)]
            for kind, rows in found.items()
        }

    async def left_nothing(self) -> None:
        """In Keystone, in OpenBao, in the cluster and among Temporal's open runs."""
        assert await self._rows() == {"users": [], "projects": [], "services": []}
        urls = {row["service_id"] for row in await self.stage.keystone.endpoints()}
        assert urls <= {row["id"] for row in await self.stage.keystone.services()}, "an endpoint lost its service"
        bao = openbao.connection(self.stage.stack).client()
        found = await asyncio.to_thread(bao.list, "kv-v2/metadata/openstack/keystone/team-a")
        keys = ((found or {}).get("data") or {}).get("keys") or []
        assert [key for key in keys if key.startswith(self.name)] == []
        for kind in RESOURCES.values():
            listed = await kube.items(self.stage.stack, "management", kind)
            named = [one["metadata"] for one in listed]
            left = [
                meta["name"]
                for meta in named
                if meta["name"].startswith(self.name)
                or (meta.get("labels") or {}).get("c5c3.io/keystoneservice-name", "").startswith(self.name)
            ]
            assert left == [], kind
        await until(self._open_runs, lambda runs: not runs, 60)

    async def _open_runs(self) -> list[str]:
        query = 'ExecutionStatus = "Running" AND OrderKind = "KeystoneService"'
        return [run.id async for run in self.stage.temporal.list_workflows(query) if f"/{self.name}-" in run.id]


@asynccontextmanager
async def made(stage: Stage, count: int) -> AsyncIterator[Batch]:
    batch = Batch(stage, count)
    try:
        yield batch
    finally:
        await batch.deleted()


@pytest.mark.row("T09", "T10", "S15")
async def test_a_batch_with_kills_is_served_and_taken_back_whole(
    real_stack: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both programs and both controllers are killed, amid the provisioning and amid the deletion."""
    async with made(real_stack, SERVICES) as batch:
        audit = Audit(real_stack.stack)
        mark, began = audit.mark(), time.perf_counter()
        killing = asyncio.create_task(_kills(batch, ((0.1, "worker"), (0.3, "watcher"), (0.5, "korc"),
                                                     (0.6, "external-secrets"), (0.7, "worker"))))  # fmt: skip
        await batch.each(lambda service: service.place())
        await batch.all_ready()
        await killing
        served = time.perf_counter() - began
        asked = [one for one in audit.since(mark, OPERATOR) if batch.name in one.uri or batch.name in one.name]
        await batch.log_in()
        events = [await service.events() for service in batch.services]

        began = time.perf_counter()
        await batch.each(lambda service: service.delete())
        await asyncio.sleep(1)
        await real_stack.kill("worker")
        await real_stack.start("worker")
        await until(batch.live, lambda found: not found, PATIENCE, pause=1)
        gone = time.perf_counter() - began
        await batch.left_nothing()
    with capsys.disabled():
        print(
            f"\n{SERVICES} registrations, five kills: all Ready after {served:.0f} s, all gone {gone:.0f} s after their"
            f" deletion; {len(asked) / SERVICES:.0f} requests each to Ready, at most {max(events)} events"
        )


async def _kills(batch: Batch, kills: Sequence[tuple[float, str]]) -> None:
    """Kills each once so much of the batch is Ready, and starts it again."""
    for share, part in kills:
        await until(batch.ready, lambda count, share=share: count >= share * SERVICES, PATIENCE, pause=0.2)  # type: ignore[misc]
        await batch.stage.kill(part)
        await batch.stage.start(part)


OUTAGES = {
    "openbao": r"sealed|InvalidProviderConfig|External Secrets has not reported|External Secrets: \w+: .+",
    "external-secrets": r"External Secrets has not reported on it yet|External Secrets: \w+: .+",
    "korc": r"K-ORC has not reported on it yet|is being asked|Waiting for \w+/.+",
    "keystone": r"connection refused|Waiting for \w+/.+|EOF|has not reported",
}
"""What stops, and what its last words look like."""


@pytest.mark.row("A06", "S24", "A17")
@pytest.mark.parametrize("part", list(OUTAGES))
async def test_an_outage_amid_a_batch_is_said_by_every_order_and_heals_without_a_hand(
    real_stack: Stage, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the batch is ordered before it and half in it; within a minute each that waits says on what."""
    async with made(real_stack, max(4, SERVICES // 4)) as batch:
        half = len(batch.services) // 2
        first, second = batch.services[:half], batch.services[half:]
        await asyncio.gather(*(service.place() for service in first))
        stopped = sealed(real_stack) if part == "openbao" else real_stack.without(part)
        async with stopped:
            began = time.monotonic()
            await asyncio.gather(*(service.place() for service in second))
            silent = await until(lambda: _silent(batch, OUTAGES[part]), lambda found: not found, NAMED, pause=1)
            named = time.monotonic() - began
            assert silent == {}
            waiting = await batch.unready()
            await asyncio.sleep(max(0, OUTAGE - named))
        began = time.monotonic()
        await batch.all_ready(300)
        healed = time.monotonic() - began
        await batch.log_in()
        await batch.deleted()
        await batch.left_nothing()
    with capsys.disabled():
        print(
            f"\n{part} away: {len(waiting)} of {len(batch.services)} waited and said so within {named:.0f} s;"
            f" all Ready {healed:.0f} s after it was back"
        )


async def _silent(batch: Batch, words: str) -> dict[str, str]:
    """Orders that are not Ready and do not name one of their objects, or the store, with its last words."""
    silent: dict[str, str] = {}
    for service in batch.services:
        live = (await batch.live()).get(service.name)
        said = [condition(live, f"{block}Ready") for block in ("Catalog", "Account")]
        waits = [one.get("message", "") for one in said if one.get("status") != "True"]
        names = (service.prefix, f"{service.name}-credentials", "SecretStore team-a/", f"'{service.name}")
        if waits and not all(any(name in each for name in names) and re.search(words, each) for each in waits):
            silent[service.name] = " | ".join(waits)
    return silent


@pytest.mark.row("S15")
async def test_a_namespace_that_is_deleted_goes_with_its_registration(real_stack: Stage) -> None:
    """Its store goes in the same moment, and External Secrets can take nothing back of OpenBao any more (D4)."""
    plane = Plane(unique("cp"), unique("plane"))
    spec: Object = {
        "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
        "services": {"keystone": {"mode": "Managed"}},
    }
    await real_stack.plane(plane, spec, "team-b")
    here, namespace = real_stack.stack, unique("tenant")
    allowed = {"spec": {"korc": {"serviceRegistrations": {"allowedNamespaces": [namespace]}}}}
    await kube.patch(here, "management", PLANES, plane.namespace, plane.name, allowed)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    *before, store = tenant_store(namespace, openbao.url(here))
    await kube.apply(here, "management", [space, *before])
    certificate = (here, "management", "certificates.cert-manager.io", namespace, "eso-tenant-client-tls")
    await until(lambda: kube.get(*certificate), kube.condition("Ready"), 30)
    await kube.apply(here, "management", [store])
    block = account(unique("tenant"), "member")
    service = Service(real_stack, unique("tenant"), namespace, plane, catalog("public"), block)
    await service.place()
    await service.is_ready()
    await real_stack.delete("management", "namespaces", None, namespace)
    await service.gone(60)
    await until(lambda: kube.get(here, "management", "namespaces", None, namespace), lambda seen: seen is None, 60)
    assert (await service.user_rows(), await service.project_rows(), await service.service_rows()) == ([], [], [])
    await real_stack.drop_plane(plane)
