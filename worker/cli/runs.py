"""An order's run as Temporal tells it: its last passes, step by step, and what is pending now. No worker is needed.

Everything is read from histories, through the connection's own converter, so that encoded payloads are decoded as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workflows.api.meta import Model

_FIRST_STEPS = ("admit", "examine")
_RUNS_BACK = 3


class Step(Model):
    """One activity of a pass.

    summary   what it is for; of a wait, what is waited for
    seconds   from its first attempt's schedule to its end; None while it goes on
    outcome   what it found, in words, or its last failure
    next_try  when it is tried, or looked, again
    """

    name: str
    summary: str
    at: datetime
    seconds: float | None = None
    attempts: int = 1
    failed: bool = False
    outcome: str = ""
    next_try: datetime | None = None


class Pass(Model):
    """One pass over the order. `causes` are the rings that it answers."""

    at: datetime
    causes: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


class Run(Model):
    """The order's newest run. `passes` go back into its predecessors, the newest first."""

    run_id: str
    workflow_type: str
    status: str
    started: datetime
    link: str = ""
    passes: tuple[Pass, ...] = ()
    pending: tuple[Step, ...] = ()


async def run_of(client: Client, workflow_id: str, *, passes: int = 3) -> Run | None:
    """The newest run under the id, None when Temporal has none."""
    handle = client.get_workflow_handle(workflow_id)
    try:
        described = await handle.describe(rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None
    found: list[Pass] = []
    run_id = described.run_id
    for _ in range(_RUNS_BACK):
        try:
            history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            break  # its retention is over
        found += reversed(await passes_of(client, history.events))
        run_id = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if len(found) >= passes or not run_id:
            break
    pending = {each.activity_id: each for each in described.raw_description.pending_activities}
    newest = [step for one in found[:1] for step in one.steps if step.seconds is None]
    return Run(
        run_id=described.run_id,
        workflow_type=described.workflow_type,
        status=described.status.name.capitalize() if described.status else "Unknown",
        started=described.start_time,
        passes=tuple(found[:passes]),
        pending=tuple([await _pending(client, each, newest) for each in pending.values()]),
    )


async def passes_of(client: Client, events: Sequence[HistoryEvent]) -> list[Pass]:
    """The passes of one run's history, the oldest first."""
    ends = {scheduled: event for event in events if (scheduled := _scheduled_by(event))}
    attempts = {
        event.activity_task_started_event_attributes.scheduled_event_id: int(
            event.activity_task_started_event_attributes.attempt
        )
        for event in events
        if event.HasField("activity_task_started_event_attributes")
    }
    passes: list[Pass] = []
    steps: list[Step] = []
    causes: list[str] = []
    for event in events:
        causes += _cause(event)
        if not event.HasField("activity_task_scheduled_event_attributes"):
            continue
        name = event.activity_task_scheduled_event_attributes.activity_type.name
        step = await _step(client, event, ends.get(event.event_id), attempts.get(event.event_id, 1))
        if name in _FIRST_STEPS or not passes:
            steps = []
            passes.append(Pass(at=step.at, causes=tuple(dict.fromkeys(causes))))
            causes = []
        steps.append(step)
        passes[-1] = passes[-1].model_copy(update={"steps": tuple(steps)})
    return passes


def _scheduled_by(event: HistoryEvent) -> int:
    """The scheduling that this event ends, 0 when it ends none."""
    for kind in ("completed", "failed", "timed_out", "canceled"):
        field = f"activity_task_{kind}_event_attributes"
        if event.HasField(field):  # type: ignore[arg-type]
            return int(getattr(event, field).scheduled_event_id)
    return 0


def _cause(event: HistoryEvent) -> list[str]:
    if event.HasField("workflow_execution_signaled_event_attributes"):
        signal = event.workflow_execution_signaled_event_attributes
        return [f"{signal.signal_name} from {signal.identity.partition('@')[0] or 'somebody'}"]
    if event.HasField("workflow_execution_update_accepted_event_attributes"):
        request = event.workflow_execution_update_accepted_event_attributes.accepted_request
        return [f"{request.input.name} from {request.meta.identity.partition('@')[0] or 'somebody'}"]
    if event.HasField("workflow_execution_started_event_attributes"):
        return ["the run's start"]
    return []


async def _step(client: Client, scheduled: HistoryEvent, end: HistoryEvent | None, attempts: int) -> Step:
    named = scheduled.activity_task_scheduled_event_attributes
    at = _time(scheduled.event_time)
    summary = ""
    if scheduled.user_metadata.HasField("summary"):
        (summary,) = await client.data_converter.decode([scheduled.user_metadata.summary], [str])
    step = Step(name=named.activity_type.name, summary=summary, at=at, attempts=attempts)
    if end is None:
        return step
    seconds = round((_time(end.event_time) - at).total_seconds(), 3)
    failed, outcome = False, ""
    if end.HasField("activity_task_completed_event_attributes"):
        result = end.activity_task_completed_event_attributes.result.payloads
        outcome = _words(step.name, (await client.data_converter.decode(result))[0] if result else None)
    elif end.HasField("activity_task_failed_event_attributes"):
        failed, outcome = True, await _failure(client, end.activity_task_failed_event_attributes.failure)
    elif end.HasField("activity_task_timed_out_event_attributes"):
        failed, outcome = True, "no answer in time"
    elif end.HasField("activity_task_canceled_event_attributes"):
        outcome = "ended by a ring"
    return step.model_copy(update={"seconds": seconds, "failed": failed, "outcome": outcome})


def _words(name: str, result: Any) -> str:
    """What a step answered, in words: its verdicts, what is left, or only that it is done."""
    if name == "settle":
        return "something moved"
    if name == "report":
        return "status written" if result else "the order had moved meanwhile"
    if not isinstance(result, dict):
        return "done"
    found = result.get("found") or {}
    verdicts = [*(result.get("refused") or result.get("held") or result.get("verdicts") or found.get("verdicts") or ())]
    said = [f"{each['type']} {each['status']} {each['reason']}" for each in verdicts]
    said += [f"left: {each}" for each in result.get("left") or ()]
    said += [str(result["trouble"])] if result.get("trouble") else []
    return "; ".join(said) or str(result.get("state") or "done")


async def _pending(client: Client, each: PendingActivityInfo, steps: Sequence[Step]) -> Step:
    """A step that goes on. What Temporal says of it now, with what the history said when it was scheduled."""
    name = each.activity_type.name
    known = next((step for step in steps if step.name == name), None)
    step = known or Step(name=name, summary="", at=_time(each.scheduled_time))
    failure = await _failure(client, each.last_failure) if each.HasField("last_failure") else ""
    due = each.next_attempt_schedule_time if each.HasField("next_attempt_schedule_time") else None
    return step.model_copy(
        update={"attempts": each.attempt, "outcome": failure, "next_try": _time(due) if due else None}
    )


async def _failure(client: Client, failure: Failure) -> str:
    error = await client.data_converter.decode_failure(failure)
    return str(getattr(error, "message", None) or error)


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(UTC)


async def pollers(client: Client, task_queue: str) -> list[PollerInfo]:
    """Who polls for workflow tasks, the last seen first. Temporal goes on naming one for minutes after it ended."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=timedelta(seconds=10))
    return sorted(answer.pollers, key=lambda each: each.last_access_time.ToDatetime(UTC), reverse=True)
