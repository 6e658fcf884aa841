"""Alerts, runbook, dashboard and the list of metrics say the same: each alert has its entry, each name is explained."""

from __future__ import annotations

import json
import re

from tests.telemetry.files import DASHBOARD, RUNBOOK, alerts, dashboard, documented, named_in
from watcher.census import REASONS

ENTRIES = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)


def test_every_alert_has_its_entry_and_every_entry_its_alert() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) > 0
    assert sorted(names) == sorted(ENTRIES)


def test_every_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        notes = rule["annotations"]
        assert set(notes) == {"summary", "description", "runbook_url"}, rule["alert"]
        assert notes["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["for"]


def test_every_entry_says_what_it_means_what_to_look_at_and_what_helps() -> None:
    for entry in re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]:
        parts: list[str] = re.findall(r"^\*\*(\w+):\*\*", entry, re.MULTILINE)
        assert parts == ["Means", "Look", "Helps"], entry


def test_every_metric_that_is_read_is_documented() -> None:
    known = documented().keys()
    for name, expression in [*((rule["alert"], rule["expr"]) for rule in alerts()), *dashboard()]:
        assert named_in(expression) <= known, name
        assert named_in(expression), f"{name} reads no metric"


def test_the_reasons_that_raise_no_alarm_are_reasons() -> None:
    (stuck,) = [rule["expr"] for rule in alerts() if rule["alert"] == "C5C3OrderStuck"]
    (pattern,) = re.findall(r'reason!~"([^"]+)"', stuck)
    theirs = {reason for reason in REASONS if re.fullmatch(pattern, reason)}
    assert theirs == {
        "ClusterNameTooLong", "ControlPlaneNotFound", "DatabaseCollision", "DatabaseNameInvalid",
        "DatabaseNameReserved", "DatabaseNotPublished", "DeliveryRefused", "DynamicCredentialsUnavailable",
        "NamespaceNotAllowed", "NamespaceNotAssigned", "ProjectCollision", "ServiceAccountCollision",
        "ServiceCollision",
    }  # fmt: skip


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    told = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in told["panels"]]
    assert len(ids) == len(set(ids))
    for panel in told["panels"]:
        place = panel["gridPos"]
        assert 0 < place["w"] <= 24 - place["x"]
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["targets"]
