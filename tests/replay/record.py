"""`python -m tests.replay.record [NAME...]`: makes stored histories anew, one file for each way an order can go.

Run it when the step order has changed under `workflow.patched`, and keep the older files: orders that run have such
histories. What is stored names no machine and carries no stack trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RetryPolicy
from temporalio.testing import WorkflowEnvironment

from activities.errors import ClusterError, Conflict, Moved, OpenBaoError
from tests.flows.conftest import clock_server, serving
from tests.flows.databases import DatabaseWorld
from tests.flows.databases import delivered as database_delivered
from tests.flows.databases import there as database_there
from tests.flows.databases import waits as database_waits
from tests.flows.flow import Flow, until
from tests.flows.services import ServiceWorld, provisioned, waits
from tests.flows.world import Stop, World, waiting
from tests.upgrades.releases import UnguardedTeardown
from workflows.api.controlplane import PAUSED
from workflows.keystoneproject import reasons
from workflows.keystoneproject.workflow import KeystoneProject
from workflows.keystoneservice import reasons as service_reasons
from workflows.mariadbdatabase import reasons as database_reasons
from workflows.scaffold import steps
from workflows.scaffold.carry import Carry
from workflows.scaffold.run import MANY_RINGS
from workflows.scaffold.steps import Removal
from workflows.scaffold.verdict import Verdict

FOLDER = Path(__file__).parent / "histories"

_FAILED = "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED"
"""How a run of another release ends that this one cannot follow."""

_DROPPED = frozenset({"identity", "stackTrace", "workerVersion"})


async def becomes_ready(flow: Flow) -> None:
    """Waits, becomes Ready by a look, is rung in vain, answers an update, and rests."""
    world = flow.world
    world.order(finalized=False)
    world.find = waiting("it", again=0.5)
    await flow.ring()
    await flow.settled()
    await flow.ring()
    await until(lambda: world.count("admit") == 2)
    await flow.settled()
    world.find = world.provisioned()
    await flow.idle(3)
    await flow.ring()
    await flow.idle(4)
    await flow.resync_now()
    await flow.idle(5)


async def is_frozen_and_troubled(flow: Flow) -> None:
    """Is not assigned, is refused by the API server, moves under a pass, cannot be read; a resync heals it."""
    world = flow.world
    world.plane(assigned=False)
    await flow.ring()
    await flow.settled()
    world.plane()
    world.find = ClusterError("applying Project", 403, "Forbidden", "no right")
    await flow.ring()
    await until(lambda: world.condition("ProjectReady")["reason"] == reasons.ERROR)
    await flow.settled()
    world.find = world.provisioned()
    world.home.refuse["patch keystoneprojects"] = Conflict("patch", 409, "Conflict", "it has changed")
    await flow.ring()
    await until(lambda: world.count("report") > 4)
    world.home.refuse.clear()
    await until(lambda: world.condition("Ready")["status"] == "True")
    world.management.refuse["get controlplanes"] = ClusterError("reading", 403, "Forbidden", "no right")
    await flow.ring()
    await flow.settled()
    world.management.refuse.clear()
    await flow.resync()
    await until(lambda: world.condition("Ready")["status"] == "True")
    world.touch(annotations={PAUSED: "true"})
    await flow.ring()
    await until(lambda: world.condition("Ready")["status"] == "False")
    await flow.settled()


async def is_rung_without_end(flow: Flow) -> None:
    """So often that it continues as new."""
    flow.world.hold = {"provision_project": (stop := Stop())}
    await flow.ring()
    await stop.reached()
    await asyncio.gather(*(flow.ring() for _ in range(MANY_RINGS + 1)))
    stop.go_on()
    await flow.idle(2)
    await flow.ring()
    await flow.idle(3)


async def is_deleted(flow: Flow) -> None:
    """Is held by references, paused, waits for a child, is refused, and goes."""
    world = flow.world
    await flow.ring()
    await flow.idle(1)
    world.delete()
    reason = reasons.REFERENCED_BY_ASSIGNMENTS
    held = Verdict(type=reasons.PROJECT_READY, status=False, reason=reason, message="Deletion waits: 'a'", again=60)
    world.remove = Removal(held=(held,))
    await flow.ring()
    await flow.settled()
    world.remove = World.left("Project openstack/x to be gone")
    await flow.resync_now()
    await flow.settled()
    world.touch(annotations={PAUSED: "true"})
    await flow.ring()
    await until(lambda: PAUSED in world.condition("Ready")["message"])
    await flow.settled()
    world.touch(annotations={})
    world.remove = ClusterError("deleting Project", 403, "Forbidden", "no right")
    await flow.ring()
    await until(lambda: "no right" in world.condition("Ready")["message"])
    await flow.settled()
    world.remove = Removal()
    await flow.ring()
    await flow.ended()


async def is_deleted_after_a_late_step(flow: Flow) -> None:
    """Its last step timed out, so its teardown begins with a wait."""
    world = flow.world
    world.hold = {"provision_project": (stop := Stop())}
    limits = steps.START_TO_CLOSE, steps.STEP_DEADLINE, steps.RETRY
    steps.START_TO_CLOSE, steps.STEP_DEADLINE = timedelta(seconds=3), timedelta(seconds=1)
    steps.RETRY = RetryPolicy(maximum_attempts=1)
    try:
        await flow.ring()
        await stop.reached()
        world.delete()
        await flow.ring()
        await flow.ended()
    finally:
        stop.go_on()
        steps.START_TO_CLOSE, steps.STEP_DEADLINE, steps.RETRY = limits


async def is_replaced_in_teardown(flow: Flow) -> None:
    """An order of the same name appears while the old one is torn down."""
    world = flow.world
    world.remove = World.left("Project openstack/x to be gone")
    world.delete()
    await flow.ring(carry=Carry())
    await flow.settled()
    world.order(uid="uid-2", finalized=False)
    await flow.ring()
    await until(lambda: world.condition("Ready").get("status") == "True")
    world.vanish()
    await flow.ring()
    await flow.ended()


async def comes_back_in_teardown(flow: Flow) -> None:
    """Its teardown was begun by a release that this one cannot follow: it fails, and as its next attempt it waits."""
    world = flow.world
    world.remove = World.left("Project openstack/x to be gone")
    world.delete()
    async with serving(flow.env, world, workflows=(KeystoneProject, UnguardedTeardown)) as other:
        await other.ring(carry=Carry())
        await other.settled()
    limit, steps.START_TO_CLOSE = steps.START_TO_CLOSE, timedelta(seconds=3)
    try:
        async with serving(flow.env, world, after=other) as back:
            world.remove = Removal()
            await back.ring()
            await back.ended()
    finally:
        steps.START_TO_CLOSE = limit


def _service(flow: Flow) -> ServiceWorld:
    assert isinstance(flow.world, ServiceWorld)
    return flow.world


async def registers_and_rotates(flow: Flow) -> None:
    """Waits, becomes Ready, rests, rotates twice, is turned away, loses a block and gets it back."""
    world = _service(flow)
    world.order(finalized=False)
    world.account = waits(service_reasons.ACCOUNT_READY, service_reasons.WAITING_FOR_ACCOUNT)
    await flow.ring()
    await flow.settled()
    world.account = provisioned()
    await flow.resync_now()
    world.at_rest = True
    await flow.ring()
    await flow.idle(3)
    world.at_rest = False
    await flow.handle.execute_update("rotate")
    world.published = waits(service_reasons.ACCOUNT_READY, service_reasons.WAITING_FOR_ACCOUNT, "for OpenBao")
    await flow.handle.execute_update("rotate")
    world.published = provisioned()
    world.nudge = ClusterError("patching User", 403, "Forbidden", "no right")
    with contextlib.suppress(WorkflowUpdateFailedError):
        await flow.handle.execute_update("rotate")
    world.declare("catalog")
    await flow.resync_now()
    await flow.resync_now()
    world.declare("catalog", "account")
    await flow.resync_now()


async def looks_at_every_block(flow: Flow) -> None:
    """Loses a block, and is looked at whole in each pass after."""
    world = _service(flow)
    world.order(finalized=False)
    await flow.ring()
    await flow.idle(1)
    world.declare("catalog")
    for _ in range(4):
        await flow.resync_now()


async def registers_with_trouble(flow: Flow) -> None:
    """Is not allowed, paused, moves under one block, errs in each, and begins anew with a rotation under way."""
    world = _service(flow)
    world.plane(assigned=False)
    await flow.ring()
    await flow.settled()
    world.plane()
    world.touch(annotations={PAUSED: "true"})
    await flow.resync_now()
    world.touch(annotations={})
    world.catalog, catalog = Moved("it moved"), world.catalog
    await flow.ring()
    await until(lambda: world.count("admit") > 3)
    world.catalog = ClusterError("applying Service", 403, "Forbidden", "no right")
    await until(lambda: world.reasons[0] == service_reasons.CATALOG_ERROR)
    await flow.settled()
    world.catalog, world.published = catalog, ClusterError("applying Secret", 403, "Forbidden", "no right")
    await flow.resync_now()
    world.published = provisioned()
    world.management.refuse["get controlplanes"] = ClusterError("reading", 403, "Forbidden", "no right")
    await flow.ring()
    await until(lambda: "reading" in world.condition("Ready")["message"])
    await flow.settled()
    world.management.refuse.clear()
    await flow.resync_now()
    world.hold = {"nudge_account": (stop := Stop())}
    rotation = asyncio.create_task(flow.handle.execute_update("rotate"))
    await stop.reached()
    await asyncio.gather(*(flow.ring() for _ in range(MANY_RINGS + 1)))
    world.hold = {}
    stop.go_on()
    await rotation
    await flow.resync_now()


async def is_unregistered(flow: Flow) -> None:
    """Is deleted while a rotation is under way, waits for a child, is paused, and goes."""
    world = _service(flow)
    await flow.ring()
    await flow.idle(1)
    world.hold = {"nudge_account": (stop := Stop())}
    rotation = asyncio.create_task(flow.handle.execute_update("rotate"))
    await stop.reached()
    world.remove = World.left("User openstack/x to be gone")
    world.delete()
    await flow.ring()
    await until(lambda: world.count("admit") == 2)
    stop.go_on()
    await rotation
    await until(lambda: world.count("remove_registration") > 0)
    await flow.settled()
    world.touch(annotations={PAUSED: "true"})
    await flow.ring()
    await until(lambda: PAUSED in world.condition("Ready")["message"])
    world.touch(annotations={})
    world.remove = Removal()
    await flow.ring()
    await flow.ended()


def _database(flow: Flow) -> DatabaseWorld:
    assert isinstance(flow.world, DatabaseWorld)
    return flow.world


async def orders_a_database(flow: Flow) -> None:
    """Is provided at once, waits for a credential, is refused by OpenBao, cannot deliver, errs otherwise, and rests."""
    world = _database(flow)
    world.order(finalized=False)
    world.database = database_waits(database_reasons.WAITING_FOR_CREDENTIALS)
    await flow.ring()
    await flow.settled()
    world.database = OpenBaoError("OpenBao answered 403 to GET database/mariadb/roles/x: no", 403)
    await flow.resync_now()
    world.database, world.parcel = database_there(), ClusterError("applying Secret", 403, "Forbidden", "no right")
    await flow.resync_now()
    world.parcel = database_waits(database_reasons.NOT_PUBLISHED, database_reasons.DELIVERY_READY, again=600.0)
    await flow.resync_now()
    world.database = ClusterError("reading MariaDB openstack/mariadb", 403, "Forbidden", "no right")
    await flow.ring()
    await until(lambda: "reading MariaDB" in world.condition("Ready")["message"])
    await flow.settled()
    world.database, world.parcel = database_there(), database_delivered()
    await flow.resync_now()
    world.at_rest = True
    await flow.ring()
    await flow.idle(world.count("admit"))
    world.plane(ready=False)
    await flow.ring()
    await until(lambda: world.reasons[0] == database_reasons.WAITING_FOR_DB_CREDENTIALS)
    await flow.settled()


async def drops_a_database(flow: Flow) -> None:
    """Is deleted while OpenBao is sealed, waits for its Database, and goes."""
    world = _database(flow)
    await flow.ring()
    await flow.idle(1)
    world.remove = OpenBaoError('removing OpenBao database role "x": OpenBao answered 403', 403)
    world.delete()
    await flow.ring()
    await until(lambda: "removing OpenBao" in world.condition("Ready")["message"])
    await flow.settled()
    world.remove = World.left("Database openstack/x to be gone")
    await flow.resync_now()
    await flow.settled()
    world.remove = Removal()
    await flow.ring()
    await flow.ended()


DATABASE_WAYS = (orders_a_database, drops_a_database)
SERVICE_WAYS = (registers_and_rotates, looks_at_every_block, registers_with_trouble, is_unregistered)
WAYS: tuple[Callable[[Flow], Awaitable[None]], ...] = (
    becomes_ready,
    is_frozen_and_troubled,
    is_rung_without_end,
    is_deleted,
    is_deleted_after_a_late_step,
    is_replaced_in_teardown,
    comes_back_in_teardown,
    *SERVICE_WAYS,
    *DATABASE_WAYS,
)


async def record(env: WorkflowEnvironment, way: Callable[[Flow], Awaitable[None]]) -> None:
    name = way.__name__.replace("_", "-")
    made = ServiceWorld(name) if way in SERVICE_WAYS else DatabaseWorld(name) if way in DATABASE_WAYS else World(name)
    async with serving(env, made) as flow:
        await way(flow)
        run_id: str | None = (await flow.handle.describe()).run_id
        histories: list[dict[str, Any]] = []
        while run_id:
            handle = env.client.get_workflow_handle(flow.world.ref.workflow_id, run_id=run_id)
            histories.insert(0, json.loads((await handle.fetch_history()).to_json()))
            run_id = histories[0]["events"][0]["workflowExecutionStartedEventAttributes"].get("continuedExecutionRunId")
        followed = [each for each in histories if each["events"][-1]["eventType"] != _FAILED]
        for number, history in enumerate(followed, 1):
            lines = (json.dumps(_bare(event), sort_keys=True, ensure_ascii=False) for event in history["events"])
            (FOLDER / f"{name}-{number}.json").write_text('{"events": [\n' + ",\n".join(lines) + "\n]}\n")
        print(f"{name}: {len(histories)} run(s)")
        await flow.stop()


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items() if key not in _DROPPED}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


async def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    async with clock_server() as env:
        for way in WAYS:
            if not names or way.__name__.replace("_", "-") in names:
                await record(env, way)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)
