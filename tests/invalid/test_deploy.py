"""What a person applies from deploy/, on a real API server: exactly these rights, and samples that are admitted."""

from __future__ import annotations

import pytest
import yaml

from tests.invalid.api import Api, Object, plural_path
from tests.invalid.conftest import DEPLOY

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "KeystoneProject": "keystoneprojects",
}
OPERATOR = "system:serviceaccount:c5c3-system:c5c3-operator"
ANY = "team-a"

# (group, resource, subresource, namespace): the verbs that are allowed there. Everything else must be refused.
MANAGEMENT: dict[tuple[str, str, str, str], set[str]] = {
    ("c5c3.io", "keystoneprojects", "", ANY): {"get", "list", "watch", "update"},
    ("c5c3.io", "keystoneprojects", "status", ANY): {"patch"},
    ("c5c3.io", "keystoneprojects", "finalizers", ANY): {"update"},
    ("c5c3.io", "keystoneroleassignments", "", ANY): {"list", "watch"},
    ("c5c3.io", "keystoneapplicationcredentials", "", ANY): {"list", "watch"},
    ("c5c3.io", "controlplanes", "", ANY): {"get", "list", "watch"},
    ("c5c3.io", "controlplanes", "status", ANY): set(),
    ("openstack.k-orc.cloud", "projects", "", ANY): {"get", "list", "watch", "create", "patch", "delete"},
    ("openstack.k-orc.cloud", "projects", "status", ANY): {"patch"},
    ("openstack.k-orc.cloud", "users", "", ANY): set(),
    ("openstack.k-orc.cloud", "domains", "", ANY): set(),
    ("coordination.k8s.io", "leases", "", ANY): {"get", "list", "create", "delete"},
    ("coordination.k8s.io", "leases", "", "c5c3-system"): {"get", "list", "create", "update", "delete"},
    ("", "secrets", "", "c5c3-clusters"): {"get", "list", "watch"},
    ("", "secrets", "", ANY): set(),
    ("", "secrets", "", "c5c3-system"): set(),
    ("", "secrets", "", ""): set(),
    ("", "namespaces", "", ""): set(),
    ("", "serviceaccounts", "token", "c5c3-system"): set(),
    ("apiextensions.k8s.io", "customresourcedefinitions", "", ""): set(),
    ("rbac.authorization.k8s.io", "clusterroles", "", ""): set(),
}


def documents(name: str) -> list[Object]:
    return [d for d in yaml.safe_load_all((DEPLOY / name).read_text()) if d]


def path_of(document: Object, namespace: str | None = None) -> str:
    namespace = namespace or document["metadata"].get("namespace")
    return f"{plural_path(document['apiVersion'], PLURALS[document['kind']], namespace)}/{document['metadata']['name']}"


@pytest.fixture(scope="module")
def operator(api: Api) -> str:
    for document in documents("rbac/management.yaml"):
        applied = api.apply(path_of(document), document)
        assert applied.ok, applied.message
    return OPERATOR


@pytest.mark.api
@pytest.mark.parametrize("where", [pytest.param(w, id="-".join(p for p in w if p)) for w in MANAGEMENT])
def test_rights_on_the_management_cluster_are_exactly_these(
    api: Api, operator: str, where: tuple[str, str, str, str]
) -> None:
    group, resource, subresource, namespace = where
    allowed = set()
    for verb in VERBS:
        asked = {"group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "verb": verb}
        groups = ["system:serviceaccounts", "system:serviceaccounts:c5c3-system", "system:authenticated"]
        review: Object = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": operator, "groups": groups, "resourceAttributes": asked},
        }
        answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert answer.ok, answer.message
        if answer.body["status"]["allowed"]:
            allowed.add(verb)
    assert allowed == MANAGEMENT[where]


def test_the_table_of_rights_names_every_right() -> None:
    granted = {
        (g, r)
        for d in documents("rbac/management.yaml")
        for rule in d.get("rules", ())
        for g in rule["apiGroups"]
        for r in rule["resources"]
    }
    assert granted == {(g, f"{r}/{s}" if s else r) for (g, r, s, _), verbs in MANAGEMENT.items() if verbs}


@pytest.mark.api
def test_rights_on_a_target_cluster_are_admitted(api: Api, operator: str) -> None:
    for document in documents("rbac/target.yaml"):
        admitted = api.apply(path_of(document), document, dryRun="All", fieldValidation="Strict")
        assert admitted.ok, admitted.message


@pytest.mark.api
@pytest.mark.parametrize("sample", ["keystoneproject", "keystoneproject-target", "keystoneproject-refused"])
def test_a_sample_is_admitted(api: Api, namespace: str, sample: str) -> None:
    (order,) = documents(f"samples/{sample}.yaml")
    assert order["metadata"]["namespace"] == "team-a"
    order["metadata"]["namespace"] = namespace
    admitted = api.apply(path_of(order), order, dryRun="All", fieldValidation="Strict")
    assert admitted.ok, admitted.message
