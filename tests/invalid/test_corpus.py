"""Every admission rule, on a real API server: what it refuses, in which words, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.invalid.api import Answer, Api, Object, plural_path
from tests.invalid.corpus import Case, all_cases, look

# Admission and defaulting run in full, nothing is stored.
DRY = {"dryRun": "All", "fieldValidation": "Ignore"}

ECHOES = ("some validation rules were not checked", "type conversion error")


def _check(case: Case, answer: Answer) -> None:
    if case.refused is None:
        assert answer.ok, f"refused: {answer.message}"
        for path, value in case.reads.items():
            assert look(answer.body, path) == value, path
        return
    assert answer.code == 422, f"answered {answer.code}: {answer.message or 'admitted'}"
    causes = answer.causes()
    assert any(f == case.field and case.refused in m for f, m in causes), causes
    # Rules that could not run beside the broken value say so too; they are no second aspect.
    others = {f for f, m in causes if f != case.field and not any(echo in m for echo in ECHOES)}
    assert not others, f"more than one aspect: {causes}"


ROWS = {
    "keystoneservice": pytest.mark.row("V01", "V02", "V03", "V04", "V05"),
    "mariadbdatabase": pytest.mark.row("D01"),
}
ELSE = pytest.mark.row("P11")


@pytest.mark.api
@pytest.mark.parametrize("case", [pytest.param(c, id=c.id, marks=ROWS.get(c.corpus, ELSE)) for c in all_cases()])
def test_corpus(api: Api, namespace: str, case: Case) -> None:
    path = plural_path(case.base["apiVersion"], case.plural, namespace)
    if case.wave == "create":
        _check(case, api.request("POST", path, case.after(case.base), **DRY))
        return
    stored = api.request("POST", path, case.before())
    assert stored.ok, f"the base is refused: {stored.message}"
    name = stored.body["metadata"]["name"]
    try:
        target = f"{path}/{name}" + ("/status" if case.wave == "status" else "")
        _check(case, api.request("PUT", target, case.after(stored.body), **DRY))
    finally:
        gone: Any = api.request("DELETE", f"{path}/{name}")
        assert gone.ok, gone.message


@pytest.mark.api
def test_a_full_plane_is_read_back_unharmed(api: Api, namespace: str) -> None:
    """Whatever the subset does not list must survive: orders may run beside the reference operator's planes."""
    unknown: Object = {"a": [1, {"b": None, "c": "x"}], "d": {"e": 1.5}}
    spec: Object = {
        "openStackRelease": "2025.2",
        "globalExtraConfig": {"DEFAULT": {"debug": "true"}},
        "infrastructure": {
            "database": {
                "clusterRef": {"name": "db", "extra": unknown},
                "tls": {"mode": "require", "extra": unknown},
                "extra": unknown,
            },
            "messaging": unknown,
        },
        "services": {
            "keystone": {
                "image": {"repository": "ghcr.io/c5c3/keystone", "tag": "28.0.0"},
                "gateway": {"hostname": "k.example.com", "parentRef": {"name": "gw"}},
                "namespace": {"name": "keystone", "extra": unknown},
                "targetClusterRef": {"name": "edge-1", "extra": unknown},
                "dedicatedBackingServices": {"cache": unknown, "database": {"host": "a", "extra": unknown}},
            },
            "glance": {"backends": [unknown], "namespace": {"name": "glance"}},
            "nova": unknown,
        },
        "korc": {
            "adminCredential": {"bootstrapResources": [{"kind": "Role", "name": "member"}], "extra": unknown},
            "extra": unknown,
        },
        "namespaceAssignments": [{"namespace": "team-a", "extra": unknown}],
        "extra": unknown,
    }
    plane = {"apiVersion": "c5c3.io/v1alpha1", "kind": "ControlPlane", "metadata": {"name": "full"}, "spec": spec}
    made = api.request("POST", plural_path("c5c3.io/v1alpha1", "controlplanes", namespace), plane, **DRY)
    assert made.ok, made.message
    missing = [path for path in _leaves(spec, "spec") if look(made.body, path) != look(plane, path)]
    assert not missing


def _leaves(value: Any, path: str) -> list[str]:
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in _leaves(v, f"{path}.{k}")]
    if isinstance(value, list):
        return [leaf for i, v in enumerate(value) for leaf in _leaves(v, f"{path}.{i}")]
    return [path]
