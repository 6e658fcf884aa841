"""D7: a version that is too old, in the stream and on the request, loses nothing, and no request goes without one."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from tests.watcher.objects import order, ref, until
from tests.watcher.running import running
from tests.watcher.server import Watching, ended, gone, refusal, saying, serving
from watcher.dispatch import Rates
from watcher.doorbell import TemporalDoorbell
from watcher.engine import Engine
from watcher.stream import Pace
from workflows.scaffold.order import OrderRef

PACE = Pace(first_pause=0.05, longest_pause=0.2)


@pytest.mark.row("T12")
async def test_d7_what_happened_in_the_gap_of_a_410_is_heard(temporal_env: WorkflowEnvironment) -> None:
    client, x, y = temporal_env.client, ref("x", "d7"), ref("y", "d7")
    doorbell = TemporalDoorbell(client, "nobody-polls-this")
    async with serving() as (server, cluster):
        server.objects = [order("y", "d7")]

        async def in_the_gap(watching: Watching) -> None:
            """X is created and Y deleted; the stream only says that it is too old."""
            server.version, server.objects = "200", [order("x", "d7")]
            await saying(("ERROR", gone()), then=ended)(watching)

        server.watches += [in_the_gap, refusal(410, "Expired", "too old resource version: 200")]
        async with running(Engine(cluster, doorbell, "c5c3-clusters", rates=Rates(fold=0.05), pace=PACE)) as engine:
            await until(lambda: len(server.versions) >= 3)
            assert server.listed == 3, "a full list after each 410"
            assert server.versions == ["100", "200", "200"], "never none, never an old one"
            while not await exists(client, x) or await signals(client, y) < 2:
                await until(lambda: not engine.bells.pending)
            assert engine.stale(30) == []
        assert (await client.get_workflow_handle(x.workflow_id).describe()).status is WorkflowExecutionStatus.RUNNING
        assert await signals(client, y) == 2, "its start, and that it is gone"


async def exists(client: Client, order: OrderRef) -> bool:
    return bool([run async for run in client.list_workflows(f'WorkflowId = "{order.workflow_id}"')])


async def signals(client: Client, order: OrderRef) -> int:
    if not await exists(client, order):
        return 0
    history = await client.get_workflow_handle(order.workflow_id).fetch_history()
    return sum(event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED for event in history.events)
