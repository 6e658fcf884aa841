"""OpenBao's database roles and their leases: one login per session, revoked at its end whatever happened.

Who we are is said in each call and comes from nowhere else: no environment variable, no file of a home, no proxy. The
client's key exists as a file for the moment in which OpenSSL reads it, in memory, without a name. hvac blocks, so a
session works in a thread of a pool of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import re
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hvac.adapters
import requests
import requests.adapters
import urllib3
from opentelemetry import trace

from activities.errors import OpenBaoError
from activities.instrument import openbao_request
from workflows.api.mariadbdatabase import Bao
from workflows.mariadbdatabase.children import ENGINE, creds_path

TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where a pod finds its ServiceAccount's token. The kubelet replaces it, so it is read for each login."""

ROLE = "c5c3-operator"
_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_BODY_LIMIT = 1 << 20
_THREADS = 16
_NO_ROUTE = "no handler for route"
_BOOTSTRAP = (
    "OpenBao lets in whom setup-auth.sh, setup-policies.sh and setup-database-tenant.sh have let in (here: python -m"
    " deploy.openbao): "
)

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer("c5c3.openbao")

Answer = TypeVar("Answer")
Body = dict[str, Any]


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

    def _open(self, bao: Bao, pair: Mapping[str, bytes], until: float) -> _Dialled:
        try:
            jwt = self._token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            text = f"the ServiceAccount token {self._token_file} cannot be read: {type(error).__name__}"
            raise OpenBaoError(text, passing=False) from None
        if not jwt:
            raise OpenBaoError(f"the ServiceAccount token {self._token_file} is empty", passing=False)
        dialled = _Dialled(bao, tls(pair), jwt, self._seconds, until)
        try:
            dialled.login(bao.mount)
        except BaseException:
            dialled.close()
            raise
        return dialled

    def _abandon(self, opening: asyncio.Future[_Dialled]) -> None:
        """Whoever asked is gone: a login that succeeds all the same is taken back."""
        if not opening.cancelled() and opening.exception() is None:
            self._pool.submit(opening.result().close)


