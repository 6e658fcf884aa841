"""Which children stand for another identity: a block that was taken out and put back in before any pass saw it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.registrations import DONE, Live, does
from tests.workflows.test_registration import P, account, catalog, eight_hex, registration
from tests.workflows.things import plane
from workflows.api.keystoneservice import Account, AccountStatus, Catalog, KeystoneServiceSpec
from workflows.api.meta import Model
from workflows.keystoneservice import children, delivery, identity, sweep
from workflows.keystoneservice.account import judge_account
from workflows.keystoneservice.catalog import judge_catalog
from workflows.keystoneservice.identity import Claims, Replaced
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.verdict import Act, Decision

ENTRY = catalog(endpoints=[{"interface": "public", "url": "https://a"}])
USER = account("reader", create=True)
ASSIGNMENT = f"{P}assign-reader-{eight_hex('reader')}"
BOUND = {f"{P}user", ASSIGNMENT, f"{P}password-v1"}
"""What goes with every user that goes."""


def spec(entry: Catalog | None, user: Account | None) -> KeystoneServiceSpec:
    blocks: dict[str, Model | None] = {"catalog": entry, "account": user}
    said = {name: block.model_dump(by_alias=True) for name, block in blocks.items() if block}
    return KeystoneServiceSpec.model_validate({"controlPlaneRef": {"name": "cp"}, **said})


def there(user: Account = USER, entry: Catalog = ENTRY, **admin: Any) -> Live:
    """Everything of a registration, done."""
    live = Live(plane(**admin))
    reg = live.reg
    imported = children.domain(reg, user)
    roles = [body(reg, role) for role in user.roles for body in (children.role_import, children.assignment)]
    live.done(
        children.service(reg, entry), *(children.endpoint(reg, each) for each in entry.endpoints),
        *([imported] if imported else []), children.project(reg, user), *roles,
    )  # fmt: skip
    applied = {"appliedPasswordRef": delivery.password_name(reg.order, 1)}
    live.put(children.user(reg, user, 1, "1"), *DONE, id_="user-0", resource=applied)
    live.put(delivery.password_secret(reg, 1), data={"password": "x"}, finalizers=())
    live.put(delivery.source_secret(reg), data={"password": "x"}, finalizers=())
    return live


def held(user: Account = USER) -> frozenset[str]:
    """What an order holds that made such an account."""
    reg = registration()
    return frozenset({children.user_claim(reg, user), children.project_claim(reg, user)})


def replaced(live: Live, user: Account, claims: Claims = frozenset()) -> Replaced:
    return identity.replaced("account", live.reg, spec(None, user), live.seen, claims)


def judged(live: Live, user: Account, claims: Claims = frozenset()) -> Decision:
    gone, declared = replaced(live, user, claims), spec(ENTRY, user)
    marks, kinds = children.marks(live.reg.order, live.reg.uid), ("Secret", *sweep.KINDS["account"][:-1])
    swept: Removing = judge_removal(
        kinds, marks, live.reg.plane, live.seen,
        lambda name: name not in gone.names and sweep.keeps(live.reg.order, declared)(name),
    )  # fmt: skip
    return judge_account(live.reg, user, AccountStatus(password_generation=1), live.seen, swept, gone.was)


@pytest.mark.parametrize("claims", [None, frozenset()])
def test_what_is_declared_is_no_other(claims: Claims) -> None:
    assert replaced(there(), USER, claims) == Replaced()
    other = account("reader", create=True, domainName="Other")
    assert replaced(there(other), other, claims) == Replaced()
    assert identity.replaced("catalog", registration(), spec(ENTRY, None), there().seen, claims) == Replaced()


@pytest.mark.row("S13")
def test_another_user_goes_with_its_passwords_and_bindings_before_the_new_one_is_probed() -> None:
    live, new = there(), account("reader", create=True, userName="newer")
    assert replaced(live, new, held()).names == BOUND
    assert replaced(live, new) == Replaced(), "who claimed nothing did not make it under that name"
    decision = judged(live, new, held())
    assert decision.verdict.reason == "WaitingForServiceAccounts"
    assert "user 'images'" in decision.verdict.message
    assert does(decision) == [
        (Act.DELETE, "Secret", f"{P}password-v1"),
        (Act.DELETE, "RoleAssignment", ASSIGNMENT),
        (Act.DELETE, "User", f"{P}user"),
    ]
    assert decision.fields == {"account": {"secretName": "images-credentials", "userID": "", "projectID": ""}}
    for body in (delivery.password_secret(live.reg, 1), children.assignment(live.reg, "reader"),
                 children.user(live.reg, USER, 1, None)):  # fmt: skip
        live.drop(body)
    assert (Act.CREATE, "User", f"{P}user-probe") in does(judged(live, new, held()))


@pytest.mark.row("S13")
@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({}, {"project": "other"}, {f"{P}project"}),
        ({"create": False}, {"create": False, "project": "other"}, {f"{P}project"}),
        ({}, {"create": False}, {f"{P}project"}),
        ({"create": False}, {}, {f"{P}project"}),
        ({"domainName": "One"}, {"domainName": "Two"}, {f"{P}project", f"{P}domain"}),
        ({"domainName": "One"}, {}, {f"{P}project", f"{P}domain"}),
    ],
    ids=["project", "referenced", "let-go", "made", "domain", "admins-domain"],
)
def test_another_project_or_domain_goes_with_the_user(
    before: dict[str, Any], after: dict[str, Any], names: set[str]
) -> None:
    former = account("reader", **{"create": True, **before})
    found = replaced(there(former), account("reader", **{"create": True, **after}), held(former))
    assert found.names == names | BOUND


@pytest.mark.row("S13")
def test_another_service_goes_with_its_endpoints() -> None:
    live = there()
    for new in (catalog(serviceName="newer"), catalog(serviceType="volume")):
        made = frozenset({children.service_claim(live.reg, ENTRY)})
        gone = identity.replaced("catalog", live.reg, spec(new, None), live.seen, made)
        assert gone.names == {f"{P}service", f"{P}endpoint-public"}
        kinds, marks = sweep.KINDS["catalog"], children.marks(live.reg.order, live.reg.uid)
        swept = judge_removal(kinds, marks, live.reg.plane, live.seen, lambda name: name == f"{P}service-probe")
        decision = judge_catalog(live.reg, new, live.seen, swept, gone.was)
        assert decision.verdict.reason == "WaitingForCatalog"
        assert "service 'images' of type 'image'" in decision.verdict.message
        assert {(act, name) for act, _, name in does(decision)} == {(Act.DELETE, each) for each in gone.names}
        assert decision.fields["catalog"]["serviceID"] == ""


def test_what_somebody_edited_is_put_right_where_the_order_holds_the_claim() -> None:
    live = there()
    edited = children.user(live.reg, account(create=True, userName="theirs"), 1, "1")
    live.put(edited, *DONE, id_="user-0")
    assert replaced(live, USER, frozenset({children.user_claim(live.reg, USER)})) == Replaced()
    assert replaced(live, USER) == Replaced(), "nor does a user go where nothing is claimed at all"
    service = children.service(live.reg, catalog(serviceName="theirs"))
    live.put(service, *DONE, id_="service-0")
    ours = frozenset({children.service_claim(live.reg, ENTRY)})
    assert identity.replaced("catalog", live.reg, spec(ENTRY, None), live.seen, ours) == Replaced()
    assert identity.replaced("catalog", live.reg, spec(ENTRY, None), live.seen, frozenset()) == Replaced()


def test_a_name_that_keystone_takes_for_the_same_is_no_other() -> None:
    assert replaced(there(), account("reader", create=True, userName="IMAGES")) == Replaced()


def test_an_import_is_what_it_was_asked_and_has_found() -> None:
    referenced = account("reader")
    live = there(referenced)
    asked = children.project(live.reg, account(project="theirs"))
    live.put(children.project(live.reg, referenced), *DONE, id_="project-0", resource={"name": "renamed-since"})
    assert replaced(live, referenced, held(referenced)) == Replaced(), "a rename in Keystone is nobody's other order"
    live.put(asked, *DONE, id_="project-0", resource={"name": "service"})
    assert replaced(live, referenced) == Replaced()
    live.put(asked, *DONE, id_="project-0", resource={"name": "theirs"})
    assert f"{P}project" in replaced(live, referenced).names
    live.put(asked)
    assert replaced(live, referenced) == Replaced(), "one that has found nothing looks for another"


def test_an_admin_domain_that_was_renamed_is_told_from_another_domain_by_the_claim() -> None:
    """Both look alike: a user in the plane's import, and an account that names another domain than the plane's."""
    live = there(domainName="Default")
    live.reg = live.reg.model_copy(update={"plane": plane(domainName="Ops")})
    named = account("reader", create=True, domainName="Default")
    assert replaced(live, named, None).names, "to be asked"
    assert replaced(live, named, frozenset({children.user_claim(live.reg, named)})) == Replaced()
    live = there(domainName="Default")
    moved = account("reader", create=True, domainName="Ops")
    former = frozenset({children.user_claim(live.reg, USER)})
    assert former < set(identity.telling("account", live.reg, spec(None, moved), live.seen))
    assert replaced(live, moved, former).names == {f"{P}project"} | BOUND
    assert replaced(live, moved, frozenset()) == Replaced(), "nobody can tell, so nothing goes"


def test_strangers_objects_are_nobodys_identity() -> None:
    live = Live()
    body = children.user(live.reg, account(userName="other"), 1, "1")
    live.put(body, *DONE, id_="x", labels={})
    assert replaced(live, USER) == Replaced()


def test_a_domain_that_was_renamed_in_keystone_takes_nothing_along() -> None:
    named = account("reader", create=True, domainName="corp")
    live = there(named)
    body = children.domain(live.reg, named)
    assert body is not None
    live.put(body, *DONE, id_="domain-0", resource={"name": "corp-new"})
    assert replaced(live, named, frozenset()) == Replaced()
    assert replaced(live, named, held(named)) == Replaced()
