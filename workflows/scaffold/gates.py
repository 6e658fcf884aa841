"""May this order be served at all: the gates every order of the scaffold passes, in order (contracts 4.11).

Each is a pure function of what was read; the first that answers decides, and its verdict goes on every
sub-condition of the kind.
"""

from __future__ import annotations

from workflows.api.controlplane import ControlPlane
from workflows.scaffold.naming import LABEL_LIMIT
from workflows.scaffold.order import OrderRef
from workflows.scaffold.verdict import FROZEN_SECONDS, WAIT_SECONDS, Verdict

CLUSTER_NAME_TOO_LONG = "ClusterNameTooLong"
CONTROL_PLANE_NOT_FOUND = "ControlPlaneNotFound"
NAMESPACE_NOT_ASSIGNED = "NamespaceNotAssigned"
WAITING_FOR_ADMIN_CREDENTIAL = "WaitingForAdminCredential"


class Gate(Verdict):
    """A gate's verdict, before it is put on the kind's conditions. `type` is empty."""

    type: str = ""
    status: bool = False


def cluster_name(order: OrderRef) -> Gate | None:
    """The cluster's name has to fit a label value; nothing but a rename cures it, so nobody looks again."""
    if len(order.cluster.encode()) <= LABEL_LIMIT:
        return None
    return Gate(
        reason=CLUSTER_NAME_TOO_LONG,
        message=f"The cluster is registered under the name {order.cluster!r}, longer than the {LABEL_LIMIT} characters"
        " a label value carries; register it under a shorter name.",
    )


def plane_not_found(plane_key: str) -> Gate:
    return Gate(
        reason=CONTROL_PLANE_NOT_FOUND,
        message=f"ControlPlane {plane_key} does not exist; the order is served once it does.",
        again=WAIT_SECONDS,
    )


def assignment(order: OrderRef, plane_key: str, plane: ControlPlane | None) -> Gate | None:
    """The plane exists and assigns the order's namespace.

    For an order on a target cluster a plane that does not exist reads exactly like one that does not assign the
    namespace, so that a tenant cannot find out which planes there are.
    """
    if plane is None and not order.cluster:
        return plane_not_found(plane_key)
    if plane is not None and plane.assigns(order.namespace, order.cluster):
        return None
    where = f"cluster {order.cluster!r}" if order.cluster else "the management cluster"
    return Gate(
        reason=NAMESPACE_NOT_ASSIGNED,
        message=f"No entry of spec.namespaceAssignments on ControlPlane {plane_key} assigns namespace"
        f" {order.namespace!r} on {where}; the order is frozen until one does.",
        again=FROZEN_SECONDS,
    )


def admin_credential(plane: ControlPlane) -> Gate | None:
    """K-ORC cannot talk to Keystone before the plane's admin credential is minted."""
    if plane.admin_credential_ready:
        return None
    return Gate(
        reason=WAITING_FOR_ADMIN_CREDENTIAL,
        message=f"AdminCredentialReady of ControlPlane {plane.key} is not True yet.",
        again=WAIT_SECONDS,
    )


def order_name(order: OrderRef) -> Gate | None:
    """The order's name has to fit a label value (contracts 14.8). Admission says so too, where its rules are.

    Its reason, which the gate leaves empty, is the one by which each condition of the kind reads an error.
    """
    if len(order.name.encode()) <= LABEL_LIMIT:
        return None
    return Gate(
        reason="",
        message=f"metadata.name is longer than the {LABEL_LIMIT} characters a label value carries, so no child can be"
        " marked as this order's; delete the order and create it under a shorter name.",
    )
