"""What a part of the local stack is: how it is made ready, started, and known to be up.

A part owns one long-lived process (or none). Every method may run again after a crash at any line. A part derives from
`Part` and overrides what it needs; a module under `deploy/local/parts/` that has a tuple `PARTS` is found by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

_saying: ContextVar[Callable[[str], None]] = ContextVar("_saying", default=lambda _text: None)


@dataclass(frozen=True)
class Process:
    """A program to keep running. Its output goes to `<stack.folder>/logs/<part>.log`.

    A running process is replaced at `up` when its argv, env or cwd differ from what is wanted now; `version` is one
    more thing to compare (a digest of the configuration files it has read, say).
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    version: str = ""


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


class Part:
    """One part. `prepare`, `bootstrap` are idempotent; they raise `PartError` with a remedy."""

    name: str
    needs: tuple[str, ...] = ()
    port_names: tuple[str, ...] = ()
    # How long the process may take from its start to `ready`.
    patience: float = 240
    # Not needed for a first order: `up` hands the stack over while this part still builds or starts.
    later: bool = False
    # Started only when it is named: `up` of everything leaves it out.
    asked_for: bool = False

    async def prepare(self, stack: Stack) -> None:
        """Builds, downloads, initialises data. Runs before `needs` are up. May take minutes the first time."""

    async def configure(self, stack: Stack) -> None:
        """Runs once `needs` are up, right before the process: what can only be made then (a user, a kubeconfig)."""

    def process(self, stack: Stack) -> Process | None:
        """The program to run once `needs` are up, or None for a part that only bootstraps."""
        return None

    async def ready(self, stack: Stack) -> bool:
        """Whether the process answers. Asked every 100 ms or so, each time with a limit of its own."""
        return True

    async def bootstrap(self, stack: Stack) -> None:
        """Runs after `ready`, at every `up`: objects, users, schemas that the part must hold."""

    def exports(self, stack: Stack) -> Mapping[str, str]:
        """Environment variables with which a person's tools find this part (`python -m deploy.local env`)."""
        return {}


class PartError(Exception):
    """A part cannot be had. The text is one sentence that says what to do."""


def say(text: str) -> None:
    """Tells the person who waits what this part is busy with ("downloading"). May be called anywhere in a part."""
    _saying.get()(text)


def external(name: str) -> str | None:
    """The value of C5C3_STACK_<name>: something that exists already and is to be used instead of a part of ours."""
    return os.environ.get(f"C5C3_STACK_{name}") or None
