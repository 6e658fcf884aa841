"""No secret value of registrations is in anything that people read. It looks back, so it comes last of its files.

Searched by value: whatever the tests before have seen of passwords and documents, and all that is in the clusters now.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.parse
from collections.abc import Callable

import pytest

from deploy.local import kube
from deploy.local.parts import openbao
from tests.e2e.services import Service, account, catalog, decoded, login_of
from tests.e2e.stage import Stage, until
from tests.e2e.test_zz_traces import read_all

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
Register = Callable[..., Service]

NAMESPACES = ("openstack", "openstack-ext", "team-a", "team-b", "team-ext")
TOKEN = b"gAAAAA"
"""How every token of Keystone begins."""


@pytest.mark.row("T07")
async def test_no_secret_value_of_a_registration_is_in_anything_that_people_read(
    real_stack: Stage, register: Register
) -> None:
    """After a provisioning, a rotation, a collision, a wait and a deletion; the search finds what is no secret."""
    whole = register("searched", catalog=catalog("public"), account=lambda name: account(f"{name}-project", "member"))
    gone = register("gone", account=lambda name: account(f"{name}-project", "member", rotation={"mode": "Scheduled"}))
    refused = register("refused", account=lambda name: account(name, userName="admin", adopt=True))
    await asyncio.gather(*(each.place() for each in (whole, gone, refused)))
    await asyncio.gather(whole.is_ready(), gone.is_ready(), refused.reads("account", "ServiceAccountCollision"))
    old = (await whole.passwords())[1]
    await real_stack.command("workflow", "update", "execute", "--workflow-id", whole.workflow_id, "--name", "rotate")
    await whole.is_ready()
    new = (await until(whole.passwords, lambda found: set(found) == {2}, 20))[2]
    await whole.stored()
    delivered = await whole.credentials()
    assert login_of(delivered["clouds.yaml"])["password"] == new
    await gone.delete()
    await gone.gone()
    seen = await read_all(real_stack)

    values = real_stack.secrets | await in_the_cluster(real_stack)
    assert {old, new, delivered["clouds.yaml"]} <= values
    for what in ("histories", "visibility", "worker's log", "traces", "orders"):
        assert any(whole.name.encode() in text for text in seen[what]), f"the search would find nothing in {what}"
    assert any(b"ScheduledRotationDeferred" in text for text in seen["events"])
    for what, texts in seen.items():
        everything = b"\n".join(texts)
        assert everything, f"nothing was read of {what}"
        assert TOKEN not in everything, f"a token of Keystone is in {what}"
        for value in values:
            for form in spelled(value):
                assert form not in everything, f"a secret value is in {what}"


async def in_the_cluster(stage: Stage) -> set[str]:
    """Every value of every Secret of planes and orders but names and addresses, and OpenBao's own token."""
    found = {openbao.connection(stage.stack).token}
    for namespace in NAMESPACES:
        for one in await kube.items(stage.stack, "management", "secrets", namespace):
            data = decoded(one)
            found |= {data[key] for key in ("password", "clouds.yaml", "tls.key", "token") if data.get(key)}
            found |= {login_of(data["clouds.yaml"])["password"]} if "clouds.yaml" in data else set()
    return {value for value in found if len(value) > 8}


def spelled(value: str) -> set[bytes]:
    """As it is, as JSON has it, as an address has it, and as a Secret has it."""
    raw = value.encode()
    forms = {raw, json.dumps(value)[1:-1].encode(), urllib.parse.quote(value).encode(), base64.b64encode(raw)}
    return {each for each in forms if each}
