"""What changes under a registration: its spec, its plane's consent, its roles, its plane; what holds its deletion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from deploy.local import kube
from deploy.local.parts import keystone, planes
from tests.audit import OPERATOR, Audit
from tests.e2e.services import BESIDE_THE_PLANE, FINALIZER, ORDERS, RESOURCES, Service, account, catalog, login_of, slug
from tests.e2e.stage import PLANES, Object, Plane, Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
Register = Callable[..., Service]

CONTROLLERS = ("korc", "standin-roleassignment")
OTHER = "http://elsewhere.example.org:8080/v2"


@pytest_asyncio.fixture
async def own_plane(real_stack: Stage) -> AsyncIterator[Plane]:
    """A plane that a test may break or take away; team-b may register with it."""
    plane = Plane(unique("cp"), unique("plane"))
    spec: Object = {
        "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
        "services": {"keystone": {"mode": "Managed"}},
    }
    await real_stack.plane(plane, spec, "team-b")
    yield plane
    for kind in BESIDE_THE_PLANE:
        for one in await kube.items(real_stack.stack, "management", RESOURCES[kind], plane.namespace):
            await real_stack.delete("management", RESOURCES[kind], plane.namespace, one["metadata"]["name"])
    await real_stack.drop_plane(plane)


def whole(register: Register, stem: str, *, plane: Plane | None = None) -> Service:
    where = {"plane": plane, "namespace": "team-b"} if plane else {}
    return register(
        stem,
        catalog=catalog("public", "internal"),
        account=lambda name: account(f"{name}-project", "member", "reader"),
        **where,
    )


@pytest.mark.row("S13", "C10")
async def test_what_is_not_declared_any_more_goes_and_the_block_waits_until_it_is_gone(
    real_stack: Stage, register: Register
) -> None:
    """The controllers are away when the spec changes: both blocks say what they wait for, and who is Ready again."""
    service, blocks = whole(register, "swept"), whole(register, "blocks")
    await asyncio.gather(service.place(), blocks.place())
    await asyncio.gather(service.is_ready(), blocks.is_ready())
    assert service.catalog is not None
    kept = {"interface": "public", "url": OTHER}
    async with real_stack.without(*CONTROLLERS):
        await asyncio.gather(
            service.edit(catalog={"endpoints": [kept]}, account={"roles": ["member"]}), blocks.edit(account=None)
        )
        said = await service.reads("catalog", "WaitingForCatalog")
        assert "endpoint" in said["message"]
        said = await service.reads("account", "WaitingForServiceAccounts")
        assert slug("reader") in said["message"]
        said = await blocks.reads("account", "WaitingForServiceAccounts")
        assert condition(await blocks.live(), "CatalogReady")["reason"] == "CatalogRegistered", "blocks are apart"
        await asyncio.sleep(2)
        for each in (service, blocks):
            assert condition(await each.live(), "Ready")["status"] == "False"

    live = await service.is_ready(90)
    (row,) = await service.service_rows()
    (endpoint,) = await real_stack.keystone.endpoints(service=row["id"])
    assert (endpoint["interface"], endpoint["url"]) == ("public", OTHER)
    assert live["status"]["catalog"]["endpoints"] == [{"interface": "public", "id": endpoint["id"]}]
    assert await service.role_names() == {"member"}
    assert not {name for name in await service.objects() if slug("reader") in name or "internal" in name}
    assert await service.passwords() != {}, "a sweep leaves the password"
    assert await service.logs_in() is not None

    await blocks.is_ready(90)
    assert await blocks.children() == {"Service/service", "Endpoint/endpoint-public", "Endpoint/endpoint-internal"}
    assert (await blocks.consumer(), await blocks.stored()) == (None, None)
    assert (await blocks.user_rows(), await blocks.project_rows()) == ([], [])
    assert "account" not in ((await blocks.live()) or {})["status"]

    # The other block goes, and the first comes back in the same edit.
    await blocks.edit(catalog=None, account=blocks.account)
    live = await blocks.is_ready(90)
    assert await blocks.service_rows() == []
    assert "catalog" not in live["status"]
    assert await blocks.logs_in() is not None


async def paused(stage: Stage, service: Service, value: str | None) -> None:
    change = {"metadata": {"annotations": {"c5c3.io/paused": value}}}
    await kube.patch(stage.stack, "management", ORDERS, service.namespace, service.name, change)


@pytest.mark.row("S13", "A12")
async def test_a_block_that_is_put_back_under_another_name_is_made_anew(real_stack: Stage, register: Register) -> None:
    """K-ORC refuses a changed reference for ever, and would rename the rest in place: neither comes to pass."""
    service, name = whole(register, "renamed"), unique("newer")
    await service.place()
    await service.is_ready()
    (user,), (project,), (row,) = await asyncio.gather(
        service.user_rows(), service.project_rows(), service.service_rows()
    )
    password = (await service.passwords())[1]
    login = login_of((await service.credentials())["clouds.yaml"])
    service.account = account(f"{name}-project", "member", userName=name)
    service.catalog = catalog("public", serviceName=name)
    await paused(real_stack, service, "true")  # so that no pass comes in between
    for block, declared in (("account", service.account), ("catalog", service.catalog)):
        await service.edit(**{block: None})
        await service.edit(**{block: declared})
    await paused(real_stack, service, None)
    await service.is_ready(120)
    (now,), (place,), (entry,) = await asyncio.gather(
        service.user_rows(), service.project_rows(), service.service_rows()
    )
    assert not {user["id"], project["id"], row["id"]} & {now["id"], place["id"], entry["id"]}
    assert await real_stack.keystone.users(name=user["name"]) == []
    assert await real_stack.keystone.projects(name=project["name"]) == []
    assert await service.role_names() == {"member"}
    assert (await service.passwords())[1] != password
    assert login_of((await service.credentials())["clouds.yaml"])["username"] == name != login["username"]
    assert await service.logs_in() is not None
    await service.delete()
    await service.gone()
    await service.left_nothing()


@pytest.mark.row("S13", "S21")
async def test_a_child_that_a_backup_brings_back_goes_by_itself(real_stack: Stage, register: Register) -> None:
    service = whole(register, "restored")
    await service.place()
    await service.is_ready()
    role = await kube.get(
        real_stack.stack, "management", RESOURCES["Role"], "openstack", f"{service.prefix}role-{slug('reader')}"
    )
    assert role is not None
    await service.edit(account={"roles": ["member"]})
    await service.is_ready(90)
    await service.quiet()
    meta = {key: role["metadata"][key] for key in ("name", "namespace", "labels")}
    body = {"apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": meta, "spec": role["spec"]}
    audit = Audit(real_stack.stack)
    mark = audit.mark()
    await kube.apply(real_stack.stack, "management", [body])

    # It goes within the second in which it came, so it is looked for in the log.
    async def taken() -> bool:
        asked = audit.since(mark, OPERATOR)
        return any((one.verb, one.name, one.code) == ("delete", meta["name"], 200) for one in asked)

    async def there() -> bool:
        return f"Role/{meta['name'].removeprefix(service.prefix)}" in await service.objects()

    await until(taken, lambda found: found, 30)
    await until(there, lambda found: not found, 30)
    await service.is_ready()


@pytest.mark.row("S07")
async def test_a_namespace_that_is_taken_off_the_list_freezes_and_goes_on_when_it_is_back(
    real_stack: Stage, own_plane: Plane, register: Register
) -> None:
    """`keystone-service-foreign-namespace`: nothing is written, nothing is lost, deletion tears down all the same."""

    async def listed(*namespaces: str) -> None:
        change = {"spec": {"korc": {"serviceRegistrations": {"allowedNamespaces": list(namespaces)}}}}
        await kube.patch(real_stack.stack, "management", PLANES, own_plane.namespace, own_plane.name, change)

    frozen, leaves = whole(register, "frozen", plane=own_plane), whole(register, "leaves", plane=own_plane)
    late = whole(register, "late", plane=own_plane)
    await asyncio.gather(frozen.place(), leaves.place())
    ready, _ = await asyncio.gather(frozen.is_ready(), leaves.is_ready())
    before, delivered = await frozen.objects(), await frozen.consumer()

    await listed()
    await late.place()
    for each in (frozen, leaves, late):
        for block in ("catalog", "account"):
            said = await each.reads(block, "NamespaceNotAllowed")
            for word in (own_plane.name, "team-b", "spec.korc.serviceRegistrations.allowedNamespaces"):
                assert word in said["message"]
    changed = [{"interface": "public", "url": OTHER}]
    await frozen.edit(catalog={"endpoints": changed}, account={"roles": ["member"]})
    await frozen.nudge()
    await asyncio.sleep(5)
    now = await frozen.objects()
    assert set(now) == set(before)
    assert {name: each.get("spec") for name, each in now.items()} == {
        name: each.get("spec") for name, each in before.items()
    }
    assert (await frozen.consumer() or {})["data"] == (delivered or {})["data"]
    assert await frozen.logs_in() is not None, "what runs on the credentials goes on"
    live = await frozen.live()
    assert live is not None
    assert (live["status"]["catalog"], live["status"]["account"]) == (
        ready["status"]["catalog"], ready["status"]["account"],
    )  # fmt: skip
    assert await late.objects() == {}

    await leaves.delete()
    await leaves.gone()
    await leaves.left_nothing()

    await listed("team-b")
    live = await frozen.is_ready()
    await late.is_ready()
    (row,) = await frozen.service_rows()
    assert [each["url"] for each in await real_stack.keystone.endpoints(service=row["id"])] == [OTHER]
    assert await frozen.role_names() == {"member"}
    assert live["status"]["account"]["passwordGeneration"] == 2, "a nudge in the meantime is not lost"
    assert await frozen.logs_in() is not None


@pytest.mark.row("A15")
async def test_a_role_that_does_not_exist_is_waited_for_and_said_to_be_missing(
    real_stack: Stage, register: Register
) -> None:
    """Two minutes of waiting are made by setting back the time of K-ORC's condition, which K-ORC carries on."""
    missing = unique("nobody-made")
    service = register("roles", account=lambda name: account(f"{name}-project", "member", missing))
    await service.place()
    said = await service.reads("account", "WaitingForServiceAccounts")
    await until(service.live, lambda live: missing in condition(live, "AccountReady")["message"], 20)
    assert "may not exist" not in said["message"]
    roles = await until(service.role_names, lambda names: "member" in names, 20)
    assert roles == {"member"}, "one role that is missing keeps no other from being bound"

    name = f"{service.prefix}role-{slug(missing)}"
    where = (real_stack.stack, "management", RESOURCES["Role"], "openstack", name)
    found = await until(lambda: kube.get(*where), lambda seen: bool(condition(seen, "Available")), 20)
    assert found is not None
    assert found["spec"]["import"] == {"filter": {"name": missing}}
    long_ago = (datetime.now(UTC) - timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    aged = [{**each, "lastTransitionTime": long_ago} for each in found["status"]["conditions"]]
    await kube.patch(*where, {"status": {"conditions": aged}}, "status")
    live = await until(service.live, lambda live: "may not exist" in condition(live, "AccountReady")["message"], 20)
    assert missing in condition(live, "AccountReady")["message"]

    role = await real_stack.keystone.create("roles", name=missing)
    try:
        await service.is_ready(40)
        assert await service.role_names() == {"member", missing}
        token = await service.logs_in()
        assert token is not None
        await service.delete()
        await service.gone()
        assert [each["id"] for each in await real_stack.keystone.roles(name=missing)] == [role["id"]], "imports only"
    finally:
        await real_stack.keystone.delete("roles", role["id"])


@pytest.mark.row("S16", "S17")
async def test_deletion_is_patient_with_a_plane_and_fails_open_without(
    real_stack: Stage, own_plane: Plane, register: Register
) -> None:
    """K-ORC's credentials for managed children stop working: one order waits and says why, and goes with its plane."""
    here, secret = real_stack.stack, f"{own_plane.name}-admin-password-cloud"
    ca = keystone.authority_pair(here).certificate.read_text()
    patient, orphan = whole(register, "patient", plane=own_plane), whole(register, "orphan", plane=own_plane)
    await asyncio.gather(patient.place(), orphan.place())
    await asyncio.gather(patient.is_ready(), orphan.is_ready())
    broken = planes.clouds_yaml(here, password=unique("not-the-password"))
    await kube.apply(here, "management", [planes.secret(own_plane.namespace, secret, clouds_yaml=broken, cacert=ca)])
    await patient.delete()
    live = await until(
        patient.live, lambda live: "401" in condition(live, "Ready").get("message", "") or live is None, 60
    )
    assert live is not None, "it was released although its children are there"
    assert FINALIZER in live["metadata"]["finalizers"]
    message = condition(live, "Ready")["message"]
    assert f"{patient.prefix}endpoint-" in message
    told = await until(patient.describe, lambda told: any("401" in each for each in told["left"]), 20)
    assert told["phase"] == "being torn down"
    assert len(await patient.user_rows()) == 1

    good = planes.secret(own_plane.namespace, secret, clouds_yaml=planes.clouds_yaml(here), cacert=ca)
    await kube.apply(here, "management", [good])
    await patient.gone(90)
    await patient.left_nothing()

    await kube.apply(here, "management", [planes.secret(own_plane.namespace, secret, clouds_yaml=broken, cacert=ca)])
    await real_stack.delete("management", PLANES, own_plane.namespace, own_plane.name)
    await orphan.delete()
    await orphan.gone(30)
    left = {name: each for name, each in (await orphan.objects()).items() if not name.startswith("Lease/")}
    assert {"User/user", "Service/service"} <= set(left)
    assert [name for name, each in left.items() if "deletionTimestamp" not in each["metadata"]] == []
    await kube.apply(here, "management", [good])
    await until(orphan.objects, lambda found: found == {}, 90)
    await orphan.left_nothing()
