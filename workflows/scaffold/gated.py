"""A managed child that K-ORC could make of something that exists already: probe first, claim, and only then create.

K-ORC's managed create takes over silently whatever carries the name (contracts 6.3), and deletes by name what it never
got an id of. So a probe asks before a child is created, before one without an id is woken and, in
`workflows.scaffold.removal`, before such a one is deleted (contracts 4.2, 14.1-14.3).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from workflows.api.korc import KorcObject
from workflows.api.meta import Model
from workflows.scaffold import korc
from workflows.scaffold.child import (
    Found,
    Seen,
    Standing,
    as_declared,
    cleared,
    going,
    standing_before_spec,
    standing_of,
    the,
    write,
)
from workflows.scaffold.naming import CLAIMS
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import Marks, refusal
from workflows.scaffold.verdict import Act, Write

PROBE_TRUST = timedelta(minutes=15)
"""How long a resolved probe is believed: an import never notices that what it found is gone, so it is asked anew."""


class Gated(Model):
    """A managed child, the import that asks whether its resource exists, and what a person is told.

    named   the resource as people call it: `project 'billing'`
    where   what the name is unique in: `domain 'Default'`
    remedy  what to do about one that exists already, as a sentence
    adopt   the order consents to taking over what exists, so nothing is asked
    same    whether a name in Keystone and the fields of a resource are those of the wanted one, for one that adopts
    blind   an available resource counts whatever generation its status speaks of
    exact   it is written only as it was read: what others write to it must not be lost
    """

    child: dict[str, Any]
    probe: dict[str, Any]
    claim: str
    marks: Marks
    named: str
    where: str
    remedy: str
    adopt: bool = False
    same: Callable[[str, dict[str, Any]], bool] = lambda _name, _resource: False
    blind: bool = False
    exact: bool = False


def judge_gated(order: OrderRef, gated: Gated, seen: Seen) -> Found:
    """How the child stands: a chain of early returns, in the order of contracts 4.2, 4.13 and 4.14."""
    wanted, child = gated.child, seen.of(gated.child)
    if child is None:
        rival = _rival(gated, seen) if gated.adopt else None
        return rival or going(wanted, gated.marks, seen) or _before_creation(order, gated, seen)
    if (early := standing_before_spec(child, wanted, gated.marks, seen)) is not None:
        return early
    unmade = not child.status.id and not gated.adopt
    if not as_declared(child, wanted):
        message = f"{the(wanted)} has yet to be brought up to date."
        update = Found(
            standing=Standing.WAITING, message=message, do=(write(Act.APPLY, wanted, exact=gated.exact),), child=child
        )
        # A new generation wakes K-ORC, which would take over whatever carries the name (contracts 14.2).
        return ask(gated, child, seen, update) if korc.terminal(child) and unmade else update
    if korc.transport_latched(child):
        clear = cleared(child, wanted, seen.now)
        return ask(gated, child, seen, clear) if clear.do and unmade else clear
    there = korc.available(child) if gated.blind else korc.up_to_date(child)
    found = standing_of(child, wanted, there=there and bool(child.status.id))
    if (probe := seen.of(gated.probe)) and not probe.deleting and gated.marks.own(probe.metadata):
        return found.model_copy(update={"do": (write(Act.DELETE, gated.probe),)})
    return found


def _before_creation(order: OrderRef, gated: Gated, seen: Seen) -> Found:
    probe, drop = seen.of(gated.probe), (write(Act.DELETE, gated.probe),)
    if gated.adopt:
        return _claimed(order, gated, seen, drop if probe is not None and not probe.deleting else ())
    if probe is None:
        message = f"Whether {gated.named} exists already is being asked."
        return Found(standing=Standing.PROBING, message=message, do=(write(Act.CREATE, gated.probe),))
    if not gated.marks.own(probe.metadata):
        return Found(standing=Standing.REFUSED, message=_refusal(gated))
    if probe.deleting:
        message = f"An earlier probe for {gated.named} is still being deleted."
        return Found(standing=Standing.PROBING, message=message, child=probe)
    if not as_declared(probe, gated.probe):
        message = f"The probe for {gated.named} is out of date."
        return Found(standing=Standing.PROBING, message=message, do=drop)
    reading = korc.read_probe(probe)
    if reading is korc.Probe.PENDING:
        message = f"Whether {gated.named} exists already is not known yet: {korc.words(probe)}"
        return Found(standing=Standing.PROBING, message=message, child=probe, do=drop if _spent(probe) else ())
    if reading is korc.Probe.RESOLVED:
        made = probe.metadata.creation_timestamp
        stale = made is not None and seen.now - made > PROBE_TRUST
        return _collision(gated, drop if stale else ())
    return _claimed(order, gated, seen, drop)


def _claimed(order: OrderRef, gated: Gated, seen: Seen, drop: tuple[Write, ...]) -> Found:
    """Nothing is in the way but another order, perhaps: the claim decides, and then the child is created."""
    holder = seen.claims.get(gated.claim)
    if holder is None:
        kind = gated.child["kind"].lower()
        place = {"namespace": gated.child["metadata"]["namespace"], "labels": {CLAIMS: kind}}
        claim = Write(act=Act.CLAIM, kind="Lease", name=gated.claim, body={"metadata": place})
        return Found(standing=Standing.WAITING, message=f"{_first(gated.named)} is about to be claimed.", do=(claim,))
    if holder != order.workflow_id:
        namespace = gated.child["metadata"]["namespace"]
        return Found(
            standing=Standing.COLLISION,
            message=f"Another order claims {gated.named} in {gated.where} (Lease {namespace}/{gated.claim})."
            f" {gated.remedy}",
        )
    message = f"{_first(gated.named)} is about to be created."
    return Found(standing=Standing.WAITING, message=message, do=(write(Act.APPLY, gated.child), *drop))


def _rival(gated: Gated, seen: Seen) -> Found | None:
    """A managed object of somebody else's for the very resource. One that is adopted is not asked about, and an order
    that was taken over holds no claim of what it has (contracts 12.15).
    """
    kind, namespace = gated.child["kind"], gated.child["metadata"]["namespace"]
    for each, other in seen.children.items():
        meta, resource = other.metadata, other.spec.get("resource") or {}
        if not each.startswith(f"{kind}/{namespace}/") or gated.marks.own(meta):
            continue
        managed = other.spec.get("managementPolicy", "managed") == "managed"
        if managed and gated.same(resource.get("name") or meta.name, resource):
            message = (
                f"{_first(gated.named)} in {gated.where} is kept by {kind} {namespace}/{meta.name}, which is not this"
                " order's: what somebody else keeps is not taken over."
            )
            return Found(standing=Standing.COLLISION, message=message)
    return None


def ask(gated: Gated, child: KorcObject, seen: Seen, absent: Found) -> Found:
    """Asks by a probe younger than the trouble whether a resource of the name exists; if not, `absent`."""
    probe = seen.of(gated.probe)
    if probe is not None and not gated.marks.own(probe.metadata):
        return Found(standing=Standing.REFUSED, message=_refusal(gated))
    if probe is None:
        message = f"Whether {gated.named} exists in Keystone is being asked."
        return Found(standing=Standing.WAITING, message=message, do=(write(Act.CREATE, gated.probe),))
    if not probe.deleting and not as_declared(probe, gated.probe):
        # Left from when something else was declared, it says nothing of what K-ORC would take or delete now.
        message = f"The probe for {gated.named} is out of date."
        return Found(standing=Standing.WAITING, message=message, do=(write(Act.DELETE, gated.probe),))
    since, made = korc.latched_since(child), probe.metadata.creation_timestamp
    reading = korc.read_probe(probe)
    if probe.deleting or reading is korc.Probe.PENDING:
        message = f"Whether {gated.named} exists in Keystone is not known yet: {korc.words(probe)}"
        drop = (write(Act.DELETE, gated.probe),) if _spent(probe) and not probe.deleting else ()
        return Found(standing=Standing.WAITING, message=message, child=probe, do=drop)
    if since is not None and made is not None and made < since:
        message = f"The probe for {gated.named} is older than what happened to {the(gated.child)}."
        return Found(standing=Standing.WAITING, message=message, do=(write(Act.DELETE, gated.probe),))
    return absent if reading is korc.Probe.ABSENT else _collision(gated, ())


def _spent(probe: KorcObject) -> bool:
    """What it had found was deleted since, and K-ORC has stopped looking: it is to be asked anew."""
    return bool(probe.status.id) and korc.terminal(probe) is not None


def _collision(gated: Gated, do: tuple[Write, ...]) -> Found:
    return Found(
        standing=Standing.COLLISION,
        message=f"{_first(gated.named)} exists in {gated.where} and this order did not create it. {gated.remedy} (An"
        " attempt of this order that failed midway can have left it.)",
        do=do,
    )


def _refusal(gated: Gated) -> str:
    meta = gated.probe["metadata"]
    return refusal(gated.probe["kind"], meta["namespace"], meta["name"])


def _first(text: str) -> str:
    return text[0].upper() + text[1:]
