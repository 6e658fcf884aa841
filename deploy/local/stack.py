"""Brings an instance of the stack up and down: which parts, in which order, and who waits for whom.

Every part prepares at once and starts as soon as what it needs is up, so the order is never written down. Running `up`
again is the way to repair anything: each step looks first. What a run holds is a lock per part, so two runs on one
instance share the work instead of doing it twice, and `down` only takes back the wish that the instance be up.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import psutil

from deploy.local import ports, processes
from deploy.local.part import Part, PartError, Stack, _saying
from deploy.local.parts import registry
from deploy.local.programs import alone

DEFAULT = "demo"
# How long a process of an earlier run may fail to answer before it is replaced.
ADOPTION = 30.0
# Told (part, state, detail): waiting, preparing, starting, bootstrapping, ready, failed.
Progress = Callable[[str, str, str], None]
# What `up` left to do, by the loop that does it.
_later: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Task[None]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Status:
    """How a part is: running (and answering), stopped, or a thing that has no process. Memory is resident, in MiB."""

    part: str
    state: str
    pid: int | None = None
    memory: int | None = None
    ports: Mapping[str, int] | None = None
    seconds: float = 0


class NotRun(PartError):
    """A part was not tried because one that it needs failed; the failure is told there."""


def home() -> Path:
    """Where all instances live: C5C3_STACK_HOME, else a folder in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("C5C3_STACK_HOME") or cache / "c5c3-orders").expanduser().absolute()


