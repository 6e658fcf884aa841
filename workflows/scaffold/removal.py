"""Taking an order's children back: what may be deleted now, in which order, and what is waited for.

K-ORC deletes by name what it never got an id of. So a managed child without one is asked about first, by a probe made
of the child itself, and let go of when a resource of its name may be a stranger's (contracts 14.2). So is what was
pushed to a store that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.meta import Model, find
from workflows.scaffold import korc
from workflows.scaffold.child import Found, Seen, Standing, the, write
from workflows.scaffold.gated import Gated, ask
from workflows.scaffold.ownership import Marks
from workflows.scaffold.verdict import Act, Write

CREATE_GRACE = timedelta(seconds=30)
"""How long a managed child may be without an id because K-ORC is creating its resource at this moment."""

STORE_GRACE = timedelta(seconds=30)
"""How long a store may be missing that something has to be taken back from: its owner may make it anew."""

_IDENTITY = {"Project": ("name", "domainRef"), "User": ("name", "domainRef"), "Service": ("type", "name")}
"""The kinds that K-ORC takes over and deletes by name, and by which fields it looks them up (contracts 6.3)."""

PUSHED = "PushSecret"
_NOT_KORCS = {
    PUSHED: "External Secrets",
    "ExternalSecret": "External Secrets",
    "VaultDynamicSecret": "External Secrets",
    "Database": "mariadb-operator",
    "Secret": "",
}
"""Whose words are on an object that is not K-ORC's; nobody's on a Secret."""


class Removing(Model):
    """What to do now, and what is left, in words; nothing left means that all is gone.

    stays  K-ORC may be done within seconds, so a step that has just written waits for it
    """

    do: tuple[Write, ...] = ()
    left: tuple[str, ...] = ()
    stays: bool = False


def judge_removal(
    kinds: Sequence[str],
    marks: Marks,
    plane: ControlPlane | None,
    seen: Seen,
    keep: Callable[[str], bool] = lambda _: False,
) -> Removing:
    """What may be deleted of the order's children of these kinds, which come dependents first.

    plane  None when it is gone: nobody can be asked then, so what has no id is let go of
    keep   whether a child of this name stays
    """
    do: list[Write] = []
    left: list[str] = []
    asked: set[str] = set()
    for kind, child in _ours(kinds, marks, seen, keep):
        body = _body(kind, child)
        if child.deleting:
            do += [write(Act.DETACH, body)] if _stranded(kind, child, seen.now) else []
            left.append(_to_be_gone(body, child))
            continue
        if child.metadata.name in asked:
            continue  # the probe that the managed child's removal is decided by
        found = _may_go(kind, child, body, marks, plane, seen)
        if found.ready:
            do.append(write(Act.DELETE, body))
            left.append(_to_be_gone(body, child))
        else:
            asked.add(probe_name(child))
            do += found.do
            left.append(f"{the(body)} to be deleted: {found.message}")
    # Without the plane K-ORC has no credentials and answers nothing; External Secrets may have its store yet.
    answers = [each for each in left if plane is not None or each.startswith(PUSHED)]
    return Removing(do=tuple(do), left=tuple(left), stays=bool(answers))


def judge_pushed(marks: Marks, seen: Seen) -> Removing:
    """Lets go of what External Secrets was to take back and has not, when nobody will come to see to it later."""
    held = [child for kind, child in _ours((PUSHED,), marks, seen, lambda _: False) if child.deleting]
    bound = [_body(PUSHED, child) for child in held if child.spec.get("deletionPolicy") == "Delete"]
    return Removing(do=tuple(write(Act.DETACH, body) for body in bound), left=tuple(the(body) for body in bound))


def _stranded(kind: str, child: KorcObject, now: datetime) -> bool:
    """Whether External Secrets can never take back what it pushed: the store is gone, with its namespace most likely.

    In a namespace that is being deleted nobody can make it anew, and it would stay for ever (field report D4).
    """
    if kind != PUSHED or child.spec.get("deletionPolicy") != "Delete":
        return False
    since, ready = child.metadata.deletion_timestamp, find(child.status.conditions, "Ready")
    gone = ready is not None and all(words in ready.message for words in ("could not get", "Store", "not found"))
    return gone and since is not None and now - since > STORE_GRACE


def _to_be_gone(body: dict[str, Any], child: KorcObject) -> str:
    """Whose turn it is, with the last words on it: K-ORC's, or of whoever holds the object."""
    if body["kind"] not in _NOT_KORCS:
        return f"{the(body)} to be gone (K-ORC: {korc.words(child)})"
    ready = find(child.status.conditions, "Ready")
    whose = _NOT_KORCS[body["kind"]]
    words = f"; {whose}: {ready.message}" if ready is not None and ready.status != "True" else ""
    return f"{the(body)} to be gone (held by {', '.join(child.metadata.finalizers) or 'nobody'}{words})"


