"""D5, the watcher's part: news of an order that was released already starts no run and leaves none open."""

from __future__ import annotations

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from tests.watcher.objects import Recorder, order, ref, until
from tests.watcher.running import running
from tests.watcher.server import serving
from watcher.doorbell import TemporalDoorbell
from watcher.engine import Engine
from watcher.mapping import Plane
from workflows.scaffold.order import OrderRef

DELETING = "2026-11-30T00:00:00Z"


class Passed(Recorder):
    """Rings a real Temporal server, and remembers."""

    def __init__(self, through: TemporalDoorbell) -> None:
        super().__init__()
        self._through = through

    async def ring(self, ref: OrderRef, plane: Plane | None) -> str:
        outcome = await self._through.ring(ref, plane)
        await super().ring(ref, plane)
        return outcome


async def test_d5_late_events_after_the_release_start_no_run(temporal_env: WorkflowEnvironment) -> None:
    client, name = temporal_env.client, ref("released", "d5")
    doorbell = Passed(TemporalDoorbell(client, "nobody-polls-this"))
    async with serving() as (server, cluster):
        server.objects = [order("released", "d5", finalizers=["c5c3.io/keystoneproject-teardown"])]
        async with running(Engine(cluster, doorbell, "c5c3-clusters")):
            await until(lambda: doorbell.started(name))
            run = client.get_workflow_handle(name.workflow_id)
            first = (await run.describe()).run_id
            # The run does its work and ends; only then does the watcher hear what is left to hear.
            await run.terminate("released, as its teardown would")
            await server.say("MODIFIED", order("released", "d5", deletionTimestamp=DELETING, generation=2))
            await until(lambda: len(doorbell.rings) == 2)
            await server.say("DELETED", order("released", "d5", deletionTimestamp=DELETING, generation=2))
            await until(lambda: len(doorbell.rings) == 3)
    assert [start for _, _, start in doorbell.rings] == [True, False, False]
    last = await client.get_workflow_handle(name.workflow_id).describe()
    assert last.run_id == first
    assert last.status is not WorkflowExecutionStatus.RUNNING


async def test_d5_an_order_released_before_the_watcher_came_has_no_run(temporal_env: WorkflowEnvironment) -> None:
    """Somebody else's finalizer still holds it: there it stays, in every list, and none of our business."""
    client, name = temporal_env.client, ref("held", "d5")
    doorbell = Passed(TemporalDoorbell(client, "nobody-polls-this"))
    async with serving() as (server, cluster):
        server.objects = [order("held", "d5", deletionTimestamp=DELETING, finalizers=["example.com/theirs"])]
        async with running(Engine(cluster, doorbell, "c5c3-clusters")):
            await until(lambda: doorbell.rings)
    with pytest.raises(RPCError):
        await client.get_workflow_handle(name.workflow_id).describe()
