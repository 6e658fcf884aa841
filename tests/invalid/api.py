"""A bare client for one API server: status code and body of each request, nothing interpreted.

The corpus asks for what ordinary clients hide: the Status of a refusal, and the Table that `kubectl get` prints.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Object = dict[str, Any]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"
# The stack installs the same files under this name; another name would leave fields that nobody removes.
FIELD_MANAGER = "c5c3-stack"


@dataclass(frozen=True)
class Answer:
    code: int
    body: Object

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    def causes(self) -> list[tuple[str, str]]:
        """(field, message) of every violation that the Status lists."""
        causes = (self.body.get("details") or {}).get("causes") or []
        return [(c.get("field", ""), c.get("message", "")) for c in causes]


def plural_path(group_version: str, plural: str, namespace: str | None) -> str:
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


class Api:
    """One kubeconfig's API server. `folder` takes the client key for as long as TLS needs it as a file."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        current = config.get("current-context")
        context = next(c["context"] for c in config["contexts"] if c["name"] == current)
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])

        def data(source: Object, name: str) -> bytes | None:
            if text := source.get(f"{name}-data"):
                return base64.b64decode(text)
            return (kubeconfig.parent / source[name]).read_bytes() if name in source else None

        authority = data(cluster, "certificate-authority")
        self._tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if (certificate := data(user, "client-certificate")) and (key := data(user, "client-key")):
            pair = folder / "client.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(certificate + b"\n" + key)
            self._tls.load_cert_chain(pair)
            pair.unlink()
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._server = urlsplit(cluster["server"])
        self._connection: http.client.HTTPSConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        accept: str = "application/json",
        content: str = "application/json",
        **query: str,
    ) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {**self._headers, "Accept": accept, "Content-Type": content}
        payload = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            connection = self._connection
            if connection is None:
                host, port = self._server.hostname or "", self._server.port or 443
                connection = self._connection = http.client.HTTPSConnection(host, port, timeout=30, context=self._tls)
            try:
                connection.request(method, target, payload, headers)
                response = connection.getresponse()
                return Answer(response.status, json.loads(response.read() or b"{}"))
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server closed an idle connection; once is no failure.
                self.close()
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def apply(self, path: str, document: Object, **query: str) -> Answer:
        """Server-side apply of one object to its own path."""
        return self.request("PATCH", path, document, content=APPLY, fieldManager=FIELD_MANAGER, force="true", **query)

    def define(self, definition: Object) -> None:
        """Installs a CustomResourceDefinition and returns once its rules are the ones that are enforced."""
        name = definition["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        before = self.request("GET", path)
        # Asked first without a write: an unchanged definition is left alone, with what its installer put on it.
        applied = self.apply(path, definition, dryRun="All")
        assert applied.ok, f"{name} is not a valid definition: {applied.message}"
        changed = not before.ok or before.body["metadata"]["generation"] != applied.body["metadata"]["generation"]
        if changed:
            applied = self.apply(path, definition)
            assert applied.ok, applied.message
        spec = definition["spec"]
        served = plural_path(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"], None)
        deadline = time.monotonic() + 20
        while not (established(self.request("GET", path).body) and self.request("GET", served).ok):
            assert time.monotonic() < deadline, f"{name} is not served after 20 s"
            time.sleep(0.1)
        if before.ok and changed:
            # A changed schema takes effect a moment after it is stored, and nothing tells when.
            time.sleep(2)

    def guard(self, policies: Sequence[Object]) -> None:
        """Installs admission policies with their bindings and returns once they should be enforced."""
        changed = False
        for policy in policies:
            kind = {"ValidatingAdmissionPolicy": "policies", "ValidatingAdmissionPolicyBinding": "policybindings"}
            plural = f"validatingadmission{kind[policy['kind']]}"
            path = f"{plural_path(policy['apiVersion'], plural, None)}/{policy['metadata']['name']}"
            before = self.request("GET", path)
            applied = self.apply(path, policy)
            assert applied.ok, applied.message
            after = applied.body["metadata"]["generation"]
            changed |= not before.ok or before.body["metadata"]["generation"] != after
        if changed:
            # As with a schema, nothing tells when.
            time.sleep(2)


def established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
