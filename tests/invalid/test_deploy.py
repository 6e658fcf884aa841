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
    "MariaDBDatabase": "mariadbdatabases",
}
OPERATOR = "system:serviceaccount:c5c3-system:c5c3-operator"
GROUPS = ["system:serviceaccounts", "system:serviceaccounts:c5c3-system", "system:authenticated"]
ANY = "team-a"
KEPT = {"get", "list", "watch", "create", "patch", "delete"}
"""What is asked for an object that the product applies, follows and takes back."""
# K-ORC's kinds that only registrations have as children.
REGISTERED = ("services", "endpoints", "users", "domains", "roles", "roleassignments")

# (group, resource, subresource, namespace): the verbs that are allowed there. Everything else must be refused.
MANAGEMENT: dict[tuple[str, str, str, str], set[str]] = {
    ("c5c3.io", "keystoneprojects", "", ANY): {"get", "list", "watch", "update"},
    ("c5c3.io", "keystoneprojects", "status", ANY): {"patch"},
    ("c5c3.io", "keystoneprojects", "finalizers", ANY): {"update"},
    ("c5c3.io", "mariadbdatabases", "", ANY): {"get", "list", "watch", "update"},
    ("c5c3.io", "mariadbdatabases", "status", ANY): {"patch"},
    ("c5c3.io", "mariadbdatabases", "finalizers", ANY): {"update"},
    ("c5c3.io", "keystoneservices", "", ANY): {"get", "list", "watch", "update"},
    ("c5c3.io", "keystoneservices", "status", ANY): {"patch"},
    ("c5c3.io", "keystoneservices", "finalizers", ANY): {"update"},
    ("c5c3.io", "keystoneroleassignments", "", ANY): {"list", "watch"},
    ("c5c3.io", "keystoneapplicationcredentials", "", ANY): {"list", "watch"},
    ("c5c3.io", "controlplanes", "", ANY): {"get", "list", "watch"},
    ("c5c3.io", "controlplanes", "status", ANY): set(),
    ("openstack.k-orc.cloud", "projects", "", ANY): KEPT,
    ("openstack.k-orc.cloud", "projects", "status", ANY): {"patch"},
    **{("openstack.k-orc.cloud", plural, "", ANY): KEPT for plural in REGISTERED},
    **{("openstack.k-orc.cloud", plural, "status", ANY): {"patch"} for plural in REGISTERED},
    ("openstack.k-orc.cloud", "applicationcredentials", "", ANY): set(),
    ("external-secrets.io", "externalsecrets", "", ANY): KEPT,
    ("external-secrets.io", "externalsecrets", "status", ANY): set(),
    ("external-secrets.io", "pushsecrets", "", ANY): KEPT,
    ("external-secrets.io", "secretstores", "", ANY): {"get"},
    ("external-secrets.io", "clustersecretstores", "", ""): {"get"},
    ("k8s.mariadb.com", "databases", "", ANY): KEPT - {"get"},
    ("k8s.mariadb.com", "mariadbs", "", ANY): {"get", "list"},
    ("cert-manager.io", "certificates", "", ANY): {"get", "list", "create", "patch"},
    ("cert-manager.io", "clusterissuers", "", ""): set(),
    ("generators.external-secrets.io", "vaultdynamicsecrets", "", ANY): KEPT,
    ("", "serviceaccounts", "", ANY): {"get", "create", "patch"},
    ("coordination.k8s.io", "leases", "", ANY): {"get", "create", "deletecollection"},
    ("coordination.k8s.io", "leases", "", "c5c3-system"): {"get", "create", "update", "deletecollection"},
    ("", "secrets", "", ANY): KEPT,
    ("", "events", "", ANY): {"create"},
    ("", "namespaces", "", ""): set(),
    ("", "serviceaccounts", "token", "c5c3-system"): set(),
    ("apiextensions.k8s.io", "customresourcedefinitions", "", ""): set(),
    ("rbac.authorization.k8s.io", "clusterroles", "", ""): set(),
}


