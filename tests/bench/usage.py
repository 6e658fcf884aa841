"""Processor time and memory of the stack's parts, sampled; a part that is killed and comes back goes on counting."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from types import TracebackType
from typing import Self

import psutil

from deploy.local import processes
from deploy.local.part import Stack

PARTS = ("worker", "watcher", "temporal", "management", "etcd", "korc", "keystone", "mariadb")
_EVERY = 0.25


class Usage:
    """Use it with `async with`. What a killed process used after its last sample is not known: 0.25 s at most."""

    def __init__(self, stack: Stack, parts: tuple[str, ...] = PARTS) -> None:
        self._stack, self._parts = stack, parts
        self._cpu: dict[str, dict[tuple[int, float], float]] = defaultdict(dict)
        self._began: dict[tuple[int, float], float] = {}
        self.peak: dict[str, int] = defaultdict(int)

    async def __aenter__(self) -> Self:
        self._sample(first=True)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._sample()

    def cpu(self, part: str) -> float:
        """Seconds of processor time since the beginning, of all the part's processes."""
        return sum(now - self._began[who] for who, now in self._cpu[part].items())

    def told(self) -> dict[str, float]:
        return {part: round(self.cpu(part), 2) for part in self._parts}

    def mebibytes(self, part: str) -> int:
        """The most that the part's processes had resident together."""
        return self.peak[part] >> 20

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            self._sample()

    def _sample(self, *, first: bool = False) -> None:
        for part in self._parts:
            note = processes.read_note(self._stack, part)
            if note is None:
                continue
            resident = 0
            with contextlib.suppress(psutil.Error):
                leader = psutil.Process(note.pid)
                for process in (leader, *leader.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        times, who = process.cpu_times(), (process.pid, process.create_time())
                        now = times.user + times.system
                        self._began.setdefault(who, now if first else 0.0)
                        self._cpu[part][who] = now
                        resident += process.memory_info().rss
            self.peak[part] = max(self.peak[part], resident)
