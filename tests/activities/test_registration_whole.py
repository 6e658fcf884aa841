"""A registration as a whole on a real API server: its marks, its end, what it costs, and how it crosses over."""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.cluster import (
    CONTROL_PLANE,
    EVENT,
    EXTERNAL_SECRET,
    KEYSTONE_SERVICE,
    KINDS,
    LEASE,
    PUSH_SECRET,
    SECRET,
    Object,
)
from activities.errors import ClusterError
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.registered import ACCOUNT, CATALOG, Registered
from tests.world import NAMESPACE, run, run_attempt
from workflows.keystoneservice import children, delivery, sweep
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Task

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


# -- marks ------------------------------------------------------------------------------------------------------


@pytest.mark.row("S11")
@pytest.mark.parametrize("beside", [False, True], ids=["elsewhere", "beside the plane"])
async def test_every_child_carries_its_marks_from_its_creation(registered: Registered, beside: bool) -> None:
    await registered.plane()
    namespace = registered.world.plane_ns if beside else registered.world.order_ns
    if beside:
        registered.eso.namespace = namespace
    meddled, made = Meddled(registered.world.clusters.management), list[Call]()

    async def hear(call: Call) -> None:
        if call.method in ("POST", "PATCH") and call.plural not in ("keystoneservices", "events") and not call.sub:
            made.append(call)

    meddled.before = hear
    registered.through(meddled)
    ref = await registered.ready(namespace=namespace)
    uid = (await registered.world.live(ref))["metadata"]["uid"]
    owner = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "name": "images", "uid": uid,
             "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    plurals = {"services", "endpoints", "users", "projects", "roles", "roleassignments", "secrets", "pushsecrets",
               "externalsecrets", "leases"}  # fmt: skip
    assert {call.plural for call in made} == plurals
    for call in made:
        assert call.body is not None
        meta = call.body["metadata"]
        assert {k: v for k, v in meta["labels"].items() if k != "c5c3.io/claims"} == {
            "c5c3.io/keystoneservice-name": "images", "c5c3.io/keystoneservice-namespace": namespace,
        }, call  # fmt: skip
        if call.plural != "leases":
            assert meta.get("ownerReferences") == ([owner] if meta["namespace"] == namespace else None), call
    await registered.removed(ref)
    assert await registered.names() == []


@pytest.mark.row("S10")
async def test_two_same_named_registrations_get_different_children(registered: Registered) -> None:
    await registered.plane()
    other_ns = f"{registered.world.order_ns}-b"
    await registered.admin.create(NAMESPACE, {"metadata": {"name": other_ns}})
    await registered.store(True, other_ns)
    await registered.listed(registered.world.order_ns, other_ns)
    one = await registered.ready()
    before = await registered.versions()
    registered.eso.namespace = other_ns
    other = await registered.ready(
        namespace=other_ns,
        catalog={**CATALOG, "serviceName": "other"},
        account={"project": {"name": "other", "create": True}, "userName": "other"},
    )
    assert children.prefix(one) != children.prefix(other)
    after = await registered.versions()
    assert {name: after.get(name) for name in before} == before, "the second touched nothing of the first"
    await registered.removed(other)
    assert await registered.versions() == before
    await registered.admin._request("DELETE", NAMESPACE, None, other_ns)


