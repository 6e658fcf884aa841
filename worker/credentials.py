"""What lets us in at Temporal: TLS files and an API key, and in words why a server was not satisfied with them.

They are read anew whenever a connection is made, for they are rotated on disk beside running programs.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import TLSConfig
from temporalio.service import RPCError, RPCStatusCode

from worker.settings import ConnectionSettings

_REFUSED = frozenset({RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED})


class BadCredentials(Exception):
    """A file of ours cannot be what it is for; one sentence with the remedy."""


@dataclass(frozen=True)
class Credentials:
    """What a connection is made with."""

    api_key: str | None = field(repr=False)
    tls: TLSConfig | bool = field(repr=False)


def read(settings: ConnectionSettings) -> Credentials:
    """As the settings and their files have it now; certificates or an API key mean that TLS is wanted."""
    ca, cert, key = settings.temporal_tls_ca, settings.temporal_tls_cert, settings.temporal_tls_key
    try:
        api_key = settings.api_key()
        if api_key == "":
            raise BadCredentials(f"{settings.temporal_api_key_file} is empty: put the API key there")
        _check(ca, cert, key)
        if not (ca or cert or settings.temporal_tls_server_name):
            return Credentials(api_key, settings.temporal_tls or api_key is not None)
        return Credentials(
            api_key,
            TLSConfig(
                server_root_ca_cert=ca.read_bytes() if ca else None,
                domain=settings.temporal_tls_server_name,
                client_cert=cert.read_bytes() if cert else None,
                client_private_key=key.read_bytes() if key else None,
            ),
        )
    except OSError as error:
        raise BadCredentials(f"{error.filename} cannot be read ({error.strerror}): mount the Secret with it") from None


def _check(ca: Path | None, cert: Path | None, key: Path | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca:
            context.load_verify_locations(ca)
    except ssl.SSLError:
        raise BadCredentials(f"C5C3_TEMPORAL_TLS_CA {ca} holds no certificate: it is a PEM file with one") from None
    try:
        if cert and key:
            context.load_cert_chain(cert, key)
    except ssl.SSLError:
        raise BadCredentials(
            f"C5C3_TEMPORAL_TLS_CERT {cert} and C5C3_TEMPORAL_TLS_KEY {key} are no certificate and its key:"
            " they are PEM files of one pair"
        ) from None


def why_refused(failed: RPCError | RuntimeError, settings: ConnectionSettings) -> str | None:
    """What waiting would not mend of a failed connection, with the remedy; None where it may.

    The SDK says why no connection came about as a RuntimeError, in words of its parts alone.
    """
    where, error = f"Temporal at {settings.temporal_address}", str(failed)
    refused = isinstance(failed, RPCError) and failed.status in _REFUSED
    if refused or "code: Unauthenticated" in error or "code: PermissionDenied" in error:
        return (
            f"{where} does not let us into namespace {settings.temporal_namespace!r}: check C5C3_TEMPORAL_NAMESPACE,"
            " and C5C3_TEMPORAL_API_KEY or its file, or C5C3_TEMPORAL_TLS_CERT and C5C3_TEMPORAL_TLS_KEY"
        )
    if "received fatal alert: " in error:
        alert = error.split("received fatal alert: ", 1)[1].split('"')[0]
        return (
            f"{where} does not accept our client certificate ({alert}): set C5C3_TEMPORAL_TLS_CERT and"
            " C5C3_TEMPORAL_TLS_KEY to a pair that it accepts"
        )
    if "NotValidForName" in error:
        return (
            f"the certificate of {where} is for another name: set C5C3_TEMPORAL_ADDRESS to a name in it, or"
            " C5C3_TEMPORAL_TLS_SERVER_NAME"
        )
    if "InvalidCertificate(Expired" in error:
        return f"the certificate of {where} has expired: renew it there"
    if "InvalidCertificate(" in error:
        why = error.split("InvalidCertificate(", 1)[1].split(")")[0]
        return (
            f"the certificate of {where} is not accepted ({why}): set C5C3_TEMPORAL_TLS_CA to the PEM file of its"
            " authority"
        )
    if "InvalidMessage(" in error:
        return f"{where} does not speak TLS: unset C5C3_TEMPORAL_TLS and its files, or ask a port that does"
    return None


def hint(failed: RPCError | RuntimeError, shown: Credentials) -> str:
    """What it may be where a server lets nobody through and does not say why, as it does while it starts."""
    if "after connection" not in str(failed):
        return ""
    if not shown.tls:
        return " (if it speaks TLS, set C5C3_TEMPORAL_TLS=true)"
    return " (if it asks for a client certificate, check C5C3_TEMPORAL_TLS_CERT)"
