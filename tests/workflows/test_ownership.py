"""Whose object it is, and whether an apply would change it: contracts 3.4, 4.8."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.things import order
from workflows.api.keystoneproject import KeystoneProjectSpec
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.ownership import includes, owned, refusal, sweepable

OURS = ownership_labels(order())
PREFIX = "reporting-fa5e0ba7-project-"


def test_an_object_is_ours_by_all_three_labels() -> None:
    assert owned(OURS, OURS)
    assert owned({**OURS, "app": "x"}, OURS)
    for key in OURS:
        assert not owned({k: v for k, v in OURS.items() if k != key}, OURS), f"without {key}"
        assert not owned({**OURS, key: "other"}, OURS)
    assert not owned({}, OURS)


def test_a_same_named_order_elsewhere_owns_other_things() -> None:
    for other in (order(cluster="edge-1"), order(namespace="team-b"), order("reporting2")):
        assert not owned(ownership_labels(other), OURS)
        assert not owned(OURS, ownership_labels(other))


def test_a_sweep_wants_the_name_too() -> None:
    assert sweepable(f"{PREFIX}project", OURS, OURS, PREFIX)
    assert not sweepable("reporting", OURS, OURS, PREFIX)
    assert not sweepable(f"x{PREFIX}project", OURS, OURS, PREFIX)
    assert not sweepable(f"{PREFIX}project", {}, OURS, PREFIX)


def test_a_refusal_names_the_object_and_the_remedy() -> None:
    text = refusal("Project", "openstack", "a")
    for part in ("Project openstack/a", "was not created by this order", "delete or rename it"):
        assert part in text


WANTED: dict[str, Any] = {"metadata": {"labels": {"a": "1"}}, "spec": {"ref": {"name": "x"}, "list": [1, 2]}}


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (WANTED, True),
        ({**WANTED, "status": {}}, True),
        ({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {**WANTED["spec"], "more": 1}}, True),
        ({"metadata": {"labels": {"a": "2"}}, "spec": WANTED["spec"]}, False),
        ({"metadata": {"labels": {}}, "spec": WANTED["spec"]}, False),
        ({"metadata": {"labels": {"a": "1"}}, "spec": {"ref": {"name": "y"}, "list": [1, 2]}}, False),
        ({"metadata": {"labels": {"a": "1"}}, "spec": {"ref": None, "list": [1, 2]}}, False),
        ({"metadata": {"labels": {"a": "1"}}, "spec": {"ref": {"name": "x"}, "list": [1, 2, 3]}}, False),
        ({}, False),
    ],
)
def test_whether_an_apply_would_change_nothing(live: dict[str, Any], expected: bool) -> None:
    assert includes(live, WANTED) is expected


def test_the_projects_name_is_the_declared_one_or_the_orders_own() -> None:
    reference = {"controlPlaneRef": {"name": "cp"}}
    assert KeystoneProjectSpec.model_validate(reference).effective_name("reporting") == "reporting"
    assert KeystoneProjectSpec.model_validate({**reference, "projectName": ""}).effective_name("a.b") == "a.b"
    named = KeystoneProjectSpec.model_validate({**reference, "projectName": " Bílling X "})
    assert named.effective_name("reporting") == " Bílling X ", "verbatim"
