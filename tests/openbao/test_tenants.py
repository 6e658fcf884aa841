"""Who gets which credentials, with real logins: tokens of the cluster, OpenBao's policies, MariaDB's grants."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import hvac
import pymysql
import pytest
import pytest_asyncio

from deploy.local import kube, stack
from deploy.local.part import Stack
from deploy.local.parts import mariadb, openbao
from deploy.openbao.bootstrap import Bootstrap, Connection
from deploy.openbao.layout import MANAGEMENT, Tenant

pytestmark = pytest.mark.real

PARTS = ("openbao", "mariadb")


@dataclass
class Bank:
    """OpenBao over the cluster and the database, and two namespaces whose names begin alike."""

    stack: Stack
    connection: Connection
    plane: str

    @property
    def neighbour(self) -> str:
        """Another plane's namespace; the plane's own name is the beginning of its."""
        return f"{self.plane}x"

    async def login(self, namespace: str, account: str, role: str) -> hvac.Client:
        """A client with the token that a ServiceAccount of this namespace gets."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = await kube.call(self.stack, "management", "POST", path, {"spec": {}})
        client = self.connection.client()
        body = {"role": role, "jwt": answer["status"]["token"]}
        got = await asyncio.to_thread(client.write_data, f"auth/{MANAGEMENT}/login", data=body)
        client.token = got["auth"]["client_token"]
        return client

    def connect(self, data: dict[str, Any]) -> pymysql.Connection[pymysql.cursors.Cursor]:
        port = self.stack.ports["mariadb"]
        return pymysql.connect(host="127.0.0.1", port=port, user=data["username"], password=data["password"])

    def refuses(self, data: dict[str, Any]) -> bool:
        """Whether MariaDB knows these credentials no more."""
        try:
            self.connect(data).close()
        except pymysql.err.OperationalError as error:
            return bool(error.args[0] == 1045)
        return False


@pytest_asyncio.fixture(scope="module")
async def bank() -> AsyncIterator[Bank]:
    kept = os.environ.get("C5C3_STACK_FOR_TESTS")
    instance = kept or f"tests-bao-{os.getpid()}"
    try:
        here = await stack.up(instance, parts=PARTS)
        made = Bank(here, openbao.connection(here), f"plane-{uuid.uuid4().hex[:6]}")
        accounts: list[dict[str, Any]] = []
        for namespace in (made.plane, made.neighbour):
            accounts.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for name in ("order-db-creds", "keystone-db-creds", "eso-tenant-auth"):
                meta = {"namespace": namespace, "name": name}
                accounts.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        await kube.apply(here, "management", accounts)
        for namespace in (made.plane, made.neighbour):
            tenant = Tenant(
                namespace, namespace, f"127.0.0.1:{here.ports['mariadb']}", f"{namespace.replace('-', '_')}"
            )
            password = mariadb.root_password(here)
            await asyncio.to_thread(Bootstrap(made.connection).database_tenant, tenant, password)
        yield made
        for namespace in (made.plane, made.neighbour):
            await kube.call(here, "management", "DELETE", f"/api/v1/namespaces/{namespace}")
    finally:
        if not kept:
            await stack.down(instance, forget=True)


def order_role(bank: Bank, schema: str) -> tuple[str, dict[str, Any]]:
    """A role as the product writes one for an ordered database."""
    body = {
        "db_name": f"keystone-{bank.plane}",
        "creation_statements": [
            "CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}';",
            f"GRANT ALL PRIVILEGES ON `{schema.replace('_', chr(92) + '_')}`.* TO '{{{{name}}}}'@'%';",
        ],
        "revocation_statements": ["DROP USER IF EXISTS '{{name}}'@'%';"],
        "default_ttl": 172800,
        "max_ttl": 259200,
    }
    return f"order.{bank.plane}.reports-12345678-database", body


