"""A run that cannot be replayed fails, and the order is served by a new one that nobody had to start."""

from __future__ import annotations

import asyncio

import pytest
from temporalio import workflow
from temporalio.client import WorkflowExecutionStatus
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.product import Product
from tests.world import until
from workflows.keystoneproject import reasons

pytestmark = pytest.mark.api


@workflow.defn(name="KeystoneProject")
class Incompatible:
    """What an order's run might have been in a version that nobody can replay any more."""

    @workflow.run
    async def run(self) -> None:
        await asyncio.sleep(36_000)

    @workflow.signal
    def changed(self) -> None:
        return


@pytest.mark.row("T15")
async def test_a_run_of_an_incompatible_version_fails_and_comes_back_by_itself(product: Product) -> None:
    world = product.world
    await world.plane()
    await product.stop("worker")
    ref = await world.order()
    await until(lambda: product.is_open(ref))
    first = (await product.client.get_workflow_handle(ref.workflow_id).describe()).run_id
    old = Worker(
        product.client, task_queue="c5c3-orders", workflows=[Incompatible], workflow_runner=UnsandboxedWorkflowRunner()
    )

    async def timer_is_set() -> bool:
        return "timer_started_event_attributes" in await product.history(ref)

    async with old:
        await until(timer_is_set)
    async with world.korc.playing():
        await product.start("worker")
        await world.annotate(ref, "example.org/news", "any")  # nobody need know that the run is broken
        await product.reads(ref, reasons.PROVISIONED, 90)
    described = await product.client.get_workflow_handle(ref.workflow_id).describe()
    assert described.status == WorkflowExecutionStatus.RUNNING
    assert described.run_id != first
    broken = await product.client.get_workflow_handle(ref.workflow_id, run_id=first).describe()
    assert broken.status == WorkflowExecutionStatus.FAILED
