"""Passwords that change, delivery that is disturbed, and the command line by which people ask for both."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import WorkflowAlreadyStartedError

from deploy.local import kube
from tests.audit import WRITES, Audit
from tests.e2e.services import FETCHES, GENERATION, PUSHES, SECRETS, Service, account, catalog, login_of
from tests.e2e.stage import SLACK, Object, Stage, condition, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
Register = Callable[..., Service]

SOON = 20.0
"""Seconds in which a delivery is to be whole again; an interval of External Secrets would be an hour."""


def with_account(register: Register, stem: str) -> Service:
    return register(stem, account=lambda name: account(f"{name}-project", "member"))


async def update(stage: Stage, service: Service, name: str) -> dict[str, Any]:
    """An update by Temporal's command line, and its answer."""
    told = await stage.command("workflow", "update", "execute", "--workflow-id", service.workflow_id, "--name", name,
                               "--output", "json")  # fmt: skip
    return dict(json.loads(told)["result"])


@pytest.mark.row("A12", "A19", "T02")
async def test_a_rotation_by_the_command_line_delivers_a_password_that_alone_logs_in(
    real_stack: Stage, register: Register
) -> None:
    service, audit = with_account(register, "rotated"), Audit(real_stack.stack)
    await service.place()
    await service.is_ready()
    old = (await service.passwords())[1]
    assert await real_stack.keystone.login(service.name, old, project=service.project) is not None
    mark, began = audit.mark(), time.monotonic()
    watching = asyncio.create_task(_never_ready_with_an_old_password(service, 2))

    answer = await update(real_stack, service, "rotate")
    assert answer["generation"] == 2
    live = await service.is_ready(SOON)
    await watching
    took = time.monotonic() - began
    print(f"rotated, delivered and Ready after {took:.1f} s; the update answered {answer}")
    assert took < SOON * SLACK
    assert live["status"]["account"]["passwordGeneration"] == 2
    assert live["status"]["account"]["lastPasswordRotation"]
    passwords = await until(service.passwords, lambda found: set(found) == {2}, SOON)
    new = passwords[2]
    assert new != old
    delivered = await service.credentials()
    assert (delivered["password"], login_of(delivered["clouds.yaml"])["password"]) == (new, new)
    assert await service.logs_in() is not None
    assert await real_stack.keystone.login(service.name, old) is None, "the old password still works"
    assert ((await service.stored()) or {})["data"]["password"] == new

    await asyncio.sleep(0.3)
    writes = [each for each in service.asked(audit, mark) if each.verb in WRITES]
    written = [(each.verb, each.resource, each.name.removeprefix(service.prefix)) for each in writes]
    made, flipped = ("create", "secrets", "password-v2"), ("patch", "users", "user")
    dropped = ("delete", "secrets", "password-v1")
    assert written.count(made) == written.count(dropped) == 1
    assert {verb for verb, _, name in written if name == "password-v1"} == {"delete"}, "it was edited in place"
    flips = [place for place, each in enumerate(written) if each == flipped]
    assert written.index(made) < flips[-1] < written.index(dropped)


async def _never_ready_with_an_old_password(service: Service, generation: int) -> None:
    """Until it is Ready with that generation: whenever the account reads ready, what is delivered is what it says."""
    while True:
        live = await service.live()
        said, ready = (live or {})["status"], condition(live, "AccountReady")["status"] == "True"
        now = said["account"]["passwordGeneration"]
        if ready and now == generation:
            wanted = (await service.passwords())[now]
            assert (await service.credentials())["password"] == wanted, "a rotated-away password reads ready"
            return
        await asyncio.sleep(0.05)


@pytest.mark.row("A11", "A12")
async def test_a_password_is_made_once_per_generation_whoever_asks_and_whatever_dies(
    real_stack: Stage, register: Register
) -> None:
    """Passes and a killed worker leave it; who asks at once gets one generation; one asked while it is dead comes."""
    service = with_account(register, "once")
    await service.place()
    await service.is_ready()
    first = await service.passwords()
    for _ in range(3):
        await update(real_stack, service, "resync_now")
    await real_stack.kill("worker")
    await real_stack.start("worker")
    await update(real_stack, service, "resync_now")
    assert await service.passwords() == first

    answers = await asyncio.gather(
        update(real_stack, service, "rotate"), update(real_stack, service, "rotate"), service.nudge()
    )
    assert {each["generation"] for each in answers if each} <= {2, 3}
    await service.quiet()
    live = await service.is_ready()
    reached = live["status"]["account"]["passwordGeneration"]
    assert reached == max(each["generation"] for each in answers if each)
    assert set(await until(service.passwords, lambda found: set(found) == {reached}, SOON)) == {reached}
    assert await service.logs_in() is not None

    await real_stack.kill("worker")
    try:
        await service.nudge()
        await service.nudge()
        await asyncio.sleep(1)
        assert set(await service.passwords()) == {reached}
    finally:
        await real_stack.start("worker")
    await until(service.live, lambda live: (live or {})["status"]["account"]["passwordGeneration"] == reached + 1, 60)
    await service.is_ready()
    await until(service.passwords, lambda found: set(found) == {reached + 1}, SOON)
    user = await service.child("User", "user")
    assert user is not None
    assert user["metadata"]["annotations"][GENERATION] == str(reached + 1)
    assert await service.logs_in() is not None


