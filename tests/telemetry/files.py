"""The files that alerts, dashboard, metrics and runbook are told by, as tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "chart" / "files" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "chart" / "files" / "dashboard.json"
METRICS = ROOT / "docs" / "metrics.md"
RUNBOOK = ROOT / "docs" / "runbook.md"

_NAME = re.compile(r"\b(?:c5c3|temporal|process)_[a-z0-9_]+")
_PARTS = re.compile(r"_(?:bucket|sum|count)$")


@dataclass(frozen=True)
class Metric:
    """A row of docs/metrics.md. `labels` is empty where the table leaves them to others."""

    name: str
    labels: frozenset[str]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> Iterator[tuple[str, str]]:
    """Title and expression of each target, a range filled in where Grafana would."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


def documented() -> dict[str, Metric]:
    """Every metric that a table of docs/metrics.md has a row for, by name; a row may name several."""
    found: dict[str, Metric] = {}
    for line in METRICS.read_text().splitlines():
        cells = line.split(" | ")
        for name in re.findall(r"`([a-z0-9_]+)`", cells[0]) if line.startswith("| `") else ():
            labels = re.findall(r"`(\w+)`", cells[2]) if len(cells) > 3 else []
            found[name] = Metric(name, frozenset(labels))
    return found


def named_in(expression: str) -> set[str]:
    """The metrics that an expression reads, as the documentation calls them."""
    known = documented()
    return {name if name in known else _PARTS.sub("", name) for name in _NAME.findall(expression)}
