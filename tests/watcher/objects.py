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
