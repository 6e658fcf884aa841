"""Kubernetes' controllers without which objects do not behave: garbage collector, namespaces, ServiceAccounts.

A small program of ours over their exported packages (`programs/kubernetes/controllers`), one for each cluster; the
whole kube-controller-manager would do the same for three times the memory.
"""

from __future__ import annotations

from pathlib import Path

from deploy.local import kube, pki, programs
from deploy.local.part import Part, Process, Stack, external
from deploy.local.parts.apiserver import SETTING


class Controllers(Part):
    """One cluster's controllers. A cluster that exists already has its own."""

    def __init__(self, cluster: str) -> None:
        self.cluster, self.name, self.needs = cluster, f"controllers-{cluster}", (cluster,)

    async def prepare(self, stack: Stack) -> None:
        if not external(SETTING[self.cluster]):
            await programs.build(stack.home, "controllers")
            pki.client_kubeconfig(stack, self.cluster, "controllers", self._config(stack), groups=("system:masters",))

    def process(self, stack: Stack) -> Process | None:
        if external(SETTING[self.cluster]):
            return None
        return Process((str(programs.path(stack.home, "controllers")), f"--kubeconfig={self._config(stack)}"))

    async def ready(self, stack: Stack) -> bool:
        """They have no probe of their own; the first thing they make is this ServiceAccount."""
        if external(SETTING[self.cluster]):
            return True
        url = f"{pki.server(stack, self.cluster)}/api/v1/namespaces/default/serviceaccounts/default"
        return await kube.answers(url, pki.admin_context(stack, self.cluster))

    def _config(self, stack: Stack) -> Path:
        return kube.kubeconfig(stack, self.cluster, "controllers")


PARTS = (Controllers("management"), Controllers("target"))
