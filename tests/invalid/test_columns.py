"""What `kubectl get` shows of each kind: the API server's own Table, against the columns of the reference."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from tests.invalid.api import TABLE, Api, Object, plural_path
from tests.invalid.conftest import DEPLOY, definitions

CONDITION = {"status": "True", "reason": "AllReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
READY = {"type": "Ready", **CONDITION}
PLANE = {"name": "cp", "namespace": "openstack"}
REFS = {"controlPlaneRef": PLANE, "userRef": {"name": "reader"}, "projectRef": {"name": "reporting"}}

# kind: columns after Name, a spec, a status with everything in it, and the row that is then shown (all but Age).
EXPECTED: dict[str, tuple[list[tuple[str, str]], Object, Object, list[object]]] = {
    "KeystoneProject": (
        [("Ready", "string"), ("ControlPlane", "string"), ("Project", "string"), ("Age", "date")],
        {"controlPlaneRef": PLANE},
        {"conditions": [READY], "projectName": "Reporting"},
        ["True", "cp", "Reporting"],
    ),
    "KeystoneService": (
        [("Ready", "string"), ("ControlPlane", "string"), ("Type", "string"), ("Age", "date")],
        {"controlPlaneRef": PLANE, "catalog": {"serviceType": "image"}},
        {"conditions": [READY], "catalog": {"serviceID": "a"}},
        ["True", "cp", "image"],
    ),
    "MariaDBDatabase": (
        [
            ("Ready", "string"),
            ("ControlPlane", "string"),
            ("Database", "string"),
            ("Refreshed", "date"),
            ("Age", "date"),
        ],
        {"controlPlaneRef": PLANE},
        {"conditions": [READY], "databaseName": "reports", "credentialsRefreshedAt": "2026-02-01T00:00:00Z"},
        ["True", "cp", "reports", ANY],  # how long ago
    ),
    "KeystoneRoleAssignment": (
        [
            ("Ready", "string"),
            ("ControlPlane", "string"),
            ("User", "string"),
            ("Project", "string"),
            ("Role", "string"),
            ("Age", "date"),
        ],
        {**REFS, "role": "member"},
        {"conditions": [READY]},
        ["True", "cp", "reader", "reporting", "member"],
    ),
    "KeystoneApplicationCredential": (
        [
            ("Ready", "string"),
            ("ControlPlane", "string"),
            ("User", "string"),
            ("Project", "string"),
            ("Generation", "integer"),
            ("NextRotation", "string"),
            ("Age", "date"),
        ],
        REFS,
        {"conditions": [READY], "credentialGeneration": 3, "nextRotation": "2026-02-01T00:00:00Z"},
        ["True", "cp", "reader", "reporting", 3, "2026-02-01T00:00:00Z"],
    ),
    "ControlPlane": (
        [("Ready", "string"), ("Release", "string"), ("Age", "date")],
        {"openStackRelease": "2025.2", "infrastructure": {}},
        {"conditions": [READY]},
        ["True", "2025.2"],
    ),
}
OURS = [d for d in definitions() if d["spec"]["group"] == "c5c3.io"]


def test_every_kind_of_ours_has_expected_columns() -> None:
    assert {d["spec"]["names"]["kind"] for d in OURS} == set(EXPECTED)
    assert len(OURS) + 1 == len(list(DEPLOY.glob("crds/**/*.yaml"))), "one file holds a policy instead"


@pytest.mark.api
@pytest.mark.row("P12")
@pytest.mark.parametrize("definition", [pytest.param(d, id=d["spec"]["names"]["kind"]) for d in OURS])
def test_columns(api: Api, namespace: str, definition: Object) -> None:
    kind = definition["spec"]["names"]["kind"]
    columns, spec, status, row = EXPECTED[kind]
    path = plural_path("c5c3.io/v1alpha1", definition["spec"]["names"]["plural"], namespace)
    order: Object = {"apiVersion": "c5c3.io/v1alpha1", "kind": kind, "metadata": {"name": "shown"}, "spec": spec}
    made = api.request("POST", path, order)
    assert made.ok, made.message
    try:
        table = api.request("GET", f"{path}/shown", accept=TABLE)
        assert table.body["kind"] == "Table"
        shown = [(c["name"], c["type"]) for c in table.body["columnDefinitions"]]
        assert shown == [("Name", "string"), *columns]
        assert all(c["priority"] == 0 for c in table.body["columnDefinitions"]), "shown without -o wide"
        # A fresh order has no status: its columns are empty, not an error.
        assert table.body["rows"][0]["cells"][:2] == ["shown", None]

        patched = api.request("PUT", f"{path}/shown/status", {**made.body, "status": status})
        assert patched.ok, patched.message
        cells = api.request("GET", f"{path}/shown", accept=TABLE).body["rows"][0]["cells"]
        assert cells[:-1] == ["shown", *row]
        assert cells[-1].endswith("s"), "Age is an age"
    finally:
        api.request("DELETE", f"{path}/shown")
