"""`make demo`: the stack, the product, a few orders, and what became of them, watched live.

It changes nothing that `python -m deploy.local` cannot show or take back; with --once it takes everything back itself
and exits 0 only if every step showed what it should.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import sys
import time
from collections.abc import Sequence

import yaml
from rich.console import Console
from rich.live import Live
from temporalio.client import Client

from deploy.local import kube, stack
from deploy.local.demo_orders import PROJECTS, SERVICE, Sample, table
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import PartError, Stack
from deploy.local.parts import temporal
from deploy.local.show import shown

PATIENCE = 120.0
NAMESPACES = ("openstack", "openstack-ext", "team-a", "team-b")


class Surprise(Exception):
    """The demonstration did not show what it should."""


async def demonstrate(instance: str, *, once: bool) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=160)
    began = time.monotonic()
    with shown() as progress:
        here = await stack.up(instance, progress=progress)
        await asyncio.gather(*(stack.start_part(here, name, progress) for name in ("worker", "watcher")))
        progress.note(f"the stack, the worker and the watcher are up after {time.monotonic() - began:.0f} s")
    console.print("\nThree projects: one ordered here, one on the target cluster, one that must be refused.\n")
    await _order(console, here, PROJECTS)
    await _prove_projects(console, here)
    with shown() as progress:
        progress.note("the service's password travels through OpenBao and External Secrets")
        await stack.later(instance)
    console.print("\nA service: an entry in the catalog, and an account whose password is delivered as a Secret.\n")
    await _order(console, here, (SERVICE,))
    await _prove_service(console, here)
    every = (*PROJECTS, SERVICE)
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


async def _prove_projects(console: Console, here: Stack) -> None:
    """What Keystone itself says, asked without any Kubernetes."""
    console.print("\nAs Keystone's own API shows it:")
    async with KeystoneAPI(here) as keystone:
        for sample in PROJECTS:
            name = sample.body["spec"].get("projectName") or sample.name
            rows = await keystone.projects(name=name)
            status = (await sample.read(here)).get("status") or {}
            wanted = [status["projectID"]] if "projectID" in status else []
            if [row["id"] for row in rows] != wanted:
                raise Surprise(f"Keystone has {len(rows)} projects named {name!r}, ids {[row['id'] for row in rows]}")
            shown_as = f"id {rows[0]['id']}, domain {rows[0]['domain_id']}" if rows else "no such project"
            console.print(f"  {name:16} {shown_as}")


async def _prove_service(console: Console, here: Stack) -> None:
    """Logs in as the service would, rotates, and shows that the old password is refused."""
    async with KeystoneAPI(here) as keystone:
        before = await _clouds_yaml(here)
        token = await keystone.login_with(before)
        if token is None:
            raise Surprise("Keystone refuses the delivered credentials")
        roles = ", ".join(sorted(role["name"] for role in token["roles"]))
        catalog = [entry for entry in token["catalog"] if entry["name"] == SERVICE.name]
        console.print(f"\n  logged in with Secret {SERVICE.namespace}/{SERVICE.name}-credentials: roles {roles}")
        console.print(
            f"  the catalog lists {len(catalog[0]['endpoints']) if catalog else 0} endpoints of {SERVICE.name}"
        )
        client = await Client.connect(temporal.address(here))
        order = client.get_workflow_handle(f"{SERVICE.kind}:{SERVICE.namespace}/{SERVICE.name}")
        answer = await order.execute_update("rotate", result_type=dict)
        await _follow(console, here, (SERVICE,))
        after = await _clouds_yaml(here)
        if await keystone.login_with(after) is None or await keystone.login_with(before) is not None:
            raise Surprise("after the rotation the new password must log in, and the old one must not")
        console.print(
            f"  rotated to generation {answer['generation']}: the new password logs in, the old one is refused"
        )


async def _clouds_yaml(here: Stack) -> str:
    """What the service reads. Named `admin` in it is the plane's word for the cloud, not who logs in."""
    found = await kube.get(here, "management", "secrets", SERVICE.namespace, f"{SERVICE.name}-credentials")
    if found is None:
        raise Surprise(f"there is no Secret {SERVICE.namespace}/{SERVICE.name}-credentials")
    text = base64.b64decode(found["data"]["clouds.yaml"]).decode()
    if yaml.safe_load(text)["clouds"].keys() != {"admin"}:
        raise Surprise("the delivered clouds.yaml does not name the plane's cloud")
    return text


async def _take_back(console: Console, here: Stack, samples: Sequence[Sample]) -> None:
    """Deletes the orders and looks for anything left of them."""
    for sample in samples:
        await sample.delete(here)
    deadline = time.monotonic() + PATIENCE
    while any([await sample.read(here) for sample in samples]):
        if time.monotonic() > deadline:
            raise Surprise("an order is still there after its deletion; `make logs PART=worker` says more")
        await asyncio.sleep(0.25)
    if left := [*await _children_left(here), *await _identities_left(here)]:
        raise Surprise(f"left behind: {', '.join(left)}")
    console.print("\nDeleted: no order, no child, and in Keystone nothing of theirs is left.")


async def _children_left(here: Stack) -> list[str]:
    kinds = ("projects", "users", "services", "endpoints", "roles", "roleassignments")
    resources = [f"{kind}.openstack.k-orc.cloud" for kind in kinds]
    resources += ["secrets", "pushsecrets.external-secrets.io", "externalsecrets.external-secrets.io"]
    return [
        f"{resource} {one['metadata']['namespace']}/{one['metadata']['name']}"
        for resource in resources
        for namespace in NAMESPACES
        for one in await kube.items(here, "management", resource, namespace)
        if any(label.startswith("c5c3.io/keystone") for label in one["metadata"].get("labels") or {})
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
        "kubectl -n team-a describe keystoneproject reporting",
        "temporal workflow signal --workflow-id KeystoneProject:team-a/reporting --name resync",
        "temporal workflow update execute --workflow-id KeystoneService:team-b/reports --name rotate",
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
