"""Who may register at all, what a gate's answer reads on two blocks, and what it says of sweeping: contracts 4.3."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.test_registration import order
from tests.workflows.things import NOW, plane
from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import gates
from workflows.scaffold import gates as shared
from workflows.scaffold.conditions import changes
from workflows.scaffold.verdict import Verdict

BOTH: dict[str, Any] = {"catalog": {"serviceType": "image"}, "account": {"project": {"name": "service"}}}


def over(**spec: Any) -> ControlPlane:
    return ControlPlane.model_validate({"metadata": {"name": "cp", "namespace": "openstack"}, "spec": spec})


def listing(*names: str) -> dict[str, Any]:
    return {"korc": {"serviceRegistrations": {"allowedNamespaces": names}}}


@pytest.mark.row("S06")
@pytest.mark.parametrize(
    ("namespace", "spec", "admitted"),
    [
        ("openstack", {}, True),
        ("team-a", {}, False),
        ("team-a", {"korc": {}}, False),
        ("team-a", listing(), False),
        ("team-a", listing("team-b", "team-a"), True),
        ("team-a", listing("team-"), False),
        ("images", {"services": {"glance": {"namespace": {"name": "images"}}}}, True),
        ("keys", {"services": {"barbican": {"namespace": {"name": "keys"}}}}, True),
        ("kc", {"services": {"keystone": {"namespace": {"name": "kc"}}}}, True),
        ("team-a", {"namespaceAssignments": [{"namespace": "team-a"}]}, False),
    ],
)
def test_who_may_register(namespace: str, spec: dict[str, Any], admitted: bool) -> None:
    gate = gates.consent(order(namespace=namespace), "openstack/cp", over(**spec))
    assert (gate is None) is admitted


@pytest.mark.row("S05")
def test_a_refusal_names_the_plane_the_namespace_and_the_field() -> None:
    gate = gates.consent(order(), "openstack/cp", over())
    assert gate is not None
    assert (gate.reason, gate.again) == ("NamespaceNotAllowed", 10)
    for part in ("openstack/cp", "'team-a'", "spec.korc.serviceRegistrations.allowedNamespaces"):
        assert part in gate.message
    missing = gates.consent(order(), "openstack/cp", None)
    assert missing is not None
    assert (missing.reason, missing.again) == ("ControlPlaneNotFound", 10)


@pytest.mark.row("S03")
def test_a_gate_speaks_on_declared_blocks_only() -> None:
    gate = shared.admin_credential(plane(ready=False))
    assert gate is not None
    both = gates.refused(BOTH, gate)
    assert [(v.type, v.status, v.reason, v.again) for v in both] == [
        ("CatalogReady", False, "WaitingForAdminCredential", 10),
        ("AccountReady", False, "WaitingForAdminCredential", 10),
    ]
    one = gates.refused({"account": BOTH["account"]}, gate)
    assert [(v.type, v.status, v.reason) for v in one] == [
        ("CatalogReady", True, "CatalogNotDeclared"),
        ("AccountReady", False, "WaitingForAdminCredential"),
    ]
    assert gates.fields(BOTH) == {}
    assert gates.fields({"account": BOTH["account"]}) == {"catalog": None}


def test_a_name_that_is_no_label_value_reads_as_each_blocks_error() -> None:
    gate = shared.order_name(order("x" * 64))
    assert gate is not None
    assert [v.reason for v in gates.refused(BOTH, gate)] == ["CatalogError", "ServiceAccountError"]
    assert shared.order_name(order("x" * 63)) is None


# -- whether anything undeclared may be left --------------------------------------------------------------------


def status(*verdicts: Verdict, generation: int = 1) -> dict[str, Any]:
    types = ("CatalogReady", "AccountReady")
    return changes({}, generation, types, verdicts, {}, "", NOW) or {}


def verdict(type_: str, status_: bool, reason: str) -> Verdict:
    return Verdict(type=type_, status=status_, reason=reason, message="")


REGISTERED = verdict("CatalogReady", True, "CatalogRegistered")


@pytest.mark.row("S13")
def test_a_block_is_swept_once_its_condition_is_true_for_the_order_as_it_is() -> None:
    for account, swept in (
        (verdict("AccountReady", True, "AccountProvisioned"), True),
        (gates.undeclared("account"), True),
        (verdict("AccountReady", False, "WaitingForServiceAccounts"), False),
    ):
        assert gates.swept(status(REGISTERED, account), 1, "account") is swept
        assert not gates.swept(status(REGISTERED, account), 2, "account"), "the spec has changed since"
    assert not gates.swept({}, 1, "account")


@pytest.mark.row("S13", "S03")
@pytest.mark.parametrize("reason", ["ControlPlaneNotFound", "NamespaceNotAllowed", "WaitingForAdminCredential"])
def test_what_a_gate_says_of_an_undeclared_block_is_no_proof_that_it_was_swept(reason: str) -> None:
    """The block may have been taken out of the order while the gate was shut: its children are there still."""
    frozen = status(verdict("CatalogReady", False, reason), gates.undeclared("account"))
    assert not gates.swept(frozen, 1, "account")
