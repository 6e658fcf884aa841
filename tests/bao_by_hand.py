"""OpenBao by hand: an HTTPS server that asks for client certificates and answers what a test has it say."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from deploy.local.authority import Pair, authority, issue
from workflows.api.mariadbdatabase import Bao

TOKEN = "s.the-client-token"
LOGIN = "/v1/auth/kubernetes/management/login"
REVOKE_SELF = "/v1/auth/token/revoke-self"
ROLE = "/v1/database/mariadb/roles/order.openstack.a-12345678-database"
NAME = ROLE.rpartition("/")[2]


@dataclass
class Asked:
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at: float = field(default_factory=time.monotonic)


@dataclass
class Server:
    """An HTTPS server that asks for client certificates.

    answers  status, body and where else to ask, by `METHOD path`
    delay    seconds before each answer
    drip     seconds before each byte of a body
    """

    port: int
    ca: Pair
    client: Pair
    asked: list[Asked] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)
    delay: float = 0
    drip: float = 0

    @property
    def bao(self) -> Bao:
        return Bao(server=f"https://127.0.0.1:{self.port}")

    @property
    def pair(self) -> dict[str, bytes]:
        return {
            "ca.crt": self.ca.certificate.read_bytes(),
            "tls.crt": self.client.certificate.read_bytes(),
            "tls.key": self.client.key.read_bytes(),
        }

    def says(self, what: str, status: int, body: Any = None, *, location: str = "") -> None:
        self.answers[what] = (status, body if isinstance(body, bytes) else json.dumps(body).encode(), location)

    @property
    def calls(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.asked]


@contextmanager
def serving(folder: Path, *hosts: str) -> Iterator[Server]:
    """One that lets everybody in who has a certificate of its authority, which is the folder's. `hosts` is what its own
    certificate is for, where that is not this machine."""
    ca = authority(folder, "ca")
    pair = issue(ca, folder, f"server{len(hosts)}", hosts or ("localhost", "127.0.0.1"))
    made = Server(0, ca, issue(ca, folder, "client"))
    made.says(f"POST {LOGIN}", 200, {"auth": {"client_token": TOKEN}})
    made.says(f"POST {REVOKE_SELF}", 204, b"")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.asked.append(
                Asked(self.command, self.path, dict(self.headers.items()), json.loads(raw) if raw else None)
            )
            time.sleep(made.delay)
            status, body, location = made.answers.get(f"{self.command} {self.path}", (404, b'{"errors":[]}', ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            for byte in body if made.drip else ():
                time.sleep(made.drip)
                self.wfile.write(bytes([byte]))
            if not made.drip:
                self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that goes away is what half of these tests are about."""

    listener = Quiet(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(ca.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    made.port = listener.server_address[1]
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    yield made
    listener.shutdown()
    listener.server_close()


def expired(signer: Pair) -> tuple[bytes, bytes]:
    """A client's certificate that was good until yesterday, and its key."""
    root = x509.load_pem_x509_certificate(signer.certificate.read_bytes())
    root_key = serialization.load_pem_private_key(signer.key.read_bytes(), password=None)
    assert isinstance(root_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now, day = datetime.now(UTC), timedelta(days=1)
    made = (
        x509.CertificateBuilder(root.subject, root.subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - 3 * day)
        .not_valid_after(now - day)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), private
