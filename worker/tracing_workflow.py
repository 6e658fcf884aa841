"""The part of tracing that runs inside a workflow: which ring caused the steps that start now.

It only carries a header from the newest ring to the steps and makes no span: a workflow's own would stay open for
months. Nothing but temporalio and the standard library is imported, for this runs in the sandbox and is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

HEADER = "traceparent"
"""Temporal header with the W3C trace context of whoever rang, as a JSON string."""


class WorkflowTracing(WorkflowInboundInterceptor):
    """Remembers the header of the newest ring (start, signal, update) and lets the steps have it."""

    def __init__(self, next: WorkflowInboundInterceptor) -> None:
        super().__init__(next)
        self.ring: Payload | None = None
        self._heard = False

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if not self._heard:  # signals that came with the start, or before it, are handled first and are newer
            self._rung(input.headers)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        self._rung(input.headers)
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        self._rung(input.headers)
        return await super().handle_update_handler(input)

    def _rung(self, headers: Mapping[str, Payload]) -> None:
        """A ring without a header (the command line's) ends the previous trace: its steps are traces of their own."""
        self.ring = headers.get(HEADER)
        self._heard = True


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: WorkflowTracing) -> None:
        super().__init__(next)
        self._inbound = inbound

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = self._with_ring(input.headers)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = self._with_ring(input.headers)
        return super().start_local_activity(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> Any:
        """A ring carried over into the next run takes its trace along."""
        input.headers = self._with_ring(input.headers)
        return super().continue_as_new(input)

    def _with_ring(self, headers: Mapping[str, Payload]) -> dict[str, Payload]:
        return {**headers, **({HEADER: self._inbound.ring} if self._inbound.ring else {})}
