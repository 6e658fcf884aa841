"""The two control planes that orders name: `cp`, run by us, and `cp-ext`, whose Keystone somebody else runs.

Here the bootstrap plays the operator of those planes: it writes the objects that a plane supplies and the conditions
that orders wait for. A condition that reads as it should is left alone, so `up` on a running stack moves nothing.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
from dataclasses import dataclass
from typing import Any

import yaml

from deploy.local import kube
from deploy.local.part import Part, Stack
from deploy.local.parts import keystone, mariadb

Object = dict[str, Any]
TARGET = "edge-1"  # the name that the target cluster is registered under
MARIADB = "mariadb"
NAMESPACES = ("openstack", "openstack-ext", "team-a", "team-b", "team-ext")


@dataclass(frozen=True)
class Plane:
    """A control plane's name, its namespace, the spec that tells the two apart, and who may register services."""

    name: str
    namespace: str
    spec: Object
    registrations: tuple[str, ...] = ()


def planes(stack: Stack) -> tuple[Plane, Plane]:
    """Both planes, over the one real Keystone."""
    managed = {
        "infrastructure": {
            "database": {"clusterRef": {"name": MARIADB}, "credentialsMode": "Dynamic"},
            "publishedDatabaseEndpoint": f"127.0.0.1:{stack.ports['mariadb']}",
        },
        "services": {"keystone": {"mode": "Managed", "publicEndpoint": keystone.auth_url(stack)}},
        "namespaceAssignments": [
            {"namespace": "team-a"},
            {"namespace": "team-b"},
            {"namespace": "team-a", "targetClusterRef": {"name": TARGET}},
        ],
    }
    foreign = {
        "services": {
            "keystone": {
                "mode": "External",
                "external": {
                    "authURL": keystone.auth_url(stack),
                    "endpointType": "public",
                    "caBundleSecretRef": {"name": "keystone-ca", "key": "ca.crt"},
                },
            }
        },
        "namespaceAssignments": [{"namespace": "team-ext"}],
    }
    return (
        Plane("cp", "openstack", managed, ("team-a", "team-b")),
        Plane("cp-ext", "openstack-ext", foreign, ("team-ext", "team-b")),
    )


def clouds_yaml(stack: Stack, *, password: str | None = None, auth_url: str | None = None) -> str:
    """The admin's clouds.yaml. K-ORC keeps clients by this text alone: tests that vary the CA must vary it too."""
    auth = {
        "auth_url": auth_url or keystone.auth_url(stack),
        "username": "admin",
        "password": password or keystone.admin_password(stack),
        "project_name": "admin",
        "user_domain_name": "Default",
        "project_domain_name": "Default",
    }
    cloud = {"auth": auth, "region_name": keystone.REGION, "endpoint_type": "public", "identity_api_version": 3}
    return yaml.safe_dump({"clouds": {"admin": cloud}}, sort_keys=False)


def secret(namespace: str, name: str, **data: str) -> Object:
    """A Secret. Keys are given with a `_` for their dot."""
    encoded = {key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}, "data": encoded}


