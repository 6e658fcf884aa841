"""Our own two programs, under the rights that `deploy/rbac` gives them and no others.

They are started by whoever wants orders served (the demonstration, the tests), not by a plain `up`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.local import kube
from deploy.local.part import Part, Process, Stack, external
from deploy.local.parts import temporal
from deploy.local.parts.operator import token_file

REPOSITORY = Path(__file__).parents[3]


class Program(Part):
    """`worker` or `watcher`."""

    needs = ("operator", "temporal", "crds")
    asked_for = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.port_names = (name,)

    def process(self, stack: Stack) -> Process:
        settings = {
            "C5C3_TEMPORAL_ADDRESS": temporal.address(stack),
            "C5C3_KUBECONFIG": str(kube.kubeconfig(stack, "management", "operator")),
            **self._identity(stack),
            "C5C3_HTTP_ADDRESS": f"127.0.0.1:{stack.ports[self.name]}",
            "PYTHONPATH": str(REPOSITORY),
        }
        if collector := external("OTLP"):
            settings["C5C3_OTLP_ENDPOINT"] = collector
        return Process((sys.executable, "-m", self.name), settings, REPOSITORY)

    def _identity(self, stack: Stack) -> dict[str, str]:
        """In a pod the kubelet lays the token down; the worker alone logs in to OpenBao with it."""
        return {"C5C3_SERVICE_ACCOUNT_TOKEN_FILE": str(token_file(stack))} if self.name == "worker" else {}

    async def ready(self, stack: Stack) -> bool:
        return await kube.answers(f"http://127.0.0.1:{stack.ports[self.name]}/readyz")


PARTS = (Program("worker"), Program("watcher"))
