"""The way of a password to its service, against contracts 3.2 and 4.7: exact keys, paths, annotations and bytes."""

from __future__ import annotations

import base64
import hashlib

import pytest
import yaml

from tests.workflows.test_registration import LABELS, P, account, order, registration
from tests.workflows.things import plane
from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import delivery

PASSWORD = "aZ09_-aZ09_-aZ09_-aZ09_-aZ09_-aZ09_-aZ09_-a"
KEY = "openstack/keystone/team-a/images/service-accounts/credentials"
STORE = {"kind": "SecretStore", "name": "openbao-tenant-store"}
DOCUMENT = f"""\
clouds:
  "admin":
    auth:
      auth_url: "http://cp-keystone.openstack.svc:5000/v3"
      username: "images"
      password: "{PASSWORD}"
      project_name: "service"
      user_domain_name: "Default"
      project_domain_name: "Default"
    region_name: "RegionOne"
    endpoint_type: internal
    identity_api_version: 3
"""


def over(**spec: object) -> ControlPlane:
    return ControlPlane.model_validate({"metadata": {"name": "cp", "namespace": "openstack"}, "spec": spec})


def decoded(data: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64decode(value, validate=True).decode() for key, value in data.items()}


@pytest.mark.row("S09")
def test_names_and_the_path_in_openbao() -> None:
    assert delivery.password_name(order(), 3) == f"{P}password-v3"
    assert delivery.source_name(order()) == f"{P}source"
    assert delivery.backup_name(order()) == f"{P}backup"
    assert delivery.consumer_name(order()) == "images-credentials"
    assert delivery.remote_key(order()) == KEY
    policy = KEY.split("/")
    assert (policy[2], policy[4], len(policy)) == ("team-a", "service-accounts", 6), "<ns>/+/service-accounts/+"


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        (f"{P}password-v1", 1),
        (f"{P}password-v12", 12),
        ("a-password-v3-password-v4", 4),
        (f"{P}password-v", None),
        (f"{P}password-v0", None),
        (f"{P}password-v-1", None),
        (f"{P}password-v+1", None),
        (f"{P}password-v1x", None),
        (f"{P}password-v٣", None),
        ("password-v1", None),
        ("", None),
    ],
)
def test_the_generation_is_read_off_the_name(name: str, generation: int | None) -> None:
    assert delivery.generation_of(name) == generation


def test_a_password_is_kept_beside_the_user() -> None:
    assert delivery.password_secret(registration(), 2) == {
        "kind": "Secret",
        "metadata": {"name": f"{P}password-v2", "namespace": "openstack", "labels": LABELS},
    }


@pytest.mark.row("A22")
def test_the_document_is_exactly_this() -> None:
    document = delivery.clouds_yaml(registration(), account(), PASSWORD)
    assert document == DOCUMENT.encode()
    assert delivery.clouds_yaml(registration(), account("a", "b"), PASSWORD) == document, "byte-stable"
    named = account(userName="Glänce", domainName="Other", project="Serv ice")
    west = over(region="west-1", korc={"adminCredential": {"cloudCredentialsRef": {"cloudName": "west"}}})
    read = yaml.safe_load(delivery.clouds_yaml(registration(over=west), named, PASSWORD))
    ((name, cloud),) = read["clouds"].items()
    assert name == "west"
    assert cloud == {
        "auth": {
            "auth_url": "http://cp-keystone.openstack.svc:5000/v3",
            "username": "Glänce",
            "password": PASSWORD,
            "project_name": "Serv ice",
            "user_domain_name": "Other",
            "project_domain_name": "Other",
        },
        "region_name": "west-1",
        "endpoint_type": "internal",
        "identity_api_version": 3,
    }


