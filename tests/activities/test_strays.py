"""A registration's labels on what it does not declare: back out of a backup, or written by a tenant."""

from __future__ import annotations

import pytest

from activities import projection
from activities.cluster import EXTERNAL_SECRET, KORC_ROLE, KORC_USER, PUSH_SECRET, SECRET, Object
from tests.registered import Registered
from workflows.keystoneservice import children, delivery
from workflows.scaffold.order import OrderRef

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


def restored(registered: Registered, ref: OrderRef, suffix: str, namespace: str = "") -> Object:
    """An object's marks as a backup has them."""
    where = namespace or registered.world.plane_ns
    return {"name": registered.name(ref, suffix), "namespace": where, "labels": children.labels(ref)}


def imported(**filter_: str) -> Object:
    cloud = {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
    return {"cloudCredentialsRef": cloud, "managementPolicy": "unmanaged", "import": {"filter": filter_}}


@pytest.mark.row("S13", "S14")
async def test_a_child_that_comes_back_goes_with_the_next_pass_over_a_ready_order(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    before = await registered.names()
    await registered.admin.create(
        KORC_ROLE, {"metadata": restored(registered, ref, "role-old"), "spec": imported(name="reader")}
    )
    await registered.admin.create(
        SECRET, {"metadata": restored(registered, ref, "password-v7"), "data": {"password": "b2xk"}}
    )
    async with registered.playing():
        admitted = await registered.one_pass(ref)
        assert admitted.found is None, "the look sees that something is to be done"
        await registered.passes_until_ready(ref)
    assert await registered.names() == before


@pytest.mark.row("S13")
async def test_a_block_that_comes_back_undeclared_goes(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready(account=None)
    before = await registered.names()
    made = {
        "metadata": restored(registered, ref, "user"),
        "spec": imported(name="images", domainRef="cp-domain-default"),
    }
    await registered.admin.create(KORC_USER, made)
    store = {"kind": "SecretStore", "name": "openbao-tenant-store"}
    push = {
        "deletionPolicy": "Delete", "secretStoreRefs": [store],
        "selector": {"secret": {"name": delivery.source_name(ref)}},
        "data": [{"match": {"remoteRef": {"remoteKey": delivery.remote_key(ref)}}}],
    }  # fmt: skip
    at_home = restored(registered, ref, "backup", ref.namespace)
    await registered.admin.create(PUSH_SECRET, {"metadata": at_home, "spec": push})
    async with registered.playing():
        await registered.one_pass(ref)
        await registered.passes_until_ready(ref)
    assert await registered.names() == before


@pytest.mark.row("S12", "S14")
async def test_a_tenants_secret_under_a_passwords_name_hides_nothing(registered: Registered) -> None:
    """In the order's own namespace, with both labels: it is neither the password nor in the way of its removal."""
    await registered.plane()
    ref = await registered.ready()
    hostile = restored(registered, ref, "password-v1", ref.namespace)
    await registered.admin.create(SECRET, {"metadata": hostile, "data": {"password": "dGhlaXJz"}})
    before = await registered.versions()
    admitted = await registered.one_pass(ref)
    assert admitted.found is not None
    assert await registered.versions() == before
    await registered.world.delete(ref)
    async with registered.playing():
        while (await registered.torn_down(ref)).left:
            pass
    assert await registered.admin.get(SECRET, registered.world.plane_ns, hostile["name"]) is None
    assert [name for name in await registered.names() if name.startswith("Secret/password")] == []


@pytest.mark.row("S12")
async def test_strangers_delivery_objects_of_other_names_are_nobodys(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.ready()
    meta = {"name": "mine", "namespace": ref.namespace, "labels": children.labels(ref)}
    store = {"kind": "SecretStore", "name": "openbao-tenant-store"}
    data = [{"secretKey": "x", "remoteRef": {"key": "mine", "property": "x"}}]
    spec = {"refreshInterval": "1h", "secretStoreRef": store, "target": {"name": "mine"}, "data": data}
    await registered.admin.create(EXTERNAL_SECRET, {"metadata": meta, "spec": spec})
    before = await registered.versions()
    await registered.one_pass(ref)
    assert await registered.versions() == before
