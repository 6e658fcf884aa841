"""A registration from its creation to a service that logs in, and away again: in the plane's namespace and in another.

The two suites of the reference, `keystone-service` and `keystone-service-foreign-namespace`, and what they cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from deploy.local import kube
from deploy.local.parts import keystone
from tests.audit import OPERATOR, WRITES, Audit, Request
from tests.e2e.services import BESIDE_THE_PLANE, FINALIZER, KORC, Service, account, catalog, decoded, login_of, slug
from tests.e2e.stage import Object, Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
Register = Callable[..., Service]

REQUESTS_TO_READY, REQUESTS_TO_DELETE, EVENTS = 60, 30, 150
RANKS = ("roleassignments", "roles", "endpoints", "services", "users", "projects")
"""K-ORC's kinds in the order in which they are to be deleted (row S15)."""


def whole(register: Register, namespace: str) -> Service:
    """A registration with everything: two endpoints, a created project, two roles."""
    return register(
        namespace=namespace,
        catalog=catalog("public", "internal"),
        account=lambda name: account(f"{name}-project", "member", "reader"),
    )


@pytest.mark.row("A01", "A18", "C03", "S02", "S15")
@pytest.mark.parametrize("namespace", ["openstack", "team-a"], ids=["own-namespace", "foreign-namespace"])
async def test_a_registration_logs_in_and_goes_without_a_trace(
    real_stack: Stage, register: Register, namespace: str
) -> None:
    service, audit = whole(register, namespace), Audit(real_stack.stack)
    mark = audit.mark()
    await service.place()
    live = await service.is_ready()

    await _is_in_keystone(real_stack, service, live)
    await _has_its_children(service, live)
    await _is_delivered(real_stack, service)
    _was_made_in_order(service, await _settled(service, audit, mark))

    mark = audit.mark()
    await service.delete()
    await service.gone()
    await service.left_nothing()
    _went_in_order(service, await _settled(service, audit, mark), audit.since(mark, "korc"))


async def _is_in_keystone(stage: Stage, service: Service, live: Object) -> None:
    (row,), (user,), (project,) = await asyncio.gather(
        service.service_rows(), service.user_rows(), service.project_rows()
    )
    assert (row["name"], row["type"], row["enabled"]) == (service.name, "registry", True)
    endpoints = {each["interface"]: each for each in await stage.keystone.endpoints(service=row["id"])}
    assert {name: each["url"] for name, each in endpoints.items()} == {
        "public": "http://public.example.org:8080/v1",
        "internal": "http://internal.example.org:8080/v1",
    }
    assert user["default_project_id"] == project["id"]
    assert await service.role_names() == {"member", "reader"}
    token = await service.logs_in()
    assert token is not None
    assert (token["user"]["id"], token["project"]["id"]) == (user["id"], project["id"])
    assert {role["name"] for role in token["roles"]} >= {"member", "reader"}

    said, generation = live["status"], live["metadata"]["generation"]
    assert {each["type"]: each["reason"] for each in said["conditions"]} == {
        "CatalogReady": "CatalogRegistered", "AccountReady": "AccountProvisioned", "Ready": "AllReady",
    }  # fmt: skip
    assert {each["observedGeneration"] for each in said["conditions"]} == {generation}
    rows = [{"interface": name, "id": endpoints[name]["id"]} for name in ("public", "internal")]
    assert said["catalog"] == {"serviceID": row["id"], "endpoints": rows}
    assert said["account"] == {
        "secretName": f"{service.name}-credentials", "userID": user["id"], "projectID": project["id"],
        "passwordGeneration": 1,
    }  # fmt: skip
    assert live["metadata"]["finalizers"] == [FINALIZER]


