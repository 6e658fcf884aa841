"""The stand-ins against what the real controllers were seen to do, over the real K-ORC, Keystone and MariaDB."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from deploy.local import kube, stack
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import Stack
from deploy.local.parts import keystone, mariadb, planes
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

Object = dict[str, Any]
KORC, MARIADB = "openstack.k-orc.cloud", "k8s.mariadb.com"
GUARD = f"{KORC}/roleassignment"


@dataclass
class Place:
    """A namespace of this test alone."""

    stack: Stack
    namespace: str

    async def apply(self, *objects: Object) -> None:
        for one in objects:
            one["metadata"].setdefault("namespace", self.namespace)
        await kube.apply(self.stack, "management", objects)

    async def get(self, resource: str, name: str) -> Object | None:
        return await kube.get(self.stack, "management", resource, self.namespace, name)

    async def wait(self, resource: str, name: str, condition: str, status: str = "True") -> Object:
        holds = kube.condition(condition, status)
        seen = await kube.wait(self.stack, "management", resource, self.namespace, name, holds, 150)
        assert seen is not None
        return seen

    async def gone(self, resource: str, name: str) -> None:
        await kube.wait(self.stack, "management", resource, self.namespace, name, lambda seen: seen is None, 150)

    async def delete(self, resource: str, *names: str) -> None:
        plural, _, group = resource.partition(".")
        for name in names:
            path = f"/apis/{group}/v1alpha1/namespaces/{self.namespace}/{plural}/{name}"
            await kube.call(self.stack, "management", "DELETE", path)

    def korc(self, kind: str, name: str, **spec: object) -> Object:
        credentials = {"secretName": "clouds", "cloudName": "admin"}
        return {
            "apiVersion": f"{KORC}/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"cloudCredentialsRef": credentials, **spec},
        }


@pytest_asyncio.fixture(loop_scope="session")
async def place(real_stack: Stage) -> AsyncIterator[Place]:
    here = real_stack.stack
    namespace = f"standins-{uuid.uuid4().hex[:8]}"
    await kube.apply(here, "management", [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    made = Place(here, namespace)
    authority = keystone.authority_pair(here).certificate.read_text()
    clouds = planes.clouds_yaml(here)
    await made.apply(planes.secret(namespace, "clouds", clouds_yaml=clouds, cacert=authority))
    yield made
    await kube.call(here, "management", "DELETE", f"/api/v1/namespaces/{namespace}")


def conditions(seen: Object) -> dict[str, tuple[str, str, str]]:
    found = {c["type"]: (c["status"], c["reason"], c["message"]) for c in seen["status"]["conditions"]}
    assert all(c["observedGeneration"] == seen["metadata"]["generation"] for c in seen["status"]["conditions"])
    return found


def assignment(place: Place, name: str, project: str, user: str, role: str) -> Object:
    joined = {"projectRef": project, "userRef": user, "roleRef": role}
    return place.korc("RoleAssignment", name, managementPolicy="managed", resource=joined)


async def scenery(place: Place, unique: str) -> None:
    domain = place.korc("Domain", "d", managementPolicy="unmanaged", **{"import": {"filter": {"name": "Default"}}})
    project = place.korc("Project", "p", resource={"name": f"p-{unique}", "domainRef": "d"})
    user = place.korc(
        "User",
        "u",
        resource={"name": f"u-{unique}", "domainRef": "d", "defaultProjectRef": "p", "passwordRef": "pw"},
    )
    role = place.korc("Role", "r", managementPolicy="unmanaged", **{"import": {"filter": {"name": "member"}}})
    password = planes.secret(place.namespace, "pw", password=uuid.uuid4().hex)
    await place.apply(password, domain, project, user, role, assignment(place, "ra", "p", "u", "r"))


async def test_an_assignment_looks_as_korcs_does(place: Place) -> None:
    await scenery(place, place.namespace)
    seen = await place.wait(f"roleassignments.{KORC}", "ra", "Available")
    assert conditions(seen) == {
        "Available": ("True", "Success", "OpenStack resource is available"),
        "Progressing": ("False", "Success", "OpenStack resource is up to date"),
    }
    ids = seen["status"]["resource"]
    assert set(seen["status"]) == {"conditions", "resource"}
    assert set(ids) == {"projectID", "roleID", "userID"}
    assert seen["metadata"]["finalizers"] == [GUARD]
    assert "annotations" not in seen["metadata"]
    async with KeystoneAPI(place.stack) as keystone:
        there = await keystone.assignments(user=ids["userID"])
        assert [(one["role"]["id"], one["scope"]["project"]["id"]) for one in there] == [
            (ids["roleID"], ids["projectID"])
        ]
    for resource, name, own in (("users", "u", "user"), ("roles", "r", "role"), ("projects", "p", "project")):
        used = await place.get(f"{resource}.{KORC}", name)
        assert used is not None
        assert {f"{KORC}/{own}", GUARD} <= set(used["metadata"]["finalizers"])
        assert "kopf" not in str(used["metadata"])

    # Everything at once: safe, because each waits for what depends on it.
    for resource, name in (("projects", "p"), ("users", "u"), ("roles", "r"), ("roleassignments", "ra")):
        await place.delete(f"{resource}.{KORC}", name)
    for resource, name in (("roleassignments", "ra"), ("users", "u"), ("projects", "p"), ("roles", "r")):
        await place.gone(f"{resource}.{KORC}", name)
    async with KeystoneAPI(place.stack) as keystone:
        assert await keystone.projects(f"p-{place.namespace}") == []
        assert await keystone.users(f"u-{place.namespace}") == []


async def test_an_assignment_waits_for_all_that_is_missing(place: Place) -> None:
    await place.apply(assignment(place, "ra", "p", "u", "r"))
    seen = await place.wait(f"roleassignments.{KORC}", "ra", "Progressing")
    waits = "\n".join(f"Waiting for {one} to be created" for one in ("Role/r", "User/u", "Project/p"))
    assert conditions(seen) == {
        "Available": ("False", "Progressing", waits),
        "Progressing": ("True", "Progressing", waits),
    }
    await place.delete(f"roleassignments.{KORC}", "ra")
    await place.gone(f"roleassignments.{KORC}", "ra")


async def test_a_used_user_is_held_until_its_assignment_goes(place: Place) -> None:
    await scenery(place, place.namespace)
    await place.wait(f"roleassignments.{KORC}", "ra", "Available")
    await place.delete(f"users.{KORC}", "u")
    await asyncio.sleep(2)
    held = await place.get(f"users.{KORC}", "u")
    assert held is not None
    assert GUARD in held["metadata"]["finalizers"]
    await place.delete(f"roleassignments.{KORC}", "ra")
    await place.gone(f"users.{KORC}", "u")
    await place.delete(f"projects.{KORC}", "p")
    await place.gone(f"projects.{KORC}", "p")


async def test_the_guards_hold_over_a_restart(place: Place) -> None:
    """While nobody looks, a used user is deleted: who comes back must not take it for an unused one."""
    await scenery(place, place.namespace)
    await place.wait(f"roleassignments.{KORC}", "ra", "Available")
    await stack.kill_part(place.stack, "standin-roleassignment")
    await place.delete(f"users.{KORC}", "u")
    await stack.start_part(place.stack, "standin-roleassignment")
    await asyncio.sleep(2)
    held = await place.get(f"users.{KORC}", "u")
    assert held is not None
    assert GUARD in held["metadata"]["finalizers"]
    await place.delete(f"roleassignments.{KORC}", "ra")
    await place.gone(f"users.{KORC}", "u")
    await place.delete(f"projects.{KORC}", "p")
    await place.gone(f"projects.{KORC}", "p")


def database(name: str, schema: str, server: str = "mariadb", policy: str | None = "Delete") -> Object:
    spec: Object = {"mariaDbRef": {"name": server, "waitForIt": True}, "name": schema}
    return {
        "apiVersion": f"{MARIADB}/v1alpha1",
        "kind": "Database",
        "metadata": {"name": name},
        "spec": spec | ({"cleanupPolicy": policy} if policy else {}),
    }


async def schemas(place: Place, prefix: str) -> set[str]:
    query = ("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE %s", (f"{prefix}%",))
    return {row[0] for row in await asyncio.to_thread(mariadb.execute, place.stack, query)}


async def server(place: Place) -> None:
    password = mariadb.root_password(place.stack)
    await place.apply(
        planes.secret(place.namespace, "root", password=password),
        {
            "apiVersion": f"{MARIADB}/v1alpha1",
            "kind": "MariaDB",
            "metadata": {"name": "mariadb"},
            "spec": {"rootPasswordSecretKeyRef": {"name": "root", "key": "password"}},
        },
    )


async def test_a_database_waits_for_its_server_then_exists(place: Place) -> None:
    prefix = place.namespace.replace("-", "_")
    await server(place)
    await place.apply(database("one", f"{prefix}_one"), database("lost", f"{prefix}_lost", "nowhere"))
    lost = await place.wait(f"databases.{MARIADB}", "lost", "Ready", "False")
    assert lost["status"]["conditions"][0]["message"] == "MariaDB not found"
    waiting = await place.get(f"databases.{MARIADB}", "one")
    assert waiting is not None
    assert "status" not in waiting
    assert "finalizers" not in waiting["metadata"]

    await planes.set_conditions(place.stack, "MariaDB", place.namespace, "mariadb", {"Ready": ("Ready", "Running")})
    seen = await place.wait(f"databases.{MARIADB}", "one", "Ready")
    (ready,) = seen["status"]["conditions"]
    assert (ready["reason"], ready["message"], "observedGeneration" in ready) == ("Created", "Created", False)
    assert seen["metadata"]["finalizers"] == ["database.k8s.mariadb.com/finalizer"]
    assert await schemas(place, prefix) == {f"{prefix}_one"}

    await place.delete(f"databases.{MARIADB}", "one", "lost")
    await place.gone(f"databases.{MARIADB}", "one")
    await place.gone(f"databases.{MARIADB}", "lost")
    assert await schemas(place, prefix) == set()


async def test_the_policy_at_the_deletion_counts(place: Place) -> None:
    prefix = place.namespace.replace("-", "_")
    await server(place)
    await planes.set_conditions(place.stack, "MariaDB", place.namespace, "mariadb", {"Ready": ("Ready", "Running")})
    await place.apply(database("kept", f"{prefix}_kept", policy="Skip"), database("unset", f"{prefix}_u", policy=None))
    for name in ("kept", "unset"):
        await place.wait(f"databases.{MARIADB}", name, "Ready")
        await place.delete(f"databases.{MARIADB}", name)
        await place.gone(f"databases.{MARIADB}", name)
    assert await schemas(place, prefix) == {f"{prefix}_kept"}

    # An existing schema is taken over silently.
    await place.apply(database("kept", f"{prefix}_kept"))
    await place.wait(f"databases.{MARIADB}", "kept", "Ready")
    await place.delete(f"databases.{MARIADB}", "kept")
    await place.gone(f"databases.{MARIADB}", "kept")
    assert await schemas(place, prefix) == set()
