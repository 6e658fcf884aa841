"""The two stand-ins as parts: K-ORC's RoleAssignment and mariadb-operator's Database, each a process under kopf.

They are apart from the parts they stand in for, so that a cluster that has the real controller leaves just them out.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from deploy.local import kube
from deploy.local.part import Part, Process, Stack

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "deploy" / "local" / "standins"


class StandIn(Part):
    """One module below `standins/`, with the rights of an admin."""

    later = True

    def __init__(self, module: str, needs: tuple[str, ...]) -> None:
        self.module, self.name, self.needs = module, f"standin-{module}", needs
        self.port_names = (self.name,)

    async def configure(self, stack: Stack) -> None:
        """A user of its own, so that the API server's audit log tells it from everybody else."""
        await kube.grant(stack, "management", self.name)

    def process(self, stack: Stack) -> Process:
        """kopf answers on the port once it watches."""
        argv = (
            *(sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "--quiet"),
            f"--liveness=http://127.0.0.1:{stack.ports[self.name]}/healthz",
            f"--module=deploy.local.standins.{self.module}",
        )
        env = {
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "KUBECONFIG": str(kube.kubeconfig(stack, "management", self.name)),
            "STANDIN_MARIADB_PORT": str(stack.ports["mariadb"]),
        }
        told = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.glob("*.py"))))
        return Process(argv, env, version=told.hexdigest())

    async def ready(self, stack: Stack) -> bool:
        """Whether kopf runs."""
        return await kube.answers(f"http://127.0.0.1:{stack.ports[self.name]}/healthz")


PARTS = (StandIn("roleassignment", ("crds", "keystone")), StandIn("database", ("crds", "mariadb")))
