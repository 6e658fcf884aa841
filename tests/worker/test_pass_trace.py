"""One trace per pass, over both programs: the watcher's ring, the worker's steps, their requests, at a collector."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from temporalio.testing import WorkflowEnvironment

from deploy.local import kube, programs, stack
from deploy.local.part import Stack
from tests.product import alone
from tests.worker.program import Program, free_port

pytestmark = pytest.mark.api


@dataclass(frozen=True)
class Span:
    """A span as a collector got it."""

    trace: str
    parent: str
    id: str
    name: str


class Collector(Protocol):
    """Takes OTLP over HTTP on `port` and tells which spans it was sent."""

    port: int

    def spans(self) -> list[Span]: ...


class OurCollector:
    """Decodes what is sent as OpenTelemetry's own definitions say."""

    def __init__(self) -> None:
        self.port = 0
        self._spans: list[Span] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Collector]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/traces", self._take)
        async with TestServer(app) as server:
            self.port = server.port or 0
            yield self

    async def _take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for scope in (scope for resource in sent.resource_spans for scope in resource.scope_spans):
            self._spans += [
                Span(one.trace_id.hex(), one.parent_span_id.hex(), one.span_id.hex(), one.name) for one in scope.spans
            ]
        return web.Response(content_type="application/x-protobuf")

    def spans(self) -> list[Span]:
        return self._spans


class OpenTelemetrys:
    """The OpenTelemetry Collector itself, with its receiver and its exporter into a file."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._file = folder / "spans.json"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Collector]:
        settings = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}"}}}},
            "exporters": {"file": {"path": str(self._file), "flush_interval": "200ms"}},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        }
        (self._folder / "config.yaml").write_text(yaml.safe_dump(settings))
        program = await programs.build(stack.home(), "collector")
        with (self._folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                program, f"--config={self._folder / 'config.yaml'}", stdout=log, stderr=log
            )
        try:
            yield self
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    def spans(self) -> list[Span]:
        return [
            Span(one["traceId"], one.get("parentSpanId", ""), one["spanId"], one["name"])
            for line in (self._file.read_text().splitlines(keepends=True) if self._file.exists() else ())
            if line.endswith("\n")
            for resource in json.loads(line)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for one in scope["spans"]
        ]


@pytest_asyncio.fixture(params=["ours", pytest.param("OpenTelemetry's", marks=pytest.mark.real)])
async def collector(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Collector]:
    chosen: OurCollector | OpenTelemetrys = OurCollector() if request.param == "ours" else OpenTelemetrys(tmp_path)
    async with chosen.running() as running:
        yield running


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
    await alone(api_stack)
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
        spans = await pass_of(collector)
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


async def pass_of(collector: Collector, seconds: float = 90) -> list[Span]:
    """The spans of the trace in which an order's status was written."""
    end = time.monotonic() + seconds
    while True:
        spans = collector.spans()
        for ring in [span for span in spans if span.name == "ring"]:
            trace = [span for span in spans if span.trace == ring.trace]
            if {"report", "PATCH keystoneprojects"} <= {span.name for span in trace}:
                return trace
        assert time.monotonic() < end, sorted({span.name for span in spans})
        await asyncio.sleep(0.2)
