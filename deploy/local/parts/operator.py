"""What our own programs need of the two clusters: kinds, namespaces, rights, and a login that is exactly theirs.

The same manifests as in production (`deploy/crds`, `deploy/rbac`). The login is a ServiceAccount token, kept while it
works: a new one at each `up` would make the watcher join the target cluster anew for nothing.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from deploy.local import kube
from deploy.local.api import Api, ApiError
from deploy.local.files import write_secret
from deploy.local.part import Part, Stack
from deploy.local.parts.crds import load

DEPLOY = Path(__file__).parents[2]
ACCOUNT, SYSTEM, CLUSTERS = "c5c3-operator", "c5c3-system", "c5c3-clusters"
TARGET = "edge-1"
ORDERS = ("team-a", "team-b")
NAMESPACES = {"management": (SYSTEM, CLUSTERS, "openstack", "openstack-ext", *ORDERS), "target": (SYSTEM, *ORDERS)}
# Kinds, by how their files begin, that are served on the management cluster alone.
AT_HOME = ("keystoneservices",)
# A year; the API server may grant less, so what counts is whether the token still works.
LIFETIME = 365 * 24 * 3600


def token_file(stack: Stack) -> Path:
    """The operator's token on the management cluster, alone in a file."""
    return stack.folder / "kube" / "operator.token"


def manifests(cluster: str) -> list[Path]:
    """The files that a person applies to this cluster: its order kinds, and our rights on it."""
    kinds = sorted((DEPLOY / "crds").glob("*.yaml"))
    served = [file for file in kinds if cluster == "management" or not file.name.startswith(AT_HOME)]
    return [*served, DEPLOY / "rbac" / f"{cluster}.yaml"]


class Operator(Part):
    """The part. It has no process: watcher and worker are started by whoever wants them."""

    name = "operator"
    needs = ("management", "target")

    async def bootstrap(self, stack: Stack) -> None:
        await asyncio.gather(*(self._cluster(stack, cluster) for cluster in NAMESPACES))
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": TARGET,
                "namespace": CLUSTERS,
                "labels": {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
            },
            "data": {
                "kubeconfig": base64.b64encode(kube.kubeconfig(stack, "target", "operator").read_bytes()).decode()
            },
        }
        await kube.apply(stack, "management", [secret])

    async def _cluster(self, stack: Stack, cluster: str) -> None:
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES[cluster]
        ]
        made.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": SYSTEM}})
        ours = await asyncio.to_thread(load, *manifests(cluster))
        have = {(one["kind"], one["metadata"]["name"]) for one in made}
        made += [one for one in ours if (one["kind"], one["metadata"]["name"]) not in have]
        await kube.apply(stack, cluster, made)
        await asyncio.to_thread(self._login, stack, cluster)

    def _login(self, stack: Stack, cluster: str) -> None:
        config = kube.kubeconfig(stack, cluster, "operator")
        if config.exists() and self._works(config):
            return
        with Api(kube.kubeconfig(stack, cluster)) as api:
            request = {"spec": {"expirationSeconds": LIFETIME}}
            answer = api.call("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{ACCOUNT}/token", request)
        token = answer["status"]["token"]
        if cluster == "management":
            write_secret(token_file(stack), token.encode())
        write_secret(config, kube.token_kubeconfig(api.server, api.ca, ACCOUNT, token))

    def _works(self, config: Path) -> bool:
        """Whether the kept login is still known to the cluster as ours."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            with Api(config) as api:
                who = api.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        except ApiError:
            return False
        return bool(who["status"]["userInfo"]["username"] == f"system:serviceaccount:{SYSTEM}:{ACCOUNT}")

    def exports(self, stack: Stack) -> dict[str, str]:
        return {"OPERATOR_KUBECONFIG": str(kube.kubeconfig(stack, "management", "operator"))}


PARTS = (Operator(),)