async def test_credentials_of_an_order_are_for_its_planes_namespace_alone(bank: Bank) -> None:
    schema = f"{bank.plane.replace('-', '_')}_reports"
    twin = schema.replace("_", "x", 1)  # what an unescaped _ would let in
    await asyncio.to_thread(
        mariadb.execute, bank.stack, *((f"CREATE DATABASE IF NOT EXISTS `{name}`", ()) for name in (schema, twin))
    )
    role, body = order_role(bank, schema)
    root = bank.connection.client()
    root.write_data(f"database/mariadb/roles/{role}", data=body)

    ours = await bank.login(bank.plane, "order-db-creds", "order-db")
    data = ours.read(f"database/mariadb/creds/{role}")["data"]
    assert data["username"].startswith("v-kubernetes-")
    with bank.connect(data) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        assert schema in {row[0] for row in cursor.fetchall()}
        cursor.execute(f"CREATE TABLE `{schema}`.`t` (a INT)")
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            cursor.execute(f"CREATE TABLE `{twin}`.`t` (a INT)")

    theirs = await bank.login(bank.neighbour, "order-db-creds", "order-db")
    with pytest.raises(hvac.exceptions.Forbidden):
        theirs.read(f"database/mariadb/creds/{role}")

    root.write_data(f"sys/leases/revoke-prefix/database/mariadb/creds/{role}", data={})
    for _ in range(100):
        if bank.refuses(data):
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("the revoked user can still log in")
    drop = ((f"DROP DATABASE `{name}`", ()) for name in (schema, twin))
    await asyncio.to_thread(mariadb.execute, bank.stack, *drop)


async def test_a_plane_reads_its_own_keystone_role_alone(bank: Bank) -> None:
    schema = bank.plane.replace("-", "_")
    await asyncio.to_thread(mariadb.execute, bank.stack, (f"CREATE DATABASE IF NOT EXISTS `{schema}`", ()))
    client = await bank.login(bank.plane, "keystone-db-creds", "keystone-db")
    data = client.read(f"database/mariadb/creds/keystone-{bank.plane}")["data"]
    bank.connect(data).close()
    with pytest.raises(hvac.exceptions.Forbidden):
        client.read(f"database/mariadb/creds/keystone-{bank.neighbour}")
    with pytest.raises(hvac.exceptions.Forbidden):
        client.read(f"database/mariadb/creds/{order_role(bank, schema)[0]}")
    await asyncio.to_thread(mariadb.execute, bank.stack, (f"DROP DATABASE `{schema}`", ()))


async def test_a_role_of_an_order_cannot_use_another_planes_connection(bank: Bank) -> None:
    role, body = order_role(bank, "whatever")
    role = role.replace("reports", "stray")
    root = bank.connection.client()
    root.write_data(f"database/mariadb/roles/{role}", data=body | {"db_name": f"keystone-{bank.neighbour}"})
    client = await bank.login(bank.plane, "order-db-creds", "order-db")
    with pytest.raises(hvac.exceptions.VaultError, match="not an allowed role"):
        client.read(f"database/mariadb/creds/{role}")
    root.delete(f"database/mariadb/roles/{role}")


async def test_a_role_is_for_its_account_and_its_cluster(bank: Bank) -> None:
    with pytest.raises(hvac.exceptions.VaultError, match="not authorized"):
        await bank.login(bank.plane, "order-db-creds", "eso-tenant")


async def test_a_tenant_writes_and_deletes_its_own_accounts_alone(bank: Bank) -> None:
    client = await bank.login(bank.plane, "eso-tenant-auth", "eso-tenant")
    own = f"openstack/keystone/{bank.plane}/glance/service-accounts/credentials"
    client.write_data(f"kv-v2/data/{own}", data={"data": {"password": "x"}})
    assert client.read(f"kv-v2/data/{own}")["data"]["data"] == {"password": "x"}
    client.delete(f"kv-v2/data/{own}")
    client.delete(f"kv-v2/metadata/{own}")
    other = own.replace(bank.plane, bank.neighbour)
    with pytest.raises(hvac.exceptions.Forbidden):
        client.write_data(f"kv-v2/data/{other}", data={"data": {"password": "x"}})
    for path in (f"kv-v2/data/{other}", "kv-v2/data/infrastructure/mariadb"):
        with pytest.raises(hvac.exceptions.Forbidden):
            client.read(path)
