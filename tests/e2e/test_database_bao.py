"""Our client and the real OpenBao: each call, what the operator's policy lets it do, and what not."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import hvac
import pytest
import pytest_asyncio

from activities.errors import OpenBaoError
from activities.openbao import OpenBao, Session
from deploy.local import kube
from deploy.local.parts import openbao, operator
from deploy.openbao.bootstrap import Bootstrap
from tests.e2e.databases import CLIENT, LOGIN, LOGOUT, Estate, Witness, estate
from tests.e2e.stage import Stage, unique
from workflows.api.mariadbdatabase import Bao
from workflows.mariadbdatabase.schema import role, same_role

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


class Teller:
    """Sessions as the worker opens them: its token, and the client certificate of a plane's namespace."""

    def __init__(self, ground: Estate, pair: dict[str, bytes]) -> None:
        self.ground = ground
        self._pair = pair
        self._client = OpenBao(operator.token_file(ground.stage.stack))
        self._bao = Bao(server=openbao.url(ground.stage.stack))

    def session(self, **other: str) -> AbstractAsyncContextManager[Session]:
        return self._client.session(self._bao.model_copy(update=other), self._pair, time.monotonic() + 30)

    def name(self, stem: str) -> str:
        return f"order.{self.ground.namespace}.{unique(stem)}-database"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def teller(real_stack: Stage) -> AsyncIterator[Teller]:
    async with estate(real_stack) as ground:
        await (await ground.database(unique("opens")).place()).is_ready()  # so that there is a certificate
        secret = await ground.get("secrets", CLIENT)
        assert secret is not None
        pair = {key: base64.b64decode(value) for key, value in secret["data"].items()}
        yield Teller(ground, pair)


@pytest.mark.row("B01")
async def test_roles_and_leases_are_read_written_revoked_and_deleted(teller: Teller) -> None:
    name, wanted = teller.name("role"), role("some_schema", teller.ground.namespace)
    witness = Witness(teller.ground.stage)
    async with teller.session() as session:
        assert await session.read_role(name) is None
        await session.write_role(name, wanted)
        stored = await session.read_role(name)
        assert stored is not None
        assert same_role(stored, wanted)
        await session.revoke(name)
        await session.delete_role(name)
        assert await session.read_role(name) is None
        await session.revoke(name)
        await session.delete_role(name)
        token = session._dialled._adapter.token
        teller.ground.stage.secrets.add(token)
    path = f"database/mariadb/roles/{name}"
    revoke = f"update sys/leases/revoke-prefix/database/mariadb/creds/{name}"
    asked = [one.rstrip("!") for one in await witness.asked()]
    assert asked == [
        LOGIN, f"read {path}", f"create {path}", f"read {path}", revoke, f"delete {path}", f"read {path}", revoke,
        f"delete {path}", LOGOUT,
    ]  # fmt: skip
    after = openbao.connection(teller.ground.stage.stack).client()
    after.token = token
    with pytest.raises(hvac.exceptions.Forbidden):
        await asyncio.to_thread(after.lookup_token)


@pytest.mark.row("B01")
async def test_revocation_is_over_when_it_is_answered(teller: Teller) -> None:
    """So that the role can be deleted at once, and no user of it is left for ever."""
    ground, name = teller.ground, teller.name("revoked")
    order = ground.database(unique("lent"))
    async with teller.session() as session:
        await session.write_role(name, role(order.effective, ground.namespace))
        for _ in range(3):
            await asyncio.to_thread(ground.bao.read, f"database/mariadb/creds/{name}")
        assert len(await order.users()) == 3
        await session.revoke(name)
        assert await order.users() == set()
        await session.delete_role(name)


