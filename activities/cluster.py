"""One Kubernetes API server: the requests we make of it, over the official client used as transport only.

Plain dicts in and out, explicit content types and time limits, a static table of kinds: no discovery, no generated
models (they refuse unknown fields), no request without a limit. An absent object is `None` only when the server
named that object in its answer; every other 404 is an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from opentelemetry import trace

from activities.errors import ClusterError, Conflict, NotServed

Object = dict[str, Any]

FIELD_MANAGER = "cobaltcore-operator"
"""Field manager of every apply: the reference operator's, so that orders move between the two (contracts 3)."""

REQUEST_SECONDS = 10.0
_APPLY = "application/apply-patch+yaml"

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark after which a watch has told all that was there."""

SILENT = "Silent"
"""Reason of the error by which a watch ends on which nothing was heard for too long."""

_WHOLE = "application/json"
_METADATA = "application/json;as={};g=meta.k8s.io;v=v1"

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer("c5c3.cluster")


@dataclass(frozen=True)
class Kind:
    """A kind of the static table: where the API server serves it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural]
        return "/".join([*parts, *(part for part in (name, sub) if part)])


CONTROL_PLANE = Kind("c5c3.io", "v1alpha1", "controlplanes", "ControlPlane")
KEYSTONE_PROJECT = Kind("c5c3.io", "v1alpha1", "keystoneprojects", "KeystoneProject")
KEYSTONE_ROLE_ASSIGNMENT = Kind("c5c3.io", "v1alpha1", "keystoneroleassignments", "KeystoneRoleAssignment")
KEYSTONE_APPLICATION_CREDENTIAL = Kind(
    "c5c3.io", "v1alpha1", "keystoneapplicationcredentials", "KeystoneApplicationCredential"
)
KEYSTONE_SERVICE = Kind("c5c3.io", "v1alpha1", "keystoneservices", "KeystoneService")
MARIADB_DATABASE = Kind("c5c3.io", "v1alpha1", "mariadbdatabases", "MariaDBDatabase")
MARIADB = Kind("k8s.mariadb.com", "v1alpha1", "mariadbs", "MariaDB")
DATABASE = Kind("k8s.mariadb.com", "v1alpha1", "databases", "Database")
CERTIFICATE = Kind("cert-manager.io", "v1", "certificates", "Certificate")
KORC_DOMAIN = Kind("openstack.k-orc.cloud", "v1alpha1", "domains", "Domain")
KORC_ENDPOINT = Kind("openstack.k-orc.cloud", "v1alpha1", "endpoints", "Endpoint")
KORC_PROJECT = Kind("openstack.k-orc.cloud", "v1alpha1", "projects", "Project")
KORC_ROLE = Kind("openstack.k-orc.cloud", "v1alpha1", "roles", "Role")
KORC_ROLE_ASSIGNMENT = Kind("openstack.k-orc.cloud", "v1alpha1", "roleassignments", "RoleAssignment")
KORC_SERVICE = Kind("openstack.k-orc.cloud", "v1alpha1", "services", "Service")
KORC_USER = Kind("openstack.k-orc.cloud", "v1alpha1", "users", "User")
EXTERNAL_SECRET = Kind("external-secrets.io", "v1", "externalsecrets", "ExternalSecret")
PUSH_SECRET = Kind("external-secrets.io", "v1alpha1", "pushsecrets", "PushSecret")
VAULT_DYNAMIC_SECRET = Kind("generators.external-secrets.io", "v1alpha1", "vaultdynamicsecrets", "VaultDynamicSecret")
SECRET_STORE = Kind("external-secrets.io", "v1", "secretstores", "SecretStore")
CLUSTER_SECRET_STORE = Kind("external-secrets.io", "v1", "clustersecretstores", "ClusterSecretStore")
STORE_KINDS: Mapping[str, Kind] = {kind.kind: kind for kind in (SECRET_STORE, CLUSTER_SECRET_STORE)}
"""The kinds of store that a plane may name."""
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount")
SECRET = Kind("", "v1", "secrets", "Secret")
EVENT = Kind("", "v1", "events", "Event")

KINDS: Mapping[str, Kind] = {
    kind.kind: kind
    for kind in (
        KORC_DOMAIN,
        KORC_ENDPOINT,
        KORC_PROJECT,
        KORC_ROLE,
        KORC_ROLE_ASSIGNMENT,
        KORC_SERVICE,
        KORC_USER,
        EXTERNAL_SECRET,
        PUSH_SECRET,
        VAULT_DYNAMIC_SECRET,
        MARIADB,
        DATABASE,
        CERTIFICATE,
        SERVICE_ACCOUNT,
        LEASE,
        SECRET,
    )
}
"""The kinds that an order's children are of, by name."""

ORDER_KINDS: Mapping[str, Kind] = {kind.kind: kind for kind in (KEYSTONE_PROJECT, KEYSTONE_SERVICE, MARIADB_DATABASE)}
"""The kinds a person orders, by name: each is a workflow type of the same name."""


