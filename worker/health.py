"""/healthz, /readyz and /metrics of the worker, on one port.

Ready means proven to poll: Temporal itself must list this worker among the recent pollers of both halves of the task
queue. A process that merely lives, or holds a connection and polls nothing, is not ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web
from opentelemetry import metrics
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError
from temporalio.worker import Worker

from worker import serving

RECENT = timedelta(seconds=130)
"""A poll lasts up to a minute and is noted at its end and beginning; two of them may be lost."""
_KEPT_SECONDS = 5.0
_QUEUES = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}

_polling = metrics.get_meter("c5c3.worker").create_gauge(
    "c5c3_worker_polling", description="Whether Temporal has lately seen this worker poll"
)

Why = Callable[[], Awaitable[str]]
"""Why the program is not ready; empty when it is."""


class Polling:
    """Asks Temporal whether this worker polls, at most every few seconds."""

    def __init__(self, worker: Worker, identity: str) -> None:
        self._worker = worker
        self._identity = identity
        self._answer = "not asked yet"
        self._until = 0.0

    async def why_not_ready(self) -> str:
        if not self._worker.is_running or self._worker.is_shutdown:
            return "the worker is not running"
        if time.monotonic() >= self._until:
            self._answer = await self._ask()
            self._until = time.monotonic() + _KEPT_SECONDS
        return self._answer

    async def _ask(self) -> str:
        # Both at once: a probe waits 5 s for what may take 3 s each.
        answers = await asyncio.gather(*(self._ask_about(word, queue) for word, queue in _QUEUES.items()))
        return next((why for why in answers if why), "")

    async def _ask_about(self, word: str, queue: TaskQueueType.ValueType) -> str:
        client = self._worker.client  # another one once what lets us in was rotated
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=self._worker.task_queue),
            task_queue_type=queue,
        )
        try:
            answer = await client.workflow_service.describe_task_queue(request, timeout=timedelta(seconds=3))
        except RPCError as error:
            return f"Temporal does not say who polls: {error.message}"
        oldest = datetime.now(UTC) - RECENT
        if any(
            poller.identity == self._identity and poller.last_access_time.ToDatetime(UTC) >= oldest
            for poller in answer.pollers
        ):
            return ""
        return f"Temporal has not seen this worker poll for {word} tasks on {self._worker.task_queue} lately"


async def serve(bind: tuple[str | None, int], why_not_ready: Why, metrics: Callable[[], bytes]) -> web.AppRunner:
    """Serves the three paths until the runner's `cleanup`. Raises OSError when the address cannot be had.

    Who asks for the metrics is told of the same proof: nobody else need ask.
    """

    async def readyz(_: web.Request) -> web.Response:
        why = await why_not_ready()
        return web.Response(text=f"{why or 'ready'}\n", status=503 if why else 200)

    async def measured() -> bytes:
        _polling.set(0 if await why_not_ready() else 1)
        return metrics()

    return await serving.serve(bind, readyz, measured)
