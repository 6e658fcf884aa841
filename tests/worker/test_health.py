"""Ready is what Temporal says about this very worker, not what the process thinks of itself."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.conftest import Told, temporal_program
from tests.worker.test_temporal import settings_for
from tests.worker.toy import Toy
from worker import assembly, health
from worker.settings import WorkerSettings
from worker.temporal import connect


@activity.defn
async def touch() -> None:
    """Does nothing."""


@asynccontextmanager
async def polling(env: WorkflowEnvironment, **more: str) -> AsyncIterator[tuple[Client, Worker]]:
    client = await connect(settings_for(env), identity=f"worker@{uuid.uuid4().hex[:8]}")
    settings = WorkerSettings.model_validate({"task_queue": f"health-{uuid.uuid4().hex[:8]}", **more})
    worker = assembly.build(client, settings, [Toy], [touch])
    async with worker:
        yield client, worker


async def becomes(proof: health.Polling, *, ready: bool) -> str:
    """Waits until the answer is the wanted one; it is not kept meanwhile."""
    async with asyncio.timeout(60):
        while bool(why := await proof.why_not_ready()) is ready:
            proof._until = 0.0
            await asyncio.sleep(0.1)
    return why


@pytest.mark.parametrize("more", [{}, {"deployment_name": "orders", "build_id": "b1"}])
async def test_a_worker_that_polls_is_ready(temporal_env: WorkflowEnvironment, more: dict[str, str]) -> None:
    async with polling(temporal_env, **more) as (client, worker):
        proof = health.Polling(worker, client.identity)
        assert await becomes(proof, ready=True) == ""
    assert await proof.why_not_ready() == "the worker is not running"


async def test_somebody_elses_polls_prove_nothing(temporal_env: WorkflowEnvironment) -> None:
    async with polling(temporal_env) as (client, worker):
        await becomes(health.Polling(worker, client.identity), ready=True)
        proof = health.Polling(worker, "worker@elsewhere")
        assert "has not seen this worker poll for workflow tasks" in await proof.why_not_ready()


async def test_half_a_worker_is_not_ready(temporal_env: WorkflowEnvironment) -> None:
    client = await connect(settings_for(temporal_env), identity="worker@half")
    async with Worker(client, task_queue="half", workflows=[Toy]) as worker:
        proof = health.Polling(worker, client.identity)
        async with asyncio.timeout(60):
            while "activity tasks" not in (why := await proof.why_not_ready()):
                proof._until = 0.0
                await asyncio.sleep(0.1)
    assert why == "Temporal has not seen this worker poll for activity tasks on half lately"


async def test_old_polls_prove_nothing(temporal_env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    async with polling(temporal_env) as (client, worker):
        await becomes(health.Polling(worker, client.identity), ready=True)
        monkeypatch.setattr(health, "RECENT", -health.RECENT)
        assert "lately" in await health.Polling(worker, client.identity).why_not_ready()


async def test_a_server_that_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_program(), dev_server_log_level="error"
    ) as env:
        client = await connect(settings_for(env), identity="worker@left")
        worker = assembly.build(client, WorkerSettings(task_queue="left"), [Toy], [touch])
        running = asyncio.create_task(worker.run())
        proof = health.Polling(worker, client.identity)
        await becomes(proof, ready=True)
    proof._until = 0.0
    assert (await proof.why_not_ready()).startswith("Temporal does not say who polls")
    running.cancel()
    await asyncio.wait([running])


async def test_the_answer_is_kept_for_a_moment(temporal_env: WorkflowEnvironment) -> None:
    async with polling(temporal_env) as (client, worker):
        proof = health.Polling(worker, client.identity)
        await becomes(proof, ready=True)
        until = proof._until
        assert await proof.why_not_ready() == ""
        assert proof._until == until


@pytest.mark.row("O05")
async def test_the_three_paths(told: Told) -> None:
    why = "starting"

    async def why_not_ready() -> str:
        return why

    runner = await health.serve(("127.0.0.1", 0), why_not_ready, told.telemetry.prometheus_text)
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(base + path) as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "starting\n")
        assert "\nc5c3_worker_polling 0.0\n" in (await get("/metrics"))[1]
        why = ""
        assert await get("/readyz") == (200, "ready\n")
        assert "\nc5c3_worker_polling 1.0\n" in (await get("/metrics"))[1]
        assert (await get("/elsewhere"))[0] == 404
    await runner.cleanup()
