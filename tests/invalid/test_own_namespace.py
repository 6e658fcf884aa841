"""A KeystoneService's plane namespace is frozen by what it means: a policy's rule, for a schema knows no namespace."""

from __future__ import annotations

import pytest

from tests.invalid.api import Api, Object, plural_path

OWN, OTHER = "own", "other"


@pytest.mark.api
@pytest.mark.row("V03")
@pytest.mark.parametrize(
    ("before", "after", "admitted"),
    [
        (None, OWN, True),
        (OWN, None, True),
        (OWN, OWN, True),
        (OTHER, OTHER, True),
        (None, OTHER, False),
        (OWN, OTHER, False),
        (OTHER, OWN, False),
        (OTHER, None, False),
    ],
)
def test_writing_out_the_own_namespace_changes_nothing(
    api: Api, namespace: str, before: str | None, after: str | None, admitted: bool
) -> None:
    def registration(declared: str | None) -> Object:
        ref = {"name": "cp", **({"namespace": namespace if declared == OWN else declared} if declared else {})}
        return {"controlPlaneRef": ref, "catalog": {"serviceType": "image"}}

    path = plural_path("c5c3.io/v1alpha1", "keystoneservices", namespace)
    meta = {"name": "moved", "finalizers": ["c5c3.io/keystoneservice-teardown"]}
    order: Object = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "metadata": meta}
    made = api.request("POST", path, {**order, "spec": registration(before)})
    assert made.ok, made.message
    try:
        moved = api.request("PUT", f"{path}/moved", {**made.body, "spec": registration(after)}, dryRun="All")
        assert moved.ok == admitted, moved.message
        if not admitted:
            assert moved.code == 422
            assert "controlPlaneRef.namespace is immutable" in moved.message
    finally:
        # An object on its way out sheds its finalizer under the same rules.
        assert api.request("DELETE", f"{path}/moved").ok
        live = api.request("GET", f"{path}/moved").body
        live["metadata"]["finalizers"] = []
        assert api.request("PUT", f"{path}/moved", live).ok
