"""`doctor` on a stack that is well, and on the same one with everything wrong at once that it looks for.

Each trouble is made for real, is found by a line of its own with a remedy, and is taken back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
import yaml
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from deploy.local import kube
from deploy.local.parts import temporal
from tests.cli.program import ROOT, Said, run
from tests.e2e.stage import LEASES, Object, Order, Stage, unique, until
from worker.cli.doctor import rights

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RBAC = "clusterroles.rbac.authorization.k8s.io"
CRD = "customresourcedefinitions.apiextensions.k8s.io"
CREDENTIALS = "keystoneapplicationcredentials.c5c3.io"
STORES = "secretstores.external-secrets.io"


def found(said: Said, *words: str) -> Object:
    """The one check whose text has these words."""
    matching = [each for each in said.json["checks"] if all(word in each["text"] for word in words)]
    assert len(matching) == 1, (words, [each["text"] for each in said.json["checks"] if each["state"] != "ok"])
    (check,) = matching
    return dict(check)


def failed(said: Said) -> list[str]:
    return [each["text"] for each in said.json["checks"] if each["state"] == "fail"]


async def test_a_stack_that_is_well_is_said_to_be(real_stack: Stage) -> None:
    order = await real_stack.order(unique("well")).place()
    try:
        await order.is_ready()
        said = await run(real_stack.stack, "doctor", "-o", "json", "--stuck-after", "3600", page="doctor-json")
        assert failed(said) == []
        assert (said.code, said.json["healthy"]) == (0, True)
        for words in (("search attributes",), ("workers poll", "and answer"), ("kinds are served at the versions",),
                      ("renews the Lease", "watcher"), ("no reference operator",), ("edge-1 answers",),
                      ("ServiceAccount c5c3-system/c5c3-operator has all",), ("edge-1's registration has all",),
                      ("no child and no claim is left",), ("OpenBao at",)):  # fmt: skip
            assert [each for each in said.json["checks"] if all(word in each["text"] for word in words)], words
        for columns in (80, 160):
            shown = await run(real_stack.stack, "doctor", columns=columns)
            assert shown.code == 0
            assert max(map(len, shown.out.splitlines())) <= columns
    finally:
        await order.delete()
        await order.gone()


async def test_the_product_asks_about_itself_and_a_stranger_may_not_ask(real_stack: Stage) -> None:
    began = time.time()
    said = await run(real_stack.stack, "doctor", "-o", "json", user="operator")
    real_stack.provoked.append((began, time.time()))  # it asks for more than the product does, and is refused
    assert found(said, "the API server answers")["text"].endswith("system:serviceaccount:c5c3-system:c5c3-operator")
    assert found(said, "ServiceAccount c5c3-system/c5c3-operator has all")["state"] == "ok"
    assert found(said, "kinds are served at the versions", "all 20")["state"] == "ok"
    assert found(said, "you may not list leases in all namespaces")["state"] == "warn"

    read = [{"apiGroups": ["c5c3.io"], "resources": ["*"], "verbs": ["get", "list"]}]
    await kube.grant(real_stack.stack, "management", "reader", role="stack:reader", rules=read)
    said = await run(real_stack.stack, "doctor", "-o", "json", user="reader")
    told = found(said, "you may not ask what")
    assert (told["state"], "worker's pod" in told["remedy"]) == ("warn", True)
    assert found(said, "you may not look", "c5c3-orders-watcher")["state"] == "warn"


async def test_a_silent_temporal_and_a_namespace_that_lacks_something(real_stack: Stage) -> None:
    here = real_stack.stack
    said = await run(here, "doctor", "-o", "json", "--temporal-address", "127.0.0.1:1")
    assert said.code == 1
    assert found(said, "Temporal at 127.0.0.1:1 does not answer")["state"] == "fail"
    said = await run(here, "doctor", "-o", "json", "--temporal-namespace", "no-such-one")
    assert "temporal operator namespace create" in found(said, "has no namespace 'no-such-one'")["text"]

    name = await lacking(here_of(real_stack), "OrderReason")
    said = await run(here, "doctor", "-o", "json", "--temporal-namespace", name)
    told = found(said, "lacks search attributes")
    assert "search-attribute create" in told["remedy"]
    assert "--name OrderReason --type Keyword" in told["remedy"]
    assert "--name OrderReady" not in told["remedy"]
    assert found(said, "nobody polls the task queue c5c3-orders")["state"] == "fail"


def here_of(stage: Stage) -> str:
    return temporal.address(stage.stack)


async def lacking(address: str, attribute: str) -> str:
    """A Temporal namespace with every search attribute but this one."""
    name, client = "cli-doctor", await Client.connect(address)
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromTimedelta(timedelta(days=1))
    try:
        await client.workflow_service.register_namespace(request)
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            raise
    there = {each: 2 for each in temporal.SEARCH_ATTRIBUTES if each != attribute}  # 2: Keyword

    async def add() -> bool:
        try:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(namespace=name, search_attributes=there)  # type: ignore[arg-type]
            )
        except RPCError as error:
            return error.status == RPCStatusCode.ALREADY_EXISTS
        return True

    await until(add, bool, 20, pause=0.5)
    return name


# -- everything wrong at once ---------------------------------------------------------------------------------------


@asynccontextmanager
async def a_right_revoked(stage: Stage) -> AsyncIterator[None]:
    """Certificates may not be listed any more: only a worker's start does that."""
    role = await kube.get(stage.stack, "management", RBAC, None, "c5c3-operator")
    assert role is not None
    rules = json.loads(json.dumps(role["rules"]))
    (rule,) = [each for each in rules if each["resources"] == ["certificates"]]
    rule["verbs"].remove("list")
    await kube.patch(stage.stack, "management", RBAC, None, "c5c3-operator", {"rules": rules})
    try:
        yield
    finally:
        await kube.patch(stage.stack, "management", RBAC, None, "c5c3-operator", {"rules": role["rules"]})


