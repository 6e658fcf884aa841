"""`make demo`: the stack, the product, three orders, and what became of them, watched live.

It changes nothing that `python -m deploy.local` cannot show or take back; with --once it takes everything back itself
and exits 0 only if every step showed what it should.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.local import kube, stack
from deploy.local.api import Api
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import PartError, Stack
from deploy.local.show import shown

SAMPLES = Path(__file__).parents[1] / "samples"
RESOURCE = "keystoneprojects.c5c3.io"
ORDERS = (
    ("management", "keystoneproject.yaml", "ProjectProvisioned"),
    ("target", "keystoneproject-target.yaml", "ProjectProvisioned"),
    ("management", "keystoneproject-refused.yaml", "ProjectCollision"),
)
PATIENCE = 120.0


class Surprise(Exception):
    """The demonstration did not show what it should."""


async def demonstrate(instance: str, *, once: bool) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=160)
    began = time.monotonic()
    with shown() as progress:
        here = await stack.up(instance, progress=progress)
        await asyncio.gather(*(stack.start_part(here, name, progress) for name in ("worker", "watcher")))
        progress.note(f"the stack, the worker and the watcher are up after {time.monotonic() - began:.0f} s")
    orders = [(cluster, yaml.safe_load((SAMPLES / file).read_text()), reason) for cluster, file, reason in ORDERS]
    for cluster, order, _ in orders:
        await kube.apply(here, cluster, [order])
    console.print("\nThree orders: one here, one on the target cluster, one that must be refused.\n")
    await _follow(console, here, orders)
    await _prove(console, here, orders)
    if once:
        await _take_back(console, here, orders)
        await stack.down(instance)
        console.print("\nEverything is down again.")
        return
    _next_steps(console, here)
    try:
        await asyncio.gather(_later(console, instance), _follow(console, here, orders, for_ever=True))
    except asyncio.CancelledError:
        console.print(f"\nThe stack stays up: `make down` ends it ({instance}).")
        raise


async def _follow(console: Console, here: Stack, orders: list[Any], *, for_ever: bool = False) -> None:
    """A live table until every order says what it should."""
    deadline = time.monotonic() + PATIENCE
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while True:
            found = [await _read(here, cluster, order) for cluster, order, _ in orders]
            live.update(_table(orders, found))
            said = [_condition(order, "ProjectReady").get("reason") for order in found]
            if not for_ever and said == [reason for _, _, reason in orders]:
                return
            if not for_ever and time.monotonic() > deadline:
                raise Surprise(f"after {PATIENCE:.0f} s the orders read {said}; `make logs PART=worker` says more")
            await asyncio.sleep(2 if for_ever else 0.25)


async def _prove(console: Console, here: Stack, orders: list[Any]) -> None:
    """What Keystone itself says, asked without any Kubernetes."""
    console.print("\nAs Keystone's own API shows it:")
    async with KeystoneAPI(here) as keystone:
        for cluster, order, reason in orders:
            name = order["spec"].get("projectName") or order["metadata"]["name"]
            rows = await keystone.projects(name=name)
            live = await _read(here, cluster, order)
            wanted = [(live.get("status") or {}).get("projectID")] if reason == "ProjectProvisioned" else []
            if [row["id"] for row in rows] != wanted:
                raise Surprise(f"Keystone has {len(rows)} projects named {name!r}, ids {[row['id'] for row in rows]}")
            shown_as = f"id {rows[0]['id']}, domain {rows[0]['domain_id']}" if rows else "no such project"
            console.print(f"  {name:16} {shown_as}")


async def _take_back(console: Console, here: Stack, orders: list[Any]) -> None:
    """Deletes the orders and looks for anything left of them."""
    for cluster, order, _ in orders:
        meta = order["metadata"]
        await asyncio.to_thread(_delete, here, cluster, meta["namespace"], meta["name"])
    deadline = time.monotonic() + PATIENCE
    while any([await _read(here, cluster, order) for cluster, order, _ in orders]):
        if time.monotonic() > deadline:
            raise Surprise("an order is still there after its deletion; `make logs PART=worker` says more")
        await asyncio.sleep(0.25)
    children = await kube.items(here, "management", "projects.openstack.k-orc.cloud", "openstack")
    async with KeystoneAPI(here) as keystone:
        names = [order["spec"].get("projectName") or order["metadata"]["name"] for _, order, _ in orders]
        left = [name for name in names if await keystone.projects(name=name)]
    ours = [
        c["metadata"]["name"] for c in children if "c5c3.io/keystoneproject-name" in c["metadata"].get("labels", {})
    ]
    if left or ours:
        raise Surprise(f"left behind: projects {left} in Keystone, children {ours} in the cluster")
    console.print("\nDeleted: no order, no child and no project of theirs is left.")


def _delete(here: Stack, cluster: str, namespace: str, name: str) -> None:
    with Api(kube.kubeconfig(here, cluster)) as api:
        api.call("DELETE", f"/apis/c5c3.io/v1alpha1/namespaces/{namespace}/keystoneprojects/{name}")


async def _read(here: Stack, cluster: str, order: Any) -> dict[str, Any]:
    meta = order["metadata"]
    return await kube.get(here, cluster, RESOURCE, meta["namespace"], meta["name"]) or {}


def _condition(order: dict[str, Any], type_: str) -> dict[str, Any]:
    conditions = (order.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == type_), {})


def _table(orders: list[Any], found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("CLUSTER", "ORDER", "READY", "REASON", "AGE"):
        table.add_column(title, no_wrap=True)
    table.add_column("MESSAGE", no_wrap=True, overflow="ellipsis")
    for (cluster, order, _), live in zip(orders, found, strict=True):
        meta, ready, project = order["metadata"], _condition(live, "Ready"), _condition(live, "ProjectReady")
        made = (live.get("metadata") or {}).get("creationTimestamp")
        age = f"{(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(made)).total_seconds():.0f}s" if made else "-"
        colour = "green" if ready.get("status") == "True" else "yellow"
        table.add_row(
            cluster,
            f"{meta['namespace']}/{meta['name']}",
            f"[{colour}]{ready.get('status', '-')}[/]",
            project.get("reason", "-"),
            age,
            project.get("message", ""),
        )
    return table


def _next_steps(console: Console, here: Stack) -> None:
    found = stack.environment(here)
    console.print(f"\nTemporal UI: {found.get('TEMPORAL_UI', found['TEMPORAL_ADDRESS'])}")
    console.print("In another terminal:\n")
    console.print('  eval "$(.venv/bin/python -m deploy.local env)"', markup=False, soft_wrap=True)
    console.print("  kubectl -n team-a describe keystoneproject reporting", markup=False, soft_wrap=True)
    console.print(
        "  temporal workflow signal --workflow-id KeystoneProject:team-a/reporting --name resync",
        markup=False,
        soft_wrap=True,
    )
    console.print("  kubectl -n team-a delete keystoneproject reporting\n", markup=False, soft_wrap=True)
    console.print("Ctrl-C leaves this view; the stack stays up until `make down`.\n")


async def _later(console: Console, instance: str) -> None:
    try:
        await stack.later(instance)
    except PartError as error:
        console.print(f"a part that these orders do not need could not be had: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo ARGS=", description=__doc__)
    parser.add_argument("--once", action="store_true", help="take everything back and exit")
    parser.add_argument("--instance", default=stack.DEFAULT, metavar="NAME")
    args = parser.parse_args()
    try:
        asyncio.run(demonstrate(args.instance, once=args.once))
    except (PartError, Surprise) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
