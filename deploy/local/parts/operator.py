"""What our own programs need of the two clusters: kinds, namespaces, rights, and a login that is exactly theirs.

The same manifests as in production (`deploy/crds`, `deploy/rbac`). The login is a ServiceAccount token, kept while it
works: a new one at each `up` would make the watcher join the target cluster anew for nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from deploy.local import kube, pki
from deploy.local.part import Part, PartError, Stack
from deploy.local.parts.crds import load

DEPLOY = Path(__file__).parents[2]
ACCOUNT, SYSTEM, CLUSTERS = "c5c3-operator", "c5c3-system", "c5c3-clusters"
TARGET = "edge-1"
ORDERS = ("team-a", "team-b")
NAMESPACES = {"management": (SYSTEM, CLUSTERS, "openstack", "openstack-ext", *ORDERS), "target": (SYSTEM, *ORDERS)}
# A year; the API server may grant less, so what counts is whether the token still works.
LIFETIME = "8760h"


def token_file(stack: Stack) -> Path:
    """The operator's token on the management cluster, alone in a file."""
    return stack.folder / "kube" / "operator.token"


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
        ours = await asyncio.to_thread(
            load, *sorted((DEPLOY / "crds").glob("*.yaml")), DEPLOY / "rbac" / f"{cluster}.yaml"
        )
        have = {(one["kind"], one["metadata"]["name"]) for one in made}
        made += [one for one in ours if (one["kind"], one["metadata"]["name"]) not in have]
        await kube.apply(stack, cluster, made)
        config = kube.kubeconfig(stack, cluster, "operator")
        if not await self._works(stack, config):
            await self._login(stack, cluster, config)

    async def _works(self, stack: Stack, config: Path) -> bool:
        """Whether the kept login is still known to the cluster as ours."""
        if not config.exists():
            return False
        try:
            who = await kube.kubectl(
                stack, "management", f"--kubeconfig={config}", "auth", "whoami", "-o", "json", seconds=5
            )
        except PartError:
            return False
        return bool(json.loads(who)["status"]["userInfo"]["username"] == f"system:serviceaccount:{SYSTEM}:{ACCOUNT}")

    async def _login(self, stack: Stack, cluster: str, config: Path) -> None:
        token = await kube.kubectl(stack, cluster, "create", "token", ACCOUNT, "-n", SYSTEM, f"--duration={LIFETIME}")
        view = await kube.kubectl(stack, cluster, "config", "view", "--raw", "--minify", "--flatten", "-o", "json")
        there = json.loads(view)["clusters"][0]["cluster"]
        ca = base64.b64decode(there.get("certificate-authority-data", ""))
        if cluster == "management":
            pki.write_secret(token_file(stack), token.strip().encode())
        pki.write_secret(config, kube.token_kubeconfig(there["server"], ca, ACCOUNT, token.strip()))

    def exports(self, stack: Stack) -> dict[str, str]:
        return {"OPERATOR_KUBECONFIG": str(kube.kubeconfig(stack, "management", "operator"))}


PARTS = (Operator(),)