@pytest.mark.row("A22")
@pytest.mark.parametrize(
    "text",
    [
        "- x",
        "*a",
        "#admin",
        "a: b",
        'he said "hi"',
        "back\\slash\\n",
        'admin"\n  evil:\n    auth:\n      auth_url: "http://attacker.example.com',
        "two\nlines\r\n\ttab",
        "nul\x00 bell\x07 del\x7f c1\x85\x9b",
        "line\u2028paragraph\u2029nbsp\xa0mark\ufeff",
        "Ünïcode 管理者 \U0001f511",
        "yes",
        "1e3",
        "",
        " ",
        "%(project)s {{x}} ${y}",
    ],
)
def test_no_name_escapes_its_quotes(text: str) -> None:
    """Every free text of the document at once: what a parser reads is what was named, and nothing is added."""
    admin = {"cloudCredentialsRef": {"cloudName": text}, "domainName": text}
    weird = over(
        region=text,
        korc={"adminCredential": admin},
        services={"keystone": {"mode": "External", "external": {"authURL": text, "endpointType": text}}},
    )
    user = account(userName=text, project=text)
    read = yaml.safe_load(delivery.clouds_yaml(registration(over=weird), user, text))
    assert set(read) == {"clouds"}
    ((name, cloud),) = read["clouds"].items()
    assert name == (text or "admin")
    assert cloud["auth"] == {
        "auth_url": text,
        "username": text or "images",
        "password": text,
        "project_name": text,
        "user_domain_name": text or "Default",
        "project_domain_name": text or "Default",
    }
    assert cloud["region_name"] == (text or "RegionOne")
    assert cloud["endpoint_type"] == (text or "public")
    assert set(cloud) == {"auth", "region_name", "endpoint_type", "identity_api_version"}


@pytest.mark.parametrize(
    ("keystone", "word"),
    [
        ({}, "internal"),
        ({"mode": "Managed", "external": {"endpointType": "admin"}}, "internal"),
        ({"targetClusterRef": {"name": "edge-1"}, "publicEndpoint": "https://k"}, "internal"),
        ({"mode": "External", "external": {"authURL": "https://k"}}, "public"),
        ({"mode": "External", "external": {"authURL": "https://k", "endpointType": ""}}, "public"),
        ({"mode": "External", "external": {"authURL": "https://k", "endpointType": "admin"}}, "admin"),
    ],
)
def test_which_endpoints_a_service_uses(keystone: dict[str, object], word: str) -> None:
    document = delivery.clouds_yaml(registration(over=over(services={"keystone": keystone})), account(), PASSWORD)
    assert f"\n    endpoint_type: {word}\n".encode() in document


def test_the_source_says_all_there_is_to_know() -> None:
    body = delivery.source(registration(), account(), PASSWORD)
    assert (body["kind"], body["metadata"]["name"], body["metadata"]["namespace"]) == ("Secret", f"{P}source", "team-a")
    assert set(body) == {"kind", "metadata", "data"}, "no stringData: what is applied is what is read"
    assert decoded(body["data"]) == {
        "password": PASSWORD,
        "username": "images",
        "project_name": "service",
        "user_domain_name": "Default",
        "project_domain_name": "Default",
        "auth_url": "http://cp-keystone.openstack.svc:5000/v3",
        "region_name": "RegionOne",
        "clouds.yaml": DOCUMENT,
    }


def test_the_push_carries_the_whole_source_and_the_digest() -> None:
    content = delivery.digest(DOCUMENT.encode())
    assert content == hashlib.sha256(DOCUMENT.encode()).hexdigest()
    body = delivery.push_secret(registration(), content)
    assert body["metadata"]["annotations"] == {"c5c3.io/keystoneservice-push-hash": content}
    assert body["spec"] == {
        "deletionPolicy": "Delete",
        "secretStoreRefs": [STORE],
        "selector": {"secret": {"name": f"{P}source"}},
        "data": [{"match": {"remoteRef": {"remoteKey": KEY}}}],
    }


def test_the_fetch_takes_two_keys_and_names_the_push() -> None:
    body = delivery.external_secret(registration(), "abc", "1-def")
    assert body["metadata"]["annotations"] == {"external-secrets.io/force-sync": "abc/1-def"}
    assert body["spec"] == {
        "refreshInterval": "1h",
        "secretStoreRef": STORE,
        "target": {"name": "images-credentials", "creationPolicy": "Owner"},
        "data": [
            {"secretKey": "password", "remoteRef": {"key": KEY, "property": "password"}},
            {"secretKey": "clouds.yaml", "remoteRef": {"key": KEY, "property": "clouds.yaml"}},
        ],
    }


def test_both_go_through_the_planes_store() -> None:
    shared = registration(over=over(secretStoreRef={"name": "vault"}))
    store = {"kind": "ClusterSecretStore", "name": "vault"}
    assert delivery.push_secret(shared, "abc")["spec"]["secretStoreRefs"] == [store]
    assert delivery.external_secret(shared, "abc", "1")["spec"]["secretStoreRef"] == store


def test_a_plane_of_the_things_has_the_same_document() -> None:
    assert delivery.clouds_yaml(registration(over=plane()), account(), PASSWORD) == DOCUMENT.encode()
