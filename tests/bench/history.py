"""What Temporal wrote down of an order's run, counted over every run that it continued as."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from deploy.local.part import Stack
from deploy.local.parts import temporal


async def connect(stack: Stack) -> Client:
    return await Client.connect(temporal.address(stack), data_converter=pydantic_data_converter)


async def count(client: Client, workflow_id: str) -> int:
    """Events of the order's current run and of those it continues."""
    return sum((await kinds(client, workflow_id)).values())


async def kinds(client: Client, workflow_id: str) -> Counter[str]:
    """The same, by type of event."""
    found: Counter[str] = Counter()
    run_id: str | None = None
    while True:
        before = ""
        async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events():
            found[EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()] += 1
            if event.HasField("workflow_execution_started_event_attributes"):
                before = event.workflow_execution_started_event_attributes.continued_execution_run_id
        if not before:
            return found
        run_id = before


async def quiet(client: Client, workflow_id: str, seconds: float = 2.0, limit: float = 60.0) -> int:
    """Waits until the run has written nothing for so long; answers the number of its events."""
    until = time.monotonic() + limit
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        now = await count(client, workflow_id)
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() > until:
            raise TimeoutError(f"{workflow_id} still writes history after {limit:.0f} s")
        await asyncio.sleep(0.2)
    return seen


async def closed(client: Client, workflow_ids: Collection[str]) -> bool:
    """Whether none of these workflows is open, as visibility has them (it lags a moment behind)."""
    return not {run.id async for run in client.list_workflows('ExecutionStatus = "Running"')}.intersection(workflow_ids)
