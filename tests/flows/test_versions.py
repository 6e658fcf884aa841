"""Worker versions and encryption under the order's workflow: who decides, what is kept, and what a missing key does.

The same is proven with programs and API servers in tests/upgrades; here it takes seconds.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import (
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from tests.flows.flow import Flow, until
from tests.flows.world import World, waiting
from tests.upgrades.releases import Guarded, GuardedTeardown, Unguarded, UnguardedTeardown
from worker import assembly, versions
from worker.encryption import NONE
from worker.settings import WorkerSettings
from worker.temporal import data_converter
from workflows.scaffold.run import MANY_RINGS

FIRST = assembly.WORKFLOWS
GUARDED = (Guarded, GuardedTeardown)
UNGUARDED = (Unguarded, UnguardedTeardown)


@dataclass
class Rollout:
    """One order on a task queue and in a deployment of its own."""

    env: WorkflowEnvironment
    world: World
    queue: str = field(default_factory=lambda: f"versions-{uuid.uuid4().hex[:8]}")

    @property
    def flow(self) -> Flow:
        return Flow(self.env, self.world, self.queue)

    @asynccontextmanager
    async def version(self, build: str, workflows: Sequence[type]) -> AsyncIterator[None]:
        settings = WorkerSettings(task_queue=self.queue, deployment_name=self.queue, build_id=build)
        async with assembly.build(self.env.client, settings, workflows, self.world.activities()):
            yield

    async def make_current(self, build: str) -> None:
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self.env.client.namespace, deployment_name=self.queue, build_id=build
        )
        service = self.env.client.workflow_service
        await once_it_polls(lambda: service.set_worker_deployment_current_version(request))

    async def ramp(self, build: str, percentage: float) -> None:
        request = SetWorkerDeploymentRampingVersionRequest(
            namespace=self.env.client.namespace, deployment_name=self.queue, build_id=build, percentage=percentage
        )
        service = self.env.client.workflow_service
        await once_it_polls(lambda: service.set_worker_deployment_ramping_version(request))

    async def says(self, build: str, served: bool = False) -> tuple[int, str]:
        return await versions._routing(self.env.client, self.queue, build, served)

    async def builds(self) -> list[str]:
        return [
            event.workflow_task_completed_event_attributes.deployment_version.build_id
            for event in await self.flow.events()
            if event.HasField("workflow_task_completed_event_attributes")
        ]

    async def patched(self) -> bool:
        return any(event.HasField("marker_recorded_event_attributes") for event in await self.flow.events())


async def once_it_polls(ask: Callable[[], Awaitable[object]]) -> None:
    async def taken() -> bool:
        try:
            await ask()
        except RPCError:
            return False
        return True

    await until(taken)


@pytest.fixture
def rollout(clock_env: WorkflowEnvironment) -> Rollout:
    world = World(f"rolled-{uuid.uuid4().hex[:8]}")
    world.find = waiting("it", again=600)
    return Rollout(clock_env, world)


@pytest.mark.row("T06")
async def test_a_waiting_order_moves_to_the_current_version_and_takes_its_way_when_it_begins_anew(
    rollout: Rollout,
) -> None:
    flow = rollout.flow
    async with rollout.version("1", FIRST):
        await flow.ring()
        await rollout.make_current("1")  # until then nobody serves it
        await flow.settled()
        level, words = await rollout.says("1")
        assert (level, "is current" in words) == (logging.INFO, True)
        async with rollout.version("2", GUARDED):
            await rollout.ramp("2", 0)
            assert "is ramping: it gets 0 % of the orders" in (await rollout.says("2"))[1]
            await flow.resync_now()
            assert set(await rollout.builds()) == {"1"}
            await rollout.make_current("2")
            assert (await rollout.says("1", served=True))[1].endswith("gets no more orders: version 2 is current")
            level, words = await rollout.says("1")
            assert level == logging.WARNING
            assert f"set-current-version --address {rollout.env.client.service_client.config.target_host}" in words
    async with rollout.version("2", GUARDED):
        rollout.world.find = rollout.world.provisioned()
        assert (await flow.resync_now()).ready
        assert (await rollout.builds())[-1] == "2"
        assert not await rollout.patched()
        run = (await flow.handle.describe()).run_id
        for _ in range(MANY_RINGS + 1):
            await flow.resync()

        async def begun_anew() -> bool:
            return (await flow.handle.describe()).run_id != run and await rollout.patched()

        await until(begun_anew)
        assert set(await rollout.builds()) == {"2"}
    await flow.stop()


@pytest.mark.row("T06")
async def test_a_version_that_cannot_follow_fails_the_run_which_comes_back_clean(rollout: Rollout) -> None:
    flow = rollout.flow
    async with rollout.version("1", FIRST):
        await flow.ring()
        await rollout.make_current("1")
        await flow.settled()
        run = (await flow.handle.describe()).run_id
    async with rollout.version("2", UNGUARDED):
        await rollout.make_current("2")
        rollout.world.find = rollout.world.provisioned()
        await flow.ring()
        await until(lambda: rollout.world.condition("Ready")["status"] == "True")
    failed = (await flow.events(run))[-1].workflow_execution_failed_event_attributes
    assert failed.failure.message.startswith("[TMPRL1100] Nondeterminism")
    assert set(await rollout.builds()) == {"2"}
    await flow.stop()


@pytest.mark.row("T07")
async def test_an_encrypted_run_says_nothing_and_waits_for_a_key_that_is_missing(
    rollout: Rollout, tmp_path: Path
) -> None:
    key = tmp_path / "key-1"
    key.write_bytes(os.urandom(32))
    flow, world = rollout.flow, rollout.world

    def settings(active: str | None) -> WorkerSettings:
        return WorkerSettings(task_queue=rollout.queue, payload_keys_dir=tmp_path, payload_key=active)

    def client(active: str | None) -> Client:
        config = rollout.env.client.config()
        config["data_converter"] = data_converter(settings(active))
        return Client(**config)

    async def kept() -> bytes:
        return b"\n".join([event.SerializeToString() for event in await flow.events()])

    async with assembly.build(client("key-1"), settings("key-1"), FIRST, world.activities()):
        await flow.ring()
        await flow.settled()
        assert b"binary/encrypted" in await kept()
        for word in (b"ProjectReady", b"admit team-a", b'"spec"'):
            assert word not in await kept()
    former = key.read_bytes()
    key.unlink()
    (tmp_path / "key-2").write_bytes(os.urandom(32))
    async with assembly.build(client("key-2"), settings("key-2"), FIRST, world.activities()):
        world.find = world.provisioned()
        await flow.ring()

        async def held() -> bool:
            return any(event.HasField("workflow_task_failed_event_attributes") for event in await flow.events())

        await until(held)
        assert (await flow.handle.describe()).status == WorkflowExecutionStatus.RUNNING
        assert world.condition("Ready")["status"] == "False"
        key.write_bytes(former)
        await until(lambda: world.condition("Ready")["status"] == "True")
        assert b"key-2" in await kept()
    async with assembly.build(client(NONE), settings(NONE), FIRST, world.activities()):
        await flow.resync()
        await flow.idle(2)
        assert b"admit team-a" in await kept(), "the search would find nothing"
        assert (await flow.handle.describe()).status == WorkflowExecutionStatus.RUNNING
    await flow.stop()
