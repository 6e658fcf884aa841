"""Ten minutes in which nothing happens cost nothing: not a converged order, and no history of a waiting one.

Both orders are left alone in the same ten minutes. Counted by the API server's audit log and by Temporal, not by us.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

import pytest
from temporalio.client import Client

from deploy.local import kube
from deploy.local.part import Stack
from deploy.local.parts.planes import set_conditions
from tests import audit
from tests.bench import history
from tests.bench.desk import NAMESPACE, Desk, ready, reference
from tests.prove.conftest import SECONDS

pytestmark = [pytest.mark.prove, pytest.mark.real, pytest.mark.timeout(SECONDS + 300)]

FOREIGN = ("openstack-ext", "cp-ext")
FOREIGN_NAMESPACE = "team-ext"
GATE = "AdminCredentialReady"
ORDERS = "keystoneprojects.c5c3.io"


@dataclass(frozen=True)
class LeftAlone:
    """What was counted. `ready_by_itself`: the waiting order, once what it waited for came."""

    requests: list[audit.Request]
    converged: tuple[int, int]
    waiting: tuple[int, int]
    attempts: tuple[int, int]
    words: str
    condition: str
    ready_by_itself: bool


@pytest.fixture(scope="module")
def alone(here: Stack) -> LeftAlone:
    return asyncio.run(_leave_alone(here))


async def _leave_alone(here: Stack) -> LeftAlone:
    batch = f"p{secrets.token_hex(3)}"
    converged, waiting = f"{batch}-converged", f"{batch}-waiting"
    log, client = audit.Audit(here), await history.connect(here)
    ids = [reference(converged).workflow_id, reference(waiting, FOREIGN_NAMESPACE).workflow_id]
    async with Desk(here) as desk:
        try:
            await _gate(here, "False")
            await desk.order(waiting, batch, namespace=FOREIGN_NAMESPACE, plane=FOREIGN)
            await desk.ordered([converged], batch)
            refused = kube.condition("ProjectReady", "False")
            order = await kube.wait(here, "management", ORDERS, FOREIGN_NAMESPACE, waiting, refused, 30)
            before = [await history.quiet(client, id_, seconds=5) for id_ in ids]
            first, _ = await _pending(client, ids[1])
            mark = log.mark()
            await asyncio.sleep(SECONDS)
            seen = log.since(mark)
            after = [await history.count(client, id_) for id_ in ids]
            attempts, words = await _pending(client, ids[1])
            await _gate(here, "True")
            served = await kube.wait(here, "management", ORDERS, FOREIGN_NAMESPACE, waiting, ready_or_none, 60)
        finally:
            await _gate(here, "True")
            for namespace, name in ((NAMESPACE, converged), (FOREIGN_NAMESPACE, waiting)):
                await _delete(here, namespace, name)
        strangers = [request for request in seen if request.user != "korc"]
        said = (order or {})["status"]["conditions"]
        return LeftAlone(
            requests=audit.naming(strangers, desk.named([converged])),
            converged=(before[0], after[0]),
            waiting=(before[1], after[1]),
            attempts=(first, attempts),
            words=words,
            condition=next(c["reason"] for c in said if c["type"] == "ProjectReady"),
            ready_by_itself=served is not None,
        )


def ready_or_none(order: kube.Object | None) -> bool:
    return order is not None and ready(order)


async def _gate(here: Stack, status: str) -> None:
    said = {GATE: (GATE if status == "True" else "CredentialsRejected", "Set by a test in place of the operator")}
    await set_conditions(here, "ControlPlane", *FOREIGN, said, status)


async def _pending(client: Client, workflow_id: str) -> tuple[int, str]:
    """Attempt and last words of the one pending activity."""
    described = await client.get_workflow_handle(workflow_id).describe()
    (activity,) = described.raw_description.pending_activities
    return activity.attempt, activity.last_failure.message


async def _delete(here: Stack, namespace: str, name: str) -> None:
    path = f"/apis/c5c3.io/v1alpha1/namespaces/{namespace}/keystoneprojects/{name}"
    if await kube.get(here, "management", ORDERS, namespace, name):
        await kube.call(here, "management", "DELETE", path)
        await kube.wait(here, "management", ORDERS, namespace, name, lambda seen: seen is None, 60)


@pytest.mark.row("S22")
def test_a_converged_order_costs_no_request(alone: LeftAlone) -> None:
    assert [str(request) for request in alone.requests] == []


@pytest.mark.row("S22")
def test_a_converged_order_costs_no_event(alone: LeftAlone) -> None:
    assert alone.converged[1] == alone.converged[0]


@pytest.mark.row("T05")
def test_a_wait_adds_no_history(alone: LeftAlone) -> None:
    assert alone.waiting[1] == alone.waiting[0]


@pytest.mark.row("T05")
def test_a_wait_says_what_it_is_for_and_when_it_looks_again(alone: LeftAlone) -> None:
    assert alone.attempts[1] > alone.attempts[0]
    assert alone.condition in alone.words
    assert "next look in" in alone.words


def test_a_wait_ends_by_itself(alone: LeftAlone) -> None:
    assert alone.ready_by_itself
