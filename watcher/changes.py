"""What a change is: of each kind of object, what a judge reads of it, as one digest.

Two sights of an object with equal digests are the same news. Our own status and finalizer writes are in none of them,
so that serving an order never wakes it again.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from activities.cluster import Object
from workflows.keystoneservice.children import GENERATION
from workflows.scaffold.times import seconds

PLANE_GATES = ("AdminCredentialReady", "DBCredentialsReady")
"""The conditions of a ControlPlane whose flip lets orders through or stops them."""

JOINS = ("roleID", "userID", "projectID", "serviceID")
"""What K-ORC says of an assignment or an endpoint that judges compare with the ids of the children it was made of."""


def digest(facts: object) -> bytes:
    """Sixteen bytes that stand for the facts; what is kept of every object that was ever seen."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).digest()


def order(found: Object) -> object:
    """Orders: what people write. Status and finalizers are our own writing."""
    meta = _meta(found)
    return [_life(meta), meta.get("generation"), meta.get("labels") or {}, meta.get("annotations") or {}]


def plane(found: Object) -> object:
    """Planes: spec, annotations (the pause), deletion and the flips of the gates; no other status."""
    meta = _meta(found)
    gates = [[c.get("type"), c.get("status")] for c in conditions_of(found) if c.get("type") in PLANE_GATES]
    return [_life(meta), meta.get("generation"), meta.get("annotations") or {}, sorted(map(str, gates))]


def child(found: Object) -> object:
    """K-ORC children: identity, ownership, desired state, and what K-ORC found out (but not since when)."""
    meta = _meta(found)
    conditions = [
        [c.get(field) for field in ("type", "status", "reason", "message", "observedGeneration")]
        for c in conditions_of(found)
    ]
    # K-ORC writes the id a moment before it says that all is well: half of one piece of news.
    known = ids(found) if conditions else ()
    owners = meta.get("ownerReferences") or []
    return [_life(meta), meta.get("generation"), meta.get("labels") or {}, owners, known, conditions]


def ids(found: Object) -> tuple[str, ...]:
    """Which resource in Keystone a child stands for, and of which others that is made; empty where it is not told."""
    status = found.get("status")
    told = status if isinstance(status, dict) else {}
    resource = told.get("resource")
    joins = resource if isinstance(resource, dict) else {}
    return tuple(str(each or "") for each in (told.get("id"), *(joins.get(field) for field in JOINS)))


def user(found: Object) -> object:
    """A K-ORC User: as every child, the password that Keystone has by now, and whether a new one is asked for."""
    status = found.get("status")
    resource = status.get("resource") if isinstance(status, dict) else None
    applied = resource.get("appliedPasswordRef") if isinstance(resource, dict) else None
    mark = (_meta(found).get("annotations") or {}).get(GENERATION)
    return [child(found), applied, mark and "stamped"]


def delivery(found: Object) -> object:
    """PushSecret and ExternalSecret: whose and which they are, and how their last sync went (but not when)."""
    meta, status = _meta(found), found.get("status")
    ready = [[c.get(field) for field in ("status", "reason", "message")] for c in conditions_of(found) if _ready(c)]
    synced = status.get("syncedResourceVersion") if isinstance(status, dict) else None
    return [_life(meta), written(found), ready, synced]


def served(found: Object) -> object:
    """Databases and generators: whose and which they are, and whether their controller says Ready."""
    ready = [[c.get(field) for field in ("status", "reason", "message")] for c in conditions_of(found) if _ready(c)]
    return [_life(_meta(found)), written(found), ready]


def secret(found: Object) -> object:
    """Secrets, of which only the metadata is known: every write."""
    meta = _meta(found)
    return [_life(meta), meta.get("resourceVersion")]


def written(found: Object) -> object:
    """What whoever wishes something of an object writes. One that has no generation tells no write from another.

    External Secrets writes an object back whole when it adds its finalizer, with another spelling of the interval.
    """
    meta, spec = _meta(found), found.get("spec")
    wish = meta.get("generation") or meta.get("resourceVersion")
    if isinstance(spec, dict) and (every := seconds(spec.get("refreshInterval"))) is not None:
        wish = {**spec, "refreshInterval": every}
    marks = [meta.get(field) for field in ("labels", "annotations", "ownerReferences")]
    return [meta.get("uid"), wish, marks]


def reference(found: Object) -> object:
    """Orders that name a project: that they exist, and which they name. Even a terminating one still holds."""
    return [_meta(found).get("uid"), project_named(found)]


def registration(found: Object) -> object:
    """Registration Secrets, of which only the metadata is known: every write."""
    meta = _meta(found)
    return [meta.get("uid"), meta.get("resourceVersion")]


def unspoken(found: Object) -> bool:
    """A child that its controller has not looked at yet: nothing that the step which created it does not know."""
    return not conditions_of(found) and not _meta(found).get("deletionTimestamp")


def standing(found: Object) -> bool:
    """Whether it is there to stay."""
    return not _meta(found).get("deletionTimestamp")


def well(found: Object) -> bool:
    """Whether a K-ORC child is as an order that is Ready knows it: there to stay, and available as it is written now.
    Whatever becomes of a probe is well: it is asked before the managed one is made, or when that one is in trouble.
    """
    meta, spec = _meta(found), found.get("spec")
    unmanaged = isinstance(spec, dict) and spec.get("managementPolicy") == "unmanaged"
    if unmanaged and str(meta.get("name")).endswith("-probe"):
        return True
    generation = meta.get("generation")
    return standing(found) and any(
        c.get("type") == "Available" and c.get("status") == "True" and c.get("observedGeneration") == generation
        for c in conditions_of(found)
    )


def delivered(found: Object) -> bool:
    """Whether a PushSecret, an ExternalSecret or a Database is there to stay, and Ready as its controller says."""
    return standing(found) and any(_ready(c) and c.get("status") == "True" for c in conditions_of(found))


def converged(found: Object) -> bool:
    """Whether an order was Ready at the generation it has now, and is not being deleted."""
    meta = _meta(found)
    if meta.get("deletionTimestamp"):
        return False
    return any(
        _ready(c)
        and c.get("status") == "True"
        and c.get("observedGeneration") == meta.get("generation")
        for c in conditions_of(found)
    )  # fmt: skip


def untold(found: Object) -> bool:
    """Whether nothing was said of an order yet at the generation it has now, of which a deletion is one."""
    generation = _meta(found).get("generation")
    return not any(_ready(c) and c.get("observedGeneration") == generation for c in conditions_of(found))


def project_named(found: Object) -> str:
    """The project that an order for a role or a credential names."""
    spec = found.get("spec")
    ref = spec.get("projectRef") if isinstance(spec, dict) else None
    return str(ref.get("name") or "") if isinstance(ref, dict) else ""


def _ready(condition: dict[str, Any]) -> bool:
    return condition.get("type") == "Ready"


def _life(meta: dict[str, Any]) -> object:
    return [meta.get("uid"), bool(meta.get("deletionTimestamp"))]


def _meta(found: Object) -> dict[str, Any]:
    meta = found.get("metadata")
    return meta if isinstance(meta, dict) else {}


def conditions_of(found: Object) -> list[dict[str, Any]]:
    status = found.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
