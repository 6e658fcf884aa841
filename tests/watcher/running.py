"""The active replica, running inside a `with`. It must still be running at the end: nothing it hears may end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from watcher.engine import Engine


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    task = asyncio.ensure_future(engine.run())
    try:
        yield engine
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled(), task.exception()
