"""D8: a watch that is open and says nothing, between us and a real API server, is left behind within a known time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from deploy.local.part import Stack
from tests.watcher.apart import Mine, api_port, operator, place_on, watching
from tests.watcher.forwarder import forwarding
from tests.watcher.objects import until
from watcher.health import Health
from watcher.stream import Pace

pytestmark = pytest.mark.api

PACE = Pace(silence=3, first_pause=0.1, longest_pause=0.5)
FRESH = 15.0
"""Health's limit. A silence and a list that hangs come before it; bookmarks take a minute, so lists keep it here."""


@pytest.mark.row("T12", "O05")
async def test_d8_an_order_written_while_the_watches_were_dead_is_served(api_stack: Stack, tmp_path: Path) -> None:
    async with place_on(api_stack) as place, forwarding("127.0.0.1", api_port(api_stack)) as between:
        doorbell = Mine(place.namespace)
        management = await operator(api_stack, tmp_path, between.port)
        async with watching(management, doorbell, PACE) as engine:
            health = Health(engine=engine, fresh_seconds=FRESH)
            assert health.why_not_ready() == []
            connections = between.connections
            between.swallow()
            await place.order()
            began = time.monotonic()
            await until(lambda: any(why.startswith("keystoneprojects on the man") for why in health.why_not_ready()))
            assert time.monotonic() - began >= FRESH - PACE.silence - 1
            assert doorbell.rings == [], "nothing can have come through"
            assert between.connections - connections < 4 * len(engine.streams), "and nobody hammers"
            between.heal()
            began = time.monotonic()
            await until(lambda: doorbell.rings)
            assert time.monotonic() - began < PACE.silence + 15
            await until(lambda: not health.why_not_ready())
            assert doorbell.started(place.ref())


@pytest.mark.row("T12")
async def test_d8_dead_watches_are_replaced_before_health_minds(api_stack: Stack, tmp_path: Path) -> None:
    """Only what was open goes dead, as when a machine of the control plane is replaced."""
    async with place_on(api_stack) as place, forwarding("127.0.0.1", api_port(api_stack)) as between:
        doorbell = Mine(place.namespace)
        async with watching(await operator(api_stack, tmp_path, between.port), doorbell, PACE) as engine:
            health = Health(engine=engine, fresh_seconds=FRESH)
            between.swallow()
            between.heal()
            await place.order()
            while not doorbell.rings:
                assert health.why_not_ready() == []
                await asyncio.sleep(0.05)
            assert doorbell.started(place.ref())
