"""Status as it is written: what differs and nothing else, and time that moves only with a flip."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from workflows.scaffold.conditions import changes
from workflows.scaffold.verdict import MESSAGE_LIMIT, Verdict, cut

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
THEN = "2026-01-01T00:00:00Z"
TYPES = ("ProjectReady",)
FIELDS = {"projectID": "id-1", "projectName": "billing", "domainName": "Default"}


def verdict(status: bool = True, reason: str = "ProjectProvisioned", message: str = "It exists.") -> Verdict:
    return Verdict(type="ProjectReady", status=status, reason=reason, message=message)


def written(patch: dict[str, Any] | None, live: dict[str, Any] | None = None) -> dict[str, Any]:
    """The status after a JSON merge patch."""
    assert patch is not None
    return {**(live or {}), **patch}


def of(status: dict[str, Any], type_: str) -> dict[str, Any]:
    found = [each for each in status["conditions"] if each["type"] == type_]
    assert len(found) == 1
    return dict(found[0])


def settled(**about: Any) -> dict[str, Any]:
    status = written(changes({}, 2, TYPES, (verdict(**about),), FIELDS, "", NOW))
    for each in status["conditions"]:
        each["lastTransitionTime"] = THEN
    return status


def test_a_first_status_has_every_part() -> None:
    status = written(changes({}, 2, TYPES, (verdict(),), FIELDS, "", NOW))
    assert status == {
        "observedGeneration": 2,
        **FIELDS,
        "conditions": [
            {
                "type": "ProjectReady",
                "status": "True",
                "reason": "ProjectProvisioned",
                "message": "It exists.",
                "observedGeneration": 2,
                "lastTransitionTime": "2026-11-30T12:00:00Z",
            },
            {
                "type": "Ready",
                "status": "True",
                "reason": "AllReady",
                "message": of(status, "Ready")["message"],
                "observedGeneration": 2,
                "lastTransitionTime": "2026-11-30T12:00:00Z",
            },
        ],
    }


def test_an_equal_status_is_no_write() -> None:
    assert changes(settled(), 2, TYPES, (verdict(),), FIELDS, "", NOW) is None
    assert changes(settled(status=False), 2, TYPES, (verdict(status=False),), FIELDS, "", NOW) is None


def test_a_new_message_is_written_and_time_stands_still() -> None:
    status = written(changes(settled(), 2, TYPES, (verdict(message="Still there."),), FIELDS, "", NOW))
    assert of(status, "ProjectReady")["message"] == "Still there."
    assert of(status, "ProjectReady")["lastTransitionTime"] == THEN


def test_a_new_reason_without_a_flip_leaves_time_alone() -> None:
    live = settled(status=False, reason="WaitingForProject")
    status = written(changes(live, 2, TYPES, (verdict(status=False, reason="ProjectFailed"),), {}, "", NOW))
    assert of(status, "ProjectReady")["reason"] == "ProjectFailed"
    assert of(status, "ProjectReady")["lastTransitionTime"] == THEN
    assert of(status, "Ready")["lastTransitionTime"] == THEN


@pytest.mark.parametrize("before", [True, False])
def test_a_flip_moves_time_of_the_condition_and_of_ready(before: bool) -> None:
    status = written(changes(settled(status=before), 2, TYPES, (verdict(status=not before),), {}, "", NOW))
    for type_ in ("ProjectReady", "Ready"):
        assert of(status, type_)["status"] == str(not before)
        assert of(status, type_)["lastTransitionTime"] == "2026-11-30T12:00:00Z"


def test_unknown_is_not_false() -> None:
    live = settled(status=False)
    live["conditions"][0]["status"] = "Unknown"
    status = written(changes(live, 2, TYPES, (verdict(status=False),), {}, "", NOW))
    assert of(status, "ProjectReady")["lastTransitionTime"] == "2026-11-30T12:00:00Z"


def test_a_new_generation_is_recorded_everywhere_without_moving_time() -> None:
    status = written(changes(settled(), 3, TYPES, (verdict(),), FIELDS, "", NOW))
    assert status["observedGeneration"] == 3
    for type_ in ("ProjectReady", "Ready"):
        assert of(status, type_)["observedGeneration"] == 3
        assert of(status, type_)["lastTransitionTime"] == THEN


def test_foreign_conditions_are_kept_and_do_not_count() -> None:
    foreign = {"type": "BackedUp", "status": "False", "reason": "Never", "message": "", "lastTransitionTime": THEN}
    live = settled(status=False)
    live["conditions"].insert(0, foreign)
    status = written(changes(live, 2, TYPES, (verdict(),), {}, "", NOW))
    assert of(status, "BackedUp") == foreign
    assert of(status, "Ready")["status"] == "True"
    assert len(status["conditions"]) == 3


def test_fields_that_are_not_named_are_kept() -> None:
    patch = changes(settled(), 2, TYPES, (verdict(status=False),), {}, "", NOW)
    assert patch is not None
    assert set(patch) == {"conditions"}, "a merge patch keeps what it does not say"


def test_only_a_changed_field_is_written() -> None:
    patch = changes(settled(), 2, TYPES, (verdict(),), {**FIELDS, "projectID": "id-2"}, "", NOW)
    assert patch == {"projectID": "id-2"}


def test_ready_needs_every_listed_condition_present_and_true() -> None:
    two = ("ProjectReady", "OtherReady")
    status = written(changes({}, 1, two, (verdict(),), {}, "", NOW))
    assert of(status, "Ready")["status"] == "False"
    assert of(status, "Ready")["reason"] == "NotAllReady"
    assert "OtherReady" in of(status, "Ready")["message"]
    other = Verdict(type="OtherReady", status=True, reason="R", message="m")
    assert of(written(changes(status, 1, two, (other,), {}, "", NOW), status), "Ready")["status"] == "True"
    stale = {"conditions": [{"type": "OtherReady", "status": "Unknown"}]}
    assert of(written(changes(stale, 1, two, (verdict(),), {}, "", NOW), stale), "Ready")["status"] == "False"


def test_a_note_is_said_by_ready_and_leaves_the_rest() -> None:
    live = settled()
    status = written(changes(live, 2, TYPES, (), {}, "reading ControlPlane: 503", NOW), live)
    assert of(status, "ProjectReady") == of(live, "ProjectReady")
    assert of(status, "Ready")["status"] == "False"
    assert of(status, "Ready")["reason"] == "NotAllReady"
    assert of(status, "Ready")["message"] == "reading ControlPlane: 503"
    assert status["projectID"] == "id-1"


@pytest.mark.parametrize("letter", ["a", "é", "€", "𝒳"])
def test_a_long_message_is_cut_on_a_character(letter: str) -> None:
    for length in range(MESSAGE_LIMIT - 8, MESSAGE_LIMIT + 9):
        text = letter * (length // len(letter.encode())) + "a" * (length % len(letter.encode()))
        assert len(text.encode()) == length
        short = cut(text)
        assert len(short.encode()) <= 32768
        if length <= 32768:
            assert short == text
        else:
            assert short.endswith(" […truncated]")
            assert text.startswith(short.removesuffix(" […truncated]"))
            assert 32768 - len(short.encode()) < len(letter.encode()), "no more is cut than must be"


def test_the_cut_applies_to_what_is_written() -> None:
    status = written(changes({}, 1, TYPES, (verdict(message="€" * 20000),), {}, "é" * 40000, NOW))
    for each in status["conditions"]:
        assert len(each["message"].encode()) <= 32768
        assert each["message"].endswith(" […truncated]")


# -- fields that are maps ---------------------------------------------------------------------------------------


def merged(live: Any, patch: Any) -> Any:
    """RFC 7396, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@pytest.mark.row("S27")
@pytest.mark.parametrize(
    "before", [None, {}, {"userID": "u"}, {"userID": "u", "passwordGeneration": 3, "secretName": "s"}]
)
@pytest.mark.parametrize("after", [None, {}, {"userID": "v"}, {"secretName": "s"}, {"a": {"b": 1}, "c": [1]}])
def test_a_map_reads_exactly_as_it_was_found_whatever_it_said_before(before: Any, after: Any) -> None:
    live = {**settled(), **({} if before is None else {"account": before})}
    patch = changes(live, 2, TYPES, (verdict(),), {**FIELDS, "account": after}, "", NOW)
    found = merged(live, patch) if patch is not None else live
    assert found.get("account") == after
    assert (patch is None) == (before == after)


@pytest.mark.row("S27")
def test_a_key_that_is_gone_is_nulled_in_a_map_of_a_map_too() -> None:
    live = {**settled(), "account": {"a": {"b": 1, "c": 2}, "d": 1}}
    patch = changes(live, 2, TYPES, (verdict(),), {**FIELDS, "account": {"a": {"b": 1}}}, "", NOW)
    assert patch == {"account": {"a": {"b": 1, "c": None}, "d": None}}