@asynccontextmanager
async def a_kind_unserved(stage: Stage, name: str = "endpoints.openstack.k-orc.cloud") -> AsyncIterator[None]:
    """K-ORC's definition of Endpoints serves no version: its objects stay, and nobody can read them."""
    crd = await kube.get(stage.stack, "management", CRD, None, name)
    assert crd is not None
    versions = [{**each, "served": False} for each in crd["spec"]["versions"]]
    await kube.patch(stage.stack, "management", CRD, None, name, {"spec": {"versions": versions}})
    try:
        await asyncio.sleep(1)
        yield
    finally:
        await kube.patch(stage.stack, "management", CRD, None, name, {"spec": {"versions": crd["spec"]["versions"]}})
        await kube.served(stage.stack, "management", [name])


@asynccontextmanager
async def objects(stage: Stage, *made: Object, cluster: str = "management") -> AsyncIterator[None]:
    """Objects that are there for the while, first what others live in."""
    await kube.apply(stage.stack, cluster, made)
    try:
        yield
    finally:
        for each in reversed(made):
            group = each["apiVersion"].partition("/")[0] if "/" in each["apiVersion"] else ""
            resource = f"{each['kind'].lower()}s" + (f".{group}" if group else "")
            await stage.delete(cluster, resource, each["metadata"].get("namespace"), each["metadata"]["name"])


@asynccontextmanager
async def a_reference_operator(stage: Stage) -> AsyncIterator[None]:
    """Its Lease is renewed as by a running one."""
    meta = {"name": "c5c3.openstack.c5c3.io", "namespace": "c5c3-system"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}

    async def renew() -> None:
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            await kube.apply(
                stage.stack, "management", [{**body, "spec": {"holderIdentity": "go-1", "renewTime": now}}]
            )
            await asyncio.sleep(0.5)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await stage.delete("management", LEASES, meta["namespace"], meta["name"])


