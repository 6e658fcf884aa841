"""An order that the reference operator served is carried on as it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from deploy.local import kube
from tests.audit import requests
from tests.e2e.stage import FINALIZER, ORDERS, Object, Order, Stage, condition, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


@pytest.mark.row("S30")
async def test_an_order_of_the_reference_operator_is_carried_on_without_a_write(
    real_stack: Stage, place: Place
) -> None:
    """Its children, finalizer and status as that operator leaves them, made while our programs are down."""
    here = real_stack.stack
    order = place("inherited")
    async with real_stack.without("watcher"):
        child: Object = {
            "apiVersion": "openstack.k-orc.cloud/v1alpha1",
            "kind": "Project",
            "metadata": {"name": order.child, "namespace": "openstack", "labels": order.labels},
            "spec": {
                "managementPolicy": "managed",
                "cloudCredentialsRef": {"secretName": "cp-admin-password-cloud", "cloudName": "admin"},
                "resource": {"name": order.name, "domainRef": "cp-domain-default"},
            },
        }
        path = f"/apis/openstack.k-orc.cloud/v1alpha1/namespaces/openstack/projects/{order.child}"
        query = "?fieldManager=cobaltcore-operator&force=true"
        await kube.call(here, "management", "PATCH", path + query, child, content="application/apply-patch+yaml")
        await until(order.managed, kube.condition("Available"))
        (row,) = await order.rows()
        await order.place()
        meta: Object = {"metadata": {"finalizers": [FINALIZER]}}
        await kube.patch(here, "management", ORDERS, "team-a", order.name, meta)
        since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        words = {"lastTransitionTime": since, "status": "True", "observedGeneration": 1}
        status: Object = {
            "conditions": [
                {
                    "type": "ProjectReady",
                    "reason": "ProjectProvisioned",
                    "message": "as the reference says it",
                    **words,
                },
                {"type": "Ready", "reason": "AllReady", "message": "as the reference says it", **words},
            ],
            "observedGeneration": 1,
            "projectID": row["id"],
            "projectName": order.name,
            "domainName": "Default",
        }
        await kube.patch(here, "management", ORDERS, "team-a", order.name, {"status": status}, "status")
        before, live_before = await order.managed(), await order.live()
        assert before is not None
        assert live_before is not None

    await until(order.open_runs, lambda runs: len(runs) == 1, 30)
    await until(order.describe, lambda found: bool(found["ready"]), 30)
    after, live_after = await order.managed(), await order.live()
    assert after is not None
    assert live_after is not None
    assert after == before
    assert live_after["spec"] == live_before["spec"]
    assert live_after["metadata"]["finalizers"] == [FINALIZER]
    assert {**live_after["status"], "conditions": []} == {**live_before["status"], "conditions": []}
    for type_ in ("ProjectReady", "Ready"):
        assert condition(live_after, type_)["lastTransitionTime"] == since
        assert condition(live_after, type_)["reason"] == condition(live_before, type_)["reason"]
    ours = [r for r in requests(here, "management", real_stack.begun) if order.name in r.name]
    assert [r for r in ours if r.verb not in ("get", "list", "watch") and not r.kind.endswith("/status.c5c3.io")] == []

    await order.delete()
    await order.gone()
    await order.left_nothing()
