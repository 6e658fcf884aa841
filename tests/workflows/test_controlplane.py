"""A ControlPlane as upstream writes it, and one that says almost nothing: contracts 2.1."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from workflows.api.controlplane import PAUSED, ControlPlane

UPSTREAM = {
    "apiVersion": "c5c3.io/v1alpha1",
    "kind": "ControlPlane",
    "metadata": {
        "name": "cp",
        "namespace": "openstack",
        "uid": "5f1c",
        "resourceVersion": "123",
        "generation": 4,
        "creationTimestamp": "2026-08-22T10:00:00Z",
        "labels": {"app": "x"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", PAUSED: "true"},
        "finalizers": ["c5c3.io/controlplane"],
        "managedFields": [{"manager": "kubectl", "operation": "Apply"}],
    },
    "spec": {
        "openStackRelease": "2025.2",
        "region": "west-1",
        "secretStoreRef": {"kind": "SecretStore", "name": "store"},
        "infrastructure": {"database": {"clusterRef": {"name": "db"}}, "cache": {"backend": "pymemcache"}},
        "services": {
            "keystone": {
                "mode": "External",
                "replicas": 3,
                "external": {
                    "authURL": "https://keystone.example.com/v3",
                    "endpointType": "internal",
                    "caBundleSecretRef": {"name": "ca"},
                },
                "gateway": {"hostname": "k.example.com"},
            },
            "glance": {"replicas": 1},
        },
        "korc": {
            "adminCredential": {
                "cloudCredentialsRef": {"secretName": "clouds", "cloudName": "west"},
                "userName": "root",
                "projectName": "system",
                "domainName": "Ops",
                "passwordSecretRef": {"name": "keystone-admin", "key": "password"},
                "applicationCredential": {"rotation": {"mode": "Manual"}},
            },
            "serviceRegistrations": {"allowedNamespaces": ["a"]},
        },
        "namespaceAssignments": [
            {"namespace": "team-a", "allowedRoles": ["member"], "allowCatalogEntries": True},
            {"namespace": "team-b", "targetClusterRef": {"name": "edge-1"}},
        ],
    },
    "status": {
        "observedGeneration": 4,
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "X", "message": "m" * 5000,
             "lastTransitionTime": "2026-08-22T10:00:00Z"},
            {"type": "AdminCredentialReady", "status": "True", "reason": "Minted", "observedGeneration": 1},
        ],
        "namespaceAssignments": [{"namespace": "team-a", "reason": "Assigned", "clusterReachable": True}],
    },
}  # fmt: skip


def test_a_full_upstream_plane_is_read() -> None:
    plane = ControlPlane.model_validate(UPSTREAM)
    assert (plane.key, plane.namespace) == ("openstack/cp", "openstack")
    assert plane.external
    assert (plane.auth_url, plane.endpoint_type) == ("https://keystone.example.com/v3", "internal")
    assert (plane.admin_domain, plane.admin_project) == ("Ops", "system")
    assert plane.cred_ref == {"secretName": "clouds", "cloudName": "west"}
    assert plane.managed_cred_ref == {"secretName": "cp-admin-password-cloud", "cloudName": "west"}
    assert plane.domain_handle == "cp-domain-default"
    assert plane.admin_credential_ready, "its own generation is not asked (2.3)"
    assert plane.paused
    assert plane.assigns("team-a", "")
    assert not plane.assigns("team-a", "edge-1")
    assert plane.assigns("team-b", "edge-1")
    assert not plane.assigns("team-b", "")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"services": {"keystone": {}}, "korc": {"adminCredential": {"cloudCredentialsRef": {}}}},
        {
            "services": {"keystone": {"external": {"authURL": "", "endpointType": ""}}},
            "korc": {
                "adminCredential": {
                    "cloudCredentialsRef": {"secretName": "", "cloudName": ""},
                    "projectName": "",
                    "domainName": "",
                }
            },
            "namespaceAssignments": [],
        },
    ],
)
def test_what_a_plane_leaves_out_or_empty_has_the_defaults(spec: dict[str, object]) -> None:
    plane = ControlPlane.model_validate({"metadata": {"name": "cp", "namespace": "openstack"}, "spec": spec})
    assert not plane.external
    assert plane.auth_url == ""
    assert plane.endpoint_type == "public"
    assert (plane.admin_domain, plane.admin_project, plane.cloud_name) == ("Default", "admin", "admin")
    assert plane.cred_ref == {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
    assert plane.managed_cred_ref == {"secretName": "cp-admin-password-cloud", "cloudName": "admin"}
    assert plane.spec.region == "RegionOne"
    assert not plane.admin_credential_ready
    assert not plane.paused
    assert not plane.assigns("", "")
    assert not plane.assigns("team-a", "")


def test_a_managed_plane_has_no_external_url() -> None:
    """`external` may be left over from a mode that was changed."""
    spec = {"services": {"keystone": {"mode": "Managed", "external": {"authURL": "https://old.example.com"}}}}
    assert ControlPlane.model_validate({"metadata": {"name": "cp"}, "spec": spec}).auth_url == ""


@pytest.mark.parametrize("value", ["false", "True", "yes", ""])
def test_only_true_pauses(value: str) -> None:
    meta = {"name": "cp", "annotations": {PAUSED: value}}
    assert not ControlPlane.model_validate({"metadata": meta}).paused


def test_an_unreadable_plane_is_an_error_that_hides_what_it_read() -> None:
    with pytest.raises(ValidationError) as raised:
        ControlPlane.model_validate({"metadata": {"name": "cp"}, "spec": {"region": ["s3cret-value"]}})
    assert "s3cret-value" not in str(raised.value)


def test_a_lean_plane_answers_the_same_and_is_small() -> None:
    plane = ControlPlane.model_validate(UPSTREAM)
    lean = plane.lean()
    for ask in ("key", "external", "auth_url", "endpoint_type", "admin_domain", "admin_project", "cred_ref",
                "managed_cred_ref", "domain_handle", "admin_credential_ready", "paused"):  # fmt: skip
        assert getattr(lean, ask) == getattr(plane, ask)
    assert lean.spec == plane.spec
    assert len(lean.model_dump_json(by_alias=True)) < 1800
    assert ControlPlane.model_validate_json(lean.model_dump_json(by_alias=True)) == lean
