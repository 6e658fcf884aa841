"""What stands before Temporal in production: TLS, client certificates, an API key in each call; behind it a real one.

It forwards calls as they are and notes what they were let in by, as Temporal Cloud's front would read it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio

from deploy.local.authority import Pair
from tests.worker.program import free_port


@dataclass
class Front(grpc.GenericRpcHandler):
    """
    serving   the certificate that it shows
    accepts   the authority of the client certificates that it asks for; None asks for none
    api_key   the key that each call must carry; None lets every call in
    """

    target: str
    serving: Pair
    accepts: Pair | None = None
    api_key: str | None = None
    port: int = field(default_factory=free_port)
    shown: list[str] = field(default_factory=list)
    """The `authorization` of each call, newest last."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method
        metadata = tuple(
            (name, value)
            for name, value in handler_call_details.invocation_metadata
            if not name.startswith(("grpc-", ":")) and name not in ("user-agent", "authorization", "content-type", "te")
        )
        shown = dict(handler_call_details.invocation_metadata).get("authorization", "")

        async def call(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            self.shown.append(str(shown))
            if self.api_key and shown != f"Bearer {self.api_key}":
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Request unauthorized.")
            try:
                behind: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)
                return await behind(request, metadata=metadata, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                context.set_trailing_metadata(tuple(error.trailing_metadata()))
                await context.abort(error.code(), error.details() or "")
                raise

        return grpc.unary_unary_rpc_method_handler(call)

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Front]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self,))
        pair = [(self.serving.key.read_bytes(), self.serving.certificate.read_bytes())]
        accepts = self.accepts.certificate.read_bytes() if self.accepts else None
        credentials = grpc.ssl_server_credentials(pair, accepts, require_client_auth=self.accepts is not None)
        server.add_secure_port(self.address, credentials)
        async with grpc.aio.insecure_channel(self.target) as self._channel:
            await server.start()
            try:
                yield self
            finally:
                await server.stop(0)


@contextmanager
def picky(serving: Pair, accepts: Pair) -> Iterator[str]:
    """A server that says why it refuses a client certificate, as Temporal's own does and gRPC's for Python does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(serving.certificate, serving.key)
    context.load_verify_locations(accepts.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])

    def refuse(plain: socket.socket) -> None:
        tls = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        with tls, contextlib.suppress(OSError):
            tls.settimeout(5)
            try:
                tls.do_handshake()
            finally:
                # The alert is on its way: what is closed with words of the client unread is reset, alert and all.
                rest = tls.detach()
                with socket.socket(fileno=rest) as raw:
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(65536):
                        pass

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=refuse, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
