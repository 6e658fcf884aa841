"""OpenBao's database roles and their leases: one login per session, revoked at its end whatever happened.

hvac blocks, so a session works in a thread of a pool of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from activities.dialled import Body, Dialled, tls
from activities.errors import OpenBaoError
from workflows.api.mariadbdatabase import Bao
from workflows.mariadbdatabase.children import ENGINE, creds_path

TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where a pod finds its ServiceAccount's token. The kubelet replaces it, so it is read for each login."""

_SECONDS = 30.0
_THREADS = 16

Answer = TypeVar("Answer")


class OpenBao:
    """Opens sessions. `seconds` is the longest that OpenBao may take to answer."""

    def __init__(self, token_file: Path = TOKEN_FILE, *, seconds: float = _SECONDS) -> None:
        self._token_file = token_file
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="openbao")

    @asynccontextmanager
    async def session(self, bao: Bao, pair: Mapping[str, bytes], until: float) -> AsyncIterator[Session]:
        """Logged in as ourselves. `pair` has the keys of a TLS Secret; no request lasts beyond `until` (monotonic)."""
        opening = _in_thread(self._pool, lambda: self._open(bao, dict(pair), until))
        try:
            dialled = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._abandon)
            raise
        try:
            yield Session(dialled, self._pool)
        finally:
            await asyncio.shield(_in_thread(self._pool, dialled.close))

    def _open(self, bao: Bao, pair: Mapping[str, bytes], until: float) -> Dialled:
        try:
            jwt = self._token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            text = f"the ServiceAccount token {self._token_file} cannot be read: {type(error).__name__}"
            raise OpenBaoError(text, passing=False) from None
        if not jwt:
            raise OpenBaoError(f"the ServiceAccount token {self._token_file} is empty", passing=False)
        dialled = Dialled(bao, tls(pair), jwt, self._seconds, until)
        try:
            dialled.login(bao.mount)
        except BaseException:
            dialled.close()
            raise
        return dialled

    def _abandon(self, opening: asyncio.Future[Dialled]) -> None:
        """Whoever asked is gone: a login that succeeds all the same is taken back."""
        if not opening.cancelled() and opening.exception() is None:
            self._pool.submit(opening.result().close)


def _in_thread(pool: ThreadPoolExecutor, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
    """Runs it in a thread that knows which step it works for: its spans and its log lines belong to that."""
    return asyncio.get_running_loop().run_in_executor(pool, contextvars.copy_context().run, work)


class Session:
    """What a login may do: the roles of orders, and the leases under them."""

    def __init__(self, dialled: Dialled, pool: ThreadPoolExecutor) -> None:
        self._dialled = dialled
        self._pool = pool

    async def read_role(self, name: str) -> Body | None:
        """The role as it is stored, or None."""
        found = await self._run(lambda: self._dialled.ask("GET", _role(name), absent=True))
        return None if found is None else dict(found.get("data") or {})

    async def write_role(self, name: str, role: Body) -> None:
        await self._run(lambda: self._dialled.ask("POST", _role(name), role))

    async def revoke(self, name: str) -> None:
        """Revokes what the role has issued and waits for it, so that its users are gone when the role is."""
        path = f"sys/leases/revoke-prefix/{creds_path(name)}"
        await self._run(lambda: self._dialled.ask("POST", path, {"sync": True}, absent=True))

    async def delete_role(self, name: str) -> None:
        """Absent is fine."""
        await self._run(lambda: self._dialled.ask("DELETE", _role(name), absent=True))

    async def _run(self, ask: Callable[[], Answer]) -> Answer:
        asking = _in_thread(self._pool, ask)
        try:
            return await asyncio.shield(asking)
        finally:
            # Not given up half-way: the token is revoked only after the request that uses it has ended.
            await asyncio.wait([asking])


def _role(name: str) -> str:
    return f"{ENGINE}/roles/{name}"
