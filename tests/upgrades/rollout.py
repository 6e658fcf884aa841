"""A watcher and any number of workers as programs, on a task queue and a worker deployment of one test's own.

The product's own programs share theirs with every other test: one that made a version current there would take the
orders from all of them.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from activities.cluster import Object
from deploy.local import kube
from tests.conftest import temporal_program
from tests.product import Product
from tests.worker.program import Program, free_port
from tests.world import World
from workflows.keystoneproject import reasons
from workflows.scaffold.order import OrderRef


@dataclass
class Rollout(Product):
    """A world whose orders are served by these programs."""

    folder: Path
    queue: str = field(default_factory=lambda: f"rollout-{uuid.uuid4().hex[:8]}")
    settings: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)

    @property
    def deployment(self) -> str:
        """As the worker controller names one: by namespace and name."""
        return f"c5c3-system/{self.queue}"

    async def launch(self, module: str, **more: str) -> Program:
        folder = self.folder / f"{module}-{len(self.programs)}"
        folder.mkdir()
        program = Program(folder, {
            "C5C3_KUBECONFIG": str(kube.kubeconfig(self.stack, "management", "operator")),
            "C5C3_TEMPORAL_ADDRESS": self.client.service_client.config.target_host,
            "C5C3_TASK_QUEUE": self.queue,
            "C5C3_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
            **self.settings,
        })  # fmt: skip
        self.programs.append(program)
        await program.start(module, **more)
        await program.says(200)
        return program

    async def worker(self, build: str = "", release: str = "", **more: str) -> Program:
        """A worker that is ready. `build` versions it; `release` is what it has for KeystoneProjects."""
        if build:
            more |= {"TEMPORAL_DEPLOYMENT_NAME": self.deployment, "TEMPORAL_WORKER_BUILD_ID": build}
        return await self.launch("tests.upgrades.release" if release else "worker", RELEASE=release, **more)

    async def make_current(self, worker: Program) -> None:
        """Does what the worker's log says."""
        await worker.logs("set-current-version")
        told = next(each for each in worker.messages() if "set-current-version" in each)
        await self.temporal(*shlex.split(told.split("`")[1])[1:], "--yes")

    async def ramp(self, build: str, percentage: int) -> None:
        await self.temporal(
            "worker", "deployment", "set-ramping-version", "--deployment-name", self.deployment, "--build-id", build,
            "--percentage", str(percentage), "--yes", "--address", self.client.service_client.config.target_host,
        )  # fmt: skip

    async def temporal(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(temporal_program(), *arguments)
        assert await process.wait() == 0, arguments

    async def leave(self, worker: Program) -> None:
        """What Kubernetes does to a pod: it is told to end, and does."""
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0, worker.log()

    # -- what became of it ----------------------------------------------------------------------------------------

    async def becomes_ready(self, *refs: OrderRef, seconds: float = 90) -> list[Object]:
        return list(await asyncio.gather(*(self.reads(ref, reasons.PROVISIONED, seconds) for ref in refs)))

    async def recorded(self, ref: OrderRef) -> list[HistoryEvent]:
        """The history of the order's current run."""
        handle = self.client.get_workflow_handle(ref.workflow_id)
        return [event async for event in handle.fetch_history_events()]

    async def served_by(self, ref: OrderRef) -> list[str]:
        """Which build made each decision of the current run, in order."""
        return [
            event.workflow_task_completed_event_attributes.deployment_version.build_id
            for event in await self.recorded(ref)
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]

    async def patched(self, ref: OrderRef) -> bool:
        """Whether the current run has taken the later release's way."""
        return any(event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED for event in await self.recorded(ref))

    async def failures(self) -> list[str]:
        """What every failed run of this test's orders failed with."""
        query = f'OrderNamespace = "{self.world.order_ns}" AND ExecutionStatus = "Failed"'
        failed = []
        async for run in self.client.list_workflows(query):
            handle = self.client.get_workflow_handle(run.id, run_id=run.run_id)
            last = [event async for event in handle.fetch_history_events()][-1]
            failed.append(last.workflow_execution_failed_event_attributes.failure.message)
        return failed


@asynccontextmanager
async def rolling(world: World, client: Client, folder: Path, **settings: str) -> AsyncIterator[Rollout]:
    """With its watcher up."""
    rollout = Rollout(world, client, folder, settings=settings)
    try:
        await rollout.launch("watcher", C5C3_LEADER_ELECTION="false")
        yield rollout
    finally:
        for program in rollout.programs:
            await program.kill()
