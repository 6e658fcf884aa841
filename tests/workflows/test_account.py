"""Every branch of the judge of a registration's account block: contracts 4.5 to 4.8, 12.3, 12.17, 14.1-14.5."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.workflows.registrations import DONE, NOTHING_SWEPT, SWEEPING, Live, does
from tests.workflows.test_registration import P, account, eight_hex
from tests.workflows.things import ABSENT, AMBIGUOUS, AVAILABLE, NOW, REFUSED, condition, plane, stopped
from workflows.api.keystoneservice import Account, AccountStatus
from workflows.api.korc import KorcObject
from workflows.keystoneservice import children, delivery
from workflows.keystoneservice.account import generation_of, judge_account, refusal
from workflows.keystoneservice.children import GENERATION
from workflows.scaffold.child import key
from workflows.scaffold.korc import UNLATCHED_AT
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import Act, Decision

URL = "https://keystone.example.com/v3"
CREATED = account(create=True)
USER, USER_PROBE = ("User", f"{P}user"), ("User", f"{P}user-probe")
PROJECT, PROJECT_PROBE = ("Project", f"{P}project"), ("Project", f"{P}project-probe")
DOMAIN = ("Domain", f"{P}domain")
WORKING = condition("Progressing", "True", "Progressing", "Waiting for Secret/x to be created")
DENIED = condition("Progressing", "True", "TransientError", "Expected HTTP 200 but got 401")
STATUS = AccountStatus(
    secret_name="images-credentials", user_id="user-0", project_id="project-0", password_generation=1
)


def secret(generation: int) -> tuple[str, str]:
    return ("Secret", f"{P}password-v{generation}")


def judged(
    live: Live,
    user: Account | None = CREATED,
    swept: Removing = NOTHING_SWEPT,
    *,
    status: AccountStatus = STATUS,
) -> Decision:
    return judge_account(live.reg, user, status, live.seen, swept)


def says(decision: Decision, reason: str, *do: tuple[Act, tuple[str, str]]) -> str:
    verdict = decision.verdict
    status = reason in ("AccountProvisioned", "AccountNotDeclared")
    assert (verdict.type, verdict.status, verdict.reason) == ("AccountReady", status, reason), verdict
    assert does(decision) == [(act, *name) for act, name in do]
    assert verdict.again == (None if status else 10)
    return verdict.message


def put_secret(live: Live, generation: int, **more: Any) -> KorcObject:
    meta = children.metadata(live.reg, delivery.password_name(live.reg.order, generation), "openstack")
    data = {"password": f"password-{generation}", **more.pop("data", {})}
    return live.put({"kind": "Secret", "metadata": meta}, finalizers=(), data=data, **more)


def put_user(
    live: Live,
    *conditions: dict[str, Any],
    generation: int = 1,
    applied: int | None = 1,
    mark: str | None = "same",
    over: Account = CREATED,
    **more: Any,
) -> KorcObject:
    """The managed User referring to a generation, K-ORC having applied one; `mark` is what its annotation says."""
    said = str(generation) if mark == "same" else mark
    body = children.user(live.reg, over, generation, said)
    sent = {} if applied is None else {"appliedPasswordRef": delivery.password_name(live.reg.order, applied)}
    more = {"id_": "user-0", **more}
    return live.put(body, *(conditions or DONE), resource=sent, **more)


def whole(live: Live, over: Account = CREATED, **user: Any) -> None:
    """An account that is done, at the first generation if nothing else is said."""
    imported = children.domain(live.reg, over)
    if imported:
        live.put(imported, *DONE, id_="domain-0")
    live.put(children.project(live.reg, over), *DONE, id_="project-0")
    put_secret(live, user.get("generation", 1))
    put_user(live, over=over, **user)
    for role in children.roles(over):
        live.put(children.role_import(live.reg, role), *DONE, id_="role-0")
        live.put(children.assignment(live.reg, role), *DONE)


# -- the plane's own admin --------------------------------------------------------------------------------------


@pytest.mark.row("A03")
@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("name", ["admin", "ADMIN", "Ádmin", "A\u0301dmin", "admın"])
@pytest.mark.parametrize("domain", ["", "default", "Défault"])
def test_the_planes_admin_is_refused_in_any_spelling_whatever_adopt_says(name: str, domain: str, adopt: bool) -> None:
    reg, user = Live().reg, account(userName=name, domainName=domain, adopt=adopt)
    found = refusal(reg, user, None, unknown=False)
    assert found is not None
    assert (found.verdict.reason, found.verdict.status, found.verdict.again) == ("ServiceAccountCollision", False, None)
    assert found.do == ()
    assert found.fields == {}, "status.account survives"
    for part in (repr(name), "openstack/cp", "userName", "domainName", "spec.korc.adminCredential"):
        assert part in found.verdict.message


@pytest.mark.row("A05")
@pytest.mark.parametrize(("name", "domain"), [("admin", "Other"), ("admin2", ""), ("administrator", "Default")])
def test_the_admins_name_elsewhere_and_its_neighbours_are_admitted(name: str, domain: str) -> None:
    assert refusal(Live().reg, account(userName=name, domainName=domain), None, unknown=False) is None


@pytest.mark.row("A03")
def test_the_refusal_follows_the_planes_own_names() -> None:
    over = Live(plane(userName="Root", domainName="Ops")).reg
    assert refusal(over, account(userName="root"), None, unknown=False) is not None
    assert refusal(over, account(userName="root", domainName="ops"), None, unknown=False) is not None
    assert refusal(over, account(userName="admin"), None, unknown=False) is None
    assert refusal(over, account(userName="root", domainName="Default"), None, unknown=False) is None


@pytest.mark.row("A04")
def test_the_remedy_never_is_a_deletion_that_could_take_the_admin_along() -> None:
    live, user = Live(), account(userName="admin")
    owned = put_user(live, over=user)
    for about in ({"user": owned, "unknown": False}, {"user": None, "unknown": True}):
        found = refusal(live.reg, user, **about)
        assert found is not None
        assert "identity of its own" in found.verdict.message
        assert "Delete this order" not in found.verdict.message
    free = refusal(live.reg, user, None, unknown=False)
    assert free is not None
    assert "Delete this order and create it under another name" in free.verdict.message


# -- domain -----------------------------------------------------------------------------------------------------

OTHER = account(create=True, domainName="Other")


@pytest.mark.row("A07")
def test_a_domain_of_its_own_is_imported_beside_the_probes() -> None:
    live = Live()
    says(
        judged(live, OTHER),
        "ProbingForCollision",
        (Act.APPLY, DOMAIN), (Act.CREATE, PROJECT_PROBE), (Act.CREATE, USER_PROBE),
    )  # fmt: skip
    says(judged(Live()), "ProbingForCollision", (Act.CREATE, PROJECT_PROBE), (Act.CREATE, USER_PROBE))


def test_a_domain_that_nobody_finds_is_said_along_with_the_project() -> None:
    live = Live()
    live.put(children.project_probe(live.reg, OTHER), WORKING)
    live.put(children.user_probe(live.reg, OTHER), WORKING)
    imported = children.domain(live.reg, OTHER)
    assert imported is not None
    live.put(imported, *ABSENT)
    assert "Domain" not in says(judged(live, OTHER), "ProbingForCollision"), "a minute is not long"
    since = NOW - timedelta(minutes=3)
    pending = condition("Available", "False", "Progressing", ABSENT[1]["message"], since=since)
    live.put(imported, pending)
    message = says(judged(live, OTHER), "ProbingForCollision")
    assert "'service'" in message
    assert DOMAIN[1] in message
    live.put(imported, *stopped(AMBIGUOUS))
    assert AMBIGUOUS in says(judged(live, OTHER), "ProbingForCollision")


@pytest.mark.row("S12")
def test_nothing_is_made_in_a_strangers_domain() -> None:
    live = Live()
    imported = children.domain(live.reg, OTHER)
    assert imported is not None
    for there in (False, True):
        if there:
            whole(live, OTHER)
        live.put(imported, *DONE, id_="theirs", labels={})
        assert "was not created by this order" in says(judged(live, OTHER), "ServiceAccountError")


@pytest.mark.row("A07")
@pytest.mark.parametrize(
    ("declared", "then", "now"), [("Other", "Default", "Other"), ("Default", "Default", "Other")], ids=["to", "from"]
)
def test_an_account_keeps_the_domain_it_is_bound_to_when_the_plane_renames_its_own(
    declared: str, then: str, now: str
) -> None:
    """K-ORC never changes a reference: an apply of another one would be refused for ever."""
    user = account("reader", create=True, domainName=declared)
    live = Live(plane(domainName=then))
    whole(live, user)
    says(judged(live, user), "AccountProvisioned")
    live.reg = live.reg.model_copy(update={"plane": plane(domainName=now)})
    says(judged(live, user), "AccountProvisioned")
    # A user that is made anew goes where the project is.
    live.drop(children.user(live.reg, user, 1, None))
    says(judged(live, user), "ProbingForCollision", (Act.CREATE, USER_PROBE))
    probe = next(write for write in judged(live, user).do).body
    project = live.children[f"Project/openstack/{P}project"].spec["resource"]
    assert probe["spec"]["import"]["filter"]["domainRef"] == project["domainRef"]


# -- project ----------------------------------------------------------------------------------------------------


def test_a_referenced_project_is_imported_without_a_probe_and_the_user_asked_about() -> None:
    live = Live()
    says(judged(live, account()), "ProbingForCollision", (Act.APPLY, PROJECT), (Act.CREATE, USER_PROBE))


@pytest.mark.parametrize("conditions", [DONE, stopped(AMBIGUOUS)])
def test_a_project_that_exists_is_a_collision_that_points_at_referencing_it(
    conditions: tuple[dict[str, Any], ...],
) -> None:
    live = Live()
    live.put(children.project_probe(live.reg, CREATED), *conditions)
    live.put(children.user_probe(live.reg, CREATED), *ABSENT)
    live.claims[children.user_claim(live.reg, CREATED)] = live.me
    message = says(judged(live), "ServiceAccountCollision")
    assert "project.create to false" in message
    assert "adopt" not in message
    # Consent to taking over a user is none to taking over a project.
    says(judged(live, account(create=True, adopt=True)), "ServiceAccountCollision")


def test_no_user_is_made_before_its_projects_gate_is_passed() -> None:
    live = Live()
    live.put(children.project_probe(live.reg, CREATED), WORKING)
    live.put(children.user_probe(live.reg, CREATED), *ABSENT)
    live.claims[children.user_claim(live.reg, CREATED)] = live.me
    assert "project 'service'" in says(judged(live), "ProbingForCollision")
    live.put(children.project_probe(live.reg, CREATED), *ABSENT)
    live.claims[children.project_claim(live.reg, CREATED)] = live.me
    says(
        judged(live),
        "WaitingForServiceAccounts",
        (Act.CREATE, secret(1)), (Act.APPLY, PROJECT), (Act.DELETE, PROJECT_PROBE),
    )  # fmt: skip


def test_claims_of_project_and_user_are_told_apart_by_their_label() -> None:
    live = Live()
    live.put(children.project_probe(live.reg, CREATED), *ABSENT)
    live.put(children.user_probe(live.reg, CREATED), *ABSENT)
    claims = {write.body["metadata"]["labels"]["c5c3.io/claims"]: write.name for write in judged(live).do}
    assert claims == {
        "project": children.project_claim(live.reg, CREATED),
        "user": children.user_claim(live.reg, CREATED),
    }


# -- user and password ------------------------------------------------------------------------------------------


def test_a_user_that_exists_is_a_collision_that_points_at_adopt_or_removal() -> None:
    live = Live()
    live.put(children.project(live.reg, CREATED), *DONE, id_="project-0")
    live.put(children.user_probe(live.reg, CREATED), *DONE)
    message = says(judged(live), "ServiceAccountCollision")
    assert "spec.account.adopt" in message
    assert "remove the block" in message


def test_the_password_is_there_before_the_user_that_refers_to_it() -> None:
    live = Live()
    live.put(children.project(live.reg, CREATED), WORKING)
    live.put(children.user_probe(live.reg, CREATED), *ABSENT)
    live.claims[children.user_claim(live.reg, CREATED)] = live.me
    first = judged(live)
    says(first, "WaitingForServiceAccounts", (Act.CREATE, secret(1)))
    assert "data" not in first.do[0].body, "a judge sees no password"
    put_secret(live, 1)
    assert PROJECT[1] in says(judged(live), "WaitingForServiceAccounts"), "no user waits for its project in K-ORC"
    live.put(children.project(live.reg, CREATED), *DONE, id_="project-0")
    second = judged(live)
    says(second, "WaitingForServiceAccounts", (Act.APPLY, USER), (Act.DELETE, USER_PROBE))
    body = second.do[0].body
    assert body["spec"]["resource"]["passwordRef"] == secret(1)[1]
    assert body["metadata"]["annotations"] == {GENERATION: "1"}
    assert second.fields["account"] == {"secretName": "images-credentials", "userID": "", "projectID": "project-0"}


def test_a_project_is_made_once_the_accounts_own_domain_is_there() -> None:
    over = account(domainName="tenants", create=True)
    live = Live()
    imported = children.domain(live.reg, over)
    assert imported is not None
    live.put(imported, WORKING)
    for probe in (children.project_probe(live.reg, over), children.user_probe(live.reg, over)):
        live.put(probe, *ABSENT)
    for claim in (children.project_claim(live.reg, over), children.user_claim(live.reg, over)):
        live.claims[claim] = live.me
    words = says(judged(live, over), "WaitingForServiceAccounts", (Act.CREATE, secret(1)))
    assert PROJECT[1] in words
    assert f"Domain openstack/{imported['metadata']['name']} is not Available yet" in words
    put_secret(live, 1)
    live.put(imported, *DONE, id_="domain-0")
    says(judged(live, over), "WaitingForServiceAccounts", (Act.APPLY, PROJECT), (Act.DELETE, PROJECT_PROBE))


@pytest.mark.row("S12")
def test_a_strangers_password_secret_is_refused() -> None:
    live = Live()
    live.put(children.project(live.reg, CREATED), *DONE, id_="project-0")
    live.put(children.user_probe(live.reg, CREATED), *ABSENT)
    live.claims[children.user_claim(live.reg, CREATED)] = live.me
    put_secret(live, 1, labels={})
    assert secret(1)[1] in says(judged(live), "ServiceAccountError")


def test_an_account_that_is_done_wants_nothing() -> None:
    live, user = Live(), account("reader", "member", create=True)
    whole(live, user)
    decision = judged(live, user)
    says(decision, "AccountProvisioned")
    assert decision.fields["account"] == {
        "secretName": "images-credentials",
        "userID": "user-0",
        "projectID": "project-0",
        "passwordGeneration": 1,
    }
    # What people and other programs write on it is no difference.
    put_user(live, over=user, annotations={"team": "x"})
    says(judged(live, user), "AccountProvisioned")


def test_the_user_may_be_available_for_an_older_generation() -> None:
    live = Live()
    whole(live)
    put_user(live, condition("Available", "True", "Success", generation=2))
    says(judged(live), "AccountProvisioned")
    live.put(children.project(live.reg, CREATED), condition("Available", "True", "Success", generation=2), id_="p")
    assert PROJECT[1] in says(judged(live), "WaitingForServiceAccounts")


@pytest.mark.row("A12")
def test_an_emptied_annotation_is_one_new_generation() -> None:
    live = Live()
    whole(live, mark="")
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))
    put_secret(live, 2)
    flip = judged(live)
    says(flip, "WaitingForServiceAccounts", (Act.APPLY, USER))
    assert flip.do[0].exact, "a nudge that came meanwhile must not be written over"
    body = flip.do[0].body
    assert body["spec"]["resource"]["passwordRef"] == secret(2)[1]
    assert body["metadata"]["annotations"] == {GENERATION: "2"}
    assert flip.fields["account"]["passwordGeneration"] == 2
    assert flip.fields["account"]["lastPasswordRotation"] == "2026-11-30T11:59:00Z", "as old as its Secret"
    # Written, and not applied yet: the old one stays.
    put_user(live, generation=2, applied=1)
    assert secret(2)[1] in says(judged(live), "WaitingForServiceAccounts")
    # Applied: the old one goes.
    put_user(live, generation=2, applied=2)
    known = STATUS.model_copy(update={"password_generation": 2, "last_password_rotation": "2026-11-30T11:59:00Z"})
    done = judged(live, status=known)
    says(done, "AccountProvisioned", (Act.DELETE, secret(1)))
    assert done.fields["account"]["lastPasswordRotation"] == "2026-11-30T11:59:00Z"


def test_a_rotation_during_a_rotation_goes_on_to_the_next() -> None:
    live = Live()
    whole(live, generation=2, applied=1, mark="")
    put_secret(live, 1)
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(3)))


@pytest.mark.row("A13")
def test_a_wrong_mark_is_no_rotation_and_a_missing_one_is_written() -> None:
    live = Live()
    whole(live, mark="7")
    says(judged(live), "AccountProvisioned")
    put_user(live, mark=None)
    missing = judged(live)
    says(missing, "WaitingForServiceAccounts", (Act.APPLY, USER))
    assert missing.do[0].body["metadata"]["annotations"] == {GENERATION: "1"}
    # Another write keeps what the annotation says, unless it says nothing.
    older = children.user(live.reg, CREATED, 1, "7")
    older["spec"]["cloudCredentialsRef"] = {"secretName": "old", "cloudName": "admin"}
    live.put(older, *DONE, id_="user-0", resource={"appliedPasswordRef": secret(1)[1]})
    assert judged(live).do[0].body["metadata"]["annotations"] == {GENERATION: "7"}


def test_a_generation_that_cannot_be_read_is_the_first() -> None:
    live = Live()
    whole(live)
    body = children.user(live.reg, CREATED, 1, "1")
    for ref in ("my-own-secret", "", f"{P}password-v", f"{P}password-vx"):
        body["spec"]["resource"] = {**body["spec"]["resource"], "passwordRef": ref}
        user = live.put(body, *DONE, id_="user-0", resource={"appliedPasswordRef": ref})
        assert generation_of(user) == 1
        says(judged(live), "WaitingForServiceAccounts", (Act.APPLY, USER))


@pytest.mark.row("A11")
def test_an_applied_password_that_is_nowhere_any_more_is_replaced_by_the_next() -> None:
    live = Live()
    whole(live)
    live.drop(delivery.password_secret(live.reg, 1))
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))


@pytest.mark.row("S12", "A11")
def test_a_tenants_secret_of_a_passwords_name_stands_for_no_password() -> None:
    """Beside the order its owner may write what they like: under that name, with both labels."""
    live = Live()
    whole(live)
    hostile = delivery.password_secret(live.reg, 1)
    hostile["metadata"] = {**hostile["metadata"], "namespace": "team-a"}
    live.put(hostile, data={"password": "theirs"})
    says(judged(live), "AccountProvisioned")
    live.drop(delivery.password_secret(live.reg, 1))
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))


@pytest.mark.row("A11", "A21")
@pytest.mark.parametrize("data", [{"password": ""}, {"password": "", "else": "x"}], ids=["emptied", "with-more"])
def test_an_applied_password_that_was_emptied_is_replaced_by_the_next(data: dict[str, str]) -> None:
    live = Live()
    whole(live)
    put_secret(live, 1, data=data)
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))
    partial = put_secret(live, 1, data=data).model_copy(update={"partial": True, "data": {}})
    live.children[key("Secret", "openstack", secret(1)[1])] = partial
    says(judged(live), "AccountProvisioned")


def test_a_password_that_was_emptied_before_it_was_applied_is_filled_as_it_was_read() -> None:
    live = Live()
    whole(live, applied=None)
    put_user(live, WORKING, applied=None, id_="")
    put_secret(live, 1, data={"password": ""})
    says(judged(live), "WaitingForServiceAccounts", (Act.APPLY, secret(1)))
    assert judged(live).do[0].exact, "nobody's password is written over"


@pytest.mark.parametrize("roles", [(), ("reader", "Member")])
def test_a_korc_that_knows_no_assignments_serves_an_account_without_roles(roles: tuple[str, ...]) -> None:
    live, user = Live(), account(*roles, create=True)
    whole(live, user)
    for role in roles:
        live.drop(children.assignment(live.reg, role))
    live.unserved = frozenset({"RoleAssignment"})
    if not roles:
        says(judged(live, user), "AccountProvisioned")
        return
    message = says(judged(live, user), "ServiceAccountError")
    for part in ("'reader', 'Member'", "RoleAssignment (openstack.k-orc.cloud/v1alpha1)", "Install", "no roles"):
        assert part in message


def test_a_password_that_was_lost_before_it_was_applied_is_made_anew() -> None:
    """K-ORC waits for the Secret that the user refers to; nobody knows its password yet."""
    live = Live()
    whole(live, applied=None)
    live.drop(delivery.password_secret(live.reg, 1))
    put_user(live, WORKING, applied=None, id_="")
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(1)))
    whole(live, generation=2, applied=1)
    live.drop(delivery.password_secret(live.reg, 2))
    says(judged(live), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))


def put_source(live: Live, password: str) -> None:
    """The source Secret, by what stands for the password in it."""
    meta = children.metadata(live.reg, f"{P}source", "team-a")
    live.put({"kind": "Secret", "metadata": meta}, data={"password": password})


def test_an_adopted_user_gets_a_second_password_once() -> None:
    """K-ORC only records the first one of a user that it has taken over (doubt 12.3)."""
    live, adopting = Live(), account(create=True, adopt=True)
    whole(live, adopting, applied=None)
    says(judged(live, adopting), "WaitingForServiceAccounts")
    put_user(live, over=adopting)
    says(judged(live, adopting), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))
    whole(live, adopting, generation=2, applied=2)
    says(judged(live, adopting), "AccountProvisioned", (Act.DELETE, secret(1)))


def test_an_account_whose_first_password_was_published_is_left_alone() -> None:
    """As the reference leaves it, or one that adopts by a later edit, whatever holds it meanwhile."""
    live, adopting = Live(), account(create=True, adopt=True)
    whole(live, adopting)
    put_secret(live, 1, data={"password": "the first"})
    put_source(live, "the first")
    says(judged(live, adopting), "AccountProvisioned")
    # Child and Secret were lost and the user taken over anew: what is published is not what K-ORC recorded.
    put_source(live, "of a life before")
    says(judged(live, adopting), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))


@pytest.mark.row("A19")
def test_no_new_password_is_due_before_korc_has_reported_the_first() -> None:
    """What it reports first may only be recorded, so a nudge waits until after it."""
    live, adopting = Live(), account(create=True, adopt=True)
    whole(live, adopting, applied=None, mark="")
    says(judged(live, adopting), "WaitingForServiceAccounts")
    put_user(live, over=adopting, mark="")
    says(judged(live, adopting), "WaitingForServiceAccounts", (Act.CREATE, secret(2)))


def test_superseded_passwords_go_and_nothing_else_of_the_kind() -> None:
    live = Live()
    whole(live, generation=3, applied=3)
    for old in (1, 2, 12):
        put_secret(live, old)
    put_secret(live, 4, labels={})
    put_secret(live, 5, deleting=True)
    meta = children.metadata(live.reg, f"{P}password-vx", "openstack")
    live.put({"kind": "Secret", "metadata": meta})
    # 12 is of a user that is no more: the rotation to come must not find its password made.
    says(
        judged(live),
        "AccountProvisioned",
        (Act.DELETE, secret(1)), (Act.DELETE, secret(2)), (Act.DELETE, secret(12)),
    )  # fmt: skip
    put_user(live, generation=3, applied=2)
    says(judged(live), "WaitingForServiceAccounts")


@pytest.mark.row("S12")
def test_a_strangers_user_is_refused_and_nothing_is_bound_to_it() -> None:
    live, user = Live(), account("reader", create=True)
    live.put(children.project(live.reg, user), *DONE, id_="project-0")
    put_user(live, over=user, generation=4, applied=4, labels={})
    put_secret(live, 1)
    decision = judged(live, user)
    assert "was not created by this order" in says(decision, "ServiceAccountError")
    assert decision.fields["account"] == {
        "secretName": "images-credentials",
        "userID": "",
        "projectID": "project-0",
    }


def test_no_role_is_bound_while_a_latched_user_is_asked_about() -> None:
    live, user = Live(), account("reader", create=True)
    live.put(children.project(live.reg, user), *DONE, id_="project-0")
    put_secret(live, 1)
    put_user(live, *stopped(REFUSED, since=NOW - timedelta(minutes=3)), over=user, applied=None, id_="")
    live.put(children.user_probe(live.reg, user), *DONE, age=timedelta(minutes=2))
    says(judged(live, user), "ServiceAccountCollision")


# -- what is waited for -----------------------------------------------------------------------------------------


@pytest.mark.row("A16")
def test_terminal_errors_are_told_in_order_project_user_role() -> None:
    live, user = Live(), account("reader", "member", create=True)
    whole(live, user)
    live.put(children.role_import(live.reg, "member"), *stopped("two of them"))
    live.put(children.assignment(live.reg, "member"), *stopped("later"))
    message = says(judged(live, user), "ServiceAccountsFailed")
    assert "two of them" in message
    assert "'member'" in message
    put_user(live, *stopped("no such domain"), over=user)
    assert "no such domain" in says(judged(live, user), "ServiceAccountsFailed")
    live.put(children.project(live.reg, user), *stopped("quota"), id_="p")
    assert "quota" in says(judged(live, user), "ServiceAccountsFailed")


def test_a_users_gate_comes_before_its_projects_error() -> None:
    live = Live()
    live.put(children.project(live.reg, CREATED), *stopped("quota"), id_="p")
    live.put(children.user_probe(live.reg, CREATED), WORKING)
    assert "user 'images'" in says(judged(live), "ProbingForCollision")


@pytest.mark.row("A17")
def test_the_wait_names_the_project_then_the_user_then_the_password_then_the_roles() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    live.put(children.role_import(live.reg, "reader"), WORKING)
    message = says(judged(live, user), "WaitingForServiceAccounts")
    assert "Role 'reader'" in message
    put_user(live, over=user, generation=1, applied=None)
    assert "not applied" in says(judged(live, user), "WaitingForServiceAccounts")
    put_user(live, WORKING, over=user, applied=None, id_="")
    assert USER[1] in says(judged(live, user), "WaitingForServiceAccounts")
    live.put(children.project(live.reg, user), WORKING)
    assert PROJECT[1] in says(judged(live, user), "WaitingForServiceAccounts")


def test_waits_on_an_external_plane_are_classified_project_before_user() -> None:
    live, user = Live(plane(external=URL)), account("reader", "member", create=True)
    whole(live, user)
    x509 = condition("Progressing", "True", "TransientError", "x509: unknown authority")
    put_user(live, x509, over=user, applied=None, id_="")
    assert says(judged(live, user), "TLSVerificationFailed") == f"{URL}: x509: unknown authority"
    live.put(children.project(live.reg, user), DENIED, id_="")
    assert says(judged(live, user), "AuthenticationFailed") == f"{URL}: Expected HTTP 200 but got 401"
    # Of the roles every blocked one is heard, not only the first.
    live, user = Live(plane(external=URL)), account("reader", "member", create=True)
    whole(live, user)
    live.put(children.role_import(live.reg, "reader"), *ABSENT)
    live.put(children.role_import(live.reg, "member"), DENIED)
    says(judged(live, user), "AuthenticationFailed")


@pytest.mark.row("A15", "S26")
def test_roles_are_imported_and_assigned_and_one_that_is_long_missing_may_not_exist() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, account(create=True))
    slug = f"reader-{eight_hex('reader')}"
    role, assign = ("Role", f"{P}role-{slug}"), ("RoleAssignment", f"{P}assign-{slug}")
    says(judged(live, user), "WaitingForServiceAccounts", (Act.APPLY, role))
    live.put(children.role_import(live.reg, "reader"), *ABSENT)
    assert "may not exist" not in says(judged(live, user), "WaitingForServiceAccounts")
    since = NOW - timedelta(minutes=3)
    live.put(children.role_import(live.reg, "reader"), condition("Available", "False", "Progressing", ABSENT[1]["message"], since=since))  # fmt: skip  # noqa: E501
    assert "may not exist" in says(judged(live, user), "WaitingForServiceAccounts")
    live.put(children.role_import(live.reg, "reader"), *DONE, id_="r")
    says(judged(live, user), "WaitingForServiceAccounts", (Act.APPLY, assign))
    live.put(children.assignment(live.reg, "reader"), WORKING)
    assert assign[1] in says(judged(live, user), "WaitingForServiceAccounts")
    live.put(children.assignment(live.reg, "reader"), AVAILABLE)
    says(judged(live, user), "AccountProvisioned")


@pytest.mark.row("S12")
def test_a_strangers_assignment_is_refused() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    live.put(children.assignment(live.reg, "reader"), *DONE, labels={})
    assert "was not created by this order" in says(judged(live, user), "ServiceAccountError")


def test_an_assignment_that_k_orc_has_made_and_not_found_is_looked_for_again() -> None:
    """Its list after the PUT failed. Nobody is asked first: what it assigned could only be ours."""
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    body, assign = children.assignment(live.reg, "reader"), f"{P}assign-reader-{eight_hex('reader')}"
    words = "role assignment succeeded but could not be found in OpenStack"
    live.put(body, *stopped(words, "UnrecoverableError"))
    message = says(judged(live, user), "ServiceAccountsFailed", (Act.UNLATCH, ("RoleAssignment", assign)))
    assert words in message
    live.put(body, *stopped(words, "UnrecoverableError"), annotations={UNLATCHED_AT: NOW.isoformat()})
    assert "after a pause" in says(judged(live, user), "ServiceAccountsFailed")


# -- what is made anew in Keystone --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "changed"),
    [("userID", USER), ("projectID", PROJECT), ("roleID", ("Role", f"{P}role-reader-{eight_hex('reader')}"))],
)
@pytest.mark.parametrize("create", [True, False])
def test_an_assignment_of_what_is_no_more_goes_and_is_made_anew(
    field: str, changed: tuple[str, str], create: bool
) -> None:
    """A newer K-ORC makes a vanished User anew under another id, and leaves its assignments Available as they were."""
    live, user = Live(), account("reader", create=create)
    whole(live, user)
    body, assign = children.assignment(live.reg, "reader"), f"{P}assign-reader-{eight_hex('reader')}"
    ids = {"userID": "user-0", "projectID": "project-0", "roleID": "role-0"}
    live.put(body, *DONE, resource=ids)
    says(judged(live, user), "AccountProvisioned")
    live.put(body, *DONE, resource={**ids, field: "before"})
    decision = judged(live, user)
    message = says(decision, "WaitingForServiceAccounts", (Act.DELETE, ("RoleAssignment", assign)))
    for part in ("Role 'reader'", f"{field} before", f"{changed[0]} openstack/{changed[1]} is", "made anew"):
        assert part in message
    assert decision.stays
    for told in ({k: v for k, v in ids.items() if k != field}, {**ids, field: ""}, {}):
        live.put(body, *DONE, resource=told)
        says(judged(live, user), "AccountProvisioned")
    live.put(body, *DONE, resource={**ids, field: "before"}, deleting=True)
    says(judged(live, user), "WaitingForServiceAccounts")
    live.drop(body)
    says(judged(live, user), "WaitingForServiceAccounts", (Act.APPLY, ("RoleAssignment", assign)))


def test_a_role_that_was_deleted_in_keystone_is_looked_for_anew_behind_its_assignment() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    imported, assigned = children.role_import(live.reg, "reader"), children.assignment(live.reg, "reader")
    role, assign = ("Role", imported["metadata"]["name"]), ("RoleAssignment", assigned["metadata"]["name"])
    gone = stopped("resource has been deleted from OpenStack", "UnrecoverableError")
    live.put(imported, *gone, id_="role-0")
    message = says(judged(live, user), "ServiceAccountsFailed", (Act.DELETE, assign))
    for part in ("Role 'reader'", "resource has been deleted from OpenStack", "anew"):
        assert part in message
    live.put(assigned, *DONE, deleting=True)
    says(judged(live, user), "ServiceAccountsFailed")
    live.drop(assigned)
    says(judged(live, user), "ServiceAccountsFailed", (Act.DELETE, role))
    live.put(imported, *gone, id_="role-0", deleting=True)
    says(judged(live, user), "WaitingForServiceAccounts")
    live.drop(imported)
    says(judged(live, user), "WaitingForServiceAccounts", (Act.APPLY, role))


@pytest.mark.parametrize(
    ("words", "reason", "id_"),
    [
        ("resource has been deleted from OpenStack", "UnrecoverableError", ""),
        ("invalid configuration: found more than one", "InvalidConfiguration", "role-0"),
        ("referenced resource does not exist in OpenStack", "UnrecoverableError", "role-0"),
    ],
)
def test_a_role_import_that_failed_otherwise_stays(words: str, reason: str, id_: str) -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    live.put(children.role_import(live.reg, "reader"), *stopped(words, reason), id_=id_)
    says(judged(live, user), "ServiceAccountsFailed")


def test_a_role_is_not_looked_for_anew_behind_a_strangers_assignment() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    gone = stopped("resource has been deleted from OpenStack", "UnrecoverableError")
    live.put(children.role_import(live.reg, "reader"), *gone, id_="role-0")
    live.put(children.assignment(live.reg, "reader"), *DONE, labels={})
    says(judged(live, user), "ServiceAccountError")


def test_an_assignment_is_not_measured_by_a_strangers_role() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    live.put(children.assignment(live.reg, "reader"), *DONE, resource={"roleID": "role-0"})
    live.put(children.role_import(live.reg, "reader"), *DONE, id_="theirs", labels={})
    says(judged(live, user), "ServiceAccountError")


# -- rivals -----------------------------------------------------------------------------------------------------


@pytest.mark.row("A24")
@pytest.mark.parametrize("domain", ["", "Corp"])
def test_adopt_does_not_take_the_user_that_another_managed_child_keeps(domain: str) -> None:
    """One whose order was taken over from the reference operator holds no claim; its password would be replaced."""
    live, user = Live(), account(create=True, adopt=True, userName="Reports", domainName=domain)
    handle = "their-domain" if domain else live.reg.plane.domain_handle
    imported = {"kind": "Domain", "metadata": {"name": handle, "namespace": "openstack", "labels": {}},
                "spec": {"import": {"filter": {"name": "corp"}}}}  # fmt: skip
    live.put(imported, *DONE, id_="d", labels={})
    meta: dict[str, Any] = {"name": "theirs", "namespace": "openstack", "labels": {}}
    spec: dict[str, Any] = {"managementPolicy": "managed", "resource": {"name": "reports", "domainRef": handle}}
    theirs = {"kind": "User", "metadata": meta, "spec": spec}
    live.put(theirs, *DONE, id_="u", labels={})
    whole_but_user = children.project(live.reg, user)
    live.put(whole_but_user, *DONE, id_="project-0")
    assert "User openstack/theirs" in judged(live, user).verdict.message
    assert judged(live, user).verdict.reason == "ServiceAccountCollision"
    elsewhere = {**spec, "resource": {"name": "reports", "domainRef": "unknown"}}
    live.put({**theirs, "spec": elsewhere}, *DONE, id_="u", labels={})
    assert judged(live, user).verdict.reason == "WaitingForServiceAccounts"


# -- what is deleted by hand, or spelled otherwise ----------------------------------------------------------------


def test_a_user_that_somebody_deletes_goes_with_its_assignments_and_all_come_back() -> None:
    """K-ORC holds it until nothing refers to it, for ever if nobody sees to that."""
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    assigned = children.assignment(live.reg, "reader")
    assign = ("RoleAssignment", assigned["metadata"]["name"])
    put_user(live, over=user, deleting=True)
    message = says(judged(live, user), "WaitingForServiceAccounts", (Act.DELETE, assign))
    assert "is being deleted (held by openstack.k-orc.cloud/" in message
    live.put(assigned, *DONE, deleting=True)
    says(judged(live, user), "WaitingForServiceAccounts")
    live.drop(assigned)
    says(judged(live, user), "WaitingForServiceAccounts")  # one that referred to it now would hold it again


def test_a_project_that_somebody_deletes_takes_the_user_along_and_an_import_takes_nothing() -> None:
    for create in (True, False):
        live, user = Live(), account(create=create)
        whole(live, user)
        live.put(children.project(live.reg, user), *DONE, id_="project-0", deleting=True)
        says(judged(live, user), "WaitingForServiceAccounts", *([(Act.DELETE, USER)] if create else []))


@pytest.mark.row("S26", "A15")
def test_a_role_that_is_spelled_otherwise_is_bound_after_it_was_taken_back() -> None:
    """Both are one assignment in Keystone: the former's end would take it, whoever else reads Available."""
    live, user = Live(), account("Member", create=True)
    whole(live, user)
    now = account("member", create=True)
    role, assign = (("Role", f"{P}role-member-{eight_hex('member')}"),
                    ("RoleAssignment", f"{P}assign-member-{eight_hex('member')}"))  # fmt: skip
    message = says(judged(live, now), "WaitingForServiceAccounts", (Act.APPLY, role))
    assert "Role 'member'" in message
    live.put(children.role_import(live.reg, "member"), *DONE, id_="role-0")
    assert "binds it as 'Member'" in says(judged(live, now), "WaitingForServiceAccounts")
    live.put(children.assignment(live.reg, "member"), *DONE)
    says(judged(live, now), "WaitingForServiceAccounts", (Act.DELETE, assign))
    for former in (children.assignment(live.reg, "Member"), children.assignment(live.reg, "member")):
        live.drop(former)
    says(judged(live, now), "WaitingForServiceAccounts", (Act.APPLY, assign))


