"""The gates before a registration's own steps: who is served, what a refusal reads, that nothing moves behind it."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.cluster import CONTROL_PLANE, KEYSTONE_SERVICE, PUSH_SECRET
from activities.clusters import Clusters
from activities.errors import ClusterError, NotServed
from activities.keystoneservice import KeystoneServices
from activities.orders import Orders
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.registered import CATALOG, Registered
from tests.world import REGISTRATIONS, run
from workflows.keystoneservice import children
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import State

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


def status_only(asked: list[str]) -> bool:
    return all("keystoneservices/status" in each for each in asked)


@pytest.mark.row("S01")
async def test_a_vanished_order_ends_quietly_and_no_other_error_reads_so(registered: Registered) -> None:
    ref = OrderRef(kind="KeystoneService", cluster="", namespace=registered.world.order_ns, name="nobody")
    for step in (registered.world.orders.admit, registered.world.orders.examine):
        assert (await run(step, ref)).state is State.GONE
    for error in (
        ClusterError("reading", 403, "Forbidden", "no right"),
        ClusterError("reading", 500, "InternalError", "no"),
        ClusterError("reading", 0, "TimeoutError", ""),
        NotServed("reading", 404, "NotFound", "the server could not find the requested resource"),
    ):
        meddled = Meddled(registered.world.clusters.management)

        async def refuse(call: Call, error: ClusterError = error) -> None:
            if call.plural == "keystoneservices":
                raise error

        meddled.before = refuse
        clusters = Clusters(meddled, REGISTRATIONS)
        orders = Orders(clusters, {"KeystoneService": KeystoneServices(clusters)})
        for step in (orders.admit, orders.examine):
            with pytest.raises(ApplicationError) as caught:
                await run(step, ref)
            assert caught.value.non_retryable is (not error.passing)


@pytest.mark.row("S02", "S03", "S04")
async def test_a_dangling_plane_is_named_on_declared_blocks_and_heals(registered: Registered) -> None:
    ref = await registered.order(catalog=None)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("CatalogNotDeclared", "ControlPlaneNotFound")
    assert f"{registered.world.plane_ns}/cp" in await registered.message(ref, "AccountReady")
    live = await registered.world.live(ref)
    # The finalizer is there before the plane is: whatever comes, a deletion finds every child.
    assert live["metadata"]["finalizers"] == [children.FINALIZER]
    assert not {"catalog", "account"} & set(live["status"])
    assert live["status"]["observedGeneration"] == 1
    assert await registered.children() == []
    assert not await registered.moved(ref)
    await registered.plane()
    assert await registered.moved(ref)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert await registered.reasons(ref) == ("CatalogNotDeclared", "AccountProvisioned")
    assert "catalog" not in await registered.status(ref)


@pytest.mark.row("S05", "S06")
async def test_an_unlisted_namespace_gets_nothing_and_is_told_the_field(registered: Registered) -> None:
    await registered.plane(listed=False)
    ref = await registered.order()
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("NamespaceNotAllowed", "NamespaceNotAllowed")
    for type_ in ("CatalogReady", "AccountReady"):
        message = await registered.message(ref, type_)
        for part in (registered.world.order_ns, "spec.korc.serviceRegistrations.allowedNamespaces", "/cp"):
            assert part in message
    asked = await audit.asked(registered.world.plane_ns, registered.world.order_ns)
    beside_the_plane = {(one.verb, one.resource) for one in asked if one.namespace == registered.world.plane_ns}
    assert beside_the_plane == {("get", "controlplanes")}
    assert {each.split(" ")[1] for each in writes(asked)} == {"keystoneservices", "keystoneservices/status"}
    assert await registered.children() == []
    # An absent block equals an empty list.
    body = {"spec": {"korc": {"serviceRegistrations": None}}}
    await registered.admin.patch(CONTROL_PLANE, registered.world.plane_ns, "cp", body)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("NamespaceNotAllowed", "NamespaceNotAllowed")
    assert not await registered.moved(ref)
    await registered.listed(registered.world.order_ns)
    assert await registered.moved(ref)
    # Deleted while it was never served: gone at once.
    await registered.listed()
    await registered.removed(ref)


@pytest.mark.row("S06")
async def test_the_planes_own_and_its_services_namespaces_may_register(registered: Registered) -> None:
    await registered.plane(listed=False)
    own = await registered.order("own", namespace=registered.world.plane_ns, account=None)
    dedicated = await registered.order("dedicated", account=None)
    assert not (await run(registered.world.orders.admit, own)).refused
    assert (await run(registered.world.orders.admit, dedicated)).refused
    body = {"spec": {"services": {"glance": {"namespace": {"name": registered.world.order_ns}}}}}
    await registered.admin.patch(CONTROL_PLANE, registered.world.plane_ns, "cp", body)
    assert not (await run(registered.world.orders.admit, dedicated)).refused


@pytest.mark.row("S08", "S27")
async def test_an_unready_admin_credential_is_waited_for_and_keeps_what_is_known(registered: Registered) -> None:
    await registered.plane(credential=False)
    ref = await registered.order()
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("WaitingForAdminCredential", "WaitingForAdminCredential")
    assert await registered.children() == []
    await registered.world.credential(True)
    assert await registered.moved(ref)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    before = await registered.status(ref)
    await registered.world.credential(False)
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    after = await registered.status(ref)
    assert (after["catalog"], after["account"]) == (before["catalog"], before["account"])
    asked = await audit.asked(registered.world.plane_ns, registered.world.order_ns)
    assert status_only(writes(asked))


@pytest.mark.row("S07", "S13", "S03")
async def test_what_was_taken_out_of_a_frozen_order_is_swept_when_it_thaws(registered: Registered) -> None:
    """A gate reads NotDeclared on the removed block at once; that is no proof that anything was swept."""
    await registered.plane()
    ref = await registered.ready()
    await registered.listed()
    await registered.one_pass(ref)
    frozen = await registered.versions()
    await registered.edit(ref, account=None)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("NamespaceNotAllowed", "AccountNotDeclared")
    assert await registered.versions() == frozen
    assert "account" not in await registered.status(ref)
    await registered.listed(registered.world.order_ns)
    assert await registered.moved(ref)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    assert await registered.reasons(ref) == ("CatalogRegistered", "AccountNotDeclared")
    assert await registered.names() == [
        "Endpoint/endpoint-internal",
        "Endpoint/endpoint-public",
        *await registered.names("Lease"),
        "Service/service",
    ]
    assert registered.korc.keystone.of("User") == registered.korc.keystone.of("Project") == []
    assert registered.eso.bao == {}


@pytest.mark.row("S28")
async def test_a_definition_that_is_missing_releases_no_finalizer(registered: Registered) -> None:
    """`404` for the kind is not `404` for the plane."""
    await registered.plane()
    ref = await registered.ready()
    await registered.world.delete(ref)
    meddled = Meddled(registered.world.clusters.management)

    async def unserved(call: Call) -> None:
        if call.plural == "controlplanes":
            raise NotServed(str(call), 404, "NotFound", "the server could not find the requested resource")

    meddled.before = unserved
    clusters = Clusters(meddled, REGISTRATIONS)
    orders = Orders(clusters, {"KeystoneService": KeystoneServices(clusters)})
    examined = await run(orders.examine, ref)
    assert examined.plane is None
    assert "could not find the requested resource" in examined.trouble, "the pass ends here, before any removal"
    assert (await registered.world.live(ref))["metadata"]["finalizers"] == [children.FINALIZER]


# -- names that are no label value ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [63, 64, 210])
async def test_a_name_that_is_no_label_value_is_said_creates_nothing_and_goes_at_once(
    registered: Registered, length: int
) -> None:
    await registered.plane()
    # The longest with roles is 198 bytes (V02).
    ref = await registered.order("n" * length, account={"project": {"name": "imaging"}})
    admitted = await registered.one_pass(ref)
    if length == 63:
        assert not admitted.refused
        return
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    assert await registered.reasons(ref) == ("CatalogError", "ServiceAccountError")
    for type_ in ("CatalogReady", "AccountReady"):
        assert "63" in await registered.message(ref, type_)
    assert [verdict.again for verdict in admitted.refused] == [None, None], "nothing but a new order cures it"
    assert not (await registered.world.live(ref))["metadata"].get("finalizers")
    assert await registered.children() == []
    # One that carries our finalizer all the same, from whoever put it there, is released at once, plane or no plane.
    body = {"metadata": {"finalizers": [children.FINALIZER]}}
    await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, body)
    await registered.world.delete(ref)
    assert (await registered.torn_down(ref)).left == ()
    assert await registered.world.find(ref) is None
    asked = await audit.asked(registered.world.plane_ns)
    assert writes(asked) == []


# -- the brake --------------------------------------------------------------------------------------------------


async def pause(registered: Registered, ref: OrderRef, where: str, value: str | None = "true") -> None:
    body = {"metadata": {"annotations": {"c5c3.io/paused": value}}}
    if where == "order":
        await registered.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, body)
    else:
        await registered.admin.patch(CONTROL_PLANE, registered.world.plane_ns, "cp", body)


@pytest.mark.row("P16")
@pytest.mark.parametrize("where", ["order", "plane"])
async def test_a_new_order_that_is_paused_gets_nothing_but_its_status(registered: Registered, where: str) -> None:
    await registered.plane()
    ref = await registered.order()
    await pause(registered, ref, where)
    audit = Audit(registered.world.stack)
    await registered.one_pass(ref)
    await registered.one_pass(ref)
    asked = writes(await audit.asked(registered.world.plane_ns, registered.world.order_ns))
    assert status_only(asked), asked
    assert len(asked) == 1
    assert await registered.reasons(ref) == ("ProbingForCollision", "ProbingForCollision")
    ready = (await registered.world.conditions(ref))["Ready"]
    assert ready["status"] == "False"
    assert "c5c3.io/paused" in ready["message"]
    assert ("ControlPlane" in ready["message"]) == (where == "plane")
    assert not await registered.moved(ref)
    await pause(registered, ref, where, None)
    assert await registered.moved(ref)
    async with registered.playing():
        await registered.passes_until_ready(ref)


@pytest.mark.row("P16")
@pytest.mark.parametrize("where", ["order", "plane"])
async def test_a_served_order_that_is_paused_is_looked_at_and_not_repaired_nor_rotated_nor_deleted(
    registered: Registered, where: str
) -> None:
    await registered.plane()
    ref = await registered.ready()
    await pause(registered, ref, where)
    hand, user = registered.hand(ref, "user")
    mark = {"metadata": {"annotations": {children.GENERATION: ""}}}
    await registered.admin.patch(hand.kind, registered.world.plane_ns, user, mark)
    await registered.edit(ref, catalog={**CATALOG, "endpoints": CATALOG["endpoints"][:1]})
    _, external = await registered.delivery(ref)
    assert external is not None
    before = await registered.versions()
    await registered.one_pass(ref)
    assert await registered.versions() == before
    assert await registered.reasons(ref) == ("WaitingForCatalog", "WaitingForServiceAccounts")
    assert "c5c3.io/paused" in await registered.message(ref, "Ready")
    await registered.world.delete(ref)
    assert "c5c3.io/paused" in (await registered.world.removal(ref)).order.paused
    await pause(registered, ref, where, None)
    await registered.removed(ref)


@pytest.mark.row("P16")
async def test_a_pause_that_comes_after_the_look_holds_the_first_write_of_every_step(registered: Registered) -> None:
    await registered.plane()
    ref = await registered.order()
    task = await registered.world.task(ref)
    await pause(registered, ref, "order")
    for step in (registered.steps.provision_catalog, registered.steps.accounts.provision_account):
        with pytest.raises(ApplicationError) as caught:
            await run(step, task)
        assert caught.value.type == "OrderMoved"
    assert await registered.children() == []
    await pause(registered, ref, "order", None)
    async with registered.playing():
        await registered.passes_until_ready(ref)
    task = await registered.world.task(ref)
    push, _ = await registered.delivery(ref)
    assert push is not None
    await registered.admin.patch(
        PUSH_SECRET, ref.namespace, push["metadata"]["name"],
        {"metadata": {"annotations": {"c5c3.io/keystoneservice-push-hash": "edited"}}},
    )  # fmt: skip
    await pause(registered, ref, "order")
    with pytest.raises(ApplicationError) as caught:
        await run(registered.steps.accounts.publish_account, task)
    assert caught.value.type == "OrderMoved"
    await pause(registered, ref, "order", None)
    await registered.world.delete(ref)
    removal = await registered.world.removal(ref)
    await pause(registered, ref, "order")
    with pytest.raises(ApplicationError) as caught:
        await run(registered.steps.remove_registration, removal)
    assert caught.value.type == "OrderMoved"
