"""The part of tracing that runs inside a workflow: which ring caused the steps that start now.

It only carries a header from the newest ring to the steps and makes no span: a workflow's own would stay open for
months. Nothing but temporalio and the standard library is imported, for this runs in the sandbox and is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

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

_SAME_PASS = timedelta(seconds=60)
"""Steps that start later than this were caused by a look of our own, not by the ring."""


class WorkflowTracing(WorkflowInboundInterceptor):
    """Remembers the header of the newest ring (start, signal, update) and lets the steps have it."""

    def __init__(self, next: WorkflowInboundInterceptor) -> None:
        super().__init__(next)
        self.ring: Payload | None = None
        self._heard = False
        self._heard_at: datetime | None = None

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
        """A ring without a header (the command line's) ends the previous trace too."""
        self.ring = headers.get(HEADER)
        self._heard = True
        self._heard_at = workflow.now()

    def cause(self) -> Payload:
        """The trace that a step starting now belongs to.

        Long after the last ring, or after one without a header, it is a new one whose first span is left out: all that
        a replay-safe id can say is that these steps belong together.
        """
        now = workflow.now()
        if self.ring is None or self._heard_at is None or now - self._heard_at > _SAME_PASS:
            made = f"00-{workflow.uuid4().hex}-{workflow.uuid4().hex[:16]}-01"
            self.ring = workflow.payload_converter().to_payload(made)
            self._heard_at = now
        return self.ring


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: WorkflowTracing) -> None:
        super().__init__(next)
        self._inbound = inbound

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = {**input.headers, HEADER: self._inbound.cause()}
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = {**input.headers, HEADER: self._inbound.cause()}
        return super().start_local_activity(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        """The next run's first pass is caused by what caused this one."""
        input.headers = {**input.headers, HEADER: self._inbound.cause()}
        super().continue_as_new(input)
