"""A clouds.yaml made usable by a stand-in: logs in, finds the identity endpoint, and fails in K-ORC's words.

The words matter: the product classifies K-ORC's messages by their text.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import yaml


class Unusable(Exception):
    """No client could be built (K-ORC: TransientError)."""


class Unreachable(Exception):
    """A request got no HTTP answer (K-ORC: InvalidConfiguration, terminal)."""


class Refused(Exception):
    """A request was answered with an error; `status` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Cloud:
    """One entry of one clouds.yaml. The token is kept until Keystone refuses it."""

    def __init__(self, text: str, authority: str | None, name: str) -> None:
        clouds = (yaml.safe_load(text) or {}).get("clouds") or {}
        if name not in clouds:
            raise Unusable(f"no cloud named: {name}, in the provided config")
        self._entry: dict[str, Any] = clouds[name]
        self._tls = ssl.create_default_context(cadata=authority)
        self._token = self._endpoint = ""

    async def connect(self) -> None:
        """Logs in, unless a token is kept."""
        if not self._token:
            await self._login()

    async def request(self, method: str, path: str, good: tuple[int, ...]) -> int:
        """The status of a request below /v3; anything but `good` is Refused."""
        await self.connect()
        status, text, _ = await self._send(method, self._endpoint + path, None, self._token)
        if status == 401:
            await self._login()
            status, text, _ = await self._send(method, self._endpoint + path, None, self._token)
        if status not in good:
            raise Refused(status, _unexpected(good, method, self._endpoint + path, status, text))
        return status

    async def _login(self) -> None:
        url = str(self._entry["auth"]["auth_url"]).rstrip("/") + "/auth/tokens"
        try:
            status, text, headers = await self._send("POST", url, _identity(self._entry["auth"]), "")
        except Unreachable as error:
            raise Unusable(f"providerClient authentication err: {error}") from None
        if status != 201:
            words = _unexpected((201, 202), "POST", url, status, text)
            raise Unusable(f"providerClient authentication err: {words}")
        self._endpoint = self._find(json.loads(text)["token"]["catalog"])
        self._token = headers["X-Subject-Token"]

    def _find(self, catalog: list[dict[str, Any]]) -> str:
        interface = self._entry.get("endpoint_type") or self._entry.get("interface") or "public"
        region = self._entry.get("region_name")
        for service in catalog:
            for endpoint in service["endpoints"] if service["type"] == "identity" else ():
                if endpoint["interface"] == interface and region in (None, endpoint["region"]):
                    return str(endpoint["url"]).rstrip("/").removesuffix("/v3") + "/v3"
        raise Unusable("No suitable endpoint could be found in the service catalog.")

    async def _send(self, method: str, url: str, body: object, token: str) -> tuple[int, str, Mapping[str, str]]:
        headers = {"X-Auth-Token": token} if token else {}
        timeout = aiohttp.ClientTimeout(total=30)
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls), timeout=timeout) as session,
                session.request(method, url, json=body, headers=headers) as answer,
            ):
                return answer.status, await answer.text(), answer.headers  # whose names have no case
        except aiohttp.ClientConnectorCertificateError:
            cause = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        except aiohttp.ClientConnectorDNSError as error:
            cause = f"dial tcp: lookup {error.host}: no such host"
        except aiohttp.ClientConnectorError as error:
            cause = f"dial tcp {error.host}:{error.port}: connect: connection refused"
        except TimeoutError:
            cause = "dial tcp: i/o timeout"
        except aiohttp.ClientError:
            cause = "EOF"
        raise Unreachable(f'{method.capitalize()} "{url}": {cause}')


def _unexpected(good: tuple[int, ...], method: str, url: str, status: int, text: str) -> str:
    codes = " ".join(str(code) for code in good)
    return f"Expected HTTP response code [{codes}] when accessing [{method} {url}], but got {status} instead: {text}"


def _identity(auth: dict[str, Any]) -> dict[str, Any]:
    if "application_credential_id" in auth:
        credential = {"id": auth["application_credential_id"], "secret": auth["application_credential_secret"]}
        methods = {"methods": ["application_credential"], "application_credential": credential}
        return {"auth": {"identity": methods}}
    user = {"name": auth["username"], "password": auth["password"], "domain": {"name": auth["user_domain_name"]}}
    scope = {"project": {"name": auth["project_name"], "domain": {"name": auth["project_domain_name"]}}}
    return {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