def registration(name: str, kubeconfig: bytes) -> Object:
    labels = {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"}
    return {
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "c5c3-clusters", "labels": labels},
        "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()},
    }  # fmt: skip


def marked(kind: str, name: str, namespace: str) -> Object:
    """Metadata of a child of an order that nobody wrote."""
    stem = f"c5c3.io/{kind}"
    labels = {f"{stem}-name": name, f"{stem}-namespace": "team-a", f"{stem}-cluster": ""}
    return {"name": name, "namespace": namespace, "labels": labels}


def orphans(name: str) -> tuple[Object, Object]:
    """A child and a claim."""
    meta = marked("keystoneproject", name, "openstack")
    credentials = {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
    spec = {"cloudCredentialsRef": credentials, "managementPolicy": "unmanaged", "import": {"filter": {"name": name}}}
    return (
        {"apiVersion": "openstack.k-orc.cloud/v1alpha1", "kind": "Project", "metadata": meta, "spec": spec},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta,
         "spec": {"holderIdentity": f"KeystoneProject:team-a/{name}"}},
    )  # fmt: skip


def definitions(*files: str) -> list[Object]:
    """What the target cluster would serve if a Keystone were placed there."""
    return [yaml.safe_load((ROOT / "deploy" / "local" / "crds" / file).read_text()) for file in files]


def orphaned_database(name: str) -> Object:
    """Beside a Keystone that is placed on a target cluster."""
    spec = {"mariaDbRef": {"name": "gone"}, "name": name.replace("-", "_"), "cleanupPolicy": "Skip"}
    meta = marked("mariadbdatabase", name, "team-b")
    return {"apiVersion": "k8s.mariadb.com/v1alpha1", "kind": "Database", "metadata": meta, "spec": spec}


def broken_plane(namespace: str) -> list[Object]:
    """A plane without a credential, whose store cannot work and whose Keystone's cluster has no MariaDB for it."""
    where = {"namespace": namespace}
    provider = {"server": "https://127.0.0.1:1", "path": "kv", "version": "v2",
                "auth": {"kubernetes": {"mountPath": "kubernetes/management", "role": "nobody"}}}  # fmt: skip
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "c5c3.io/v1alpha1", "kind": "ControlPlane", "metadata": {**where, "name": "broken"},
            "spec": {"openStackRelease": "2026.2", "secretStoreRef": {"kind": "SecretStore", "name": "lost"},
                     "infrastructure": {"database": {"clusterRef": {"name": "gone"}, "credentialsMode": "Dynamic"}},
                     "services": {"keystone": {"mode": "Managed", "targetClusterRef": {"name": "edge-1"},
                                               "namespace": {"name": "team-b"}}},
                     "korc": {"adminCredential": {"cloudCredentialsRef": {"secretName": "none"}}}},
        },
        {
            "apiVersion": "external-secrets.io/v1", "kind": "SecretStore", "metadata": {**where, "name": "lost"},
            "spec": {"provider": {"vault": provider}},
        },
    ]  # fmt: skip


@pytest_asyncio.fixture
async def held(real_stack: Stage) -> AsyncIterator[Order]:
    """An order that is being deleted and cannot go."""
    order = real_stack.order(unique("held"))
    blocker = {
        "apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneApplicationCredential",
        "metadata": {"name": order.name, "namespace": "team-a"},
        "spec": {"controlPlaneRef": {"name": "cp", "namespace": "openstack"},
                 "userRef": {"name": "somebody"}, "projectRef": {"name": order.name}},
    }  # fmt: skip
    await order.place()
    await order.is_ready()
    await kube.apply(real_stack.stack, "management", [blocker])
    await order.delete()
    await order.reads("ReferencedByApplicationCredentials")
    yield order
    await real_stack.delete("management", CREDENTIALS, "team-a", order.name)
    await order.gone(120)


