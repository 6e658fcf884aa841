"""D15, the watcher's part: our own status write wakes nobody, and a storm over two hundred children folds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from activities.cluster import KEYSTONE_PROJECT, KORC_PROJECT
from deploy.local.part import Stack
from tests.watcher.apart import Mine, operator, place_on, quiet, watching, woken
from tests.watcher.objects import Object, until

pytestmark = pytest.mark.api


def conditions(message: str, when: str) -> Object:
    return {"conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": message,
                            "observedGeneration": 1, "lastTransitionTime": when}]}  # fmt: skip


@pytest.mark.row("S22")
async def test_d15_a_storm_folds_and_our_own_writes_wake_nobody(api_stack: Stack, tmp_path: Path) -> None:
    async with place_on(api_stack) as place:
        doorbell = Mine(place.namespace)
        async with watching(await operator(api_stack, tmp_path), doorbell):
            order = await place.order()
            await woken(doorbell, place.ref())
            await place.status(KEYSTONE_PROJECT, order, conditions("one", "2026-11-30T00:00:00Z"))
            await place.status(KEYSTONE_PROJECT, order, conditions("one", "2026-11-30T00:00:01Z"))
            await place.status(KEYSTONE_PROJECT, order, conditions("two", "2026-11-30T00:00:01Z"))
            assert await quiet(doorbell, 2) == [], "neither a time nor a message of our own is news"

            names = [f"child-{n}" for n in range(200)]
            await few_at_once(place.child(name, place.ref()) for name in names)
            assert await quiet(doorbell, 2) == []
            began = time.monotonic()
            touched = {"metadata": {"labels": {"unrelated": "touched"}}}
            await few_at_once(place.patch(KORC_PROJECT, name, touched) for name in names)
            took = time.monotonic() - began
            await until(lambda: doorbell.rings)
            rung = await quiet(doorbell, 2)
            assert set(rung) == {place.ref()}
            assert len(rung) <= 5 * (took + 1) + 1, "five a second, however many children"
            assert len(rung) < 100


async def few_at_once(requests: Iterable[Coroutine[Any, Any, Object]]) -> None:
    """As many at once as a loaded API server answers in time."""
    slots = asyncio.Semaphore(20)

    async def one(request: Coroutine[Any, Any, Object]) -> None:
        async with slots:
            await request

    await asyncio.gather(*(one(request) for request in requests))
