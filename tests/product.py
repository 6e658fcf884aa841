"""Watcher and worker as the programs they are, on the API servers of the tests, and their Temporal as a person sees it.

Tests of single steps want the orders to themselves: they end the programs first.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from activities.cluster import Object
from deploy.local import stack as local
from deploy.local.part import Stack
from deploy.local.parts import temporal
from tests.world import World, made, until
from workflows.scaffold.order import OrderRef

PROGRAMS = ("worker", "watcher")


@dataclass
class Product:
    """A world whose orders are served by the running product."""

    world: World
    client: Client

    @property
    def stack(self) -> Stack:
        return self.world.stack

    async def stop(self, program: str) -> None:
        await local.stop_part(self.stack, program)

    async def kill(self, program: str) -> None:
        await local.kill_part(self.stack, program)

    async def start(self, program: str) -> None:
        await local.start_part(self.stack, program)

    # -- orders, as people see them ------------------------------------------------------------------------------

    async def reads(self, ref: OrderRef, reason: str, seconds: float = 60) -> Object:
        """Waits until ProjectReady has this reason, and answers the order."""
        last: Object = {}

        async def holds() -> bool:
            nonlocal last
            last = await self.world.live(ref)
            conditions = (last.get("status") or {}).get("conditions") or []
            return any(c["type"] == "ProjectReady" and c["reason"] == reason for c in conditions)

        try:
            await until(holds, seconds)
        except AssertionError:
            told = json.dumps(last.get("status"), indent=1)
            raise AssertionError(f"{ref.key} does not read {reason} within {seconds:g} s: {told}") from None
        return last

    async def gone(self, ref: OrderRef, seconds: float = 60) -> None:
        async def holds() -> bool:
            return await self.world.find(ref) is None

        await until(holds, seconds)

    # -- runs, as the Temporal UI shows them ----------------------------------------------------------------------

    async def events(self, ref: OrderRef) -> int:
        """How long the history of the order's current run is."""
        described = await self.client.get_workflow_handle(ref.workflow_id).describe()
        return int(described.history_length)

    async def history(self, ref: OrderRef) -> list[str]:
        """The types of its events."""
        found = await self.client.get_workflow_handle(ref.workflow_id).fetch_history()
        return [event.WhichOneof("attributes") or "" for event in found.events]

    async def passes(self, ref: OrderRef) -> int:
        """How many passes its current run has begun: each begins with one of two steps."""
        found = await self.client.get_workflow_handle(ref.workflow_id).fetch_history()
        names = [e.activity_task_scheduled_event_attributes.activity_type.name for e in found.events]
        return sum(name in ("admit", "examine") for name in names)

    async def pending(self, ref: OrderRef) -> list[Any]:
        """Its pending activities."""
        described = await self.client.get_workflow_handle(ref.workflow_id).describe()
        return list(described.raw_description.pending_activities)

    async def is_open(self, ref: OrderRef) -> bool:
        try:
            described = await self.client.get_workflow_handle(ref.workflow_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.status == WorkflowExecutionStatus.RUNNING

    async def closed(self, ref: OrderRef, seconds: float = 60) -> None:
        async def holds() -> bool:
            return not await self.is_open(ref)

        await until(holds, seconds)

    async def quiet(self, ref: OrderRef, still: float = 3, seconds: float = 60) -> int:
        """Waits until nothing has been added to its history for a while, and answers its length."""
        deadline, length, since = time.monotonic() + seconds, -1, time.monotonic()

        async def holds() -> bool:
            nonlocal length, since
            now = await self.events(ref)
            if now != length:
                length, since = now, time.monotonic()
            return time.monotonic() - since > still

        await until(holds, deadline - time.monotonic())
        return length


async def alone(stack: Stack) -> None:
    """Ends the programs, whoever left them: who calls steps itself wants nobody else to serve its orders."""
    for program in reversed(PROGRAMS):
        await local.stop_part(stack, program)


@asynccontextmanager
async def over(stack: Stack) -> AsyncIterator[Product]:
    """A world for one test, with the programs up and K-ORC still in the test's hand."""
    await local.up(stack.instance, PROGRAMS)
    client = await Client.connect(temporal.address(stack), data_converter=pydantic_data_converter)
    async with made(stack) as world:
        yield Product(world, client)
