"""The image: what it installs is locked as the product is, and its steps make programs that run as a pod runs them."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import shutil
import ssl
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement

from deploy.local import kube
from deploy.local.api import Api
from deploy.local.parts import temporal
from deploy.local.parts.operator import token_file
from tests.chart.helm import NEEDED, PRODUCT, Helm, merged, named, variables
from tests.chart.image import LOCK, ROOT, Stage, build, instructions, say
from tests.e2e.stage import Order
from tests.e2e.stage import Stage as Real
from tests.worker.program import free_port

ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"  # by /var/run, which in Debian is a link to the machine's own /run
TOOLS = {"pip", "setuptools", "pytest", "mypy", "ruff", "kopf", "hypothesis", "uvicorn"}


def pins(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by name."""
    found = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=\S+)+)", lock.read_text(), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w+", hashes))) for name, version, hashes in found}


def test_the_image_installs_what_the_product_needs_and_is_tested_with() -> None:
    """The closure of the product's own dependencies, each at the version and hash of the lock that tests run on."""
    locked, all_ = pins(LOCK), pins(ROOT / "requirements.lock")
    assert {name: all_.get(name) for name in locked} == locked
    wanted: set[str] = set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [(Requirement(each), "") for each in project["dependencies"]]
    while asked:
        one, extra = asked.pop()
        name = one.name.lower().replace("_", "-").replace(".", "-")
        if name in wanted or (one.marker and not one.marker.evaluate({"extra": extra})):
            continue
        wanted.add(name)
        needs = [Requirement(each) for each in importlib.metadata.requires(one.name) or ()]
        asked += [(need, extra) for need in needs for extra in ("", *one.extras)]
    assert wanted == {name.lower().replace("_", "-").replace(".", "-") for name in locked}


def test_the_image_holds_no_more_of_us_than_what_is_run() -> None:
    """A file that lies beside the packages is no part of it: each is copied by name, and the rest is not even sent."""
    copied = [rest.split()[0] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    linked = [
        str(link.resolve().relative_to(ROOT)) for link in sorted((ROOT / "worker").rglob("*")) if link.is_symlink()
    ]
    assert [each for each in linked if not each.startswith(("docs/reasons.md", "deploy/rbac/"))] == []
    packages = ["workflows", "activities", "worker", "watcher"]
    assert copied == ["deploy/image/requirements.lock", *packages, "docs/reasons.md", "deploy/rbac", "pyproject.toml"]
    sent = (ROOT / "deploy" / "image" / "Dockerfile.dockerignore").read_text().split()
    assert [f"!{each}" for each in copied] == [each for each in sent if each.startswith("!")]
    users = [rest for word, rest in instructions() if word == "USER"]
    assert users == ["65532:65532"]


@pytest.fixture(scope="module")
def in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The steps that are not Debian's, in a clean virtual environment."""

    def base(root: Path) -> None:
        root.mkdir()

    def run(stage: Stage, command: str) -> None:
        if command.startswith("apt-get"):
            return
        here = re.sub("/(opt|build)/", lambda found: f"{stage.root}{found[0]}", command)
        done = say(["sh", "-c", here], {"PATH": os.environ["PATH"], "HOME": str(stage.root)})
        assert done.returncode == 0, done.stdout + done.stderr

    return build(tmp_path_factory.mktemp("venv"), base, run)


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_the_steps_make_both_programs_in_a_clean_virtual_environment(in_a_folder: Stage) -> None:
    root = in_a_folder.root
    python = str(root / in_a_folder.entrypoint[0].lstrip("/"))
    installed = {path.name.split("-")[0] for path in root.glob("opt/c5c3/lib/*/site-packages/*.dist-info")}
    assert "temporalio" in installed
    assert installed & TOOLS == set()
    env = {name: value.replace("/opt/", f"{root}/opt/") for name, value in in_a_folder.env.items()}
    for module in ("worker", "watcher"):
        done = say([python, "-m", module], {**env, "C5C3_LOG_LEVEL": "loud"}, 60)
        assert (done.returncode, done.stderr[:32]) == (1, "C5C3_LOG_LEVEL 'loud' cannot be ")
    # The command line for people finds there what it links to.
    rights, words = (
        "rights.needed_on_target([None], [])",
        "remedies.remedy('KeystoneProject', 'ProjectReady', 'ProjectFailed').help",
    )
    ask = f"from worker.cli import remedies; from worker.cli.doctor import rights; print(len({rights}), {words})"
    asked = say([python, "-c", ask], env, 60)
    assert (asked.returncode, "K-ORC" in asked.stdout) == (0, True), asked.stderr
    called = say([str(root / "opt/c5c3/bin/c5c3-orders"), "--help"], env, 60)
    assert (called.returncode, "doctor" in called.stdout) == (0, True), called.stderr
    told = say([python, "-c", "from worker.release import version; print(version())"], env, 60)
    assert told.stdout.strip() == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def in_debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All steps, in roots that debootstrap makes."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.fail("a Debian root needs root and debootstrap: `apt-get install debootstrap`, and run this as root")
    folder = tmp_path_factory.mktemp("debian")
    authorities = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    first = folder / "base"

    def base(root: Path) -> None:
        if not first.exists():
            made = say(["debootstrap", "--variant=minbase", "bookworm", str(first)], {"PATH": os.environ["PATH"]})
            assert made.returncode == 0, made.stdout[-2000:]
            shutil.copy2("/etc/resolv.conf", first / "etc" / "resolv.conf")
        subprocess.run(["cp", "-a", first, root], check=True)

    def run(stage: Stage, command: str) -> None:
        certificates = stage.root / "opt" / "authorities.pem"  # of this machine's way to the network, not the image's
        shutil.copy2(authorities, certificates)
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "PIP_CERT": "/opt/authorities.pem"}
        done = say(["chroot", str(stage.root), "sh", "-c", command], {**stage.env, **path})
        certificates.unlink()
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]

    yield build(folder, base, run)
    shutil.rmtree(folder)