def supplied(stack: Stack, plane: Plane) -> list[Object]:
    """What a plane's operator puts beside it: credentials, and the imports that children of orders refer to."""
    clouds, authority = clouds_yaml(stack), keystone.authority_pair(stack).certificate.read_text()
    where = {"namespace": plane.namespace}
    credentials = {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
    unmanaged = {"cloudCredentialsRef": credentials, "managementPolicy": "unmanaged"}
    domain = f"{plane.name}-domain-default"
    return [
        secret(plane.namespace, "k-orc-clouds-yaml", clouds_yaml=clouds, cacert=authority),
        secret(plane.namespace, f"{plane.name}-admin-password-cloud", clouds_yaml=clouds, cacert=authority),
        secret(plane.namespace, "keystone-admin", password=keystone.admin_password(stack)),
        secret(plane.namespace, "keystone-ca", ca_crt=authority),
        {
            "apiVersion": "openstack.k-orc.cloud/v1alpha1",
            "kind": "Domain",
            "metadata": {**where, "name": domain},
            "spec": {**unmanaged, "import": {"filter": {"name": "Default"}}},
        },
        {
            "apiVersion": "openstack.k-orc.cloud/v1alpha1",
            "kind": "User",
            "metadata": {**where, "name": f"{plane.name}-user-admin"},
            "spec": {**unmanaged, "import": {"filter": {"name": "admin", "domainRef": domain}}},
        },
        {
            "apiVersion": "c5c3.io/v1alpha1",
            "kind": "ControlPlane",
            "metadata": {**where, "name": plane.name},
            "spec": {
                "openStackRelease": "2026.2",
                "region": keystone.REGION,
                **plane.spec,
                "korc": {
                    "adminCredential": {"cloudCredentialsRef": credentials},
                    "serviceRegistrations": {"allowedNamespaces": list(plane.registrations)},
                },
            },
        },
    ]


class Planes(Part):
    """The part."""

    name = "planes"
    needs = ("crds", "korc", "mariadb", "keystone")

    async def bootstrap(self, stack: Stack) -> None:
        """Namespaces, objects, imports resolved, conditions."""
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
        await kube.apply(stack, "management", namespaces)
        database = [
            secret("openstack", f"{MARIADB}-root", password=await asyncio.to_thread(mariadb.root_password, stack)),
            {
                "apiVersion": "k8s.mariadb.com/v1alpha1",
                "kind": "MariaDB",
                "metadata": {"namespace": "openstack", "name": MARIADB},
                "spec": {"rootPasswordSecretKeyRef": {"name": f"{MARIADB}-root", "key": "password"}},
            },
        ]
        both = planes(stack)
        await kube.apply(stack, "management", [*database, *(o for plane in both for o in supplied(stack, plane))])
        await asyncio.gather(
            set_conditions(stack, "MariaDB", "openstack", MARIADB, {"Ready": ("Ready", "Running")}),
            *(self._settle(stack, plane) for plane in both),
        )

    async def _settle(self, stack: Stack, plane: Plane) -> None:
        """Waits for the imports, as the plane's operator does, before it says that credentials work."""
        imports = (("domains", f"{plane.name}-domain-default"), ("users", f"{plane.name}-user-admin"))
        available = kube.condition("Available")
        await asyncio.gather(
            *(
                kube.wait(stack, "management", f"{kind}.openstack.k-orc.cloud", plane.namespace, name, available, 180)
                for kind, name in imports
            )
        )
        good = {
            kind: (kind, "Set by the local stack in place of the plane's operator")
            for kind in ("AdminCredentialReady", "DBCredentialsReady")
        }
        await set_conditions(stack, "ControlPlane", plane.namespace, plane.name, good)


async def set_conditions(
    stack: Stack, kind: str, namespace: str, name: str, wanted: dict[str, tuple[str, str]], status: str = "True"
) -> None:
    """Sets conditions (type -> reason, message) on an object; one that reads so already is not touched."""
    resource = {"ControlPlane": "controlplanes.c5c3.io", "MariaDB": "mariadbs.k8s.mariadb.com"}[kind]
    seen = await kube.get(stack, "management", resource, namespace, name) or {}
    old = {c["type"]: c for c in (seen.get("status") or {}).get("conditions") or []}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    new = dict(old)
    for type_, (reason, message) in wanted.items():
        before = old.get(type_, {})
        if (before.get("status"), before.get("reason"), before.get("message")) == (status, reason, message):
            continue
        since = before.get("lastTransitionTime", now) if before.get("status") == status else now
        words = {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
        new[type_] = words | ({"observedGeneration": seen["metadata"]["generation"]} if kind == "ControlPlane" else {})
    if new == old:
        return
    change = {"status": {"conditions": list(new.values())}}
    await kube.patch(stack, "management", resource, namespace, name, change, "status")


PARTS = (Planes(),)
