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
    assert (plane.service_auth_url, plane.service_interface) == ("https://keystone.example.com/v3", "internal")
    assert (plane.region, plane.admin_user) == ("west-1", "root")
    assert plane.store_ref == {"kind": "SecretStore", "name": "store"}
    assert plane.registers("a")
    assert not plane.registers("team-a"), "an assignment is another kind's consent"
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
                    "userName": "",
                    "projectName": "",
                    "domainName": "",
                },
                "serviceRegistrations": {"allowedNamespaces": []},
            },
            "region": "",
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
    assert (plane.region, plane.admin_user, plane.keystone_namespace) == ("RegionOne", "admin", "openstack")
    assert plane.store_ref == {"kind": "SecretStore", "name": "openbao-tenant-store"}
    assert plane.registers("openstack"), "the plane's own"
    assert not plane.registers("team-a")
    assert not plane.registers("")
    assert not plane.admin_credential_ready
    assert not plane.paused
    assert not plane.assigns("", "")
    assert not plane.assigns("team-a", "")


@pytest.mark.row("A23")
@pytest.mark.parametrize(
    ("keystone", "url"),
    [
        ({}, "http://cp-keystone.openstack.svc:5000/v3"),
        ({"mode": "Managed", "namespace": {"name": "identity"}}, "http://cp-keystone.identity.svc:5000/v3"),
        # What is said to others counts only where the plane's own address does not reach.
        ({"publicEndpoint": "https://k.example.com/v3"}, "http://cp-keystone.openstack.svc:5000/v3"),
        ({"external": {"authURL": "https://old"}}, "http://cp-keystone.openstack.svc:5000/v3"),
        ({"targetClusterRef": {"name": "edge"}, "publicEndpoint": "https://k/v3", "gateway": {"hostname": "g"}},
         "https://k/v3"),
        ({"targetClusterRef": {"name": "edge"}, "gateway": {"hostname": "g.example.com"}}, "https://g.example.com/v3"),
        ({"targetClusterRef": {"name": "edge"}}, ""),
        ({"mode": "External", "external": {"authURL": "https://k.example.com/identity"}},
         "https://k.example.com/identity"),
        ({"mode": "External", "external": {"authURL": "https://k"}, "targetClusterRef": {"name": "edge"}}, "https://k"),
    ],
)  # fmt: skip
def test_where_a_service_reaches_keystone(keystone: dict[str, object], url: str) -> None:
    spec = {"services": {"keystone": keystone}}
    plane = ControlPlane.model_validate({"metadata": {"name": "cp", "namespace": "openstack"}, "spec": spec})
    assert plane.service_auth_url == url


@pytest.mark.parametrize("service", ["keystone", "horizon", "glance", "placement", "barbican"])
def test_a_services_own_namespace_may_register(service: str) -> None:
    spec = {"services": {service: {"namespace": {"name": "dedicated"}}}}
    plane = ControlPlane.model_validate({"metadata": {"name": "cp", "namespace": "openstack"}, "spec": spec})
    assert [name for name in ("openstack", "dedicated", "team-a", "") if plane.registers(name)] == [
        "openstack",
        "dedicated",
    ]


@pytest.mark.parametrize(
    ("ref", "store"),
    [
        (None, ("SecretStore", "openbao-tenant-store")),
        ({"name": "vault"}, ("ClusterSecretStore", "vault")),
        ({"kind": "", "name": "vault"}, ("ClusterSecretStore", "vault")),
        ({"kind": "ClusterSecretStore", "name": "vault"}, ("ClusterSecretStore", "vault")),
        ({"kind": "SecretStore", "name": "vault"}, ("SecretStore", "vault")),
    ],
)
def test_the_store_to_deliver_through(ref: dict[str, str] | None, store: tuple[str, str]) -> None:
    spec = {"secretStoreRef": ref} if ref else {}
    plane = ControlPlane.model_validate({"metadata": {"name": "cp"}, "spec": spec})
    assert (plane.store_ref["kind"], plane.store_ref["name"]) == store


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
                "managed_cred_ref", "domain_handle", "admin_credential_ready", "paused", "region", "admin_user",
                "service_auth_url", "service_interface", "store_ref"):  # fmt: skip
        assert getattr(lean, ask) == getattr(plane, ask)
    assert lean.spec == plane.spec
    assert len(lean.model_dump_json(by_alias=True)) < 1800
    assert ControlPlane.model_validate_json(lean.model_dump_json(by_alias=True)) == lean
