"""One order's workflow as a test drives it: ring, turn the clock, and read what the server recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowHandle
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from tests.flows.world import World
from workflows.scaffold.carry import Carry, Described
from workflows.scaffold.order import RESYNC, RING
from workflows.scaffold.steps import Wait

_CLOCK = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIME_SKIPPING_TRANSITIONED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED,
)
PATIENCE = 120.0
_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(minutes=5))


class Flow:
    """Rings as the watcher does: a start with a signal, so that a missing run is started and a running one is rung."""

    def __init__(self, env: WorkflowEnvironment, world: World, queue: str) -> None:
        self.env = env
        self.world = world
        self.queue = queue

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The order's workflow, whichever run it is in."""
        return self.env.client.get_workflow_handle(self.world.ref.workflow_id)

    async def ring(self, *, retried: bool = True, carry: Carry | None = None) -> None:
        """carry  what a run that is started hears of the one before it, as if that one had handed over"""
        await self.env.client.start_workflow(
            self.world.ref.kind,
            args=[carry] if carry else [],
            id=self.world.ref.workflow_id,
            task_queue=self.queue,
            start_signal=RING,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            retry_policy=_RETRY if retried else None,
        )

    async def resync(self) -> None:
        await self.handle.signal(RESYNC)

    async def resync_now(self) -> Described:
        answer: Described = await self.handle.execute_update("resync_now", result_type=Described)
        return answer

    async def describe(self) -> Described:
        answer: Described = await self.handle.query("describe", result_type=Described)
        return answer

    async def details(self) -> str:
        """The current details, as the UI asks for them."""
        metadata = await self.handle.query("__temporal_workflow_metadata")
        return str(metadata.current_details)

    async def pass_time(self, **units: float) -> None:
        """Turns this workflow's clock, or as far as its last run goes."""
        await self.env.fast_forward(self.handle, timedelta(**units))

    async def settled(self) -> PendingActivityInfo:
        """The look that the order waits with, once it has begun to wait."""
        found: list[PendingActivityInfo] = []

        async def waits() -> bool:
            pending = (await self.handle.describe()).raw_description.pending_activities
            found[:] = [each for each in pending if each.activity_type.name == "settle" and each.attempt > 1]
            return bool(found)

        await until(waits)
        return found[0]

    async def idle(self, passes: int) -> None:
        """Until so many passes have begun, and the run waits for a ring alone."""

        async def rests() -> bool:
            raw = (await self.handle.describe()).raw_description
            quiet = not raw.pending_activities and not raw.HasField("pending_workflow_task")
            return quiet and self.world.count("admit") >= passes

        await until(rests)

    async def ended(self) -> None:
        async def over() -> bool:
            status = (await self.handle.describe()).status
            return status is not None and status.name == "COMPLETED"

        await until(over)

    async def events(self, run_id: str | None = None) -> list[HistoryEvent]:
        """The history without what turning the clock adds to it."""
        handle = self.env.client.get_workflow_handle(self.world.ref.workflow_id, run_id=run_id)
        return [event async for event in handle.fetch_history_events() if event.event_type not in _CLOCK]

    async def runs(self) -> list[list[HistoryEvent]]:
        """The histories of all runs that continued as new into each other up to now, the oldest first."""
        histories: list[list[HistoryEvent]] = []
        run_id: str | None = (await self.handle.describe()).run_id
        while run_id:
            events = await self.events(run_id)
            histories.insert(0, events)
            run_id = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        return histories

    async def waits(self) -> list[Wait]:
        """What every look of the current run waited for, in order."""
        events = await self.events()
        scheduled = [
            event.activity_task_scheduled_event_attributes
            for event in events
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        return [
            pydantic_data_converter.payload_converter.from_payloads(each.input.payloads, [Wait])[0]
            for each in scheduled
            if each.activity_type.name == "settle"
        ]

    async def stop(self) -> None:
        """Leaves nothing running on the shared server."""
        try:
            await self.handle.terminate()
        except RPCError:
            return  # it has ended, or never began


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Until the condition, a function or a coroutine function, holds."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        holds = condition()
        if asyncio.iscoroutine(holds):
            holds = await holds
        if holds:
            return
        if asyncio.get_running_loop().time() > end:
            raise TimeoutError("what was waited for did not come")
        await asyncio.sleep(0.05)
