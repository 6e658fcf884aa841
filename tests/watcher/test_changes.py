"""What counts as a change: every field that a judge reads, and no other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.watcher.objects import Object, child, naming, order, part, plane, ready, says, secret, service
from watcher import changes
from workflows.keystoneservice.children import GENERATION

FACTS: dict[str, Callable[[Object], object]] = {
    "order": changes.order,
    "plane": changes.plane,
    "child": changes.child,
    "user": changes.user,
    "delivery": changes.delivery,
    "secret": changes.secret,
    "reference": changes.reference,
}
MADE: dict[str, Object] = {
    "order": ready(order(labels={"a": "b"}, annotations={"c5c3.io/x": "1"}, finalizers=["f"])),
    "plane": plane(annotations={"c5c3.io/x": "1"}),
    "child": child(status="False"),
    "user": says(part("u", of=service(), annotations={GENERATION: "1"}), "Available", "True",
                 resource={"name": "images", "appliedPasswordRef": "p-password-v1"}),
    "delivery": says(part("d", of=service(), annotations={"a": "b"}), "Ready", "True", syncedResourceVersion="1-a"),
    "secret": secret("s", of=service()),
    "reference": naming("reporting"),
}  # fmt: skip


def put(found: Object, path: str, value: Any) -> Object:
    changed = copy.deepcopy(found)
    *parents, last = path.split("/")
    at: Any = changed
    for step in parents:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    at[last] = value
    return changed


@pytest.mark.parametrize(
    ("kind", "path", "value", "news"),
    [
        ("order", "metadata/generation", 2, True),
        ("order", "metadata/uid", "other", True),
        ("order", "metadata/labels", {"a": "c"}, True),
        ("order", "metadata/annotations", {"c5c3.io/paused": "true"}, True),
        ("order", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", True),
        ("order", "metadata/finalizers", [], False),
        ("order", "metadata/resourceVersion", "99", False),
        ("order", "metadata/managedFields", [{"manager": "x"}], False),
        ("order", "status/observedGeneration", 1, False),
        ("order", "status/conditions/0/status", "False", False),
        ("plane", "metadata/generation", 2, True),
        ("plane", "metadata/annotations", {"c5c3.io/paused": "true"}, True),
        ("plane", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", True),
        ("plane", "status/conditions/0/status", "False", True),
        ("plane", "status/conditions/0/message", "words", False),
        ("plane", "status/endpoint", "words", False),
        ("plane", "metadata/labels", {"a": "c"}, False),
        ("child", "metadata/uid", "other", True),
        ("child", "metadata/generation", 2, True),
        ("child", "metadata/labels", {}, True),
        ("child", "metadata/ownerReferences", [{"name": "x"}], True),
        ("child", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", True),
        ("child", "status/id", "1234", True),
        ("child", "status/conditions/0/status", "True", True),
        ("child", "status/conditions/0/reason", "Success", True),
        ("child", "status/conditions/0/message", "words", True),
        ("child", "status/conditions/0/observedGeneration", 2, True),
        ("child", "status/conditions/0/lastTransitionTime", "2026-11-30T00:00:00Z", False),
        ("child", "metadata/annotations", {"a": "b"}, False),
        ("child", "metadata/finalizers", ["f"], False),
        ("child", "status/resource", {"name": "x"}, False),
        ("child", "status/resource", {"userID": "x"}, True),
        ("user", "metadata/generation", 2, True),
        ("user", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", True),
        ("user", "metadata/labels", {}, True),
        ("user", "status/id", "1234", True),
        ("user", "status/conditions/0/status", "False", True),
        ("user", "status/resource", {"appliedPasswordRef": "p-password-v2"}, True),
        ("user", "status/resource", {"name": "other", "appliedPasswordRef": "p-password-v1"}, False),
        ("user", "metadata/annotations", {GENERATION: ""}, True),
        ("user", "metadata/annotations", {}, True),
        ("user", "metadata/annotations", {GENERATION: "7", "c5c3.io/korc-transport-unlatched-at": "now"}, False),
        ("delivery", "metadata/uid", "other", True),
        ("delivery", "metadata/generation", 2, True),
        ("delivery", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", True),
        ("delivery", "metadata/labels", {}, True),
        ("delivery", "metadata/annotations", {"a": "c"}, True),
        ("delivery", "metadata/ownerReferences", [{"name": "x"}], True),
        ("delivery", "metadata/finalizers", ["f"], False),
        ("delivery", "metadata/resourceVersion", "99", False),
        ("delivery", "status/syncedResourceVersion", "1-b", True),
        ("delivery", "status/conditions/0/status", "False", True),
        ("delivery", "status/conditions/0/reason", "Errored", True),
        ("delivery", "status/conditions/0/message", "words", True),
        ("delivery", "status/conditions/0/lastTransitionTime", "2026-11-30T00:00:00Z", False),
        ("delivery", "status/refreshTime", "2026-11-30T00:00:00Z", False),
        ("secret", "metadata/uid", "other", True),
        ("secret", "metadata/resourceVersion", "8", True),
        ("secret", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", True),
        ("reference", "spec/projectRef", {"name": "other"}, True),
        ("reference", "metadata/uid", "other", True),
        ("reference", "metadata/deletionTimestamp", "2026-11-30T00:00:00Z", False),
        ("reference", "status/conditions", [{"type": "Ready"}], False),
    ],
)
def test_a_change_is_what_a_judge_reads(kind: str, path: str, value: object, news: bool) -> None:
    facts, before = FACTS[kind], MADE[kind]
    after = put(before, path, value)
    assert (changes.digest(facts(before)) != changes.digest(facts(after))) is news


@pytest.mark.parametrize(
    ("found", "converged"),
    [
        (ready(order()), True),
        (order(), False),
        (ready(order(), "False"), False),
        (ready(order(generation=2)), False),
        (ready(order(deletionTimestamp="2026-11-30T00:00:00Z")), False),
    ],
)
def test_converged_is_ready_at_the_present_generation(found: Object, converged: bool) -> None:
    assert changes.converged(found) is converged


LEAVING: Any = {"deletionTimestamp": "2026-11-30T00:00:00Z"}


@pytest.mark.parametrize(
    ("found", "well"),
    [
        (says(part("endpoint"), "Available", "True"), True),
        (says(part("endpoint", generation=7), "Available", "True"), True),
        (says(part("endpoint", **LEAVING), "Available", "True"), False),
        (says(part("endpoint"), "Available", "False"), False),
        (says(part("endpoint"), "Progressing", "True"), False),
        (put(says(part("endpoint"), "Available", "True"), "metadata/generation", 2), False),
        (part("endpoint"), False),
        (put(part("role"), "spec/managementPolicy", "unmanaged"), False),
        (put(says(part("role"), "Available", "True"), "spec/managementPolicy", "unmanaged"), True),
        (put(says(part("role", **LEAVING), "Available", "True"), "spec/managementPolicy", "unmanaged"), False),
        (put(part("user-probe"), "spec/managementPolicy", "unmanaged"), True),
        (put(part("user-probe", **LEAVING), "spec/managementPolicy", "unmanaged"), True),
        (put(part("a-probe"), "spec/managementPolicy", "managed"), False),
    ],
)
def test_well_is_available_as_it_is_written_and_there_to_stay(found: Object, well: bool) -> None:
    assert changes.well(found) is well


@pytest.mark.parametrize(
    ("found", "delivered"),
    [
        (says(part("backup"), "Ready", "True"), True),
        (says(part("backup"), "Ready", "False"), False),
        (says(part("backup"), "Deleted", "True"), False),
        (says(part("backup", **LEAVING), "Ready", "True"), False),
        (part("backup"), False),
    ],
)
def test_delivered_is_ready_and_there_to_stay(found: Object, delivered: bool) -> None:
    assert changes.delivered(found) is delivered


@pytest.mark.parametrize("field", ["uid", "generation", "labels", "annotations", "ownerReferences"])
def test_what_people_write_is_told_from_what_controllers_say(field: str) -> None:
    found = says(part("endpoint", annotations={"a": "b"}), "Available", "True")
    assert changes.written(put(found, f"metadata/{field}", "other")) != changes.written(found)
    assert changes.written(put(found, "metadata/resourceVersion", "9")) == changes.written(found)
    assert changes.written(put(found, "status", {})) == changes.written(found)
    assert changes.written(secret("s", version="8")) != changes.written(secret("s", version="7"))


def test_a_child_nobody_has_looked_at_says_nothing() -> None:
    assert changes.unspoken(child())
    assert not changes.unspoken(child(status="False"))
    assert not changes.unspoken(child(deletionTimestamp="2026-11-30T00:00:00Z"))


@pytest.mark.parametrize("broken", [{}, {"metadata": None}, {"metadata": {}, "status": [], "spec": "x"},
                                    {"metadata": {}, "status": {"conditions": ["x", None]}}])  # fmt: skip
def test_what_other_people_write_is_never_too_strange(broken: Object) -> None:
    for facts in FACTS.values():
        assert changes.digest(facts(broken))
    assert not changes.converged(broken)
