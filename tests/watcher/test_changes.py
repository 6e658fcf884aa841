"""What counts as a change: every field that a judge reads, and no other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.watcher.objects import Object, child, naming, order, plane, ready
from watcher import changes

FACTS: dict[str, Callable[[Object], object]] = {
    "order": changes.order,
    "plane": changes.plane,
    "child": changes.child,
    "reference": changes.reference,
}
MADE: dict[str, Object] = {
    "order": ready(order(labels={"a": "b"}, annotations={"c5c3.io/x": "1"}, finalizers=["f"])),
    "plane": plane(annotations={"c5c3.io/x": "1"}),
    "child": child(status="False"),
    "reference": naming("reporting"),
}


def put(found: Object, path: str, value: Any) -> Object:
    changed = copy.deepcopy(found)
    *parents, last = path.split("/")
    at: Any = changed
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
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
