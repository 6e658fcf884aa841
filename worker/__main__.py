"""`python -m worker`: checks, then serves orders until it is told to stop.

It starts in the order in which a person would want to know what is wrong, answers /healthz from the first moment, and
on SIGTERM lets running steps finish. It leaves by `os._exit`: Temporal's core may abort the interpreter on its way out.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.clusters import BadKubeconfig, Clusters, connect_management
from activities.errors import ClusterError
from activities.openbao import OpenBao
from worker import assembly, health, telemetry, temporal, versions
from worker.checks import CannotStart, check_cluster
from worker.settings import BadSettings, WorkerSettings, load

_log = logging.getLogger("worker")
T = TypeVar("T")

_AFTER_GRACE_SECONDS = 10
"""How long a cancelled step, and the farewell to Temporal, may take once the grace is over."""


class _Stopped(Exception):
    """Told to stop before the worker ran."""


def main() -> None:
    """The program. Ends the process: 0 when told to stop, 1 with a sentence when it could not go on."""
    try:
        settings = load(WorkerSettings)
    except BadSettings as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    code = asyncio.run(_run(settings))
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


async def _run(settings: WorkerSettings) -> int:
    told = telemetry.start(settings, "c5c3-worker")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with told.exporter:
            await _serve(settings, told, stop)
    except _Stopped:
        _log.info("told to stop before the start was complete")
    except (CannotStart, BadKubeconfig, ClusterError, temporal.TemporalUnusable) as error:
        _log.critical("%s", error)
        return 1
    except RPCError as error:
        _log.critical("Temporal at %s stopped answering: %s", settings.temporal_address, error.message)
        return 1
    except Exception:
        _log.critical("the worker failed", exc_info=True)
        return 1
    finally:
        await asyncio.to_thread(told.shutdown)
    return 0


async def _serve(settings: WorkerSettings, told: telemetry.Telemetry, stop: asyncio.Event) -> None:
    identity = f"worker@{socket.gethostname()}:{os.getpid()}"
    readiness = _Readiness()
    async with AsyncExitStack() as held:
        try:
            runner = await health.serve(settings.http_bind, readiness, told.prometheus_text)
        except OSError as error:
            raise CannotStart(f"cannot listen on {settings.http_address} ({error}): set C5C3_HTTP_ADDRESS") from None
        held.push_async_callback(runner.cleanup)

        readiness.says("looking at the management cluster")
        clusters = Clusters(await connect_management(settings.kubeconfig), settings.clusters_namespace)
        held.push_async_callback(clusters.close)
        await _unless(stop, check_cluster(clusters.management, settings))

        readiness.says(f"waiting for Temporal at {settings.temporal_address}")
        client = await _unless(stop, temporal.connect(settings, identity=identity, runtime=told.runtime))
        await _unless(stop, temporal.check_search_attributes(client))

        openbao = OpenBao(settings.service_account_token_file)
        worker = assembly.build(client, settings, assembly.WORKFLOWS, assembly.activities_over(clusters, openbao))
        readiness.asks(health.Polling(worker, identity).why_not_ready)
        # What is loaded by now stays for good. Each full collection went through it all, and held every step up.
        gc.collect()
        gc.freeze()
        for watching in _watching(settings, client, worker):
            await held.enter_async_context(temporal.beside(watching))
        _log.info("serving orders from task queue %s as %s", settings.task_queue, identity)
        await _until_told(worker, stop, settings.graceful_shutdown_seconds)


def _watching(settings: WorkerSettings, client: Client, worker: Worker) -> list[Coroutine[Any, Any, None]]:
    """What is looked after while the worker serves."""

    def use(renewed: Client) -> None:
        worker.client = renewed

    watching = [temporal.follow_credentials(settings, client, use)]
    if settings.deployment_name and settings.build_id:
        watching.append(versions.follow(lambda: worker.client, settings.deployment_name, settings.build_id))
    return watching


async def _until_told(worker: Worker, stop: asyncio.Event, grace: int) -> None:
    """Runs the worker until it fails or is told to stop; then running steps finish, within the grace."""
    running = asyncio.create_task(worker.run())
    told = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            _log.info("told to stop: running steps have %d s to finish", grace)
            _leave_at_last(grace + _AFTER_GRACE_SECONDS)
            await worker.shutdown()
        await running
        _log.info("stopped, no step is running")
    finally:
        told.cancel()


def _leave_at_last(seconds: float) -> None:
    """A thread that ends the process in any case: a step that ignores its cancellation would hold it forever."""

    def leave() -> None:
        _log.critical("steps did not end within %g s: leaving without them, Temporal starts them again", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


async def _unless(stop: asyncio.Event, doing: Coroutine[Any, Any, T]) -> T:
    """What `doing` answers, unless we are told to stop meanwhile."""
    task = asyncio.create_task(doing)
    told = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise _Stopped
    finally:
        told.cancel()
        task.cancel()


class _Readiness:
    """Why the worker is not ready: the start's current step, afterwards whatever the proof of polling says."""

    def __init__(self) -> None:
        self._step = "starting"
        self._ask: health.Why | None = None

    def says(self, step: str) -> None:
        self._step = step

    def asks(self, ask: health.Why) -> None:
        self._ask = ask

    async def __call__(self) -> str:
        return await self._ask() if self._ask else self._step


if __name__ == "__main__":
    main()
