"""A collector of traces, as small as the tests need it: it keeps the bodies that OTLP exporters send, unread.

Strings stand in protobuf as they are, so a search by value needs no schema.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def collector(bodies: list[bytes], port: int = 0) -> Iterator[str]:
    """Listens on a port of the loopback, a free one if none is asked for, and answers its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the base class's name
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
