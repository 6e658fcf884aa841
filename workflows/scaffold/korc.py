"""What K-ORC's conditions mean (contracts 4.1, 4.14, 5). The only place that knows K-ORC's words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum

from workflows.api.controlplane import ControlPlane
from workflows.api.korc import GROUP, KorcObject
from workflows.api.meta import find

PENDING_EXTERNAL = "Waiting for OpenStack resource to be created externally"
AMBIGUOUS = "found more than one matching OpenStack resource during import"
VANISHED = "resource has been deleted from OpenStack"
ASSIGNED_UNSEEN = "role assignment succeeded but could not be found in OpenStack"
"""Of a RoleAssignment: the list that follows the PUT failed, which K-ORC takes for an empty one."""

INVALID_CONFIGURATION = "InvalidConfiguration"
UNRECOVERABLE = "UnrecoverableError"

STALLED_AFTER = timedelta(minutes=2)

UNLATCHED_AT = "c5c3.io/korc-transport-unlatched-at"
"""Annotation with the time of the last clearing of a transport latch, RFC 3339 in UTC."""
UNLATCH_BACKOFF = timedelta(seconds=30)


class Probe(Enum):
    """What a collision probe says."""

    PENDING = "pending"
    ABSENT = "absent"
    RESOLVED = "resolved"


def up_to_date(child: KorcObject) -> bool:
    """Available, for the generation that is declared now."""
    available = find(child.status.conditions, "Available")
    return (
        available is not None
        and available.status == "True"
        and available.observed_generation == child.metadata.generation
    )


def available(child: KorcObject) -> bool:
    """Available, for whatever generation: what a child is that is being changed meanwhile."""
    condition = find(child.status.conditions, "Available")
    return condition is not None and condition.status == "True"


def finalizer(kind: str) -> str:
    """K-ORC's own finalizer on objects of the kind; without it K-ORC has not begun with the object."""
    return f"{GROUP}/{kind.lower()}"


def terminal(child: KorcObject) -> str | None:
    """K-ORC's words when it has stopped retrying at the current generation, else None."""
    progressing = find(child.status.conditions, "Progressing")
    if progressing is None or progressing.observed_generation != child.metadata.generation:
        return None
    return progressing.message if progressing.reason in (INVALID_CONFIGURATION, UNRECOVERABLE) else None


def vanished(child: KorcObject) -> bool:
    """Whether what it had found in Keystone is no more, and K-ORC has given it up for that."""
    words = terminal(child)
    return bool(child.status.id) and words is not None and VANISHED in words


def read_probe(probe: KorcObject) -> Probe:
    """The probe's verdict. Several matches are a match: something exists (doubt 12.16)."""
    if up_to_date(probe):
        return Probe.RESOLVED
    words = terminal(probe)
    if words is not None and AMBIGUOUS in words:
        return Probe.RESOLVED
    return Probe.ABSENT if pending_external(probe) else Probe.PENDING


def pending_external(child: KorcObject) -> bool:
    """Whether an import has looked and found nothing."""
    available = find(child.status.conditions, "Available")
    return available is not None and available.status == "False" and PENDING_EXTERNAL in available.message


def stalled(child: KorcObject, now: datetime) -> bool:
    """Whether an import has waited for its resource for longer than two minutes."""
    available = find(child.status.conditions, "Available")
    if available is None or not pending_external(child):
        return False
    since = available.last_transition_time
    return since is not None and now - since > STALLED_AFTER


def words(child: KorcObject) -> str:
    """K-ORC's last words on an object that is not Available, or that there are none yet."""
    for type_ in ("Progressing", "Available"):
        condition = find(child.status.conditions, type_)
        if condition is not None and condition.message:
            return condition.message
    return "K-ORC has not reported on it yet"


_CLASSES = (
    (("No suitable endpoint could be found in the service catalog",), "CatalogEndpointMismatch"),
    (("identity:create_application_credential",), "CredentialDrift"),
    (("x509",), "TLSVerificationFailed"),
    (("401", "Unauthorized"), "AuthenticationFailed"),
    (("no such host", "connection refused", "dial tcp", "i/o timeout"), "EndpointUnreachable"),
)
CLASSES = tuple(reason for _, reason in _CLASSES)
"""The reasons by which an External plane's waits are told apart."""


def classify(message: str) -> str | None:
    """The class of a K-ORC message by contracts 5: first row that matches wins, case-sensitive."""
    return next((reason for signals, reason in _CLASSES if any(signal in message for signal in signals)), None)


def classify_wait(plane: ControlPlane, waited_on: Iterable[KorcObject]) -> tuple[str, str] | None:
    """(reason, message) for a wait on an External plane whose cause K-ORC names, else None.

    Objects in the order given, their conditions as stored; K-ORC's text is relayed verbatim.
    """
    if not plane.external:
        return None
    for child in waited_on:
        if up_to_date(child):
            continue
        for condition in child.status.conditions:
            reason = classify(condition.message)
            if reason is not None:
                hint = _MISMATCH_HINT.format(plane.endpoint_type, plane.spec.region) if reason == _MISMATCH else ""
                return reason, f"{plane.auth_url}: {condition.message}{hint}"
    return None


_MISMATCH = "CatalogEndpointMismatch"
_MISMATCH_HINT = (
    " (the catalog must publish an identity endpoint of interface {0!r} in region {1!r}: see the ControlPlane's"
    " spec.services.keystone.external.endpointType and spec.region)"
)


def transport_latched(child: KorcObject) -> bool:
    """Terminal only because a connection failed while K-ORC created or updated (contracts 4.14), or while it looked
    for the role that it had just assigned: no other kind says that, and what it assigned is ours."""
    progressing = find(child.status.conditions, "Progressing")
    if progressing is None or progressing.observed_generation != child.metadata.generation:
        return False
    if progressing.reason == UNRECOVERABLE:
        return ASSIGNED_UNSEEN in progressing.message
    return progressing.reason == INVALID_CONFIGURATION and classify(progressing.message) == "EndpointUnreachable"


def unlatch_due(child: KorcObject, now: datetime) -> bool:
    """Whether the backoff since the last clearing is over; spread per child by its uid."""
    stamp = _time(child.metadata.annotations.get(UNLATCHED_AT, ""))
    if stamp is None or stamp > now:
        return True
    share = int.from_bytes(hashlib.sha256(child.metadata.uid.encode()).digest()[:4], "big") / 2**32
    return now - stamp > UNLATCH_BACKOFF * (1 + share)


def latched_since(child: KorcObject) -> datetime | None:
    """When K-ORC latched it."""
    progressing = find(child.status.conditions, "Progressing")
    return progressing.last_transition_time if progressing else None


def _time(text: str) -> datetime | None:
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return stamp if stamp.tzinfo else None  # without a zone it is not RFC 3339
