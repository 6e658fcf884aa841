"""The two Kubernetes API servers: the management cluster and the target cluster, with RBAC on and an audit log each.

They share one etcd under two prefixes and nothing else: each has its own authority, its own users and its own issuer of
ServiceAccount tokens, so a token or certificate of the one means nothing to the other.
"""

from __future__ import annotations

import json
from pathlib import Path

from deploy.local import pki, programs
from deploy.local.api import ApiError
from deploy.local.files import write_secret
from deploy.local.kube import answers, call, kubeconfig
from deploy.local.part import Part, PartError, Process, Stack, external

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
SETTING = {"management": "KUBECONFIG", "target": "TARGET_KUBECONFIG"}


class ApiServer(Part):
    """One of the two. With C5C3_STACK_KUBECONFIG (or …_TARGET_KUBECONFIG) it is a cluster that exists already."""

    needs = ("etcd",)

    def __init__(self, name: str, range_: str) -> None:
        self.name, self.range, self.port_names = name, range_, (name,)

    async def prepare(self, stack: Stack) -> None:
        config = kubeconfig(stack, self.name)
        if given := external(SETTING[self.name]):
            try:
                write_secret(config, Path(given).expanduser().read_bytes())
                await call(stack, self.name, "GET", "/version")
            except OSError as error:
                raise PartError(f"C5C3_STACK_{SETTING[self.name]}={given} cannot be read: {error.strerror}") from None
            except ApiError as error:
                raise PartError(f"the cluster of C5C3_STACK_{SETTING[self.name]}={given}: {error}") from None
            return
        await programs.build(stack.home, "kube-apiserver")
        pki.serving(stack, self.name)
        pki.account_keys(stack, self.name)
        pki.client_kubeconfig(stack, self.name, "admin", config, groups=("system:masters",))
        (stack.folder / "logs").mkdir(parents=True, exist_ok=True)
        policy = json.dumps(AUDIT).encode()
        if not self._policy(stack).exists() or self._policy(stack).read_bytes() != policy:
            write_secret(self._policy(stack), policy)

    def process(self, stack: Stack) -> Process | None:
        if external(SETTING[self.name]):
            return None
        ca, mine = pki.authority(stack, self.name), pki.serving(stack, self.name)
        private, public = pki.account_keys(stack, self.name)
        return Process(
            (
                str(programs.path(stack.home, "kube-apiserver")),
                f"--etcd-servers=http://127.0.0.1:{stack.ports['etcd']}",
                f"--etcd-prefix=/{self.name}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={stack.ports[self.name]}",
                "--endpoint-reconciler-type=none",
                f"--tls-cert-file={mine.certificate}",
                f"--tls-private-key-file={mine.key}",
                f"--client-ca-file={ca.certificate}",
                "--authorization-mode=RBAC",
                f"--service-cluster-ip-range={self.range}",
                f"--service-account-issuer={pki.server(stack, self.name)}",
                f"--service-account-key-file={public}",
                f"--service-account-signing-key-file={private}",
                "--enable-priority-and-fairness=false",
                "--profiling=false",
                f"--audit-policy-file={self._policy(stack)}",
                f"--audit-log-path={stack.folder / 'logs' / f'audit-{self.name}.jsonl'}",
                "--audit-log-maxsize=500",
                "--audit-log-maxbackup=1",
            )
        )

    async def ready(self, stack: Stack) -> bool:
        if external(SETTING[self.name]):
            try:
                return bool((await call(stack, self.name, "GET", "/version"))["gitVersion"])
            except ApiError:
                return False
        return await answers(f"{pki.server(stack, self.name)}/readyz", pki.admin_context(stack, self.name))

    def exports(self, stack: Stack) -> dict[str, str]:
        variable = "KUBECONFIG" if self.name == "management" else "TARGET_KUBECONFIG"
        return {variable: str(kubeconfig(stack, self.name))}

    def _policy(self, stack: Stack) -> Path:
        return stack.folder / "kube" / "audit-policy.json"


PARTS = (ApiServer("management", "10.96.0.0/24"), ApiServer("target", "10.97.0.0/24"))
