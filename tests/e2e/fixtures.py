"""The whole real stack with worker and watcher on it, once for all tests that need it, and orders that clean up.

`tests/conftest.py` takes the fixtures in, so that the tests of other folders share the one instance.

C5C3_E2E_INSTANCE   the instance's name (test); it stays up for the next run of pytest, `make test` begins anew
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from deploy.local import stack
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import Stack
from deploy.local.parts import keystone, mariadb, operator, temporal
from tests.e2e.collector import collector
from tests.e2e.services import Service
from tests.e2e.stage import CP, Object, Order, Plane, Stage, unique

PARTS = (
    "controllers-management",
    "controllers-target",
    "operator",
    "temporal",
    "planes",
    "stores",
    "standin-roleassignment",
    "standin-database",
)
PRODUCT = ("worker", "watcher")


def instance() -> str:
    """The name of the one that tests share."""
    return os.environ.get("C5C3_E2E_INSTANCE", "test")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_stack() -> AsyncIterator[Stage]:
    """The stage. A part that cannot be had is an error of every test, never a skip."""
    traces: list[bytes] = []
    with collector(traces) as address, pytest.MonkeyPatch.context() as environment:
        environment.setenv("C5C3_STACK_OTLP", address)
        here = await stack.up(instance(), (*PARTS, *PRODUCT))
        client = await Client.connect(temporal.address(here), data_converter=pydantic_data_converter)
        async with KeystoneAPI(here) as api:
            stage = Stage(here, client, api, traces)
            stage.secrets |= await asyncio.to_thread(_secrets, here)
            yield stage


def _secrets(here: Stack) -> set[str]:
    """What the stack's bootstrap made secret, each by its value."""
    found = {keystone.admin_password(here), mariadb.root_password(here), operator.token_file(here).read_text()}
    for file in (here.folder / "kube").glob("*.kubeconfig"):
        for line in file.read_text().splitlines():
            key, _, value = line.strip().partition(":")
            if key.strip('"') in ("token", "client-key-data"):
                found.add(value.strip().strip('",'))
    for file in (here.folder / "keystone").glob("*password"):
        found.add(file.read_text().strip())
    return {value for value in found if len(value) > 8}


@pytest_asyncio.fixture
async def place(real_stack: Stage) -> AsyncIterator[Callable[..., Order]]:
    """Makes orders that are not placed yet; what was placed is deleted afterwards, and must leave nothing behind."""
    made: list[Order] = []

    def one(stem: str = "order", **where: object) -> Order:
        order = real_stack.order(unique(stem), **where)  # type: ignore[arg-type]
        made.append(order)
        return order

    yield one
    await asyncio.gather(*(order.delete() for order in made))
    await asyncio.gather(*(order.gone(120) for order in made))
    left = [child["metadata"]["name"] for order in made for child in await order.children()]
    assert left == []


@pytest_asyncio.fixture
async def register(real_stack: Stage) -> AsyncIterator[Callable[..., Service]]:
    """Makes KeystoneServices that are not placed yet; what was placed is deleted, and must leave nothing behind."""
    made: list[Service] = []

    def one(
        stem: str = "service",
        *,
        name: str = "",
        namespace: str = "team-a",
        plane: Plane = CP,
        catalog: Object | None = None,
        account: Object | Callable[[str], Object] | None = None,
    ) -> Service:
        """`account` may be made of the order's name, for what has to be unique."""
        name = name or unique(stem)
        block = account(name) if callable(account) else account
        made.append(Service(real_stack, name, namespace, plane, catalog, block))
        return made[-1]

    yield one
    await asyncio.gather(*(service.delete() for service in made))
    await asyncio.gather(*(service.gone(120) for service in made))
    left = [name for service in made for name in await service.objects()]
    assert left == []
