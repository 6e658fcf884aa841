"""`python -m watcher`: settings, checks, then the active replica's work or waiting for it, until SIGTERM.

What can be foreseen ends as one sentence on standard error and exit code 1; a server that is down is waited for. The
process ends by `os._exit`: the interpreter's own way out has been seen to abort in the Temporal SDK's threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import uuid

from temporalio.client import Client
from temporalio.service import RPCError

from activities.clusters import BadKubeconfig, connect_management
from watcher import metrics
from watcher.checks import CannotStart, check_cluster
from watcher.doorbell import TemporalDoorbell
from watcher.engine import Engine
from watcher.health import Health, serve
from watcher.leader import Leader
from watcher.settings import WatcherSettings
from worker.settings import BadSettings, load
from worker.telemetry import Telemetry, start
from worker.temporal import TemporalUnusable, beside, check_search_attributes, connect, follow_credentials

_log = logging.getLogger("watcher")

_END_SECONDS = 4.0


async def main(settings: WatcherSettings, telemetry: Telemetry) -> None:
    """Runs until SIGTERM or SIGINT. Raises one of the foreseen errors when it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    health = Health()
    metrics.expose(health.sight)
    async with telemetry.exporter:
        server = await serve(settings.http_bind, health, telemetry.prometheus_text)
        work = asyncio.ensure_future(_work(settings, telemetry, health))
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        health.phase = "stopping"
        waiting.cancel()
        if work.done():
            work.result()
            return
        _log.info("stopping")
        work.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await asyncio.wait([work])
                await server.cleanup()


async def _work(settings: WatcherSettings, telemetry: Telemetry, health: Health) -> None:
    identity = f"watcher@{socket.gethostname()}#{uuid.uuid4().hex[:8]}"
    management = await connect_management(settings.kubeconfig)
    health.phase = "waiting for the management cluster"
    await check_cluster(management, settings)
    health.phase = "waiting for Temporal"
    client = await connect(settings, identity=identity, runtime=telemetry.runtime)
    await _check_search_attributes(client)
    # What is loaded by now stays for good. Each full collection went through it all, and held every ring up.
    gc.collect()
    gc.freeze()

    doorbell = TemporalDoorbell(client, settings.task_queue)

    async def lead() -> None:
        engine = Engine(management, doorbell, settings.clusters_namespace, rates=settings.rates)
        health.engine = engine
        try:
            await engine.run()
        finally:
            health.engine = None

    async with beside(follow_credentials(settings, client, doorbell.use)):
        if not settings.leader_election:
            await lead()
            return
        health.leader = leader = Leader(management, settings.operator_namespace, identity)
        try:
            await leader.run(lead)
        finally:
            await leader.release()


async def _check_search_attributes(client: Client) -> None:
    while True:
        try:
            await check_search_attributes(client)
            return
        except RPCError as error:
            _log.warning("waiting for Temporal: %s", error.message)
            await asyncio.sleep(5)


def run() -> int:
    """The program; answers its exit code."""
    try:
        settings = load(WatcherSettings)
    except BadSettings as error:
        print(error, file=sys.stderr)
        return 1
    telemetry = start(settings, "c5c3-watcher")
    try:
        asyncio.run(main(settings, telemetry))
    except (BadKubeconfig, CannotStart, TemporalUnusable) as error:
        _log.error("cannot start: %s", error)
        return 1
    except OSError as error:
        _log.error("cannot serve on %s: %s; set C5C3_HTTP_ADDRESS", settings.http_address, error.strerror or error)
        return 1
    except Exception:
        _log.exception("the watcher failed; this is a defect")
        return 1
    finally:
        telemetry.shutdown()
    return 0


if __name__ == "__main__":
    code = run()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
