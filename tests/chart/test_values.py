"""The chart's values against what they end in: the programs' settings, the rights, and the kinds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.chart.helm import ACCESS, DEPLOY, PRODUCT
from watcher.settings import WatcherSettings
from worker.settings import ConnectionSettings, WorkerSettings

SCHEMAS = {chart: json.loads((chart / "values.schema.json").read_text()) for chart in (PRODUCT, ACCESS)}
OWN = {
    # Set for both programs, or by a value of its own.
    "worker": {"operator_namespace", "deployment_name", "build_id", "service_account_token_file"},
    "watcher": {"operator_namespace", "leader_election"},
}
FREE = {
    "global", "imagePullSecrets", "annotations", "labels", "resources", "metricsFrom", "extraEnv", "extraVolumes",
    "extraVolumeMounts", "podAnnotations", "podLabels", "nodeSelector", "tolerations", "affinity", "priorityClassName",
}  # fmt: skip
"""Values that may be null, for they are only copied."""
LIMITS = {"minimum": "minimum", "maximum": "maximum", "exclusiveMinimum": "exclusiveMinimum"}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize(("program", "settings"), [("worker", WorkerSettings), ("watcher", WatcherSettings)])
def test_every_setting_of_a_program_alone_is_a_value_with_the_same_limits(
    program: str, settings: type[ConnectionSettings]
) -> None:
    fields = settings.model_fields.keys() - ConnectionSettings.model_fields.keys() - OWN[program]
    values = SCHEMAS[PRODUCT]["properties"][program]["properties"]["settings"]["properties"]
    assert {snake(name) for name in values} == fields
    wanted = settings.model_json_schema()["properties"]
    for name, value in values.items():
        field = wanted[snake(name)]
        assert value["type"] == [field["type"], "null"]
        assert {each: value.get(each) for each in LIMITS} == {each: field.get(each) for each in LIMITS}, name


@pytest.mark.parametrize("chart", [PRODUCT, ACCESS], ids=lambda chart: chart.name)
def test_the_schema_knows_every_value_and_nothing_else(chart: Any) -> None:
    """An object of the schema is closed, unless its keys are Kubernetes' own."""

    def compare(schema: dict[str, Any], values: dict[str, Any], where: str) -> None:
        assert schema["additionalProperties"] is False, where
        known = schema["properties"].keys() - {"global"}
        assert known == values.keys(), where
        assert set(schema.get("required", ())) == known - FREE, where
        for name, value in values.items():
            if "properties" in schema["properties"][name] and name not in ("settings", "resources"):
                compare(schema["properties"][name], value, f"{where}.{name}")

    compare(SCHEMAS[chart], yaml.safe_load((chart / "values.yaml").read_text()), chart.name)


def test_both_charts_hold_the_kinds_and_the_rights_themselves() -> None:
    """They are links, and so are never older than what the local stack applies."""
    assert (PRODUCT / "files" / "crds").resolve() == DEPLOY / "crds"
    assert (PRODUCT / "files" / "rights.yaml").resolve() == DEPLOY / "rbac" / "management.yaml"
    assert (ACCESS / "files" / "rights.yaml").resolve() == DEPLOY / "rbac" / "target.yaml"
    linked = {file.resolve() for file in (ACCESS / "files" / "crds").iterdir()}
    assert linked == {file for file in (DEPLOY / "crds").glob("*.yaml") if not file.name.startswith("keystoneservices")}
