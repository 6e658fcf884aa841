"""/healthz, /readyz and /metrics on one port, for both programs; what ready means is each program's own answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.Response]]


async def serve(
    bind: tuple[str | None, int], readyz: Handler, metrics: Callable[[], Awaitable[bytes]]
) -> web.AppRunner:
    """Serves the three paths until the runner's `cleanup`. Raises OSError when the address cannot be had."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def answer_metrics(_: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", answer_metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, *bind).start()
    except OSError:
        await runner.cleanup()
        raise
    _log.info("serving /healthz, /readyz and /metrics on %s", ", ".join(f"{a[0]}:{a[1]}" for a in runner.addresses))
    return runner
