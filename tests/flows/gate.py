"""Holds a workflow at the moment it ends a run, so that a test can ring it exactly then.

The run's last word is made and Temporal does not have it yet: what arrives meanwhile is what must not be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

IsLastWord = Callable[[Payload], bool]


class Gate(PayloadCodec):
    """Every payload passes as it is; a shut gate holds the one that is a run's last word until it is opened."""

    def __init__(self, is_last_word: IsLastWord) -> None:
        self._is_last_word = is_last_word
        self._open = asyncio.Event()
        self._open.set()
        self._reached = asyncio.Event()

    def shut(self) -> None:
        self._open.clear()

    async def reached(self) -> None:
        await asyncio.wait_for(self._reached.wait(), 60)

    def open(self) -> None:
        self._open.set()

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if any(self._is_last_word(payload) for payload in payloads) and not self._open.is_set():
            self._reached.set()
            await self._open.wait()
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


def carries_on(payload: Payload) -> bool:
    """The argument of the next run."""
    return b'"lateUntil"' in payload.data


def ends(payload: Payload) -> bool:
    """The result of a run that is over."""
    return payload.metadata.get("encoding") == b"binary/null"
