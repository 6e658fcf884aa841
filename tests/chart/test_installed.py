"""The charts on real API servers: orders are served under them, through upgrades, and are not left behind."""

from __future__ import annotations

import asyncio
import base64
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from activities.clusters import REGISTRATION_LABEL
from deploy.local import kube
from tests.audit import Audit
from tests.chart.helm import PRODUCT, Helm, merged
from tests.chart.installed import ASSIGNED, RELEASES, SYSTEM, Installed, installed
from tests.e2e.databases import estate
from tests.e2e.services import Service, account, catalog
from tests.e2e.stage import ORDERS, Order, Stage
from watcher.settings import WatcherSettings
from watcher.uninstall import orders_left

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]
Place = Callable[..., Order]
Register = Callable[..., Service]
RELEASE, _ = RELEASES["management"]
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def product(real_stack: Stage, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installed]:
    async with installed(real_stack, helm, tmp_path_factory.mktemp("installed")) as made:
        yield made


@pytest.mark.row("O03")
async def test_orders_of_every_kind_become_ready_under_the_charts_alone(
    product: Installed, place: Place, register: Register
) -> None:
    """At home and on the target cluster; whatever the programs ask for meanwhile is granted to them."""
    logs = {cluster: Audit(product.stack, cluster) for cluster in RELEASES}
    marks = {cluster: log.mark() for cluster, log in logs.items()}
    here, there = place("chart"), place("chart", cluster="target", namespace=ASSIGNED)
    service = register("chart", catalog=catalog("public"), account=lambda name: account(f"{name}-project", "member"))
    await asyncio.gather(*(order.place() for order in (here, there, service)))
    async with estate(product.stage) as ground:
        database = await ground.database("chart").place()
        await asyncio.gather(*(order.is_ready() for order in (here, there, service, database)))
    for order in (here, there, service):
        await order.delete()
    await asyncio.gather(*(order.gone(120) for order in (here, there, service)))
    for cluster, log in logs.items():
        user = f"system:serviceaccount:{SYSTEM}:c5c3-operator"
        asked = log.since(marks[cluster], user)
        assert {request.verb for request in asked} >= {"list", "watch", "get", "update", "patch"}
        assert [request for request in asked if request.code in (401, 403)] == []


async def test_a_refused_uninstall_is_taken_back_to_the_revision_that_was_refused(
    product: Installed, place: Place
) -> None:
    """Also of the first revision, which has none before it. Image and values are what they were."""

    async def state() -> tuple[str, list[object]]:
        deployments = [await product.get("deployments", f"c5c3-orders-{name}") for name in ("worker", "watcher")]
        return await product.helm("get", "values", RELEASE), [(each or {}).get("spec") for each in deployments]

    order = await place("chart").place()
    await order.is_ready()
    before, revision = await state(), await product.revision(RELEASE)
    assert revision == "1"
    await asyncio.gather(product.play_guard(), product.helm_refuses("uninstall", RELEASE))
    await product.helm("rollback", RELEASE, revision)
    assert await state() == before
    await order.delete()
    await order.gone()


async def test_an_upgrade_brings_definitions_up_to_date(product: Installed, place: Place) -> None:
    """From a chart of before, whose definition lacks a column, to this one. Orders of the kind stay as they are."""
    order = await place("chart").place()
    ready = await order.is_ready()

    async def columns() -> list[str]:
        definition = await product.get(CRDS, ORDERS, None)
        assert definition
        return [each["name"] for each in definition["spec"]["versions"][0]["additionalPrinterColumns"]]

    now = await columns()
    await product.helm("upgrade", RELEASE, before(product, columns=1), values=product.values)
    assert await columns() == now[:1]
    await product.helm("upgrade", RELEASE, PRODUCT, values=merged(product.values, {"worker": {"replicas": 3}}))
    assert await columns() == now
    deployment = await product.get("deployments", "c5c3-orders-worker")
    assert deployment
    assert deployment["spec"]["replicas"] == 3
    assert await order.live() == ready


def before(product: Installed, *, columns: int) -> Path:
    """The chart with fewer printer columns of KeystoneProjects."""
    product.tool.run("package", PRODUCT, "--destination", product.folder)
    (package,) = product.folder.glob("*.tgz")
    with tarfile.open(package) as archive:
        archive.extractall(product.folder / "before", filter="data")
    chart = product.folder / "before" / RELEASE
    file = chart / "files" / "crds" / "keystoneprojects.yaml"
    definition = yaml.safe_load(file.read_text())
    del definition["spec"]["versions"][0]["additionalPrinterColumns"][columns:]
    file.write_text(yaml.safe_dump(definition))
    return chart


async def test_a_cluster_that_does_not_answer_counts_as_one_with_orders(product: Installed) -> None:
    nowhere = kube.token_kubeconfig("https://127.0.0.1:1", b"", "nobody", "none")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "lost", "namespace": "c5c3-clusters", "labels": REGISTRATION_LABEL},
        "data": {"kubeconfig": base64.b64encode(nowhere).decode()},
    }
    await kube.apply(product.stack, "management", [secret])
    try:
        said = await orders_left(WatcherSettings(kubeconfig=await product.log_in("c5c3-operator")))
    finally:
        await product.stage.delete("management", "secrets", "c5c3-clusters", "lost")
    (about,) = [one for one in said if "lost" in one]
    assert about.startswith("whether cluster lost has orders is not known (")
    assert about.endswith("): mend or delete its registration")


async def test_an_uninstall_is_refused_while_there_are_orders(product: Installed, place: Place) -> None:
    """At home or on a target cluster. Nothing is deleted, and after a rollback the release is as it was."""
    order = await place("chart").place()
    afar = await place("chart", cluster="target", namespace=ASSIGNED).place()
    await asyncio.gather(order.is_ready(), afar.is_ready())

    words, said = await asyncio.gather(product.play_guard(), product.helm_refuses("uninstall", RELEASE))
    assert f"KeystoneProject {order.namespace}/{order.name}" in words
    assert f"{afar.namespace}/{afar.name} on cluster edge-1: delete what is ordered first" in words
    assert "c5c3-orders-uninstall failed" in said
    for kind, name in (("deployments", "c5c3-orders-worker"), ("serviceaccounts", "c5c3-operator")):
        assert await product.get(kind, name)

    upgrade = ("upgrade", RELEASE, PRODUCT, "--reuse-values")
    assert "has no deployed releases" in await product.helm_refuses(*upgrade)
    await product.helm("rollback", RELEASE, await product.revision(RELEASE))
    await product.helm(*upgrade)
    await order.is_ready()

    for each in (order, afar):
        await each.delete()
    await asyncio.gather(order.gone(), afar.gone())
    await product.end()
    words, said = await asyncio.gather(product.play_guard(), product.helm("uninstall", RELEASE))
    assert words == ""
    assert "kept due to the resource policy" in said
    assert await product.get("deployments", "c5c3-orders-worker") is None
    for name in (ORDERS, "keystoneservices.c5c3.io", "mariadbdatabases.c5c3.io"):
        assert await product.get(CRDS, name, None)
    assert await product.get("namespaces", "c5c3-clusters", None)
    assert await product.get("secrets", "edge-1", "c5c3-clusters")
