"""What the whole run left in every place that people read: no secret, no refused request, no right without a use.

These tests look back, so their file comes last.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml

from deploy.local import kube
from tests.audit import Request, requests
from tests.e2e import services
from tests.e2e.stage import ORDERS, Object, Order, Stage, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
UNUSED = {
    # Asked only of clusters that enforce owner references; the local stack's do not.
    "keystoneprojects/finalizers.c5c3.io": {"update"},
    "keystoneservices/finalizers.c5c3.io": {"update"},
    "mariadbdatabases/finalizers.c5c3.io": {"update"},
    # Which child an outage latches is chance; the tests that make one see to the project, the service and the user.
    **{
        f"{kind}/status.openstack.k-orc.cloud": {"patch"}
        for kind in ("endpoints", "users", "domains", "roles", "roleassignments")
    },
    # An account that names a domain of its own is tried on an API server without K-ORC.
    "domains.openstack.k-orc.cloud": {"create", "get"},
    # Read after a deletion that came too late for what it was judged on.
    "databases.k8s.mariadb.com": {"get"},
}
ELSEWHERE = {
    # The local stack's planes have their Keystone on the management cluster; these are for one that is placed.
    "databases.k8s.mariadb.com": {"create", "delete", "get", "list", "patch", "watch"},
    "mariadbs.k8s.mariadb.com": {"get"},
}


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


async def test_no_request_of_the_programs_was_refused(real_stack: Stage) -> None:
    """They run as their ServiceAccount; the only refusals are those that a test provoked by taking a right away."""
    for cluster in ("management", "target"):
        asked = requests(real_stack.stack, cluster, real_stack.begun)
        assert asked, "the programs asked nothing: do they run under another name?"
        refused = [
            request
            for request in asked
            if request.code in (401, 403)
            and not any(begun <= request.at <= ended for begun, ended in real_stack.provoked)
        ]
        assert refused == []


async def test_every_right_is_used(real_stack: Stage, request: pytest.FixtureRequest) -> None:
    """A first version of O02: what `deploy/rbac` grants, less what the audit log shows as used, is a written list."""
    if not whole_suite(request):
        pytest.skip("only the whole suite uses every right")
    for cluster in ("management", "target"):
        used = requests(real_stack.stack, cluster)
        unused = {
            resource: left
            for resource, verbs in granted(RBAC / f"{cluster}.yaml").items()
            if (left := {verb for verb in verbs if not uses(used, resource, verb)} - excused(cluster, resource))
        }
        assert unused == {}, f"granted on the {cluster} cluster and never used"


def granted(file: Path) -> dict[str, set[str]]:
    """Verbs by resource, written as in the audit log's requests."""
    found: dict[str, set[str]] = {}
    for one in yaml.safe_load_all(file.read_text()):
        for rule in one.get("rules") or ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    key = f"{resource}.{group}" if group else resource
                    found.setdefault(key, set()).update(rule["verbs"])
    return found


def uses(asked: Iterable[Request], resource: str, verb: str) -> bool:
    """An apply that made its object needed the right to create it as well."""
    return any(
        one.kind == resource
        and one.code < 400
        and (one.verb == verb or (verb == "create" and one.verb == "patch" and one.code == 201))
        for one in asked
    )


def excused(cluster: str, resource: str) -> set[str]:
    return UNUSED.get(resource, set()) | (ELSEWHERE.get(resource, set()) if cluster == "target" else set())


def whole_suite(request: pytest.FixtureRequest) -> bool:
    """Whether this run collected the other files of this folder too."""
    files = {item.path.name for item in request.session.items if item.path.parent == Path(__file__).parent}
    return files >= {file.name for file in Path(__file__).parent.glob("test_*.py")}
