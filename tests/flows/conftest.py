"""A Temporal dev server whose clock can be turned per workflow, and a worker built as the product builds it.

The server skips time only when it is told to (`Flow.pass_time`); between that its clock is the wall's.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

import pytest
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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def clock_env() -> AsyncIterator[WorkflowEnvironment]:
    """A dev server that can skip time. It is told to by the workflow, so tests may share it."""
    async with await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=TimeSkippingConfig(enabled=False, max_session_skip_count=1000),
        data_converter=pydantic_data_converter,
        interceptors=[Tracing()],
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


class Serve(Protocol):
    def __call__(self, world: World, gate: Gate | None = None) -> AbstractAsyncContextManager[Flow]: ...


@pytest.fixture
def serve(clock_env: WorkflowEnvironment) -> Serve:
    """`async with serve(world) as flow:` runs a worker for that world's order; a gate holds its runs at their end."""

    @asynccontextmanager
    async def serving(world: World, gate: Gate | None = None) -> AsyncIterator[Flow]:
        client = clock_env.client
        if gate is not None:
            config = client.config()
            config["data_converter"] = replace(config["data_converter"], payload_codec=gate)
            client = Client(**config)
        settings = WorkerSettings(task_queue=f"q-{next(_numbers)}")
        async with assembly.build(client, settings, assembly.WORKFLOWS, world.activities()):
            flow = Flow(clock_env, world, settings.task_queue)
            try:
                yield flow
            finally:
                await flow.stop()

    return serving
