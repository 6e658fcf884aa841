"""A made-up world under the real shared steps: clusters as dictionaries, and a kind whose findings a test dictates.

`Orders` (admit, examine, report, release, settle) is the product's own. Of `KeystoneProject` only its two steps that
talk to K-ORC are replaced: what they find is `World.find` and `World.left`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast, get_type_hints

from temporalio import activity

from activities.cluster import CONTROL_PLANE, KEYSTONE_PROJECT, Cluster, Kind, Object
from activities.clusters import Clusters
from activities.errors import ClusterError, Conflict, at_boundary
from activities.keystoneproject import KeystoneProjects
from activities.orders import KindSteps, Looked, Orders
from activities.pen import Pen
from workflows.keystoneproject import children, reasons
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Removal, Task
from workflows.scaffold.verdict import Decision, Outcome, Verdict

PLANE_KEY = "openstack/cp"

Hook = Callable[[], Awaitable[None]]
Finding = TypeVar("Finding")


class FakeCluster:
    """Objects by kind, namespace and name, with resource versions that make stale writes fail."""

    def __init__(self) -> None:
        self._version = 100
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.reads: dict[str, int] = {}
        self.writes: list[str] = []
        self.refuse: dict[str, ClusterError] = {}
        """What a request answers instead, by `get controlplanes`, `patch keystoneprojects` and so on."""

    def put(self, kind: Kind, body: Object) -> Object:
        self._version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        self.objects[kind.plural, body["metadata"]["namespace"], body["metadata"]["name"]] = body
        return body

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._say("get", kind)
        self.reads[kind.plural] = self.reads.get(kind.plural, 0) + 1
        return self.objects.get((kind.plural, namespace, name))

    async def update(self, kind: Kind, body: Object) -> Object:
        live = self._check("update", kind, body["metadata"]["namespace"], body["metadata"]["name"], body)
        if live["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            del self.objects[kind.plural, body["metadata"]["namespace"], body["metadata"]["name"]]
            return body
        return self.put(kind, body)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, *, sub: str | None = None) -> Object:
        live = self._check("patch", kind, namespace, name, body)
        assert sub == "status", "nothing but the status of an order is patched here"
        return self.put(kind, {**live, "status": _merged(live.get("status", {}), body["status"])})

    def _check(self, verb: str, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        self._say(verb, kind)
        live = self.objects.get((kind.plural, namespace, name))
        if live is None:
            raise ClusterError(f"{verb} {name}", 404, "NotFound", "it is gone")
        if any(body["metadata"].get(key, live["metadata"][key]) != live["metadata"][key] for key in _PRECONDITIONS):
            raise Conflict(f"{verb} {name}", 409, "Conflict", "it has changed")
        self.writes.append(f"{verb} {kind.plural}")
        return live

    def _say(self, verb: str, kind: Kind) -> None:
        if (refusal := self.refuse.get(f"{verb} {kind.plural}")) is not None:
            raise refusal


def _merged(live: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    kept = {key: value for key, value in live.items() if key not in patch} if isinstance(live, Mapping) else {}
    old = live if isinstance(live, Mapping) else {}
    return kept | {key: _merged(old.get(key), value) for key, value in patch.items() if value is not None}


_PRECONDITIONS = ("uid", "resourceVersion")


class World:
    """One order and everything around it. A test changes the attributes; the workflow sees what they say next."""

    order_kind: ClassVar[Kind] = KEYSTONE_PROJECT
    finalizer: ClassVar[str] = children.FINALIZER
    steps: ClassVar[tuple[str, ...]] = ("provision_project", "remove_project")
    """The kind's own, by name."""

    def __init__(self, name: str, *, cluster: str = "") -> None:
        self.ref = OrderRef(kind=self.order_kind.kind, cluster=cluster, namespace="team-a", name=name)
        self.management = FakeCluster()
        self.home = FakeCluster() if cluster else self.management
        self.find: Decision | Exception = provisioned(name)
        self.remove: Removal | Exception = Removal()
        self.hold: Mapping[str, Hook] = {}
        """What happens inside a step when its work is done, before it answers, by the step's name."""
        self.provision: Callable[[Task], Awaitable[Outcome]] | None = None
        self.take_down: Callable[[Task], Awaitable[Removal]] | None = None
        """What the kind's two steps do instead of answering `find` and `remove`."""
        self.calls: list[str] = []
        self.running: set[str] = set()
        self.overlaps: list[tuple[str, ...]] = []
        """Steps that ran at the same time; a look, which only reads, may."""
        self.looks = 0
        self.at_rest = False
        """Whether a look of `admit` is enough for an order that was Ready; without it every pass runs the steps."""
        self.reports: list[dict[str, Any]] = []
        self.plane()
        self.order()

    # -- what a test changes ----------------------------------------------------------------------------------

    gated_by: ClassVar[str] = "AdminCredentialReady"
    """The plane's condition that lets the kind's orders through."""

    def plane(self, *, assigned: bool = True, ready: bool = True, annotations: Mapping[str, str] | None = None) -> None:
        condition = {"type": self.gated_by, "status": str(ready), "message": "m" * 1000}
        namespace, _, name = PLANE_KEY.partition("/")
        meta = {"name": name, "namespace": namespace, "uid": "plane", "annotations": annotations or {}}
        body = {"metadata": meta, "spec": self.plane_spec(assigned), "status": {"conditions": [condition]}}
        self.management.put(CONTROL_PLANE, body)

    def plane_spec(self, assigned: bool) -> dict[str, Any]:
        """What the plane says of the order's namespace."""
        cluster = {"targetClusterRef": {"name": self.ref.cluster}} if self.ref.cluster else {}
        return {"namespaceAssignments": [{"namespace": self.ref.namespace, **cluster}] if assigned else []}

    def order(
        self,
        *,
        uid: str = "uid-1",
        finalized: bool = True,
        plane: str = "cp",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        finalizers = [self.finalizer] if finalized else []
        meta = {"name": self.ref.name, "namespace": self.ref.namespace, "uid": uid, "generation": 1}
        spec = {"controlPlaneRef": {"namespace": "openstack", "name": plane}, **self.declared()}
        self.home.put(
            self.order_kind,
            {"metadata": {**meta, "finalizers": finalizers, "annotations": annotations or {}}, "spec": spec},
        )

    def declared(self) -> dict[str, Any]:
        """What the order's spec says beside its plane."""
        return {}

    def touch(self, **metadata: Any) -> None:
        """Changes the order's metadata as another writer would."""
        live = self.live
        assert live is not None
        self.home.put(self.order_kind, {**live, "metadata": {**live["metadata"], **metadata}})

    def delete(self) -> None:
        """What `kubectl delete` does to it."""
        live = self.live
        assert live is not None
        if live["metadata"]["finalizers"]:
            self.touch(deletionTimestamp="2026-01-01T00:00:00Z")
        else:
            self.vanish()

    def vanish(self) -> None:
        del self.home.objects[self.order_kind.plural, self.ref.namespace, self.ref.name]

    def provisioned(self) -> Decision:
        return provisioned(self.ref.name)

    @staticmethod
    def left(*words: str) -> Removal:
        return Removal(left=words)

    # -- what a test looks at ---------------------------------------------------------------------------------

    @property
    def live(self) -> Object | None:
        return self.home.objects.get((self.order_kind.plural, self.ref.namespace, self.ref.name))

    def condition(self, type_: str) -> dict[str, Any]:
        conditions = (self.live or {}).get("status", {}).get("conditions", [])
        found: dict[str, Any] = next((each for each in conditions if each["type"] == type_), {})
        return found

    def count(self, step: str) -> int:
        return self.calls.count(step)

    # -- what the worker runs ---------------------------------------------------------------------------------

    def kind(self) -> KindSteps:
        """The product's kind, with the steps that leave this process replaced."""
        return FakeProject(self)

    def activities(self) -> list[Callable[..., Any]]:
        kind = self.kind()
        orders = Orders(cast(Clusters, FakeClusters(self)), {self.order_kind.kind: kind})
        shared = (orders.admit, orders.examine, orders.report, orders.release, orders.settle)
        return [self._watched(step) for step in (*shared, *(getattr(kind, name) for name in self.steps))]

    def _watched(self, step: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """The step, noted when it begins, with the test's hook before its answer."""
        name = step.__name__

        async def watched(argument: Any) -> Any:
            self.calls.append(name)
            if name == "settle":
                return await self._held(name, step(argument))
            self.running.add(name)
            if len(self.running) > 1:
                self.overlaps.append(tuple(self.running))
            try:
                return await self._held(name, step(argument))
            finally:
                self.running.discard(name)

        watched.__annotations__ = {"argument": _argument(step), "return": _result(step)}
        return activity.defn(name=name)(watched)

    async def _held(self, name: str, step: Awaitable[Any]) -> Any:
        try:
            return await step
        finally:
            if (hook := self.hold.get(name)) is not None:
                await hook()


class FakeClusters:
    def __init__(self, world: World) -> None:
        self._world = world
        self.management = cast(Cluster, world.management)

    async def get(self, name: str) -> Cluster:
        assert name == self._world.ref.cluster
        return cast(Cluster, self._world.home)


class Dictated:
    """What the made-up steps of every kind do. Gates, conditions and finalizers are the product's kind's own."""

    _world: World

    def looked(self, outcome: Outcome, *, due: bool = False) -> Looked:
        """`admit` looks at an order that was Ready; that it is at rest is the test's to say."""
        if activity.info().activity_type == "admit":
            return Looked(outcome, due=not self._world.at_rest)
        self._world.looks += 1
        return Looked(outcome, due=due)

    async def look_removal(self, task: Task) -> Removal:
        self._world.looks += 1
        return raised(self._world.remove)


class FakeProject(Dictated, KeystoneProjects):
    """KeystoneProjects that find what the world says."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def provision_project(self, task: Task) -> Outcome:
        with at_boundary():
            return await self._world.provision(task) if self._world.provision else raised(self._world.find).outcome

    async def provide(self, task: Task, pen: Pen) -> Outcome:
        """The same, from within the `admit` of a new order."""
        return await self.provision_project(task)

    async def remove_project(self, task: Task) -> Removal:
        with at_boundary():
            return await self._world.take_down(task) if self._world.take_down else raised(self._world.remove)

    async def look(self, task: Task) -> Looked:
        decision = raised(self._world.find)
        return self.looked(decision.outcome, due=bool(decision.do))


def raised(finding: Finding | Exception) -> Finding:
    """What a test dictates: an answer, or what it fails with."""
    if isinstance(finding, Exception):
        raise finding
    return finding


def found(finding: Finding | Exception) -> Finding:
    """The same, from within a step."""
    with at_boundary():
        return raised(finding)


def provisioned(name: str) -> Decision:
    verdict = Verdict(type=reasons.PROJECT_READY, status=True, reason=reasons.PROVISIONED, message=f"{name} exists.")
    return Decision(verdict=verdict, fields={"projectID": "id-1", "projectName": name, "domainName": "Default"})


def waiting(message: str, *, reason: str = reasons.WAITING, again: float | None = 10.0) -> Decision:
    return Decision(
        verdict=Verdict(type=reasons.PROJECT_READY, status=False, reason=reason, message=message, again=again)
    )


class Stop:
    """A place inside a step where the workflow stands until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._go_on = asyncio.Event()

    async def __call__(self) -> None:
        self._reached.set()
        await self._go_on.wait()

    async def reached(self) -> None:
        await asyncio.wait_for(self._reached.wait(), 30)

    def go_on(self) -> None:
        self._go_on.set()


def _argument(step: Callable[..., Any]) -> Any:
    hints = _hints(step)
    return next(kind for name, kind in hints.items() if name != "return")


def _result(step: Callable[..., Any]) -> Any:
    return _hints(step)["return"]


def _hints(step: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(step)