def open_stack(instance: str = DEFAULT) -> Stack:
    """The instance's folder and ports, made at the first call."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", instance):
        raise PartError(f"{instance!r} is no name for an instance: use small letters, digits and dashes, at most 32")
    base = home()
    folder = base / "instances" / instance
    try:
        (folder / "run").mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise PartError(
            f"{folder} cannot be made ({error.strerror}): set C5C3_STACK_HOME to a folder of yours"
        ) from None
    names = [name for part in registry() for name in part.port_names]
    return Stack(instance, base, folder, ports.choose(folder, names))


def existing(instance: str = DEFAULT) -> Stack:
    """The instance, if there is one: for looking, which makes nothing."""
    folder = home() / "instances" / instance
    if not (kept := ports.written(folder)):
        command = f"python -m deploy.local up --instance {instance}"
        raise PartError(f"there is no instance {instance!r} in {home()}: `{command}` makes one")
    return Stack(instance, home(), folder, kept)


def chosen(names: Iterable[str] | None) -> list[Part]:
    """The named parts (or all that `up` brings by itself) and whatever they need."""
    every = {part.name: part for part in registry()}
    wanted: dict[str, Part] = {}

    def add(name: str, by: str) -> None:
        if name not in every:
            raise PartError(f"{by} unknown part {name!r}: there are {', '.join(sorted(every))}")
        if name not in wanted:
            for need in every[name].needs:
                add(need, f"{name} needs an")
            wanted[name] = every[name]

    for name in (name for name, part in every.items() if not part.asked_for) if names is None else names:
        add(name, "--parts names an")
    return list(wanted.values())


def core(parts: Iterable[Part]) -> set[str]:
    """The parts to wait for. One that is named `later`, or needs such a one, is not among them."""
    late: set[str] = set()
    for part in parts:  # needs come before who needs them
        if part.later or late.intersection(part.needs):
            late.add(part.name)
    return {part.name for part in parts} - late


def _silent(_part: str, _state: str, _detail: str) -> None:
    return


async def up(instance: str = DEFAULT, parts: Iterable[str] | None = None, progress: Progress = _silent) -> Stack:
    """Brings the parts up; returns when the core is. The rest goes on in the background: see `later`."""
    stack = open_stack(instance)
    wanted = chosen(parts)
    soon = core(wanted) if parts is None else {part.name for part in wanted}
    (stack.folder / "run" / "up").touch()
    tasks: dict[str, asyncio.Task[None]] = {}
    for part in wanted:
        needs = [tasks[need] for need in part.needs]
        tasks[part.name] = asyncio.create_task(_bring(stack, part, needs, progress), name=part.name)
    try:
        await _all(tasks[name] for name in soon)
    except BaseException:
        await _cancel(tasks.values())
        raise
    rest = [task for name, task in tasks.items() if name not in soon]
    _left()[instance] = asyncio.create_task(_all(rest, hurry=False))
    return stack


def _left() -> dict[str, asyncio.Task[None]]:
    return _later.setdefault(asyncio.get_running_loop(), {})


async def later(instance: str = DEFAULT) -> None:
    """Waits for the parts that `up` left building or starting; raises if one of them failed."""
    if task := _left().pop(instance, None):
        try:
            await task
        except asyncio.CancelledError:
            await _cancel([task])
            raise


async def down(instance: str = DEFAULT, forget: bool = False, progress: Progress = _silent) -> None:
    """Ends every process of the instance, who needs others first; `forget` deletes its data, keys and logs too."""
    if task := _left().pop(instance, None):
        await _cancel([task])
    folder = home() / "instances" / instance
    if not folder.exists():
        return
    stack = Stack(instance, home(), folder, ports.written(folder))
    (folder / "run" / "up").unlink(missing_ok=True)
    left = {part.name: part for part in registry()}
    while left:
        needed = {need for part in left.values() for need in part.needs}
        level = [name for name in left if name not in needed]
        await asyncio.gather(*(_end(stack, name, progress) for name in level))
        left = {name: part for name, part in left.items() if name not in level}
    await processes.end(stack)  # what an older version started, or a run that was just being killed
    if forget:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _end(stack: Stack, name: str, progress: Progress) -> None:
    if processes.read_note(stack, name):
        progress(name, "stopping", "")
        await processes.end(stack, name)
        progress(name, "stopped", "")


async def status(instance: str = DEFAULT) -> list[Status]:
    """How each part is right now. Asks the parts themselves, each with a limit."""
    stack = existing(instance)
    every = await asyncio.to_thread(processes.marked, stack.folder)

    async def one(part: Part) -> Status:
        note = processes.running(stack, part.name)
        mine = {name: stack.ports[name] for name in part.port_names if name in stack.ports}
        if note is None:
            return Status(part.name, "stopped" if processes.read_note(stack, part.name) else "-", ports=mine)
        answers = await _answers(stack, part)
        memory = 0
        for process in every:
            try:
                if process.environ().get(processes.PART_MARK) == part.name:
                    memory += process.memory_info().rss >> 20
            except psutil.Error:
                continue
        seconds = time.time() - note.started
        return Status(part.name, "up" if answers else "does not answer", note.pid, memory, mine, seconds)

    return list(await asyncio.gather(*(one(part) for part in registry())))


def find(name: str) -> Part:
    """The part of that name."""
    for part in registry():
        if part.name == name:
            return part
    raise PartError(f"unknown part {name!r}: there are {', '.join(sorted(p.name for p in registry()))}")


async def stop_part(stack: Stack, name: str) -> None:
    """Ends one part cleanly; the others run on."""
    await processes.end(stack, find(name).name)


async def kill_part(stack: Stack, name: str) -> None:
    """Ends one part as a crash would (SIGKILL)."""
    await processes.end(stack, find(name).name, kill=True)


async def start_part(stack: Stack, name: str, progress: Progress = _silent) -> None:
    """Starts one part that was stopped or killed, and waits until it is up again."""
    await _bring(stack, find(name), [], progress)


def environment(stack: Stack) -> dict[str, str]:
    """What a person's tools need to find the stack: KUBECONFIG, TEMPORAL_ADDRESS, …"""
    found = {"C5C3_STACK_INSTANCE": stack.instance}
    # kubectl and temporal of the locked packages, before any other.
    scripts = sysconfig.get_path("scripts")
    search = os.environ.get("PATH", "").split(os.pathsep)
    found["PATH"] = os.pathsep.join([scripts, *(folder for folder in search if folder != scripts)])
    for part in registry():
        if stack.ports.keys() >= set(part.port_names):  # else it came with a newer version: `up` gives it ports
            found |= part.exports(stack)
    return found