# Orders live there, what is delivered to them, and where Keystone is placed its databases.
TARGET: dict[tuple[str, str, str, str], set[str]] = {
    ("c5c3.io", "keystoneprojects", "", ANY): {"get", "list", "watch", "update"},
    ("c5c3.io", "keystoneprojects", "status", ANY): {"patch"},
    ("c5c3.io", "keystoneprojects", "finalizers", ANY): {"update"},
    ("c5c3.io", "mariadbdatabases", "", ANY): {"get", "list", "watch", "update"},
    ("c5c3.io", "mariadbdatabases", "status", ANY): {"patch"},
    ("c5c3.io", "mariadbdatabases", "finalizers", ANY): {"update"},
    ("c5c3.io", "keystoneroleassignments", "", ANY): {"list", "watch"},
    ("c5c3.io", "keystoneapplicationcredentials", "", ANY): {"list", "watch"},
    ("c5c3.io", "keystoneservices", "", ANY): set(),
    ("c5c3.io", "controlplanes", "", ANY): set(),
    ("openstack.k-orc.cloud", "projects", "", ANY): set(),
    ("coordination.k8s.io", "leases", "", ANY): set(),
    ("coordination.k8s.io", "leases", "", "c5c3-system"): set(),
    ("", "secrets", "", ANY): KEPT,
    ("", "serviceaccounts", "", ANY): set(),
    ("k8s.mariadb.com", "databases", "", ANY): KEPT - {"get"},
    ("k8s.mariadb.com", "mariadbs", "", ANY): {"get"},
    ("cert-manager.io", "certificates", "", ANY): set(),
    ("generators.external-secrets.io", "vaultdynamicsecrets", "", ANY): set(),
}
Where = tuple[str, str, str, str]
EACH = [
    pytest.param(cluster, where, id="-".join([cluster, *(p for p in where if p)]))
    for cluster, table in (("management", MANAGEMENT), ("target", TARGET))
    for where in table
]


def documents(name: str) -> list[Object]:
    return [d for d in yaml.safe_load_all((DEPLOY / name).read_text()) if d]


def path_of(document: Object, namespace: str | None = None) -> str:
    namespace = namespace or document["metadata"].get("namespace")
    return f"{plural_path(document['apiVersion'], PLURALS[document['kind']], namespace)}/{document['metadata']['name']}"


@pytest.fixture(scope="module")
def clusters(api: Api, target_api: Api) -> dict[str, Api]:
    """Both clusters, with the rights of deploy/rbac applied."""
    both = {"management": api, "target": target_api}
    for cluster, server in both.items():
        for document in documents(f"rbac/{cluster}.yaml"):
            applied = server.apply(path_of(document), document, fieldValidation="Strict")
            assert applied.ok, applied.message
    return both


@pytest.mark.api
@pytest.mark.parametrize(("cluster", "where"), EACH)
def test_rights_are_exactly_these(clusters: dict[str, Api], cluster: str, where: Where) -> None:
    group, resource, subresource, namespace = where
    allowed = set()
    for verb in VERBS:
        asked = {"group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "verb": verb}
        review: Object = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": OPERATOR, "groups": GROUPS, "resourceAttributes": asked},
        }
        answer = clusters[cluster].request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert answer.ok, answer.message
        if answer.body["status"]["allowed"]:
            allowed.add(verb)
    assert allowed == (MANAGEMENT if cluster == "management" else TARGET)[where]


@pytest.mark.parametrize(("cluster", "table"), [("management", MANAGEMENT), ("target", TARGET)])
def test_the_table_of_rights_names_every_right(cluster: str, table: dict[Where, set[str]]) -> None:
    rules = [rule for d in documents(f"rbac/{cluster}.yaml") for rule in d.get("rules", ())]
    granted = {(g, r) for rule in rules for g in rule["apiGroups"] for r in rule["resources"]}
    assert granted == {(g, f"{r}/{s}" if s else r) for (g, r, s, _), verbs in table.items() if verbs}


@pytest.mark.api
def test_registrations_are_served_at_home_alone(api: Api, target_api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/keystoneservices.c5c3.io"
    assert api.request("GET", path).ok
    assert target_api.request("GET", path).code == 404


@pytest.mark.api
@pytest.mark.parametrize(
    "sample",
    [
        "keystoneproject",
        "keystoneproject-target",
        "keystoneproject-refused",
        "mariadbdatabase",
        "mariadbdatabase-target",
    ],
)
def test_a_sample_is_admitted(api: Api, namespace: str, sample: str) -> None:
    (order,) = documents(f"samples/{sample}.yaml")
    assert order["metadata"]["namespace"] == "team-a"
    order["metadata"]["namespace"] = namespace
    admitted = api.apply(path_of(order), order, dryRun="All", fieldValidation="Strict")
    assert admitted.ok, admitted.message
