"""Names and labels at /metrics, the fields of a log line, and spans that reach a collector, or hold nobody up."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.runtime import MetricBuffer, MetricBufferDurationFormat, Runtime, TelemetryConfig
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from tests.conftest import Told
from tests.e2e.collector import collector as collector_of_tests
from tests.worker.program import ROOT, free_port
from tests.worker.test_temporal import settings_for
from worker import spans, telemetry
from worker.core_metrics import CoreMetrics
from worker.release import version
from worker.temporal import connect


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(lines: io.StringIO) -> logging.Logger:
    """A logger that writes as the programs do, into `lines`."""
    logger = logging.getLogger(f"test.{uuid.uuid4().hex}")
    logger.addHandler(telemetry.json_handler(lines))
    logger.propagate = False
    logger.setLevel("INFO")
    return logger


def test_a_line_outside_of_everything(log: logging.Logger, lines: io.StringIO) -> None:
    log.info("rung %s", "a/b", extra={"order": "KeystoneProject:a/b"})
    said = json.loads(lines.getvalue())
    assert said.pop("time").endswith("Z")
    assert said == {"level": "INFO", "logger": log.name, "message": "rung a/b", "order": "KeystoneProject:a/b"}


def test_an_error_is_still_one_line(log: logging.Logger, lines: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    assert len(lines.getvalue().splitlines()) == 1
    assert "ValueError: broken" in json.loads(lines.getvalue())["exc_info"]


async def test_a_line_within_a_step(log: logging.Logger, lines: io.StringIO, told: Told) -> None:
    @activity.defn
    async def touch() -> None:
        with trace.get_tracer("test").start_as_current_span("touch"):
            log.info("created the project", extra={"project": "p1"})

    await ActivityEnvironment().run(touch)
    said = json.loads(lines.getvalue())
    info = ActivityEnvironment.default_info()
    assert said["workflow_id"] == info.workflow_id
    assert said["run_id"] == info.workflow_run_id
    assert (said["activity"], said["attempt"], said["project"]) == (info.activity_type, 1, "p1")
    (span,) = told.exporter.get_finished_spans()
    assert span.context
    assert (said["trace_id"], said["span_id"]) == (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")


async def test_what_a_step_raises_on_purpose_is_a_sentence(log: logging.Logger, lines: io.StringIO) -> None:
    @activity.defn
    async def touch() -> None:
        for error in (ApplicationError("reading it: 503", type="ServiceUnavailable"), KeyError("a defect")):
            try:
                raise error
            except Exception:
                log.warning("Completing activity as failed", exc_info=True)

    await ActivityEnvironment().run(touch)
    refused, defect = (json.loads(line) for line in lines.getvalue().splitlines())
    assert refused["message"] == "the step failed (ServiceUnavailable): reading it: 503"
    assert "exc_info" not in refused
    assert refused["order"] == refused["workflow_id"] == ActivityEnvironment.default_info().workflow_id
    assert "KeyError" in defect["exc_info"]


COMPLAINS = """
import time
from temporalio.runtime import MetricBuffer
from worker import telemetry
telemetry.log_as_json("info")
runtime = telemetry.temporal_runtime(MetricBuffer(10))
calls = runtime.metric_meter.create_counter("calls")
for _ in range(20):
    calls.add(1)
time.sleep(1)
"""


async def test_what_temporals_core_complains_of_is_a_line_like_any_other_and_one() -> None:
    """Here of a buffer that nobody empties, ten times. In a process of its own: its first runtime says where to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMPLAINS, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    (line,) = output.decode().splitlines()
    said = json.loads(line)
    assert said["logger"].startswith("temporal-sdk_core")
    assert "buffer is full" in said["message"]
    assert said.keys() == {"time", "level", "logger", "message"}


async def test_temporals_own_metrics_are_in_seconds_at_the_same_place(
    temporal_env: WorkflowEnvironment, told: Told
) -> None:
    async with told.telemetry.exporter:
        await connect(settings_for(temporal_env), identity="metrics", runtime=told.telemetry.runtime)
    families = {family.name: family for family in text_string_to_metric_families(told.text())}
    samples = families["temporal_request_latency_seconds"].samples
    assert {s.labels["le"] for s in samples if s.name.endswith("_bucket")} >= {"0.005", "0.1", "10", "300", "+Inf"}
    assert "temporal_request" in families
    assert "target_info" not in told.text()
    assert "otel_scope" not in told.text()


