"""A Temporal dev server whose clock can be turned per workflow, and a worker built as the product builds it.

The server skips time only when it is told to (`Flow.pass_time`); between that its clock is the wall's.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol, cast

import pytest_asyncio
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import TimeSkippingConfig, WorkflowEnvironment

from tests.conftest import temporal_program
from tests.flows.flow import Flow
from tests.flows.gate import Gate
from tests.flows.world import World
from worker import assembly
from worker.settings import WorkerSettings
from worker.tracing import Tracing
from workflows.scaffold.search import ALL

_DYNAMIC = (
    "frontend.WorkflowTimeSkippingEnabled=true",
    'history.timerProcessorMaxTimeShift="10ms"',  # or every skip takes a second
)
_numbers = itertools.count(1)


@asynccontextmanager
async def clock_server() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=TimeSkippingConfig(enabled=False, max_session_skip_count=1000),
        data_converter=pydantic_data_converter,
        interceptors=[Tracing()],
        identity="tests",
        dev_server_existing_path=temporal_program(),
        dev_server_log_level="error",
        dev_server_startup_timeout=timedelta(seconds=60),
        dev_server_extra_args=[
            *(word for value in _DYNAMIC for word in ("--dynamic-config-value", value)),
            "--disable-config-file",
            "--disable-config-env",
        ],
        search_attributes=ALL,
    ) as env:
        yield env


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def clock_env() -> AsyncIterator[WorkflowEnvironment]:
    """A dev server that can skip time. It is told to by the workflow, so tests may share it."""
    async with clock_server() as env:
        yield env


class Serve(Protocol):
    def __call__(
        self, world: World, gate: Gate | None = None, workflows: Sequence[type] = ..., after: Flow | None = None
    ) -> AbstractAsyncContextManager[Flow]: ...


@asynccontextmanager
async def serving(
    env: WorkflowEnvironment,
    world: World,
    gate: Gate | None = None,
    workflows: Sequence[type] = assembly.WORKFLOWS,
    after: Flow | None = None,
) -> AsyncIterator[Flow]:
    """A worker for that world's order.

    gate       holds its runs at their end
    workflows  what the worker serves, where it is not what the product does
    after      serves on where that flow's worker, stopped meanwhile, left off
    """
    client = env.client
    if gate is not None:
        config = client.config()
        config["data_converter"] = replace(config["data_converter"], payload_codec=gate)
        client = Client(**config)
    settings = WorkerSettings(task_queue=after.queue if after else f"q-{next(_numbers)}")
    async with assembly.build(client, settings, workflows, world.activities()):
        yield Flow(env, world, settings.task_queue)


@pytest_asyncio.fixture
async def serve(clock_env: WorkflowEnvironment) -> AsyncIterator[Serve]:
    """`async with serve(world) as flow:`; the orders' workflows end with the test."""
    flows: list[Flow] = []

    @asynccontextmanager
    async def served(world: World, *rest: Any, **more: Any) -> AsyncIterator[Flow]:
        async with serving(clock_env, world, *rest, **more) as flow:
            flows.append(flow)
            yield flow

    yield cast(Serve, served)
    for flow in flows:
        await flow.stop()
