"""What the bootstrap reads from and writes to the management cluster: a plane, its MariaDB, and tenant stores.

Through kubectl, as an operator would: the kubeconfig is named, and whatever login it uses works.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from typing import Any

from deploy.openbao.bootstrap import BootstrapError
from deploy.openbao.layout import Tenant

Object = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """A cluster by its kubeconfig."""

    kubeconfig: str
    kubectl: str = "kubectl"

    def get(self, resource: str, namespace: str, name: str) -> Object:
        """One object; absent is an error."""
        return dict(json.loads(self._run("get", resource, name, "-n", namespace, "-o", "json")))

    def apply(self, objects: list[Object]) -> None:
        """Server-side apply."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        flags = ("--server-side", "--force-conflicts", "--field-manager=c5c3-openbao-bootstrap", "-f", "-")
        self._run("apply", *flags, stdin=text)

    def _run(self, *args: str, stdin: str | None = None) -> str:
        argv = (self.kubectl, f"--kubeconfig={self.kubeconfig}", "--request-timeout=30s", *args)
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BootstrapError(f"{self.kubectl} {args[0]} could not be run: {error}") from None
        if done.returncode:
            raise BootstrapError(f"kubectl {' '.join(args[:3])} failed: {done.stderr.strip()[-500:]}")
        return done.stdout


def tenant(cluster: Cluster, namespace: str, plane: str, address: str | None) -> tuple[Tenant, str]:
    """The database of a plane and its root password. `address` overrides the MariaDB's Service."""
    found = cluster.get("controlplanes.c5c3.io", namespace, plane)
    spec = found["spec"]
    keystone = (spec.get("services") or {}).get("keystone") or {}
    keystone_namespace = (keystone.get("namespace") or {}).get("name") or namespace
    database = (spec.get("infrastructure") or {}).get("database") or {}
    mariadb = (database.get("clusterRef") or {}).get("name")
    if not mariadb:
        raise BootstrapError(
            f"ControlPlane {namespace}/{plane} has no spec.infrastructure.database.clusterRef: "
            "credentials are issued for managed databases only"
        )
    server = cluster.get("mariadbs.k8s.mariadb.com", keystone_namespace, mariadb)
    ref = (server.get("spec") or {}).get("rootPasswordSecretKeyRef") or {}
    if not ref.get("name"):
        raise BootstrapError(f"MariaDB {keystone_namespace}/{mariadb} has no spec.rootPasswordSecretKeyRef")
    secret = cluster.get("secrets", keystone_namespace, ref["name"])
    key = ref.get("key") or "password"
    if key not in (secret.get("data") or {}):
        raise BootstrapError(f"Secret {keystone_namespace}/{ref['name']} has no key {key}")
    where = address or f"{mariadb}.{keystone_namespace}.svc:3306"
    made = Tenant(namespace, keystone_namespace, where, database.get("database") or "keystone")
    return made, base64.b64decode(secret["data"][key]).decode()
