"""What a KeystoneProject's children mean, and the writes that move them on. A pure function of what was seen.

`judge` is asked again after every write, until it wants none.
"""

from __future__ import annotations

from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneproject import KeystoneProjectStatus
from workflows.keystoneproject import children, reasons
from workflows.scaffold import gated, korc
from workflows.scaffold.child import Seen, Standing
from workflows.scaffold.naming import keystone_name_key
from workflows.scaffold.order import OrderRef
from workflows.scaffold.verdict import REFRESH_SECONDS, WAIT_SECONDS, Decision, Verdict

RESERVED_SERVICES = ("glance", "placement", "barbican", "neutron", "cinder", "nova")
"""Built-in services whose project `service-<name>` the plane creates itself, enabled or not."""

_REASONS = {
    Standing.REFUSED: reasons.ERROR,
    Standing.COLLISION: reasons.COLLISION,
    Standing.PROBING: reasons.PROBING,
    Standing.FAILED: reasons.FAILED,
    Standing.WAITING: reasons.WAITING,
}


def judge(order: OrderRef, name: str, plane: ControlPlane, seen: Seen) -> Decision:
    """How the order stands. `name` is the project's effective name."""
    if _reserved(plane, name):
        return Decision(
            verdict=_false(
                reasons.COLLISION,
                f"ControlPlane {plane.key} reserves the project name {name!r} for itself; delete this order and create"
                " one with another projectName.",
                again=REFRESH_SECONDS,
            )
        )
    found = gated.judge_gated(order, _project(order, name, plane), seen)
    live = seen.of(children.project(order, plane, name))
    if found.ready and live is not None:
        message = f"Project {name!r} exists in domain {plane.admin_domain!r}."
        status = KeystoneProjectStatus(project_id=live.status.id, project_name=name, domain_name=plane.admin_domain)
        verdict = Verdict(type=reasons.PROJECT_READY, status=True, reason=reasons.PROVISIONED, message=message)
        return Decision(verdict=verdict, do=found.do, fields=status.model_dump(by_alias=True))
    waits = found.standing in (Standing.PROBING, Standing.WAITING)
    classified = korc.classify_wait(plane, [found.child]) if waits and found.child else None
    verdict = _false(*(classified or (_REASONS[found.standing], found.message)))
    return Decision(verdict=verdict, do=found.do, stays=waits and classified is None)


def _project(order: OrderRef, name: str, plane: ControlPlane) -> gated.Gated:
    """The managed Project behind its probe."""
    return gated.Gated(
        child=children.project(order, plane, name),
        probe=children.probe(order, plane, name),
        claim=children.claim(plane, name),
        marks=children.marks(order),
        named=f"project {name!r}",
        where=f"domain {plane.admin_domain!r}",
        remedy="It is never taken over: order under another projectName, or delete that project in Keystone if nobody"
        " needs it.",
    )


def _reserved(plane: ControlPlane, name: str) -> bool:
    taken = (plane.admin_project, *(f"service-{service}" for service in RESERVED_SERVICES))
    return keystone_name_key(name) in {keystone_name_key(each) for each in taken}


def _false(reason: str, message: str, *, again: float = WAIT_SECONDS) -> Verdict:
    return Verdict(type=reasons.PROJECT_READY, status=False, reason=reason, message=message, again=again)
