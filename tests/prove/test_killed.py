"""Temporal, the API server and the watcher killed while orders are written: all of them are served afterwards."""

from __future__ import annotations

import asyncio

import pytest

from activities.cluster import KEYSTONE_PROJECT
from deploy.local import stack
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import Stack
from tests.bench import history
from tests.bench.desk import LABEL, NAMESPACE, PATIENCE, Desk, eventually, ready, reference
from tests.prove.conftest import ORDERS

pytestmark = [pytest.mark.prove, pytest.mark.real, pytest.mark.timeout(PATIENCE)]

SOME = max(4, ORDERS // 10)


@pytest.mark.row("T10")
@pytest.mark.parametrize("part", ["watcher", "temporal"])
async def test_orders_written_while_it_is_dead_are_served(here: Stack, batch: str, part: str) -> None:
    """Before its death, at it, and during it; and an order that is deleted during it goes."""
    names = [f"{batch}-{number}" for number in range(SOME)]
    async with Desk(here) as desk:
        async with desk.orders(batch) as sight:
            await desk.order(f"{batch}-old", batch)
            await sight.until(f"{batch}-old", ready)
            await _order(desk, batch, names[: SOME // 2])
            await stack.kill_part(here, part)
            await _order(desk, batch, names[SOME // 2 :])
            await _delete_one(desk, f"{batch}-old")
            await asyncio.sleep(3)
            await stack.start_part(here, part)
            await asyncio.gather(*(sight.until(name, ready) for name in names))
        await _only(here, batch, names)
        await _take_back(here, desk, batch, [*names, f"{batch}-old"])


@pytest.mark.row("T10")
async def test_orders_are_served_after_the_api_server_died(here: Stack, batch: str) -> None:
    """It dies amid their provisioning, and amid their deletion."""
    names = [f"{batch}-{number}" for number in range(SOME)]
    async with Desk(here) as desk:
        async with desk.orders(batch) as sight:
            await _order(desk, batch, names)
            await asyncio.sleep(1)
            await _die(here)
            await asyncio.gather(*(sight.until(name, ready) for name in names))
        await _only(here, batch, names)
        await desk.delete_all(KEYSTONE_PROJECT, NAMESPACE, {LABEL: batch})
        await asyncio.sleep(0.5)
        await _die(here)
        await _take_back(here, desk, batch, names)


async def _die(here: Stack) -> None:
    await stack.kill_part(here, "management")
    await asyncio.sleep(3)
    await stack.start_part(here, "management")


async def _order(desk: Desk, batch: str, names: list[str]) -> None:
    await asyncio.gather(*(desk.order(name, batch) for name in names))


async def _delete_one(desk: Desk, name: str) -> None:
    found = await desk.cluster.get(KEYSTONE_PROJECT, NAMESPACE, name)
    assert found is not None
    await desk.cluster.delete(KEYSTONE_PROJECT, NAMESPACE, name, found["metadata"]["uid"])


async def _only(here: Stack, batch: str, names: list[str]) -> None:
    """Keystone has one project for each, sooner or later none for one that was deleted."""
    async with KeystoneAPI(here) as keystone:

        async def so() -> bool:
            there = [row["name"] for row in await keystone.projects() if row["name"].startswith(batch)]
            assert len(there) == len(set(there))
            return sorted(there) == sorted(names)

        await eventually(so)


async def _take_back(here: Stack, desk: Desk, batch: str, names: list[str]) -> None:
    await desk.clear(batch)
    await _only(here, batch, [])
    assert await desk.left_of(names) == []
    client = await history.connect(here)
    await eventually(lambda: history.closed(client, {reference(name).workflow_id for name in names}))