def probe_name(child: KorcObject) -> str:
    return f"{child.metadata.name}-probe"


def _ours(kinds: Sequence[str], marks: Marks, seen: Seen, keep: Callable[[str], bool]) -> list[tuple[str, KorcObject]]:
    """The order's children that do not stay: by kind, and of one kind the managed before the others."""
    ours: list[tuple[str, KorcObject]] = []
    for each, child in seen.children.items():
        kind = each.partition("/")[0]
        if kind in kinds and not keep(child.metadata.name) and marks.sweeps(kind, child.metadata):
            ours.append((kind, child))
    return sorted(ours, key=lambda each: (kinds.index(each[0]), _unmanaged(each[1]), each[1].metadata.name))


def _may_go(
    kind: str, child: KorcObject, body: dict[str, Any], marks: Marks, plane: ControlPlane | None, seen: Seen
) -> Found:
    """READY when deleting it touches nothing but what is known to be the order's."""
    if kind not in _IDENTITY or _harmless(kind, child):
        return Found(standing=Standing.READY)
    if plane is None:
        return _let_go(body)
    progressing = find(child.status.conditions, "Progressing")
    if korc.terminal(child) is None and (progressing is None or progressing.reason != "TransientError"):
        if progressing is not None and progressing.message.startswith("Waiting for "):
            message = f"{the(body)} never reached Keystone."
            return Found(standing=Standing.WAITING, message=message, do=(write(Act.DETACH, body),))
        made = child.metadata.creation_timestamp
        if made is None or seen.now - made < CREATE_GRACE:
            message = f"{the(body)} is being created at this moment: {korc.words(child)}"
            return Found(standing=Standing.WAITING, message=message, child=child)
    found = ask(_gate(kind, child, body, marks, plane), child, seen, Found(standing=Standing.READY))
    return _let_go(body) if found.standing is Standing.COLLISION else found


def _harmless(kind: str, child: KorcObject) -> bool:
    """Its deletion touches nothing but what it is known to own."""
    detached = (child.spec.get("managedOptions") or {}).get("onDelete") == "detach"
    reached = korc.finalizer(kind) in child.metadata.finalizers
    return bool(child.status.id) or detached or _unmanaged(child) or not reached


def _unmanaged(child: KorcObject) -> bool:
    return child.spec.get("managementPolicy") == "unmanaged"


def _let_go(body: dict[str, Any]) -> Found:
    message = f"{the(body)} never got an id; a resource of its name in Keystone may be a stranger's and is left alone."
    return Found(standing=Standing.WAITING, message=message, do=(write(Act.DETACH, body),))


def _gate(kind: str, child: KorcObject, body: dict[str, Any], marks: Marks, plane: ControlPlane) -> Gated:
    """The probe for what the child is to be, made of the child: the order may not declare it any more."""
    resource = child.spec.get("resource") or {}
    probe = {
        "kind": kind,
        "metadata": {**body["metadata"], "name": probe_name(child)},
        "spec": {
            "cloudCredentialsRef": plane.cred_ref,
            "managementPolicy": "unmanaged",
            "import": {"filter": {field: resource[field] for field in _IDENTITY[kind] if field in resource}},
        },
    }
    named = f"{kind.lower()} {resource.get('name', '')!r}"
    return Gated(child=body, probe=probe, claim="", marks=marks, named=named, where="Keystone", remedy="")


def _body(kind: str, child: KorcObject) -> dict[str, Any]:
    meta = child.metadata
    marks = {key: value for key, value in meta.labels.items() if key.startswith("c5c3.io/")}
    return {"kind": kind, "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": marks}}
