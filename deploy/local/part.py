"""What a part of the local stack is: how it is made ready, started, and known to be up.

A part owns one long-lived process (or none). Every method may run again after a crash at any line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Process:
    """A program to keep running. Its output goes to `<stack.folder>/logs/<part>.log`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True)
class Stack:
    """One instance of the stack: its folders and ports. Two instances never share either.

    home    shared by all instances: built programs, virtual environments, unpacked Debian packages
    folder  this instance's data, keys, kubeconfigs and logs; deleting it forgets the instance
    ports   name -> port on 127.0.0.1, stable for the life of the folder
    """

    instance: str
    home: Path
    folder: Path
    ports: Mapping[str, int]


class Part(Protocol):
    """One part. `prepare`, `bootstrap` are idempotent; they raise `PartError` with a remedy."""

    name: str
    needs: tuple[str, ...]
    port_names: tuple[str, ...]

    async def prepare(self, stack: Stack) -> None:
        """Builds, downloads, initialises data. May take minutes the first time, nothing later."""

    def process(self, stack: Stack) -> Process | None:
        """The program to run once `needs` are up, or None for a part that only bootstraps."""

    async def ready(self, stack: Stack) -> bool:
        """Whether the process answers. Asked every 100 ms or so, each time with a limit of its own."""

    async def bootstrap(self, stack: Stack) -> None:
        """Runs after `ready`, at every `up`: objects, users, schemas that the part must hold."""


class PartError(Exception):
    """A part cannot be had. The text is one sentence that says what to do."""
