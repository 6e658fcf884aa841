"""What a KeystoneProject's children mean, and the one write that moves them on. A pure function of what was seen.

`judge` is asked again after every write, until it wants none: a chain of early returns, in the order of contracts
4.13. `judge_removal` is its counterpart for the deletion of the managed Project.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneproject import KeystoneProjectStatus
from workflows.api.korc import KorcObject
from workflows.api.meta import Model, find
from workflows.keystoneproject import children, reasons
from workflows.scaffold import korc
from workflows.scaffold.naming import keystone_name_key, ownership_labels
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import includes, owned, refusal
from workflows.scaffold.verdict import REFRESH_SECONDS, WAIT_SECONDS, Decision, Next, Verdict

RESERVED_SERVICES = ("glance", "placement", "barbican", "neutron", "cinder", "nova")
"""Built-in services whose project `service-<name>` the plane creates itself, enabled or not."""

PROBE_TRUST = timedelta(minutes=15)
"""How long a resolved probe is believed: an import never notices that what it found is gone, so it is asked anew."""

CREATE_GRACE = timedelta(seconds=30)
"""How long a managed child may be without an id because K-ORC is creating its resource at this moment."""

KORC_FINALIZER = "openstack.k-orc.cloud/project"


class Seen(Model):
    """What a step read: the two children, and who claims the project's name (an order's id) if that was asked."""

    project: KorcObject | None = None
    probe: KorcObject | None = None
    claimed_by: str | None = None
    now: datetime


def judge(order: OrderRef, name: str, plane: ControlPlane, seen: Seen) -> Decision:
    """How the order stands. `name` is the project's effective name."""
    if _reserved(plane, name):
        return _say(
            reasons.COLLISION,
            f"ControlPlane {plane.key} reserves the project name {name!r} for itself; delete this order and create one"
            " with another projectName.",
            again=REFRESH_SECONDS,
        )
    project = seen.project
    if project is None:
        return _before_creation(order, name, plane, seen)
    if not owned(project.metadata.labels, ownership_labels(order)):
        return _say(reasons.ERROR, refusal("Project", plane.namespace, project.metadata.name))
    if project.deleting:
        return _say(reasons.WAITING, f"{_the(project)} is being deleted; it is made anew once it is gone.")
    if not includes(_declared(project), children.project(order, plane, name)):
        update = _say(reasons.WAITING, f"{_the(project)} has yet to be brought up to date.", do=Next.APPLY)
        if korc.terminal(project) is None or project.status.id:
            return update
        # A new generation wakes K-ORC, which would take over whatever carries the name (contracts 14.2).
        return _ask(project, seen, update, _collision(name, plane))
    if korc.transport_latched(project):
        return _latched(name, plane, seen, project)
    stopped = korc.terminal(project)
    if stopped is not None:
        return _say(reasons.FAILED, f"K-ORC has given up on {_the(project)}: {stopped}")
    if not korc.up_to_date(project) or not project.status.id:
        return _wait(plane, project, reasons.WAITING, f"{_the(project)} is not Available yet: {korc.words(project)}")
    found = KeystoneProjectStatus(
        project_id=project.status.id, project_name=name, domain_name=plane.admin_domain
    ).model_dump(by_alias=True)
    message = f"Project {name!r} exists in domain {plane.admin_domain!r}."
    verdict = Verdict(type=reasons.PROJECT_READY, status=True, reason=reasons.PROVISIONED, message=message)
    return Decision(verdict=verdict, fields=found)


def judge_removal(seen: Seen) -> Decision:
    """Whether the managed Project may be deleted now; NOTHING with a True verdict says that it may.

    K-ORC deletes a resource whose id it does not know by name. So a child without an id is let go of first when a
    resource of the name may be a stranger's (contracts 14.2).
    """
    project = seen.project
    if project is None or project.deleting or _harmless(project):
        return _removable()
    progressing = find(project.status.conditions, "Progressing")
    if korc.terminal(project) is None and (progressing is None or progressing.reason != "TransientError"):
        if progressing is not None and progressing.message.startswith("Waiting for "):
            return _say(reasons.WAITING, f"{_the(project)} never reached Keystone.", do=Next.DETACH)
        made = project.metadata.creation_timestamp
        if made is None or seen.now - made < CREATE_GRACE:
            return _say(reasons.WAITING, f"{_the(project)} is being created at this moment: {korc.words(project)}")
    return _ask(project, seen, _removable(), _let_go(project))


def judge_abandoned(project: KorcObject) -> Decision:
    """The managed Project of a plane that is gone: nobody can be asked, so what has no id is let go of."""
    return _removable() if project.deleting or _harmless(project) else _let_go(project)