async def test_each_of_many_troubles_at_once_is_found_with_a_remedy(real_stack: Stage, held: Order) -> None:
    here = real_stack.stack
    served = await real_stack.order(unique("unserved")).place()
    await served.is_ready()
    orphan, namespace = unique("orphan"), unique("broken")
    plain = kube.kubeconfig(here, "target", "operator").read_bytes()
    dead = plain.replace(f"127.0.0.1:{here.ports['target']}".encode(), b"127.0.0.1:1")
    assert dead != plain
    foreign = json.loads(plain)
    foreign["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "whoami"}}
    broken = broken_plane(namespace)

    async with AsyncExitStack() as troubles:
        await troubles.enter_async_context(real_stack.without("worker", "watcher"))
        holder = {"spec": {"holderIdentity": "somebody-else"}}
        await kube.patch(here, "management", LEASES, "c5c3-system", "c5c3-orders-watcher", holder)
        await served.handle.terminate("a test")
        for trouble in (
            a_right_revoked(real_stack), a_kind_unserved(real_stack), a_reference_operator(real_stack),
            objects(real_stack, *orphans(orphan)), objects(real_stack, *broken),
            objects(real_stack, *definitions("databases.yaml", "mariadbs.yaml"), cluster="target"),
            objects(real_stack, orphaned_database(orphan), cluster="target"),
            objects(real_stack, registration("edge-dead", dead)),
            objects(real_stack, registration("edge-exec", json.dumps(foreign).encode())),
        ):  # fmt: skip
            await troubles.enter_async_context(trouble)
        await kube.wait(here, "management", STORES, namespace, "lost", kube.condition("Ready", "False"), 60)
        await old_enough(served)
        said, shown = await asyncio.gather(
            run(here, "doctor", "-o", "json", "--stuck-after", "1", page="doctor-troubled-json"),
            run(here, "doctor", "--stuck-after", "1", columns=120, page="doctor-troubled"),
        )

    assert (said.code, said.json["healthy"]) == (1, False)
    for area, words, remedy in (
        ("rights", ("may not list certificates.cert-manager.io",), "deploy/rbac/management.yaml"),
        ("management", ("Endpoint (openstack.k-orc.cloud/v1alpha1) is not served",), "install K-ORC"),
        ("management", ("reference operator go-1 is running",), "scale it to zero"),
        ("management", ("somebody-else holds the Lease", "did not renew it"), "watcher"),
        ("temporal", ("poll", "c5c3-orders"), "python -m worker"),  # it may be gone from the list of pollers already
        ("temporal", (f"KeystoneProject {served.namespace}/{served.name}", "has no run"), "watcher"),
        ("targets", ("edge-dead does not answer",), "deregister"),
        ("targets", ("edge-exec cannot be used", "exec"), "Secret"),
        ("orders", (f"child Project openstack/{orphan}", "is gone"), f"projects.openstack.k-orc.cloud {orphan}"),
        ("orders", (f"claim Lease openstack/{orphan}", "is gone"), f"leases.coordination.k8s.io {orphan}"),
        ("orders", (f"Database team-b/{orphan} on cluster edge-1", "is gone"), f"databases.k8s.mariadb.com {orphan}"),
        ("orders", (f"team-a/{held.name}", "is being deleted for"), f"explain KeystoneProject team-a/{held.name}"),
        ("planes", (f"{namespace}/broken", "AdminCredentialReady is not True"), "describe controlplane"),
        ("planes", (f"{namespace}/broken", f"SecretStore {namespace}/lost is not Ready"), "OpenBao"),
        ("planes", (f"{namespace}/broken", f"Secret {namespace}/none", "is missing"), "operator"),
        ("planes", (f"{namespace}/broken", "Domain broken-domain-default"), "K-ORC"),
        ("planes", (f"{namespace}/broken", "DBCredentialsReady is not True"), "setup-database-tenant"),
        ("planes", (f"{namespace}/broken", "MariaDB team-b/gone is not Ready"), "mariadb-operator"),
    ):  # fmt: skip
        check = found(said, *words)
        assert (check["area"], check["state"]) == (area, "fail"), check
        assert remedy in check["remedy"], check
    assert shown.code == 1
    assert max(map(len, shown.out.splitlines())) <= 120
    assert not [each for each in real_stack.secrets if each in said.out + shown.out]

    await served.delete()
    await served.gone(120)


# -- a registration that is bound in some namespaces ----------------------------------------------------------------


def bound_login(name: str, *namespaces: str) -> list[Object]:
    """A ServiceAccount on the target cluster with the orders' role in these namespaces alone, as the chart binds it."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "c5c3-system"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "c5c3-system"}},
        *(
            {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
             "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "c5c3-operator"}, "subjects": [subject]}
            for namespace in namespaces
        ),
    ]  # fmt: skip


async def test_a_registration_bound_in_one_namespace_is_looked_at_there_alone(real_stack: Stage) -> None:
    here, edge = real_stack.stack, unique("edge")
    inside = real_stack.order(unique("inside"), cluster="target")
    outside = real_stack.order(unique("outside"), cluster="target", namespace="team-b")

    async def doctor(namespaces: str) -> Said:
        token = await kube.call(
            here, "target", "POST", f"/api/v1/namespaces/c5c3-system/serviceaccounts/{edge}/token", {"spec": {}}
        )
        plain = json.loads(kube.kubeconfig(here, "target", "operator").read_bytes())
        plain["users"][0]["user"] = {"token": token["status"]["token"]}
        secret = registration(edge, json.dumps(plain).encode())
        secret["data"]["namespaces"] = base64.b64encode(namespaces.encode()).decode()
        async with objects(real_stack, secret):
            listed = await run(here, "list", "--cluster", edge, "-o", "json")
            seen = {each["name"] for each in listed.json["orders"]}
            assert (inside.name in seen, outside.name in seen) == (True, False), listed.out
            refused = [each for each in listed.json["unread"] if "403" in each["error"]]
            assert bool(refused) == (namespaces != "team-a")
            if namespaces == "team-a":
                assert listed.code == 0
                await explained()
            return await run(here, "doctor", "-o", "json")

    async def explained() -> None:
        said = await run(here, "explain", "KeystoneProject", f"team-a/{inside.name}@{edge}", "-o", "json")
        assert said.json["order"]["name"] == inside.name
        assert said.json["unread"] == []
        said = await run(here, "explain", "KeystoneProject", f"team-b/{outside.name}@{edge}")
        assert (said.code, "is registered for orders in team-a alone" in said.err) == (1, True)

    # Nobody serves them meanwhile: the same cluster is registered under two names.
    async with real_stack.without("watcher"), objects(real_stack, *bound_login(edge, "team-a"), cluster="target"):
        await inside.place()
        await outside.place()
        try:
            said = await doctor("team-a")
            assert found(said, f"{edge}'s registration has all")["state"] == "ok"
            assert [text for text in failed(said) if text.startswith(f"{edge}'s registration may not")] == []
            said = await doctor("team-a,team-b")
            lacks = found(said, f"{edge}'s registration may not", "keystoneprojects.c5c3.io", "in namespace team-b")
            assert "team-a" not in lacks["text"]
            assert "assignedNamespaces" in lacks["remedy"]
        finally:
            await inside.delete()
            await outside.delete()
    await inside.gone()
    await outside.gone()


async def old_enough(order: Order) -> None:
    """An order is missed only when it has had the time to get its run."""
    live = await order.live()
    assert live is not None
    made = datetime.fromisoformat(live["metadata"]["creationTimestamp"])
    await asyncio.sleep(max(0.0, 21 - (datetime.now(UTC) - made).total_seconds()))


def test_every_right_of_the_manifests_is_asked_about() -> None:
    """Not only some of them: counted from the files by hand."""
    needed = rights.needed_at_home("c5c3-system")
    assert rights.Right("openstack.k-orc.cloud", "users/status", "patch") in needed
    assert rights.Right("coordination.k8s.io", "leases", "update", "c5c3-system") in needed
    assert rights.Right("", "secrets", "patch") in rights.needed_on_target([None], [])