def test_what_is_measured_counts_for_the_labels_that_it_was_measured_with() -> None:
    """The SDK hands out label sets as objects that come and go, at addresses that come again."""
    buffer = MetricBuffer(10_000, MetricBufferDurationFormat.SECONDS)
    meter = Runtime(telemetry=TelemetryConfig(metrics=buffer)).metric_meter
    reader = InMemoryMetricReader()
    moved = CoreMetrics(buffer, MeterProvider([reader]))
    calls, size = meter.create_counter("calls"), meter.create_gauge("size")
    expected: Counter[str] = Counter()
    for number in range(1400):
        kind = f"kind-{number % 13}"
        expected[kind] += 1
        calls.add(1, {"kind": kind})
        size.set(expected[kind], {"kind": kind})
        if number % 7 == 0:
            moved.move()
    moved.move()
    read = reader.get_metrics_data()
    assert read
    found = {
        metric.name: sorted((str((point.attributes or {})["kind"]), point.value) for point in metric.data.data_points)
        for resource in read.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if isinstance(metric.data, Sum | Gauge)
    }
    assert found["calls"] == found["size"] == sorted(expected.items())


def test_which_version_runs_is_said(told: Told) -> None:
    families = {family.name: family for family in text_string_to_metric_families(told.text())}
    (sample,) = families["c5c3_build_info"].samples
    assert sample.labels == {"program": "tests", "version": version(), "build_id": version()}
    assert "process_start_time_seconds" in families


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP/HTTP collector: its address, and what was sent to it."""
    sent: list[ExportTraceServiceRequest] = []

    async def take(request: web.Request) -> web.Response:
        sent.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    async with TestServer(app) as server:
        yield str(server.make_url("")), sent


async def test_spans_reach_a_collector(collector: tuple[str, list[ExportTraceServiceRequest]]) -> None:
    address, sent = collector
    provider = telemetry.tracer_provider(address, Resource.create({"service.name": "c5c3-test"}))
    with provider.get_tracer("test").start_as_current_span("ring"):
        pass
    await asyncio.to_thread(provider.shutdown)
    (spans,) = [one for request in sent for one in request.resource_spans]
    assert [span.name for span in spans.scope_spans[0].spans] == ["ring"]
    assert "c5c3-test" in [a.value.string_value for a in spans.resource.attributes if a.key == "service.name"]


def test_without_a_collector_spans_have_ids_and_cost_nothing_more() -> None:
    with telemetry.tracer_provider(None, Resource.create({})).get_tracer("test").start_as_current_span("ring") as span:
        assert span.get_span_context().is_valid
        assert not span.is_recording()
        mine = telemetry.tracer_provider("http://127.0.0.1:9", Resource.create({}))
        with mine.get_tracer("test").start_as_current_span("step") as step:
            assert step.is_recording(), "whatever the other program has"
            assert step.get_span_context().trace_id == span.get_span_context().trace_id
        mine.shutdown()


def test_a_collector_that_is_not_there_holds_nobody_up() -> None:
    provider = telemetry.tracer_provider("http://127.0.0.1:9", Resource.create({}))
    with provider.get_tracer("test").start_as_current_span("ring"):
        pass
    begun = time.monotonic()
    provider.shutdown()
    assert time.monotonic() - begun < 10


def test_a_collector_that_is_not_there_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """And one when it is back: nothing in between, however many batches were lost."""
    port = free_port()
    provider = telemetry.tracer_provider(f"http://127.0.0.1:{port}", Resource.create({}))

    def batch() -> None:
        with provider.get_tracer("test").start_as_current_span("ring"):
            pass
        provider.force_flush()

    with caplog.at_level("INFO"):
        for _ in range(3):
            batch()
        with collector_of_tests([], port):
            batch()
            batch()
    provider.shutdown()
    lost, back = caplog.records
    url = f"http://127.0.0.1:{port}/v1/traces"
    assert lost.getMessage().startswith(f"the collector at {url} takes no traces, they are lost until it does: ")
    assert "refused" in lost.getMessage()
    assert back.getMessage() == f"the collector at {url} takes traces again; 3 spans were lost"
    assert (lost.levelname, back.levelname) == ("WARNING", "WARNING")


def test_a_collector_with_a_path_is_taken_as_it_is() -> None:
    assert spans.traces_url("http://c:4318/") == "http://c:4318/v1/traces"
    assert spans.traces_url("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"
