"""One trace per pass: what a ring caused belongs to that ring's trace, and to no earlier one."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from tests.conftest import Told
from tests.worker.test_temporal import settings_for
from tests.worker.toy import Sleepy, Toy
from worker import assembly, tracing, tracing_workflow
from worker.settings import WorkerSettings
from worker.temporal import connect
from worker.tracing_workflow import HEADER

_watcher = trace.get_tracer("watcher")


class Steps:
    """Speaks to nobody, but opens a span as a request does. `fails` are the errors of the next attempts."""

    def __init__(self, *fails: Exception) -> None:
        self.fails = list(fails)

    @activity.defn
    async def touch(self) -> None:
        with trace.get_tracer("c5c3.cluster").start_as_current_span("GET keystoneprojects"):
            if self.fails:
                raise self.fails.pop(0)


@asynccontextmanager
async def serving(env: WorkflowEnvironment, steps: Steps) -> AsyncIterator[tuple[Client, str]]:
    client = await connect(settings_for(env), identity="test")
    queue = f"tracing-{uuid.uuid4().hex[:8]}"
    async with assembly.build(client, WorkerSettings(task_queue=queue), [Toy, Sleepy], [steps.touch]):
        yield client, queue


async def ring(client: Client, queue: str, order: str, passes: int) -> tuple[WorkflowHandle[Toy, None], int]:
    """Rings as the watcher does; the handle, and the trace of that ring."""
    with _watcher.start_as_current_span("ring") as span:
        handle = await client.start_workflow(
            Toy.run, args=[passes], id=order, task_queue=queue, start_signal="changed",
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )  # fmt: skip
        return handle, span.get_span_context().trace_id


async def steps_ended(told: Told, count: int) -> list[ReadableSpan]:
    async with asyncio.timeout(20):
        while len(found := [s for s in told.exporter.get_finished_spans() if s.name == "touch"]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


def requests_in(told: Told, step: ReadableSpan) -> list[ReadableSpan]:
    assert step.context
    return [s for s in told.exporter.get_finished_spans() if s.parent and s.parent.span_id == step.context.span_id]


async def test_each_pass_belongs_to_the_ring_that_caused_it(temporal_env: WorkflowEnvironment, told: Told) -> None:
    order = f"KeystoneProject:team-a/{uuid.uuid4().hex[:8]}@edge-1"
    async with serving(temporal_env, Steps()) as (client, queue):
        traces = []
        for count in range(1, 6):  # the workflow continues as new in between
            handle, ring_trace = await ring(client, queue, order, 5)
            traces.append(ring_trace)
            await steps_ended(told, count)
        await handle.result()
    steps = await steps_ended(told, 5)
    assert [s.context.trace_id for s in steps if s.context] == traces
    assert len(set(traces)) == 5
    rings = [s.context.span_id for s in told.exporter.get_finished_spans() if s.name == "ring" and s.context]
    assert [s.parent.span_id for s in steps if s.parent] == rings
    for step in steps:
        assert [s.name for s in requests_in(told, step)] == ["GET keystoneprojects"]
    assert {s.name for s in told.exporter.get_finished_spans()} == {"ring", "touch", "GET keystoneprojects"}
    attributes = dict(steps[0].attributes or {})
    assert attributes.pop("run_id")
    assert attributes == {
        "kind": "KeystoneProject", "cluster": "edge-1", "namespace": "team-a",
        "name": order.partition("/")[2].partition("@")[0], "workflow_id": order, "attempt": 1,
    }  # fmt: skip


async def test_a_ring_from_outside_starts_a_trace_of_its_own(temporal_env: WorkflowEnvironment, told: Told) -> None:
    order = f"KeystoneProject:team-a/{uuid.uuid4().hex[:8]}"
    async with serving(temporal_env, Steps()) as (client, queue):
        handle, ring_trace = await ring(client, queue, order, 2)
        await steps_ended(told, 1)
        bare = await Client.connect(temporal_env.client.service_client.config.target_host)
        await bare.get_workflow_handle(order).signal("changed")
        await handle.result()
    first, second = await steps_ended(told, 2)
    assert first.context
    assert first.context.trace_id == ring_trace
    assert second.context
    assert second.context.trace_id != ring_trace


async def test_retries_stay_in_the_trace_and_only_failures_are_errors(
    temporal_env: WorkflowEnvironment, told: Told
) -> None:
    benign = ApplicationError("still waiting", category=ApplicationErrorCategory.BENIGN)
    async with serving(temporal_env, Steps(ValueError("broken"), benign)) as (client, queue):
        handle, ring_trace = await ring(client, queue, f"KeystoneProject:a/{uuid.uuid4().hex[:8]}", 1)
        await handle.result()
    steps = await steps_ended(told, 3)
    assert {s.context.trace_id for s in steps if s.context} == {ring_trace}
    assert [(s.attributes or {})["attempt"] for s in steps] == [1, 2, 3]
    assert [s.status.status_code.name for s in steps] == ["ERROR", "UNSET", "UNSET"]


async def test_a_pass_long_after_the_ring_is_a_trace_of_its_own(
    temporal_env: WorkflowEnvironment, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look of its own, not the ring, has caused it; its steps still belong together."""
    monkeypatch.setattr(tracing_workflow, "_SAME_PASS", timedelta(seconds=5))
    async with serving(temporal_env, Steps()) as (client, queue):
        with _watcher.start_as_current_span("ring") as span:
            ring_trace = span.get_span_context().trace_id
            order = f"KeystoneProject:team-a/{uuid.uuid4().hex[:8]}"
            handle = await client.start_workflow(Sleepy.run, id=order, task_queue=queue, start_signal="changed")
        await handle.result()
    traces = [s.context.trace_id for s in await steps_ended(told, 3) if s.context]
    assert traces[0] == ring_trace
    assert traces[1] == traces[2] != ring_trace


def test_a_late_attempt_is_a_root_linked_to_its_ring() -> None:
    payload = PayloadConverter.default.to_payload(f"00-{1:032x}-{2:016x}-01")
    ring_context = tracing._context({HEADER: payload})
    info = ActivityEnvironment.default_info()
    fresh = dataclasses.replace(info, scheduled_time=datetime.now(UTC))
    late = dataclasses.replace(info, scheduled_time=datetime.now(UTC) - timedelta(hours=3))
    assert tracing._place(fresh, ring_context) == (ring_context, [])
    context, (link,) = tracing._place(late, ring_context)
    assert trace.get_current_span(context).get_span_context().is_valid is False
    assert link.context.trace_id == 1
    assert tracing._place(late, tracing._context({})) == ({}, [])


def test_a_header_that_cannot_be_read_is_no_header() -> None:
    for payload in (Payload(), Payload(data=b"{"), PayloadConverter.default.to_payload("nonsense")):
        context = tracing._context({HEADER: payload})
        assert not trace.get_current_span(context).get_span_context().is_valid
