"""The generated tables hold everything that the definitions and the settings say: nothing is left out, nothing cut."""

from __future__ import annotations

import re
from typing import Any

import pytest

from docs import generate
from tests.docs.pages import ROOT, rows
from watcher.settings import WatcherSettings
from worker.settings import ConnectionSettings, WorkerSettings

PLURALS = sorted(file.stem for file in (ROOT / "deploy" / "crds").glob("*s.yaml"))


def plain(markdown: str) -> str:
    return " ".join(re.sub(r"\\([\\`*_\[\]<>|$])", r"\1", markdown).split())


def descriptions(schema: Any) -> list[str]:
    """Every description of a field below, wherever it is."""
    if isinstance(schema, list):
        return [each for item in schema for each in descriptions(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["description"]] if isinstance(schema.get("description"), str) else []
    return own + [each for value in schema.values() for each in descriptions(value)]


@pytest.mark.parametrize("plural", PLURALS)
def test_every_field_of_a_definition_is_described(plural: str) -> None:
    (version,) = generate.definition(plural)["spec"]["versions"]
    parts = version["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        said = plain(generate.fields(plural, part))
        flat = [" ".join(each.split()) for each in descriptions(parts.get(part, {}))]
        # What is said of one entry of a list of objects is said by the list and by the entry's fields.
        missing = [each for each in flat if each not in said and not each.startswith("One ")]
        assert missing == []


@pytest.mark.parametrize("plural", PLURALS)
def test_every_rule_of_a_definition_is_shown(plural: str) -> None:
    """Counted in the file's text, so that a rule that the walk does not reach is missed."""
    written = len(re.findall(r"^\s*- (?:rule|expression): ", "".join(
        file.read_text() for file in (ROOT / "deploy" / "crds").glob(f"{plural}*.yaml")), re.M))  # fmt: skip
    shown = list(rows(generate.rules(plural)))[2:]
    assert len(shown) == written
    assert all(what and cel and said for what, cel, said in shown)


@pytest.mark.parametrize("plural", PLURALS)
def test_every_kind_of_ours_has_a_page_with_all_of_it(plural: str) -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "kinds").glob("*.md"))
    assert f"{{crd-fields}} {plural} spec" in text
    assert f"{{crd-rules}} {plural}" in text


def test_every_setting_is_in_one_table() -> None:
    shown = [
        row[0].strip("`") for part in ("both", "worker", "watcher") for row in list(rows(generate.settings(part)))[2:]
    ]
    every = ConnectionSettings.model_fields | WorkerSettings.model_fields | WatcherSettings.model_fields
    assert sorted(set(shown)) == sorted("C5C3_" + name.upper() for name in every)
    operating = (ROOT / "docs" / "operating.md").read_text()
    assert all(f"{{settings}} {part}" in operating for part in ("both", "worker", "watcher"))


def test_a_settings_row_says_default_and_bounds() -> None:
    (row,) = [row for row in rows(generate.settings("worker")) if row[0] == "`C5C3_MAX_CONCURRENT_ACTIVITIES`"]
    assert row[1:] == ["`16`", "How many steps run at once.", "from 1 to 10000"]
