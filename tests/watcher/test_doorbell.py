"""What the doorbell makes of Temporal, on a real server: started and rung in one request, or only rung."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from watcher.doorbell import NotTaken, TemporalDoorbell
from workflows.scaffold import search
from workflows.scaffold.order import OrderRef

PLANE = ("openstack", "cp")
QUEUE = "nobody-polls-this"


def fresh(cluster: str = "") -> OrderRef:
    return OrderRef(kind="KeystoneProject", cluster=cluster, namespace="team-a", name=f"o-{uuid.uuid4().hex[:8]}")


async def events(client: Client, ref: OrderRef) -> list[EventType.ValueType]:
    history = await client.get_workflow_handle(ref.workflow_id).fetch_history()
    return [event.event_type for event in history.events]


async def test_a_missing_run_is_started_and_an_open_one_is_rung(
    temporal_env: WorkflowEnvironment,
) -> None:
    client, ref = temporal_env.client, fresh("edge-1")
    doorbell = TemporalDoorbell(client, QUEUE)
    assert await doorbell.ring(ref, PLANE) == "rung"
    run = await client.get_workflow_handle(ref.workflow_id).describe()
    assert await doorbell.ring(ref, PLANE) == "rung"
    assert (await client.get_workflow_handle(ref.workflow_id).describe()).run_id == run.run_id, "never two"
    assert (await events(client, ref)).count(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED) == 2
    assert run.workflow_type == "KeystoneProject"
    assert run.id == f"KeystoneProject:team-a/{ref.name}@edge-1"
    assert run.typed_search_attributes[search.CLUSTER] == "edge-1"
    assert run.typed_search_attributes[search.KIND] == "KeystoneProject"
    assert run.typed_search_attributes[search.NAMESPACE] == "team-a"
    assert run.task_queue == QUEUE
    assert run.raw_description.workflow_execution_info.priority.fairness_key == "openstack/cp", (
        "one plane's storm delays no other's"
    )


async def test_a_run_has_no_argument_no_end_and_comes_back_after_a_failure(temporal_env: WorkflowEnvironment) -> None:
    client, ref = temporal_env.client, fresh()
    await TemporalDoorbell(client, QUEUE).ring(ref, PLANE)
    history = await client.get_workflow_handle(ref.workflow_id).fetch_history()
    started = history.events[0].workflow_execution_started_event_attributes
    assert not started.input.payloads
    assert started.retry_policy.maximum_attempts == 0
    assert started.retry_policy.initial_interval.seconds > 0
    assert not started.workflow_execution_timeout.seconds
    assert not started.workflow_run_timeout.seconds


async def test_a_new_order_of_the_same_name_is_served_by_the_same_id(temporal_env: WorkflowEnvironment) -> None:
    client, ref = temporal_env.client, fresh()
    doorbell = TemporalDoorbell(client, QUEUE)
    await doorbell.ring(ref, PLANE)
    first = await client.get_workflow_handle(ref.workflow_id).describe()
    await client.get_workflow_handle(ref.workflow_id).terminate()
    assert await doorbell.ring(ref, PLANE) == "rung"
    second = await client.get_workflow_handle(ref.workflow_id).describe()
    assert second.run_id != first.run_id
    assert second.status is WorkflowExecutionStatus.RUNNING


async def test_an_order_that_is_gone_is_rung_and_never_started(temporal_env: WorkflowEnvironment) -> None:
    client, ref = temporal_env.client, fresh()
    doorbell = TemporalDoorbell(client, QUEUE)
    assert await doorbell.ring(ref, None) == "nobody"
    await doorbell.ring(ref, PLANE)
    assert await doorbell.ring(ref, None) == "signalled"
    await client.get_workflow_handle(ref.workflow_id).terminate()
    assert await doorbell.ring(ref, None) == "nobody"


async def test_open_runs_are_those_of_the_kind_whatever_else_runs(temporal_env: WorkflowEnvironment) -> None:
    client, home, away, ended = temporal_env.client, fresh(), fresh("edge-1"), fresh()
    doorbell = TemporalDoorbell(client, QUEUE)
    for ref in (home, away, ended):
        await doorbell.ring(ref, PLANE)
    await client.get_workflow_handle(ended.workflow_id).terminate()
    await client.start_workflow("Other", id=f"not-an-order-{home.name}", task_queue=QUEUE)
    seen: set[OrderRef] = set()

    async def look() -> None:
        seen.clear()
        seen.update([ref async for ref in doorbell.open_runs("KeystoneProject")])

    for _ in range(50):
        await look()
        if {home, away} <= seen and ended not in seen:
            break
        await asyncio.sleep(0.1)  # visibility follows a little later
    assert {home, away} <= seen
    assert ended not in seen


async def test_a_server_that_does_not_take_it_says_whether_it_would_take_any(temporal_env: WorkflowEnvironment) -> None:
    where = temporal_env.client.service_client.config.target_host
    nowhere = await Client.connect(where, namespace="no-such-namespace")
    with pytest.raises(NotTaken, match="NOT_FOUND"):
        await TemporalDoorbell(nowhere, QUEUE).ring(fresh(), PLANE)
    with pytest.raises(NotTaken, match="NOT_FOUND"):
        await TemporalDoorbell(nowhere, QUEUE).ring(fresh(), None)
