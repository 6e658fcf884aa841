"""Every alert, by promtool: each fires in a world that is ill, and is silent in one that is well."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from deploy.local.part import PartError
from tests.telemetry.files import ALERTS, alerts
from tests.telemetry.prometheus import promtool, shortened

pytestmark = pytest.mark.real  # it fetches Debian's package

UNIT = Path(__file__).parent / "alerts.test.yaml"


async def test_the_rules_are_rules(tmp_path: Path) -> None:
    assert f"{len(alerts())} rules found" in await promtool("check", "rules", ALERTS)
    (tmp_path / "rules.yaml").write_text(shortened())
    assert f"{len(alerts())} rules found" in await promtool("check", "rules", tmp_path / "rules.yaml")


async def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    shutil.copy(UNIT, tmp_path)
    shutil.copy(ALERTS, tmp_path)
    assert "SUCCESS" in await promtool("test", "rules", tmp_path / UNIT.name)
    outcomes: dict[str, set[bool]] = defaultdict(set)
    for test in yaml.safe_load(UNIT.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            outcomes[case["alertname"]].add(bool(case["exp_alerts"]))
    assert outcomes == {rule["alert"]: {True, False} for rule in alerts()}


async def test_a_rule_that_never_fires_is_noticed(tmp_path: Path) -> None:
    shutil.copy(UNIT, tmp_path)
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text().replace("> 1800", "> 18000"))
    with pytest.raises(PartError, match="failed with 1"):
        await promtool("test", "rules", tmp_path / UNIT.name)