async def _bring(stack: Stack, part: Part, needs: list[asyncio.Task[None]], progress: Progress) -> None:
    """One part's whole way. Its words of progress reach the person through the context."""
    state = "waiting"

    def say(detail: str) -> None:
        progress(part.name, state, detail)

    _saying.set(say)
    try:
        async with alone(stack.folder / "run" / f"{part.name}.lock"):
            state = "preparing"
            say("")
            await part.prepare(stack)
            state = "waiting"
            for need in needs:
                if not need.done():
                    say(f"for {need.get_name()}")
                await _needed(part, need)
            state = "starting"
            say("")
            await part.configure(stack)
            await _start(stack, part)
            state = "bootstrapping"
            say("")
            await part.bootstrap(stack)
        state = "ready"
        say("")
    except NotRun:
        state = "waiting"
        say("not tried: what it needs failed")
        raise
    except PartError as error:
        state = "failed"
        say(str(error))
        raise PartError(f"{part.name}: {error}") from None
    except OSError as error:
        state = "failed"
        say(str(error))
        raise PartError(f"{part.name}: {error}; free space or rights under {stack.home} may be missing") from error


async def _needed(part: Part, need: asyncio.Task[None]) -> None:
    try:
        await asyncio.shield(need)
    except PartError:
        raise NotRun(f"{part.name} was not tried, because {need.get_name()} failed") from None


async def _start(stack: Stack, part: Part) -> None:
    """Adopts the running process if it is the wanted one and answers; else replaces whatever is there."""
    wanted = part.process(stack)
    if wanted is None:
        if processes.read_note(stack, part.name):
            await processes.end(stack, part.name)
        await _await_answer(stack, part, part.patience)
        return
    note = processes.running(stack, part.name)
    if note and note.digest == processes.digest(wanted) and await _adopted(stack, part):
        return
    await processes.end(stack, part.name)
    _ports_free(stack, part)
    _still_wanted(stack)
    processes.start(stack, part.name, wanted)
    await _await_answer(stack, part, part.patience)


async def _adopted(stack: Stack, part: Part) -> bool:
    """Whether a process of an earlier run answers, after a while if it is busy. One that hangs is as good as dead."""
    try:
        await _await_answer(stack, part, min(ADOPTION, part.patience))
    except PartError:
        _still_wanted(stack)
        return False
    return True


async def _await_answer(stack: Stack, part: Part, patience: float) -> None:
    deadline = time.monotonic() + patience
    pause = 0.03
    while not await _answers(stack, part):
        _still_wanted(stack)
        if processes.read_note(stack, part.name) and processes.running(stack, part.name) is None:
            raise PartError(f"ended while it started; its last words:\n{processes.last_words(stack, part.name)}")
        if time.monotonic() > deadline:
            raise PartError(f"did not answer within {patience:.0f} s:\n{processes.last_words(stack, part.name)}")
        await asyncio.sleep(pause)
        pause = min(0.15, pause * 1.5)


async def _answers(stack: Stack, part: Part) -> bool:
    try:
        return await asyncio.wait_for(part.ready(stack), 10)
    except (TimeoutError, OSError):
        return False


def _still_wanted(stack: Stack) -> None:
    if not (stack.folder / "run" / "up").exists():
        raise PartError("the instance was taken down meanwhile")


async def _ports_free(stack: Stack, part: Part) -> None:
    """A killed process may hold its ports for a moment after it counts as dead: its threads end one by one."""
    for name in part.port_names:
        port = stack.ports[name]
        deadline = time.monotonic() + 5
        while not ports.is_free(port) and time.monotonic() < deadline:  # noqa: ASYNC110  (nobody tells when a port is let go)
            await asyncio.sleep(0.05)
        if not ports.is_free(port):
            remedy = f"end it, or run `down --instance {stack.instance} --forget` so that other ports are chosen"
            raise PartError(f"port {port} ({name}) is taken by {ports.holder(port)}: {remedy}")


async def _all(tasks: Iterable[asyncio.Task[None]], hurry: bool = True) -> None:
    """Waits for all and raises the first real failure (in a hurry: at once); NotRun only if nothing else failed."""
    pending = set(tasks)
    failures: list[BaseException] = []
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            failures += [error for task in done if (error := task.exception())]
            if hurry and any(not isinstance(error, NotRun) for error in failures):
                break
    except asyncio.CancelledError:
        await _cancel(pending)
        raise
    for error in sorted(failures, key=lambda error: isinstance(error, NotRun)):
        raise error


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    every = list(tasks)
    for task in every:
        task.cancel()
    await asyncio.gather(*every, return_exceptions=True)