@pytest.mark.row("A20", "A19")
async def test_whatever_of_the_delivery_is_deleted_or_edited_comes_back_within_seconds(
    real_stack: Stage, register: Register
) -> None:
    """Each piece of it in turn, on an order of its own: the consumer Secret, the source, both delivery objects."""
    stack = real_stack.stack
    pieces = ("consumer-deleted", "consumer-edited", "source-deleted", "source-edited", "push-deleted",
              "fetch-deleted", "push-edited", "password-deleted")  # fmt: skip
    orders = {piece: with_account(register, piece) for piece in pieces}
    await asyncio.gather(*(each.place() for each in orders.values()))
    await asyncio.gather(*(each.is_ready() for each in orders.values()))
    before = {piece: await each.credentials() for piece, each in orders.items()}
    garbled: Object = {"data": {"password": "Z2FyYmxlZA=="}}

    async def act(piece: str, service: Service) -> None:
        what, _, how = piece.partition("-")
        credentials = f"{service.name}-credentials"
        where = {
            "consumer": (SECRETS, "team-a", credentials),
            "source": (SECRETS, "team-a", f"{service.prefix}source"),
            "push": (PUSHES, "team-a", f"{service.prefix}backup"),
            "fetch": (FETCHES, "team-a", credentials),
            "password": (SECRETS, "openstack", f"{service.prefix}password-v1"),
        }[what]
        if how == "deleted":
            await real_stack.delete("management", *where)
        else:
            change = {"spec": {"deletionPolicy": "None"}} if what == "push" else garbled
            await kube.patch(stack, "management", *where, change)

    began = time.monotonic()
    await asyncio.gather(*(act(piece, each) for piece, each in orders.items()))

    async def whole(piece: str, service: Service) -> float:
        """Seconds until everything is as it was; a password that nobody can tell any more is replaced by another."""

        async def look() -> Object:
            stored, source = await service.stored(), await service.child("Secret", "source")
            live, passwords = await service.live(), await service.passwords()
            return {
                "delivered": await service.credentials(), "stored": ((stored or {}).get("data") or {}),
                "source": bool(source), "ready": condition(live, "Ready").get("status"), "passwords": passwords,
                "push": (await service.push_secret() or {}).get("spec", {}).get("deletionPolicy"),
            }  # fmt: skip

        def holds(seen: Object) -> bool:
            if len(seen["passwords"]) != 1:
                return False
            (generation, password) = next(iter(seen["passwords"].items()))
            wanted = before[piece] if piece != "password-deleted" else seen["delivered"]
            return bool(
                seen["delivered"] == wanted
                and seen["delivered"].get("password") == password == seen["stored"].get("password")
                and seen["source"]
                and seen["ready"] == "True"
                and seen["push"] == "Delete"
                and generation == (2 if piece == "password-deleted" else 1)
            )

        await until(look, holds, 2 * SOON)
        return time.monotonic() - began

    took = dict(zip(orders, await asyncio.gather(*(whole(*each) for each in orders.items())), strict=True))
    print("whole again after", {piece: round(seconds, 1) for piece, seconds in took.items()})
    for each in orders.values():
        assert await each.logs_in() is not None


@pytest.mark.row("T01", "T02")
async def test_one_workflow_per_registration_and_its_passes_by_the_command_line(
    real_stack: Stage, register: Register
) -> None:
    service = register("typed", catalog=catalog("public"), account=lambda name: account(f"{name}-project", "member"))
    await service.place()
    live = await service.is_ready()
    (first,) = await until(service.open_runs, lambda runs: len(runs) == 1, 10)
    assert first.id == f"KeystoneService:team-a/{service.name}"
    with pytest.raises(WorkflowAlreadyStartedError):
        await real_stack.temporal.start_workflow("KeystoneService", id=service.workflow_id, task_queue="c5c3-orders")

    await service.quiet(6)
    passes = await service.passes()
    await real_stack.command("workflow", "signal", "--workflow-id", service.workflow_id, "--name", "resync")
    await until(service.passes, lambda now: now == passes + 1, 10)
    await service.quiet(6)
    answer = await update(real_stack, service, "resync_now")
    assert await service.passes() == passes + 2
    assert answer["ready"] is True
    assert {each["type"]: each["reason"] for each in answer["verdicts"]} == {
        "CatalogReady": "CatalogRegistered", "AccountReady": "AccountProvisioned",
    }  # fmt: skip

    await service.delete()
    await service.gone()
    await service.place()
    again = await service.is_ready()
    assert again["status"]["account"]["userID"] != live["status"]["account"]["userID"]
    (second,) = await until(service.open_runs, lambda runs: len(runs) == 1, 10)
    assert (second.id, second.run_id != first.run_id) == (first.id, True)
    spans = sorted((run.start_time, run.close_time) for run in await service.runs())
    for (_, closed), (started, _) in itertools.pairwise(spans):
        assert closed is not None
        assert closed <= started, "two runs of one order at once"


@pytest.mark.row("T02")
async def test_a_rotation_that_cannot_be_is_refused_with_the_reason(real_stack: Stage, register: Register) -> None:
    bare = register("bare", catalog=catalog())
    refused = register("admin", account=lambda name: account(name, userName="admin"))
    await asyncio.gather(bare.place(), refused.place())
    await asyncio.gather(bare.is_ready(), refused.reads("account", "ServiceAccountCollision"))
    with pytest.raises(AssertionError, match="declares no account"):
        await update(real_stack, bare, "rotate")
    with pytest.raises(AssertionError, match="has no user yet"):
        await update(real_stack, refused, "rotate")
