"""Temporal's UI in a browser, for the kinds whose pages show it: a service's pass, a database that waits.

C5C3_E2E_PICTURES   a folder that the pictures go to; `docs/images` has been filled so
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import kube
from tests.e2e import browser
from tests.e2e.databases import estate
from tests.e2e.services import Service, account, catalog
from tests.e2e.stage import Stage, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
Register = Callable[..., Service]


def images(otherwise: Path) -> Path:
    return Path(os.environ.get("C5C3_E2E_PICTURES") or otherwise)


async def page(stage: Stage, workflow_id: str) -> str:
    """Where the UI shows the order's newest run."""
    described = await stage.temporal.get_workflow_handle(workflow_id).describe()
    port = stage.stack.ports["temporal-ui"]
    return f"http://127.0.0.1:{port}/namespaces/default/workflows/{browser.quoted(workflow_id)}/{described.run_id}"


@pytest.mark.row("T08")
async def test_a_pass_over_a_service_shows_its_two_blocks_side_by_side(
    real_stack: Stage, register: Register, tmp_path: Path
) -> None:
    """Both are edited at once, so that the pass has to do something in each."""
    order = register("registry", catalog=catalog("public"), account=lambda name: account(name, "reader"))
    await order.place()
    await order.is_ready()
    await order.edit(catalog=catalog("public", "internal"), account=account(order.name, "reader", "member"))
    await order.is_ready()
    async with browser.opened() as window:
        where = await page(real_stack, order.workflow_id)
        words = ("provision the catalog", "provision the account", "publish the account")
        await window.shows(f"{where}/timeline", *words)
        await window.picture(images(tmp_path) / "temporal-service.png")


@pytest.mark.row("T08")
async def test_a_database_that_waits_shows_what_for(real_stack: Stage, tmp_path: Path) -> None:
    """Somebody's Secret has the name of the one that is to be delivered. It is left alone, and then it is gone."""
    async with estate(real_stack) as ground, browser.opened() as window:
        order = ground.database(unique("reports"), policy="Delete")
        name = f"{order.name}-credentials"
        meta = {"name": name, "namespace": order.namespace}
        await kube.apply(real_stack.stack, "management", [{"apiVersion": "v1", "kind": "Secret", "metadata": meta}])
        await order.place()
        await order.reads("DeliveryReady", "DeliveryRefused")
        handle = real_stack.temporal.get_workflow_handle(order.workflow_id)

        async def waits() -> bool:
            return bool((await handle.query("describe", result_type=dict)).get("nextLookSeconds"))

        await until(waits, bool, 15)
        where = await page(real_stack, order.workflow_id)
        words = ("DatabaseReady True DatabaseProvisioned", "DeliveryReady False DeliveryRefused")
        await window.shows(f"{where}/user-metadata", "is serving", *words, "next look in 600 s")
        await window.picture(images(tmp_path) / "temporal-database-waiting.png")
        await real_stack.delete("management", "secrets", order.namespace, name)
        await order.resync()  # a stranger's Secret rings nobody
        await order.is_ready()
        await order.delete()
        await order.gone()
