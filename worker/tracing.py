"""Traces across Temporal: one trace from the ring, over the steps it caused, to their requests.

A step's span is opened fresh in the worker with the ring as its remote parent, so no span outlives a step; between
the two the workflow carries a header only (`tracing_workflow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from temporalio import activity, client, worker
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from worker.tracing_workflow import HEADER, WorkflowTracing
from workflows.scaffold.order import OrderRef

_SAME_PASS = timedelta(seconds=60)
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("c5c3.steps")


class Tracing(client.Interceptor, worker.Interceptor):
    """Given to the client alone: Temporal then uses it for the worker of that client too."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        return _Client(next)

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        return _Activity(next)

    def workflow_interceptor_class(self, input: worker.WorkflowInterceptorClassInput) -> type[WorkflowTracing]:
        return WorkflowTracing


class _Client(client.OutboundInterceptor):
    """Sends the current span, if there is one, with everything that rings an order."""

    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        input.headers = _with_current(input.headers)
        return await super().start_workflow(input)

    async def signal_workflow(self, input: client.SignalWorkflowInput) -> None:
        input.headers = _with_current(input.headers)
        await super().signal_workflow(input)

    async def start_workflow_update(self, input: client.StartWorkflowUpdateInput) -> client.WorkflowUpdateHandle[Any]:
        input.headers = _with_current(input.headers)
        return await super().start_workflow_update(input)


class _Activity(worker.ActivityInboundInterceptor):
    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        info = activity.info()
        context, links = _place(info, _context(input.headers))
        with _tracer.start_as_current_span(
            info.activity_type,
            context=context,
            links=links,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(info),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await super().execute_activity(input)
            except Exception as error:
                if not _expected(error):
                    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise


def _with_current(headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    value = carrier.get("traceparent")
    return {**headers, HEADER: PayloadConverter.default.to_payload(value)} if value else headers


def _context(headers: Mapping[str, Payload]) -> Context:
    """The ring's context; an empty one, so that a root span follows, when there is no ring or it cannot be read."""
    payload = headers.get(HEADER)
    try:
        value = PayloadConverter.default.from_payload(payload, str) if payload else None
    except Exception:
        value = None
    return _propagator.extract({"traceparent": value}, Context()) if value else Context()


def _place(info: activity.Info, ring: Context) -> tuple[Context, list[Link]]:
    """In the ring's trace; an attempt long after the step was scheduled (a look, an outage) is a root linked to it."""
    if datetime.now(UTC) - info.scheduled_time < _SAME_PASS:
        return ring, []
    return Context(), [Link(span)] if (span := trace.get_current_span(ring).get_span_context()).is_valid else []


def _attributes(info: activity.Info) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"attempt": info.attempt}
    if info.workflow_id and info.workflow_run_id:
        attributes |= {"workflow_id": info.workflow_id, "run_id": info.workflow_run_id}
        with suppress(ValueError):  # not an order's workflow: its id is all there is to say
            attributes |= OrderRef.parse(info.workflow_id).model_dump()
    return attributes


def _expected(error: Exception) -> bool:
    return isinstance(error, ApplicationError) and error.category is ApplicationErrorCategory.BENIGN
