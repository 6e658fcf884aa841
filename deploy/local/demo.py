"""`make demo`: the stack, the product, a few orders, and what became of them, watched live.

It changes nothing that `python -m deploy.local` cannot show or take back; with --once it takes everything back itself
and exits 0 only if every step showed what it should.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from deploy.local import demo_proofs as proofs
from deploy.local import kube, stack
from deploy.local.demo_orders import DATABASES, PROJECTS, SERVICE, Sample, table
from deploy.local.demo_proofs import Surprise
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import PartError, Stack
from deploy.local.show import shown

PATIENCE = 120.0
MARKS = ("c5c3.io/keystone", "c5c3.io/mariadb")
NAMESPACES = ("openstack", "openstack-ext", "team-a", "team-b")


async def demonstrate(instance: str, *, once: bool) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=160)
    began = time.monotonic()
    with shown() as progress:
        here = await stack.up(instance, progress=progress)
        await asyncio.gather(*(stack.start_part(here, name, progress) for name in ("worker", "watcher")))
        progress.note(f"the stack, the worker and the watcher are up after {time.monotonic() - began:.0f} s")
    console.print("\nThree projects: one ordered here, one on the target cluster, one that must be refused.\n")
    await _order(console, here, PROJECTS)
    await proofs.projects(console, here)
    with shown() as progress:
        progress.note("the service's password travels through OpenBao and External Secrets")
        await stack.later(instance)
    console.print("\nA service: an entry in the catalog, and an account whose password is delivered as a Secret.\n")
    await _order(console, here, (SERVICE,))
    await proofs.service(console, here)
    console.print("\nTwo databases on the shared MariaDB: one ordered here, one on the target cluster.\n")
    await _order(console, here, DATABASES)
    await proofs.databases(console, here)
    every = (*PROJECTS, SERVICE, *DATABASES)
    if once:
        await _take_back(console, here, every)
        await stack.down(instance)
        console.print("\nEverything is down again.")
        return
    _next_steps(console, here)
    try:
        await _follow(console, here, every, for_ever=True)
    except asyncio.CancelledError:
        console.print(f"\nThe stack stays up: `make down` ends it ({instance}).")
        raise


async def _order(console: Console, here: Stack, samples: Sequence[Sample]) -> None:
    for sample in samples:
        await sample.place(here)
    await _follow(console, here, samples)


async def _follow(console: Console, here: Stack, samples: Sequence[Sample], *, for_ever: bool = False) -> None:
    """A live table until every order reads as it should."""
    deadline = time.monotonic() + PATIENCE
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while True:
            found = [await sample.read(here) for sample in samples]
            live.update(table(list(samples), found), refresh=True)
            if not for_ever and all(sample.settled(each) for sample, each in zip(samples, found, strict=True)):
                return
            if not for_ever and time.monotonic() > deadline:
                said = [sample.said(each)[0] for sample, each in zip(samples, found, strict=True)]
                raise Surprise(f"after {PATIENCE:.0f} s the orders read {said}; `make logs PART=worker` says more")
            await asyncio.sleep(2 if for_ever else 0.25)


async def _take_back(console: Console, here: Stack, samples: Sequence[Sample]) -> None:
    """Deletes the orders and looks for anything left of them."""
    for sample in samples:
        await sample.delete(here)
    deadline = time.monotonic() + PATIENCE
    while any([await sample.read(here) for sample in samples]):
        if time.monotonic() > deadline:
            raise Surprise("an order is still there after its deletion; `make logs PART=worker` says more")
        await asyncio.sleep(0.25)
    left = [*await _children_left(here), *await _identities_left(here)]
    left += [*await proofs.schemas_left(here), *await proofs.secrets_left(here)]
    if left:
        raise Surprise(f"left behind: {', '.join(left)}")
    console.print("\nDeleted: no order, no child, and in Keystone, OpenBao and MariaDB nothing of theirs is left.")


async def _children_left(here: Stack) -> list[str]:
    kinds = ("projects", "users", "services", "endpoints", "roles", "roleassignments")
    resources = [f"{kind}.openstack.k-orc.cloud" for kind in kinds]
    resources += ["secrets", "pushsecrets.external-secrets.io", "externalsecrets.external-secrets.io"]
    resources += ["databases.k8s.mariadb.com", "vaultdynamicsecrets.generators.external-secrets.io"]
    return [
        f"{resource} {one['metadata']['namespace']}/{one['metadata']['name']}"
        for resource in resources
        for namespace in NAMESPACES
        for one in await kube.items(here, "management", resource, namespace)
        if any(label.startswith(MARKS) for label in one["metadata"].get("labels") or {})
    ]


async def _identities_left(here: Stack) -> list[str]:
    async with KeystoneAPI(here) as keystone:
        names = {sample.body["spec"].get("projectName") or sample.name for sample in (*PROJECTS, SERVICE)}
        left = [f"project {name}" for name in names if await keystone.projects(name=name)]
        left += [f"user {SERVICE.name}" for _ in await keystone.users(name=SERVICE.name)]
        return left + [f"service {SERVICE.name}" for _ in await keystone.services(name=SERVICE.name)]


def _next_steps(console: Console, here: Stack) -> None:
    found = stack.environment(here)
    console.print(f"\nTemporal UI: {found.get('TEMPORAL_UI', found['TEMPORAL_ADDRESS'])}")
    console.print("In another terminal:\n")
    for line in (
        'eval "$(.venv/bin/python -m deploy.local env)"',
        "python -m worker.cli list",
        "python -m worker.cli explain KeystoneService team-b/reports",
        "kubectl -n team-a describe keystoneproject reporting",
        "temporal workflow signal --workflow-id KeystoneProject:team-a/reporting --name resync",
        "temporal workflow update execute --workflow-id KeystoneService:team-b/reports --name rotate",
        "kubectl -n team-a get secret reports-db-credentials -o yaml",
        "kubectl -n team-a delete keystoneproject reporting",
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print("\nCtrl-C leaves this view; the stack stays up until `make down`.\n")


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
