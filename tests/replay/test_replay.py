"""Running orders survive a release: their histories replay, and one that cannot fails and begins anew."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.flows.conftest import Serve
from tests.flows.flow import Flow, until
from tests.flows.world import Stop, World, waiting
from tests.replay import record
from tests.replay.changed import ChangedKeystoneProject
from worker import assembly
from worker.tracing import Tracing
from workflows.keystoneproject.teardown import KeystoneProjectTeardown
from workflows.scaffold.run import MANY_RINGS

CHANGED = (ChangedKeystoneProject, KeystoneProjectTeardown)
STORED = sorted(record.FOLDER.glob("*.json"))


async def replay(history: WorkflowHistory, workflows: Sequence[type] = assembly.WORKFLOWS) -> None:
    """Replays as the worker would.

    But for one thing: a run that a mismatch fails makes the replayer wait without end (temporalio 1.35), so here a
    mismatch is what it is for workflows that do not ask to be failed by it.
    """
    with ExitStack() as changed:
        for each in workflows:
            definition = replace(workflow._Definition.must_from_class(each), failure_exception_types=[])
            changed.enter_context(mock.patch.object(each, "__temporal_workflow_definition", definition))
        replayer = Replayer(
            workflows=workflows,
            workflow_runner=assembly.runner(),
            data_converter=pydantic_data_converter,
            interceptors=[Tracing()],
        )
        await asyncio.wait_for(replayer.replay_workflow(history), 120)


def stored(path: Path) -> tuple[WorkflowHistory, dict[str, Any]]:
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text), started


@pytest.mark.row("T06")
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_a_stored_history_replays(path: Path) -> None:
    history, _ = stored(path)
    await replay(history)


@pytest.mark.row("T06")
def test_every_workflow_type_and_every_way_is_stored() -> None:
    types = {stored(path)[1]["workflowType"]["name"] for path in STORED}
    assert types == {workflow._Definition.must_from_class(each).name for each in assembly.WORKFLOWS}
    names = {re.sub(r"-\d+$", "", path.stem) for path in STORED}
    assert names >= {way.__name__.replace("_", "-") for way in record.WAYS}
    kinds = {event["eventType"] for path in STORED for event in json.loads(path.read_text())["events"]}
    for name in ("TIMER_STARTED", "ACTIVITY_TASK_TIMED_OUT", "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
                 "WORKFLOW_EXECUTION_COMPLETED", "WORKFLOW_EXECUTION_UPDATE_COMPLETED", "ACTIVITY_TASK_FAILED",
                 "ACTIVITY_TASK_CANCEL_REQUESTED"):  # fmt: skip
        assert f"EVENT_TYPE_{name}" in kinds


def test_no_stored_history_names_a_machine() -> None:
    for path in STORED:
        assert not re.search(r"stackTrace|identity|/home/|/root/|/work/|site-packages|\d+@\w", path.read_text())


@pytest.mark.row("T06")
async def test_a_changed_step_order_is_noticed_by_a_replay() -> None:
    history, _ = stored(record.FOLDER / "becomes-ready-1.json")
    with pytest.raises(workflow.NondeterminismError):
        await replay(history, CHANGED)


async def failure_of(flow: Flow, run_id: str) -> str:
    """How that run failed, once it did."""
    failed: list[str] = []

    async def has_failed() -> bool:
        failed[:] = [
            event.workflow_execution_failed_event_attributes.failure.message
            for event in await flow.events(run_id)
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED
        ]
        return bool(failed)

    await until(has_failed)
    return failed[0]


@pytest.mark.row("T06")
@pytest.mark.parametrize("continued", [False, True], ids=["first run", "continued run"])
async def test_a_run_that_cannot_be_replayed_fails_and_comes_back_clean(serve: Serve, continued: bool) -> None:
    """By the retry policy that its first starter gave it, which continuing as new must not lose."""
    world = World(f"incompatible-{continued}".lower())
    world.find = waiting("it", again=600)
    async with serve(world) as flow:
        if continued:
            world.hold = {"provision_project": (stop := Stop())}
        await flow.ring()
        if continued:
            await stop.reached()
            await asyncio.gather(*(flow.ring() for _ in range(MANY_RINGS + 1)))
            stop.go_on()
            await until(lambda: world.count("admit") == 2)
        await flow.settled()
        broken = (await flow.handle.describe()).run_id
        assert len(await flow.runs()) == 1 + continued
    world.hold = {}
    async with serve(world, workflows=CHANGED, after=flow) as flow:
        world.find = world.provisioned()
        await flow.ring()
        assert (await failure_of(flow, broken)).startswith("[TMPRL1100] Nondeterminism")
        await until(lambda: world.condition("Ready")["status"] == "True")
        described = await flow.handle.describe()
        assert described.run_id != broken
        assert described.status is not None
        assert described.status.name == "RUNNING"
        started = (await flow.events())[0].workflow_execution_started_event_attributes
        assert started.attempt == 2
        assert world.calls[-4:] == ["examine", "admit", "provision_project", "report"]


@pytest.mark.row("T06")
async def test_the_next_ring_opens_a_clean_run_where_no_retry_does(serve: Serve) -> None:
    world = World("incompatible-unretried")
    world.find = waiting("it", again=600)
    async with serve(world) as flow:
        await flow.ring(retried=False)
        await flow.settled()
        broken = (await flow.handle.describe()).run_id
    async with serve(world, workflows=CHANGED, after=flow) as flow:
        world.find = world.provisioned()
        await flow.ring()
        assert (await failure_of(flow, broken)).startswith("[TMPRL1100] Nondeterminism")
        assert (await flow.handle.describe()).run_id == broken
        await flow.ring()
        await until(lambda: world.condition("Ready")["status"] == "True")
        assert (await flow.handle.describe()).run_id != broken


@pytest.mark.row("T06")
@pytest.mark.parametrize("each", assembly.WORKFLOWS)
def test_every_workflow_asks_to_be_failed_by_a_mismatch(each: type) -> None:
    """As the changed workflow above does: else its task would be tried again for ever, and the order stand still."""
    assert workflow._Definition.must_from_class(each).failure_exception_types == [workflow.NondeterminismError]
