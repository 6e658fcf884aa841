"""The three operators that act on what our orders project: K-ORC, cert-manager and External Secrets.

Each is the real program under a user of its own. K-ORC has exactly the rights its module ships; the other two publish
theirs only as Helm templates and are cluster-admin here.
"""

from __future__ import annotations

from deploy.local import kube, programs
from deploy.local.kube import answers
from deploy.local.part import Part, Process, Stack
from deploy.local.parts.crds import load

KORC = "github.com/k-orc/openstack-resource-controller/v2"


class Operator(Part):
    """What the three have in common: a program, a user, a port, and a page on it that answers once it runs."""

    needs = ("crds", "controllers-management")
    probe = "/readyz"

    async def prepare(self, stack: Stack) -> None:
        await programs.build(stack.home, self.name)

    async def configure(self, stack: Stack) -> None:
        await kube.grant(stack, "management", self.name)

    def process(self, stack: Stack) -> Process:
        argv = (str(programs.path(stack.home, self.name)), *self.flags(stack, f"127.0.0.1:{stack.ports[self.name]}"))
        return Process(argv, {"KUBECONFIG": str(kube.kubeconfig(stack, "management", self.name))})

    def flags(self, stack: Stack, address: str) -> tuple[str, ...]:
        raise NotImplementedError

    async def ready(self, stack: Stack) -> bool:
        return await answers(f"http://127.0.0.1:{stack.ports[self.name]}{self.probe}")


class Korc(Operator):
    """The OpenStack resource controller: projects, users, roles and the rest in Keystone."""

    name = "korc"
    port_names = ("korc",)

    async def configure(self, stack: Stack) -> None:
        source = await programs.module_folder(stack.home, "korc", KORC)
        (role,) = load(source / "config" / "rbac" / "role.yaml")
        await kube.grant(stack, "management", self.name, role="korc", rules=role["rules"])

    def flags(self, stack: Stack, address: str) -> tuple[str, ...]:
        return (f"--health-probe-bind-address={address}", "--metrics-bind-address=0")


class CertManager(Operator):
    """Certificates, from self-signed and CA issuers only."""

    name = "cert-manager"
    port_names = ("cert-manager",)
    probe = "/livez"
    later = True

    async def configure(self, stack: Stack) -> None:
        await super().configure(stack)
        await kube.apply(
            stack, "management", [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cert-manager"}}]
        )

    def flags(self, stack: Stack, address: str) -> tuple[str, ...]:
        return (f"--healthz-listen-address={address}",)


class ExternalSecrets(Operator):
    """Secrets from and to OpenBao. This version has no probe: its metrics answer instead."""

    name = "external-secrets"
    port_names = ("external-secrets",)
    probe = "/metrics"
    later = True

    def flags(self, stack: Stack, address: str) -> tuple[str, ...]:
        return (
            f"--metrics-addr={address}",
            "--enable-leader-election=false",
            # How long a store says that it is valid while OpenBao is away; five minutes without.
            "--store-requeue-interval=30s",
            "--concurrent=2",
            "--zap-time-encoding=iso8601",
        )


PARTS = (Korc(), CertManager(), ExternalSecrets())
