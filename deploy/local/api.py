"""A small client of the Kubernetes API for the stack's own use: one kubeconfig, one connection, plain objects.

kubectl reads the schemas of all kinds before it applies one, a second for each call while programs build; this asks the
server which path a kind has, remembers it, and leaves judging the object to the server. Blocking: call it in a thread.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from deploy.local.files import write_secret
from deploy.local.part import PartError

Object = dict[str, Any]
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# What a server serves, by its address: group, version, plural, kind, all other names, whether in namespaces.
Resource = tuple[str, str, str, str, frozenset[str], bool]
_served: dict[str, list[Resource]] = {}


class ApiError(Exception):
    """The server's refusal: its status code and message. 0 when it could not be reached."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Api:
    """A connection with the rights of one kubeconfig."""

    def __init__(self, kubeconfig: Path, seconds: float = 10) -> None:
        try:
            text = kubeconfig.read_text()
        except OSError as error:
            raise PartError(f"{kubeconfig} cannot be read ({error.strerror}): run up first") from None
        config = json.loads(text) if text.startswith("{") else yaml.safe_load(text)
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        self.server: str = cluster["server"]
        self.ca = _data(cluster, "certificate-authority", kubeconfig.parent)
        self.headers = {"Accept": "application/json", "User-Agent": "c5c3-stack"}
        tls = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        if token := user.get("token"):
            self.headers["Authorization"] = f"Bearer {token}"
        elif certificate := _data(user, "client-certificate", kubeconfig.parent):
            # The ssl module reads certificates from files only.
            pair = kubeconfig.parent / "pki" / f"{kubeconfig.stem}.pem"
            wanted = certificate + b"\n" + _data(user, "client-key", kubeconfig.parent)
            if not pair.exists() or pair.read_bytes() != wanted:
                write_secret(pair, wanted)
            tls.load_cert_chain(pair)
        else:
            raise PartError(f"{kubeconfig} has neither a token nor a client certificate: make one that does")
        where = urlsplit(self.server)
        self.prefix = where.path.rstrip("/")
        self.connection = http.client.HTTPSConnection(where.hostname or "", where.port, timeout=seconds, context=tls)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def call(
        self, method: str, path: str, body: Object | None = None, content: str = "application/json", accept: str = ""
    ) -> Object:
        """One request; anything but success is an ApiError."""
        headers = {**self.headers, **({"Accept": accept} if accept else {})}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), content
        try:
            self.connection.request(method, self.prefix + path, data, headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise ApiError(0, f"{self.server} does not answer: {error or type(error).__name__}") from None
        try:
            found: Object = json.loads(text)
        except ValueError:
            found = {"message": text.decode(errors="replace")[:300]}
        if not 200 <= answer.status < 300:
            raise ApiError(answer.status, f"{method} {path.partition('?')[0]}: {found.get('message') or answer.reason}")
        return found

    def apply(self, one: Object, manager: str) -> Object:
        """Server-side apply with force; a field that the kind does not know is refused."""
        api, kind = one["apiVersion"], one["kind"]
        group, _, version = api.rpartition("/")
        served = self._find(lambda r: r[0] == group and r[1] == version and r[3] == kind)
        if served is None:
            raise ApiError(404, f"{self.server} does not serve {api} {kind} (yet)")
        meta = one["metadata"]
        query = urlencode({"fieldManager": manager, "force": "true", "fieldValidation": "Strict"})
        path = f"{_path(served, meta.get('namespace', 'default'), meta['name'])}?{query}"
        return self.call("PATCH", path, one, "application/apply-patch+yaml")

    def path(self, resource: str, namespace: str | None, name: str = "") -> str | None:
        """The path of what kubectl would call `resource` ("ns", "users.openstack.k-orc.cloud"), if served."""
        plural, _, group = resource.lower().partition(".")
        served = self._find(lambda r: plural in r[4] and (not group or r[0] == group))
        return served and _path(served, namespace or "default", name)

    def _find(self, fits: Any) -> Resource | None:
        for look in (False, True):
            if look or self.server not in _served:
                _served[self.server] = self._discover()
            if found := next((r for r in _served[self.server] if fits(r)), None):
                return found
        return None

    def _discover(self) -> list[Resource]:
        found: list[Resource] = []
        for root in ("/api", "/apis"):
            for group in self.call("GET", root, accept=DISCOVERY)["items"]:
                for version in group["versions"]:
                    for r in version.get("resources", ()):
                        kind, plural = r.get("responseKind", {}).get("kind", ""), r["resource"]
                        names = frozenset(
                            (plural, r.get("singularResource", ""), kind.lower(), *r.get("shortNames", ()))
                        )
                        namespaced = r.get("scope") == "Namespaced"
                        found.append(
                            (group["metadata"].get("name", ""), version["version"], plural, kind, names, namespaced)
                        )
        return found


def _path(served: Resource, namespace: str, name: str) -> str:
    group, version, plural, _, _, namespaced = served
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}{f'/namespaces/{namespace}' if namespaced else ''}/{plural}{f'/{name}' if name else ''}"


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _data(entry: Object, key: str, beside: Path) -> bytes:
    if inline := entry.get(f"{key}-data"):
        return base64.b64decode(inline)
    file = entry.get(key)
    return (beside / file).read_bytes() if file else b""
