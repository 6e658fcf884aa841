"""Every branch of the judge of a KeystoneProject: contracts 4.2, 4.13, 4.14, 14.1-14.3, 14.13."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from typing import Any

import pytest

from tests.workflows.things import (
    ABSENT,
    AMBIGUOUS,
    AVAILABLE,
    NOW,
    REFUSED,
    SUCCESS,
    condition,
    korc,
    order,
    plane,
    stopped,
)
from workflows.api.korc import KorcObject
from workflows.keystoneproject import children
from workflows.keystoneproject.judge import judge
from workflows.scaffold.child import Seen
from workflows.scaffold.korc import UNLATCHED_AT
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.verdict import Act, Decision

URL = "https://keystone.example.com/v3"
ORDER = order()
WORKING = (condition("Progressing", "True", "Progressing", "Waiting for Domain/cp-domain-default to be ready"),)


def managed(*conditions: dict[str, Any], name: str = "billing", **more: Any) -> KorcObject:
    return korc(*conditions, body=children.project(ORDER, plane(), name), **more)


def probe(*conditions: dict[str, Any], name: str = "billing", **more: Any) -> KorcObject:
    return korc(*conditions, body=children.probe(ORDER, plane(), name), **more)


def ask(
    project: KorcObject | None = None,
    probe: KorcObject | None = None,
    *,
    claimed_by: str | None = None,
    name: str = "billing",
    external: str = "",
    **admin: Any,
) -> Decision:
    where = plane(external=external, **admin)
    claims = {} if claimed_by is None else {children.claim(where, name): claimed_by}
    return judge(ORDER, name, where, seen(project, probe, claims))


def seen(project: KorcObject | None, probe: KorcObject | None, claims: dict[str, str] | None = None) -> Seen:
    there = {f"Project/openstack/{each.metadata.name}": each for each in (project, probe) if each is not None}
    return Seen(children=there, claims=claims or {}, now=NOW)


PROJECT, PROBE = children.project_name(ORDER), children.probe_name(ORDER)
APPLY_PROBE, DROP_PROBE = (Act.CREATE, PROBE), (Act.DELETE, PROBE)
CLAIM, APPLY = (Act.CLAIM, children.claim(plane(), "billing")), (Act.APPLY, PROJECT)
UNLATCH, DETACH, DELETE = (Act.UNLATCH, PROJECT), (Act.DETACH, PROJECT), (Act.DELETE, PROJECT)


def says(decision: Decision, reason: str, *do: tuple[Act, str], again: float | None = 10) -> str:
    """Asserts what is found, what is to be done, and when to look again; the message."""
    verdict = decision.verdict
    assert (verdict.type, verdict.status, verdict.reason) == ("ProjectReady", reason == "ProjectProvisioned", reason)
    assert tuple((write.act, write.name) for write in decision.do) == do
    assert verdict.again == again
    assert verdict.message
    if not verdict.status:
        assert decision.fields == {}
    return verdict.message


# -- reserved names ---------------------------------------------------------------------------------------------

SERVICES = ("glance", "placement", "barbican", "neutron", "cinder", "nova")


@pytest.mark.parametrize("name", ["admin", *(f"service-{each}" for each in SERVICES)])
@pytest.mark.parametrize(
    "spelling",
    [
        str,
        str.upper,
        str.title,
        lambda name: unicodedata.normalize("NFC", name.replace("a", "á").replace("e", "é")),
        lambda name: unicodedata.normalize("NFD", name.replace("a", "á").replace("e", "é")),
    ],
)
def test_a_reserved_name_is_refused_in_any_spelling_and_nothing_is_created(name: str, spelling: Any) -> None:
    message = says(ask(name=spelling(name)), "ProjectCollision", again=600)
    assert spelling(name) in message
    assert "openstack/cp" in message


@pytest.mark.parametrize(
    "name",
    ["administrator", "admin2", "service-glance2", "service-", "service", "glance", "service-keystone", "service-heat",
     "service_glance", " admin", "xservice-nova"],
)  # fmt: skip
def test_neighbours_of_reserved_names_pass(name: str) -> None:
    says(ask(name=name), "ProbingForCollision", APPLY_PROBE)


def test_the_reserved_admin_project_is_the_planes_own() -> None:
    says(ask(name="SYSTEM", projectName="system"), "ProjectCollision", again=600)
    says(ask(name="admin", projectName="system"), "ProbingForCollision", APPLY_PROBE)


# -- before the managed project exists --------------------------------------------------------------------------


def test_a_probe_is_asked_first() -> None:
    assert "'billing'" in says(ask(), "ProbingForCollision", APPLY_PROBE)


def test_a_probe_without_an_answer_is_waited_for() -> None:
    message = says(ask(probe=probe(*WORKING)), "ProbingForCollision")
    assert "Waiting for Domain/cp-domain-default to be ready" in message
    says(ask(probe=probe()), "ProbingForCollision")


def test_a_wait_on_an_external_plane_names_its_cause() -> None:
    denied = condition("Progressing", "True", "TransientError", "Expected HTTP 200 but got 401")
    message = says(ask(probe=probe(denied), external=URL), "AuthenticationFailed")
    assert message == f"{URL}: Expected HTTP 200 but got 401"
    says(ask(probe=probe(denied)), "ProbingForCollision")


@pytest.mark.parametrize("conditions", [(AVAILABLE, SUCCESS), stopped(AMBIGUOUS)])
def test_what_exists_already_is_never_taken_over(conditions: tuple[dict[str, Any], ...]) -> None:
    message = says(ask(probe=probe(*conditions)), "ProjectCollision")
    for part in ("'billing'", "'Default'", "never taken over", "projectName"):
        assert part in message


def test_a_probe_that_found_something_is_asked_anew_after_a_while() -> None:
    """An import never notices that what it found has gone since."""
    says(ask(probe=probe(AVAILABLE, age=timedelta(minutes=14))), "ProjectCollision")
    says(ask(probe=probe(AVAILABLE, age=timedelta(minutes=16))), "ProjectCollision", DROP_PROBE)


def test_a_probe_whose_find_was_deleted_is_asked_anew() -> None:
    """K-ORC looks no more then, and the order would wait for ever."""
    spent = probe(*stopped("resource has been deleted from OpenStack", "UnrecoverableError"), id_="p-9")
    says(ask(probe=spent), "ProbingForCollision", DROP_PROBE)
    says(ask(probe=probe(*stopped("bad filter"))), "ProbingForCollision")


def test_a_name_that_is_free_is_claimed_before_it_is_taken() -> None:
    free = probe(*ABSENT)
    says(ask(probe=free), "WaitingForProject", CLAIM)
    says(ask(probe=free, claimed_by=ORDER.workflow_id), "WaitingForProject", APPLY, DROP_PROBE)


@pytest.mark.parametrize("holder", ["KeystoneProject:team-b/reporting", "KeystoneProject:team-a/reporting@edge-1", ""])
def test_a_name_that_another_order_claims_is_a_collision(holder: str) -> None:
    message = says(ask(probe=probe(*ABSENT), claimed_by=holder), "ProjectCollision")
    assert children.claim(plane(), "billing") in message


def test_a_strangers_object_under_the_probes_name_is_left_alone() -> None:
    for labels in (
        {},
        {**children.probe(ORDER, plane(), "x")["metadata"]["labels"], "c5c3.io/keystoneproject-cluster": "edge-1"},
    ):
        message = says(ask(probe=probe(*ABSENT, labels=labels)), "ProjectError")
        assert "was not created by this order" in message
    no_cluster = {key: value for key, value in probe().metadata.labels.items() if not key.endswith("-cluster")}
    says(ask(probe=probe(*ABSENT, labels=no_cluster)), "ProjectError")


def test_a_probe_of_an_earlier_order_is_waited_for_or_dropped() -> None:
    says(ask(probe=probe(*ABSENT, deleting=True)), "ProbingForCollision")
    says(ask(probe=probe(*ABSENT, name="other")), "ProbingForCollision", DROP_PROBE)


# -- the managed project ----------------------------------------------------------------------------------------


def test_a_project_that_is_there_is_ready() -> None:
    decision = ask(managed(AVAILABLE, SUCCESS, id_="p-1"))
    assert "'billing'" in says(decision, "ProjectProvisioned", again=None)
    assert decision.fields == {"projectID": "p-1", "projectName": "billing", "domainName": "Default"}


def test_the_domain_in_status_is_the_planes_admin_domain() -> None:
    assert ask(managed(AVAILABLE, id_="p-1"), domainName="Ops").fields["domainName"] == "Ops"


@pytest.mark.parametrize(
    "project",
    [
        managed(*WORKING),
        managed(),
        managed(AVAILABLE),
        managed(condition("Available", "True", "Success", generation=2), id_="p-1"),
        managed(condition("Progressing", "True", "TransientError", "503")),
    ],
)
def test_a_project_that_is_not_yet_there_is_waited_for(project: KorcObject) -> None:
    assert project.metadata.name in says(ask(project), "WaitingForProject")


def test_a_wait_for_the_project_on_an_external_plane_names_its_cause() -> None:
    project = managed(condition("Progressing", "True", "TransientError", "x509: unknown authority"))
    assert says(ask(project, external=URL), "TLSVerificationFailed") == f"{URL}: x509: unknown authority"


@pytest.mark.parametrize("reason", ["InvalidConfiguration", "UnrecoverableError"])
def test_a_terminal_error_is_told_in_korcs_words_and_not_classified(reason: str) -> None:
    project = managed(*stopped("Expected HTTP 201 but got 401", reason))
    assert "Expected HTTP 201 but got 401" in says(ask(project, external=URL), "ProjectFailed")


def test_a_resource_that_was_deleted_elsewhere_reads_as_a_failure() -> None:
    """14.13: Available Unknown, UnrecoverableError, with the id still there."""
    words = "resource has been deleted from OpenStack"
    gone = managed(
        condition("Progressing", "False", "UnrecoverableError", words),
        condition("Available", "Unknown", "UnrecoverableError", words),
        id_="p-1",
    )
    assert words in says(ask(gone), "ProjectFailed")


def test_a_strangers_project_object_is_left_alone() -> None:
    message = says(
        ask(managed(AVAILABLE, id_="p-1", labels={"c5c3.io/keystoneproject-name": "reporting"})), "ProjectError"
    )
    assert "was not created by this order" in message


def test_a_project_being_deleted_is_waited_for() -> None:
    says(ask(managed(AVAILABLE, id_="p-1", deleting=True)), "WaitingForProject")


def test_a_project_that_says_something_else_is_brought_up_to_date() -> None:
    says(ask(managed(AVAILABLE, id_="p-1", name="older")), "WaitingForProject", APPLY)
    stale = korc(
        AVAILABLE, id_="p-1", body=children.project(ORDER, plane(cloudCredentialsRef={"cloudName": "x"}), "billing")
    )
    says(ask(stale), "WaitingForProject", APPLY)


def test_what_korc_or_people_add_is_no_difference() -> None:
    body = children.project(ORDER, plane(), "billing")
    body["metadata"]["labels"]["team"] = "x"
    body["spec"]["managedOptions"] = {"onDelete": "delete"}
    body["spec"]["resource"]["description"] = "mine"
    says(ask(korc(AVAILABLE, id_="p-1", body=body)), "ProjectProvisioned", again=None)


# -- a latched connection failure -------------------------------------------------------------------------------

LATCHED_AT = NOW - timedelta(minutes=3)
LATCHED = stopped(REFUSED, since=LATCHED_AT)


def just_cleared() -> dict[str, str]:
    return {UNLATCHED_AT: (NOW - timedelta(seconds=5)).isoformat()}


def test_a_latch_with_a_known_resource_is_cleared_when_it_is_due() -> None:
    assert REFUSED in says(ask(managed(*LATCHED, id_="p-1")), "ProjectFailed", UNLATCH)
    says(ask(managed(*LATCHED, id_="p-1", annotations=just_cleared())), "ProjectFailed")


def test_a_misconfiguration_stays_latched() -> None:
    for words in (f"{REFUSED} x509", f"{REFUSED} 401", "Expected HTTP 201 but got 409"):
        says(ask(managed(*stopped(words), id_="p-1")), "ProjectFailed")


def test_a_latch_without_a_resource_is_cleared_only_past_a_probe_younger_than_it() -> None:
    latched = managed(*LATCHED)
    says(ask(latched), "WaitingForProject", APPLY_PROBE)
    says(ask(latched, probe(*WORKING)), "WaitingForProject")
    says(ask(latched, probe(*ABSENT, deleting=True)), "WaitingForProject")
    says(ask(latched, probe(*ABSENT, age=timedelta(minutes=4))), "WaitingForProject", DROP_PROBE)
    says(ask(latched, probe(*ABSENT, age=timedelta(minutes=2))), "ProjectFailed", UNLATCH)
    says(ask(latched, probe(AVAILABLE, age=timedelta(minutes=2))), "ProjectCollision")
    says(ask(managed(*LATCHED, annotations=just_cleared())), "ProjectFailed")


def test_a_probe_for_something_else_clears_nothing() -> None:
    """It is called as the right one is: an order whose name was edited left it."""
    other = probe(*ABSENT, name="older", age=timedelta(minutes=2))
    says(ask(managed(*LATCHED), other), "WaitingForProject", DROP_PROBE)
    says(ask(managed(*LATCHED), probe(*ABSENT, name="older", deleting=True)), "WaitingForProject")


def test_an_update_is_no_way_around_that_probe() -> None:
    """A new generation wakes K-ORC just as a clearing does."""
    for words in (REFUSED, "Expected HTTP 201 but got 409"):
        other = managed(*stopped(words, since=LATCHED_AT), name="older")
        says(ask(other), "WaitingForProject", APPLY_PROBE)
        says(ask(other, probe(*ABSENT, age=timedelta(minutes=2))), "WaitingForProject", APPLY)
        says(ask(other, probe(AVAILABLE, age=timedelta(minutes=2))), "ProjectCollision")


def test_a_strangers_probe_answers_nothing_and_is_not_dropped() -> None:
    for age in (2, 4):
        theirs = probe(*ABSENT, age=timedelta(minutes=age), labels={})
        message = says(ask(managed(*LATCHED), theirs), "ProjectError")
        assert theirs.metadata.name in message


# -- removal ----------------------------------------------------------------------------------------------------

MARKS = children.marks(ORDER)


def removal(project: KorcObject | None = None, probe: KorcObject | None = None, *, gone: bool = False) -> Removing:
    return judge_removal(("Project",), MARKS, None if gone else plane(), seen(project, probe))


def does(removing: Removing) -> tuple[tuple[Act, str], ...]:
    return tuple((write.act, write.name) for write in removing.do)


DETACHED = {**children.project(ORDER, plane(), "billing")}
DETACHED["spec"] = {**DETACHED["spec"], "managedOptions": {"onDelete": "detach"}}


@pytest.mark.parametrize(
    "project",
    [
        managed(AVAILABLE, id_="p-1"),
        managed(*LATCHED, id_="p-1"),
        managed(*LATCHED, finalizers=()),
        managed(*LATCHED, finalizers=("example.org/hold",)),
        korc(*LATCHED, body=DETACHED),
    ],
)
@pytest.mark.parametrize("gone", [False, True])
def test_what_is_known_or_harmless_goes_managed_before_probe(project: KorcObject, gone: bool) -> None:
    assert does(removal(project, gone=gone)) == (DELETE,)
    assert does(removal(project, probe(*ABSENT), gone=gone)) == (DELETE, DROP_PROBE)


def test_what_is_going_is_waited_for_and_what_is_gone_is_not() -> None:
    going = removal(managed(*LATCHED, deleting=True))
    assert (does(going), len(going.left), going.stays) == ((), 1, True)
    assert removal() == Removing()


def test_a_strangers_object_is_not_removed() -> None:
    for project in (
        managed(AVAILABLE, labels={}),
        korc(AVAILABLE, body={**DETACHED, "metadata": {**DETACHED["metadata"], "name": "another"}}),
    ):
        assert removal(project) == Removing()


def test_what_never_reached_keystone_is_let_go_of() -> None:
    assert does(removal(managed(*WORKING))) == (DETACH,)


def test_without_a_plane_what_has_no_id_is_let_go_of_and_nobody_is_waited_for() -> None:
    found = removal(managed(*LATCHED), gone=True)
    assert (does(found), found.stays) == ((DETACH,), False)


def test_what_is_being_created_now_is_waited_for() -> None:
    creating = condition("Progressing", "True", "Progressing", "creating")
    for conditions in ((), (creating,)):
        found = removal(managed(*conditions, age=timedelta(seconds=5)))
        assert (does(found), len(found.left)) == ((), 1)
        assert does(removal(managed(*conditions, age=timedelta(seconds=31)))) == (APPLY_PROBE,)


TRANSIENT = (condition("Progressing", "True", "TransientError", "503", since=LATCHED_AT),)


@pytest.mark.parametrize("conditions", [LATCHED, stopped("409", since=LATCHED_AT), TRANSIENT])
def test_without_an_id_a_probe_decides_whose_resource_the_name_is(conditions: tuple[dict[str, Any], ...]) -> None:
    project = managed(*conditions, age=timedelta(seconds=5))
    assert does(removal(project)) == (APPLY_PROBE,)
    (asked,) = removal(project).do
    assert asked.body["spec"] == children.probe(ORDER, plane(), "billing")["spec"]
    for unknown in (probe(*WORKING), probe(*ABSENT, deleting=True)):
        assert does(removal(project, unknown)) == ()
        assert removal(project, unknown).left
    assert does(removal(project, probe(*ABSENT, age=timedelta(minutes=4)))) == (DROP_PROBE,)
    assert does(removal(project, probe(*ABSENT, age=timedelta(minutes=2)))) == (DELETE, DROP_PROBE)
    strangers = removal(project, probe(AVAILABLE, age=timedelta(minutes=2)))
    assert does(strangers) == (DETACH,)
    assert "left alone" in strangers.left[0]


@pytest.mark.row("S29")
def test_a_probe_for_something_else_does_not_let_what_has_no_id_be_deleted_by_name() -> None:
    project = managed(*LATCHED)
    for left in (probe(*ABSENT, name="older"), probe(AVAILABLE, name="older"), probe(*WORKING, name="older")):
        assert does(removal(project, left)) == (DROP_PROBE,)
        assert removal(project, left).left
    assert does(removal(project, probe(*ABSENT, name="older", deleting=True))) == ()
