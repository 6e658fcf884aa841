"""What a person asks a run for: a pass now, or a new password. The run answers; no cluster is needed.

The only words that these two send are Temporal's own signal and updates, which the run may refuse.
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import Any, TypeVar

from rich.console import Console
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.cluster import ORDER_KINDS
from activities.clusters import BadKubeconfig, Unregistered
from activities.errors import ClusterError
from worker.cli import runs, show
from worker.cli.orders import age
from worker.cli.reach import MANAGEMENT, Reach
from workflows.api.meta import Model
from workflows.keystoneservice.workflow import Rotated
from workflows.scaffold.carry import Described
from workflows.scaffold.order import RESYNC, OrderRef

Answer = TypeVar("Answer")


class NotDone(Exception):
    """What was asked for was not done; one sentence that says why."""


class Resynced(Model):
    """What came of `resync`. Without `found` the pass was only asked for."""

    order: str
    found: Described | None = None


class Rotation(Model):
    """What came of `rotate`."""

    order: str
    rotated: Rotated


async def resynced(reach: Reach, ref: OrderRef, seconds: float | None) -> Resynced:
    """Asks for a full pass; with a time limit, waits for what it found. Raises NotDone."""
    client = await reach.temporal()
    if seconds is not None:
        return Resynced(order=ref.workflow_id, found=await _update(reach, ref, "resync_now", Described, seconds))
    try:
        await client.get_workflow_handle(ref.workflow_id).signal(RESYNC)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise NotDone(await _no_run(reach, ref)) from None
        raise
    return Resynced(order=ref.workflow_id)


async def rotated(reach: Reach, ref: OrderRef, seconds: float) -> Rotation:
    """Asks for the next password. Raises NotDone."""
    return Rotation(order=ref.workflow_id, rotated=await _update(reach, ref, "rotate", Rotated, seconds))


async def _update(reach: Reach, ref: OrderRef, name: str, answer: type[Answer], seconds: float) -> Answer:
    client = await reach.temporal()
    handle: Any = client.get_workflow_handle(ref.workflow_id)
    try:
        async with asyncio.timeout(seconds):
            found: Answer = await handle.execute_update(name, result_type=answer)
            return found
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise NotDone(await _no_answer(client, reach.settings.task_queue, ref, seconds)) from None
    except WorkflowUpdateFailedError as error:
        raise NotDone(getattr(error.cause, "message", None) or str(error.cause)) from None
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise NotDone(await _no_run(reach, ref)) from None
        raise


async def _no_run(reach: Reach, ref: OrderRef) -> str:
    """Why nothing runs under the order's id, as far as the cluster can be asked."""
    none = f"no run of {ref.workflow_id} is open in Temporal namespace {reach.settings.temporal_namespace}"
    where = ref.cluster or f"the {MANAGEMENT} cluster"
    try:
        cluster = await (await reach.clusters()).get(ref.cluster)
        live = await cluster.get(ORDER_KINDS[ref.kind], ref.namespace, ref.name)
    except (BadKubeconfig, Unregistered, ClusterError) as error:
        return f"{none}; whether there is such an order on {where} could not be seen: {error}"
    if live is None:
        return f"there is no {ref.kind} {ref.key} on {where}, and {none}"
    return (
        f"{ref.kind} {ref.key} is there, but {none}: the watcher has not started one yet;"
        " `c5c3-orders doctor` says whether it is running"
    )


async def _no_answer(client: Client, task_queue: str, ref: OrderRef, seconds: float) -> str:
    none = f"no worker answered for {ref.workflow_id} within {seconds:g} s"
    found = await runs.pollers(client, task_queue)
    if not found:
        return f"{none}: nobody polls the task queue {task_queue}. Start the worker, and ask again"
    last = found[0].last_access_time.ToDatetime(UTC)
    return (
        f"{none}: {found[0].identity} polled the task queue {task_queue} last, {age(last)} ago. If it runs, the pass"
        " goes on: `c5c3-orders explain` shows where it is"
    )


def show_pass(out: Console, found: Resynced) -> None:
    if found.found is None:
        out.print(f"{found.order}: a pass is asked for")
        return
    described = found.found
    out.print(f"{found.order} is {described.phase}; the pass found:")
    table = show.grid("", "", last="", fold=True)
    for each in described.verdicts:
        table.add_row(*map(show.said, (each.type, str(each.status), f"{each.reason}: {each.message}")))
    for left in described.left:
        table.add_row(*map(show.said, ("waits for", "", left)))
    if described.note:
        table.add_row(*map(show.said, ("Ready", "False", described.note)))
    show.put(out, table)
    due = described.next_look_seconds
    soon = f"in {due:g} s, or " if due is not None else ""
    out.print(f"it is looked at again {soon}when something it depends on moves")


def show_rotation(out: Console, found: Rotation) -> None:
    rotated = found.rotated
    if rotated.delivered:
        out.print(f"{found.order}: password generation {rotated.generation} is delivered")
    else:
        out.print(f"{found.order}: password generation {rotated.generation} is asked for; it waits on", end=" ")
        out.print(show.said(rotated.waits_on), soft_wrap=True)
