"""What people have of it: ids they can type, a resync by every client there is, lists by reason, and the UI.

C5C3_E2E_PICTURES   a folder that the UI's two pictures go to; `docs/images` has been filled so
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.exceptions import WorkflowAlreadyStartedError

from deploy.local import kube
from tests.e2e import browser
from tests.e2e.stage import Order, Plane, Stage, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


@pytest.mark.row("T01")
async def test_one_workflow_per_order_and_the_same_id_for_a_re_created_one(real_stack: Stage, place: Place) -> None:
    order = await place("typed").place()
    await order.is_ready()
    (first,) = await until(order.open_runs, lambda runs: len(runs) == 1, 10)
    assert first.id == f"KeystoneProject:team-a/{order.name}"
    with pytest.raises(WorkflowAlreadyStartedError):
        await real_stack.temporal.start_workflow("KeystoneProject", id=order.workflow_id, task_queue="c5c3-orders")
    old = (await order.status())["projectID"]

    await order.delete()
    await order.gone()
    await order.place()
    live = await order.is_ready()
    assert live["status"]["projectID"] != old
    (second,) = await until(order.open_runs, lambda runs: len(runs) == 1, 10)
    assert second.id == first.id
    assert second.run_id != first.run_id
    spans = sorted((run.start_time, run.close_time) for run in await order.runs())
    for (_, closed), (started, _) in itertools.pairwise(spans):
        assert closed is not None
        assert closed <= started, "two runs of one order at once"


@pytest.mark.row("T02")
async def test_resync_by_command_line_by_wire_call_and_by_update(real_stack: Stage, place: Place) -> None:
    """Each makes exactly one full pass, also on an order that had nothing to do."""
    order = await place("resynced").place()
    await order.is_ready()
    await until(order.describe, lambda found: bool(found["ready"]), 10)
    await quiet(order)
    passes = await order.passes()

    await real_stack.command("workflow", "signal", "--workflow-id", order.workflow_id, "--name", "resync")
    await until(order.passes, lambda now: now == passes + 1, 10)
    await quiet(order)
    assert await order.passes() == passes + 1

    # What the older tctl sends: no input at all, nothing that an SDK would add.
    await real_stack.temporal.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=order.workflow_id),
            signal_name="resync",
            identity="tctl@somewhere",
        )
    )
    await until(order.passes, lambda now: now == passes + 2, 10)

    await quiet(order)
    answer: dict[str, Any] = await order.handle.execute_update("resync_now", result_type=dict)
    assert await order.passes() == passes + 3
    (verdict,) = answer["verdicts"]
    assert (verdict["type"], verdict["status"], verdict["reason"]) == ("ProjectReady", True, "ProjectProvisioned")
    assert answer["ready"] is True

    told = await real_stack.command("workflow", "update", "execute", "--workflow-id", order.workflow_id,
                         "--name", "resync_now", "--output", "json")  # fmt: skip
    assert json.loads(told)["result"]["verdicts"][0]["reason"] == "ProjectProvisioned"
    await quiet(order)
    assert await order.passes() == passes + 4


@pytest.mark.row("T02")
async def test_the_update_answers_why_an_order_waits_and_why_a_deletion_does(place: Place, real_stack: Stage) -> None:
    order = await place("stuck", plane=Plane("no-such-plane", "openstack")).place()
    await order.reads("ControlPlaneNotFound")
    answer: dict[str, Any] = await order.handle.execute_update("resync_now", result_type=dict)
    assert (answer["phase"], answer["ready"]) == ("serving", False)
    assert answer["verdicts"][0]["reason"] == "ControlPlaneNotFound"

    held = await place("stuck").place()
    await held.is_ready()
    blocker = {
        "apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneApplicationCredential",
        "metadata": {"name": held.name, "namespace": "team-a"},
        "spec": {"controlPlaneRef": {"name": "cp", "namespace": "openstack"},
                 "userRef": {"name": "somebody"}, "projectRef": {"name": held.name}},
    }  # fmt: skip
    await kube.apply(real_stack.stack, "management", [blocker])
    await held.delete()
    await held.reads("ReferencedByApplicationCredentials")
    answer = await held.handle.execute_update("resync_now", result_type=dict)
    assert (answer["phase"], answer["ready"]) == ("being torn down", False)
    assert answer["verdicts"][0]["reason"] == "ReferencedByApplicationCredentials"
    await real_stack.delete("management", "keystoneapplicationcredentials.c5c3.io", "team-a", held.name)
    await held.gone()


@pytest.mark.row("T08")
async def test_orders_that_are_not_ready_are_listed_by_reason(real_stack: Stage, place: Place) -> None:
    ready, refused, lost = place("listed"), place("listed", project="admin"), place("listed", plane=Plane("none", "x"))
    await asyncio.gather(*(order.place() for order in (ready, refused, lost)))
    await asyncio.gather(ready.is_ready(), refused.reads("ProjectCollision"), lost.reads("ControlPlaneNotFound"))
    ours = {order.workflow_id for order in (ready, refused, lost)}

    async def listed(query: str) -> set[str]:
        text = (
            f'OrderKind = "KeystoneProject" AND OrderNamespace = "team-a" AND ExecutionStatus = "Running" AND {query}'
        )
        return {run.id async for run in real_stack.temporal.list_workflows(text)} & ours

    async def everything() -> list[set[str]]:
        queries = ('OrderReady = "False"', 'OrderReason = "ProjectCollision"', 'OrderReason = "ControlPlaneNotFound"',
                   'OrderReady = "True"', 'ControlPlane = "x/none"', 'OrderCluster = "management"')  # fmt: skip
        return [await listed(query) for query in queries]

    wanted = [{refused.workflow_id, lost.workflow_id}, {refused.workflow_id}, {lost.workflow_id}, {ready.workflow_id},
              {lost.workflow_id}, ours]  # fmt: skip
    await until(everything, lambda found: found == wanted, 15)


@pytest.mark.row("T08")
async def test_the_ui_shows_what_an_order_waits_for(real_stack: Stage, place: Place, tmp_path: Path) -> None:
    """In a browser: an order that waits for its Keystone, and the same order when it is Ready."""
    order = place("reporting")
    images = Path(os.environ.get("C5C3_E2E_PICTURES") or tmp_path)
    page = f"{real_stack.stack.ports['temporal-ui']}/namespaces/default/workflows"
    async with browser.opened() as window:
        async with real_stack.without("korc"):
            await order.place()
            said = await order.reads("ProbingForCollision")
            (run,) = await until(order.open_runs, lambda runs: len(runs) == 1, 10)
            where = f"http://127.0.0.1:{page}/{browser.quoted(run.id)}/{run.run_id}"
            await until(order.describe, lambda found: bool(found.get("nextLookSeconds")), 15)
            words = said["message"][:40]
            await window.shows(f"{where}/pending-activities", "settle", f"ProbingForCollision: {words}", "next look in")
            # In Markdown the name's quotes are typographic ones.
            waits = (
                "is serving",
                "ProjectReady False ProbingForCollision",
                order.name,
                "exists already is not known yet",
            )
            await window.shows(f"{where}/user-metadata", *waits, "next look in 10 s")
            await window.picture(images / "temporal-waiting.png")
        await order.is_ready(90)
        (run,) = await order.open_runs()
        where = f"http://127.0.0.1:{page}/{browser.quoted(run.id)}/{run.run_id}"
        await until(order.describe, lambda found: bool(found["ready"]), 15)
        await window.shows(f"{where}/search-attributes", "OrderReason", "AllReady", "openstack/cp")
        await window.shows(f"{where}/user-metadata", "is serving", "ProjectReady True ProjectProvisioned", order.name)
        await window.picture(images / "temporal-ready.png")


async def quiet(order: Order) -> None:
    """Waits until the run rests: no new event for two seconds."""
    length, still = -1, 0
    while still < 4:
        await asyncio.sleep(0.5)
        now = (await order.handle.describe()).history_length
        length, still = (length, still + 1) if now == length else (now, 0)
