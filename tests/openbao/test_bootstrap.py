"""The bootstrap against a real OpenBao of its own: no cluster is needed, only that the server is there."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hvac
import pytest
import requests

from deploy.local.part import Stack
from deploy.local.parts import openbao as part
from deploy.local.ports import is_free
from deploy.openbao.bootstrap import Bootstrap, BootstrapError, Connection, Reviewer
from deploy.openbao.layout import Tenant

# The server looks at its form alone.
JWT = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyZXZpZXdlciJ9.c2ln"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("openbao")
    free = [port for port in range(32100, 32200) if is_free(port)]
    made = Stack("test", folder, folder, {"openbao": free[0], "openbao-cluster": free[1]})
    asyncio.run(part.OpenBao().prepare(made))
    process = part.OpenBao().process(made)
    assert process is not None
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(process.argv, stdout=log, stderr=log)
    try:
        asyncio.run(_up(made))
        yield made
    finally:
        server.kill()
        server.wait()


async def _up(stack: Stack) -> None:
    for _ in range(200):
        if await part.OpenBao().ready(stack):
            break
        await asyncio.sleep(0.1)
    await part._initialise(stack)
    await part._unseal(stack)


@pytest.fixture
def connection(stack: Stack) -> Connection:
    return part.connection(stack)


def everything(connection: Connection) -> None:
    steps = Bootstrap(connection)
    steps.secret_engines()
    steps.auth(
        Reviewer("https://127.0.0.1:1", Path(connection.verify).read_text(), JWT), "c5c3-operator", "c5c3-system"
    )
    steps.policies()


def state(client: hvac.Client) -> dict[str, Any]:
    paths = [f"auth/kubernetes/management/role/{name}" for name in ("order-db", "eso-tenant", "c5c3-operator")]
    paths += ["sys/mounts", "sys/auth", "sys/policies/acl/eso-tenant", "sys/policies/acl/c5c3-operator"]
    moving = {"modified", "version"}  # a policy's, told at each write
    return {
        path: {name: value for name, value in client.read(path)["data"].items() if name not in moving} for path in paths
    }


def test_running_it_again_changes_nothing(connection: Connection) -> None:
    everything(connection)
    first = state(connection.client())
    everything(connection)
    assert state(connection.client()) == first
    assert first["sys/mounts"]["kv-v2/"]["options"] == {"version": "2"}
    assert first["sys/mounts"]["pki/"]["config"]["max_lease_ttl"] == 87600 * 3600
    assert {f"kubernetes/{name}/" for name in ("management", "control-plane", "hypervisor", "storage")} <= set(
        first["sys/auth"]
    )


def test_policies_speak_of_the_live_mount(connection: Connection) -> None:
    everything(connection)
    client = connection.client()
    accessor = client.read("sys/auth")["data"]["kubernetes/management/"]["accessor"]
    assert accessor in client.read("sys/policies/acl/order-db-dynamic")["data"]["policy"]


def test_the_operator_can_do_its_work_and_no_more(connection: Connection) -> None:
    everything(connection)
    client = connection.client()
    token = client.auth.token.create(policies=["c5c3-operator"], ttl="5m")["auth"]["client_token"]
    wanted = {
        "database/mariadb/roles/order.openstack.reports-12345678-database": ["create", "delete", "read", "update"],
        "sys/leases/revoke-prefix/database/mariadb/creds/order.openstack.reports-12345678-database": ["sudo", "update"],
        "database/mariadb/config/keystone-openstack": ["deny"],
        "database/mariadb/creds/order.openstack.reports-12345678-database": ["deny"],
        "database/mariadb/roles/keystone-openstack": ["deny"],
    }
    seen = client.write_data("sys/capabilities", data={"token": token, "paths": list(wanted)})["data"]
    assert {path: sorted(seen[path]) for path in wanted} == wanted


def test_a_tenants_connection_and_role_are_upserted(connection: Connection) -> None:
    everything(connection)
    steps = Bootstrap(connection)
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        steps.database_tenant(Tenant("openstack", "openstack", address), "s3cret")
    client = connection.client()
    config = client.read("database/mariadb/config/keystone-openstack")["data"]
    assert config["allowed_roles"] == ["keystone-openstack", "order.openstack.*"]
    assert config["connection_details"]["connection_url"] == "{{username}}:{{password}}@tcp(127.0.0.1:2)/"
    assert "s3cret" not in str(config)
    role = client.read("database/mariadb/roles/keystone-openstack")["data"]
    assert (role["default_ttl"], role["max_ttl"]) == (48 * 3600, 72 * 3600)


def test_somebody_elses_mount_is_left_alone(connection: Connection) -> None:
    everything(connection)
    client = connection.client()
    client.sys.disable_secrets_engine("barbican")
    client.sys.enable_secrets_engine("transit", path="barbican")
    try:
        with pytest.raises(BootstrapError, match="barbican is mounted as transit, wanted kv"):
            Bootstrap(connection).secret_engines()
    finally:
        client.sys.disable_secrets_engine("barbican")


def test_a_client_without_a_certificate_is_turned_away(connection: Connection) -> None:
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(f"{connection.url}/v1/sys/health", verify=connection.verify, timeout=5)


def test_a_wrong_token_is_one_sentence_without_it(connection: Connection) -> None:
    wrong = Connection(connection.url, connection.verify, connection.cert, "s.wrongtoken")
    with pytest.raises(BootstrapError, match=r"OpenBao refused sys/mounts: .*permission denied") as caught:
        Bootstrap(wrong).secret_engines()
    assert "s.wrongtoken" not in str(caught.value)


def test_an_absent_server_is_one_sentence(connection: Connection, tmp_path: Path) -> None:
    nowhere = Connection("https://127.0.0.1:1", connection.verify, connection.cert, "x")
    with pytest.raises(BootstrapError, match="cannot be asked about sys/mounts"):
        Bootstrap(nowhere).secret_engines()
