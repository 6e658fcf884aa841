"""Writes the layout into a running, unsealed OpenBao. Every step may run again: it upserts, and deletes nothing.

Nothing is taken from the environment: no address, no token, no proxy, no certificate store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hvac
import requests

from deploy.openbao import layout


class BootstrapError(Exception):
    """A step could not be done. The text says what to do."""


@dataclass(frozen=True)
class Connection:
    """How OpenBao is reached. Its listener refuses whoever has no client certificate. The token is never printed."""

    url: str
    verify: str
    cert: tuple[str, str]
    token: str

    def __repr__(self) -> str:
        return f"Connection({self.url})"

    def client(self) -> hvac.Client:
        """A client with exactly this."""
        session = requests.Session()
        session.trust_env = False
        session.verify, session.cert = self.verify, self.cert
        return hvac.Client(
            url=self.url, token=self.token, cert=self.cert, verify=self.verify, timeout=30, session=session
        )


@dataclass(frozen=True)
class Reviewer:
    """How OpenBao asks the management cluster about a token. Without a CA and a JWT it uses its own pod's."""

    host: str = "https://kubernetes.default.svc"
    ca: str | None = None
    jwt: str | None = None

    def body(self) -> dict[str, Any]:
        """As the kubernetes auth method takes it."""
        given: dict[str, Any] = {"kubernetes_host": self.host}
        if self.ca is not None and self.jwt is not None:
            given |= {"kubernetes_ca_cert": self.ca, "token_reviewer_jwt": self.jwt, "disable_local_ca_jwt": True}
        return given


class Bootstrap:
    """The steps. Blocking."""

    def __init__(self, connection: Connection) -> None:
        self._client = connection.client()

    def secret_engines(self) -> None:
        """Mounts what is missing; a mount of another type at one of our paths is somebody else's and an error."""
        there = self._read("sys/mounts")
        for mount in layout.MOUNTS:
            body: dict[str, Any] = {"type": mount.type}
            body |= {"options": mount.options} if mount.options else {}
            body |= {"config": mount.config} if mount.config else {}
            self._mount(there, "sys/mounts", mount.path, mount.type, body)
            if mount.config and f"{mount.path}/" in there:
                self._write(f"sys/mounts/{mount.path}/tune", mount.config)

    def auth(self, reviewer: Reviewer, operator_account: str, operator_namespace: str) -> None:
        """Auth mounts, the management cluster's configuration, and the roles on it."""
        there = self._read("sys/auth")
        for path, kind in layout.AUTHS:
            self._mount(there, "sys/auth", path, kind, {"type": kind})
        self._write(f"auth/{layout.MANAGEMENT}/config", reviewer.body())
        for role in layout.roles(operator_account, operator_namespace):
            self._write(f"auth/{layout.MANAGEMENT}/role/{role.name}", role.body())

    def policies(self) -> None:
        """Every policy, with the accessor of the mount that its templates speak of."""
        mount = self._read("sys/auth").get(f"{layout.MANAGEMENT}/", {})
        if not mount.get("accessor"):
            raise BootstrapError(f"auth mount {layout.MANAGEMENT} is missing: run setup-auth first")
        for name, text in layout.policy_texts(mount["accessor"]).items():
            self._write(f"sys/policies/acl/{name}", {"policy": text})

    def database_tenant(self, tenant: layout.Tenant, password: str) -> None:
        """The connection of a plane's database and Keystone's role on it."""
        self._write(f"{layout.DATABASE}/config/{tenant.name}", tenant.connection(password))
        self._write(f"{layout.DATABASE}/roles/{tenant.name}", tenant.role())

    def _mount(self, there: dict[str, Any], where: str, path: str, kind: str, body: dict[str, Any]) -> None:
        found = there.get(f"{path}/")
        if found is None:
            self._write(f"{where}/{path}", body)
        elif found["type"] != kind:
            raise BootstrapError(f"{path} is mounted as {found['type']}, wanted {kind}: move that mount away first")

    def _read(self, path: str) -> dict[str, Any]:
        answer = self._attempt(path, lambda: self._client.read(path))
        return dict((answer or {}).get("data") or {})

    def _write(self, path: str, body: dict[str, Any]) -> None:
        self._attempt(path, lambda: self._client.write_data(path, data=body))

    @staticmethod
    def _attempt(path: str, call: Any) -> Any:
        try:
            return call()
        except hvac.exceptions.VaultError as error:
            raise BootstrapError(f"OpenBao refused {path}: {'; '.join(error.errors or []) or error}") from None
        except requests.exceptions.RequestException as error:
            raise BootstrapError(f"OpenBao cannot be asked about {path}: {type(error).__name__}: {error}") from None
