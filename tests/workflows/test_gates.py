"""The gates of contracts 4.11, in their order, and what a tenant can tell from them."""

from __future__ import annotations

import json

import pytest

from tests.workflows.things import order, plane
from workflows.scaffold import gates
from workflows.scaffold.gates import Gate

KEY = "openstack/cp"


def test_a_cluster_name_that_fits_a_label_passes() -> None:
    assert gates.cluster_name(order(cluster="c" * 63)) is None
    assert gates.cluster_name(order()) is None


@pytest.mark.parametrize("name", ["c" * 64, "é" * 32])
def test_a_cluster_name_that_does_not_is_told_and_nobody_looks_again(name: str) -> None:
    gate = gates.cluster_name(order(cluster=name))
    assert gate is not None
    assert gate.reason == "ClusterNameTooLong"
    assert gate.again is None
    assert name in gate.message
    assert "63" in gate.message


def test_an_order_name_that_fits_a_label_passes() -> None:
    assert gates.order_name(order("n" * 63)) is None


def test_an_order_name_that_does_not_is_told() -> None:
    gate = gates.order_name(order("n" * 64))
    assert gate is not None
    assert gate.reason == ""
    assert gate.again is None


def test_an_assigned_namespace_passes_on_exactly_its_cluster() -> None:
    here, there = plane(assigned=(("team-a", ""),)), plane(assigned=(("team-a", "edge-1"),))
    assert gates.assignment(order(), KEY, here) is None
    assert gates.assignment(order(cluster="edge-1"), KEY, there) is None
    assert gates.assignment(order(cluster="edge-1"), KEY, here) is not None
    assert gates.assignment(order(), KEY, there) is not None
    assert gates.assignment(order(cluster="edge-2"), KEY, there) is not None
    assert gates.assignment(order(namespace="team"), KEY, here) is not None


def test_no_plane_at_home_says_so() -> None:
    gate = gates.assignment(order(), KEY, None)
    assert gate is not None
    assert gate.reason == "ControlPlaneNotFound"
    assert KEY in gate.message
    assert gate.again == 10


def test_an_unassigned_namespace_is_told_where_and_how() -> None:
    for ref, where in ((order(), "the management cluster"), (order(cluster="edge-1"), "edge-1")):
        gate = gates.assignment(ref, KEY, plane())
        assert gate is not None
        assert gate.reason == "NamespaceNotAssigned"
        assert gate.again == 60
        for part in ("spec.namespaceAssignments", "team-a", KEY, where):
            assert part in gate.message


def test_on_a_target_cluster_a_missing_plane_reads_byte_for_byte_like_an_unassigned_one() -> None:
    """Whatever the plane says of others, and whether it is ready: nothing of it shows."""
    ref = order(cluster="edge-1")

    def read(gate: Gate | None) -> bytes:
        assert gate is not None
        return json.dumps(gate.model_dump(mode="json"), sort_keys=True).encode()

    missing = read(gates.assignment(ref, KEY, None))
    for there in (
        plane(),
        plane(ready=False),
        plane(external="https://keystone.example.com/v3"),
        plane(assigned=(("team-a", ""), ("team-a", "edge-2"), ("team-b", "edge-1"))),
    ):
        assert read(gates.assignment(ref, KEY, there)) == missing
    assert read(gates.assignment(order(), KEY, None)) != read(gates.assignment(order(), KEY, plane()))


def test_the_admin_credential_has_to_be_ready() -> None:
    assert gates.admin_credential(plane()) is None
    gate = gates.admin_credential(plane(ready=False))
    assert gate is not None
    assert gate.reason == "WaitingForAdminCredential"
    assert KEY in gate.message
    assert gate.again == 10
