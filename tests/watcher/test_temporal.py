"""The active replica between a real API server and a real Temporal: nothing is lost while either is away."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.cluster import KEYSTONE_PROJECT
from deploy.local.part import Stack
from tests.watcher.apart import Mine, Place, operator, place_on, quiet, watching
from tests.watcher.forwarder import forwarding
from tests.watcher.objects import until
from watcher.doorbell import TemporalDoorbell
from watcher.mapping import Plane
from workflows.scaffold.order import OrderRef

pytestmark = pytest.mark.api


@workflow.defn(name="KeystoneProject")
class Toy:
    """Stands for the real workflow. The first run of an order named `broken` fails; others wait for a second ring."""

    def __init__(self) -> None:
        self._rings = 0

    @workflow.run
    async def run(self) -> None:
        info = workflow.info()
        if "broken" in info.workflow_id and info.attempt == 1:
            raise ApplicationError("as a run that cannot be replayed")
        await workflow.wait_condition(lambda: self._rings >= 2)

    @workflow.signal
    def changed(self) -> None:
        self._rings += 1


@pytest.fixture
async def place(api_stack: Stack) -> AsyncIterator[Place]:
    async with place_on(api_stack) as place:
        yield place


class Real(Mine):
    """Rings Temporal for one test's orders, and remembers."""

    def __init__(self, namespace: str, through: TemporalDoorbell) -> None:
        super().__init__(namespace)
        self._through = through

    async def ring(self, ref: OrderRef, plane: Plane | None) -> str:
        if ref.namespace in self.namespaces:
            await self._through.ring(ref, plane)
        return await super().ring(ref, plane)

    async def open_runs(self, kind: str) -> AsyncIterator[OrderRef]:
        async for ref in self._through.open_runs(kind):
            yield ref


async def state(client: Client, ref: OrderRef) -> str:
    try:
        described = await client.get_workflow_handle(ref.workflow_id).describe()
    except RPCError:
        return "none"
    assert described.status is not None
    return described.status.name


async def until_state(client: Client, ref: OrderRef, wanted: str) -> None:
    for _ in range(600):
        if await state(client, ref) == wanted:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{ref.workflow_id} is {await state(client, ref)}, not {wanted}")


async def attempt(client: Client, ref: OrderRef) -> int:
    history = await client.get_workflow_handle(ref.workflow_id).fetch_history()
    return history.events[0].workflow_execution_started_event_attributes.attempt


@pytest.mark.row("T13")
async def test_orders_written_while_temporal_is_away_are_started_when_it_is_back(
    api_stack: Stack, place: Place, temporal_env: WorkflowEnvironment, tmp_path: Path
) -> None:
    client = temporal_env.client
    host, _, port = client.service_client.config.target_host.rpartition(":")
    async with forwarding(host, int(port)) as between:
        ours = await Client.connect(f"127.0.0.1:{between.port}")
        doorbell = Real(place.namespace, TemporalDoorbell(ours, "nobody-polls-this"))
        async with watching(await operator(api_stack, tmp_path), doorbell) as engine:
            between.swallow()
            between.cut()
            names = [f"o{n}" for n in range(20)]
            await asyncio.gather(*(place.order(name) for name in names))
            await until(lambda: engine.bells.pending == 20)
            await until(lambda: engine.bells.oldest > 3)
            assert [await state(client, place.ref(name)) for name in names] == ["none"] * 20
            between.heal()
            await until(lambda: not engine.bells.pending, 90)
        assert [await state(client, place.ref(name)) for name in names] == ["RUNNING"] * 20


@pytest.mark.row("T15")
async def test_runs_whose_order_vanished_unheard_end_and_failed_runs_come_back(
    api_stack: Stack, place: Place, temporal_env: WorkflowEnvironment, tmp_path: Path
) -> None:
    client, queue = temporal_env.client, f"toys-{uuid.uuid4().hex[:8]}"
    doorbell = Real(place.namespace, TemporalDoorbell(client, queue))
    async with Worker(client, task_queue=queue, workflows=[Toy], workflow_runner=UnsandboxedWorkflowRunner()):
        async with watching(await operator(api_stack, tmp_path), doorbell):
            vanishing, _, _ = await asyncio.gather(place.order("vanishing"), place.order("kept"), place.order("broken"))
            for name in ("vanishing", "kept", "broken"):
                await until_state(client, place.ref(name), "RUNNING")
        await place.delete(KEYSTONE_PROJECT, vanishing)
        await place.order("written-meanwhile")
        doorbell.take()
        async with watching(await operator(api_stack, tmp_path), doorbell):
            await until_state(client, place.ref("vanishing"), "COMPLETED")
            await until_state(client, place.ref("written-meanwhile"), "RUNNING")
            await quiet(doorbell)
        broken = place.ref("broken")
        for _ in range(300):
            if await attempt(client, broken) == 2 and await state(client, broken) in ("RUNNING", "COMPLETED"):
                break
            await asyncio.sleep(0.2)
        assert await attempt(client, broken) == 2
        assert await state(client, broken) in ("RUNNING", "COMPLETED")