# -- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.row("S15", "S16")
async def test_deletion_asks_dependents_first_and_waits_for_the_last(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    await registered.world.delete(ref)
    audit = Audit(registered.world.stack)
    removal = await registered.torn_down(ref)
    deleted = [one.resource for one in await audit.asked(registered.world.plane_ns) if one.verb == "delete"]
    assert deleted == ["roleassignments", "roles", "endpoints", "endpoints", "services", "users", "projects", "secrets"]
    assert any("Service" in each and "K-ORC" in each for each in removal.left)
    assert (await registered.world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]
    assert len(await registered.leases()) == 3, "nobody else may create what is still going"
    # One that cannot go keeps the order, and is named.
    hand, user = registered.hand(ref, "user")
    async with registered.eso.playing():
        for suffix in ("assign-" + children.role_slug("reader"), "role-" + children.role_slug("reader"), "service",
                       "endpoint-public", "endpoint-internal", "project"):  # fmt: skip
            each, name = registered.hand(ref, suffix)
            await each.let_go(name)
        await hand.transient(user, "Expected HTTP 204 but got 403")
        while len((removal := await registered.torn_down(ref)).left) > 1:
            pass
    assert "got 403" in removal.left[0]
    assert user in removal.left[0]
    assert await registered.world.services.look_removal(await registered.world.removal(ref)) == removal
    await hand.let_go(user)
    assert (await registered.torn_down(ref)).left == ()
    assert await registered.world.find(ref) is None
    assert await registered.leases() == []


@pytest.mark.row("S17")
async def test_with_the_plane_gone_the_deletes_are_issued_and_the_order_goes(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    await registered.world.delete(ref)
    await registered.world.delete_plane()
    meddled = Meddled(registered.world.clusters.management)

    async def stumble(call: Call) -> None:
        if call.method == "DELETE" and call.plural == "services":
            raise ClusterError(str(call), 503, "ServiceUnavailable", "later")

    meddled.before = stumble
    # What may pass is tried again before anything is left behind.
    task = await registered.world.removal(ref)
    with pytest.raises(ApplicationError):
        await run_attempt(1, registered.through(meddled).remove_registration, task)
    assert (await run_attempt(6, registered.steps.remove_registration, task)).left == ()
    registered.through(None)
    assert (await registered.torn_down(ref)).left == ()
    assert await registered.world.find(ref) is None
    for kind, item in await registered.children():
        assert item["metadata"].get("deletionTimestamp") or kind == "Lease", item["metadata"]["name"]


@pytest.mark.row("S17")
async def test_with_plane_and_store_gone_what_was_pushed_does_not_stay_behind(registered: Registered) -> None:
    """External Secrets cannot take it back, and when the order is released nobody comes to see to it."""
    await registered.plane()
    ref = await registered.ready()
    await registered.world.delete(ref)
    await registered.world.delete_plane()
    # Whoever has no store holds the object: External Secrets is played by nobody.
    assert (await registered.torn_down(ref)).left == ()
    assert await registered.world.find(ref) is None
    push, fetch = await registered.delivery(ref)
    assert fetch is None
    assert push is not None
    assert push["metadata"]["deletionTimestamp"]
    assert push["spec"]["deletionPolicy"] == "None", "External Secrets lets go of it without asking a store"


@pytest.mark.row("S17")
async def test_with_the_plane_alone_gone_what_was_pushed_is_taken_back(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 8.0)
    await registered.plane()
    ref = await registered.ready()
    await registered.world.delete(ref)
    await registered.world.delete_plane()
    async with registered.eso.playing():
        assert (await registered.torn_down(ref)).left == ()
    assert await registered.delivery(ref) == (None, None)
    assert registered.eso.bao == {}


@pytest.mark.row("S18")
async def test_foreign_finalizers_are_never_touched(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    both = {"metadata": {"finalizers": [children.FINALIZER, "example.org/hold"]}}
    await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, both)
    await registered.world.delete(ref)
    async with registered.playing():
        while (await registered.torn_down(ref)).left:
            pass
    live = await registered.world.live(ref)
    assert live["metadata"]["finalizers"] == ["example.org/hold"]
    await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, {"metadata": {"finalizers": None}})


# -- claims -----------------------------------------------------------------------------------------------------


@pytest.mark.row("A24", "S13")
@pytest.mark.parametrize("block", ["catalog", "account"])
async def test_the_claims_of_a_removed_block_are_free_for_others(registered: Registered, block: str) -> None:
    await registered.plane()
    first = await registered.ready()
    kept = {"catalog": {"user", "project"}, "account": {"service"}}[block]
    await registered.edit(first, **{block: None})
    async with registered.playing():
        await registered.passes_until_ready(first)
        assert {each["metadata"]["labels"]["c5c3.io/claims"] for each in await registered.leases()} == kept
        spec: dict[str, Any] = {"catalog": None, "account": None}
        spec[block] = {"catalog": {**CATALOG, "serviceName": "images"}, "account": {**ACCOUNT, "userName": "images"}}[
            block
        ]
        second = await registered.order("second", **spec)
        await registered.passes_until_ready(second)


@pytest.mark.row("A24")
async def test_a_claim_outlives_the_name_of_the_planes_domain(registered: Registered) -> None:
    """What is claimed in a domain that is called otherwise by now is still the order's: nobody else may adopt it."""
    await registered.plane()
    ref = await registered.ready()
    before = sorted(each["metadata"]["name"] for each in await registered.leases())
    world = registered.world
    renamed = {"spec": {"korc": {"adminCredential": {"domainName": "Corp"}}}}
    await registered.admin.patch(CONTROL_PLANE, world.plane_ns, "cp", renamed)
    await registered.edit(ref, account={**ACCOUNT, "roles": ["reader", "member"]})
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert sorted(each["metadata"]["name"] for each in await registered.leases()) == before


@pytest.mark.row("A24")
async def test_adopt_does_not_take_over_what_another_order_keeps_without_a_claim(registered: Registered) -> None:
    """As one that was taken over from the reference operator does."""
    await registered.plane()
    first = await registered.ready()
    for lease in await registered.leases():
        meta = lease["metadata"]
        await registered.admin.delete(LEASE, meta["namespace"], meta["name"], meta["uid"])
    catalog = {**CATALOG, "adopt": True, "serviceName": first.name}
    account = {**ACCOUNT, "adopt": True, "userName": first.name, "project": {"name": "elsewhere", "create": True}}
    second = await registered.order("second", catalog=catalog, account=account)
    async with registered.playing():
        await registered.one_pass(second)
        while await registered.reasons(second) != ("ServiceCollision", "ServiceAccountCollision"):
            await registered.one_pass(second)
    assert "which is not this order's" in await registered.message(second, "AccountReady")


# -- what it costs ----------------------------------------------------------------------------------------------


@pytest.mark.row("S22", "S25")
async def test_a_converged_order_is_read_once_and_never_written(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    before = (await registered.world.live(ref))["metadata"]["resourceVersion"]
    audit = Audit(registered.world.stack)
    admitted = await registered.one_pass(ref)
    assert admitted.found is not None, "the look of admit is the whole pass"
    asked = await audit.asked(registered.world.plane_ns, registered.world.order_ns)
    assert writes(asked) == []
    assert len(asked) <= 17, [str(one) for one in asked]
    # One list a kind says what is declared and what is not; each asks for what is the order's.
    listed = [one for one in asked if one.verb == "list"]
    assert len(listed) == len(sweep.KINDS["catalog"]) + len(sweep.KINDS["account"])
    assert all("labelSelector" in one.uri for one in listed)
    assert not [one for one in asked if one.verb == "watch"]
    assert (await registered.world.live(ref))["metadata"]["resourceVersion"] == before
    assert not await registered.moved(ref)


@pytest.mark.row("S25")
async def test_every_wait_ends_by_its_own_look_and_no_look_calls_for_a_pass_in_vain(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.order()
    slug = children.role_slug("reader")

    async def answers() -> None:
        absent = ("service-probe", "project-probe", "user-probe")
        for suffixes in (absent, ("service",), ("endpoint-public", "endpoint-internal", "project"), ("user",),
                         (f"role-{slug}",), (f"assign-{slug}",)):  # fmt: skip
            await walk()
            assert not await registered.moved(ref), suffixes
            for suffix in suffixes:
                hand, name = registered.hand(ref, suffix)
                if suffix in absent:
                    await hand.absent(name)
                elif suffix == "user":
                    await hand.available(name, "u", resource={"appliedPasswordRef": delivery.password_name(ref, 1)})
                else:
                    await hand.available(name)
            assert await registered.moved(ref), suffixes
        await walk()
        assert not await registered.moved(ref)
        await registered.eso.push(registered.name(ref, "backup"))
        assert await registered.moved(ref)
        await walk()
        assert not await registered.moved(ref)
        await registered.eso.fetch("images-credentials")
        assert await registered.moved(ref)
        await walk()

    async def walk() -> None:
        """Passes until one finds what the last one did; probes that were dropped go."""
        for _ in range(3):
            await registered.one_pass(ref)
            for suffix in ("service-probe", "project-probe", "user-probe"):
                hand, name = registered.hand(ref, suffix)
                live = await hand.get(name)
                if live is not None and live["metadata"].get("deletionTimestamp"):
                    await hand.let_go(name)

    await answers()
    assert (await registered.world.conditions(ref))["Ready"]["status"] == "True"


# -- killed at any line -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """The worker dies here."""


async def killed_at(registered: Registered, ref: OrderRef, at: int, moment: str) -> bool:
    """A pass whose worker dies at its nth write, before or after the API server has it; whether there was one."""
    meddled, written = Meddled(registered.world.clusters.management), 0

    async def die(call: Call) -> None:
        nonlocal written
        if call.writes:
            written += 1
            if written == at + 1:
                raise Killed

    setattr(meddled, moment, die)
    steps = registered.through(meddled)
    try:
        admitted = await run(registered.world.orders.admit, ref)
        task = Task(ref=ref, order=admitted.order, plane=admitted.plane)
        for step in (steps.provision_catalog, steps.accounts.provision_account):
            outcome = await run(step, task)
        known = task.order.model_copy(update={"status": {**task.order.status, **outcome.fields}})
        await run(steps.accounts.publish_account, task.model_copy(update={"order": known}))
    except Killed:
        return True
    finally:
        registered.through(None)
    return False


@pytest.mark.row("A11", "S14")
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_worker_that_dies_at_any_write_loses_and_doubles_nothing(
    registered: Registered, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 2.0)
    await registered.plane()
    at, expected = 0, list[str]()
    async with registered.playing():
        while True:
            ref = await registered.order()
            died = await killed_at(registered, ref, at, moment)
            await registered.passes_until_ready(ref)
            names = [each for each in await registered.names() if not each.startswith("Lease")]
            expected = expected or names
            assert names == expected, f"killed {moment} write {at}"
            assert not [each for each in names if "probe" in each]
            assert len(await registered.leases()) == 3
            password = await registered.secret(registered.world.plane_ns, delivery.password_name(ref, 1))
            consumer = await registered.secret(ref.namespace, "images-credentials")
            assert password is not None
            assert consumer is not None
            assert password["password"] == consumer["password"]
            assert len(registered.korc.keystone.of("User")) == len(registered.korc.keystone.of("Service")) == 1
            await registered.world.delete(ref)
            while await registered.world.find(ref) is not None:
                await registered.torn_down(ref)
            assert await registered.names() == []
            if not died:
                break
            at += 1
    print(f"killed {moment} each of {at} writes")
    assert at > 12


@pytest.mark.row("A12")
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_worker_that_dies_in_a_rotation_makes_one_generation_of_it(
    registered: Registered, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 2.0)
    await registered.plane()
    ref = await registered.ready(catalog=None)
    hand, user = registered.hand(ref, "user")
    at, generation = 0, 1
    async with registered.playing():
        while True:
            mark = {"metadata": {"annotations": {children.GENERATION: ""}}}
            await registered.admin.patch(hand.kind, registered.world.plane_ns, user, mark)
            died = await killed_at(registered, ref, at, moment)
            generation += 1
            await registered.one_pass(ref)
            await registered.passes_until_ready(ref)
            status = await registered.status(ref)
            assert status["account"]["passwordGeneration"] == generation
            new = await registered.secret(registered.world.plane_ns, delivery.password_name(ref, generation))
            consumer = await registered.secret(ref.namespace, "images-credentials")
            assert new is not None
            assert consumer is not None
            assert new["password"] == consumer["password"]
            assert await registered.names("Secret") == [
                "Secret/images-credentials", f"Secret/password-v{generation}", "Secret/source",
            ]  # fmt: skip
            if not died:
                break
            at += 1
    assert at > 4


# -- two orders for one thing -----------------------------------------------------------------------------------


def _blocks(name: str) -> dict[str, Any]:
    return {
        "catalog": {"serviceType": "image", "serviceName": name, "endpoints": CATALOG["endpoints"]},
        "account": {"userName": name, "project": {"name": f"{name}-project", "create": True}},
    }


@pytest.mark.row("A24")
@pytest.mark.parametrize("at", range(8))
async def test_of_two_orders_one_held_back_at_each_of_its_writes_exactly_one_creates(
    registered: Registered, at: int
) -> None:
    """Both were told that nothing of the name exists; K-ORC would take over what the other has made."""
    await registered.plane()
    slow = await registered.order("first", **_blocks("glance"))
    quick = await registered.order("second", **_blocks("Glance"))
    for ref in (slow, quick):
        await registered.one_pass(ref)
        for suffix in ("service-probe", "user-probe", "project-probe"):
            hand, name = registered.hand(ref, suffix)
            await hand.absent(name)
    tasks = {ref: await registered.world.task(ref) for ref in (slow, quick)}
    reached, go, written = asyncio.Event(), asyncio.Event(), 0
    meddled = Meddled(registered.world.clusters.management)

    async def hold(call: Call) -> None:
        nonlocal written
        if call.writes:
            if written == at:
                reached.set()
                await go.wait()
            written += 1

    meddled.before = hold
    held = registered.through(meddled)
    registered.through(None)

    async def decide(steps: Any, ref: OrderRef) -> dict[str, str]:
        found = {}
        for step in (steps.provision_catalog, steps.accounts.provision_account):
            (verdict,) = (await run(step, tasks[ref])).verdicts
            found[verdict.type] = verdict.reason
        return found

    slowly = asyncio.create_task(decide(held, slow))
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait([slowly, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    fast = await decide(registered.world.services, quick)
    go.set()
    said = {slow: await slowly, quick: fast}
    names = [item["metadata"]["name"] for _, item in await registered.children()]
    for suffix, type_, collision in (
        ("service", "CatalogReady", "ServiceCollision"),
        ("user", "AccountReady", "ServiceAccountCollision"),
        ("project", "AccountReady", "ServiceAccountCollision"),
    ):
        winners = [ref for ref in (slow, quick) if registered.name(ref, suffix) in names]
        assert len(winners) <= 1, suffix
        if suffix == "service":
            assert len(winners) == 1
        losers = [ref for ref in (slow, quick) if ref not in winners]
        if winners:
            assert [said[ref][type_] for ref in losers] == [collision], suffix
    holders = {each["spec"]["holderIdentity"] for each in await registered.leases()}
    assert holders <= {slow.workflow_id, quick.workflow_id}


@pytest.mark.row("A24")
async def test_a_project_order_and_a_registration_claim_the_same_project(registered: Registered) -> None:
    await registered.plane()
    await registered.world.assign("")
    async with registered.playing():
        first = await registered.world.order("finance", "Imaging")
        await registered.world.one_pass(first)
        await registered.world.passes_until(first, "ProjectProvisioned")
        # What K-ORC would say of the name is left out: the claim decides alone.
        del registered.korc.keystone.rows["Project", ("cp-domain-default", "Imaging")]
        ref = await registered.order(catalog=None)
        for _ in range(3):
            await registered.one_pass(ref)
    assert (await registered.reasons(ref))[1] == "ServiceAccountCollision"
    assert "c5c3-claim-" in await registered.message(ref, "AccountReady")


# -- crossing over ----------------------------------------------------------------------------------------------


def eight_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class Reference:
    """What the reference operator leaves of a registration, from contracts 3.1, 3.2, 4.6 and 4.7 alone."""

    def __init__(self, registered: Registered, uid: str) -> None:
        self.r, self.ns, self.plane = registered, registered.world.order_ns, registered.world.plane_ns
        self.p = f"images-{eight_hex(f'{self.ns}/images')}-registration-"
        self.labels = {"c5c3.io/keystoneservice-name": "images", "c5c3.io/keystoneservice-namespace": self.ns}
        self.owner = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "name": "images", "uid": uid,
                      "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        self.password = "Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9"
        self.key = f"openstack/keystone/{self.ns}/images/service-accounts/credentials"
        self.document = "\n".join([
            "clouds:", '  "admin":', "    auth:",
            f'      auth_url: "http://cp-keystone.{self.plane}.svc:5000/v3"', '      username: "images"',
            f'      password: "{self.password}"', '      project_name: "imaging"', '      user_domain_name: "Default"',
            '      project_domain_name: "Default"', '    region_name: "RegionOne"', "    endpoint_type: internal",
            "    identity_api_version: 3", "",
        ])  # fmt: skip
        self.digest = hashlib.sha256(self.document.encode()).hexdigest()

    def korc(self) -> dict[str, Object]:
        cred = {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
        cloud = {"secretName": "cp-admin-password-cloud", "cloudName": "admin"}

        def managed(**resource: Any) -> Object:
            return {"cloudCredentialsRef": cloud, "managementPolicy": "managed", "resource": resource}

        slug = f"reader-{eight_hex('reader')}"
        return {
            f"Service/{self.p}service": managed(type="image", name="images", enabled=True),
            f"Endpoint/{self.p}endpoint-public": managed(
                interface="public", url="https://image.example.com", serviceRef=f"{self.p}service", enabled=True
            ),
            f"Endpoint/{self.p}endpoint-internal": managed(
                interface="internal", url="http://image.svc:9292", serviceRef=f"{self.p}service", enabled=True
            ),
            f"Project/{self.p}project": managed(name="imaging", domainRef="cp-domain-default"),
            f"User/{self.p}user": managed(
                name="images", domainRef="cp-domain-default", defaultProjectRef=f"{self.p}project",
                passwordRef=f"{self.p}password-v1",
            ),
            f"Role/{self.p}role-{slug}": {
                "cloudCredentialsRef": cred, "managementPolicy": "unmanaged", "import": {"filter": {"name": "reader"}},
            },
            f"RoleAssignment/{self.p}assign-{slug}": managed(
                roleRef=f"{self.p}role-{slug}", userRef=f"{self.p}user", projectRef=f"{self.p}project"
            ),
        }  # fmt: skip

    def push(self) -> Object:
        return {
            "deletionPolicy": "Delete",
            "secretStoreRefs": [{"kind": "SecretStore", "name": "openbao-tenant-store"}],
            "selector": {"secret": {"name": f"{self.p}source"}},
            "data": [{"match": {"remoteRef": {"remoteKey": self.key}}}],
        }

    def fetch(self) -> Object:
        data = [{"secretKey": k, "remoteRef": {"key": self.key, "property": k}} for k in ("password", "clouds.yaml")]
        return {
            "refreshInterval": "1h",
            "secretStoreRef": {"kind": "SecretStore", "name": "openbao-tenant-store"},
            "target": {"name": "images-credentials", "creationPolicy": "Owner"},
            "data": data,
        }

    def source(self) -> dict[str, str]:
        return {
            "password": self.password, "username": "images", "project_name": "imaging", "user_domain_name": "Default",
            "project_domain_name": "Default", "auth_url": f"http://cp-keystone.{self.plane}.svc:5000/v3",
            "region_name": "RegionOne", "clouds.yaml": self.document,
        }  # fmt: skip

    def secret(self, name: str, namespace: str, data: dict[str, str]) -> Object:
        owners = {"ownerReferences": [self.owner]} if namespace == self.ns else {}
        encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
        return {"metadata": {"name": name, "namespace": namespace, "labels": self.labels, **owners}, "data": encoded}

    async def lay_down(self) -> None:
        """Everything there and done, as it is after the reference operator has read Ready."""
        admin, keystone = self.r.admin, self.r.korc.keystone
        await admin.create(SECRET, self.secret(f"{self.p}password-v1", self.plane, {"password": self.password}))
        await admin.create(SECRET, self.secret(f"{self.p}source", self.ns, self.source()))
        for name, spec in self.korc().items():
            kind, _, child = name.partition("/")
            mark = {"cobaltcore.c5c3.io/password-generation": "1"} if kind == "User" else {}
            meta = {"name": child, "namespace": self.plane, "labels": self.labels, "annotations": mark}
            await admin.apply(KINDS[kind], {"metadata": meta, "spec": spec}, force=True)
            applied = {"appliedPasswordRef": f"{self.p}password-v1"} if kind == "User" else {}
            identity = {"Service": ("image", "images"), "Project": ("cp-domain-default", "imaging"),
                        "User": ("cp-domain-default", "images")}.get(kind, (child,))  # fmt: skip
            await self.r.korc.of(kind).available(child, keystone.add(kind, *identity), resource=applied)
        # The reference leaves its labels off these two.
        mark = {"c5c3.io/keystoneservice-push-hash": self.digest}
        await admin.apply(PUSH_SECRET, self.delivery(f"{self.p}backup", self.push(), mark), force=True)
        pushed = await self.r.eso.push(f"{self.p}backup")
        mark = {"external-secrets.io/force-sync": f"{self.digest}/{pushed['status']['syncedResourceVersion']}"}
        await admin.apply(EXTERNAL_SECRET, self.delivery("images-credentials", self.fetch(), mark), force=True)
        await self.r.eso.fetch("images-credentials")

    def delivery(self, name: str, spec: Object, mark: dict[str, str]) -> Object:
        meta = {"name": name, "namespace": self.ns, "ownerReferences": [self.owner], "annotations": mark}
        return {"metadata": meta, "spec": spec}


async def a_registration_of_the_reference(registered: Registered) -> tuple[OrderRef, Reference]:
    await registered.plane()
    ref = await registered.order(account={**ACCOUNT, "userName": "images"})
    uid = (await registered.world.live(ref))["metadata"]["uid"]
    left = Reference(registered, uid)
    await left.lay_down()
    finalized = {"metadata": {"finalizers": ["c5c3.io/keystoneservice-teardown"]}}
    await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, finalized)
    now = "2026-01-01T00:00:00Z"
    said = [("CatalogReady", "CatalogRegistered"), ("AccountReady", "AccountProvisioned"), ("Ready", "AllReady")]
    conditions = [
        {"type": type_, "status": "True", "reason": reason, "message": "by the reference", "observedGeneration": 1,
         "lastTransitionTime": now}
        for type_, reason in said
    ]  # fmt: skip
    ids = {}
    for kind, name in (("Service", "service"), ("User", "user"), ("Project", "project"),
                       ("Endpoint", "endpoint-public"), ("Endpoint", "endpoint-internal")):  # fmt: skip
        ids[name] = (await registered.korc.of(kind).there(f"{left.p}{name}"))["status"]["id"]
    status = {
        "observedGeneration": 1,
        "conditions": conditions,
        "catalog": {
            "serviceID": ids["service"],
            "endpoints": [
                {"interface": "public", "id": ids["endpoint-public"]},
                {"interface": "internal", "id": ids["endpoint-internal"]},
            ],
        },
        "account": {
            "secretName": "images-credentials", "userID": ids["user"], "projectID": ids["project"],
            "passwordGeneration": 1,
        },
    }  # fmt: skip
    await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, {"status": status}, sub="status")
    return ref, left


@pytest.mark.row("S30")
@pytest.mark.parametrize("known", [True, False], ids=["with its status", "without its status"])
async def test_a_registration_of_the_reference_is_carried_on_without_a_write_to_any_object(
    registered: Registered, known: bool
) -> None:
    ref, _ = await a_registration_of_the_reference(registered)
    if not known:  # one that was just restored, say
        await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, {"status": None}, sub="status")
    before = await registered.versions()
    audit = Audit(registered.world.stack)
    for _ in range(3):
        await registered.one_pass(ref)
    assert await registered.versions() == before
    asked = writes(await audit.asked(registered.world.plane_ns, registered.world.order_ns))
    assert all("keystoneservices/status" in each for each in asked), asked
    assert len(asked) == 1, "our own words"
    live = await registered.world.live(ref)
    assert {c["type"]: c["reason"] for c in live["status"]["conditions"]} == {
        "CatalogReady": "CatalogRegistered", "AccountReady": "AccountProvisioned", "Ready": "AllReady",
    }  # fmt: skip
    if known:
        assert {c["lastTransitionTime"] for c in live["status"]["conditions"]} == {"2026-01-01T00:00:00Z"}
    # And it rotates, and ends, as one of ours.
    async with registered.playing():
        hand, user = registered.hand(ref, "user")
        mark = {"metadata": {"annotations": {children.GENERATION: ""}}}
        await registered.admin.patch(hand.kind, registered.world.plane_ns, user, mark)
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
        assert (await registered.status(ref))["account"]["passwordGeneration"] == 2
    await registered.removed(ref)
    assert await registered.names() == []
    assert registered.eso.bao == {}


@pytest.mark.row("S30")
async def test_and_back_what_we_leave_is_what_the_reference_would_write(registered: Registered) -> None:
    """Name for name and field for field, so that its applies change nothing; the claims are Leases it does not know."""
    await registered.plane()
    ref = await registered.order(account={**ACCOUNT, "userName": "images"})
    async with registered.playing():
        await registered.passes_until_ready(ref)
    uid = (await registered.world.live(ref))["metadata"]["uid"]
    expected = Reference(registered, uid)
    data = await registered.secret(registered.world.plane_ns, f"{expected.p}password-v1")
    assert data is not None
    expected.document = expected.document.replace(expected.password, b64decode(data["password"]).decode())
    expected.password = b64decode(data["password"]).decode()
    expected.digest = hashlib.sha256(expected.document.encode()).hexdigest()
    found = {f"{kind}/{item['metadata']['name']}": item for kind, item in await registered.children()}
    korc = expected.korc()
    others = {
        f"Secret/{expected.p}password-v1", f"Secret/{expected.p}source", f"PushSecret/{expected.p}backup",
        "ExternalSecret/images-credentials", "Secret/images-credentials",
    }  # fmt: skip
    assert {name for name in found if not name.startswith("Lease")} == set(korc) | others
    for name, spec in korc.items():
        live = found[name]
        assert live["spec"] == spec, name
        assert live["metadata"]["labels"] == expected.labels
        assert "ownerReferences" not in live["metadata"]
        managers = {each["manager"] for each in live["metadata"]["managedFields"] if each["operation"] == "Apply"}
        assert "cobaltcore-operator" in managers
    user = found[f"User/{expected.p}user"]["metadata"]
    assert user["annotations"] == {"cobaltcore.c5c3.io/password-generation": "1"}
    push, fetch = found[f"PushSecret/{expected.p}backup"], found["ExternalSecret/images-credentials"]
    assert _included(push["spec"], expected.push())
    assert _included(fetch["spec"], expected.fetch())
    assert push["metadata"]["annotations"] == {"c5c3.io/keystoneservice-push-hash": expected.digest}
    synced = f"{expected.digest}/{push['status']['syncedResourceVersion']}"
    assert fetch["metadata"]["annotations"] == {"external-secrets.io/force-sync": synced}
    for live in (push, fetch, found[f"Secret/{expected.p}source"]):
        assert live["metadata"]["ownerReferences"] == [expected.owner]
    source = found[f"Secret/{expected.p}source"]
    assert {k: b64decode(v).decode() for k, v in source["data"].items()} == expected.source()
    assert await registered.admin.list(LEASE, registered.world.plane_ns)


def _included(live: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and _included(live[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_included, live, wanted))
    return bool(live == wanted)


# -- nothing secret leaves a step -------------------------------------------------------------------------------


@pytest.mark.row("T07")
async def test_no_value_of_a_secret_is_in_any_answer_status_event_or_log(
    registered: Registered, caplog: pytest.LogCaptureFixture
) -> None:
    """What a step answers is what Temporal keeps for ever."""
    caplog.set_level(0)
    await registered.plane()
    answers: list[str] = []
    ref = await registered.order(account={**ACCOUNT, "rotation": {"mode": "Scheduled"}})
    secrets: set[str] = set()

    async def gather() -> None:
        for namespace in (registered.world.plane_ns, registered.world.order_ns):
            for item in (await registered.admin.list(SECRET, namespace))["items"]:
                for key, value in (item.get("data") or {}).items():
                    if key in ("password", "clouds.yaml"):
                        secrets.update((value, b64decode(value).decode()))

    async def one_pass() -> None:
        task = await registered.world.task(ref)
        outcome = await run(registered.steps.accounts.provision_account, task)
        known = task.order.model_copy(update={"status": {**task.order.status, **outcome.fields}})
        published = await run(registered.steps.accounts.publish_account, task.model_copy(update={"order": known}))
        look = await registered.world.services.look(task)
        for each in (task, outcome, published, look.outcome):
            answers.append(json.dumps([p.data.decode() for p in await pydantic_data_converter.encode([each])]))
        await gather()

    async with registered.playing():
        for turn in range(3):
            await registered.passes_until_ready(ref)
            await one_pass()
            if turn == 1:
                hand, user = registered.hand(ref, "user")
                mark = {"metadata": {"annotations": {children.GENERATION: ""}}}
                await registered.admin.patch(hand.kind, registered.world.plane_ns, user, mark)
                await one_pass()
                await registered.one_pass(ref)
    assert len({each for each in secrets if len(each) == 43}) == 2, "both generations"
    live = json.dumps(await registered.world.live(ref))
    events = json.dumps((await registered.admin.list(EVENT, ref.namespace))["items"])
    ours = "\n".join(
        f"{record.getMessage()} {record.__dict__}" for record in caplog.records if record.name.startswith("activities")
    )
    assert ours
    for text in (*answers, live, events, ours):
        for value in secrets:
            assert value not in text
            assert b64encode(value.encode()).decode() not in text