def _before_creation(order: OrderRef, name: str, plane: ControlPlane, seen: Seen) -> Decision:
    probe = seen.probe
    if probe is None:
        return _say(reasons.PROBING, f"Whether project {name!r} exists already is being asked.", do=Next.APPLY_PROBE)
    if not owned(probe.metadata.labels, ownership_labels(order)):
        return _say(reasons.ERROR, refusal("Project", plane.namespace, probe.metadata.name))
    if probe.deleting:
        return _say(reasons.PROBING, f"An earlier probe for project {name!r} is still being deleted.")
    if not includes(_declared(probe), children.probe(order, plane, name)):
        return _say(reasons.PROBING, f"The probe for project {name!r} is out of date.", do=Next.DROP_PROBE)
    reading = korc.read_probe(probe)
    if reading is korc.Probe.PENDING:
        generic = f"Whether project {name!r} exists already is not known yet: {korc.words(probe)}"
        return _wait(plane, probe, reasons.PROBING, generic)
    if reading is korc.Probe.RESOLVED:
        made = probe.metadata.creation_timestamp
        stale = made is not None and seen.now - made > PROBE_TRUST
        return _collision(name, plane, do=Next.DROP_PROBE if stale else Next.NOTHING)
    if seen.claimed_by is None:
        return _say(reasons.WAITING, f"Project {name!r} does not exist yet.", do=Next.CLAIM)
    if seen.claimed_by != order.workflow_id:
        lease = children.claim(plane, name)
        return _say(
            reasons.COLLISION,
            f"Another order of ControlPlane {plane.key} claims project {name!r} (Lease {plane.namespace}/{lease}); it"
            " is never taken over. Order under another projectName.",
        )
    return _say(reasons.WAITING, f"Project {name!r} is about to be created.", do=Next.APPLY)


def _latched(name: str, plane: ControlPlane, seen: Seen, project: KorcObject) -> Decision:
    """A connection failed and K-ORC has stopped: clear it after a pause, but never onto a stranger's project."""
    words = f"K-ORC has stopped after a connection failed: {korc.terminal(project)}"
    if not korc.unlatch_due(project, seen.now):
        return _say(reasons.FAILED, f"{words} (tried again after a pause)")
    clear = _say(reasons.FAILED, f"{words} (tried again now)", do=Next.UNLATCH)
    if project.status.id:
        return clear
    return _ask(project, seen, clear, _collision(name, plane))


def _ask(project: KorcObject, seen: Seen, absent: Decision, resolved: Decision) -> Decision:
    """Asks by a probe younger than the trouble whether a resource of the name exists: one of two answers."""
    probe = seen.probe
    if probe is not None and not _siblings(project, probe):
        return _say(reasons.ERROR, refusal("Project", probe.metadata.namespace, probe.metadata.name))
    if probe is None:
        return _say(reasons.WAITING, f"Whether {_the(project)} exists in Keystone is being asked.", do=Next.APPLY_PROBE)
    since, made = korc.latched_since(project), probe.metadata.creation_timestamp
    reading = korc.read_probe(probe)
    if probe.deleting or reading is korc.Probe.PENDING:
        return _say(
            reasons.WAITING, f"Whether {_the(project)} exists in Keystone is not known yet: {korc.words(probe)}"
        )
    if since is not None and made is not None and made < since:
        return _say(reasons.WAITING, f"The probe is older than what happened to {_the(project)}.", do=Next.DROP_PROBE)
    return absent if reading is korc.Probe.ABSENT else resolved


def _siblings(project: KorcObject, probe: KorcObject) -> bool:
    """Whether a probe is the same order's as a managed child that is known to be ours."""
    marks = {key: value for key, value in project.metadata.labels.items() if key.startswith("c5c3.io/")}
    return owned(probe.metadata.labels, marks)


def _reserved(plane: ControlPlane, name: str) -> bool:
    taken = (plane.admin_project, *(f"service-{service}" for service in RESERVED_SERVICES))
    return keystone_name_key(name) in {keystone_name_key(each) for each in taken}


def _harmless(project: KorcObject) -> bool:
    """Its deletion touches nothing but what it is known to own."""
    detached = (project.spec.get("managedOptions") or {}).get("onDelete") == "detach"
    return bool(project.status.id) or detached or KORC_FINALIZER not in project.metadata.finalizers


def _removable() -> Decision:
    return Decision(verdict=Verdict(type=reasons.PROJECT_READY, status=True, reason="", message=""))


def _let_go(project: KorcObject) -> Decision:
    text = f"{_the(project)} never got an id; a project of its name in Keystone may be a stranger's and is left alone."
    return _say(reasons.WAITING, text, do=Next.DETACH)


def _collision(name: str, plane: ControlPlane, do: Next = Next.NOTHING) -> Decision:
    return _say(
        reasons.COLLISION,
        f"A project named {name!r} that this order did not create exists in domain {plane.admin_domain!r}; it is never"
        " taken over. Order under another projectName, or delete that project in Keystone if nobody needs it (an"
        " attempt of this order that failed midway can have left it).",
        do=do,
    )


def _wait(plane: ControlPlane, child: KorcObject, reason: str, message: str) -> Decision:
    classified = korc.classify_wait(plane, (child,))
    return _say(*(classified or (reason, message)))


def _say(reason: str, message: str, *, do: Next = Next.NOTHING, again: float = WAIT_SECONDS) -> Decision:
    verdict = Verdict(type=reasons.PROJECT_READY, status=False, reason=reason, message=message, again=again)
    return Decision(verdict=verdict, do=do)


def _the(child: KorcObject) -> str:
    return f"Project {child.metadata.namespace}/{child.metadata.name}"


def _declared(child: KorcObject) -> dict[str, Any]:
    meta = child.metadata
    return {"metadata": {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels}, "spec": child.spec}