class Cluster:
    """One API server. `name` is the registered target cluster's, empty for the management cluster."""

    def __init__(self, name: str, api: ApiClient) -> None:
        self.name = name
        self._api = api
        self._lists_first = False

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object, or None when the server says that this very object does not exist."""
        try:
            return await self._request("GET", kind, namespace, name)
        except ClusterError as error:
            if error.status == 404 and not isinstance(error, NotServed):
                return None
            raise

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str | None] | None = None,
        name: str | None = None,
        metadata_only: bool = False,
    ) -> Object:
        """The whole list object (`metadata.resourceVersion`, `items`), fetched in pages of 500."""
        items: list[Object] = []
        query = {"limit": "500", **({"labelSelector": selector(labels)} if labels else {})}
        query |= {"fieldSelector": f"metadata.name={name}"} if name else {}
        accept = _METADATA.format("PartialObjectMetadataList") if metadata_only else _WHOLE
        while True:
            page = await self._request("GET", kind, namespace, query=query, accept=accept)
            items += page.get("items") or []
            more = page["metadata"].get("continue")
            if not more:
                return {**page, "items": items}
            query = {**query, "continue": more}

    async def apply(self, kind: Kind, body: Object, *, force: bool) -> Object:
        """Server-side apply as our field manager; the answer is the live object, status included."""
        meta = body["metadata"]
        full = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        return await self._request(
            "PATCH", kind, meta.get("namespace"), meta["name"], body=full, query=query,
            content_type=_APPLY,
        )  # fmt: skip

    async def create(self, kind: Kind, body: Object) -> Object:
        full = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request("POST", kind, body["metadata"].get("namespace"), body=full, query=query)

    async def update(self, kind: Kind, body: Object) -> Object:
        """Replaces the object as read, so `metadata.resourceVersion` makes a concurrent write fail ours."""
        meta = body["metadata"]
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request("PUT", kind, meta.get("namespace"), meta["name"], body=body, query=query)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, *, sub: str | None = None) -> Object:
        """JSON merge patch, of the object or of its subresource `sub`; a resourceVersion in it is honoured."""
        return await self._request(
            "PATCH", kind, namespace, name, sub=sub, body=body, query={"fieldManager": FIELD_MANAGER},
            content_type="application/merge-patch+json",
        )  # fmt: skip

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, resource_version: str = ""
    ) -> Object | None:
        """Asks for the deletion of that very object, and answers what has the name then; None when nothing does.

        resource_version  when given, an object that was written since is left, too
        """
        only = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
        try:
            answer = await self._request("DELETE", kind, namespace, name, body={"preconditions": only})
        except Conflict:
            _log.debug("not deleted, it is not what was read: %s %s/%s", kind.kind, namespace, name)
            # Listed, for of some kinds we may not get a single one.
            found = await self.list(kind, namespace, name=name)
            return next(iter(found["items"]), None)
        except ClusterError as error:
            if error.status != 404 or isinstance(error, NotServed):
                raise
            return None
        # An object that nothing holds is gone at once, and the answer is a Status, or the object as it last was.
        return answer if (answer.get("metadata") or {}).get("finalizers") else None

    async def delete_all(
        self, kind: Kind, namespace: str, labels: Mapping[str, str], keep: Collection[str] = ()
    ) -> None:
        """Asks for the deletion of every object that carries the labels, but for these names, in one request."""
        query = {"labelSelector": selector(labels)}
        query |= {"fieldSelector": ",".join(f"metadata.name!={name}" for name in keep)} if keep else {}
        await self._request("DELETE", kind, namespace, query=query)

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str,
        *,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
        seconds: int,
        silence: float = 70.0,
        metadata_only: bool = False,
        initial: bool = False,
    ) -> AsyncGenerator[Object]:
        """Events `{type, object}` after a version, until the server ends the watch after about `seconds`.

        Without a version the objects that are there come first; `list_and_watch` also says where they end.

        Bookmarks are asked for and yielded. Silence for longer than `silence` seconds is an error (`status` 0), as
        is an `ERROR` event: it is raised with the Status' own code, 410 when the version is too old.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if resource_version:
            query["resourceVersion"] = resource_version
        if initial:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if labels:
            query["labelSelector"] = selector(labels)
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        doing = f"watching {kind.plural}{_at(self.name)}"
        accept = _METADATA.format("PartialObjectMetadata") if metadata_only else _WHOLE
        limit = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=silence)
        try:
            answer = await self._send("GET", kind.path(namespace), query, None, None, limit, accept)
            async with answer.response as response:
                if response.status >= 400:
                    raise _refusal(doing, response.status, await response.read())
                async for line in _lines(response.content):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        code, reason = int(status.get("code") or 500), status.get("reason") or ""
                        raise ClusterError(doing, code, reason, status.get("message") or "")
                    yield event
        except aiohttp.SocketTimeoutError:
            raise ClusterError(doing, 0, SILENT, f"nothing was heard for {silence:g} s") from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ClusterError(doing, 0, type(error).__name__, str(error)) from None

    async def list_and_watch(
        self,
        kind: Kind,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
        seconds: int,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Object]:
        """Events of all that is there, a bookmark annotated `INITIAL_EVENTS_END`, and then what a watch says.

        One request, where the API server can do that (its feature WatchList); where it refuses, a list and a watch.
        """
        which: dict[str, Any] = {"labels": labels, "name": name, "metadata_only": metadata_only}
        if not self._lists_first:
            try:
                async for event in self.watch(kind, namespace, "", seconds=seconds, initial=True, **which):
                    yield event
                return
            except ClusterError as error:
                if error.status not in (400, 422):
                    raise
                self._lists_first = True
                _log.info("this API server does not begin a watch with what is there: it is listed first")
        found = await self.list(kind, namespace, **which)
        for item in found["items"]:
            yield {"type": "ADDED", "object": item}
        yield {"type": "BOOKMARK", "object": {"metadata": {"annotations": {INITIAL_EVENTS_END: "true"}}}}
        version = found["metadata"]["resourceVersion"]
        async for event in self.watch(kind, namespace, version, seconds=seconds, **which):
            yield event

    async def _request(
        self,
        method: str,
        kind: Kind,
        namespace: str | None,
        name: str | None = None,
        *,
        sub: str | None = None,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str | None = None,
        accept: str = _WHOLE,
    ) -> Object:
        target = "/".join(part for part in (namespace, name, sub) if part)
        doing = f"{_VERBS[method]} {kind.kind} {target}".rstrip() + _at(self.name)
        attributes = {"k8s.cluster": self.name or "management", "k8s.kind": kind.kind, "k8s.object": target}
        with _tracer.start_as_current_span(f"{method} {kind.plural}", attributes=attributes) as span:
            limit = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=5)
            try:
                path = kind.path(namespace, name, sub)
                answer = await self._send(method, path, query or {}, body, content_type, limit, accept)
                async with answer.response as response:
                    data = await response.read()
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise ClusterError(doing, 0, type(error).__name__, str(error)) from None
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 400:
                raise _refusal(doing, response.status, data)
            result: Object = json.loads(data)
            return result

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        content_type: str | None,
        limit: aiohttp.ClientTimeout,
        accept: str,
    ) -> Any:
        headers = {"Accept": accept, **({"Content-Type": content_type or "application/json"} if body else {})}
        serialized = await self._api.param_serialize(
            method, path + ("?" + urlencode(query) if query else ""), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        method, url, header_params, payload, _ = serialized
        if content_type == _APPLY:
            # With a parameter the type is one that the client leaves alone, as it is.
            header_params["Content-Type"], payload = f"{_APPLY}; charset=utf-8", _yaml(body)
        return await self._api.call_api(method, url, header_params, payload, None, _request_timeout=limit)


def _yaml(body: Object | None) -> bytes:
    """JSON that is YAML too: an apply is read as YAML, which knows no surrogate pairs, JSON's way to write an emoji."""
    text = json.dumps(body, ensure_ascii=False)
    return re.sub(r"[^\x00-\x7e]", lambda found: _escape(ord(found[0])), text).encode()


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def selector(labels: Mapping[str, str | None]) -> str:
    """A label selector that asks for each key with exactly that value (an empty value is one), or None for any."""
    return ",".join(key if value is None else f"{key}={value}" for key, value in labels.items())


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Lines of any length: aiohttp's own iteration refuses those over its buffer (4 MiB), which an event may be."""
    held = bytearray()
    async for chunk in content.iter_any():
        held += chunk
        while (end := held.find(b"\n")) >= 0:
            line = bytes(held[:end])
            del held[: end + 1]
            if line.strip():
                yield line
        await asyncio.sleep(0)


def _refusal(doing: str, status: int, data: bytes) -> ClusterError:
    """The server's refusal as an error; the only text taken from it is the Status' message."""
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict) or body.get("kind") != "Status":
        if status == 404:
            return NotServed(doing, status, "NotServed", "the API server does not serve this kind; is its CRD there?")
        return ClusterError(doing, status, "Unreadable", "")
    reason, message = body.get("reason") or "", body.get("message") or ""
    details = body.get("details") or {}
    if status == 404 and not details.get("name"):
        return NotServed(doing, status, "NotServed", message)
    if any(cause.get("field") == "metadata.uid" for cause in details.get("causes") or []):
        # An apply onto another object of the name is refused as a change of its uid, beside whatever else differs.
        return Conflict(doing, 409, "Conflict", "another object has the name")
    return (Conflict if status == 409 else ClusterError)(doing, status, reason, message)


def _at(cluster: str) -> str:
    return f" on cluster {cluster}" if cluster else ""


_VERBS = {"GET": "reading", "POST": "creating", "PUT": "updating", "PATCH": "applying", "DELETE": "deleting"}
