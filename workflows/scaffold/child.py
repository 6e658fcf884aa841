"""One K-ORC child of an order: how it stands, and the writes that would move it on.

Judged from what was seen; a kind's judge turns standings into its own conditions. A child that K-ORC could make of
something that exists already is `workflows.scaffold.gated`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import Field

from workflows.api.korc import KorcObject
from workflows.api.meta import Model
from workflows.scaffold import korc
from workflows.scaffold.ownership import Marks, includes, refusal
from workflows.scaffold.verdict import Act, Write

Body = Mapping[str, Any]
"""What a child should be: `kind`, `metadata` and `spec`."""


class Seen(Model):
    """What a step knows of an order's children.

    children  by `key`
    claims    who holds a claim, by the Lease's name, as far as it was asked
    unserved  kinds that the API server does not serve, of those that an order can do without
    """

    children: dict[str, KorcObject] = Field(default_factory=dict)
    claims: dict[str, str] = Field(default_factory=dict)
    unserved: frozenset[str] = frozenset()
    now: datetime

    def of(self, body: Body) -> KorcObject | None:
        meta = body["metadata"]
        return self.children.get(key(body["kind"], meta["namespace"], meta["name"]))


class Standing(Enum):
    """How a child stands, the worst first."""

    REFUSED = "an object that is not ours has its name"
    COLLISION = "what it would become exists already"
    PROBING = "whether that is so is not known yet"
    FAILED = "K-ORC has given up on it"
    WAITING = "K-ORC is not done with it"
    READY = "it is there, as declared"


class Found(Model):
    """A child's standing in words, what to write now, and the object that is waited for."""

    standing: Standing
    message: str = ""
    do: tuple[Write, ...] = ()
    child: KorcObject | None = None

    @property
    def ready(self) -> bool:
        return self.standing is Standing.READY


def key(kind: str, namespace: str, name: str) -> str:
    """By its namespace too: beside the order a tenant may write what they like, under any name and labels."""
    return f"{kind}/{namespace}/{name}"


def judge_child(wanted: Body, marks: Marks, seen: Seen, joins: Mapping[str, Body] | None = None) -> Found:
    """How a child stands that can only ever be our own: an import, or what hangs on another child of the order.

    joins  fields of `status.resource` that hold an id in Keystone, and the order's child whose id it has to be
    """
    found, joins = judge_declared(wanted, marks, seen), joins or {}
    if found.child is None and found.do:
        return _too_early(wanted, seen, joins) or found
    if not found.ready or found.child is None:
        return found
    if korc.transport_latched(found.child):
        return cleared(found.child, wanted, seen.now)
    standing = standing_of(found.child, wanted)
    outlived = _outlived(found.child, wanted, marks, seen, joins) if standing.ready else None
    return outlived or standing


def judge_declared(wanted: Body, marks: Marks, seen: Seen) -> Found:
    """Whether a child of any controller's is there as declared; what its controller says of it is not asked."""
    child = seen.of(wanted)
    if child is None:
        return going(wanted, marks, seen) or Found(
            standing=Standing.WAITING, message=f"{the(wanted)} has yet to be created.", do=(write(Act.APPLY, wanted),)
        )
    if (early := standing_before_spec(child, wanted, marks, seen)) is not None:
        return early
    if not as_declared(child, wanted):
        message = f"{the(wanted)} has yet to be brought up to date."
        return Found(standing=Standing.WAITING, message=message, do=(write(Act.APPLY, wanted),), child=child)
    return Found(standing=Standing.READY, child=child)


def standing_before_spec(child: KorcObject, wanted: Body, marks: Marks, seen: Seen) -> Found | None:
    """Whose it is and whether it is going: what decides before its spec may be looked at."""
    meta = child.metadata
    if not marks.own(meta):
        return Found(standing=Standing.REFUSED, message=refusal(wanted["kind"], meta.namespace, meta.name))
    if child.deleting:
        held = f" (held by {', '.join(meta.finalizers)})" if meta.finalizers else ""
        message = f"{the(wanted)} is being deleted{held}; it is made anew once it is gone."
        do = tuple(write(Act.DELETE, each) for each in _held_by(child, wanted["kind"], marks, seen))
        return Found(standing=Standing.WAITING, message=message, do=do, child=child)
    return None


def _held_by(child: KorcObject, kind: str, marks: Marks, seen: Seen) -> list[Body]:
    """The order's children that refer to one that somebody deletes: K-ORC lets it go only after them, so they are made
    anew with it. Not for an import but a role's: its deletion takes nothing from Keystone, and a user's would.
    """
    if child.spec.get("managementPolicy") != "managed" and kind != "Role":
        return []
    return [
        {
            "kind": each.partition("/")[0],
            "metadata": {"name": other.metadata.name, "namespace": other.metadata.namespace},
        }
        for each, other in seen.children.items()
        if _refers(other.spec, kind, child.metadata.name) and marks.own(other.metadata) and not other.deleting
    ]