def test_nothing_is_bound_to_a_role_whose_import_is_a_strangers() -> None:
    live, user = Live(), account("reader", create=True)
    whole(live, user)
    live.drop(children.assignment(live.reg, "reader"))
    live.put(children.role_import(live.reg, "reader"), *DONE, id_="admin", labels={})
    says(judged(live, user), "ServiceAccountError")


# -- blocks that go ---------------------------------------------------------------------------------------------


@pytest.mark.row("S03", "S27")
def test_a_block_that_is_not_declared_has_no_status_and_is_held_while_it_goes() -> None:
    live = Live()
    decision = judged(live, None)
    says(decision, "AccountNotDeclared")
    assert decision.fields == {"account": None}
    going = judged(live, None, SWEEPING)
    says(going, "WaitingForServiceAccounts", (Act.DELETE, ("Role", "old")))
    assert going.fields == {"account": None}


@pytest.mark.row("S13")
def test_a_removed_role_holds_an_account_that_is_done_otherwise() -> None:
    live = Live()
    whole(live)
    held = judged(live, CREATED, SWEEPING)
    assert "Role openstack/old to be gone" in says(held, "WaitingForServiceAccounts", (Act.DELETE, ("Role", "old")))
    assert held.fields["account"]["userID"] == "user-0"


@pytest.mark.row("A21")
def test_a_user_that_is_made_anew_begins_at_the_first_generation() -> None:
    live = Live()
    live.put(children.project(live.reg, CREATED), *DONE, id_="project-0")
    put_secret(live, 3)
    live.put(children.user_probe(live.reg, CREATED), *ABSENT)
    live.claims[children.user_claim(live.reg, CREATED)] = live.me
    known = STATUS.model_copy(update={"password_generation": 3, "last_password_rotation": "2026-11-30T11:59:00Z"})
    decision = judged(live, status=known)
    says(decision, "WaitingForServiceAccounts", (Act.CREATE, secret(1)))
    assert decision.fields["account"] == {
        "secretName": "images-credentials", "userID": "", "projectID": "project-0",
        "lastPasswordRotation": "2026-11-30T11:59:00Z",
    }  # fmt: skip
