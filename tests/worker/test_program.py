"""`python -m worker` as a process: how it starts, refuses to, is ready, and stops."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.testing import WorkflowEnvironment

from deploy.local import kube
from deploy.local.part import Stack
from tests.worker.program import Program, free_port
from tests.worker.toy import Toy

pytestmark = pytest.mark.api


@pytest_asyncio.fixture
async def program(api_stack: Stack, temporal_env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Program]:
    run = Program(tmp_path, {
        "C5C3_KUBECONFIG": str(kube.kubeconfig(api_stack, "management", "operator")),
        "C5C3_TEMPORAL_ADDRESS": temporal_env.client.service_client.config.target_host,
        "C5C3_TASK_QUEUE": f"program-{uuid.uuid4().hex[:8]}",
        "C5C3_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "TOY_FOLDER": str(tmp_path),
    })  # fmt: skip
    yield run
    await run.kill()


async def order(env: WorkflowEnvironment, program: Program) -> Any:
    """Starts a toy order; answers its handle once its step has begun."""
    handle = await env.client.start_workflow(
        Toy.run, args=[1], id=f"Toy:a/{uuid.uuid4().hex[:8]}", task_queue=program.settings["C5C3_TASK_QUEUE"],
        start_signal="changed",
    )  # fmt: skip
    end = time.monotonic() + 30
    while not (program.folder / "begun").exists():
        assert time.monotonic() < end, program.log()
        await asyncio.sleep(0.02)
    return handle


@pytest.mark.row("O05")
async def test_ready_when_it_polls_and_a_step_finishes_after_sigterm(
    program: Program, temporal_env: WorkflowEnvironment
) -> None:
    await program.start("tests.worker.slow_worker", TOY_SECONDS="3")
    await program.says(200, "ready")
    handle = await order(temporal_env, program)
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    assert (program.folder / "ended").exists()
    assert "told to stop: running steps have 30 s to finish" in program.messages()
    assert program.messages()[-1] == "stopped, no step is running"
    # Its result has reached Temporal: the next worker has no second attempt to make.
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_completed_event_attributes"):
            break
    else:
        pytest.fail("the step's result did not reach Temporal")


async def test_a_step_that_does_not_end_holds_nobody_for_ever(
    program: Program, temporal_env: WorkflowEnvironment
) -> None:
    await program.start("tests.worker.slow_worker", TOY_STUBBORN="1", C5C3_GRACEFUL_SHUTDOWN_SECONDS="26")
    await program.says(200, "ready")
    await order(temporal_env, program)
    program.signal(signal.SIGTERM)
    assert await program.ended(25) == 1
    assert program.messages()[-1] == "steps did not end within 2 s: leaving without them, Temporal starts them again"


async def test_the_real_one_waits_for_temporal_and_says_what_it_does(program: Program) -> None:
    port = free_port()
    await program.start(C5C3_TEMPORAL_ADDRESS=f"127.0.0.1:{port}")
    await program.says(503, f"waiting for Temporal at 127.0.0.1:{port}")
    await program.logs(f"waiting for Temporal at 127.0.0.1:{port}, next look in 1 s")
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    assert program.messages()[-1] == "told to stop before the start was complete"


async def test_the_real_one_becomes_ready_and_stops_at_once_when_idle(program: Program) -> None:
    await program.start()
    await program.says(200, "ready")
    begun = time.monotonic()
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    assert time.monotonic() - begun < 10


REFUSALS = [
    ({"C5C3_TEMPORAL_NAMESPACE": "nowhere-else"}, "has no namespace 'nowhere-else'"),
    ({"C5C3_LOG_LEVEL": "loud"}, "C5C3_LOG_LEVEL 'loud' cannot be used"),
    ({"C5C3_KUBECONFIG": ""}, "no kubeconfig given: set C5C3_KUBECONFIG to one"),
    ({"C5C3_KUBECONFIG": __file__}, "test_program.py cannot be read: "),
    ({"C5C3_HTTP_ADDRESS": "192.0.2.1:80"}, "cannot listen on 192.0.2.1:80"),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSALS)
async def test_refuses_to_start_with_one_sentence(program: Program, settings: dict[str, str], sentence: str) -> None:
    await program.start(**settings)
    assert await program.ended(60) == 1
    (line,) = [line for line in program.log().splitlines() if '"INFO"' not in line]
    assert sentence in line
