"""One connection to OpenBao and its token: what goes over the wire, and what is said of what does not come back.

Who we are is said in each call and comes from nowhere else: no environment variable, no file of a home, no proxy. The
client's key exists as a file for the moment in which OpenSSL reads it, in memory, without a name.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import hvac.adapters
import requests
import requests.adapters
import urllib3
from opentelemetry import trace

from activities.errors import OpenBaoError
from activities.instrument import openbao_request
from activities.keyfile import nameless
from workflows.api.mariadbdatabase import Bao

ROLE = "c5c3-operator"
_CONNECT_SECONDS = 5.0
_BODY_LIMIT = 1 << 20
_NO_ROUTE = "no handler for route"
_ASK_THERE = (307, 308)
"""What sends the same request elsewhere. The other redirects may make a read of a write, so they are none to us."""
_BOOTSTRAP = (
    "OpenBao lets in whom setup-auth.sh, setup-policies.sh and setup-database-tenant.sh have let in (here: python -m"
    " deploy.openbao): "
)

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer("c5c3.openbao")

Body = dict[str, Any]


class Dialled:
    """One connection and its token. Blocking; used by one thread at a time."""

    def __init__(self, bao: Bao, context: ssl.SSLContext, jwt: str, seconds: float, until: float) -> None:
        if not bao.server.startswith("https://"):
            raise OpenBaoError(f"the store's OpenBao server {bao.server!r} is not https://", passing=False)
        self._session = _Session()
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
        name = f"{method} {path.split('/')[0]}"
        with (
            _tracer.start_as_current_span(name, attributes={"openbao.path": path}) as span,
            openbao_request(method) as answered,
        ):
            try:
                status, data = self._answer(method, path, body)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                text = f"OpenBao gave no answer to {method} {path}: {_plainly(error)}"
                raise OpenBaoError(self._clean(text)) from None
            span.set_attribute("http.response.status_code", status)
            answered(status)
        if 200 <= status < 300:
            return _parsed(data) or {}
        words = self._clean(_words(data))
        if absent and status == 404 and _NO_ROUTE not in words:
            return None
        # Who is let in nowhere is refused; a role or a mount that is missing is no login at all.
        hint = _BOOTSTRAP if status == 403 or (status in (400, 404) and path.startswith("auth/")) else ""
        raise OpenBaoError(f"{hint}OpenBao answered {status} to {method} {path}: {words}", status)

    def _answer(self, method: str, path: str, body: Body | None) -> tuple[int, bytes]:
        """Status and body, from the node that answers: a standby that cannot ask it for us says where it is."""
        status, data = 0, b""
        for _ in range(2):
            left = min(self._seconds, self._until - time.monotonic())
            if left <= 0:
                raise OpenBaoError(f"there was no time left to ask OpenBao for {method} {path}")
            until = time.monotonic() + left
            response = self._adapter.request(
                method, f"/v1/{path}", json=body, stream=True, timeout=(min(left, _CONNECT_SECONDS), left)
            )
            status, data = response.status_code, _body(response, until)
            there = _server(response.headers.get("Location", "")) if status in _ASK_THERE else ""
            if not there:
                break
            self._adapter.base_uri = there
        return status, data

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


class _Session(requests.Session):
    """One that leaves redirects alone: even where none is to be followed, requests reads the body of one to its end."""

    def get_redirect_target(self, resp: Any) -> None:
        return None


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
        with nameless(pair["tls.crt"] + b"\n" + pair["tls.key"]) as file:
            context.load_cert_chain(file)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise OpenBaoError(f"the client certificate for OpenBao cannot be used: {reason}", passing=False) from None
    return context


def _server(url: str) -> str:
    """The server that a URL is of; empty where it is none, or none that speaks TLS."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"https://{parts.netloc}" if parts.scheme == "https" and parts.netloc else ""


def _body(response: requests.Response, until: float) -> bytes:
    """The whole body; the time limit of a socket alone would let one that drips go on for ever."""
    data = b""
    while chunk := response.raw.read1(_BODY_LIMIT, decode_content=True):
        data += chunk
        if len(data) > _BODY_LIMIT:
            response.close()
            raise OSError("the answer is longer than 1 MiB")
        if time.monotonic() > until:
            response.close()
            raise TimeoutError("the answer did not end in time")
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
    named = f"{type(inner).__name__}: {text}" if text else type(inner).__name__
    refused = isinstance(inner, ssl.SSLError | ConnectionError | http.client.RemoteDisconnected)
    if refused and not isinstance(inner, ssl.SSLCertVerificationError | ConnectionRefusedError):
        # It sees our certificate only after we have begun to speak, so what it thinks of it may be lost on the way.
        named += " (a client certificate that has expired, or is of another authority, is refused like this)"
    return named