def pod(stage: Stage, program: str, env: Mapping[str, str], account: Path | None = None) -> list[str]:
    """The image as a kubelet has it run: read-only root, /dev/shm in memory, nobody's user, account and variables."""
    root = stage.root
    steps = [f"mount --bind {root} {root}"]
    if account:
        there = root / ACCOUNT
        there.mkdir(parents=True, exist_ok=True)
        steps.append(f"mount --bind {account} {there}")
    steps += [
        f"mount -o remount,bind,ro {root}",
        f"mount -t tmpfs tmpfs {root}/dev/shm",
        f"mount -t proc proc {root}/proc",
    ]
    script = f'{" && ".join(steps)} && exec chroot --userspec={stage.user} {root} "$@"'
    told = [f"{name}={value}" for name, value in {**stage.env, **env}.items()]
    return ["unshare", "--mount", "sh", "-c", script, "sh", "/usr/bin/env", "-i", *told, *stage.entrypoint, program]


def in_a_pod(stage: Stage, program: str, **env: str) -> subprocess.CompletedProcess[str]:
    return say(pod(stage, program, env), {"PATH": os.environ["PATH"]}, 120)


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_the_steps_make_both_programs_in_a_debian_root(in_debian: Stage) -> None:
    """Without this machine's Python. They say what is wrong with their settings, and with the pod, in a sentence."""
    for program in ("worker", "watcher"):
        done = in_a_pod(in_debian, program, C5C3_LOG_LEVEL="loud")
        assert (done.returncode, done.stderr[:32]) == (1, "C5C3_LOG_LEVEL 'loud' cannot be "), done.stderr
        done = in_a_pod(in_debian, program, C5C3_TEMPORAL_ADRESS="temporal:7233")
        assert "did you mean C5C3_TEMPORAL_ADDRESS?" in done.stderr
        done = in_a_pod(in_debian, program)
        assert done.returncode == 1
        assert "not running in a pod" in done.stdout + done.stderr
    done = in_a_pod(in_debian, "watcher.uninstall")
    assert done.returncode == 1
    assert "c5c3-orders stays" in done.stderr
    root = in_debian.root
    assert not list(root.glob("opt/c5c3/lib/*/site-packages/pip"))
    assert not (root / "usr" / "bin" / "pip3").exists()


@pytest.mark.prove
@pytest.mark.row("O03")
@pytest.mark.timeout(1800)
async def test_the_image_serves_an_order_as_a_pod_would(
    in_debian: Stage, real_stack: Real, place: Callable[..., Order], helm: Helm, tmp_path: Path
) -> None:
    """With the chart's variables and the account that the kubelet lays down; what differs from a pod is the network."""
    here = real_stack.stack
    values = merged(NEEDED, {"temporal": {"address": temporal.address(here)}})
    deployment = named(helm.render(PRODUCT, values))["Deployment", "c5c3-orders-worker"]
    with Api(kube.kubeconfig(here, "management", "operator")) as api:
        where = urlsplit(api.server)
        (tmp_path / "ca.crt").write_bytes(api.ca)
    (tmp_path / "token").write_bytes(token_file(here).read_bytes())
    (tmp_path / "namespace").write_text("c5c3-system")
    tmp_path.chmod(0o755)
    server = {"KUBERNETES_SERVICE_HOST": str(where.hostname), "KUBERNETES_SERVICE_PORT": str(where.port)}
    env = {**variables(deployment), **server, "C5C3_HTTP_ADDRESS": f"127.0.0.1:{free_port()}"}
    argv = pod(in_debian, "worker", env, tmp_path)
    async with real_stack.without("worker"):
        with (tmp_path / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
        try:
            await (await place("image").place()).is_ready()
        finally:
            process.terminate()
            code = await asyncio.wait_for(process.wait(), 60)
    assert code == 0, (tmp_path / "log").read_text()