def going(wanted: Body, marks: Marks, seen: Seen) -> Found | None:
    """Nothing is made that refers to what is being deleted: K-ORC would hold that for its sake."""
    for each, other in seen.children.items():
        kind = each.partition("/")[0]
        if (
            other.deleting
            and _refers(wanted.get("spec") or {}, kind, other.metadata.name)
            and marks.own(other.metadata)
        ):
            message = f"{the(wanted)} has yet to be created, once {kind} {other.metadata.name} is gone and made anew."
            return Found(standing=Standing.WAITING, message=message, child=other)
    return None


def _too_early(wanted: Body, seen: Seen, joins: Mapping[str, Body]) -> Found | None:
    """Nothing is made of what is not there yet. K-ORC would wait by itself, but look at it, and write to it, with every
    move of what it waits for.
    """
    for other in joins.values():
        live = seen.of(other)
        if live is None or not korc.up_to_date(live):
            message = f"{the(wanted)} has yet to be created, once {the(other)} is Available."
            return Found(standing=Standing.WAITING, message=message)
    return None


def _refers(spec: Mapping[str, Any], kind: str, name: str) -> bool:
    """By a field of its resource: `defaultProjectRef` to a Project."""
    resource = spec.get("resource") or {}
    return any(field.lower().endswith(f"{kind.lower()}ref") and value == name for field, value in resource.items())


def standing_of(child: KorcObject, wanted: Body, *, there: bool | None = None) -> Found:
    """What K-ORC says of a child that is as declared.

    there  whether it counts as available; by default it has to be, for the generation that is declared now
    """
    stopped = korc.terminal(child)
    if stopped is not None:
        message = f"K-ORC has given up on {the(wanted)}: {stopped}"
        return Found(standing=Standing.FAILED, message=message, child=child)
    if not (korc.up_to_date(child) if there is None else there):
        message = f"{the(wanted)} is not Available yet: {korc.words(child)}"
        return Found(standing=Standing.WAITING, message=message, child=child)
    return Found(standing=Standing.READY, child=child)


def _outlived(child: KorcObject, wanted: Body, marks: Marks, seen: Seen, joins: Mapping[str, Body]) -> Found | None:
    """A newer K-ORC makes anew what vanished from Keystone, under another id, and does not look at what refers to it:
    that goes on reading Available for something that is no more. What either side does not say yet is no difference.
    """
    for field, other in joins.items():
        live, was = seen.of(other), child.status.resource.get(field)
        now = live.status.id if live is not None and marks.own(live.metadata) else ""
        if was and now and was != now:
            message = (
                f"{the(wanted)} is of a {other['kind']} that is no more in Keystone ({field} {was}), for"
                f" {the(other)} is {now} by now; it is deleted, and made anew once it is gone."
            )
            return Found(standing=Standing.WAITING, message=message, do=(write(Act.DELETE, wanted),), child=child)
    return None


def cleared(child: KorcObject, wanted: Body, now: datetime) -> Found:
    """A connection failed and K-ORC has stopped: its latch is cleared after a pause (contracts 4.14)."""
    due = korc.unlatch_due(child, now)
    return Found(
        standing=Standing.FAILED,
        message=f"K-ORC has stopped on {the(wanted)} after a connection failed: {korc.terminal(child)}"
        f" (tried again {'now' if due else 'after a pause'})",
        do=(write(Act.UNLATCH, wanted),) if due else (),
        child=child,
    )


def write(act: Act, wanted: Body, *, exact: bool = False) -> Write:
    meta = wanted["metadata"]
    return Write(
        act=act, kind=wanted["kind"], namespace=meta["namespace"], name=meta["name"], body=dict(wanted), exact=exact
    )


def fingerprint(value: bytes) -> str:
    """What stands for a Secret's value where values must not be; empty for an empty one."""
    return hashlib.sha256(value).hexdigest() if value else ""


def as_declared(child: KorcObject, wanted: Body) -> bool:
    """Whether the live object says everything that is declared of it, so that an apply would change nothing."""
    meta = child.metadata
    said = {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels, "annotations": meta.annotations}
    declared = {key: value for key, value in wanted["metadata"].items() if key != "ownerReferences"}
    # Others may own it as well, and an apply would leave their references there.
    owned = all(any(includes(live, owner) for live in meta.owner_references) for owner in _owners(wanted))
    return owned and includes(said, declared) and includes(child.spec, wanted.get("spec") or {})


def _owners(wanted: Body) -> list[Body]:
    return list(wanted["metadata"].get("ownerReferences") or [])


def the(wanted: Body) -> str:
    return f"{wanted['kind']} {wanted['metadata']['namespace']}/{wanted['metadata']['name']}"
