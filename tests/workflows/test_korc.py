"""What K-ORC's conditions mean: contracts 4.1, 4.14 and 5, row by row."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from tests.workflows.things import (
    ABSENT,
    AMBIGUOUS,
    AVAILABLE,
    NOW,
    PENDING,
    REFUSED,
    SUCCESS,
    condition,
    korc,
    plane,
    stopped,
)
from workflows.scaffold.korc import (
    UNLATCHED_AT,
    Probe,
    classify,
    classify_wait,
    latched_since,
    read_probe,
    stalled,
    terminal,
    transport_latched,
    unlatch_due,
    up_to_date,
    words,
)

URL = "https://keystone.example.com/v3"
STALE = 2  # objects are at generation 3
UNSEEN = "role assignment succeeded but could not be found in OpenStack"


@pytest.mark.row("K01")
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((AVAILABLE, SUCCESS), True),
        ((AVAILABLE,), True),
        ((condition("Available", "True", "Success", generation=STALE),), False),
        ((condition("Available", "True", "Success", generation=4),), False),
        ((condition("Available", "True", "Success", generation=None),), False),
        ((condition("Available", "False", "Success"),), False),
        ((condition("Available", "Unknown", "Success"),), False),
        ((condition("Progressing", "True", "Success"),), False),
        ((), False),
    ],
)
def test_available_is_true_at_the_declared_generation(conditions: tuple[dict[str, Any], ...], expected: bool) -> None:
    assert up_to_date(korc(*conditions)) is expected


@pytest.mark.row("K01")
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (stopped("no", "InvalidConfiguration"), "no"),
        (stopped("no", "UnrecoverableError"), "no"),
        (stopped("", "UnrecoverableError"), ""),
        (stopped("no", generation=STALE), None),
        (stopped("no", generation=None), None),
        ((condition("Progressing", "True", "TransientError", "no"),), None),
        ((condition("Progressing", "True", "Progressing", "no"),), None),
        ((condition("Progressing", "False", "Success", "no"),), None),
        ((condition("Available", "False", "InvalidConfiguration", "no"),), None),
        ((), None),
    ],
)
def test_terminal_is_a_reason_at_the_declared_generation(
    conditions: tuple[dict[str, Any], ...], expected: str | None
) -> None:
    assert terminal(korc(*conditions)) == expected


@pytest.mark.row("K01")
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((AVAILABLE, SUCCESS), Probe.RESOLVED),
        (stopped(AMBIGUOUS), Probe.RESOLVED),
        (stopped(AMBIGUOUS, generation=STALE), Probe.PENDING),
        (stopped("invalid configuration: no such cloud"), Probe.PENDING),
        (stopped("the resource has been deleted", "UnrecoverableError"), Probe.PENDING),
        (ABSENT, Probe.ABSENT),
        ((condition("Available", "False", "Progressing", f"{PENDING}\nand more"),), Probe.ABSENT),
        ((condition("Available", "True", "Progressing", PENDING, generation=STALE),), Probe.PENDING),
        ((condition("Available", "Unknown", "Progressing", PENDING),), Probe.PENDING),
        ((condition("Progressing", "True", "Progressing", PENDING),), Probe.PENDING),
        ((condition("Available", "False", "Progressing", PENDING.lower()),), Probe.PENDING),
        (
            (condition("Available", "False", "Progressing", "Waiting for Domain/cp-domain-default to be ready"),),
            Probe.PENDING,
        ),
        ((condition("Available", "False", "TransientError", "connection refused"),), Probe.PENDING),
        ((), Probe.PENDING),
    ],
)
def test_a_probe_is_pending_absent_or_resolved(conditions: tuple[dict[str, Any], ...], expected: Probe) -> None:
    assert read_probe(korc(*conditions)) is expected


@pytest.mark.row("K01")
@pytest.mark.parametrize(
    ("status", "message", "age", "expected"),
    [
        ("False", PENDING, 121, True),
        ("False", PENDING, 120, False),
        ("False", PENDING, 5, False),
        ("True", PENDING, 1000, False),
        ("Unknown", PENDING, 1000, False),
        ("False", "Waiting for Domain/x to be ready", 1000, False),
    ],
)
def test_an_import_stalls_after_two_minutes(status: str, message: str, age: int, expected: bool) -> None:
    since = NOW - timedelta(seconds=age)
    assert stalled(korc(condition("Available", status, "Progressing", message, since=since)), NOW) is expected


@pytest.mark.row("K01")
def test_nothing_stalls_that_says_nothing() -> None:
    assert not stalled(korc(), NOW)
    silent = {"type": "Available", "status": "False", "message": PENDING}
    assert not stalled(korc(silent), NOW), "without a time there is no age"


def test_the_last_words_are_those_of_progress_first() -> None:
    two = (condition("Available", "False", "", "second"), condition("Progressing", "True", "", "first"))
    assert words(korc(*two)) == "first"
    assert words(korc(two[0])) == "second"
    assert words(korc(condition("Progressing", "True"), two[0])) == "second"
    assert "not reported" in words(korc())


CLASSES = [
    ("No suitable endpoint could be found in the service catalog.", "CatalogEndpointMismatch"),
    ("You are not authorized to perform identity:create_application_credential", "CredentialDrift"),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "TLSVerificationFailed"),
    ("Expected HTTP 201 but got 401", "AuthenticationFailed"),
    ("Unauthorized", "AuthenticationFailed"),
    ("lookup keystone.example: no such host", "EndpointUnreachable"),
    ("connection refused", "EndpointUnreachable"),
    ("dial tcp 10.0.0.1:5000", "EndpointUnreachable"),
    ("read: i/o timeout", "EndpointUnreachable"),
]


@pytest.mark.row("K02")
@pytest.mark.parametrize(("message", "reason"), CLASSES)
def test_each_signal_has_its_class(message: str, reason: str) -> None:
    assert classify(message) == reason
    assert classify(f"before: {message}, after") == reason


@pytest.mark.row("K02")
@pytest.mark.parametrize("upper", range(len(CLASSES)))
def test_of_two_signals_the_upper_row_wins(upper: int) -> None:
    for lower in range(upper + 1, len(CLASSES)):
        assert classify(f"{CLASSES[lower][0]} {CLASSES[upper][0]}") == CLASSES[upper][1]
        assert classify(f"{CLASSES[upper][0]} {CLASSES[lower][0]}") == CLASSES[upper][1]


@pytest.mark.row("K02")
@pytest.mark.parametrize(
    "message",
    [
        "",
        "Waiting for Domain/x to be ready",
        "X509",
        "unauthorized",
        "Connection Refused",
        "DIAL TCP",
        "I/O timeout",
        "40 1",
    ],
)
def test_other_words_have_no_class(message: str) -> None:
    assert classify(message) is None


@pytest.mark.row("K02")
@pytest.mark.parametrize(("message", "reason"), CLASSES[1:])
def test_the_text_is_relayed_verbatim_after_the_url(message: str, reason: str) -> None:
    text = f'  {message}\n\twith "quotes" and ünïcode  '
    child = korc(condition("Progressing", "True", "TransientError", text))
    assert classify_wait(plane(external=URL), (child,)) == (reason, f"{URL}: {text}")


@pytest.mark.row("K02")
def test_a_mismatch_names_interface_region_and_their_fields() -> None:
    child = korc(condition("Progressing", "True", "TransientError", CLASSES[0][0]))
    found = classify_wait(plane(external=URL), (child,))
    assert found is not None
    reason, message = found
    assert reason == "CatalogEndpointMismatch"
    assert message.startswith(f"{URL}: {CLASSES[0][0]}")
    for part in ("'public'", "'RegionOne'", "external.endpointType", "spec.region"):
        assert part in message


@pytest.mark.row("K02")
def test_the_first_object_wins_then_its_first_condition() -> None:
    refused = condition("Progressing", "True", "TransientError", "connection refused")
    denied = condition("Available", "False", "TransientError", "401")
    quiet = korc(condition("Progressing", "True", "Progressing", "Waiting for Domain/x to be ready"))
    external = plane(external=URL)
    assert (classify_wait(external, (korc(refused), korc(denied))) or ("",))[0] == "EndpointUnreachable"
    assert (classify_wait(external, (korc(denied), korc(refused))) or ("",))[0] == "AuthenticationFailed"
    assert (classify_wait(external, (korc(refused, denied),)) or ("",))[0] == "EndpointUnreachable"
    assert (classify_wait(external, (korc(denied, refused),)) or ("",))[0] == "AuthenticationFailed"
    assert (classify_wait(external, (quiet, korc(denied))) or ("",))[0] == "AuthenticationFailed"
    assert classify_wait(external, (quiet,)) is None
    assert classify_wait(external, ()) is None


@pytest.mark.row("K02")
def test_an_object_that_is_up_to_date_is_passed_over() -> None:
    """Its words are old; one that is Available for an older generation is not up to date."""
    old_words = condition("Progressing", "True", "TransientError", "connection refused")
    assert classify_wait(plane(external=URL), (korc(AVAILABLE, old_words),)) is None
    stale = condition("Available", "True", "Success", generation=STALE)
    assert classify_wait(plane(external=URL), (korc(stale, old_words),)) is not None


def test_nothing_is_classified_on_a_managed_plane() -> None:
    for message, _ in CLASSES:
        assert classify_wait(plane(), (korc(condition("Progressing", "True", "TransientError", message)),)) is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (stopped(REFUSED), True),
        (stopped("lookup k: no such host"), True),
        (stopped("Post: i/o timeout"), True),
        (stopped(REFUSED, "UnrecoverableError"), False),
        (stopped(UNSEEN, "UnrecoverableError"), True),
        (stopped(UNSEEN), False),
        (stopped(UNSEEN, "UnrecoverableError", generation=STALE), False),
        (stopped("found more than one matching role assignment after creation", "UnrecoverableError"), False),
        (stopped("role assignment has been deleted from OpenStack", "UnrecoverableError"), False),
        (stopped(f"{REFUSED} x509"), False),
        (stopped(f"{REFUSED} 401"), False),
        (stopped(f"{REFUSED} Unauthorized"), False),
        (stopped("Expected HTTP 201 but got 409"), False),
        (stopped("invalid configuration: bad name"), False),
        (stopped(REFUSED, generation=STALE), False),
        ((condition("Progressing", "True", "TransientError", REFUSED),), False),
        ((condition("Available", "False", "InvalidConfiguration", REFUSED),), False),
        ((), False),
    ],
)
def test_a_transport_latch_is_a_refused_connection_and_nothing_else(
    conditions: tuple[dict[str, Any], ...], expected: bool
) -> None:
    assert transport_latched(korc(*conditions)) is expected


def offset_of(uid: str) -> float:
    """30 s x (first four bytes of sha256(child UID), big-endian) / 2^32."""
    return 30 * int(hashlib.sha256(uid.encode()).hexdigest()[:8], 16) / 2**32


def stamped(text: str) -> Any:
    return korc(*stopped(), annotations={UNLATCHED_AT: text})


def test_a_latch_is_cleared_after_a_pause_of_its_own() -> None:
    """30 s and the child's offset, which is some seconds here, so that the test would notice its absence."""
    pause = 30 + offset_of("0c7f6f0e-5d0b-4a53-8bd8-1a0e1a1b2c3d")
    assert 31 < pause < 59
    for age, due in ((0, False), (30.5, False), (pause - 0.1, False), (pause + 0.1, True), (3600, True)):
        stamp = NOW - timedelta(seconds=age)
        assert unlatch_due(stamped(stamp.isoformat()), NOW) is due, age
        assert unlatch_due(stamped(stamp.isoformat().replace("+00:00", "Z")), NOW) is due, age


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-11-30T12:00:00",
        "1796083200",
        "2026-11-30T12:00:01Z",
        "2099-01-01T00:00:00Z",
    ],
)
def test_a_stamp_that_cannot_be_counted_from_makes_it_due(text: str) -> None:
    """Absent, unparsable (RFC 3339 has a zone), or in the future."""
    assert unlatch_due(stamped(text), NOW)


def test_a_child_without_a_stamp_is_due() -> None:
    assert unlatch_due(korc(*stopped()), NOW)


def test_the_pause_is_the_childs_own() -> None:
    for uid in ("a", "b", "c"):
        pause = 30 + offset_of(uid)
        for age, due in ((pause - 0.1, False), (pause + 0.1, True)):
            child = stamped((NOW - timedelta(seconds=age)).isoformat())
            child = child.model_copy(update={"metadata": child.metadata.model_copy(update={"uid": uid})})
            assert unlatch_due(child, NOW) is due, (uid, age)
    assert len({round(offset_of(uid)) for uid in ("a", "b", "c")}) == 3


def test_when_it_was_latched() -> None:
    since = NOW - timedelta(minutes=7)
    assert latched_since(korc(*stopped(since=since))) == since
    assert latched_since(korc()) is None
