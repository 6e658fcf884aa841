"""What can be said of the YAML under deploy/ without a server: it parses, it explains itself, it asks for little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.invalid.api import Object
from tests.invalid.conftest import DEPLOY, definitions
from tests.invalid.corpus import Case, all_cases

DEFINITIONS = {d["metadata"]["name"]: d for d in definitions()}
RIGHTS = sorted(DEPLOY.glob("rbac/*.yaml"))
# What the API server says about each kind of value rule.
WORDS = {
    "required": "Required value",
    "minLength": "at least",
    "maxLength": "Too long",
    "pattern": "should match",
    "enum": "Unsupported value",
    "minimum": "greater than or equal to",
}


def schemas(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Every schema in a schema with its dotted path; items as `[]`."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


def root(definition: Object) -> Object:
    schema: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def documents(file: Path) -> list[Object]:
    return [d for d in yaml.safe_load_all(file.read_text()) if d]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_field_is_described(name: str) -> None:
    # The API server forbids a description on metadata.
    silent = [
        p for p, s in schemas(root(DEFINITIONS[name])) if p != "metadata" and not s.get("description", "").strip()
    ]
    assert not silent


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_is_one_served_version_with_status(name: str) -> None:
    definition = DEFINITIONS[name]
    assert definition["kind"] == "CustomResourceDefinition"
    assert name == f"{definition['spec']['names']['plural']}.{definition['spec']['group']}"
    (version,) = definition["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}
    assert "webhook" not in str(definition["spec"].get("conversion", ""))


def _cases(name: str) -> list[Case]:
    plural, group = name.split(".", 1)
    return [c for c in all_cases() if c.plural == plural and c.base["apiVersion"].startswith(f"{group}/")]


def _lists(field: str | None) -> str:
    return re.sub(r"\[\d+\]", "[]", field or "")


@pytest.mark.parametrize("name", [n for n in DEFINITIONS if not n.startswith("mariadbs.")])
def test_the_corpus_refuses_by_every_cel_rule(name: str) -> None:
    refusals = [c.refused for c in _cases(name) if c.refused]
    rules = {r["message"] for _, s in schemas(root(DEFINITIONS[name])) for r in s.get("x-kubernetes-validations", ())}
    unproven = [message for message in rules if not any(r in message for r in refusals)]
    assert not unproven


@pytest.mark.parametrize("name", [n for n in DEFINITIONS if n.startswith(("keystone", "mariadbdatabases."))])
def test_the_corpus_refuses_by_every_value_rule_of_an_order(name: str) -> None:
    refused = {
        (_lists(c.field), word) for c in _cases(name) for word in WORDS.values() if c.refused and word in c.refused
    }
    unproven = []
    for path, schema in schemas(root(DEFINITIONS[name])):
        if not path.startswith("spec"):
            continue
        unproven += [
            (path, rule)
            for rule in schema
            if rule in WORDS and rule != "required" and (path, WORDS[rule]) not in refused
        ]
        wanted = [f"{path}.{child}" for child in schema.get("required", ())]
        unproven += [(child, "required") for child in wanted if (child, WORDS["required"]) not in refused]
    assert not unproven


def _rules(file: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for document in documents(file):
        for rule in document.get("rules", ()):
            yield f"{document['kind']}/{document['metadata']['name']}", rule


@pytest.mark.parametrize("file", RIGHTS, ids=lambda f: f.name)
def test_no_right_is_a_wildcard(file: Path) -> None:
    rules = list(_rules(file))
    assert rules
    for where, rule in rules:
        assert rule["apiGroups"], where
        assert rule["resources"], where
        assert rule["verbs"], where
        assert not any("*" in value for values in rule.values() for value in values), where


@pytest.mark.parametrize("file", RIGHTS, ids=lambda f: f.name)
def test_secrets_are_for_the_one_role_that_serves_orders(file: Path) -> None:
    """Passwords and credentials are delivered wherever an order lives."""
    touching = {
        (document["kind"], document["metadata"]["name"], tuple(rule["resources"]))
        for document in documents(file)
        for rule in document.get("rules", ())
        if "secrets" in rule["resources"]
    }
    assert touching == {("ClusterRole", "c5c3-operator", ("secrets",))}


@pytest.mark.parametrize("file", RIGHTS, ids=lambda f: f.name)
def test_every_right_says_which_step_needs_it(file: Path) -> None:
    lines = file.read_text().splitlines()
    bare = [
        n + 1
        for n, line in enumerate(lines)
        if line.startswith("  - apiGroups:") and not lines[n - 1].startswith("  #")
    ]
    assert not bare


@pytest.mark.parametrize("file", RIGHTS, ids=lambda f: f.name)
def test_every_binding_is_to_a_role_and_an_account_of_the_file(file: Path) -> None:
    made: set[tuple[Any, ...]] = {
        (d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in documents(file)
    }
    bindings = [d for d in documents(file) if d["kind"].endswith("Binding")]
    assert bindings
    for binding in bindings:
        role = binding["roleRef"]
        assert (role["kind"], role["name"], binding["metadata"].get("namespace")) in made
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["name"], subject["namespace"]) in made


def test_nothing_names_this_machine() -> None:
    for file in DEPLOY.rglob("*.yaml"):
        assert not re.search(r"/(work|root|home|tmp)/", file.read_text()), file
