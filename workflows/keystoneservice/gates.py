"""May this registration be served at all, and what a gate's answer reads on its two blocks (contracts 4.3)."""

from __future__ import annotations

from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import reasons
from workflows.scaffold import gates
from workflows.scaffold.order import OrderRef
from workflows.scaffold.verdict import WAIT_SECONDS, Verdict

BLOCKS = {
    "catalog": (reasons.CATALOG_READY, reasons.CATALOG_NOT_DECLARED, reasons.CATALOG_ERROR),
    "account": (reasons.ACCOUNT_READY, reasons.ACCOUNT_NOT_DECLARED, reasons.ACCOUNT_ERROR),
}
"""Each block of the spec, its condition, and that condition's reasons while it is undeclared and when it errs."""


def consent(order: OrderRef, plane_key: str, plane: ControlPlane | None) -> gates.Gate | None:
    """The plane exists and lets this namespace register services; the order is frozen otherwise."""
    if plane is None:
        return gates.plane_not_found(plane_key)
    if plane.registers(order.namespace):
        return None
    return gates.Gate(
        reason=reasons.NAMESPACE_NOT_ALLOWED,
        message=f"ControlPlane {plane_key} lets no services of namespace {order.namespace!r} register; the order is"
        " frozen until the namespace is on its spec.korc.serviceRegistrations.allowedNamespaces.",
        again=WAIT_SECONDS,
    )


def refused(spec: dict[str, Any], gate: gates.Gate) -> tuple[Verdict, ...]:
    """A gate's answer on every declared block; one that is not declared keeps its True."""
    said = gate.model_dump(exclude={"type", "reason"})
    return tuple(
        Verdict(type=type_, reason=gate.reason or error, **said) if spec.get(block) else undeclared(block)
        for block, (type_, _, error) in BLOCKS.items()
    )


def undeclared(block: str) -> Verdict:
    type_, reason, _ = BLOCKS[block]
    return Verdict(type=type_, status=True, reason=reason, message=f"The order declares no {block}.")


_GATED = frozenset({gates.CONTROL_PLANE_NOT_FOUND, gates.WAITING_FOR_ADMIN_CREDENTIAL, reasons.NAMESPACE_NOT_ALLOWED})


def swept(status: dict[str, Any], generation: int, block: str) -> bool:
    """Whether a pass has found, of the order as it is now, that nothing is left that the block does not declare.

    It has if the condition is True. A gate says True of a block that is not declared without a look, and then the other
    block's condition shows that it was a gate that spoke.
    """
    conditions = status.get("conditions") or []
    if any(each.get("reason") in _GATED for each in conditions):
        return False
    type_, _, _ = BLOCKS[block]
    return any(
        each.get("type") == type_ and each.get("status") == "True" and each.get("observedGeneration") == generation
        for each in conditions
    )


def fields(spec: dict[str, Any]) -> dict[str, Any]:
    """A block that is not declared has no status (row S03)."""
    return {block: None for block in BLOCKS if not spec.get(block)}
