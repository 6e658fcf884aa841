"""Whose object it is, and whether an apply would change it: contracts 3.4, 4.8."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.things import order
from workflows.api.keystoneproject import KeystoneProjectSpec
from workflows.api.meta import Meta
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.ownership import Marks, includes, refusal

OURS = ownership_labels(order())
PREFIX = "reporting-fa5e0ba7-project-"
MARKS = Marks(labels=OURS, prefix=PREFIX, also=("ExternalSecret/reporting-credentials",), owner="uid-1")


def meta(labels: dict[str, str], name: str = f"{PREFIX}project", owner: str = "", controller: bool = True) -> Meta:
    owners = ({"uid": owner, "controller": controller},) if owner else ()
    return Meta(name=name, labels=labels, owner_references=owners)


def test_an_object_is_ours_by_all_its_labels() -> None:
    assert MARKS.own(meta(OURS))
    assert MARKS.own(meta({**OURS, "app": "x"}))
    for key in OURS:
        assert not MARKS.own(meta({k: v for k, v in OURS.items() if k != key})), f"without {key}"
        assert not MARKS.own(meta({**OURS, key: "other"}))
    assert not MARKS.own(meta({}))


def test_an_object_is_ours_by_its_controller_reference() -> None:
    assert MARKS.own(meta({}, owner="uid-1"))
    assert not MARKS.own(meta({}, owner="uid-2"))
    assert not MARKS.own(meta({}, owner="uid-1", controller=False))
    nobodys = MARKS.model_copy(update={"owner": ""})
    assert not nobodys.own(meta({}, owner="uid-1"))


def test_a_same_named_order_elsewhere_owns_other_things() -> None:
    for other in (order(cluster="edge-1"), order(namespace="team-b"), order("reporting2")):
        assert not MARKS.own(meta(ownership_labels(other)))
        assert not MARKS.model_copy(update={"labels": ownership_labels(other)}).own(meta(OURS))


def test_a_sweep_wants_the_name_too() -> None:
    assert MARKS.sweeps("Project", meta(OURS))
    assert MARKS.sweeps("ExternalSecret", meta(OURS, "reporting-credentials"))
    assert not MARKS.sweeps("Secret", meta(OURS, "reporting-credentials"))
    assert not MARKS.sweeps("Project", meta(OURS, "reporting"))
    assert not MARKS.sweeps("Project", meta(OURS, f"x{PREFIX}project"))
    assert not MARKS.sweeps("Project", meta({}))


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


@pytest.mark.parametrize(
    ("live", "wanted", "same"),
    [
        ({"refreshInterval": "1h0m0s"}, {"refreshInterval": "1h"}, True),
        ({"refreshInterval": "60m"}, {"refreshInterval": "1h"}, True),
        ({"refreshInterval": "2h"}, {"refreshInterval": "1h"}, False),
        ({"refreshInterval": "soon"}, {"refreshInterval": "later"}, False),
        ({"refreshInterval": None}, {"refreshInterval": "1h"}, False),
        ({"name": "1h0m0s"}, {"name": "1h"}, False),
    ],
)
def test_a_length_of_time_says_the_same_however_it_is_written(live: Any, wanted: Any, same: bool) -> None:
    assert includes({"spec": live}, {"spec": wanted}) is same


def test_the_projects_name_is_the_declared_one_or_the_orders_own() -> None:
    reference = {"controlPlaneRef": {"name": "cp"}}
    assert KeystoneProjectSpec.model_validate(reference).effective_name("reporting") == "reporting"
    assert KeystoneProjectSpec.model_validate({**reference, "projectName": ""}).effective_name("a.b") == "a.b"
    named = KeystoneProjectSpec.model_validate({**reference, "projectName": " Bílling X "})
    assert named.effective_name("reporting") == " Bílling X ", "verbatim"