def _in_thread(pool: ThreadPoolExecutor, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
    """Runs it in a thread that knows which step it works for: its spans and its log lines belong to that."""
    return asyncio.get_running_loop().run_in_executor(pool, contextvars.copy_context().run, work)


class Session:
    """What a login may do: the roles of orders, and the leases under them."""

    def __init__(self, dialled: _Dialled, pool: ThreadPoolExecutor) -> None:
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
        # Not given up half-way: the token is revoked only after the request that uses it has ended.
        return await asyncio.shield(_in_thread(self._pool, ask))


class _Dialled:
    """One connection and its token. Blocking; used by one thread at a time."""

    def __init__(self, bao: Bao, context: ssl.SSLContext, jwt: str, seconds: float, until: float) -> None:
        if not bao.server.startswith("https://"):
            raise OpenBaoError(f"the store's OpenBao server {bao.server!r} is not https://", passing=False)
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.adapters.clear()
        self._session.mount("https://", _Pinned(context))
        # The raw adapter: hvac's client would look for tokens, addresses and certificates around us.
        self._adapter = hvac.adapters.RawAdapter(
            base_uri=bao.server,
            token="",
            verify=True,
            session=self._session,
            namespace=bao.namespace or None,
            allow_redirects=False,
            ignore_exceptions=True,
        )
        self._jwt = jwt
        self._seconds = seconds
        self._until = until

    def login(self, mount: str) -> None:
        answer = self.ask("POST", f"auth/{mount}/login", {"role": ROLE, "jwt": self._jwt}) or {}
        token = (answer.get("auth") or {}).get("client_token")
        if not isinstance(token, str) or not token:
            raise OpenBaoError(f"OpenBao answered POST auth/{mount}/login without a token", passing=False)
        self._adapter.token = token

    def ask(self, method: str, path: str, body: Body | None = None, *, absent: bool = False) -> Body | None:
        """One request, and what it was answered. None for a 404 where that may be: not for a path nobody serves."""
        left = min(self._seconds, self._until - time.monotonic())
        if left <= 0:
            raise OpenBaoError(f"there was no time left to ask OpenBao for {method} {path}")
        name = f"{method} {path.split('/')[0]}"
        with (
            _tracer.start_as_current_span(name, attributes={"openbao.path": path}) as span,
            openbao_request(method) as answered,
        ):
            try:
                response = self._adapter.request(
                    method, f"/v1/{path}", json=body, stream=True, timeout=(min(left, _CONNECT_SECONDS), left)
                )
                data = _body(response)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                text = f"OpenBao gave no answer to {method} {path}: {_plainly(error)}"
                raise OpenBaoError(self._clean(text)) from None
            span.set_attribute("http.response.status_code", response.status_code)
            answered(response.status_code)
        if 200 <= response.status_code < 300:
            return _parsed(data) or {}
        words = self._clean(_words(data))
        if absent and response.status_code == 404 and _NO_ROUTE not in words:
            return None
        hint = _BOOTSTRAP if response.status_code == 403 else ""
        raise OpenBaoError(
            f"{hint}OpenBao answered {response.status_code} to {method} {path}: {words}", response.status_code
        )

    def close(self) -> None:
        """Takes the token back. That this fails is only logged: it ends by itself within minutes."""
        try:
            if self._adapter.token:
                self._until = max(self._until, time.monotonic() + _CONNECT_SECONDS)
                self.ask("POST", "auth/token/revoke-self", {})
        except OpenBaoError as error:
            _log.warning("the login could not be revoked: %s", error)
        finally:
            self._adapter.token = ""
            self._session.close()

    def _clean(self, text: str) -> str:
        """Whatever echoes what we sent: not our secrets."""
        for secret in (self._jwt, self._adapter.token):
            text = text.replace(secret, "…") if secret else text
        return text


class _Pinned(requests.adapters.HTTPAdapter):
    """Connections by exactly one TLS context: neither requests nor its environment adds an authority to it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        host, _ = super().build_connection_pool_key_attributes(request, True, None)
        return host, {}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Decided by the context."""


def tls(pair: Mapping[str, bytes]) -> ssl.SSLContext:
    """TLS 1.2 or newer, trusting this authority alone and showing this certificate: all three or nothing."""
    lacking = [key for key in ("ca.crt", "tls.crt", "tls.key") if not pair.get(key)]
    if lacking:
        raise OpenBaoError(f"the client certificate for OpenBao is incomplete: no {', '.join(lacking)}", passing=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=pair["ca.crt"].decode("ascii"))
        with _in_memory(pair["tls.crt"] + b"\n" + pair["tls.key"]) as file:
            context.load_cert_chain(file)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise OpenBaoError(f"the client certificate for OpenBao cannot be used: {reason}", passing=False) from None
    return context


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A file that never has a name, so nothing is left of it however we end; elsewhere one of ours for the moment."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("c5c3", os.MFD_CLOEXEC)
        try:
            os.write(number, content)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile(prefix="c5c3-") as file:  # mode 0600
        file.write(content)
        file.flush()
        yield file.name


def _role(name: str) -> str:
    return f"{ENGINE}/roles/{name}"


def _body(response: requests.Response) -> bytes:
    data: bytes = response.raw.read(_BODY_LIMIT + 1, decode_content=True)
    if len(data) > _BODY_LIMIT:
        response.close()
        raise OSError("the answer is longer than 1 MiB")
    response.raw.release_conn()
    return data


def _parsed(data: bytes) -> Body | None:
    try:
        found = json.loads(data) if data else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _words(data: bytes) -> str:
    """What it said: its errors, else the whole answer as it is."""
    errors = (_parsed(data) or {}).get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join(" ".join(str(error).split()) for error in errors)
    return data.decode(errors="replace").strip() or "(an empty answer)"


def _plainly(error: BaseException) -> str:
    """The innermost cause in words, without addresses of objects."""
    inner: Any = error
    while True:
        nested = getattr(inner, "reason", None)
        if not isinstance(nested, BaseException):
            nested = next((arg for arg in getattr(inner, "args", ()) if isinstance(arg, BaseException)), None)
        if nested is None or nested is inner:
            break
        inner = nested
    text = re.sub(r"<[^>]* object at 0x[0-9a-f]+>: ?|\w+\(host='[^']*', port=\d+\): ?", "", str(inner))
    return f"{type(inner).__name__}: {text}" if text else type(inner).__name__
