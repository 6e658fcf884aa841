"""A registration's account on a real API server, K-ORC and External Secrets answered by hand: each reason's cause."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.cluster import CONTROL_PLANE, EVENT, KINDS, PUSH_SECRET, SECRET, SECRET_STORE, Object
from activities.errors import ClusterError, NotServed
from activities.keystoneaccount import Accounts
from tests import korc_by_hand as words
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.registered import ACCOUNT, Registered
from tests.world import retried, run
from workflows.keystoneservice import children, delivery
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Nudge, Task

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


async def ordered(registered: Registered, **account: Any) -> OrderRef:
    await registered.plane()
    return await registered.order(catalog=None, account={**ACCOUNT, **account})


async def nudge(registered: Registered, ref: OrderRef, value: str = "") -> Object:
    """What a person does who wants a new password."""
    hand, name = registered.hand(ref, "user")
    mark = {"metadata": {"annotations": {children.GENERATION: value}}}
    return await registered.admin.patch(hand.kind, registered.world.plane_ns, name, mark)


async def password(registered: Registered, ref: OrderRef, generation: int = 1) -> str | None:
    data = await registered.secret(registered.world.plane_ns, delivery.password_name(ref, generation))
    return None if data is None else b64decode(data["password"]).decode()


async def delivered(registered: Registered, ref: OrderRef) -> str | None:
    data = await registered.secret(ref.namespace, delivery.consumer_name(ref))
    return None if data is None else b64decode(data["password"]).decode()


RECORDER = "keystoneservice-controller"


async def events(registered: Registered, ref: OrderRef) -> list[Object]:
    found = (await registered.admin.list(EVENT, ref.namespace))["items"]
    return [each for each in found if each["reason"] == "ScheduledRotationDeferred"]


async def project_made(registered: Registered, ref: OrderRef) -> None:
    """Probes answered absent; Project and password made, and not answered by K-ORC yet."""
    await registered.account(ref)
    for suffix in ("user-probe", "project-probe"):
        hand, name = registered.hand(ref, suffix)
        await hand.absent(name)
    await registered.account(ref)
    for suffix in ("user-probe", "project-probe"):
        hand, name = registered.hand(ref, suffix)
        await hand.let_go(name)
    await registered.account(ref)


async def user_made(registered: Registered, ref: OrderRef) -> None:
    """The Project is Available; User and role imports are made, and not answered by K-ORC yet."""
    await project_made(registered, ref)
    hand, name = registered.hand(ref, "project")
    await hand.available(name)
    await registered.account(ref)


async def applied(registered: Registered, ref: OrderRef, generation: int = 1) -> None:
    hand, name = registered.hand(ref, "user")
    ref_ = delivery.password_name(ref, generation)
    await hand.available(name, "user-1", resource={"appliedPasswordRef": ref_})


# -- refused, and held ------------------------------------------------------------------------------------------


@pytest.mark.row("A04", "A03")
async def test_the_admins_identity_is_refused_before_anything_is_created_and_status_survives(
    registered: Registered,
) -> None:
    ref = await ordered(registered, userName="Ädmin", adopt=True)
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("CatalogNotDeclared", "ServiceAccountCollision")
    assert "Delete this order" in await registered.message(ref, "AccountReady")
    assert await registered.children() == []
    assert len(writes(await audit.asked(registered.world.plane_ns))) == 0
    assert not await registered.moved(ref)


@pytest.mark.row("A04")
async def test_an_account_that_the_plane_takes_for_its_admin_keeps_all_and_is_told_another_remedy(
    registered: Registered,
) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    before, status = await registered.versions(), await registered.status(ref)
    edit = {"spec": {"korc": {"adminCredential": {"userName": "IMAGES"}}}}
    await registered.admin.patch(CONTROL_PLANE, registered.world.plane_ns, "cp", edit)
    assert await registered.moved(ref)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("CatalogNotDeclared", "ServiceAccountCollision")
    assert "identity of its own" in await registered.message(ref, "AccountReady")
    assert await registered.versions() == before
    assert (await registered.status(ref))["account"] == status["account"]
    # A look-up that fails counts as owned.
    meddled = Meddled(registered.world.clusters.management)

    async def refuse(call: Call) -> None:
        if call.plural == "users":
            raise ClusterError(str(call), 403, "Forbidden", "no right")

    meddled.before = refuse
    registered.through(meddled)
    assert "identity of its own" in (await registered.account(ref)).message


@pytest.mark.row("A06", "S20", "S27")
async def test_an_unready_store_holds_the_account_alone_and_heals(registered: Registered) -> None:
    await registered.plane(store=False)
    ref = await registered.order()
    async with registered.playing():
        for _ in range(3):
            await registered.one_pass(ref)
        assert await registered.reasons(ref) == ("CatalogRegistered", "SecretStoreNotReady")
        message = await registered.message(ref, "AccountReady")
        for part in ("SecretStore", "openbao-tenant-store", registered.world.order_ns, "sealed"):
            assert part in message
        assert await registered.names("User", "Project", "Secret", "Role") == []
        assert (await registered.status(ref))["account"] == {
            "secretName": "images-credentials",
            "userID": "",
            "projectID": "",
        }
        assert not await registered.moved(ref)
        await registered.store(True)
        assert await registered.moved(ref)
        await registered.passes_until_ready(ref)


async def test_a_store_that_is_being_deleted_is_not_ready_whatever_it_says(registered: Registered) -> None:
    ref = await ordered(registered)
    meta = await registered.admin.get(SECRET_STORE, ref.namespace, "openbao-tenant-store")
    assert meta is not None
    held = {"metadata": {"finalizers": ["secretstore.externalsecrets.io/finalizer"]}}
    await registered.admin.patch(SECRET_STORE, ref.namespace, "openbao-tenant-store", held)
    await registered.admin.delete(SECRET_STORE, ref.namespace, "openbao-tenant-store", meta["metadata"]["uid"])
    found = await registered.account(ref)
    assert found.reason == "SecretStoreNotReady"
    assert "being deleted; orders that push through it hold it" in found.message
    assert await registered.names("User", "Project", "Secret", "Role") == []
    let_go: Object = {"metadata": {"finalizers": []}}
    await registered.admin.patch(SECRET_STORE, ref.namespace, "openbao-tenant-store", let_go)
    assert "does not exist" in (await registered.account(ref)).message


async def test_a_missing_store_and_one_of_no_kind_are_said(registered: Registered) -> None:
    ref = await ordered(registered)
    task = await registered.world.task(ref)
    assert task.plane is not None
    for store, reason in (
        ({"kind": "SecretStore", "name": "nowhere"}, "SecretStoreNotReady"),
        ({"kind": "ClusterSecretStore", "name": "nowhere"}, "SecretStoreNotReady"),
        ({"kind": "Vault", "name": "x"}, "ServiceAccountError"),
    ):
        spec = task.plane.spec.model_copy(
            update={"secret_store_ref": type(task.plane.spec.secret_store_ref).model_validate(store)}
        )
        elsewhere = task.model_copy(update={"plane": task.plane.model_copy(update={"spec": spec})})
        (found,) = (await retried(registered.steps.accounts.provision_account, elsewhere)).verdicts
        assert (found.reason, found.again) == (reason, 10)
    assert await registered.children() == []


@pytest.mark.row("C11")
@pytest.mark.parametrize("plural", ["secretstores", "users", "secrets"])
async def test_a_kubernetes_failure_is_an_error_and_no_verdict(registered: Registered, plural: str) -> None:
    ref = await ordered(registered)
    meddled = Meddled(registered.world.clusters.management)

    async def refuse(call: Call) -> None:
        if call.plural == plural and (call.writes or plural == "secretstores"):
            raise ClusterError(f"doing {plural}", 403, "Forbidden", "no right")

    meddled.before = refuse
    task = await registered.world.task(ref)
    async with registered.korc.playing():
        met = [error async for error in _errors(registered.through(meddled).accounts, task)]
    assert f"doing {plural}" in met[0].message
    assert met[0].non_retryable


async def _errors(accounts: Accounts, task: Task) -> AsyncIterator[ApplicationError]:
    for _ in range(5):
        try:
            await run(accounts.provision_account, task)
        except ApplicationError as error:
            yield error
            return


# -- domains ----------------------------------------------------------------------------------------------------


@pytest.mark.row("A07")
async def test_another_domain_is_imported_and_swept_and_the_planes_own_is_not(registered: Registered) -> None:
    await registered.plane()
    registered.korc.keystone.add("Domain", "Other")
    names = {"own": {}, "other": {"domainName": "Other"}, "same": {"domainName": "Default"}}
    project = {"name": "p", "create": False}
    async with registered.playing():
        for name, more in names.items():
            ref = await registered.order(name, catalog=None, account={"project": project, **more})
            handle = registered.name(ref, "domain") if name == "other" else "cp-domain-default"
            registered.korc.keystone.add("Project", handle, "p")
            await registered.passes_until_ready(ref)
            assert await registered.names("Domain") == (["Domain/domain"] if name == "other" else [])
            await registered.removed(ref)
            assert await registered.names("Domain") == []
            assert ("Project", (handle, "p")) in registered.korc.keystone.rows, "a referenced project stays"
    assert (await registered.korc.of("Domain").there("cp-domain-default"))["metadata"].get("deletionTimestamp") is None


@pytest.mark.row("A07")
async def test_a_plane_that_renames_its_admin_domain_in_place_moves_no_account(registered: Registered) -> None:
    await registered.plane()
    registered.korc.keystone.add("Domain", "Other")
    ref = await registered.order(catalog=None, account={**ACCOUNT, "domainName": "Other"})
    async with registered.playing():
        await registered.passes_until_ready(ref)
        before = await registered.versions()
        for name in ("Other", "Default"):
            edit = {"spec": {"korc": {"adminCredential": {"domainName": name}}}}
            await registered.admin.patch(CONTROL_PLANE, registered.world.plane_ns, "cp", edit)
            await registered.one_pass(ref)
            assert (await registered.reasons(ref))[1] == "AccountProvisioned"
            assert await registered.versions() == before


# -- project and user -------------------------------------------------------------------------------------------


async def test_a_same_named_project_and_user_are_collisions_with_their_remedies(registered: Registered) -> None:
    ref = await ordered(registered)
    project = registered.korc.keystone.add("Project", "cp-domain-default", "imaging")
    async with registered.playing():
        for _ in range(3):
            await registered.one_pass(ref)
        assert (await registered.reasons(ref))[1] == "ServiceAccountCollision"
        assert "project.create" in await registered.message(ref, "AccountReady")
        assert await registered.names("Project", "User", "Secret") == ["Project/project-probe", "User/user-probe"]
        await registered.removed(ref)
        assert registered.korc.keystone.rows["Project", ("cp-domain-default", "imaging")] == project
        user = registered.korc.keystone.add("User", "cp-domain-default", "images")
        ref = await registered.order(catalog=None, account={"project": {"name": "imaging"}})
        for _ in range(3):
            await registered.one_pass(ref)
        assert (await registered.reasons(ref))[1] == "ServiceAccountCollision"
        assert "spec.account.adopt" in await registered.message(ref, "AccountReady")
        await registered.edit(ref, account={"project": {"name": "imaging"}, "adopt": True})
        await registered.passes_until_ready(ref)
        # K-ORC only records the first password of a user it has taken over: the second is sent.
        assert registered.korc.keystone.passwords[user] == delivery.password_name(ref, 2)
        assert await delivered(registered, ref) == await password(registered, ref, 2)
        assert await password(registered, ref, 1) is None
        assert (await registered.status(ref))["account"]["passwordGeneration"] == 2
        await registered.removed(ref)
    assert registered.korc.keystone.of("User") == []


async def test_consent_that_is_given_later_to_what_was_never_taken_over_rotates_nothing(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
        await registered.edit(ref, account={**ACCOUNT, "adopt": True})
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
    assert (await registered.status(ref))["account"]["passwordGeneration"] == 1


@pytest.mark.row("A16")
async def test_terminal_errors_are_told_project_then_user_then_role(registered: Registered) -> None:
    ref = await ordered(registered, roles=["reader", "member"])
    await user_made(registered, ref)
    for suffix, text in (
        (f"role-{children.role_slug('member')}", "two roles"),
        ("user", "no such domain"),
        ("project", "quota"),
    ):
        hand, name = registered.hand(ref, suffix)
        await hand.terminal(name, f"invalid configuration: {text}")
        if suffix.startswith("role"):
            project, its_name = registered.hand(ref, "project")
            await project.available(its_name)
            await applied(registered, ref)
        found = await registered.account(ref)
        assert (found.reason, found.again) == ("ServiceAccountsFailed", 10)
        assert text in found.message
        assert ("'member'" in found.message) == suffix.startswith("role")


@pytest.mark.row("A17", "S26")
async def test_the_wait_names_the_real_blocker_and_ready_comes_only_with_every_role(registered: Registered) -> None:
    ref = await ordered(registered)
    await project_made(registered, ref)
    expected = (
        "project",
        "user",
        "user",
        f"role-{children.role_slug('reader')}",
        f"assign-{children.role_slug('reader')}",
    )
    for step, suffix in enumerate(expected):
        found = await registered.account(ref)
        hand, name = registered.hand(ref, suffix)
        assert found.reason == "WaitingForServiceAccounts", found
        if step == 2:
            assert "not applied" in found.message
            await applied(registered, ref)
        else:
            assert name in found.message, suffix
            await hand.available(name, "user-1" if suffix == "user" else None)
    found = await registered.account(ref)
    assert found.reason == "WaitingForServiceAccounts", "bound, and not delivered yet"
    assert registered.name(ref, "backup") in found.message


async def test_roles_that_keystone_takes_for_one_are_bound_once(registered: Registered) -> None:
    ref = await ordered(registered, roles=["reader", "READER", "réader"])
    await user_made(registered, ref)
    hand, name = registered.hand(ref, f"role-{children.role_slug('reader')}")
    await hand.available(name)
    await applied(registered, ref)
    await registered.account(ref)
    assert len(await registered.names("Role")) == len(await registered.names("RoleAssignment")) == 1


@pytest.mark.row("S13")
async def test_a_removed_role_is_swept_assignment_first_and_holds_the_block(registered: Registered) -> None:
    ref = await ordered(registered, roles=["reader", "member"])
    async with registered.playing():
        await registered.passes_until_ready(ref)
    await registered.edit(ref, account={**ACCOUNT, "roles": ["reader"]})
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    slug = children.role_slug("member")
    assert (await registered.reasons(ref))[1] == "WaitingForServiceAccounts"
    asked = await audit.asked(registered.world.plane_ns)
    assert [one.name for one in asked if one.verb == "delete"] == [
        registered.name(ref, f"assign-{slug}"), registered.name(ref, f"role-{slug}"),
    ]  # fmt: skip
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert len(await registered.names("Role")) == 1


@pytest.mark.row("A14")
@pytest.mark.parametrize("mode", ["Scheduled", "Manual"])
async def test_a_schedule_is_said_to_be_deferred_exactly_once(registered: Registered, mode: str) -> None:
    ref = await ordered(registered, rotation={"mode": mode})
    async with registered.playing():
        await registered.passes_until_ready(ref)
        await nudge(registered, ref)
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
    found = await events(registered, ref)
    assert len(found) == (mode == "Scheduled")
    for each in found:
        assert each["type"] == "Normal"
        assert (each["source"], each["reportingComponent"]) == ({"component": RECORDER}, RECORDER)
        assert (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == ("KeystoneService", ref.name)
        assert each["involvedObject"]["uid"] == (await registered.world.live(ref))["metadata"]["uid"]


@pytest.mark.row("A14")
async def test_it_is_said_also_when_the_step_that_made_the_user_fails_later(registered: Registered) -> None:
    ref = await ordered(registered, rotation={"mode": "Scheduled"})
    await registered.account(ref)
    for suffix in ("user-probe", "project-probe"):
        hand, name = registered.hand(ref, suffix)
        await hand.absent(name)
    await registered.account(ref)
    hand, name = registered.hand(ref, "project")
    await hand.available(name)
    meddled = Meddled(registered.world.clusters.management)

    async def refuse(call: Call) -> None:
        if call.plural == "roles" and call.writes:
            raise ClusterError(str(call), 403, "Forbidden", "no right")

    meddled.before = refuse
    task = await registered.world.task(ref)
    with pytest.raises(ApplicationError):
        await run(registered.through(meddled).accounts.provision_account, task)
    registered.through(None)
    assert "User/user" in await registered.names()
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert len(await events(registered, ref)) == 1


# -- passwords --------------------------------------------------------------------------------------------------


@pytest.mark.row("A11", "A12", "A19")
async def test_a_password_is_made_once_and_a_nudge_makes_one_new(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    first = await password(registered, ref)
    assert first is not None
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", first)
    for _ in range(2):
        await registered.one_pass(ref)
    assert await password(registered, ref) == first
    await nudge(registered, ref)
    assert await registered.moved(ref)
    # Nobody answers yet: one new Secret, one new reference, and the old password stays.
    for _ in range(2):
        await registered.one_pass(ref)
        assert (await registered.reasons(ref))[1] == "WaitingForServiceAccounts"
        assert await registered.names("Secret") == [
            "Secret/images-credentials", "Secret/password-v1", "Secret/password-v2", "Secret/source",
        ]  # fmt: skip
    second = await password(registered, ref, 2)
    assert second not in (None, first)
    assert await delivered(registered, ref) == first
    status = (await registered.status(ref))["account"]
    assert status["passwordGeneration"] == 2
    rotated = status["lastPasswordRotation"]
    # Applied, and not delivered yet: never Ready with the password of before.
    async with registered.korc.playing():
        while delivery.password_name(ref, 1) in await _secret_names(registered):
            await registered.one_pass(ref)
    await registered.one_pass(ref)
    assert (await registered.reasons(ref))[1] == "WaitingForServiceAccounts"
    assert await delivered(registered, ref) == first
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert await delivered(registered, ref) == second
    hand, name = registered.hand(ref, "user")
    assert (await hand.there(name))["metadata"]["annotations"][children.GENERATION] == "2"
    assert (await registered.status(ref))["account"]["lastPasswordRotation"] == rotated


async def _secret_names(registered: Registered) -> list[str]:
    found = (await registered.admin.list(SECRET, registered.world.plane_ns))["items"]
    return [item["metadata"]["name"] for item in found]


@pytest.mark.row("A13")
async def test_a_nudge_between_look_and_write_survives_for_the_next_attempt(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    hand, user = registered.hand(ref, "user")
    # Something else is to be written to the User; the nudge comes right before that.
    edit = {"spec": {"cloudCredentialsRef": {"secretName": "edited", "cloudName": "admin"}}}
    await registered.admin.patch(hand.kind, registered.world.plane_ns, user, edit)
    meddled, nudged = Meddled(registered.world.clusters.management), list[Object]()

    async def meddle(call: Call) -> None:
        if str(call) == "PATCH users" and not nudged:
            nudged.append(await nudge(registered, ref))

    meddled.before = meddle
    registered.through(meddled)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    registered.through(None)
    assert nudged
    assert (await registered.status(ref))["account"]["passwordGeneration"] == 2
    assert await delivered(registered, ref) == await password(registered, ref, 2)


@pytest.mark.row("A13")
async def test_a_wrong_mark_is_ignored_and_a_missing_one_written(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
        before = await registered.versions()
        await nudge(registered, ref, "17")
        await registered.one_pass(ref)
        changed = set((await registered.versions()).items()) - set(before.items())
        assert [each.partition("/")[0] for each, _ in changed] == ["User"]
        hand, name = registered.hand(ref, "user")
        await registered.admin.patch(
            hand.kind, registered.world.plane_ns, name, {"metadata": {"annotations": {children.GENERATION: None}}}
        )
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
        assert (await hand.there(name))["metadata"]["annotations"][children.GENERATION] == "1"
    assert (await registered.status(ref))["account"]["passwordGeneration"] == 1


@pytest.mark.row("A13")
async def test_the_nudge_of_a_person_at_the_workflow_is_one_generation_however_often_it_is_tried(
    registered: Registered,
) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    ask = Nudge(task=await registered.world.task(ref), generation=1)
    for _ in range(3):
        await retried(registered.steps.accounts.nudge_account, ask)
    async with registered.playing():
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
        await retried(registered.steps.accounts.nudge_account, ask)
        await registered.one_pass(ref)
    assert (await registered.status(ref))["account"]["passwordGeneration"] == 2
    # K-ORC writes the User between its look and its write: tried again, and not written over.
    meddled, met = Meddled(registered.world.clusters.management), list[Object]()

    async def meddle(call: Call) -> None:
        if str(call) == "PATCH users" and not met:
            hand, name = registered.hand(ref, "user")
            met.append(await hand.transient(name, "503"))

    meddled.before = meddle
    ask = Nudge(task=await registered.world.task(ref), generation=2)
    await retried(registered.through(meddled).accounts.nudge_account, ask)
    hand, name = registered.hand(ref, "user")
    live = await hand.there(name)
    assert live["metadata"]["annotations"][children.GENERATION] == ""
    assert live["status"]["conditions"][0]["reason"] == "TransientError"


async def test_a_nudge_of_an_account_that_is_not_there_or_not_ours_is_refused(registered: Registered) -> None:
    ref = await ordered(registered)
    ask = Nudge(task=await registered.world.task(ref), generation=1)
    with pytest.raises(ApplicationError) as caught:
        await run(registered.steps.accounts.nudge_account, ask)
    assert (caught.value.type, caught.value.non_retryable) == ("NoUser", True)


@pytest.mark.row("A11")
async def test_a_password_that_is_lost_is_replaced_and_delivered(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
        for generation in (1, 2):
            name = delivery.password_name(ref, generation)
            live = await registered.admin.get(SECRET, registered.world.plane_ns, name)
            assert live is not None
            await registered.admin.delete(SECRET, registered.world.plane_ns, name, live["metadata"]["uid"])
            assert await registered.moved(ref)
            await registered.one_pass(ref)
            await registered.passes_until_ready(ref)
            assert await delivered(registered, ref) == await password(registered, ref, generation + 1)


async def test_a_password_that_is_lost_before_it_is_applied_is_made_anew(registered: Registered) -> None:
    ref = await ordered(registered)
    await user_made(registered, ref)
    name = delivery.password_name(ref, 1)
    live = await registered.admin.get(SECRET, registered.world.plane_ns, name)
    assert live is not None
    await registered.admin.delete(SECRET, registered.world.plane_ns, name, live["metadata"]["uid"])
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert await delivered(registered, ref) == await password(registered, ref, 1)


@pytest.mark.row("A21")
@pytest.mark.parametrize("data", [None, {}, {"password": ""}, {"password": b64encode(b"\xff\xfe").decode()}])
async def test_a_password_that_cannot_be_told_at_publish_is_a_wait(
    registered: Registered, data: dict[str, str] | None
) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    task, name = await registered.world.task(ref), delivery.password_name(ref, 1)
    live = await registered.admin.get(SECRET, registered.world.plane_ns, name)
    assert live is not None
    if data is None:
        await registered.admin.delete(SECRET, registered.world.plane_ns, name, live["metadata"]["uid"])
    else:
        await registered.admin.update(SECRET, {**live, "data": data})
    (found,) = (await run(registered.steps.accounts.publish_account, task)).verdicts
    assert (found.reason, found.again) == ("WaitingForServiceAccounts", 10)
    assert name in found.message


async def test_a_user_that_is_made_anew_finds_no_password_of_before(registered: Registered) -> None:
    ref = await ordered(registered)
    hand, name = registered.hand(ref, "user")
    async with registered.playing():
        await registered.passes_until_ready(ref)
        for _ in range(2):
            await nudge(registered, ref)
            await registered.one_pass(ref)
            await registered.passes_until_ready(ref)
        third = await password(registered, ref, 3)
        live = await hand.there(name)
        await registered.admin.delete(hand.kind, registered.world.plane_ns, name, live["metadata"]["uid"])
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
        assert await registered.names("Secret") == [
            "Secret/images-credentials", "Secret/password-v1", "Secret/source",
        ]  # fmt: skip
        for _ in range(2):
            await nudge(registered, ref)
            await registered.one_pass(ref)
            await registered.passes_until_ready(ref)
        assert await password(registered, ref, 3) not in (None, third)


async def test_an_assignment_of_a_user_that_is_no_more_is_made_anew(registered: Registered) -> None:
    """As a newer K-ORC leaves it when a user vanishes: the User has another id, and nothing else moves."""
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
        bound, assign = registered.hand(ref, f"assign-{children.role_slug('reader')}")
        hand, name = registered.hand(ref, "user")
        first = await bound.there(assign)
        await hand.available(name, "another")
        assert await registered.moved(ref)
        await registered.passes_until_ready(ref)
        second = await bound.there(assign)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["status"]["resource"]["userID"] == "another"


# -- delivery ---------------------------------------------------------------------------------------------------


@pytest.mark.row("A18", "S11")
async def test_what_is_delivered_is_what_the_contract_lists(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    key = f"openstack/keystone/{ref.namespace}/{ref.name}/service-accounts/credentials"
    assert list(registered.eso.bao) == [key]
    held = registered.eso.bao[key]
    assert set(held) == {"password", "username", "project_name", "user_domain_name", "project_domain_name", "auth_url",
                         "region_name", "clouds.yaml"}  # fmt: skip
    data = await registered.secret(ref.namespace, "images-credentials")
    assert data is not None
    assert {name: b64decode(value).decode() for name, value in data.items()} == {
        name: held[name] for name in ("password", "clouds.yaml")
    }
    assert held["password"] == await password(registered, ref)


@pytest.mark.row("A19")
async def test_a_push_that_fails_is_told_in_the_words_of_external_secrets(registered: Registered) -> None:
    ref = await ordered(registered)
    registered.eso.sealed = "could not write: OpenBao is sealed"
    async with registered.playing():
        for _ in range(4):
            await registered.one_pass(ref)
        assert (await registered.reasons(ref))[1] == "WaitingForServiceAccounts"
        assert registered.eso.sealed in await registered.message(ref, "AccountReady")
        assert not await registered.moved(ref)
        registered.eso.sealed = ""
        await registered.eso.push(registered.name(ref, "backup"))
        await registered.passes_until_ready(ref)


@pytest.mark.row("A20")
async def test_a_push_that_was_taken_back_for_want_of_its_source_is_made_anew(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    before, _ = await registered.delivery(ref)
    assert before is not None
    meta, brought = before["metadata"], dict(registered.eso.bao)
    registered.eso.bao.clear()
    gone = [{**before["status"]["conditions"][0], "status": "False", "reason": "SourceDeleted"}]
    status = {"status": {"conditions": gone}}
    await registered.admin.patch(PUSH_SECRET, ref.namespace, meta["name"], status, sub="status")
    async with registered.playing():
        await registered.passes_until_ready(ref)
    after, _ = await registered.delivery(ref)
    assert after is not None
    assert after["metadata"]["uid"] != meta["uid"]
    assert registered.eso.bao == brought


async def test_a_consumer_secret_that_was_edited_is_not_ready(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    live = await registered.admin.get(SECRET, ref.namespace, "images-credentials")
    assert live is not None
    edited = {**live, "data": {**live["data"], "password": b64encode(b"mine").decode()}}
    await registered.admin.update(SECRET, edited)
    await registered.one_pass(ref)
    assert (await registered.reasons(ref))[1] == "WaitingForServiceAccounts"
    assert "images-credentials" in await registered.message(ref, "AccountReady")
    await registered.eso.fetch("images-credentials")
    await registered.one_pass(ref)
    assert (await registered.world.conditions(ref))["Ready"]["status"] == "True"


async def test_a_key_that_somebody_adds_to_the_source_is_not_written_against(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    name = delivery.source_name(ref)
    body = {"data": {"note": b64encode(b"mine").decode()}}
    await registered.admin.patch(SECRET, ref.namespace, name, body)
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    assert writes(await audit.asked(registered.world.plane_ns, registered.world.order_ns)) == []
    assert (await registered.world.conditions(ref))["Ready"]["status"] == "True"


@pytest.mark.row("S12")
@pytest.mark.parametrize("what", ["source", "backup", "credentials", "password-v1", "user", "domain"])
async def test_a_strangers_object_is_refused_never_written_and_outlives_the_order(
    registered: Registered, what: str
) -> None:
    await registered.plane()
    registered.korc.keystone.add("Domain", "Other")
    ref = await registered.order(catalog=None, account={**ACCOUNT, "domainName": "Other"})
    store = {"kind": "SecretStore", "name": "openbao-tenant-store"}
    here = ref.namespace if what in ("source", "backup", "credentials") else registered.world.plane_ns
    name = "images-credentials" if what == "credentials" else registered.name(ref, what)
    cred = {"secretName": "theirs", "cloudName": "admin"}
    imported = {"cloudCredentialsRef": cred, "managementPolicy": "unmanaged", "import": {"id": "0" * 32}}
    every: dict[str, tuple[str, Object]] = {
        "source": ("Secret", {"data": {"password": ""}}),
        "password-v1": ("Secret", {"data": {"password": b64encode(b"theirs").decode()}}),
        "backup": ("PushSecret", {"spec": {"secretStoreRefs": [store], "selector": {"secret": {"name": "x"}}}}),
        "credentials": ("ExternalSecret", {"spec": {"secretStoreRef": store, "target": {"name": "theirs"}}}),
        "user": ("User", {"spec": imported}),
        "domain": ("Domain", {"spec": imported}),
    }
    kind, body = every[what]
    meta = {"name": name, "namespace": here}
    theirs = await registered.admin.create(KINDS[kind], {"metadata": meta, **body})
    if what == "domain":
        await registered.korc.of("Domain").available(name, "theirs")
    async with registered.korc.playing():
        for _ in range(4):
            await registered.one_pass(ref)
            if (push := (await registered.delivery(ref))[0]) and what != "backup":
                await registered.eso.push(push["metadata"]["name"])
    assert (await registered.reasons(ref))[1] == "ServiceAccountError", await registered.status(ref)
    assert "was not created by this order" in await registered.message(ref, "AccountReady")
    assert name in await registered.message(ref, "AccountReady")
    assert "RoleAssignment" not in " ".join(await registered.names("RoleAssignment")) or what not in ("user", "domain")
    await registered.removed(ref)
    live = await registered.admin.get(KINDS[kind], here, name)
    assert live is not None
    assert {key: live.get(key) for key in ("spec", "data")} == {key: theirs.get(key) for key in ("spec", "data")}
    assert "deletionTimestamp" not in live["metadata"]


async def test_a_latched_user_is_asked_about_before_it_is_woken(registered: Registered) -> None:
    ref = await ordered(registered)
    await user_made(registered, ref)
    hand, name = registered.hand(ref, "user")
    await asyncio.sleep(1.1)
    await hand.terminal(name, words.REFUSED)
    assert (await registered.account(ref)).reason == "WaitingForServiceAccounts"
    probe = registered.name(ref, "user-probe")
    await hand.available(probe, "strangers")
    assert (await registered.account(ref)).reason == "ServiceAccountCollision"
    conditions = (await hand.there(name))["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["Available", "Progressing"]


@pytest.mark.row("A11", "A21")
async def test_a_password_that_was_emptied_is_replaced_by_the_next(registered: Registered) -> None:
    ref = await ordered(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
        edit = {"data": {"password": ""}}
        await registered.admin.patch(SECRET, registered.world.plane_ns, delivery.password_name(ref, 1), edit)
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
        assert (await registered.status(ref))["account"]["passwordGeneration"] == 2
        assert await delivered(registered, ref) == await password(registered, ref, 2)
    assert await password(registered, ref, 1) is None


async def test_a_password_that_was_emptied_before_it_was_applied_is_filled(registered: Registered) -> None:
    ref = await ordered(registered)
    await user_made(registered, ref)
    name = delivery.password_name(ref, 1)
    await registered.admin.patch(SECRET, registered.world.plane_ns, name, {"data": {"password": ""}})
    await registered.account(ref)
    assert len(await password(registered, ref) or "") == 43
    assert await registered.names("Secret") == ["Secret/password-v1"]


def without_assignments(registered: Registered) -> Meddled:
    """An API server whose K-ORC has no RoleAssignment."""
    meddled = Meddled(registered.world.clusters.management)

    async def unserved(call: Call) -> None:
        if call.plural == "roleassignments":
            raise NotServed(str(call), 404, "NotServed", "the server could not find the requested resource")

    meddled.before = unserved
    registered.through(meddled)
    return meddled


async def test_a_korc_without_assignments_serves_accounts_without_roles_and_takes_them_back(
    registered: Registered,
) -> None:
    ref = await ordered(registered, roles=[])
    without_assignments(registered)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    await registered.removed(ref)
    assert await registered.names() == []


async def test_a_korc_without_assignments_is_named_where_roles_are_declared_and_heals(registered: Registered) -> None:
    ref = await ordered(registered)
    meddled = without_assignments(registered)
    async with registered.playing():
        for _ in range(6):
            await registered.one_pass(ref)
        assert (await registered.reasons(ref))[1] == "ServiceAccountError"
        message = await registered.message(ref, "AccountReady")
        for part in ("'reader'", "RoleAssignment", "Install a K-ORC", "declare no roles"):
            assert part in message
        meddled.before = None
        await registered.passes_until_ready(ref)
