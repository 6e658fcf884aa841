"""Names against the contract's text (3.4, 3.5, 4.5): expected values are computed here, not by the code."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest

from tests.workflows.things import order, plane
from workflows.keystoneproject import children
from workflows.scaffold.naming import child_prefix, claim_name, keystone_name_key, ownership_labels
from workflows.scaffold.order import OrderRef


def eight_hex(cluster: str, namespace: str, name: str) -> str:
    """First 8 hex of sha256("<cluster>/<ns>/<name>"), cluster empty on management."""
    return hashlib.sha256(f"{cluster}/{namespace}/{name}".encode()).hexdigest()[:8]


def test_the_prefix_is_name_hash_and_segment() -> None:
    # printf %s /team-a/reporting | sha256sum
    assert child_prefix(order(), "project") == "reporting-fa5e0ba7-project-"
    assert child_prefix(order(cluster="edge-1"), "project") == "reporting-c7473d64-project-"
    assert child_prefix(order(namespace="team-b"), "project") == "reporting-b563aabd-project-"
    assert child_prefix(order("a.b-c"), "user") == f"a.b-c-{eight_hex('', 'team-a', 'a.b-c')}-user-"


def test_the_children_of_a_project() -> None:
    assert children.project_name(order()) == "reporting-fa5e0ba7-project-project"
    assert children.probe_name(order()) == "reporting-fa5e0ba7-project-project-probe"
    assert children.FINALIZER == "c5c3.io/keystoneproject-teardown"


def test_no_child_name_is_too_long_for_an_object() -> None:
    longest = order("n" * 63, namespace="m" * 63, cluster="c" * 63)
    assert len(children.probe_name(longest)) <= 253


def test_the_bodies_are_those_of_the_contract() -> None:
    labels = {
        "c5c3.io/keystoneproject-name": "reporting",
        "c5c3.io/keystoneproject-namespace": "team-a",
        "c5c3.io/keystoneproject-cluster": "",
    }
    assert children.project(order(), plane(), "billing") == {
        "kind": "Project",
        "metadata": {"name": "reporting-fa5e0ba7-project-project", "namespace": "openstack", "labels": labels},
        "spec": {
            "managementPolicy": "managed",
            "cloudCredentialsRef": {"secretName": "cp-admin-password-cloud", "cloudName": "admin"},
            "resource": {"name": "billing", "domainRef": "cp-domain-default"},
        },
    }
    own = plane(cloudCredentialsRef={"secretName": "mine", "cloudName": "west"})
    assert children.probe(order(), own, "billing") == {
        "kind": "Project",
        "metadata": {"name": "reporting-fa5e0ba7-project-project-probe", "namespace": "openstack", "labels": labels},
        "spec": {
            "managementPolicy": "unmanaged",
            "cloudCredentialsRef": {"secretName": "mine", "cloudName": "west"},
            "import": {"filter": {"name": "billing", "domainRef": "cp-domain-default"}},
        },
    }


def test_the_cluster_label_is_there_even_when_it_is_empty() -> None:
    assert ownership_labels(order())["c5c3.io/keystoneproject-cluster"] == ""
    assert ownership_labels(order(cluster="edge-1"))["c5c3.io/keystoneproject-cluster"] == "edge-1"


def test_the_workflow_id_is_typed_by_people() -> None:
    assert order().workflow_id == "KeystoneProject:team-a/reporting"
    assert order(cluster="edge-1").workflow_id == "KeystoneProject:team-a/reporting@edge-1"
    for ref in (order("a.b"), order("a.b", cluster="edge.example.org")):
        assert OrderRef.parse(ref.workflow_id) == ref


@pytest.mark.parametrize("text", ["", "KeystoneProject", "KeystoneProject:team-a", "team-a/reporting", "K:/x", "K:x/"])
def test_what_is_no_workflow_id_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"KIND:NAMESPACE/NAME\[@CLUSTER\]"):
        OrderRef.parse(text)


COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "glancé"), unicodedata.normalize("NFD", "glancé")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("Service-Glance", "service-glance"),
        ("SERVICE-GLANCE", "service-glance"),
        (f"service-{COMPOSED}", "service-glance"),
        (f"service-{DECOMPOSED}", "service-glance"),
        (COMPOSED, DECOMPOSED),
        ("Ádmin", "admin"),
        ("ÀÉÎÕÜ", "aeiou"),
        ("ẞ", "ß"),
        ("\u212bngström", "angstrom"),  # the Ångström sign
        ("admın", "admin"),
        ("ſervice-glance", "service-glance"),
        ("ẛervice-glance", "service-glance"),
        ("ßervice-glance", "service-glance"),
        ("admin  ", "admin"),
    ],
)
def test_keystone_takes_them_for_the_same_name(name: str, other: str) -> None:
    assert COMPOSED != DECOMPOSED
    assert keystone_name_key(name) == keystone_name_key(other)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("straße", "strasse"),
        ("administrator", "admin"),
        ("service-glance2", "service-glance"),
        ("ø", "o"),
        ("a b", "ab"),
        (" admin", "admin"),
        ("admin\t", "admin"),
    ],
)
def test_keystone_tells_them_apart(name: str, other: str) -> None:
    assert keystone_name_key(name) != keystone_name_key(other)


def test_a_claim_is_one_per_identity() -> None:
    """Two orders that would create one row want one Lease; anything else another (contracts 14.3)."""
    claim = claim_name("openstack/cp", "Project", "Default", "Billing")
    assert claim == claim_name("openstack/cp", "Project", "default", "bílling")
    others = {
        claim_name("openstack/cp2", "Project", "Default", "Billing"),
        claim_name("openstack/cp", "User", "Default", "Billing"),
        claim_name("openstack/cp", "Project", "Other", "Billing"),
        claim_name("openstack/cp", "Project", "Default", "Billing2"),
        claim_name("openstack/cp", "Project", "Def", "aultBilling"),
    }
    assert len(others | {claim}) == 6
    assert len(claim) <= 63
    assert claim == claim.lower()
