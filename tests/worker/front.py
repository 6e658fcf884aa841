"""What stands before Temporal in production: TLS, client certificates, an API key in each call; behind it a real one.

It forwards calls as they are and notes what they were let in by, as Temporal Cloud's front would read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        metadata = tuple(
            (name, value)
            for name, value in handler_call_details.invocation_metadata
            if not name.startswith(("grpc-", ":")) and name not in ("user-agent", "authorization", "content-type", "te")
        )
        shown = dict(handler_call_details.invocation_metadata).get("authorization", "")

        async def call(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            self.shown.append(str(shown))
            if self.api_key and shown != f"Bearer {self.api_key}":
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Request unauthorized.")
            try:
                behind = self._channel.unary_unary(method)
                return bytes(await behind(request, metadata=metadata, timeout=context.time_remaining()))
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
