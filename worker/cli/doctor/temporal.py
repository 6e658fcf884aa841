"""Temporal: the search attributes, workers that poll and answer, and a run for every order.

That a worker works is proved by a question that only a worker can answer; Temporal's list of pollers is minutes old.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from worker import temporal
from worker.cli import runs
from worker.cli.doctor.check import Check, fail, ok, warn
from worker.cli.orders import Listed, age
from worker.cli.reach import MANAGEMENT, PeopleSettings
from worker.temporal import TemporalUnusable
from workflows.scaffold.order import OrderRef

AREA = "temporal"
_YOUNG = timedelta(seconds=20)
"""An order so young may have no run yet, nor visibility have heard of one."""
_POLLS = timedelta(seconds=70)
"""A worker's poll lasts a minute at most, and then it polls again."""
_OPEN = 'ExecutionStatus = "Running" AND TaskQueue = "{}"'
_ANSWER = timedelta(seconds=5)
_START = "start `python -m worker` (docs/operating.md) with C5C3_TEMPORAL_ADDRESS, namespace and task queue as here"


async def checks(client: Client, settings: PeopleSettings) -> list[Check]:
    """What is asked of a server that answered and has the namespace."""
    where = f"Temporal at {settings.temporal_address}, namespace {settings.temporal_namespace}"
    found = [ok(AREA, f"{where}, answers")]
    try:
        await temporal.check_search_attributes(client)
        found.append(ok(AREA, "the search attributes are there"))
    except TemporalUnusable as error:
        text, _, remedy = str(error).partition(": ")
        found.append(fail(AREA, text, remedy))
    found.append(await _workers(client, settings.task_queue))
    return found


async def _workers(client: Client, task_queue: str) -> Check:
    polling = await runs.pollers(client, task_queue)
    if not polling:
        return fail(AREA, f"nobody polls the task queue {task_queue}", _START)
    # Temporal goes on naming those that ended: of these only the last is worth a word, and only if there is no other.
    seen = [each for each in polling if each.last_access_time.ToDatetime(UTC) > datetime.now(UTC) - _POLLS]
    names = ", ".join(
        f"{each.identity} (version {each.deployment_options.build_id or 'not told'},"
        f" polled {age(each.last_access_time.ToDatetime(UTC))} ago)"
        for each in seen or polling[:1]
    )
    async for run in client.list_workflows(_OPEN.format(task_queue), page_size=1, limit=1):
        began = time.monotonic()
        try:
            await client.get_workflow_handle(run.id).query("describe", rpc_timeout=_ANSWER)
        except (RPCError, WorkflowQueryFailedError) as error:
            if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
                break  # it ended just now
            said = error.message if isinstance(error, RPCError) else str(error)
            return fail(
                AREA, f"no worker answers for {run.id} ({said}); the last to poll {task_queue}: {names}", _START
            )
        return ok(AREA, f"workers poll {task_queue} and answer ({time.monotonic() - began:.2f} s): {names}")
    return ok(AREA, f"workers poll {task_queue}: {names}")


async def runs_of(client: Client, task_queue: str, listed: Listed) -> list[Check]:
    """Whether every order has a run, and every run an order."""
    running = {run.id async for run in client.list_workflows(_OPEN.format(task_queue))}
    young = datetime.now(UTC) - _YOUNG
    served = [each for each in listed.orders if not each.deleting or each.finalized]
    alone = [each.ref for each in served if each.ref.workflow_id not in running and (each.created or young) < young]
    # A run that visibility still calls open, or not yet, is asked for by name.
    alone = [ref for ref in alone if not await _is_open(client, ref.workflow_id)]
    found = [
        fail(
            AREA,
            f"{ref.kind} {ref.key}{f' on {ref.cluster}' if ref.cluster else ''} has no run: nobody serves it",
            "see that the watcher runs and that its /readyz is 200; it rings every order when it starts",
        )
        for ref in alone
    ]
    unread = {each.cluster for each in listed.unread}
    there = {each.ref.workflow_id for each in listed.orders}
    gone = [id_ for id_ in running - there if _ours(id_, unread) and await _is_open(client, id_)]
    found += [
        warn(AREA, f"the run {id_} is open, and its order is not there", _END.format(id_)) for id_ in sorted(gone)
    ]
    return found or [ok(AREA, f"each of {len(served)} orders has a run, and no run is left without its order")]


_END = (
    "the watcher rings it at its next start, and it ends; or: temporal workflow signal --workflow-id {} --name resync"
)


async def _is_open(client: Client, workflow_id: str) -> bool:
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.close_time is None


def _ours(workflow_id: str, unread: Sequence[str] | set[str]) -> bool:
    """Whether it is an order's, on a cluster that was read."""
    try:
        ref = OrderRef.parse(workflow_id)
    except ValueError:
        return False
    return (ref.cluster or MANAGEMENT) not in unread
