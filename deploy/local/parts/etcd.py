"""etcd: the store of both API servers, which keep apart by their key prefix.

It does not wait for the disk on a write: after kill -9 nothing is lost, after a power cut the instance is forgotten.
"""

from __future__ import annotations

from deploy.local import programs
from deploy.local.kube import answers
from deploy.local.part import Part, Process, Stack, external


class Etcd(Part):
    """The part."""

    name = "etcd"
    port_names = ("etcd", "etcd-peer")

    async def prepare(self, stack: Stack) -> None:
        if self._wanted():
            await programs.build(stack.home, "etcd")

    def process(self, stack: Stack) -> Process | None:
        if not self._wanted():
            return None
        client, peer = (f"http://127.0.0.1:{stack.ports[name]}" for name in self.port_names)
        return Process(
            (
                str(programs.path(stack.home, "etcd")),
                f"--data-dir={stack.folder / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            )
        )

    async def ready(self, stack: Stack) -> bool:
        return not self._wanted() or await answers(f"http://127.0.0.1:{stack.ports['etcd']}/readyz")

    def _wanted(self) -> bool:
        return not (external("KUBECONFIG") and external("TARGET_KUBECONFIG"))


PARTS = (Etcd(),)
