"""How a Secret travels by a tenant's store: pushed into OpenBao, brought back by name, taken away; without the product.

It is what the product's delivery stands on, with the real cert-manager, External Secrets and OpenBao.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import hvac
import pytest
import pytest_asyncio

from deploy.local import kube
from deploy.local.part import Stack
from deploy.local.parts import openbao, planes
from tests.e2e.stage import Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

Object = dict[str, Any]
STORE = {"kind": "SecretStore", "name": "openbao-tenant-store"}
STORES = "secretstores.external-secrets.io"
PUSHES, FETCHES = "pushsecrets.external-secrets.io", "externalsecrets.external-secrets.io"
NAMESPACE = "team-ext"


@dataclass
class Parcel:
    """One source Secret with the PushSecret and the ExternalSecret that carry it, shaped as contracts 3.2 has them."""

    stage: Stage
    name: str
    bao: hvac.Client

    @property
    def stack(self) -> Stack:
        return self.stage.stack

    @property
    def key(self) -> str:
        return f"openstack/keystone/{NAMESPACE}/{self.name}/service-accounts/credentials"

    async def fill(self, password: str) -> None:
        """Writes the source."""
        data = {"password": password, "clouds_yaml": f"clouds: {password}", "username": self.name}
        await kube.apply(self.stack, "management", [planes.secret(NAMESPACE, f"{self.name}-source", **data)])

    async def push(self, nudge: str) -> None:
        spec = {
            "deletionPolicy": "Delete",
            "secretStoreRefs": [STORE],
            "selector": {"secret": {"name": f"{self.name}-source"}},
            "data": [{"match": {"remoteRef": {"remoteKey": self.key}}}],
        }
        meta = self._meta("backup", {"c5c3.io/keystoneservice-push-hash": nudge})
        body = {"apiVersion": "external-secrets.io/v1alpha1", "kind": "PushSecret", "metadata": meta, "spec": spec}
        await kube.apply(self.stack, "management", [body])

    async def fetch(self, nudge: str) -> None:
        spec = {
            "refreshInterval": "1h",
            "secretStoreRef": STORE,
            "target": {"name": f"{self.name}-credentials", "creationPolicy": "Owner"},
            "data": [
                {"secretKey": name, "remoteRef": {"key": self.key, "property": name}}
                for name in ("password", "clouds.yaml")
            ],
        }
        meta = self._meta("credentials", {"external-secrets.io/force-sync": nudge})
        body = {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": meta, "spec": spec}
        await kube.apply(self.stack, "management", [body])

    async def pushed(self, *, after: str = "") -> str:
        """Waits until the PushSecret is ready and has moved on from a version, and answers the one it reached."""

        async def reached() -> str:
            seen = await self.get(PUSHES, "backup")
            is_ready = condition(seen, "Ready").get("status") == "True"
            return str((seen or {})["status"]["syncedResourceVersion"]) if is_ready else after

        return await until(reached, lambda version: version != after, 10)

    async def delivered(self) -> dict[str, str]:
        seen = await self.get("secrets", "credentials")
        return {name: base64.b64decode(value).decode() for name, value in ((seen or {}).get("data") or {}).items()}

    async def stored(self, part: str = "data") -> Object | None:
        """What OpenBao has at the key: its "data", or its "metadata" and with it every version."""
        found = await asyncio.to_thread(self.bao.read, f"kv-v2/{part}/{self.key}")
        return dict(found["data"]) if found else None

    async def get(self, resource: str, what: str) -> Object | None:
        return await kube.get(self.stack, "management", resource, NAMESPACE, f"{self.name}-{what}")

    async def drop(self, resource: str, what: str) -> None:
        """Deletes and waits until it is gone."""
        await self.stage.delete("management", resource, NAMESPACE, f"{self.name}-{what}")
        await until(lambda: self.get(resource, what), lambda seen: seen is None, 20)

    def _meta(self, what: str, annotations: dict[str, str]) -> Object:
        return {"namespace": NAMESPACE, "name": f"{self.name}-{what}", "annotations": annotations}


@pytest_asyncio.fixture
async def parcel(real_stack: Stage) -> AsyncIterator[Parcel]:
    made = Parcel(real_stack, unique("parcel"), openbao.connection(real_stack.stack).client())
    await made.fill("one")
    yield made
    await made.drop(PUSHES, "backup")
    await made.drop(FETCHES, "credentials")
    await made.drop("secrets", "source")
    await asyncio.to_thread(made.bao.delete, f"kv-v2/metadata/{made.key}")


@pytest.mark.parametrize("namespace", ["openstack", "team-a", "team-b", "openstack-ext", "team-ext"])
async def test_every_tenant_has_a_store_that_is_valid(real_stack: Stage, namespace: str) -> None:
    store = await kube.get(real_stack.stack, "management", STORES, namespace, STORE["name"])
    ready = condition(store, "Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("True", "Valid", "store validated")


async def test_a_whole_secret_goes_there_and_two_of_its_keys_come_back(parcel: Parcel) -> None:
    await parcel.push("1")
    version = await parcel.pushed()
    assert (await parcel.stored() or {})["data"] == {
        "password": "one",
        "clouds.yaml": "clouds: one",
        "username": parcel.name,
    }
    assert (await parcel.stored("metadata") or {})["custom_metadata"] == {"managed-by": "external-secrets"}

    await parcel.fetch(f"1/{version}")
    assert await until(parcel.delivered, bool, 10) == {"password": "one", "clouds.yaml": "clouds: one"}
    secret = await parcel.get("secrets", "credentials") or {}
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ExternalSecret", f"{parcel.name}-credentials", True)


async def test_an_annotation_pushes_at_once_and_another_fetches_at_once(parcel: Parcel) -> None:
    """Nothing else does within the hour: the source is not watched, and neither is OpenBao."""
    await parcel.push("1")
    first = await parcel.pushed()
    await parcel.fetch(f"1/{first}")
    await until(parcel.delivered, bool, 10)

    await parcel.fill("two")
    await asyncio.sleep(2)
    assert (await parcel.stored() or {})["data"]["password"] == "one"
    await parcel.push("2")
    second = await parcel.pushed(after=first)
    assert (await parcel.stored() or {})["data"]["password"] == "two"

    await asyncio.sleep(2)
    assert (await parcel.delivered())["password"] == "one"
    await parcel.fetch(f"2/{second}")
    await until(parcel.delivered, lambda data: data["password"] == "two", 10)


async def test_the_deletion_takes_data_and_metadata_back(parcel: Parcel) -> None:
    await parcel.push("1")
    await parcel.fetch(f"1/{await parcel.pushed()}")
    await until(parcel.delivered, bool, 10)
    await parcel.drop(PUSHES, "backup")
    assert (await parcel.stored(), await parcel.stored("metadata")) == (None, None)
    assert await parcel.delivered() != {}  # what was delivered stays as long as its ExternalSecret does
    await parcel.drop(FETCHES, "credentials")
    await until(parcel.delivered, lambda data: data == {}, 20)


async def test_the_version_reached_tells_what_was_pushed(parcel: Parcel) -> None:
    """Ready alone does not: it stays True while a push is due. This is how to know, without remembering anything."""
    await parcel.push("1")
    await parcel.pushed()
    await parcel.push("2")

    def carried(seen: Object | None) -> str:
        meta = (seen or {})["metadata"]
        told = "{annotations:map[c5c3.io/keystoneservice-push-hash:2] labels:map[]}"
        return f"{meta['generation']}-{hashlib.sha3_224(told.encode()).hexdigest()}"

    await until(
        lambda: parcel.get(PUSHES, "backup"),
        lambda seen: (seen or {})["status"]["syncedResourceVersion"] == carried(seen),
        10,
    )


async def test_a_strangers_secret_of_the_targets_name_is_taken_over(parcel: Parcel) -> None:
    """Without a word, and it goes with the ExternalSecret: whoever writes one has to look first."""
    theirs = planes.secret(NAMESPACE, f"{parcel.name}-credentials", password="theirs", other="kept?")
    await kube.apply(parcel.stack, "management", [theirs])
    await parcel.push("1")
    await parcel.fetch(f"1/{await parcel.pushed()}")
    await until(parcel.delivered, lambda data: data == {"password": "one", "clouds.yaml": "clouds: one"}, 10)
    secret = await parcel.get("secrets", "credentials") or {}
    assert [owner["kind"] for owner in secret["metadata"]["ownerReferences"]] == ["ExternalSecret"]


async def test_a_delivered_clouds_yaml_logs_in(real_stack: Stage) -> None:
    """By the address that a Managed plane delivers, which only the cluster's DNS would know."""
    text = planes.clouds_yaml(real_stack.stack, auth_url="http://cp-keystone.openstack.svc:5000/v3")
    token = await real_stack.keystone.login_with(text)
    assert token is not None
    assert token["project"]["name"] == "admin"
    wrong = planes.clouds_yaml(real_stack.stack, password="wrong")
    assert await real_stack.keystone.login_with(wrong) is None


async def test_what_somebody_else_stored_is_not_overwritten(parcel: Parcel) -> None:
    await asyncio.to_thread(parcel.bao.write_data, f"kv-v2/data/{parcel.key}", data={"data": {"password": "theirs"}})
    await parcel.push("1")
    seen = await until(lambda: parcel.get(PUSHES, "backup"), lambda seen: bool(condition(seen, "Ready")), 10)
    ready = condition(seen, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Errored")
    assert "secret not managed by external-secrets" in ready["message"]
    assert (await parcel.stored() or {})["data"] == {"password": "theirs"}
