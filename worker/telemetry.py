"""Metrics, traces and logs of a program: one registry behind /metrics, spans to a collector if any, JSON lines.

Metric names and labels are a contract (no scope labels, no `target_info`), so the reader is told to add nothing. No
filter looks for secrets here: what must not be logged is not handed to a logger in the first place.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from dataclasses import dataclass
from typing import Any, TextIO

from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from pythonjsonlogger.json import JsonFormatter
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    MetricBuffer,
    MetricBufferDurationFormat,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from worker.core_metrics import CoreMetrics
from worker.release import version
from worker.settings import ConnectionSettings
from worker.spans import Spans

_LATENCY_BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_SELDOM_SECONDS = 60.0
_TEMPORAL_EXTRAS = (
    "temporal_activity", "temporal_workflow", "temporal_log", "__temporal_error_identifier", "taskName",
    "color_message",
)  # fmt: skip


@dataclass(frozen=True)
class Telemetry:
    """What a running program holds of its telemetry: `runtime` for the Temporal client, `exporter` to be run."""

    registry: CollectorRegistry
    meters: MeterProvider
    tracers: TracerProvider
    runtime: Runtime
    exporter: CoreMetrics

    def prometheus_text(self) -> bytes:
        """What /metrics answers: our metrics and the Temporal SDK's."""
        return generate_latest(self.registry)

    def shutdown(self) -> None:
        """Sends the spans that are left; gives a collector that is not there a few seconds only."""
        self.tracers.force_flush(3_000)
        self.tracers.shutdown()
        self.meters.shutdown()


def start(settings: ConnectionSettings, service: str) -> Telemetry:
    """Sets up logging and the process-wide meter and tracer providers. Once per process.

    `async with telemetry.exporter:` then moves the Temporal SDK's own metrics into the registry.
    """
    log_as_json(settings.log_level)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = {"version": version(), "build_id": getattr(settings, "build_id", None) or version()}
    resource = Resource.create({"service.name": service, "service.version": build["version"]})
    meters = MeterProvider([_reader(registry)], resource=resource, views=_seconds_views(), shutdown_on_exit=False)
    program = service.removeprefix("c5c3-")
    meters.get_meter("c5c3").create_gauge("c5c3_build_info", description="Which version runs").set(
        1, {"program": program, **build}
    )
    tracers = tracer_provider(settings.otlp_endpoint, resource)
    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    buffer = MetricBuffer(100_000, MetricBufferDurationFormat.SECONDS)
    runtime = temporal_runtime(buffer)
    return Telemetry(registry, meters, tracers, runtime, CoreMetrics(buffer, meters))


def temporal_runtime(buffer: MetricBuffer) -> Runtime:
    """Temporal's core, whose measures go into the buffer, and whose complaints are lines of our log like any other."""
    log = logging.getLogger("temporal")
    log.addFilter(_Seldom())
    logs = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(log, prepend_target_on_message=False),
    )
    return Runtime(telemetry=TelemetryConfig(metrics=buffer, logging=logs))


def tracer_provider(otlp_endpoint: str | None, resource: Resource) -> TracerProvider:
    """Spans have ids in any case, which are in the log lines; they are recorded and sent only where there is a
    collector, whatever the other program, which may have none, says of its own."""
    sampler = ALWAYS_ON if otlp_endpoint else ALWAYS_OFF
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    if otlp_endpoint:
        provider.add_span_processor(BatchSpanProcessor(Spans(otlp_endpoint)))
    return provider


def log_as_json(level: str) -> None:
    """One JSON object a line on standard error, for this process's root logger."""
    logging.basicConfig(level=level.upper(), handlers=[json_handler(sys.stderr)], force=True)
    activity.logger.activity_info_on_message = False
    workflow.logger.workflow_info_on_message = False
    for noisy in ("aiohttp.access", "urllib3", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def json_handler(stream: TextIO) -> logging.Handler:
    """Writes each record as one line, with what it belongs to."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter())
    handler.addFilter(add_context)
    return handler


def add_context(record: logging.LogRecord) -> bool:
    """Adds to a record which order, step and trace it belongs to, as far as it belongs to one. Drops no line."""
    _shorten(record)
    context: dict[str, Any] = {}
    if activity.in_activity():
        info = activity.info()
        context = {"workflow_id": info.workflow_id, "run_id": info.workflow_run_id,
                   "activity": info.activity_type, "attempt": info.attempt}  # fmt: skip
    elif workflow.in_workflow():
        run = workflow.info()
        context = {"workflow_id": run.workflow_id, "run_id": run.run_id, "attempt": run.attempt}
    if workflow_id := context.get("workflow_id"):
        context["order"] = workflow_id
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        context |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    for key, value in context.items():
        if value is not None and not hasattr(record, key):
            setattr(record, key, value)
    return True


class _Seldom(logging.Filter):
    """While Temporal is away, its core says so of every attempt of every poller. Once a minute is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        what = re.sub(r"\d+", "#", record.getMessage().partition(" {")[0])
        if record.created - self._said.get(what, 0.0) < _SELDOM_SECONDS:
            return False
        self._said[what] = record.created
        return True


def _shorten(record: logging.LogRecord) -> None:
    """An error that a step raised on purpose is what it says. Where in our code that was is nobody's business."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ApplicationError):
        record.msg, record.args = "the step failed (%s): %s", (error.type, error.message)
        record.exc_info = record.exc_text = None


def _formatter() -> JsonFormatter:
    formatter = JsonFormatter(
        "{asctime}{levelname}{name}{message}",
        style="{",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        reserved_attrs=[*logging.makeLogRecord({}).__dict__, "message", "asctime", *_TEMPORAL_EXTRAS],
    )
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    return formatter


def _reader(registry: CollectorRegistry) -> PrometheusMetricReader:
    return PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)


def _seconds_views() -> list[View]:
    """The Temporal SDK's latencies and what workflows measure by it: they come in seconds without any bucket advice."""
    buckets = ExplicitBucketHistogramAggregation(_LATENCY_BUCKETS)
    return [
        View(instrument_type=Histogram, instrument_name=name, aggregation=buckets)
        for name in ("temporal_*", "c5c3_pass_*")
    ]
