"""What the whole run left in every place that people read: no secret.

This looks back, so its file comes last.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable

import pytest

from deploy.local import kube
from tests.e2e import services
from tests.e2e.stage import ORDERS, Object, Order, Stage, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


@pytest.mark.row("T07")
async def test_no_secret_value_is_in_anything_that_people_read(real_stack: Stage, place: Place) -> None:
    """Searched by value: histories, logs, traces, metrics, orders, events. The search finds what is no secret."""
    marker = unique("kubeconfig-with-a-secret")
    await kube.apply(real_stack.stack, "management", [registration("unreadable", f"users: [{marker}")])
    order = await place("searched").place()
    await order.is_ready()

    async def traced() -> bool:
        return any(order.name.encode() in body for body in real_stack.traces)

    await until(traced, bool, 10)  # spans are sent every five seconds
    try:
        seen = await read_all(real_stack)
    finally:
        await real_stack.delete("management", "secrets", "c5c3-clusters", "unreadable")

    for place_, texts in seen.items():
        assert texts, f"nothing was read of {place_}"
    for place_ in ("histories", "worker's log", "traces", "orders"):
        assert any(order.name.encode() in text for text in seen[place_]), f"the search would find nothing in {place_}"
    assert len(real_stack.secrets) >= 5
    for value in (*real_stack.secrets, marker):
        raw, encoded = value.encode(), base64.b64encode(value.encode())
        for place_, texts in seen.items():
            hit = next((text for text in texts if raw in text or encoded in text), None)
            assert hit is None, f"a secret value is in {place_}"


async def read_all(stage: Stage) -> dict[str, list[bytes]]:
    """Everything that people read, by place."""
    here = stage.stack
    kinds = (("management", ORDERS), ("target", ORDERS), ("management", services.ORDERS))
    orders = [one for cluster, kind in kinds for one in await kube.items(here, cluster, kind)]
    events = [*await kube.items(here, "management", "events"), *await kube.items(here, "target", "events")]
    names = [await visibility(stage)]
    metrics = []
    for part in ("worker", "watcher"):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{here.ports[part]}/metrics", timeout=10) as answer:
            metrics.append(answer.read())
    return {
        "histories": list((await stage.histories()).values()),
        "visibility": names,
        "worker's log": [stage.log("worker").encode()],
        "watcher's log": [stage.log("watcher").encode()],
        "traces": list(stage.traces),
        "metrics": metrics,
        "orders": [json.dumps(one).encode() for one in orders],
        "events": [json.dumps(events).encode()],
    }


async def visibility(stage: Stage) -> bytes:
    """What the lists of the UI hold: search attributes and memos of every run."""
    return "\n".join([str(run.raw_info) async for run in stage.temporal.list_workflows()]).encode()


def registration(name: str, kubeconfig: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": "c5c3-clusters",
            "labels": {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
        },
        "data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()},
    }
