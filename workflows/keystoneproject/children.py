"""What a KeystoneProject's children should be: names and bodies, and nothing else (contracts 3.4).

A body is complete and deterministic: applying it twice changes nothing.
"""

from __future__ import annotations

from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.scaffold.naming import child_prefix, claim_name, ownership_labels
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import Marks

SEGMENT = "project"
FINALIZER = "c5c3.io/keystoneproject-teardown"


def prefix(order: OrderRef) -> str:
    return child_prefix(order, SEGMENT)


def project_name(order: OrderRef) -> str:
    """The managed K-ORC Project; a KeystoneRoleAssignment names it as its projectRef."""
    return f"{prefix(order)}project"


def probe_name(order: OrderRef) -> str:
    """The unmanaged import that asks whether the project exists already."""
    return f"{prefix(order)}project-probe"


def marks(order: OrderRef) -> Marks:
    """By what the order's children are known."""
    return Marks(labels=ownership_labels(order), prefix=prefix(order))


def claim(plane: ControlPlane, name: str) -> str:
    """The Lease that stands for this project name in the plane's admin domain."""
    return claim_name(plane.key, "Project", plane.admin_domain, name)


def project(order: OrderRef, plane: ControlPlane, name: str) -> dict[str, Any]:
    return _project(project_name(order), order, plane) | {
        "spec": {
            "cloudCredentialsRef": plane.managed_cred_ref,
            "managementPolicy": "managed",
            "resource": {"name": name, "domainRef": plane.domain_handle},
        }
    }


def probe(order: OrderRef, plane: ControlPlane, name: str) -> dict[str, Any]:
    return _project(probe_name(order), order, plane) | {
        "spec": {
            "cloudCredentialsRef": plane.cred_ref,
            "managementPolicy": "unmanaged",
            "import": {"filter": {"name": name, "domainRef": plane.domain_handle}},
        }
    }


def _project(name: str, order: OrderRef, plane: ControlPlane) -> dict[str, Any]:
    return {
        "kind": "Project",
        "metadata": {"name": name, "namespace": plane.namespace, "labels": ownership_labels(order)},
    }
