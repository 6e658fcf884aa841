"""Orders, planes and K-ORC objects as the API server would hold them, for the pure tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.scaffold.order import OrderRef

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
PENDING = "Waiting for OpenStack resource to be created externally"
AMBIGUOUS = "invalid configuration: found more than one matching OpenStack resource during import"
REFUSED = "invalid configuration creating resource: Post https://k:5000/v3: dial tcp 10.0.0.1:5000: connection refused"


def order(name: str = "reporting", *, namespace: str = "team-a", cluster: str = "") -> OrderRef:
    return OrderRef(kind="KeystoneProject", cluster=cluster, namespace=namespace, name=name)


def plane(
    *, external: str = "", ready: bool = True, assigned: tuple[tuple[str, str], ...] = (), **admin: Any
) -> ControlPlane:
    keystone = {"mode": "External", "external": {"authURL": external}} if external else {"mode": "Managed"}
    entries = [
        {"namespace": namespace, **({"targetClusterRef": {"name": cluster}} if cluster else {})}
        for namespace, cluster in assigned
    ]
    return ControlPlane.model_validate(
        {
            "metadata": {"name": "cp", "namespace": "openstack", "uid": "plane"},
            "spec": {
                "services": {"keystone": keystone},
                "korc": {"adminCredential": admin},
                "namespaceAssignments": entries,
            },
            "status": {"conditions": [{"type": "AdminCredentialReady", "status": "True" if ready else "False"}]},
        }
    )


def condition(
    type_: str,
    status: str,
    reason: str = "",
    message: str = "",
    *,
    generation: int | None = 3,
    since: datetime = NOW - timedelta(minutes=1),
) -> dict[str, Any]:
    seen = {} if generation is None else {"observedGeneration": generation}
    return {"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.isoformat(), **seen}  # fmt: skip


def korc(
    *conditions: dict[str, Any],
    body: dict[str, Any] | None = None,
    id_: str = "",
    age: timedelta = timedelta(minutes=1),
    deleting: bool = False,
    finalizers: tuple[str, ...] = ("openstack.k-orc.cloud/project",),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> KorcObject:
    """A K-ORC object at generation 3; `body` is what was applied."""
    body = body or {"metadata": {"name": "child", "namespace": "openstack", "labels": {}}, "spec": {}}
    meta = {
        **body["metadata"],
        "uid": "0c7f6f0e-5d0b-4a53-8bd8-1a0e1a1b2c3d",
        "generation": 3,
        "creationTimestamp": (NOW - age).isoformat(),
        "finalizers": finalizers,
        "annotations": annotations or {},
        **({"labels": labels} if labels is not None else {}),
        **({"deletionTimestamp": NOW.isoformat()} if deleting else {}),
    }
    status = {"conditions": conditions, **({"id": id_} if id_ else {})}
    return KorcObject.model_validate({"metadata": meta, "spec": body["spec"], "status": status})


AVAILABLE = condition("Available", "True", "Success", "OpenStack resource is available")
SUCCESS = condition("Progressing", "False", "Success", "OpenStack resource is up to date")
ABSENT = (
    condition("Progressing", "True", "Progressing", PENDING),
    condition("Available", "False", "Progressing", PENDING),
)


def stopped(message: str = REFUSED, reason: str = "InvalidConfiguration", **more: Any) -> tuple[dict[str, Any], ...]:
    """K-ORC has given up."""
    return (
        condition("Progressing", "False", reason, message, **more),
        condition("Available", "False", reason, message),
    )
