"""Names that do not fit a label value: a stated reason, nothing created, and a deletion that is not held up.

Our admission rules refuse them; an API server without those rules (an older definition, somebody else's) does not.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities.cluster import KEYSTONE_PROJECT, SECRET
from activities.errors import ClusterError
from deploy.local import kube
from tests.audit import Audit, writes
from tests.lawless import an_order, without_rules
from tests.world import REGISTRATIONS, TARGET, World, run
from workflows.keystoneproject import children, reasons
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import State

pytestmark = [pytest.mark.api, pytest.mark.row("P10")]


@pytest_asyncio.fixture
async def lawless(world: World) -> AsyncIterator[World]:
    """The target cluster takes any order."""
    await world.plane()
    async with without_rules(world):
        yield world


async def test_63_bytes_are_served_and_64_are_refused_at_admission(world: World) -> None:
    await world.plane()
    for name in ("x" * 64, "x" * 253):
        with pytest.raises(ClusterError, match=r"metadata\.name must be at most 63 bytes"):
            await world.order(name, "short")
    ref = await world.ready("a." + "x" * 61, "short")
    assert len(ref.name) == 63
    assert all(len(name) <= 253 for name in await world.names())
    await world.removed(ref)
    assert await world.names() == []


async def test_longer_names_get_a_reason_and_go_at_once_where_no_rule_stops_them(lawless: World) -> None:
    world = lawless
    audit = Audit(world.stack)
    for name in ("x" * 64, "y" * 63 + ".z" * 95):
        await world.target.create(KEYSTONE_PROJECT, an_order(world, name))
        ref = OrderRef(kind="KeystoneProject", cluster=TARGET, namespace=world.order_ns, name=name)
        admitted = await world.one_pass(ref)
        (verdict,) = admitted.refused
        assert verdict.reason == reasons.ERROR
        assert verdict.again is None
        assert "63" in verdict.message
        assert (await world.conditions(ref))["ProjectReady"]["reason"] == reasons.ERROR
        assert not (await world.live(ref))["metadata"].get("finalizers")
        # One that carries our finalizer all the same, from whoever put it there, is released at once.
        body = {"metadata": {"finalizers": [children.FINALIZER]}}
        await world.target.patch(KEYSTONE_PROJECT, world.order_ns, name, body)
        await world.delete(ref)
        assert (await world.torn_down(ref)).left == ()
        assert await world.find(ref) is None
    assert writes(await audit.asked(world.plane_ns)) == []


async def test_a_cluster_name_too_long_is_said_never_looked_at_again_and_holds_no_deletion(world: World) -> None:
    await world.plane()
    long, fits = "c" * 64, "d" * 63
    kubeconfig = await asyncio.to_thread(kube.kubeconfig(world.stack, "target", "operator").read_bytes)
    for name in (long, fits):
        meta = {"name": name, "namespace": REGISTRATIONS, "labels": {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"}}  # fmt: skip  # noqa: E501
        data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
        await world.admin.create(SECRET, {"metadata": meta, "data": data})
    try:
        await world.assign(long, fits)
        audit = Audit(world.stack)
        ref = (await world.order(cluster=long)).model_copy(update={"cluster": long})
        admitted = await world.one_pass(ref)
        (verdict,) = admitted.refused
        assert (verdict.reason, verdict.again) == ("ClusterNameTooLong", None)
        assert long in verdict.message
        assert await world.reason(ref) == "ClusterNameTooLong"
        assert not (await world.live(ref))["metadata"].get("finalizers")
        assert await audit.asked(world.plane_ns) == []
        body = {"metadata": {"finalizers": [children.FINALIZER]}}
        await world.target.patch(KEYSTONE_PROJECT, world.order_ns, ref.name, body)
        await world.delete(ref)
        assert (await world.torn_down(ref)).left == ()
        assert (await run(world.orders.examine, ref)).state is State.GONE
        # The longest that fits is served, and its label says so.
        served = await world.ready("edge", cluster=fits)
        (project,) = await world.children()
        assert project["metadata"]["labels"]["c5c3.io/keystoneproject-cluster"] == fits
        await world.removed(served)
    finally:
        for name in (long, fits):
            live = await world.admin.get(SECRET, REGISTRATIONS, name)
            if live is not None:
                await world.admin.delete(SECRET, REGISTRATIONS, name, live["metadata"]["uid"])
