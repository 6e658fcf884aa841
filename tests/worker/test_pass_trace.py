"""One trace per pass, over both programs: the watcher's ring, the worker's steps, their requests, at a collector."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.testing import WorkflowEnvironment

from deploy.local import kube, programs, stack
from deploy.local.part import Stack
from tests.worker.program import Program, free_port

pytestmark = [pytest.mark.api, pytest.mark.timeout(900)]  # the collector is built once, from source


@dataclass(frozen=True)
class Span:
    """A span as the collector printed it."""

    trace: str
    parent: str
    id: str
    name: str


class Collector:
    """The OpenTelemetry Collector, printing every span that it takes."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "collector.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        config = (
            f"yaml:{{receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{self.port}'}}}}}}}},"
            " exporters: {debug: {verbosity: detailed}},"
            " service: {telemetry: {metrics: {level: none}},"
            " pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}"
        )
        built = await programs.build(stack.home(), "collector")
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(str(built), "--config", config, stdout=log, stderr=log)
        await self.prints("Everything is ready")

    async def prints(self, words: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while words not in self._log.read_text():
            assert time.monotonic() < end, self._log.read_text()[-3000:]
            await asyncio.sleep(0.1)

    def spans(self) -> list[Span]:
        block = r"Trace ID\s*: (\w*)\n\s*Parent ID\s*: (\w*)\n\s*ID\s*: (\w*)\n\s*Name\s*: ([^\n]*)"
        return [Span(*found) for found in re.findall(block, self._log.read_text())]

    async def stop(self) -> None:
        if self._process:
            self._process.terminate()
            await self._process.wait()


@pytest_asyncio.fixture
async def collector(tmp_path: Path) -> AsyncIterator[Collector]:
    one = Collector(tmp_path)
    await one.start()
    yield one
    await one.stop()


@pytest.mark.row("O04")
async def test_a_pass_is_one_trace_from_the_ring_to_the_requests(
    api_stack: Stack, temporal_env: WorkflowEnvironment, collector: Collector, tmp_path: Path
) -> None:
    common = {
        "C5C3_KUBECONFIG": str(kube.kubeconfig(api_stack, "management", "operator")),
        "C5C3_TEMPORAL_ADDRESS": temporal_env.client.service_client.config.target_host,
        "C5C3_TASK_QUEUE": f"traces-{uuid.uuid4().hex[:8]}",
        "C5C3_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
    }
    name = f"traced-{uuid.uuid4().hex[:8]}"
    started: list[Program] = []
    try:
        for module in ("worker", "watcher"):
            folder = tmp_path / module
            folder.mkdir()
            program = Program(folder, {**common, "C5C3_HTTP_ADDRESS": f"127.0.0.1:{free_port()}"})
            started.append(program)
            await program.start(module)
        for program in started:
            await program.says(200)
        await order(api_stack, name)
        spans = await pass_of(collector, name)
    finally:
        for program in started:
            await program.kill()
        await kube.call(api_stack, "management", "DELETE", f"{ORDERS}/{name}")
    ring = next(span for span in spans if span.name == "ring")
    assert ring.parent == ""
    steps = {span.name: span for span in spans if span.parent == ring.id}
    assert {"admit", "report"} <= steps.keys()
    assert "GET keystoneprojects" in {span.name for span in spans if span.parent == steps["admit"].id}
    assert "PATCH keystoneprojects" in {span.name for span in spans if span.parent == steps["report"].id}


ORDERS = "/apis/c5c3.io/v1alpha1/namespaces/team-a/keystoneprojects"


async def order(api_stack: Stack, name: str) -> None:
    """An order whose plane does not exist: its first pass ends with a report."""
    spec = {"controlPlaneRef": {"name": "absent", "namespace": "openstack"}}
    meta = {"name": name, "namespace": "team-a"}
    body = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneProject", "metadata": meta, "spec": spec}
    await kube.apply(api_stack, "management", [body])


async def pass_of(collector: Collector, name: str, seconds: float = 60) -> list[Span]:
    """The spans of the trace in which this order's status was first written."""
    await collector.prints(f"team-a/{name}", seconds)
    end = time.monotonic() + seconds
    while True:
        spans = collector.spans()
        for ring in [span for span in spans if span.name == "ring"]:
            trace = [span for span in spans if span.trace == ring.trace]
            if {"report", "PATCH keystoneprojects"} <= {span.name for span in trace}:
                return trace
        assert time.monotonic() < end, sorted({span.name for span in spans})
        await asyncio.sleep(0.2)
