"""Every branch of the judge of a registration's catalog block: contracts 4.2, 4.4, 4.8, 14.1-14.3."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.workflows.registrations import DONE, NOTHING_SWEPT, SWEEPING, Live, does
from tests.workflows.test_registration import P, catalog
from tests.workflows.things import ABSENT, AMBIGUOUS, AVAILABLE, NOW, REFUSED, condition, plane, stopped
from workflows.api.keystoneservice import Catalog
from workflows.keystoneservice import children
from workflows.keystoneservice.catalog import judge_catalog
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import Act, Decision

URL = "https://keystone.example.com/v3"
TWO = catalog(endpoints=[{"interface": "public", "url": "https://a"}, {"interface": "internal", "url": "http://b"}])
SERVICE, PROBE = ("Service", f"{P}service"), ("Service", f"{P}service-probe")
PUBLIC, INTERNAL = ("Endpoint", f"{P}endpoint-public"), ("Endpoint", f"{P}endpoint-internal")
WORKING = condition("Progressing", "True", "Progressing", "Waiting for Secret/x to be created")
DENIED = condition("Progressing", "True", "TransientError", "Expected HTTP 200 but got 401")


def judged(live: Live, entry: Catalog | None = TWO, swept: Removing = NOTHING_SWEPT) -> Decision:
    return judge_catalog(live.reg, entry, live.seen, swept)


def says(decision: Decision, reason: str, *do: tuple[Act, tuple[str, str]], again: float | None = 10) -> str:
    verdict = decision.verdict
    status = reason in ("CatalogRegistered", "CatalogNotDeclared")
    assert (verdict.type, verdict.status, verdict.reason) == ("CatalogReady", status, reason), verdict
    assert does(decision) == [(act, *name) for act, name in do]
    assert verdict.again == (None if status else again)
    return verdict.message


def whole(live: Live, entry: Catalog = TWO) -> None:
    live.done(children.service(live.reg, entry), *(children.endpoint(live.reg, each) for each in entry.endpoints))


# -- the gate ---------------------------------------------------------------------------------------------------


@pytest.mark.row("C02")
def test_a_probe_is_asked_first_and_nothing_else_is_made() -> None:
    live = Live()
    assert "'images'" in says(judged(live), "ProbingForCollision", (Act.CREATE, PROBE))
    for conditions in ((), (WORKING,), (DENIED,)):
        live.put(children.service_probe(live.reg, TWO), *conditions)
        says(judged(live), "ProbingForCollision")


def test_an_undecided_probe_on_an_external_plane_is_classified() -> None:
    live = Live(plane(external=URL))
    live.put(children.service_probe(live.reg, TWO), DENIED)
    assert says(judged(live), "AuthenticationFailed") == f"{URL}: Expected HTTP 200 but got 401"


@pytest.mark.parametrize("conditions", [DONE, stopped(AMBIGUOUS)])
def test_a_row_that_exists_is_a_collision_that_names_both_remedies(conditions: tuple[dict[str, Any], ...]) -> None:
    live = Live()
    live.put(children.service_probe(live.reg, TWO), *conditions)
    message = says(judged(live), "ServiceCollision")
    for part in ("'images'", "'image'", "spec.catalog.adopt", "serviceName"):
        assert part in message
    live.put(children.service_probe(live.reg, TWO), *conditions, age=timedelta(minutes=16))
    says(judged(live), "ServiceCollision", (Act.DELETE, PROBE))


def test_an_absent_row_is_claimed_and_then_created_and_the_probe_dropped() -> None:
    live = Live()
    live.put(children.service_probe(live.reg, TWO), *ABSENT)
    claim = children.service_claim(live.reg, TWO)
    decision = judged(live)
    says(decision, "WaitingForCatalog", (Act.CLAIM, ("Lease", claim)))
    assert decision.do[0].body == {"metadata": {"namespace": "openstack", "labels": {"c5c3.io/claims": "service"}}}
    live.claims[claim] = live.me
    says(judged(live), "WaitingForCatalog", (Act.APPLY, SERVICE), (Act.DELETE, PROBE))
    for holder in ("KeystoneService:team-b/images", ""):
        live.claims[claim] = holder
        assert claim in says(judged(live), "ServiceCollision")


def test_adopt_skips_the_probe_and_drops_one_that_is_there() -> None:
    entry = TWO.model_copy(update={"adopt": True})
    live = Live()
    live.claims[children.service_claim(live.reg, entry)] = live.me
    says(judged(live, entry), "WaitingForCatalog", (Act.APPLY, SERVICE))
    live.put(children.service_probe(live.reg, entry), *DONE)
    says(judged(live, entry), "WaitingForCatalog", (Act.APPLY, SERVICE), (Act.DELETE, PROBE))
    live.put(children.service_probe(live.reg, entry), *DONE, deleting=True)
    says(judged(live, entry), "WaitingForCatalog", (Act.APPLY, SERVICE))


@pytest.mark.row("C05")
def test_an_own_service_settles_the_verdict_and_a_leftover_probe_goes() -> None:
    live = Live()
    whole(live)
    says(judged(live), "CatalogRegistered")
    live.put(children.service_probe(live.reg, TWO), *DONE)
    says(judged(live), "CatalogRegistered", (Act.DELETE, PROBE))


@pytest.mark.row("S12")
@pytest.mark.parametrize("what", ["service", "probe", "endpoint"])
def test_a_strangers_object_is_refused_and_never_written(what: str) -> None:
    live = Live()
    if what == "probe":
        live.put(children.service_probe(live.reg, TWO), *ABSENT, labels={})
    else:
        whole(live)
        body = children.service(live.reg, TWO) if what == "service" else children.endpoint(live.reg, TWO.endpoints[1])
        live.put(body, *DONE, id_="theirs", labels={"c5c3.io/keystoneservice-name": "images"})
    decision = judged(live)
    assert "was not created by this order" in says(decision, "CatalogError")
    if what == "service":
        assert decision.fields["catalog"]["serviceID"] == "", "a stranger's id is none of ours"


# -- rows -------------------------------------------------------------------------------------------------------


def test_endpoints_follow_the_service_once_it_is_available() -> None:
    live = Live()
    live.put(children.service(live.reg, TWO), WORKING)
    assert SERVICE[1] in says(judged(live), "WaitingForCatalog")
    live.put(children.service(live.reg, TWO), *DONE, id_="service-0")
    assert PUBLIC[1] in says(judged(live), "WaitingForCatalog", (Act.APPLY, PUBLIC), (Act.APPLY, INTERNAL))


@pytest.mark.row("C06")
def test_a_row_without_endpoints_is_ready_alone() -> None:
    live, alone = Live(), catalog()
    whole(live, alone)
    decision = judged(live, alone)
    assert "0 endpoints" in says(decision, "CatalogRegistered")
    assert decision.fields == {"catalog": {"serviceID": "service-0", "endpoints": []}}


@pytest.mark.row("S27")
def test_status_has_one_row_per_declared_interface_and_ids_once_known() -> None:
    live = Live()
    assert judged(live).fields["catalog"] == {
        "serviceID": "",
        "endpoints": [{"interface": "public", "id": ""}, {"interface": "internal", "id": ""}],
    }
    whole(live)
    live.put(children.endpoint(live.reg, TWO.endpoints[1]), WORKING)
    decision = judged(live)
    assert INTERNAL[1] in says(decision, "WaitingForCatalog")
    assert decision.fields["catalog"] == {
        "serviceID": "service-0",
        "endpoints": [{"interface": "public", "id": "endpoint-1"}, {"interface": "internal", "id": ""}],
    }


@pytest.mark.row("C08")
def test_terminal_errors_are_told_the_services_before_the_endpoints() -> None:
    live = Live()
    whole(live)
    live.put(children.endpoint(live.reg, TWO.endpoints[0]), *stopped("bad url"), id_="e")
    assert "bad url" in says(judged(live), "CatalogFailed")
    live.put(children.service(live.reg, TWO), *stopped("no right"), id_="s")
    assert "no right" in says(judged(live), "CatalogFailed")
    # An Endpoint that has failed is told before a Service that is only waited for.
    live.put(children.service(live.reg, TWO), WORKING, id_="s")
    assert "bad url" in says(judged(live), "CatalogFailed")


def test_terminal_errors_are_not_classified() -> None:
    live = Live(plane(external=URL))
    whole(live)
    live.put(children.service(live.reg, TWO), *stopped("Expected HTTP 201 but got 401"), id_="s")
    assert "K-ORC has given up" in says(judged(live), "CatalogFailed")


@pytest.mark.row("C09")
@pytest.mark.parametrize("which", ["service", "endpoint"])
def test_available_for_an_older_generation_does_not_count(which: str) -> None:
    live = Live()
    whole(live)
    body = children.service(live.reg, TWO) if which == "service" else children.endpoint(live.reg, TWO.endpoints[0])
    live.put(body, condition("Available", "True", "Success", generation=2), id_="x")
    assert body["metadata"]["name"] in says(judged(live), "WaitingForCatalog")


def test_a_wait_on_an_external_plane_is_classified_by_the_one_object_waited_on() -> None:
    live = Live(plane(external=URL))
    whole(live)
    live.put(children.endpoint(live.reg, TWO.endpoints[0]), DENIED, id_="e")
    assert says(judged(live), "AuthenticationFailed") == f"{URL}: Expected HTTP 200 but got 401"
    live.put(children.service(live.reg, TWO), WORKING, id_="s")
    says(judged(live), "WaitingForCatalog")


def test_a_changed_url_is_projected() -> None:
    live = Live()
    whole(live)
    body = children.endpoint(live.reg, TWO.endpoints[0].model_copy(update={"url": "https://old"}))
    live.put(body, AVAILABLE, id_="e")
    says(judged(live), "WaitingForCatalog", (Act.APPLY, PUBLIC))


def test_a_service_that_somebody_deletes_goes_with_its_endpoints_and_all_come_back() -> None:
    """K-ORC holds it until nothing refers to it, for ever if nobody sees to that."""
    live = Live()
    whole(live)
    live.put(children.service(live.reg, TWO), *DONE, id_="s", deleting=True)
    said = says(judged(live), "WaitingForCatalog", (Act.DELETE, PUBLIC), (Act.DELETE, INTERNAL))
    assert "made anew once it is gone" in said
    for each in TWO.endpoints:
        live.put(children.endpoint(live.reg, each), *DONE, id_="e", deleting=True)
    says(judged(live), "WaitingForCatalog")
    for each in TWO.endpoints:
        live.drop(children.endpoint(live.reg, each))
    says(judged(live), "WaitingForCatalog")  # one that referred to it now would hold it again


# -- rivals -----------------------------------------------------------------------------------------------------


@pytest.mark.row("A24")
def test_adopt_does_not_take_what_another_managed_service_keeps() -> None:
    """One whose order was taken over from the reference operator holds no claim."""
    live, entry = Live(), TWO.model_copy(update={"adopt": True})
    theirs = children.service(live.reg, TWO)
    theirs = {**theirs, "metadata": {**theirs["metadata"], "name": "theirs", "labels": {}}}
    live.put(theirs, *DONE, id_="s", labels={})
    assert "Service openstack/theirs" in says(judged(live, entry), "ServiceCollision")
    for other in ({"type": "other"}, {"name": "other"}):
        resource = {**theirs["spec"]["resource"], **other}
        live.put({**theirs, "spec": {**theirs["spec"], "resource": resource}}, *DONE, id_="s", labels={})
        assert judged(live, entry).verdict.reason == "WaitingForCatalog"
    live.put({**theirs, "spec": {**theirs["spec"], "managementPolicy": "unmanaged"}}, *DONE, id_="s", labels={})
    assert judged(live, entry).verdict.reason == "WaitingForCatalog"


# -- latches ----------------------------------------------------------------------------------------------------

LATCHED = stopped(REFUSED, since=NOW - timedelta(minutes=3))


def test_a_latched_service_without_an_id_is_cleared_only_past_a_fresh_probe() -> None:
    live = Live()
    whole(live)
    live.put(children.service(live.reg, TWO), *LATCHED)
    says(judged(live), "WaitingForCatalog", (Act.CREATE, PROBE))
    live.put(children.service_probe(live.reg, TWO), *ABSENT, age=timedelta(minutes=4))
    says(judged(live), "WaitingForCatalog", (Act.DELETE, PROBE))
    live.put(children.service_probe(live.reg, TWO), *ABSENT, age=timedelta(minutes=2))
    says(judged(live), "CatalogFailed", (Act.UNLATCH, SERVICE))
    live.put(children.service_probe(live.reg, TWO), *DONE, age=timedelta(minutes=2))
    says(judged(live), "ServiceCollision")
    # Who consented to a takeover is not asked.
    says(judged(live, TWO.model_copy(update={"adopt": True})), "CatalogFailed", (Act.UNLATCH, SERVICE))


def test_a_latched_endpoint_is_cleared() -> None:
    live = Live()
    whole(live)
    live.put(children.endpoint(live.reg, TWO.endpoints[0]), *LATCHED)
    assert REFUSED in says(judged(live), "CatalogFailed", (Act.UNLATCH, PUBLIC))


# -- blocks that go ---------------------------------------------------------------------------------------------


@pytest.mark.row("S03", "S13")
def test_a_block_that_is_not_declared_is_true_once_nothing_is_left_of_it() -> None:
    live = Live()
    decision = judged(live, None)
    says(decision, "CatalogNotDeclared")
    assert decision.fields == {"catalog": None}
    going = judged(live, None, SWEEPING)
    message = says(going, "WaitingForCatalog", (Act.DELETE, ("Role", "old")))
    assert "Role openstack/old to be gone" in message
    assert going.fields == {"catalog": None}
    assert going.stays


@pytest.mark.row("S13")
def test_a_sweep_holds_the_condition_and_hides_no_other_trouble() -> None:
    live = Live()
    whole(live)
    held = judged(live, TWO, SWEEPING)
    says(held, "WaitingForCatalog", (Act.DELETE, ("Role", "old")))
    assert held.fields["catalog"]["serviceID"] == "service-0"
    live.put(children.service(live.reg, TWO), *stopped("no right"), id_="s")
    assert "no right" in says(judged(live, TWO, SWEEPING), "CatalogFailed", (Act.DELETE, ("Role", "old")))


# -- what is made anew in Keystone --------------------------------------------------------------------------------


def test_an_endpoint_of_a_service_that_is_no_more_goes_and_is_made_anew() -> None:
    """A newer K-ORC makes a vanished Service anew under another id, and leaves its Endpoints Available as they were."""
    live, (public, internal) = Live(), TWO.endpoints
    whole(live)
    for endpoint in TWO.endpoints:
        live.put(children.endpoint(live.reg, endpoint), *DONE, id_="e", resource={"serviceID": "service-0"})
    says(judged(live), "CatalogRegistered")
    live.put(children.service(live.reg, TWO), *DONE, id_="service-1")
    live.put(children.endpoint(live.reg, internal), *DONE, id_="e", resource={"serviceID": "service-1"})
    decision = judged(live)
    message = says(decision, "WaitingForCatalog", (Act.DELETE, PUBLIC))
    for part in ("serviceID service-0", f"Service openstack/{P}service is service-1", "made anew"):
        assert part in message
    assert decision.stays
    live.put(children.endpoint(live.reg, public), *DONE, id_="e", resource={"serviceID": "service-0"}, deleting=True)
    says(judged(live), "WaitingForCatalog")
    live.drop(children.endpoint(live.reg, public))
    says(judged(live), "WaitingForCatalog", (Act.APPLY, PUBLIC))
    live.put(children.endpoint(live.reg, public), *DONE, id_="e", resource={"serviceID": "service-1"})
    says(judged(live), "CatalogRegistered")


@pytest.mark.parametrize(("service", "endpoint"), [("", "service-0"), ("service-1", None), ("service-1", "")])
def test_an_id_that_is_not_known_is_no_difference(service: str, endpoint: str | None) -> None:
    live = Live()
    whole(live)
    live.put(children.service(live.reg, TWO), *DONE, id_=service)
    told = {} if endpoint is None else {"serviceID": endpoint}
    live.put(children.endpoint(live.reg, TWO.endpoints[0]), *DONE, id_="e", resource=told)
    says(judged(live), "CatalogRegistered" if service else "WaitingForCatalog")


def test_an_endpoint_that_k_orc_is_not_done_with_is_left_to_it() -> None:
    live = Live()
    whole(live)
    live.put(children.endpoint(live.reg, TWO.endpoints[0]), WORKING, id_="e", resource={"serviceID": "gone"})
    says(judged(live), "WaitingForCatalog")