@pytest.mark.row("B04")
async def test_the_operators_policy_lets_it_do_this_and_no_more(teller: Teller) -> None:
    ground = teller.ground
    name = teller.name("held")
    async with teller.session() as session:
        await session.write_role(name, role("x", ground.namespace))
        ask = session._dialled.ask
        for method, path in (
            ("GET", f"database/mariadb/config/keystone-{ground.namespace}"),
            ("POST", f"database/mariadb/config/keystone-{ground.namespace}"),
            ("GET", f"database/mariadb/creds/{name}"),
            ("GET", f"database/mariadb/roles/keystone-{ground.namespace}"),
            ("POST", f"sys/leases/revoke-prefix/database/mariadb/creds/keystone-{ground.namespace}"),
            ("POST", "sys/leases/revoke-prefix/database"),
            ("GET", "kv-v2/data/infrastructure/mariadb"),
            ("GET", "sys/policies/acl/c5c3-operator"),
            ("GET", "auth/token/lookup"),
        ):
            with pytest.raises(OpenBaoError) as caught:
                await asyncio.to_thread(ask, method, path, {} if method == "POST" else None)
            assert caught.value.status == 403, path
            assert f"403 to {method} {path}" in str(caught.value)
        await session.delete_role(name)


@pytest.mark.row("B04")
async def test_another_namespaces_identity_cannot_read_an_orders_credentials(teller: Teller, real_stack: Stage) -> None:
    """Even one whose name begins the same: the dot before the glob is what holds."""
    ground = teller.ground
    order = next(iter(await ground.items("vaultdynamicsecrets.generators.external-secrets.io")))
    path = order["spec"]["path"]
    neighbour = f"{ground.namespace}x"
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": neighbour}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": neighbour, "name": "order-db-creds"}},
    ]
    await kube.apply(real_stack.stack, "management", objects)
    try:
        for namespace, admitted in ((ground.namespace, True), (neighbour, False)):
            account = f"/api/v1/namespaces/{namespace}/serviceaccounts/order-db-creds/token"
            answer = await kube.call(real_stack.stack, "management", "POST", account, {"spec": {}})
            client = openbao.connection(real_stack.stack).client()
            login = {"role": "order-db", "jwt": answer["status"]["token"]}
            got = await asyncio.to_thread(client.write_data, "auth/kubernetes/management/login", data=login)
            client.token = got["auth"]["client_token"]
            if admitted:
                assert (await asyncio.to_thread(client.read, path))["data"]["username"].startswith("v-")
            else:
                with pytest.raises(hvac.exceptions.Forbidden):
                    await asyncio.to_thread(client.read, path)
    finally:
        await real_stack.delete("management", "namespaces", None, neighbour)


async def test_a_path_that_nobody_serves_is_no_absence(teller: Teller) -> None:
    async with teller.session() as session:
        session._dialled._adapter.token = openbao.connection(teller.ground.stage.stack).token
        with pytest.raises(OpenBaoError, match="no handler for route"):
            await asyncio.to_thread(session._dialled.ask, "GET", "nowhere/roles/x", None, absent=True)
        session._dialled._adapter.token = ""  # root's token is not ours to give back


async def test_the_wrong_mount_is_an_error_that_says_so(teller: Teller) -> None:
    with pytest.raises(OpenBaoError) as caught:
        async with teller.session(mount="kubernetes/control-plane"):
            pass
    assert "auth/kubernetes/control-plane/login" in str(caught.value)


@pytest.mark.row("M30")
async def test_the_bootstrap_may_run_again_and_again(teller: Teller) -> None:
    connection = openbao.connection(teller.ground.stage.stack)
    before = await asyncio.to_thread(teller.ground.bao.read, f"database/mariadb/config/{teller.ground.tenant.name}")
    for _ in range(2):
        await teller.ground.onboard()
        await asyncio.to_thread(Bootstrap(connection).policies)
    after = await asyncio.to_thread(teller.ground.bao.read, f"database/mariadb/config/{teller.ground.tenant.name}")
    assert before["data"]["allowed_roles"] == after["data"]["allowed_roles"]
    assert after["data"]["allowed_roles"] == [teller.ground.tenant.name, f"order.{teller.ground.namespace}.*"]
