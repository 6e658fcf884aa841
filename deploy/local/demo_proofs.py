"""What `make demo` proves of its orders: by Keystone's own API, by logging in as a service does, by SQL.

Nothing here asks the product whether it did well.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from typing import Any

import pymysql
import yaml
from rich.console import Console
from temporalio.client import Client

from deploy.local import kube
from deploy.local.demo_orders import DATABASES, PROJECTS, SERVICE, Sample
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import Stack
from deploy.local.parts import mariadb, openbao, temporal
from deploy.local.services import reachable

PATIENCE = 60.0


class Surprise(Exception):
    """The demonstration did not show what it should."""


async def projects(console: Console, here: Stack) -> None:
    """What Keystone itself says, asked without any Kubernetes."""
    console.print("\nAs Keystone's own API shows it:")
    async with KeystoneAPI(here) as keystone:
        for sample in PROJECTS:
            name = sample.body["spec"].get("projectName") or sample.name
            rows = await keystone.projects(name=name)
            status = (await sample.read(here)).get("status") or {}
            wanted = [status["projectID"]] if "projectID" in status else []
            if [row["id"] for row in rows] != wanted:
                raise Surprise(f"Keystone has {len(rows)} projects named {name!r}, ids {[row['id'] for row in rows]}")
            shown_as = f"id {rows[0]['id']}, domain {rows[0]['domain_id']}" if rows else "no such project"
            console.print(f"  {name:16} {shown_as}")


async def service(console: Console, here: Stack) -> None:
    """Logs in as the service would, rotates, and shows that the old password is refused."""
    async with KeystoneAPI(here) as keystone:
        before = await _clouds_yaml(here)
        token = await keystone.login_with(before)
        if token is None:
            raise Surprise("Keystone refuses the delivered credentials")
        roles = ", ".join(sorted(role["name"] for role in token["roles"]))
        catalog = [entry for entry in token["catalog"] if entry["name"] == SERVICE.name]
        console.print(f"\n  logged in with Secret {SERVICE.namespace}/{SERVICE.name}-credentials: roles {roles}")
        console.print(
            f"  the catalog lists {len(catalog[0]['endpoints']) if catalog else 0} endpoints of {SERVICE.name}"
        )
        client = await Client.connect(temporal.address(here))
        order = client.get_workflow_handle(f"{SERVICE.kind}:{SERVICE.namespace}/{SERVICE.name}")
        answer = await order.execute_update("rotate", result_type=dict)
        if not answer["delivered"]:
            raise Surprise(f"the rotation waits: {answer['waitsOn']}")
        after = await _clouds_yaml(here)
        if await keystone.login_with(after) is None or await keystone.login_with(before) is not None:
            raise Surprise("after the rotation the new password must log in, and the old one must not")
        console.print(
            f"  rotated to generation {answer['generation']}: the new password logs in, the old one is refused"
        )


async def _clouds_yaml(here: Stack) -> str:
    """What the service reads. Named `admin` in it is the plane's word for the cloud, not who logs in."""
    found = await kube.get(here, "management", "secrets", SERVICE.namespace, f"{SERVICE.name}-credentials")
    if found is None:
        raise Surprise(f"there is no Secret {SERVICE.namespace}/{SERVICE.name}-credentials")
    text = base64.b64decode(found["data"]["clouds.yaml"]).decode()
    if yaml.safe_load(text)["clouds"].keys() != {"admin"}:
        raise Surprise("the delivered clouds.yaml does not name the plane's cloud")
    return text


async def databases(console: Console, here: Stack) -> None:
    """Logs in with each delivered Secret, and as the refreshed user of the first."""
    first, second = [await _delivered(here, sample) for sample in DATABASES]
    for sample, own, other in ((DATABASES[0], first, second), (DATABASES[1], second, first)):
        rows = await _sql(here, own, "CREATE TABLE IF NOT EXISTS demo (word TEXT)", "DELETE FROM demo",
                          "INSERT INTO demo VALUES ('hello')", "SELECT word FROM demo")  # fmt: skip
        try:
            await _sql(here, own, f"SELECT * FROM `{other['database']}`.demo")
        except pymysql.err.OperationalError:
            pass
        else:
            raise Surprise(f"the credential of {sample.name} reads the schema {other['database']}")
        console.print(
            f"  {sample.name}: {own['username']} at {own['host']}:{own['port']} wrote and read {rows[0][0]!r} in schema"
            f" {own['database']}; schema {other['database']} is refused"
        )
    await _refresh(here, DATABASES[0])
    deadline = time.monotonic() + PATIENCE
    while (now := await _delivered(here, DATABASES[0]))["username"] == first["username"]:
        if time.monotonic() > deadline:
            raise Surprise("the refreshed credential was not delivered")
        await asyncio.sleep(0.25)
    await _sql(here, now, "SELECT 1")
    console.print(f"  refreshed: {DATABASES[0].name} now logs in as {now['username']}")


async def schemas_left(here: Stack) -> list[str]:
    """Schemas and users that the ordered databases left in MariaDB, asked as its root."""
    names = [sample.body["spec"].get("databaseName") or sample.name.replace("-", "_") for sample in DATABASES]
    root = {"username": "root", "password": await asyncio.to_thread(mariadb.root_password, here)}
    found = await _sql(here, root, "SELECT schema_name FROM information_schema.schemata")
    users = await _sql(here, root, "SELECT user FROM mysql.user WHERE user LIKE 'v-%%order%%'")
    return [f"schema {row[0]}" for row in found if row[0] in names] + [f"SQL user {row[0]}" for row in users]


async def secrets_left(here: Stack) -> list[str]:
    """Roles of orders, and the account's entry, that are left in OpenBao, asked as its root."""
    bao = openbao.connection(here).client()

    def work() -> list[str]:
        roles = (bao.list("database/mariadb/roles") or {}).get("data", {}).get("keys", [])
        left = [f"OpenBao role {role}" for role in roles if role.startswith("order.")]
        place = f"kv-v2/metadata/openstack/keystone/{SERVICE.namespace}/{SERVICE.name}/service-accounts/credentials"
        return left + ([f"OpenBao entry {place}"] if bao.read(place) else [])

    return await asyncio.to_thread(work)


async def _delivered(here: Stack, sample: Sample) -> dict[str, str]:
    found = await kube.get(here, sample.cluster, "secrets", sample.namespace, f"{sample.name}-credentials")
    data = (found or {}).get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


async def _refresh(here: Stack, sample: Sample) -> None:
    """As a person forces it: any new annotation on the ExternalSecret."""
    externals = "externalsecrets.external-secrets.io"
    for one in await kube.items(here, "management", externals, sample.body["spec"]["controlPlaneRef"]["namespace"]):
        if (one["metadata"].get("labels") or {}).get("c5c3.io/mariadbdatabase-name") == sample.name:
            meta, mark = one["metadata"], {"metadata": {"annotations": {"force-sync": secrets.token_hex(4)}}}
            await kube.patch(here, "management", externals, meta["namespace"], meta["name"], mark)


async def _sql(here: Stack, login: dict[str, str], *statements: str) -> list[Any]:
    """Runs statements as the delivered user; answers the rows of the last."""
    where = reachable(here, f"{login['host']}:{login['port']}") if "host" in login else ""
    host, _, port = (where or f"127.0.0.1:{here.ports['mariadb']}").rpartition(":")

    def work() -> list[Any]:
        with (
            pymysql.connect(
                host=host,
                port=int(port),
                user=login["username"],
                password=login["password"],
                database=login.get("database"),
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    return await asyncio.to_thread(work)
