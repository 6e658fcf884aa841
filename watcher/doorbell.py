"""The one place that speaks to Temporal: starts, rings, and asks which runs are open.

A run that is missing is started and one that is there is rung, by the same request; a run whose order is gone is only
rung. Runs have no argument and no time limit: what a run needs to know it reads from the cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

from opentelemetry import trace
from temporalio.client import Client
from temporalio.common import Priority, RetryPolicy, SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from watcher.mapping import Plane
from workflows.scaffold import search
from workflows.scaffold.order import RING, OrderRef

RPC_TIMEOUT = timedelta(seconds=10)

REBIRTH = RetryPolicy(
    initial_interval=timedelta(seconds=10), backoff_coefficient=2.0, maximum_interval=timedelta(minutes=10)
)
"""A run that fails comes back, clean, as attempt 2; it has no state of its own to lose."""

UNREACHABLE = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED})
"""Refusals that are about Temporal and not about the order."""

_tracer = trace.get_tracer("c5c3.watcher")


class NotTaken(Exception):
    """Temporal did not take a ring. `everybody` says that no other ring would have been taken either."""

    def __init__(self, text: str, *, everybody: bool) -> None:
        super().__init__(text)
        self.everybody = everybody


class Doorbell(Protocol):
    async def ring(self, ref: OrderRef, plane: Plane | None) -> str:
        """Rings the order's run; answers what came of it, or raises NotTaken.

        `plane` is the one that the order names. Without it the order is not known to exist, and no run is started.
        """

    def open_runs(self, kind: str) -> AsyncIterator[OrderRef]:
        """The orders of a kind that have a run open. Raises NotTaken."""


class TemporalDoorbell:
    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    def use(self, client: Client) -> None:
        """Rings by another connection from now on."""
        self._client = client

    async def ring(self, ref: OrderRef, plane: Plane | None) -> str:
        attributes: dict[str, str | bool] = {"c5c3.order": ref.workflow_id, "c5c3.start": plane is not None}
        with _tracer.start_as_current_span("ring", attributes=attributes):
            try:
                if plane is not None:
                    await self._start(ref, plane)
                    return "rung"
                await self._client.get_workflow_handle(ref.workflow_id).signal(RING, rpc_timeout=RPC_TIMEOUT)
                return "signalled"
            except RPCError as error:
                if plane is None and error.status == RPCStatusCode.NOT_FOUND and "amespace" not in error.message:
                    return "nobody"
                raise NotTaken(_text(error), everybody=error.status in UNREACHABLE) from None
            except (TemporalError, RuntimeError, ValueError) as error:
                raise NotTaken(f"{type(error).__name__}: {error}", everybody=False) from None

    async def _start(self, ref: OrderRef, plane: Plane) -> None:
        await self._client.start_workflow(
            ref.kind,
            id=ref.workflow_id,
            task_queue=self._task_queue,
            start_signal=RING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            retry_policy=REBIRTH,
            priority=Priority(fairness_key="/".join(plane)[:64]),
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(search.KIND, ref.kind),
                    SearchAttributePair(search.NAMESPACE, ref.namespace),
                    SearchAttributePair(search.CLUSTER, ref.cluster or search.MANAGEMENT),
                ]
            ),
            static_summary=f"{ref.kind} {ref.key}" + (f" on cluster {ref.cluster}" if ref.cluster else ""),
            rpc_timeout=RPC_TIMEOUT,
        )

    async def open_runs(self, kind: str) -> AsyncIterator[OrderRef]:
        query = f'{search.KIND.name} = "{kind}" AND ExecutionStatus = "Running"'
        try:
            async for run in self._client.list_workflows(query, rpc_timeout=RPC_TIMEOUT):
                try:
                    yield OrderRef.parse(run.id)
                except ValueError:
                    continue  # not ours, whatever its attributes say
        except RPCError as error:
            raise NotTaken(_text(error), everybody=error.status in UNREACHABLE) from None


def _text(error: RPCError) -> str:
    return f"Temporal answered {error.status.name}: {error.message}"
