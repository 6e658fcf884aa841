"""/healthz, /readyz and /metrics of the watcher, on one port.

Ready means fresh: every stream that counts was heard lately and no ring waits long. The answer names what is not, so
that nobody has to guess; a standby is ready when it can see the Lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from watcher.engine import Engine
from watcher.leader import Leader
from watcher.metrics import Sight
from worker import serving

FRESH_SECONDS = 90.0
QUEUE_SECONDS = 60.0


@dataclass
class Health:
    """What the program is doing; its parts set the fields as they come and go."""

    phase: str = "starting"
    leader: Leader | None = None
    engine: Engine | None = None
    fresh_seconds: float = FRESH_SECONDS
    queue_seconds: float = QUEUE_SECONDS

    def why_not_ready(self) -> list[str]:
        """Everything that is wrong; empty when ready."""
        if self.engine is None:
            if self.leader is None:
                return [self.phase]
            age = time.monotonic() - self.leader.looked_at
            return [f"the Lease was last seen {age:.0f} s ago"] if age > self.queue_seconds else []
        why = self.engine.stale(self.fresh_seconds)
        if (oldest := self.engine.bells.oldest) > self.queue_seconds:
            why.append(f"a ring waits since {oldest:.0f} s: Temporal does not take it")
        return why

    def sight(self) -> Sight:
        return self.engine.sight() if self.engine else Sight()


async def serve(bind: tuple[str | None, int], health: Health, metrics: Callable[[], bytes]) -> web.AppRunner:
    """Serves the three paths until the runner's `cleanup`. Raises OSError when the address cannot be had."""

    async def readyz(_: web.Request) -> web.Response:
        why = health.why_not_ready()
        sight = health.sight()
        body = {
            "ready": not why,
            "why": why,
            "role": "active" if health.engine else "standby" if health.leader else health.phase,
            "pending_rings": sight.pending,
            "oldest_pending_ring_seconds": round(sight.oldest_pending, 1),
            "clusters": {name: "listening" if ok else "unusable registration" for name, ok in sight.clusters.items()},
        }
        return web.json_response(body, status=503 if why else 200)

    async def measured() -> bytes:
        return metrics()

    return await serving.serve(bind, readyz, measured)
