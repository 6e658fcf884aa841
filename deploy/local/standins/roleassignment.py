"""Stand-in for K-ORC's RoleAssignment, a kind that came after the K-ORC that is served here, over the real Keystone.

Conditions, finalizers and waits are as that controller was seen to write them: both conditions always and together, a
guard finalizer on whatever an assignment uses, and no `status.id`.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from typing import Any

import kopf

from deploy.local.standins.cloud import Cloud, Refused, Unreachable, Unusable
from deploy.local.standins.loop import GONE, Cluster, Key, Object, Rings, key_of

GROUP, VERSION = "openstack.k-orc.cloud", "v1alpha1"
API = f"{GROUP}/{VERSION}"
RESOURCE = f"{API}/roleassignments"
FINALIZER = f"{GROUP}/roleassignment"
# Field of the assignment -> kind, resource, and the field of status.resource that holds its id. In K-ORC's order.
REFS = {
    "roleRef": ("Role", f"{API}/roles", "roleID"),
    "userRef": ("User", f"{API}/users", "userID"),
    "groupRef": ("Group", f"{API}/groups", "groupID"),
    "projectRef": ("Project", f"{API}/projects", "projectID"),
    "domainRef": ("Domain", f"{API}/domains", "domainID"),
}
KINDS = {kind: resource for kind, resource, _ in REFS.values()} | {"Secret": "v1/secrets"}
DONE = ("True", "Success", "OpenStack resource is available", "False", "Success", "OpenStack resource is up to date")

cluster = Cluster()
# Both as the watches told last, as a controller's cache has them: a look asks the server for nothing.
known: dict[Key, Object] = {}
used: dict[tuple[str, str, str], Object] = {}
"""What assignments may use, by kind, namespace and name."""
clouds: dict[tuple[str, ...], Cloud] = {}


class Waiting(Exception):
    """Something is not there yet (a wait, not an error); `pause` is when to look again unasked."""

    def __init__(self, message: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


async def look(key: Key) -> float | None:
    """One pass over one assignment."""
    seen = known.get(key)
    if seen is None:
        return GONE
    if "deletionTimestamp" in seen["metadata"]:
        return await _delete(seen)
    progressing = _condition(seen, "Progressing")
    current = progressing.get("observedGeneration") == seen["metadata"]["generation"]
    if progressing.get("status") == "False" and current:
        return None
    ids: Object | None = None
    pause: float | None = None
    try:
        cloud = await _cloud(seen)
        seen = await _guarded(RESOURCE, seen)
        found = await _dependencies(seen)
        await _assign(seen, cloud, found)
        ids, verdict = found, DONE
    except Waiting as wait:
        verdict, pause = ("False", "Progressing", str(wait), "True", "Progressing", str(wait)), wait.pause
    except Unreachable as error:
        words = f"invalid configuration creating resource: {error}"
        verdict = ("False", "InvalidConfiguration", words, "False", "InvalidConfiguration", words)
    except (Unusable, Refused) as error:
        if isinstance(error, Refused) and error.status == 409:
            words = f"invalid configuration creating resource: {error}"
            verdict = ("False", "InvalidConfiguration", words, "False", "InvalidConfiguration", words)
        else:
            verdict = ("False", "TransientError", str(error), "True", "TransientError", str(error))
            pause = 2
    await _report(seen, verdict, ids)
    return pause


async def _assign(seen: Object, cloud: Cloud, ids: Object) -> None:
    if seen["spec"].get("managementPolicy", "managed") == "managed":
        await cloud.request("PUT", _path(ids), (204,))
    elif await cloud.request("HEAD", _path(ids), (204, 404)) == 404:
        raise Waiting("Waiting for OpenStack resource to be created externally", 15)


async def _delete(seen: Object) -> float | None:
    """Takes the assignment back. Its own objects cannot have gone before it: the guards see to that."""
    if FINALIZER not in seen["metadata"].get("finalizers", []):
        return None
    spec, ids = seen["spec"], (seen.get("status") or {}).get("resource") or {}
    keeps = spec.get("managedOptions", {}).get("onDelete") == "detach"
    if ids and spec.get("managementPolicy", "managed") == "managed" and not keeps:
        try:
            await (await _cloud(seen)).request("DELETE", _path(ids), (204, 404))
        except (Waiting, Unusable, Unreachable, Refused) as error:
            available = _condition(seen, "Available") or {
                "status": "Unknown",
                "reason": "TransientError",
                "message": "",
            }
            as_is = (available["status"], available["reason"], available["message"])
            reason = "Progressing" if isinstance(error, Waiting) else "TransientError"
            await _report(seen, (*as_is, "True", reason, str(error)), ids)
            return 2
    await cluster.drop_finalizer(RESOURCE, seen, FINALIZER)
    return None


async def _cloud(seen: Object) -> Cloud:
    """The client for the assignment's credentials, which are guarded like everything else it uses."""
    ref, namespace = seen["spec"]["cloudCredentialsRef"], seen["metadata"]["namespace"]
    secret = used.get(("Secret", namespace, ref["secretName"]))
    if secret is None:
        raise Waiting(f"Waiting for Secret/{ref['secretName']} to be created")
    await _guarded(KINDS["Secret"], secret)
    data = {name: base64.b64decode(value).decode() for name, value in (secret.get("data") or {}).items()}
    told = (data.get("clouds.yaml", ""), data.get("cacert", ""), ref["cloudName"])
    if told not in clouds:
        clouds[told] = Cloud(told[0], told[1] or None, told[2])
    await clouds[told].connect()
    return clouds[told]


