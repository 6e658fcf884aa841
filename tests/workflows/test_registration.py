"""A registration's names and children against the contract's text (1.4, 3.1, 4.6, 4.8), computed here once more."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.workflows.things import plane
from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneservice import Account, Catalog, Endpoint, KeystoneServiceSpec
from workflows.api.meta import Meta
from workflows.keystoneproject import children as projects
from workflows.keystoneservice import children, delivery, sweep
from workflows.keystoneservice.children import Registration
from workflows.scaffold.order import OrderRef

# printf %s team-a/images | sha256sum
P = "images-b7d93119-registration-"
LABELS = {"c5c3.io/keystoneservice-name": "images", "c5c3.io/keystoneservice-namespace": "team-a"}
ADMIN = {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
PASSWORD_CLOUD = {"secretName": "cp-admin-password-cloud", "cloudName": "admin"}


def eight_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def order(name: str = "images", namespace: str = "team-a") -> OrderRef:
    return OrderRef(kind="KeystoneService", cluster="", namespace=namespace, name=name)


def registration(name: str = "images", namespace: str = "team-a", over: ControlPlane | None = None) -> Registration:
    return Registration(order=order(name, namespace), uid="u-1", plane=over or plane())


def catalog(**more: Any) -> Catalog:
    return Catalog.model_validate({"serviceType": "image", **more})


def account(*roles: str, create: bool = False, project: str = "service", **more: Any) -> Account:
    return Account.model_validate({"project": {"name": project, "create": create}, "roles": roles, **more})


def everything(reg: Registration, blocks: tuple[Catalog, Account]) -> list[dict[str, Any]]:
    """Every child there can be, of each kind and policy."""
    entry, user = blocks
    imported = children.domain(reg, user)
    return [
        children.service_probe(reg, entry),
        children.service(reg, entry),
        *(children.endpoint(reg, each) for each in entry.endpoints),
        *([imported] if imported else []),
        children.project_probe(reg, user),
        children.project(reg, user),
        children.user_probe(reg, user),
        children.user(reg, user, 1, "1"),
        *(children.role_import(reg, role) for role in children.roles(user)),
        *(children.assignment(reg, role) for role in children.roles(user)),
        delivery.password_secret(reg, 1),
        delivery.source(reg, user, "secret"),
        delivery.push_secret(reg, "0" * 64),
        delivery.external_secret(reg, "0" * 64, "1-a"),
    ]


FULL = (
    catalog(endpoints=[{"interface": "public", "url": "https://a"}, {"interface": "admin", "url": "https://b"}]),
    account("reader", "Member", create=True, domainName="Other"),
)


# -- names --------------------------------------------------------------------------------------------------------


@pytest.mark.row("S09")
def test_the_prefix_hashes_namespace_and_name() -> None:
    assert children.prefix(order()) == P
    assert children.prefix(order(namespace="team-b")) == f"images-{eight_hex('team-b/images')}-registration-"
    assert children.prefix(order("a.b")) == f"a.b-{eight_hex('team-a/a.b')}-registration-"
    assert children.FINALIZER == "c5c3.io/keystoneservice-teardown"


@pytest.mark.row("S09")
def test_every_child_has_its_name_and_namespace() -> None:
    found = [(c["kind"], c["metadata"]["namespace"], c["metadata"]["name"]) for c in everything(registration(), FULL)]
    reader, member = f"reader-{eight_hex('reader')}", f"member-{eight_hex('Member')}"
    assert found == [
        ("Service", "openstack", f"{P}service-probe"),
        ("Service", "openstack", f"{P}service"),
        ("Endpoint", "openstack", f"{P}endpoint-public"),
        ("Endpoint", "openstack", f"{P}endpoint-admin"),
        ("Domain", "openstack", f"{P}domain"),
        ("Project", "openstack", f"{P}project-probe"),
        ("Project", "openstack", f"{P}project"),
        ("User", "openstack", f"{P}user-probe"),
        ("User", "openstack", f"{P}user"),
        ("Role", "openstack", f"{P}role-{reader}"),
        ("Role", "openstack", f"{P}role-{member}"),
        ("RoleAssignment", "openstack", f"{P}assign-{reader}"),
        ("RoleAssignment", "openstack", f"{P}assign-{member}"),
        ("Secret", "openstack", f"{P}password-v1"),
        ("Secret", "team-a", f"{P}source"),
        ("PushSecret", "team-a", f"{P}backup"),
        ("ExternalSecret", "team-a", "images-credentials"),
    ]


@pytest.mark.row("S09")
def test_the_longest_admitted_names_make_names_of_253_bytes() -> None:
    assert len(delivery.password_name(order("n" * 210), 10**9)) == 253
    slug = children.role_slug("a role with a rather long name")
    assert len(f"{children.prefix(order('n' * 198))}assign-{slug}") == 253


@pytest.mark.row("S09")
@pytest.mark.parametrize(
    ("role", "base"),
    [
        ("reader", "reader"),
        ("Key Manager_Admin", "key-manager-admi"),
        ("--load-balancer__observer--", "load-balancer-ob"),
        ("fifteen-letters and more", "fifteen-letters-"),  # the cut may leave a hyphen
        ("été", "t"),
        ("管理者", ""),
        ("K", "k"),
    ],
)
def test_a_role_slug_is_readable_and_tells_roles_apart(role: str, base: str) -> None:
    assert children.role_slug(role) == f"{base}-{eight_hex(role)}"


def test_marks_are_both_labels_and_beside_the_order_the_owner_too() -> None:
    owner = {
        "apiVersion": "c5c3.io/v1alpha1",
        "kind": "KeystoneService",
        "name": "images",
        "uid": "u-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for child in everything(registration(), FULL):
        meta = child["metadata"]
        assert meta["labels"] == LABELS
        assert meta.get("ownerReferences") == (None if meta["namespace"] == "openstack" else [owner])
    for child in everything(registration(namespace="openstack"), FULL):
        assert child["metadata"]["ownerReferences"] == [owner]
        assert child["metadata"]["labels"]["c5c3.io/keystoneservice-namespace"] == "openstack"


# -- bodies -------------------------------------------------------------------------------------------------------


@pytest.mark.row("S23")
def test_imports_have_the_admin_credential_and_managed_children_the_password_cloud() -> None:
    korc = [c for c in everything(registration(), FULL) if c["kind"] in sweep.BESIDE_THE_PLANE]
    policies = {(c["kind"], c["spec"]["managementPolicy"]) for c in korc}
    assert len(policies) == 10
    for child in korc:
        spec = child["spec"]
        managed = spec["managementPolicy"] == "managed"
        assert spec["cloudCredentialsRef"] == (PASSWORD_CLOUD if managed else ADMIN), child["metadata"]["name"]
        assert set(spec) == {"cloudCredentialsRef", "managementPolicy", "resource" if managed else "import"}
    west = registration(over=plane(cloudCredentialsRef={"secretName": "mine", "cloudName": "west"}))
    assert children.user_probe(west, account())["spec"]["cloudCredentialsRef"] == {
        "secretName": "mine",
        "cloudName": "west",
    }
    assert children.service(west, catalog())["spec"]["cloudCredentialsRef"] == {**PASSWORD_CLOUD, "cloudName": "west"}


@pytest.mark.row("C07")
def test_the_service_name_is_the_declared_one_or_the_orders_own() -> None:
    reg = registration()
    for declared, name in (({}, "images"), ({"serviceName": " Glance é "}, " Glance é ")):
        entry = catalog(**declared)
        assert children.service_probe(reg, entry)["spec"]["import"] == {"filter": {"type": "image", "name": name}}
        assert children.service(reg, entry)["spec"]["resource"] == {"type": "image", "name": name, "enabled": True}


def test_an_endpoint_is_its_interface_and_url() -> None:
    declared = Endpoint(interface="internal", url="http://glance:9292/v2/$(project_id)s")
    assert children.endpoint(registration(), declared)["spec"]["resource"] == {
        "interface": "internal",
        "url": "http://glance:9292/v2/$(project_id)s",
        "serviceRef": f"{P}service",
        "enabled": True,
    }


@pytest.mark.row("A02")
def test_user_domain_and_project_are_the_declared_ones_or_the_orders_and_the_planes() -> None:
    reg, at_home = registration(), "cp-domain-default"
    by_default = account()
    assert children.user_probe(reg, by_default)["spec"]["import"] == {
        "filter": {"name": "images", "domainRef": at_home}
    }
    assert children.user(reg, by_default, 1, None)["spec"]["resource"] == {
        "name": "images",
        "domainRef": at_home,
        "defaultProjectRef": f"{P}project",
        "passwordRef": f"{P}password-v1",
    }
    assert by_default.effective_domain(plane()) == "Default"
    assert by_default.effective_domain(plane(domainName="Ops")) == "Ops"
    assert by_default.effective_domain(plane(domainName="")) == "Default"
    named = account(userName=" Glänce ", domainName="Other", project="Serv ice")
    assert children.user(reg, named, 7, None)["spec"]["resource"] == {
        "name": " Glänce ",
        "domainRef": f"{P}domain",
        "defaultProjectRef": f"{P}project",
        "passwordRef": f"{P}password-v7",
    }
    assert children.project(reg, named)["spec"]["import"] == {"filter": {"name": "Serv ice", "domainRef": f"{P}domain"}}


@pytest.mark.row("A07")
@pytest.mark.parametrize(
    ("declared", "admin", "own"),
    [
        ("", "Default", False),
        ("Default", "Default", False),
        ("default", "Default", True),  # Keystone may take it for the same; exact names decide
        ("Other", "Default", True),
        ("", "Ops", False),
        ("Ops", "Ops", False),
        ("Default", "Ops", True),
    ],
)
def test_the_admin_domain_is_the_planes_import_and_any_other_our_own(declared: str, admin: str, own: bool) -> None:
    reg = registration(over=plane(domainName=admin))
    user = account(domainName=declared)
    assert children.domain_handle(reg, user) == (f"{P}domain" if own else "cp-domain-default")
    imported = children.domain(reg, user)
    assert (imported is not None) == own
    if imported is not None:
        assert imported["spec"]["import"] == {"filter": {"name": declared}}
    assert not is_child("cp-domain-default"), "the plane's is never swept"
    assert is_child(f"{P}domain")


def test_a_referenced_project_is_an_import_and_a_created_one_is_managed() -> None:
    reg, ref = registration(), {"name": "service", "domainRef": "cp-domain-default"}
    referenced, created = children.project(reg, account()), children.project(reg, account(create=True))
    assert (referenced["spec"]["managementPolicy"], referenced["spec"]["import"]) == ("unmanaged", {"filter": ref})
    assert (created["spec"]["managementPolicy"], created["spec"]["resource"]) == ("managed", ref)
    assert children.project_probe(reg, account(create=True))["spec"]["import"] == {"filter": ref}
    assert referenced["metadata"] == created["metadata"]


@pytest.mark.parametrize(("mark", "annotations"), [("2", {"2"}), ("", {""}), (None, None)])
def test_the_user_says_of_its_generation_what_it_is_told_to(mark: str | None, annotations: set[str] | None) -> None:
    meta = children.user(registration(), account(), 2, mark)["metadata"]
    said = {"cobaltcore.c5c3.io/password-generation": mark}
    assert meta.get("annotations") == (None if annotations is None else said)


def test_roles_are_imported_without_a_domain_and_assigned() -> None:
    reg, slug = registration(), f"reader-{eight_hex('reader')}"
    assert children.role_import(reg, "reader")["spec"]["import"] == {"filter": {"name": "reader"}}
    assert children.assignment(reg, "reader")["spec"]["resource"] == {
        "roleRef": f"{P}role-{slug}",
        "userRef": f"{P}user",
        "projectRef": f"{P}project",
    }


def test_two_spellings_of_one_role_are_bound_once_as_first_spelled() -> None:
    assert children.roles(account("Member", "reader", "member", "mémber", "reader")) == ("Member", "reader")
    assert children.roles(account()) == ()


def test_a_claim_stands_for_what_keystone_takes_for_one() -> None:
    one, other = registration(), registration("other", "team-b")
    created = account(create=True, userName="Glance", project="Bílling")
    spelled = account(create=True, userName="glance", domainName="default", project="billing")
    assert children.user_claim(one, created) == children.user_claim(other, spelled)
    assert children.project_claim(one, created) == children.project_claim(other, spelled)
    assert children.project_claim(one, created) == projects.claim(plane(), "Billing"), "whoever orders the project"
    assert children.user_claim(one, created) != children.user_claim(other, account(userName="glance", domainName="x"))
    named = catalog(serviceName="Images")
    assert children.service_claim(one, catalog()) == children.service_claim(other, named)
    assert children.service_claim(one, catalog()) != children.service_claim(one, catalog(serviceType="volume"))
    assert len({children.user_claim(one, account()), children.service_claim(one, catalog())}) == 2


# -- what a sweep leaves ------------------------------------------------------------------------------------------


def spec(entry: Catalog | None, user: Account | None) -> KeystoneServiceSpec:
    ref = {"controlPlaneRef": {"name": "cp"}}
    return KeystoneServiceSpec.model_validate(ref).model_copy(update={"catalog": entry, "account": user})


def block(kind: str) -> str:
    return "catalog" if kind in sweep.KINDS["catalog"] else "account"


def is_child(name: str) -> bool:
    """The name test of a sweep, of what carries the labels."""
    marks = children.marks(order(), "uid")
    return any(marks.sweeps(kind, Meta(name=name, labels=marks.labels)) for kind in ("User", "ExternalSecret"))


def names(*blocks: Any) -> set[str]:
    return {child["metadata"]["name"] for child in everything(registration(), blocks)}


def test_all_that_is_declared_stays() -> None:
    full = spec(*FULL)
    assert {name for name in names(*FULL) if not sweep.keeps(order(), full)(name)} == set()
    for name in names(*FULL):
        assert is_child(name)
    assert sweep.keeps(order(), full)(f"{P}password-v41"), "superseded ones are not the sweep's"


def test_what_is_no_longer_declared_goes() -> None:
    entry, user = FULL
    public, admin = entry.endpoints
    less = spec(entry.model_copy(update={"endpoints": (admin,)}), user.model_copy(update={"roles": ("reader",)}))
    gone = {name for name in names(*FULL) if not sweep.keeps(order(), less)(name)}
    member = f"member-{eight_hex('Member')}"
    assert gone == {f"{P}endpoint-{public.interface}", f"{P}role-{member}", f"{P}assign-{member}"}


@pytest.mark.parametrize("kept", ["catalog", "account", "nothing"])
def test_a_removed_block_goes_with_all_it_had(kept: str) -> None:
    entry, user = FULL
    left = spec(entry if kept == "catalog" else None, user if kept == "account" else None)
    went = [c for c in everything(registration(), FULL) if not sweep.keeps(order(), left)(c["metadata"]["name"])]
    blocks = {block(c["kind"]) for c in went}
    assert blocks == {"catalog": {"account"}, "account": {"catalog"}}.get(kept, {"account", "catalog"})
    of_block = [c for c in everything(registration(), FULL) if block(c["kind"]) in blocks]
    assert len(went) == len(of_block)


def test_names_of_others_are_never_swept() -> None:
    for name in ("images", "images-credentials2", "xx" + P, "images-registration-user", "other-credentials"):
        assert not is_child(name)


def test_dependents_go_first() -> None:
    kinds = (*sweep.BESIDE_THE_PLANE, *sweep.BESIDE_THE_ORDER, sweep.SECRETS)
    assert kinds == ("RoleAssignment", "Role", "Endpoint", "Service", "User", "Project", "Domain",
                     "PushSecret", "ExternalSecret", "Secret")  # fmt: skip
    for block_kinds in sweep.KINDS.values():
        assert list(block_kinds) == sorted(block_kinds, key=kinds.index)
    assert {*sweep.KINDS["catalog"], *sweep.KINDS["account"]} == set(kinds) - set(sweep.BESIDE_THE_ORDER)
