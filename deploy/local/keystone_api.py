"""The real Keystone as its own API shows it: what tests and the demonstration compare the product's words with.

It never asks Kubernetes, so it cannot agree with the product by accident. TLS is verified with the instance's own
authority.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from deploy.local.part import Stack
from deploy.local.parts import keystone
from deploy.local.services import reachable

Object = dict[str, Any]


class KeystoneError(Exception):
    """Keystone answered with an error; `status` is its HTTP status."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"Keystone answered {status} to {method} {path}: {message}")
        self.status = status


class KeystoneAPI:
    """A session as the admin. Use it with `async with`; a token is fetched when one is needed."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._url = keystone.auth_url(stack)
        self._token: str | None = None

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=str(keystone.authority_pair(self._stack).certificate))
        timeout = aiohttp.ClientTimeout(total=30)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=timeout)
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._session.close()

    async def projects(self, name: str | None = None, domain: str | None = None) -> list[Object]:
        """Projects, by name as Keystone compares names, and by domain id."""
        return await self._list("projects", name=name, domain_id=domain)

    async def users(self, name: str | None = None, domain: str | None = None) -> list[Object]:
        """Users, likewise."""
        return await self._list("users", name=name, domain_id=domain)

    async def roles(self, name: str | None = None) -> list[Object]:
        """Roles of no domain."""
        return await self._list("roles", name=name)

    async def domains(self, name: str | None = None) -> list[Object]:
        """Domains."""
        return await self._list("domains", name=name)

    async def services(self, name: str | None = None, type: str | None = None) -> list[Object]:
        """Services of the catalog."""
        return await self._list("services", name=name, type=type)

    async def endpoints(self, service: str | None = None) -> list[Object]:
        """Endpoints of the catalog, by service id."""
        return await self._list("endpoints", service_id=service)

    async def assignments(
        self, user: str | None = None, project: str | None = None, role: str | None = None
    ) -> list[Object]:
        """Role assignments, all by id."""
        filters = {"user.id": user, "scope.project.id": project, "role.id": role}
        return await self._list("role_assignments", **filters)

    async def create(self, collection: str, **fields: object) -> Object:
        """Makes scenery: `create("projects", name="billing", domain_id="default")`."""
        kind = collection.removesuffix("s")
        return dict((await self.request("POST", f"/{collection}", {kind: fields}))[kind])

    async def ensure_role(self, name: str) -> None:
        """Makes a role that a cloud has and this one may lack; one that is there is fine."""
        if not await self.roles(name):
            await self.create("roles", name=name)

    async def delete(self, collection: str, id: str) -> None:
        """Deletes; something that is gone already is fine. A domain is disabled first, as Keystone wants it."""
        try:
            if collection == "domains":
                await self.request("PATCH", f"/domains/{id}", {"domain": {"enabled": False}})
            await self.request("DELETE", f"/{collection}/{id}")
        except KeystoneError as error:
            if error.status != 404:
                raise

    async def assign(self, user: str, project: str, role: str) -> None:
        """Gives a user a role on a project, all by id."""
        await self.request("PUT", f"/projects/{project}/users/{user}/roles/{role}")

    async def login(
        self, user: str, password: str, domain: str = "Default", project: str | None = None
    ) -> Object | None:
        """The token's body that these credentials get, or None when Keystone refuses them."""
        account = {"name": user, "domain": {"name": domain}, "password": password}
        scope = {"name": project, "domain": {"name": domain}} if project is not None else None
        return await self._login(account, scope, self._url)

    async def login_with(self, clouds: str, cloud: str = "admin") -> Object | None:
        """The same by a clouds.yaml as it was delivered: whoever reads it on this machine has to map its address."""
        auth = yaml.safe_load(clouds)["clouds"][cloud]["auth"]
        user_domain, project_domain = ({"name": auth[f"{owner}_domain_name"]} for owner in ("user", "project"))
        account = {"name": auth["username"], "domain": user_domain, "password": auth["password"]}
        project = {"name": auth["project_name"], "domain": project_domain}
        return await self._login(account, project, reachable(self._stack, auth["auth_url"]).rstrip("/"))

    async def request(
        self, method: str, path: str, body: object = None, params: Mapping[str, str] | None = None
    ) -> Object:
        """Any request below /v3 as the admin; an expired token is renewed once."""
        for fresh in (False, True):
            if self._token is None or fresh:
                default = {"name": "Default"}
                account = {"name": "admin", "domain": default, "password": keystone.admin_password(self._stack)}
                self._token = (await self._authenticate(account, {"name": "admin", "domain": default}, self._url))[0]
            try:
                return (await self._send(method, self._url, path, body, params, self._token))[1]
            except KeystoneError as error:
                if fresh or error.status != 401:
                    raise
        raise AssertionError("the second round returns or raises")

    async def _list(self, collection: str, **filters: str | None) -> list[Object]:
        wanted = {key: value for key, value in filters.items() if value is not None}
        return list((await self.request("GET", f"/{collection}", params=wanted))[collection])

    async def _login(self, account: Object, project: Object | None, url: str) -> Object | None:
        try:
            return (await self._authenticate(account, project, url))[1]
        except KeystoneError as error:
            if error.status == 401:
                return None
            raise

    async def _authenticate(self, account: Object, project: Object | None, url: str) -> tuple[str, Object]:
        auth: Object = {"identity": {"methods": ["password"], "password": {"user": account}}}
        if project is not None:
            auth["scope"] = {"project": project}
        headers, body = await self._send("POST", url, "/auth/tokens", {"auth": auth})
        return headers["X-Subject-Token"], dict(body["token"])

    async def _send(
        self,
        method: str,
        url: str,
        path: str,
        body: object = None,
        params: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> tuple[Mapping[str, str], Object]:
        headers = {"X-Auth-Token": token} if token else {}
        async with self._session.request(method, url + path, json=body, params=params or {}, headers=headers) as answer:
            content: Object = await answer.json(content_type=None) if answer.status != 204 else {}
            if answer.status >= 400:
                message = (content or {}).get("error", {}).get("message", "no message")
                raise KeystoneError(method, path, answer.status, str(message))
            return answer.headers, content or {}
