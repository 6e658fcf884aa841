"""Which orders Temporal gives to this version of the worker, said in the log whenever that changes.

A versioned worker is ready before it gets any: whoever rolls it out waits for that, and then makes it current.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

_log = logging.getLogger("worker")

_LOOK_SECONDS = 30.0
_FIRST_LOOK_SECONDS = 3.0  # a deployment is there once its first worker has polled


async def follow(client: Callable[[], Client], deployment: str, build: str) -> None:
    """Looks for as long as the worker runs, by whatever client it has."""
    said, served = "", False
    pause = _FIRST_LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        try:
            level, words = await _routing(client(), deployment, build, served)
        except RPCError as error:
            if error.status in (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED):
                _log.warning("Temporal does not say which worker version is current: %s", error.message)
                return
            if error.status == RPCStatusCode.NOT_FOUND:
                continue
            level, words = logging.WARNING, "Temporal does not say which worker version is current just now"
        if words != said:
            _log.log(level, "%s", words)
            said, served = words, served or level == logging.INFO
        pause = _LOOK_SECONDS


async def _routing(client: Client, deployment: str, build: str, served: bool) -> tuple[int, str]:
    answer = await client.workflow_service.describe_worker_deployment(
        DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment),
        timeout=timedelta(seconds=10),
    )
    routing = answer.worker_deployment_info.routing_config
    mine = f"version {build} of worker deployment {deployment}"
    if routing.current_deployment_version.build_id == build:
        return logging.INFO, f"{mine} is current: it gets every order that no other one is ramping for"
    if routing.ramping_deployment_version.build_id == build:
        return logging.INFO, f"{mine} is ramping: it gets {routing.ramping_version_percentage:g} % of the orders"
    current = routing.current_deployment_version.build_id
    instead = f"version {current} is" if current else "workers without a version are"
    if served:
        return logging.INFO, f"{mine} gets no more orders: {instead} current"
    where = f"--address {client.service_client.config.target_host} --namespace {client.namespace}"
    return logging.WARNING, (
        f"{mine} gets no orders, for {instead} current: run"
        f" `temporal worker deployment set-current-version {where} --deployment-name {deployment} --build-id {build}`"
        " unless a worker controller does"
    )