async def _has_its_children(service: Service, live: Object) -> None:
    """Exactly those of contracts 3.1, the probes gone; owner references beside the order and nowhere else."""
    objects = await until(service.objects, lambda found: not any("probe" in name for name in found), 10)
    roles = [f"{kind}-{slug(role)}" for role in ("member", "reader") for kind in ("Role/role", "RoleAssignment/assign")]
    assert service.of_ours(objects) == {
        "Service/service", "Endpoint/endpoint-public", "Endpoint/endpoint-internal", "Project/project", "User/user",
        "Secret/password-v1", "Secret/source", "PushSecret/backup", f"ExternalSecret/{service.name}-credentials",
        *roles,
    }  # fmt: skip
    assert len([name for name in objects if name.startswith("Lease/")]) == 3, "one claim each: service, user, project"
    owner = {
        "apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "name": service.name,
        "uid": live["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    for name in service.of_ours(objects):
        child = objects[name]
        beside = child["metadata"]["namespace"] == service.namespace
        assert child["metadata"].get("ownerReferences", []) == ([owner] if beside else []), name
        if name.partition("/")[0] in BESIDE_THE_PLANE:
            managed = child["spec"]["managementPolicy"] == "managed"
            secret = "cp-admin-password-cloud" if managed else "k-orc-clouds-yaml"
            assert child["spec"]["cloudCredentialsRef"] == {"secretName": secret, "cloudName": "admin"}
    assert {name for name, each in objects.items() if name[:4] == "Role" and each["spec"].get("import")} == {
        name for name in roles if name.startswith("Role/")
    }


async def _is_delivered(stage: Stage, service: Service) -> None:
    """Contracts 3.1 and 3.2, byte for byte."""
    password = (await service.passwords())[1]
    assert len(password) == 43
    url, region = "http://cp-keystone.openstack.svc:5000/v3", keystone.REGION
    clouds = f"""clouds:
  "admin":
    auth:
      auth_url: "{url}"
      username: "{service.name}"
      password: "{password}"
      project_name: "{service.project}"
      user_domain_name: "Default"
      project_domain_name: "Default"
    region_name: "{region}"
    endpoint_type: internal
    identity_api_version: 3
"""
    source = await service.child("Secret", "source")
    everything = {
        "password": password, "username": service.name, "project_name": service.project, "user_domain_name": "Default",
        "project_domain_name": "Default", "auth_url": url, "region_name": region, "clouds.yaml": clouds,
    }  # fmt: skip
    assert decoded(source) == everything
    stored = await service.stored()
    assert (stored or {})["data"] == everything
    assert await service.credentials() == {"password": password, "clouds.yaml": clouds}

    push, fetch = await service.push_secret(), await service.external_secret()
    assert push is not None
    assert fetch is not None
    store = {"kind": "SecretStore", "name": "openbao-tenant-store"}
    assert {key: push["spec"][key] for key in ("deletionPolicy", "secretStoreRefs", "selector")} == {
        "deletionPolicy": "Delete", "secretStoreRefs": [store],
        "selector": {"secret": {"name": f"{service.prefix}source"}},
    }  # fmt: skip
    (data,) = push["spec"]["data"]
    assert data["match"] == {"remoteRef": {"remoteKey": service.remote_key}}
    assert fetch["spec"]["refreshInterval"] in ("1h", "1h0m0s")
    assert fetch["spec"]["secretStoreRef"] == store
    assert (fetch["spec"]["target"]["name"], fetch["spec"]["target"]["creationPolicy"]) == (
        f"{service.name}-credentials", "Owner",
    )  # fmt: skip
    refs = {each["secretKey"]: each["remoteRef"] for each in fetch["spec"]["data"]}
    assert {name: (ref["key"], ref["property"]) for name, ref in refs.items()} == {
        name: (service.remote_key, name) for name in ("password", "clouds.yaml")
    }
    consumer = await service.consumer()
    assert [owner["kind"] for owner in (consumer or {})["metadata"]["ownerReferences"]] == ["ExternalSecret"]


async def _settled(service: Service, audit: Audit, mark: int) -> list[Request]:
    """What was asked for the order, once the log has it all."""
    await asyncio.sleep(0.3)
    return service.asked(audit, mark)


def _was_made_in_order(service: Service, asked: Iterable[Request]) -> None:
    """The finalizer before every child; each gated child only after its probe was asked and taken away or dropped."""
    written = [
        (each.verb, each.resource, each.name.removeprefix(service.prefix)) for each in asked if each.verb in WRITES
    ]
    assert written[0] == ("update", "keystoneservices", service.name), "the finalizer comes first"
    for kind in ("service", "project", "user"):
        assert written.index(("create", f"{kind}s", f"{kind}-probe")) < written.index(("patch", f"{kind}s", kind))


def _went_in_order(service: Service, asked: Iterable[Request], korcs: Iterable[Request]) -> None:
    deletes = [each for each in asked if each.verb == "delete" and each.group == KORC]
    ranks = [RANKS.index(each.resource) for each in deletes]
    assert ranks == sorted(ranks), [str(each) for each in deletes]
    assert set(ranks) == set(range(len(RANKS)))
    release = max(each.at for each in asked if each.verb == "update" and each.resource == "keystoneservices")
    let_go = max(each.at for each in korcs if each.name.startswith(service.prefix) and each.verb in WRITES)
    assert let_go <= release, "the finalizer was released before K-ORC had let its objects go"


@pytest.mark.row("A18")
async def test_one_order_alone_stays_within_its_requests_and_events(real_stack: Stage, register: Register) -> None:
    """Counted by the API server's audit log and by Temporal, for an order with everything in another namespace."""
    service, audit = whole(register, "team-a"), Audit(real_stack.stack)
    mark = audit.mark()
    await service.place()
    await service.is_ready()
    await service.quiet()
    every = await _all_asked(audit, mark)
    told = max(each.at for each in every if each.resource == "keystoneservices/status")
    asked = [each for each in every if each.at <= told]
    events = await service.events()
    print(f"to Ready: {len(asked)} requests, then {len(every) - len(asked)} more; {events} events")
    assert len(asked) <= REQUESTS_TO_READY, "\n".join(map(str, asked))
    assert events <= EVENTS


@pytest.mark.row("S15")
async def test_one_deletion_alone_stays_within_its_requests_and_events(real_stack: Stage, register: Register) -> None:
    """Until the order is gone. That rings its run once more, which may look whether there is another of the name."""
    service, audit = whole(register, "team-a"), Audit(real_stack.stack)
    await service.place()
    await service.is_ready()
    await service.quiet()
    mark, before = audit.mark(), await service.events()
    await service.delete()
    await service.gone()
    await until(service.open_runs, lambda runs: not runs, 30)
    every = await _all_asked(audit, mark)
    released = max(each.at for each in every if each.verb == "update" and each.resource == "keystoneservices")
    asked = [each for each in every if each.at <= released]
    more = [str(each) for each in every if each.at > released]
    print(f"to be gone: {len(asked)} requests, then {more}; {await service.events() - before} events")
    assert len(more) <= 1, more
    assert await service.events() <= EVENTS
    assert len(asked) <= REQUESTS_TO_DELETE, "\n".join(map(str, asked))


async def _all_asked(audit: Audit, mark: int) -> list[Request]:
    """All that was asked in the meantime, for the stack is otherwise at rest; the watcher's own goes on."""
    await asyncio.sleep(0.5)
    return [each for each in audit.since(mark, OPERATOR) if not _watchers(each)]


def _watchers(request: Request) -> bool:
    """Its streams have no selector and are over all namespaces; its Lease is its own."""
    streams = request.verb in ("watch", "list") and not request.namespace and "labelSelector" not in request.uri
    return streams or request.name == "c5c3-orders-watcher"


@pytest.mark.row("C06", "A01")
async def test_each_block_serves_alone(register: Register) -> None:
    """A row without endpoints; an account without a catalog entry and without roles."""
    bare = register("bare", catalog=catalog())
    alone = register("alone", account=lambda name: account(f"{name}-project"))
    await asyncio.gather(bare.place(), alone.place())
    catalogued, logging_in = await asyncio.gather(bare.is_ready(), alone.is_ready())
    (row,) = await bare.service_rows()
    assert catalogued["status"]["catalog"] == {"serviceID": row["id"], "endpoints": []}
    assert "account" not in catalogued["status"]
    assert condition(catalogued, "AccountReady")["reason"] == "AccountNotDeclared"
    assert await bare.children() == {"Service/service"}
    assert condition(logging_in, "CatalogReady")["reason"] == "CatalogNotDeclared"
    (user,) = await alone.user_rows()
    assert logging_in["status"]["account"]["userID"] == user["id"]


async def test_a_built_in_registration_of_a_plane_is_an_ordinary_order(real_stack: Stage, register: Register) -> None:
    """As a plane writes it for Glance (contracts 2.4): in the service's namespace, labelled and owned by the plane."""
    await real_stack.keystone.ensure_role("service")
    service = register(
        name="cp-glance",
        namespace="openstack",
        catalog=catalog("internal", "public", type_="image", serviceName="glance"),
        account=account("service-glance", "service", userName="glance"),
    )
    plane = await kube.get(real_stack.stack, "management", "controlplanes.c5c3.io", "openstack", "cp")
    assert plane is not None
    owner = {
        "apiVersion": "c5c3.io/v1alpha1", "kind": "ControlPlane", "name": "cp", "uid": plane["metadata"]["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    service.meta = {"labels": {"c5c3.io/controlplane": "cp"}, "ownerReferences": [owner]}
    await service.place()
    live = await service.is_ready()
    assert live["metadata"]["ownerReferences"] == [owner]
    assert live["metadata"]["labels"] == {"c5c3.io/controlplane": "cp"}
    assert await service.role_names() == {"service"}
    token = await service.logs_in()
    assert token is not None
    assert (token["user"]["name"], token["project"]["name"]) == ("glance", "service-glance")
    assert login_of((await service.credentials())["clouds.yaml"])["username"] == "glance"
    (row,) = await service.service_rows()
    assert len(await real_stack.keystone.endpoints(service=row["id"])) == 2
    await service.delete()
    await service.gone()
    await service.left_nothing()


async def test_the_plane_it_names_may_be_called_alike_in_two_namespaces(register: Register) -> None:
    """Two orders of one name in two namespaces: different children, users of their own, no meeting of any kind."""
    name = unique("twin")
    both = [
        register(
            name=name,
            namespace=namespace,
            catalog=catalog("public", serviceName=f"{name}-{namespace}"),
            account=account(f"{name}-{namespace}", "member", userName=f"{name}-{namespace}"),
        )
        for namespace in ("team-a", "team-b")
    ]
    await asyncio.gather(*(each.place() for each in both))
    await asyncio.gather(*(each.is_ready() for each in both))
    first, second = both
    assert first.prefix != second.prefix
    assert await first.logs_in() is not None
    await first.delete()
    await first.gone()
    await first.left_nothing()
    assert await second.logs_in() is not None