async def _dependencies(seen: Object) -> Object:
    """The Keystone ids of what the assignment joins; waits for all of them at once, and guards those that are there."""
    ids, waits = {}, []
    namespace = seen["metadata"]["namespace"]
    for field, name in _references(seen):
        kind, resource, id_field = REFS[field]
        there = used.get((kind, namespace, name))
        if there is None:
            waits.append(f"Waiting for {kind}/{name} to be created")
            continue
        await _guarded(resource, there)
        id_ = (there.get("status") or {}).get("id")
        if id_ is None or _condition(there, "Available").get("status") != "True":
            waits.append(f"Waiting for {kind}/{name} to be ready")
        else:
            ids[id_field] = id_
    if waits:
        raise Waiting("\n".join(waits))
    return ids


async def _guarded(resource: str, seen: Object) -> Object:
    """The object with our finalizer on it; the cache has it before the watch tells."""
    live = await cluster.add_finalizer(resource, seen, FINALIZER)
    if live is None:
        return seen
    meta = live["metadata"]
    if resource == RESOURCE:
        known[meta["namespace"], meta["name"]] = live
    else:
        used[live["kind"], meta["namespace"], meta["name"]] = live
    return live


def _references(seen: Object) -> Iterator[tuple[str, str]]:
    spec = seen["spec"]
    joined = spec.get("resource") or (spec.get("import") or {}).get("filter") or {}
    return ((field, str(joined[field])) for field in REFS if field in joined)


def _path(ids: Object) -> str:
    scope = f"/projects/{ids['projectID']}" if "projectID" in ids else f"/domains/{ids['domainID']}"
    actor = f"/users/{ids['userID']}" if "userID" in ids else f"/groups/{ids['groupID']}"
    return f"{scope}{actor}/roles/{ids['roleID']}"


def _condition(seen: Object, type_: str) -> Object:
    conditions = (seen.get("status") or {}).get("conditions") or []
    return next((dict(c) for c in conditions if c["type"] == type_), {})


async def _report(seen: Object, verdict: tuple[str, ...], ids: Object | None) -> None:
    """Both conditions. Their time moves with any change of theirs, observedGeneration included, as K-ORC's does."""
    generation = seen["metadata"]["generation"]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = []
    for type_, (status, reason, message) in (("Available", verdict[:3]), ("Progressing", verdict[3:])):
        fresh = {"type": type_, "status": status, "reason": reason, "message": message}
        fresh["observedGeneration"] = generation
        old = _condition(seen, type_)
        since = old.pop("lastTransitionTime", now)
        wanted.append({**fresh, "lastTransitionTime": since if old == fresh else now})
    status_: Object = {"conditions": wanted} | ({"resource": ids} if ids else {})
    if any((seen.get("status") or {}).get(field) != value for field, value in status_.items()):
        meta = seen["metadata"]
        await cluster.patch(RESOURCE, meta["namespace"], meta["name"], {"status": status_}, "status")


rings = Rings(look)


async def release(key: Key) -> float | None:
    """Takes our guard off an object (kind/namespace, name) that is being deleted, once no assignment uses it.

    The server is asked who does: after a restart the watches tell of a used object before they tell of its users.
    """
    (kind, _, namespace), name = key[0].partition("/"), key[1]
    there = await cluster.get(KINDS[kind], namespace, name)
    if there is not None and "deletionTimestamp" in there["metadata"]:
        users = await cluster.items(RESOURCE, namespace)
        if not any((kind, name) in set(_uses(seen)) for seen in users):
            await cluster.drop_finalizer(KINDS[kind], there, FINALIZER)
    return GONE


guards = Rings(release)


@kopf.on.event(GROUP, VERSION, "roleassignments")
async def assignment_moved(body: kopf.Body, type: str | None, **_: Any) -> None:
    """Rings the assignment; when it is gone, what only it may still have held."""
    key = key_of(body)
    rings.ring(key)
    if type != "DELETED":
        known[key] = dict(body)
        return
    for kind, name in _uses(known.pop(key, dict(body))):
        guards.ring((f"{kind}/{key[0]}", name))


@kopf.on.event(GROUP, VERSION, "roles")
@kopf.on.event(GROUP, VERSION, "users")
@kopf.on.event(GROUP, VERSION, "groups")
@kopf.on.event(GROUP, VERSION, "projects")
@kopf.on.event(GROUP, VERSION, "domains")
@kopf.on.event("v1", "secrets")
async def used_moved(body: kopf.Body, type: str | None, **_: Any) -> None:
    """Rings every assignment that uses this object once more can be done with it, and lets a deleted one go that none
    uses any more."""
    (namespace, name), kind = key_of(body), str(body["kind"])
    before, now = used.pop((kind, namespace, name), None), None
    if type != "DELETED":
        now = used[kind, namespace, name] = dict(body)
    if _matters(before) != _matters(now):
        for other, seen in list(known.items()):
            if other[0] == namespace and (kind, name) in set(_uses(seen)):
                rings.ring(other)
    meta = body["metadata"]
    if type != "DELETED" and "deletionTimestamp" in meta and FINALIZER in meta.get("finalizers", []):
        guards.ring((f"{kind}/{namespace}", name))


def _matters(there: Object | None) -> tuple[Any, ...] | None:
    """What of a used object an assignment waits for."""
    if there is None:
        return None
    guarded = FINALIZER in there["metadata"].get("finalizers", [])
    return (
        guarded,
        (there.get("status") or {}).get("id"),
        _condition(there, "Available").get("status"),
        there.get("data"),
    )


def _uses(seen: Object) -> Iterator[tuple[str, str]]:
    for field, name in _references(seen):
        yield REFS[field][0], name
    yield "Secret", str(seen["spec"]["cloudCredentialsRef"]["secretName"])
