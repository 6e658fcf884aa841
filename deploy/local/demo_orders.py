"""The orders that `make demo` places: what each should come to, how it stands, and the table that shows it."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from deploy.local import kube
from deploy.local.api import Api
from deploy.local.part import Stack

SAMPLES = Path(__file__).parents[1] / "samples"


@dataclass(frozen=True)
class Sample:
    """An order of deploy/samples, the cluster it is placed on, and how its conditions should come to read."""

    cluster: str
    file: str
    reasons: tuple[tuple[str, str], ...]

    @property
    def body(self) -> dict[str, Any]:
        return dict(yaml.safe_load((SAMPLES / self.file).read_text()))

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    async def place(self, here: Stack) -> None:
        await kube.apply(here, self.cluster, [self.body])

    async def read(self, here: Stack) -> dict[str, Any]:
        return await kube.get(here, self.cluster, f"{self.plural}.c5c3.io", self.namespace, self.name) or {}

    async def delete(self, here: Stack) -> None:
        def send() -> None:
            with Api(kube.kubeconfig(here, self.cluster)) as api:
                api.call("DELETE", f"/apis/c5c3.io/v1alpha1/namespaces/{self.namespace}/{self.plural}/{self.name}")

        await asyncio.to_thread(send)

    def settled(self, live: dict[str, Any]) -> bool:
        return all(condition(live, type_).get("reason") == reason for type_, reason in self.reasons)

    def said(self, live: dict[str, Any]) -> tuple[str, str]:
        """Reason and message of the condition that is worth a line: the first that does not read as it should."""
        found = [condition(live, type_) for type_, _ in self.reasons]
        unsettled = (f for f, (_, reason) in zip(found, self.reasons, strict=True) if f.get("reason") != reason)
        chosen = next(unsettled, found[-1])
        return chosen.get("reason", "-"), chosen.get("message", "")


PROJECTS = (
    Sample("management", "keystoneproject.yaml", (("ProjectReady", "ProjectProvisioned"),)),
    Sample("target", "keystoneproject-target.yaml", (("ProjectReady", "ProjectProvisioned"),)),
    Sample("management", "keystoneproject-refused.yaml", (("ProjectReady", "ProjectCollision"),)),
)
SERVICE = Sample(
    "management",
    "keystoneservice.yaml",
    (("CatalogReady", "CatalogRegistered"), ("AccountReady", "AccountProvisioned")),
)

_DELIVERED = (("DatabaseReady", "DatabaseProvisioned"), ("DeliveryReady", "Delivered"))
DATABASES = (
    Sample("management", "mariadbdatabase.yaml", _DELIVERED),
    Sample("target", "mariadbdatabase-target.yaml", _DELIVERED),
)


def condition(live: dict[str, Any], type_: str) -> dict[str, Any]:
    conditions = (live.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == type_), {})


def table(samples: list[Sample], found: list[dict[str, Any]]) -> Table:
    shown = Table(box=None, pad_edge=False, expand=True)
    for title in ("CLUSTER", "KIND", "ORDER", "READY", "REASON", "AGE"):
        shown.add_column(title, no_wrap=True)
    shown.add_column("MESSAGE", no_wrap=True, overflow="ellipsis", ratio=1)
    for sample, live in zip(samples, found, strict=True):
        ready = condition(live, "Ready").get("status", "-")
        made = (live.get("metadata") or {}).get("creationTimestamp")
        age = f"{(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(made)).total_seconds():.0f}s" if made else "-"
        reason, message = sample.said(live)
        colour = "green" if ready == "True" else "yellow"
        place = f"{sample.namespace}/{sample.name}"
        shown.add_row(sample.cluster, sample.kind, place, f"[{colour}]{ready}[/]", reason, age, message)
    return shown
