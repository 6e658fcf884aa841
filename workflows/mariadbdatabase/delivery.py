"""The judge of the Secret beside the order: the address that is told there, and what it should hold (4.12, delivery).

Values are compared by what stands for them; no value is seen here.
"""

from __future__ import annotations

from pydantic import Field

from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.mariadbdatabase import MariaDBDatabaseStatus
from workflows.api.meta import Model
from workflows.mariadbdatabase import children, reasons
from workflows.mariadbdatabase.children import Ordered
from workflows.scaffold.child import the, write
from workflows.scaffold.ownership import includes
from workflows.scaffold.verdict import REFRESH_SECONDS, WAIT_SECONDS, Act, Decision, Verdict

PORT = 3306
CA = "ca.crt"
KEYS = ("host", "port", "database", "username", "password")


class Address(Model):
    """Where the order's cluster reaches the database."""

    host: str
    port: int


class Ca(Model):
    """The authority of a database that speaks TLS.

    where  the Secret that should hold it, in words
    value  what stands for it; empty while it is not there
    """

    where: str
    value: str = ""


class Parcel(Model):
    """What was read for a delivery.

    credential  the Secret that External Secrets wrote, by what stands for its values
    refreshed   when it did, as External Secrets says
    ca          None without TLS
    live        the Secret beside the order, likewise
    ours        the keys of `live` that an apply of ours has set: what else is in it is somebody else's
    wanted      what stands for each value that should be in it
    """

    credential: KorcObject | None = None
    refreshed: str = ""
    ca: Ca | None = None
    live: KorcObject | None = None
    ours: frozenset[str] = frozenset()
    wanted: dict[str, str] = Field(default_factory=dict)


def address(want: Ordered) -> Address | Decision:
    """The server's Service beside Keystone; elsewhere what the plane publishes. Or why there is none."""
    plane, order = want.plane, want.order
    inside = f"{want.mariadb}.{plane.keystone_namespace}.svc"
    if order.cluster == plane.keystone_cluster:
        return Address(host=inside, port=PORT)
    endpoint = plane.published_database_endpoint
    where = f"cluster {order.cluster!r}" if order.cluster else "the management cluster"
    if not endpoint:
        return _refuse(
            reasons.NOT_PUBLISHED,
            f"The order is on {where}, where {inside}:{PORT} is not reached: set spec.infrastructure"
            f".publishedDatabaseEndpoint of ControlPlane {plane.key} to an address that is.",
        )
    found = split(endpoint)
    if found is None:
        return _refuse(
            reasons.DELIVERY_ERROR,
            f"spec.infrastructure.publishedDatabaseEndpoint of ControlPlane {plane.key} is {endpoint!r}, which is not"
            " HOST:PORT with a port from 1 to 65535 ([HOST]:PORT for IPv6).",
        )
    return found


def split(endpoint: str) -> Address | None:
    """`host:port` in two; None if it is not that. An IPv6 host stands in brackets, which are not part of it."""
    host, _, port = endpoint.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not host or (":" in host) != bracketed or any(char in host for char in "[]/ "):
        return None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return None
    return Address(host=host, port=int(port))


def ca_secret(plane: ControlPlane) -> str | None:
    """The name of the Secret with the authority; None without TLS, empty if TLS is on and none is named."""
    tls = plane.database.tls if plane.database else None
    return tls.ca_bundle_secret_ref.name if tls is not None and tls.enabled else None


def keys(parcel: Parcel) -> tuple[str, ...]:
    return KEYS if parcel.ca is None else (*KEYS, CA)


def judge_delivery(want: Ordered, to: Address, parcel: Parcel) -> Decision:
    """How the delivery stands: a chain of early returns, in the order of contracts 4.12."""
    order, body = want.order, children.delivered(want)
    if parcel.ca is not None and not parcel.ca.value:
        message = f"The database speaks TLS, and {parcel.ca.where} has no {CA} to deliver."
        return _wait(reasons.WAITING_FOR_CA, message)
    if not _complete(parcel.credential):
        message = f"{the(children.credentials(want))} has no user name and password to deliver."
        return _wait(reasons.WAITING_FOR_CREDENTIALS, message)
    live, owned = parcel.live, children.marks(order, want.uid)
    if live is not None and not owned.controls(live.metadata):
        return _refuse(
            reasons.REFUSED,
            f"{the(body)} exists and was not made by this order, so it is left alone: delete it, or order under"
            " another name.",
        )
    if live is None or not _as_wanted(live, parcel, body["metadata"]["labels"]):
        decision = _wait(reasons.WAITING_FOR_CREDENTIALS, f"{the(body)} does not hold the current credential yet.")
        return decision.model_copy(update={"do": (write(Act.APPLY, body),)})
    delivered = keys(parcel)
    status = MariaDBDatabaseStatus(
        host=to.host,
        port=to.port,
        credentials_refreshed_at=parcel.refreshed,
        secret_name=live.metadata.name,
        secret_keys=delivered,
    )
    fields = {key: value for key, value in status.model_dump(mode="json", by_alias=True).items() if value}
    message = f"{the(body)} holds {', '.join(delivered)}; the database is reached at {to.host}:{to.port} from there."
    verdict = Verdict(type=reasons.DELIVERY_READY, status=True, reason=reasons.DELIVERED, message=message)
    return Decision(verdict=verdict, fields=fields)


def skipped(provision: Verdict) -> Verdict:
    """What the delivery reads while there is nothing to deliver yet."""
    message = f"There is no credential to deliver while DatabaseReady reads {provision.reason}."
    return _false(reasons.WAITING_FOR_CREDENTIALS, message, provision.again)


def _complete(credential: KorcObject | None) -> bool:
    return credential is not None and all(credential.data.get(key) for key in ("username", "password"))


def _as_wanted(live: KorcObject, parcel: Parcel, labels: dict[str, str]) -> bool:
    """Whether it says all that is wanted, and nothing of ours beyond it: an authority no longer used goes."""
    stale = parcel.ours - parcel.wanted.keys()
    return includes(live.data, parcel.wanted) and not stale and includes(live.metadata.labels, labels)


def _refuse(reason: str, message: str) -> Decision:
    return Decision(verdict=_false(reason, message, REFRESH_SECONDS))


def _wait(reason: str, message: str) -> Decision:
    return Decision(verdict=_false(reason, message, WAIT_SECONDS))


def _false(reason: str, message: str, again: float | None) -> Verdict:
    return Verdict(type=reasons.DELIVERY_READY, status=False, reason=reason, message=message, again=again)
