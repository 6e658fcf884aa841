"""Objects as API servers send them, and a doorbell that writes down who rang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from watcher.doorbell import NotTaken
from watcher.mapping import Plane
from workflows.scaffold.order import OrderRef

Object = dict[str, Any]


def ref(name: str = "reporting", namespace: str = "team-a", cluster: str = "") -> OrderRef:
    return OrderRef(kind="KeystoneProject", cluster=cluster, namespace=namespace, name=name)


def service(name: str = "images", namespace: str = "team-a") -> OrderRef:
    """A KeystoneService, which lives at home."""
    return OrderRef(kind="KeystoneService", cluster="", namespace=namespace, name=name)


def order(name: str = "reporting", namespace: str = "team-a", *, plane: str = "cp", **meta: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1,
                     "resourceVersion": "5", **meta},
        "spec": {"controlPlaneRef": {"name": plane, "namespace": "openstack"}},
    }  # fmt: skip


def ready(found: Object, status: str = "True", generation: int = 1) -> Object:
    condition = {"type": "Ready", "status": status, "reason": "R", "message": "", "observedGeneration": generation}
    return {**found, "status": {"conditions": [condition]}}


def child(name: str = "p-1-project-project", *, of: OrderRef | None = None, status: str = "", **meta: Any) -> Object:
    of = of or ref()
    labels = {"c5c3.io/keystoneproject-name": of.name, "c5c3.io/keystoneproject-namespace": of.namespace,
              "c5c3.io/keystoneproject-cluster": of.cluster}  # fmt: skip
    found: Object = {
        "metadata": {"name": name, "namespace": "openstack", "uid": "uid-c", "generation": 1, "resourceVersion": "7",
                     "labels": labels, **meta},
        "spec": {},
    }  # fmt: skip
    if status:
        condition = {"type": "Available", "status": status, "reason": "R", "message": "m", "observedGeneration": 1}
        found["status"] = {"conditions": [condition]}
    return found


def part(name: str, *, of: OrderRef | None = None, namespace: str = "openstack", **meta: Any) -> Object:
    """What a KeystoneService made and labelled; with `of=None` it names nobody."""
    labels = {"c5c3.io/keystoneservice-name": of.name, "c5c3.io/keystoneservice-namespace": of.namespace} if of else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": labels,
            **meta,
        }
    }


def says(found: Object, type_: str, status: str, **more: Any) -> Object:
    """The object with that one condition, at the generation that it has."""
    generation = found["metadata"].get("generation")
    condition = {"type": type_, "status": status, "reason": "R", "message": "m", "observedGeneration": generation}
    return {**found, "status": {"conditions": [condition], **more}}


def secret(
    name: str, *, of: OrderRef | None = None, namespace: str = "team-a", version: str = "7", **meta: Any
) -> Object:
    """A Secret as it is watched: metadata alone, and no generation."""
    found = part(name, of=of, namespace=namespace, resourceVersion=version, **meta)
    del found["metadata"]["generation"]
    return found


def owned(name: str, order: str = "images", **owner: Any) -> Object:
    """A delivery object beside its order, of which only the owner reference tells."""
    reference = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "name": order, "uid": "u",
                 "controller": True, **owner}  # fmt: skip
    return part(name, namespace="team-a", ownerReferences=[reference])


def plane(name: str = "cp", credential: str = "True", **meta: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "openstack", "uid": "uid-p", "generation": 1, **meta},
        "spec": {},
        "status": {"conditions": [{"type": "AdminCredentialReady", "status": credential}]},
    }


def naming(project: str, namespace: str = "team-a", **meta: Any) -> Object:
    """A KeystoneRoleAssignment or KeystoneApplicationCredential that names a project."""
    return {
        "metadata": {"name": f"on-{project}", "namespace": namespace, "uid": "uid-n", "generation": 1, **meta},
        "spec": {"projectRef": {"name": project}},
    }


class Recorder:
    """A doorbell. `refusing` makes it take nothing, `poison` not that one; `slow` is how long each ring takes."""

    def __init__(self) -> None:
        self.rings: list[tuple[float, OrderRef, bool]] = []
        self.tries = 0
        self.refusing: NotTaken | None = None
        self.poison: OrderRef | None = None
        self.slow = 0.0
        self.open: list[OrderRef] = []
        self.at_once = 0
        self.most_at_once = 0

    async def ring(self, ref: OrderRef, plane: Plane | None) -> str:
        start = plane is not None
        self.tries += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.slow)
            if self.refusing:
                raise self.refusing
            if ref == self.poison:
                raise NotTaken("Temporal answered INVALID_ARGUMENT", everybody=False)
            self.rings.append((time.monotonic(), ref, start))
            return "rung" if start else "signalled"
        finally:
            self.at_once -= 1

    async def open_runs(self, kind: str) -> AsyncIterator[OrderRef]:
        if self.refusing:
            raise self.refusing
        for found in self.open:
            if found.kind == kind:
                yield found

    @property
    def rung(self) -> list[OrderRef]:
        return [ref for _, ref, _ in self.rings]

    def started(self, ref: OrderRef) -> bool:
        return any(start for _, rung, start in self.rings if rung == ref)


async def until(what: Any, seconds: float = 30.0) -> None:
    """Waits until `what()` holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "did not happen in time"
        await asyncio.sleep(0.01)
