"""Failures from the field that need K-ORC, External Secrets and Keystone: D1, D2, D6, D9, D13 and D14, for services.

Each test is named after what must hold.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

import pytest

from deploy.local import kube
from deploy.local.api import ApiError
from tests.audit import WRITES, Audit
from tests.e2e.services import Service, account, catalog
from tests.e2e.stage import Object, Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
Register = Callable[..., Service]

PUSH_HASH, FORCE_SYNC = "c5c3.io/keystoneservice-push-hash", "external-secrets.io/force-sync"


async def resync(service: Service, times: int) -> None:
    for _ in range(times):
        await service.handle.execute_update("resync_now", result_type=dict)


@pytest.mark.row("A12", "A19")
async def test_d1_a_new_password_is_a_new_secret_and_nothing_is_ready_before_it_is_applied(
    real_stack: Stage, register: Register
) -> None:
    """K-ORC is away for a while after the nudge: all stands between two generations, whatever passes meanwhile."""
    service = await register("reports", account=lambda name: account(f"{name}-project", "member")).place()
    await service.is_ready()
    first, (old,) = await service.child("Secret", "password-v1"), (await service.passwords()).values()
    async with real_stack.without("korc"):
        await service.nudge()
        said = await service.reads("account", "WaitingForServiceAccounts")
        for word in ("assword", "password-v2"):
            assert word in said["message"]
        second = await service.child("Secret", "password-v2")
        await resync(service, 3)
        await asyncio.sleep(5)
        assert await service.child("Secret", "password-v1") == first, "the old one is never edited"
        assert await service.child("Secret", "password-v2") == second, "there is one new value"
        assert set(await service.passwords()) == {1, 2}
        user = await service.child("User", "user")
        assert user is not None
        assert user["spec"]["resource"]["passwordRef"] == f"{service.prefix}password-v2"
        assert user["status"]["resource"]["appliedPasswordRef"] == f"{service.prefix}password-v1"
        assert (await service.credentials())["password"] == old, "what works is not taken away"
        assert await service.logs_in() is not None
        assert condition(await service.live(), "AccountReady")["reason"] == "WaitingForServiceAccounts"
    await service.is_ready(90)
    passwords = await until(service.passwords, lambda found: set(found) == {2}, 20)
    assert (await service.credentials())["password"] == passwords[2] != old
    await resync(service, 2)
    assert await service.passwords() == passwords


@pytest.mark.row("C02")
async def test_d2_somebody_elses_user_or_service_is_never_adopted(real_stack: Stage, register: Register) -> None:
    """Nor is a longer name, the same name in another domain, or the same name of another type, a match."""
    user = real_stack.keystone
    taken, domain = unique("billing"), await user.create("domains", name=unique("elsewhere"))
    foreign = await user.create("users", name=taken, domain_id="default")
    namesake = await user.create("users", name=f"{taken}-3", domain_id=domain["id"])
    row = await user.create("services", name=taken, type="registry")
    first = register("first", catalog=catalog(serviceName=taken), account=lambda n: account(n, userName=taken))
    passing = [
        register("longer", catalog=catalog(serviceName=f"{taken}-2"),
                 account=lambda n: account(n, userName=f"{taken}-2")),
        register("abroad", catalog=catalog(type_="another", serviceName=taken),
                 account=lambda n: account(n, userName=f"{taken}-3")),
    ]  # fmt: skip
    audit = Audit(real_stack.stack)
    mark = audit.mark()
    try:
        seen = asyncio.create_task(_reasons(first, {"ServiceCollision", "ServiceAccountCollision"}))
        await asyncio.gather(*(each.place() for each in (first, *passing)))
        assert await seen <= {"ProbingForCollision", "ServiceCollision", "ServiceAccountCollision"}
        await asyncio.gather(*(each.is_ready() for each in passing))
        made = {each.name for each in first.asked(audit, mark) if each.verb == "patch"}
        assert not made & {f"{first.prefix}user", f"{first.prefix}service"}, "no managed child may ever be applied"
        await first.delete()
        await first.gone()
        assert [each["id"] for each in await first.user_rows()] == [foreign["id"]]
        assert [each["id"] for each in await first.service_rows()] == [row["id"]]
        assert len(await user.users(name=f"{taken}-3")) == 2
    finally:
        for collection, each in (("users", foreign), ("users", namesake), ("services", row), ("domains", domain)):
            await user.delete(collection, each["id"])


async def _reasons(service: Service, last: set[str]) -> set[str]:
    """Every reason that its blocks are seen to read, until they read the last ones."""
    found: set[str] = set()
    while not last <= found:
        conditions = await service.conditions()
        found |= {each["reason"] for type_, each in conditions.items() if type_ != "Ready"}
        await asyncio.sleep(0.05)
    return found


@pytest.mark.row("T09", "A11")
async def test_d6_a_worker_killed_between_making_and_recording_makes_no_second_one(
    real_stack: Stage, register: Register
) -> None:
    service = register("unrecorded", catalog=catalog("public"), account=lambda name: account(f"{name}-project"))

    async def killed() -> None:
        await until(lambda: service.child("User", "user"), lambda child: child is not None, pause=0.02)
        await real_stack.kill("worker")

    killing = asyncio.create_task(killed())
    await service.place()
    await killing
    assert "account" not in ((await service.live()) or {}).get("status", {}), "killed too late to prove anything"
    made, password = await service.child("User", "user"), await service.passwords()
    await real_stack.start("worker")
    live = await service.is_ready(90)
    assert await service.passwords() == password
    user = await service.child("User", "user")
    assert (user or {})["metadata"]["uid"] == (made or {})["metadata"]["uid"]
    (row,) = await service.user_rows()
    assert live["status"]["account"]["userID"] == row["id"]
    assert live["status"]["account"]["passwordGeneration"] == 1
    assert [len(found) for found in (await service.service_rows(), await service.project_rows())] == [1, 1]
    assert "rror" not in str(live["status"])
    assert not [name for name in await service.children() if "probe" in name]


@pytest.mark.row("A18", "A19", "A20")
async def test_d9_a_change_is_pushed_and_fetched_at_once_and_nothing_moves_without_one(
    real_stack: Stage, register: Register
) -> None:
    service = await register("pushed", account=lambda name: account(f"{name}-project", "member")).place()
    await service.is_ready()
    await service.quiet()
    await _is_what_was_pushed(service)

    before = await _pieces(service)
    await resync(service, 10)
    assert await _pieces(service) == before, "ten passes moved something"

    await service.handle.execute_update("rotate", result_type=dict)
    await service.is_ready(15)
    after = await _is_what_was_pushed(service)
    assert after["PushSecret"] != before["PushSecret"]
    assert after["ExternalSecret"] != before["ExternalSecret"]

    await real_stack.delete("management", "secrets", service.namespace, f"{service.prefix}source")
    await until(lambda: service.child("Secret", "source"), lambda found: found is not None, 15)
    await service.is_ready(15)
    await _is_what_was_pushed(service)
    assert await service.logs_in() is not None


async def _pieces(service: Service) -> dict[str, tuple[str, Object]]:
    """Version and annotations of all that is delivered."""
    found = {
        "PushSecret": await service.push_secret(),
        "ExternalSecret": await service.external_secret(),
        "source": await service.child("Secret", "source"),
        "consumer": await service.consumer(),
        "user": await service.child("User", "user"),
    }
    return {
        name: ((one or {})["metadata"]["resourceVersion"], (one or {})["metadata"].get("annotations") or {})
        for name, one in found.items()
    }


async def _is_what_was_pushed(service: Service) -> dict[str, tuple[str, Object]]:
    """Both annotations tell of the very document that is delivered, and OpenBao has it."""
    clouds = (await service.credentials())["clouds.yaml"]
    digest, pieces = hashlib.sha256(clouds.encode()).hexdigest(), await _pieces(service)
    assert pieces["PushSecret"][1][PUSH_HASH] == digest
    push = await service.push_secret()
    assert pieces["ExternalSecret"][1][FORCE_SYNC] == f"{digest}/{(push or {})['status']['syncedResourceVersion']}"
    assert ((await service.stored()) or {})["data"]["clouds.yaml"] == clouds
    return pieces


@pytest.mark.row("S09")
async def test_d13_a_name_longer_than_a_label_is_said_and_can_go_and_the_longest_that_fits_is_served(
    real_stack: Stage, register: Register
) -> None:
    fits = register(
        name=f"{unique('a.b')}.".ljust(63, "x"), catalog=catalog("public"),
        account=account(unique("fits"), "member", userName=unique("fits")),
    )  # fmt: skip
    over = [
        register(name=unique("over").ljust(length, "x"), catalog=catalog(), account=account(unique("over"), "member"))
        for length in (64, 198)
    ]
    assert [len(each.name) for each in (fits, *over)] == [63, 64, 198]
    await asyncio.gather(*(each.place() for each in (fits, *over)))
    for each in over:
        said = await each.reads("catalog", "CatalogError")
        assert "63" in said["message"]
        assert "63" in (await each.reads("account", "ServiceAccountError"))["message"]
        await each.quiet()
    lengths = [(await each.handle.describe()).history_length for each in over]
    await asyncio.sleep(5)
    assert [(await each.handle.describe()).history_length for each in over] == lengths, "a hot loop"
    await fits.is_ready()
    assert await fits.logs_in() is not None
    for each in over:
        await each.delete()
        await each.gone(15)
    path = "/apis/c5c3.io/v1alpha1/namespaces/team-a/keystoneservices"
    toolong = {**fits.body, "metadata": {"name": "x" * 211, "namespace": "team-a"}}
    with pytest.raises(ApiError, match="shorten the KeystoneService name"):
        await kube.call(real_stack.stack, "management", "POST", path, toolong)


@pytest.mark.row("A15", "A09")
async def test_d14_two_spellings_of_a_role_are_one_and_a_project_in_another_spelling_collides(
    real_stack: Stage, register: Register
) -> None:
    roles, spelled = ("Member", "member", "MEMBER"), unique("spelling")
    service = register("roles", account=lambda name: account(f"{name}-project", *roles))
    collides = register("collides", account=account(spelled.upper()))
    foreign = await real_stack.keystone.create("projects", name=spelled, domain_id="default")
    audit = Audit(real_stack.stack)
    try:
        await asyncio.gather(service.place(), collides.place())
        await service.is_ready()
        assert await service.role_names() == {"member"}
        await service.quiet()
        kinds = [name.partition("/")[0] for name in await service.children()]
        assert (kinds.count("Role"), kinds.count("RoleAssignment")) == (1, 1)
        mark = audit.mark()
        await resync(service, 3)
        await asyncio.sleep(0.3)
        assert [str(each) for each in service.asked(audit, mark) if each.verb in WRITES] == [], "they fight"
        assert await service.logs_in() is not None
        said = await collides.reads("account", "ServiceAccountCollision")
        assert spelled.upper() in said["message"]
        assert await collides.child("Project", "project") is None
    finally:
        await real_stack.keystone.delete("projects", foreign["id"])
