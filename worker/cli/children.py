"""An order's children wherever they are, found by label and ownership, each with its controller's own words.

Of Secrets only metadata is ever asked for, and of claims only who holds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activities.cluster import (
    CERTIFICATE,
    DATABASE,
    EXTERNAL_SECRET,
    KINDS,
    LEASE,
    MARIADB,
    PUSH_SECRET,
    SECRET,
    SERVICE_ACCOUNT,
    Cluster,
    Kind,
    Object,
)
from activities.errors import ClusterError, NotServed
from worker.cli.reach import MANAGEMENT
from workflows.api.korc import GROUP, KorcObject
from workflows.api.meta import Meta, Model, find
from workflows.keystoneproject import children as project
from workflows.keystoneservice import children as service
from workflows.mariadbdatabase import children as database
from workflows.scaffold import korc
from workflows.scaffold.naming import LABEL_LIMIT
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import Marks

LABELLED = tuple(kind for kind in KINDS.values() if kind not in (MARIADB, CERTIFICATE, SERVICE_ACCOUNT))
"""The kinds whose objects belong to one order; the others are shared."""
_DELIVERED = (PUSH_SECRET, EXTERNAL_SECRET, SECRET)
"""Kinds that lie beside the order, and may be known by their owner alone."""


class Child(Model):
    """One child. `state` is there, ready, waiting, failed or deleting; `words` are its controller's."""

    kind: str
    cluster: str
    namespace: str
    name: str
    state: str
    words: str = ""
    id: str = ""
    created: datetime | None = None


@dataclass(frozen=True)
class Place:
    """Where to look: these kinds in a namespace, None for all; by label, or all that is there."""

    cluster: Cluster
    namespace: str | None
    kinds: tuple[Kind, ...]
    labelled: bool = True


def marks_of(ref: OrderRef, uid: str) -> Marks:
    """By what the order's children are known. Without a uid, which no object lacks, by their labels alone."""
    if ref.kind == "KeystoneService":
        return service.marks(ref, uid)
    return database.marks(ref, uid) if ref.kind == "MariaDBDatabase" else project.marks(ref)


async def found(places: Sequence[Place], ref: OrderRef, uid: str) -> tuple[list[Child], list[str]]:
    """The children there, and what could not be read, in words."""
    marks = marks_of(ref, uid)
    looks = [(place, kind) for place in places for kind in place.kinds]
    answers = await asyncio.gather(*(_look(place, kind, marks) for place, kind in looks))
    children: dict[tuple[str, str, str, str], Child] = {}
    for (place, kind), (items, _) in zip(looks, answers, strict=True):
        for item in items:
            meta = Meta.model_validate(item["metadata"])
            if marks.own(meta) or _consumed(kind, meta, ref):
                child = child_of(kind, place.cluster.name or MANAGEMENT, item)
                children[child.kind, child.cluster, child.namespace, child.name] = child
    unread = list(dict.fromkeys(error for _, error in answers if error))
    return sorted(children.values(), key=lambda each: (each.cluster, each.kind, each.name)), unread


def _consumed(kind: Kind, meta: Meta, ref: OrderRef) -> bool:
    """What External Secrets delivers carries the order's name, and nothing else when an older version asked for it."""
    beside = meta.namespace == ref.namespace and meta.name == f"{ref.name}-credentials"
    return kind is SECRET and ref.kind == "KeystoneService" and beside


async def _look(place: Place, kind: Kind, marks: Marks) -> tuple[list[Object], str]:
    if place.labelled and any(len(value) > LABEL_LIMIT for value in marks.labels.values()):
        return [], ""  # no object can carry such a label, nor can the server be asked for one
    labels = marks.labels if place.labelled else None
    try:
        listed = await place.cluster.list(kind, place.namespace, labels=labels, metadata_only=kind is SECRET)
        return listed["items"], ""
    except NotServed:
        return [], ""
    except ClusterError as error:
        return [], str(error)


def places(management: Cluster, home: Cluster, keystone: Cluster, ref: OrderRef, planes: Sequence[str]) -> list[Place]:
    """Where an order's children may be: beside its plane, beside Keystone, and beside the order itself.

    planes  the plane's namespace, then its Keystone's; none means that it is not known, and all are gone through
    """
    beside = [Place(cluster=management, namespace=name, kinds=LABELLED) for name in dict.fromkeys(planes)]
    beside = beside or [Place(cluster=management, namespace=None, kinds=LABELLED)]
    if keystone is not management:
        beside += [Place(cluster=keystone, namespace=name, kinds=(DATABASE,)) for name in planes[-1:]]
    kinds = _DELIVERED if home is management else (SECRET,)
    return [*beside, Place(cluster=home, namespace=ref.namespace, kinds=kinds, labelled=False)]


def child_of(kind: Kind, cluster: str, raw: Object) -> Child:
    """How a child stands, by what is on it."""
    child = KorcObject.model_validate({key: value for key, value in raw.items() if key != "data"})
    meta = child.metadata
    state, words = _standing(kind, child, raw)
    if child.deleting:
        held = ", ".join(meta.finalizers) or "nobody"
        state, words = "deleting", f"held by {held}" + (f"; {words}" if words else "")
    return Child(
        kind=kind.kind,
        cluster=cluster,
        namespace=meta.namespace,
        name=meta.name,
        state=state,
        words=words,
        id=child.status.id,
        created=meta.creation_timestamp,
    )


def _standing(kind: Kind, child: KorcObject, raw: Object) -> tuple[str, str]:
    if kind is LEASE:
        return "there", f"held by {(raw.get('spec') or {}).get('holderIdentity') or 'nobody'}"
    if kind.group == GROUP:
        if (stopped := korc.terminal(child)) is not None:
            return "failed", stopped
        return ("ready", "") if korc.up_to_date(child) else ("waiting", korc.words(child))
    ready = find(child.status.conditions, "Ready")
    if ready is None:
        return ("waiting", "no word of its controller yet") if kind in (*_DELIVERED[:2], DATABASE) else ("there", "")
    return ("ready", "") if ready.status == "True" else ("waiting", ready.message or ready.reason)
