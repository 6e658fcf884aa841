"""What the worker's log tells of an order's life, to whoever is on call: one line for each effect, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.databases import Estate, estate, sealed
from tests.e2e.services import Service, account, catalog
from tests.e2e.stage import Order, Stage, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@dataclass
class Log:
    """What a program has logged since this was made."""

    stage: Stage
    program: str

    def __post_init__(self) -> None:
        self._from = len(self.stage.log(self.program))

    def lines(self, order: str = "") -> list[dict[str, Any]]:
        """Each line is one JSON object, but the launcher's own."""
        text = self.stage.log(self.program)[self._from :]
        found = [json.loads(line) for line in text.splitlines() if not line.startswith("---")]
        return [line for line in found if not order or line.get("order") == order]

    async def effects(self, order: str) -> Counter[str]:
        """What was done for an order that is gone, with the kind of the child; how often the status was written is
        chance. The last effect is told a moment after everybody sees it."""

        async def last() -> list[str]:
            return [line["message"] for line in self.lines(order)]

        await until(last, lambda told: "finalizer released" in told, 5)
        done = Counter(
            f"{line['message']} {line.get('child', '').partition(' ')[0]}".strip() for line in self.lines(order)
        )
        assert done.pop("status written", 0) >= 1
        return done


def complete(lines: list[dict[str, Any]]) -> None:
    """Every line of an order says of which run and of which trace it is."""
    for line in lines:
        assert line["order"] == line["workflow_id"], line
        if line["logger"] != "temporalio.activity":  # says that a step failed after the step's span has ended
            assert len(line["trace_id"]) == 32, line
        assert line["run_id"], line
        assert "exc_info" not in line, line


@pytest_asyncio.fixture
async def ground(real_stack: Stage) -> AsyncIterator[Estate]:
    async with estate(real_stack) as made:
        yield made


async def test_a_projects_life(real_stack: Stage, place: Callable[..., Order]) -> None:
    log, order = Log(real_stack, "worker"), place("told")
    await order.place()
    await order.is_ready()
    await order.delete()
    await order.gone()
    assert await log.effects(order.workflow_id) == {
        "finalizer set": 1,
        "child created Project": 2,  # the probe, and the one that is managed
        "identity claimed Lease": 1,
        "child deleted Project": 2,
        "finalizer released": 1,
    }
    complete(log.lines(order.workflow_id))
    written = [line["says"] for line in log.lines(order.workflow_id) if line["message"] == "status written"]
    assert "ProjectReady True ProjectProvisioned, Ready True AllReady" in written


async def test_a_registrations_life(real_stack: Stage, register: Callable[..., Service]) -> None:
    service = register("told", catalog=catalog("public"), account=lambda name: account(f"{name}-project", "member"))
    log = Log(real_stack, "worker")
    await service.place()
    await service.is_ready()
    handle = real_stack.temporal.get_workflow_handle(service.workflow_id)
    await handle.execute_update("rotate", result_type=dict)
    await until(service.passwords, lambda found: set(found) == {2})
    await service.is_ready()
    await service.delete()
    await service.gone()
    done = await log.effects(service.workflow_id)
    once = ("asked for the next password", "finalizer set", "finalizer released", "child created Endpoint",
            "child created PushSecret", "child created ExternalSecret", "child created RoleAssignment")  # fmt: skip
    assert {what: done[what] for what in once} == dict.fromkeys(once, 1)
    assert done["identity claimed Lease"] == 3  # service, user and project
    passwords = [
        line["child"]
        for line in log.lines(service.workflow_id)
        if line["message"] == "child created" and "-password-" in line.get("child", "")
    ]
    assert [name.rpartition("-password-")[2] for name in passwords] == ["v1", "v2"]
    complete(log.lines(service.workflow_id))


async def test_a_databases_life(ground: Estate) -> None:
    log, order = Log(ground.stage, "worker"), ground.database(unique("told"))
    await order.place()
    await order.is_ready()
    await order.delete()
    await order.gone()
    done = await log.effects(order.workflow_id)
    once = ("finalizer set", "role written", "credential delivered Secret", "leases revoked and role deleted",
            "child created Database", "child deleted Database", "finalizer released")  # fmt: skip
    assert {what: done[what] for what in once} == dict.fromkeys(once, 1)
    complete(log.lines(order.workflow_id))


async def test_trouble_that_is_expected_is_told_in_sentences(ground: Estate, place: Callable[..., Order]) -> None:
    """OpenBao is sealed: steps fail and are tried again. No stack traces, and every line belongs to its order."""
    order = ground.database(unique("troubled"))
    await order.place()
    await order.is_ready()
    log, watched = Log(ground.stage, "worker"), Log(ground.stage, "watcher")
    async with sealed(ground.stage):
        await order.annotate(**{"example.org/look": "now"})
        await order.reads("DatabaseReady", "OpenBaoError")
    await order.is_ready(120)
    lines = log.lines(order.workflow_id)
    failed = [
        line for line in lines if line["message"].startswith("the step failed (OpenBaoError): OpenBao answered 503")
    ]
    assert failed
    assert all(line["level"] == "WARNING" for line in failed)
    complete(lines)
    for line in (*log.lines(), *watched.lines()):
        assert "Traceback" not in json.dumps(line)


async def test_an_outage_is_told_once_and_not_by_every_poller(real_stack: Stage, place: Callable[..., Order]) -> None:
    """Temporal goes for a while: both programs say so, in JSON, in a handful of lines."""
    order = place("outlived")
    await order.place()
    await order.is_ready()
    logs = [Log(real_stack, program) for program in ("worker", "watcher")]
    async with real_stack.without("temporal"):
        await asyncio.sleep(20)
        told = [log.lines() for log in logs]
    for lines in told:
        assert len(lines) <= 12, [line["message"] for line in lines]
        assert not any("Traceback" in json.dumps(line) for line in lines)
    assert any(line["level"] == "WARNING" and "retried" in line["message"] for line in told[0])
