"""A registration's block that was taken out and put back in meanwhile, on a real API server with K-ORC's own rules."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from datetime import timedelta

import pytest

from activities import projection
from activities.cluster import KEYSTONE_SERVICE, KORC_USER, LEASE, Object
from tests.registered import ACCOUNT, CATALOG, Registered
from workflows.keystoneservice import children, delivery
from workflows.scaffold import gated
from workflows.scaffold.order import OrderRef

pytestmark = [pytest.mark.api, pytest.mark.row("S13")]

OTHER: Object = {"userName": "newer", "project": {"name": "other", "create": True}, "roles": ["member"]}
ENTRY: Object = {**CATALOG, "serviceName": "newer"}


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


async def put_back(registered: Registered, ref: OrderRef, **blocks: Object) -> None:
    """Each block taken out and put back as another, which no pass sees: nothing is given time in between.

    A registration must declare something, so one that has a single block declares an entry of the catalog meanwhile.
    """
    spec = (await registered.world.live(ref))["spec"]
    for block, declared in blocks.items():
        alone = not {"catalog", "account"} <= spec.keys()
        meanwhile = {"catalog": {"serviceType": "meanwhile"}} if alone else {}
        await registered.edit(ref, **{block: None, **meanwhile})
        await registered.edit(ref, **{**dict.fromkeys(meanwhile), block: declared})


async def uid(registered: Registered, ref: OrderRef, suffix: str) -> str:
    hand, name = registered.hand(ref, suffix)
    live = await registered.admin.get(hand.kind, registered.world.plane_ns, name)
    assert live is not None
    return str(live["metadata"]["uid"])


async def claims(registered: Registered, ref: OrderRef) -> int:
    found = (await registered.admin.list(LEASE, registered.world.plane_ns))["items"]
    return sum(each["spec"]["holderIdentity"] == ref.workflow_id for each in found)


async def test_another_identity_is_made_anew_and_the_one_before_is_taken_back(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    keystone = registered.korc.keystone
    before = {each: await uid(registered, ref, each) for each in ("user", "service")}
    await put_back(registered, ref, account=OTHER, catalog=ENTRY)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("WaitingForCatalog", "WaitingForServiceAccounts")
    assert "service 'images' of type 'image'" in await registered.message(ref, "CatalogReady")
    assert "project 'imaging', user 'images'" in await registered.message(ref, "AccountReady")
    status = (await registered.status(ref))["account"]
    assert "passwordGeneration" not in status
    assert keystone.of("User") == ["images"], "nothing is renamed, and nothing made before the former is gone"
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert (keystone.of("User"), keystone.of("Project")) == (["newer"], ["other"])
    assert [row[1] for row in keystone.rows if row[0] == "Service"] == [("image", "newer")]
    assert await claims(registered, ref) == 3, "the names of before are free"
    for each, old in before.items():
        assert await uid(registered, ref, each) != old
    data = await registered.secret(ref.namespace, delivery.consumer_name(ref))
    assert data is not None
    assert 'username: "newer"' in b64decode(data["clouds.yaml"]).decode()
    assert (await registered.status(ref))["account"]["passwordGeneration"] == 1


async def test_what_exists_under_the_new_name_is_a_collision_and_left_alone(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready(catalog=None)
    keystone = registered.korc.keystone
    theirs = keystone.add("User", "cp-domain-default", "newer")
    await put_back(registered, ref, account={**ACCOUNT, "userName": "newer"})
    async with registered.playing():
        for _ in range(8):
            await registered.one_pass(ref)
    assert (await registered.reasons(ref))[1] == "ServiceAccountCollision"
    assert keystone.rows["User", ("cp-domain-default", "newer")] == theirs
    assert theirs not in keystone.passwords
    assert (keystone.of("User"), keystone.of("Project")) == (["newer"], ["imaging"]), "the project is the same"


async def test_two_orders_that_trade_names_do_not_wait_for_each_other(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gives its claim free before it has the other's. A resolved probe is not believed for long here."""
    monkeypatch.setattr(gated, "PROBE_TRUST", timedelta(seconds=1))
    await registered.plane()
    one, two = [
        await registered.ready(name, catalog=None, account={"project": {"name": name, "create": True}})
        for name in ("one", "two")
    ]
    await put_back(registered, one, account={"userName": "two", "project": {"name": "two", "create": True}})
    await put_back(registered, two, account={"userName": "one", "project": {"name": "one", "create": True}})
    async with registered.playing():
        for ref in (one, two):
            await registered.one_pass(ref)
        async with asyncio.timeout(60):
            while {(await registered.world.conditions(ref))["Ready"]["status"] for ref in (one, two)} != {"True"}:
                for ref in (one, two):
                    await registered.one_pass(ref)
                await asyncio.sleep(0.2)
    assert registered.korc.keystone.of("User") == ["one", "two"]


@pytest.mark.parametrize("create", [True, False])
async def test_a_project_that_is_created_or_referenced_now_is_another(registered: Registered, create: bool) -> None:
    """K-ORC never changes a managementPolicy."""
    registered.korc.keystone.add("Project", "cp-domain-default", "given")
    projects = {True: {"name": "made", "create": True}, False: {"name": "given"}}
    await registered.plane()
    ref = await registered.ready(catalog=None, account={"project": projects[not create]})
    await put_back(registered, ref, account={"project": projects[create]})
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert registered.korc.keystone.of("Project") == (["given", "made"] if create else ["given"])


async def test_another_domain_is_another_user(registered: Registered) -> None:
    await registered.plane()
    registered.korc.keystone.add("Domain", "Other")
    ref = await registered.ready(catalog=None)
    for domain in ("Other", ""):
        before = await uid(registered, ref, "user")
        await put_back(registered, ref, account={**ACCOUNT, **({"domainName": domain} if domain else {})})
        async with registered.playing():
            await registered.passes_until_ready(ref)
        assert await uid(registered, ref, "user") != before
        handle = children.domain_name(ref) if domain else "cp-domain-default"
        assert [row[1] for row in registered.korc.keystone.rows if row[0] == "User"] == [(handle, "images")]


async def test_a_child_that_somebody_renamed_is_put_right_in_place(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready(catalog=None)
    before, name = await uid(registered, ref, "user"), registered.name(ref, "user")
    edit = {"spec": {"resource": {"name": "theirs"}}}
    for unsettled in (True, False):
        await registered.admin.patch(KORC_USER, registered.world.plane_ns, name, edit)
        if unsettled:  # the claim tells
            await registered.edit(ref, account={"roles": ["reader", "member"]})
        else:  # and of an order that was found so at this generation nothing has to
            await registered.admin.delete_all(LEASE, registered.world.plane_ns, children.labels(ref))
        async with registered.playing():
            await registered.one_pass(ref)
            await registered.passes_until_ready(ref)
        live = await registered.admin.get(KORC_USER, registered.world.plane_ns, name)
        assert live is not None
        assert (live["metadata"]["uid"], live["spec"]["resource"]["name"]) == (before, "images")


async def test_a_block_that_goes_and_comes_back_as_it_was_is_left_alone(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    before = await registered.versions()
    await put_back(registered, ref, account=ACCOUNT, catalog=CATALOG)
    assert (await registered.admin.get(KEYSTONE_SERVICE, ref.namespace, ref.name) or {})["metadata"]["generation"] > 1
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("CatalogRegistered", "AccountProvisioned")
    assert await registered.versions() == before
