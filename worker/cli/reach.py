"""What a command reaches, and as whom: the clusters by a person's own kubeconfig, Temporal by the programs' settings.

Nothing is connected before it is asked for, so a command needs only what it is about.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from temporalio.client import Client

from activities.cluster import Cluster
from activities.clusters import Clusters
from worker import temporal
from worker.cli import kubeconfig as kubeconfigs
from worker.settings import WorkerSettings, load

MANAGEMENT = "management"
"""What the management cluster is called where a target cluster would be named."""


class PeopleSettings(WorkerSettings):
    """The worker's settings: in its pod, the command line finds the same environment and no unknown word in it."""


def settings(**flags: str | None) -> PeopleSettings:
    """The environment, with the flags that were given above it. Raises BadSettings."""
    return load(PeopleSettings, **{name: value for name, value in flags.items() if value is not None})


class Reach:
    """Connections, made when they are asked for and closed at the end.

    ui  where the Temporal UI is, or empty
    """

    def __init__(self, settings: PeopleSettings, kubeconfig: Path | None, context: str | None, ui: str = "") -> None:
        self.settings = settings
        self.ui = ui.rstrip("/")
        self._kubeconfig, self._context = kubeconfig, context
        self._clusters: Clusters | None = None
        self._client: Client | None = None
        self._lock = asyncio.Lock()
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._held.aclose()

    async def clusters(self) -> Clusters:
        """Raises BadKubeconfig."""
        async with self._lock:
            if self._clusters is None:
                management = await kubeconfigs.connect(self._kubeconfig or self.settings.kubeconfig, self._context)
                self._clusters = Clusters(management, self.settings.clusters_namespace)
                self._held.push_async_callback(self._clusters.close)
            return self._clusters

    async def management(self) -> Cluster:
        return (await self.clusters()).management

    async def temporal(self) -> Client:
        """Raises TemporalUnusable when it does not answer or cannot serve us."""
        async with self._lock:
            if self._client is None:
                who = f"c5c3-orders@{socket.gethostname()}:{_user()}"
                self._client = await temporal.connect(self.settings, identity=who, wait=False)
            return self._client

    def link(self, workflow_id: str, run_id: str) -> str:
        """The page of a run in the Temporal UI; empty when nobody said where that is."""
        if not self.ui:
            return ""
        escaped = workflow_id.replace("/", "%2F").replace(":", "%3A").replace("@", "%40")
        return f"{self.ui}/namespaces/{self.settings.temporal_namespace}/workflows/{escaped}/{run_id}/history"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
