"""What registrations stand on breaks: Keystone, the store, an External plane's Keystone, our own programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deploy.local import kube
from deploy.local.parts import openbao
from deploy.openbao.layout import tenant_store
from tests.e2e.external import Failing, each_failure, nowhere
from tests.e2e.services import Service, account, catalog
from tests.e2e.stage import Object, Plane, Stage, condition, unique, until
from tests.e2e.test_transport import impostor

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
Register = Callable[..., Service]

UNLATCHED_AT = "c5c3.io/korc-transport-unlatched-at"


def whole(register: Register, stem: str, **where: object) -> Service:
    return register(
        stem,
        catalog=catalog("public", "internal"),
        account=lambda name: account(f"{name}-project", "member", "reader"),
        **where,
    )


async def latched(service: Service, kind: str, suffix: str) -> Object:
    """Waits until K-ORC has given up on the child, and answers it."""

    def holds(child: Object | None) -> bool:
        said = condition(child, "Progressing")
        return (said.get("status"), said.get("reason")) == ("False", "InvalidConfiguration")

    found = await until(lambda: service.child(kind, suffix), holds, 60)
    assert found is not None
    return found


@pytest.mark.row("S24", "S29")
async def test_a_keystone_outage_heals_by_itself_in_both_blocks_and_never_onto_a_stranger(
    real_stack: Stage, register: Register, tmp_path: Path
) -> None:
    """K-ORC holds a token when Keystone goes, so it takes every create that fails for a misconfiguration, for good.

    Four orders: one heals; the names of two are taken by strangers before K-ORC may try again, of which one is deleted
    at once; and one meets somebody else on Keystone's port, which no retry mends.
    """
    warm = await whole(register, "warm").place()
    await warm.is_ready()
    heals, collides, leaves = whole(register, "heals"), whole(register, "collides"), whole(register, "leaves")
    distrusts = register("distrusts", catalog=catalog("public"))
    everyone = (heals, collides, leaves)
    async with real_stack.without("keystone"):
        await asyncio.gather(*(each.place() for each in everyone))
        for each in everyone:
            for kind, suffix in (("Service", "service"), ("Project", "project")):
                child = await latched(each, kind, suffix)
                assert "connection refused" in condition(child, "Progressing")["message"]
                assert "id" not in child["status"]
            await each.reads("catalog", "CatalogFailed", "WaitingForCatalog")
            await each.reads("account", "ServiceAccountsFailed", "WaitingForServiceAccounts")
        with impostor(real_stack.stack.ports["keystone"], tmp_path):
            await distrusts.place()
            await latched(distrusts, "Service", "service")
    strangers: list[tuple[str, Object]] = []
    make = real_stack.keystone.create
    for each in (collides, leaves):
        strangers.append(("services", await make("services", name=each.name, type="registry")))
        strangers.append(("projects", await make("projects", name=each.project, domain_id="default")))
        strangers.append(("users", await make("users", name=each.name, domain_id="default")))
    theirs = {row["id"] for _, row in strangers}
    try:
        await leaves.delete()
        said = await distrusts.reads("catalog", "CatalogFailed")
        assert "x509" in said["message"]
        await leaves.gone(90)
        assert await leaves.objects() == {}
        for row in (*await leaves.service_rows(), *await leaves.project_rows(), *await leaves.user_rows()):
            assert row["id"] in theirs

        await heals.is_ready(120)
        assert await heals.logs_in() is not None
        assert await heals.role_names() == {"member", "reader"}
        healed = await heals.child("Service", "service")
        assert healed is not None
        assert UNLATCHED_AT in healed["metadata"]["annotations"]

        said = await collides.reads("catalog", "ServiceCollision", seconds=120)
        assert collides.name in said["message"]
        await collides.reads("account", "ServiceAccountCollision", seconds=120)
        await collides.delete()
        await collides.gone(90)
        for row in (*await collides.service_rows(), *await collides.project_rows(), *await collides.user_rows()):
            assert row["id"] in theirs, "a stranger's resource went, or one of ours is left"
        there = [await collides.service_rows(), await collides.project_rows(), await collides.user_rows()]
        assert [len(rows) for rows in there] == [1, 1, 1]

        stays = await distrusts.child("Service", "service")
        assert stays is not None
        assert condition(stays, "Progressing")["reason"] == "InvalidConfiguration", "a misconfiguration stays latched"
        assert UNLATCHED_AT not in (stays["metadata"].get("annotations") or {})
        await distrusts.delete()
        await distrusts.gone()
        await distrusts.left_nothing()
    finally:
        for collection, row in strangers:
            await real_stack.keystone.delete(collection, row["id"])


@pytest.mark.row("A06")
async def test_a_store_that_is_not_ready_stops_the_account_alone_and_heals(
    real_stack: Stage, register: Register
) -> None:
    """A plane over the one Keystone whose store points to where nobody listens, until somebody mends it."""
    here = real_stack.stack
    plane, store = Plane(unique("cp"), unique("plane")), unique("store")
    spec: Object = {
        "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
        "services": {"keystone": {"mode": "Managed"}},
        "secretStoreRef": {"kind": "SecretStore", "name": store},
    }
    await real_stack.plane(plane, spec, "team-b")
    both = register(
        "stored", namespace="team-b", plane=plane, catalog=catalog("public"),
        account=lambda name: account(f"{name}-project", "member"),
    )  # fmt: skip
    broken = register("broken", namespace="team-b", plane=plane, account=lambda name: account(f"{name}-project"))
    bare = register("bare", namespace="team-b", plane=plane, catalog=catalog())

    async def stored(server: str) -> None:
        body = tenant_store("team-b", server)[2]
        body["metadata"]["name"] = store
        await kube.apply(here, "management", [body])

    where = (here, "management", "secretstores.external-secrets.io", "team-b", store)
    try:
        await asyncio.gather(*(each.place() for each in (both, broken, bare)))
        await bare.is_ready()
        for each in (both, broken):
            said = await each.reads("account", "SecretStoreNotReady")
            assert f"SecretStore team-b/{store} does not exist" in said["message"]
            assert await each.child("User", "user") is None
        await both.reads("catalog", "CatalogRegistered")
        await stored(nowhere().removesuffix("/v3"))
        await until(lambda: kube.get(*where), kube.condition("Ready", "False"), 40)
        live = await until(
            both.live, lambda live: "InvalidProviderConfig" in condition(live, "AccountReady")["message"], 40
        )
        assert condition(live, "AccountReady")["reason"] == "SecretStoreNotReady"
        await stored(openbao.url(here))
        await asyncio.gather(both.is_ready(60), broken.is_ready(60))
        assert await both.logs_in() is not None
        for each in (both, broken, bare):
            await each.delete()
        for each in (both, broken, bare):
            await each.gone()
            await each.left_nothing()
    finally:
        await real_stack.delete("management", "secretstores.external-secrets.io", "team-b", store)
        await real_stack.drop_plane(plane)


@pytest.mark.row("K03")
async def test_failures_of_an_external_keystone_read_as_their_classes_and_heal(
    real_stack: Stage, register: Register, tmp_path: Path
) -> None:
    """Four planes, broken in four ways after their imports were resolved; each heals when its Secret is mended."""

    async def one(failing: Failing) -> None:
        service = await whole(register, "ext", namespace="team-b", plane=failing.plane).place()
        probes = {"catalog": ("Service", "service-probe"), "account": ("Project", "project-probe")}
        for block, which in probes.items():
            failing.is_said(await service.reads(block, failing.reason), await service.child(*which))
        assert {name for name in await service.children() if not name.endswith("-probe")} == set()
        await failing.mend()
        await service.is_ready(90)
        delivered = await service.credentials()
        assert f'auth_url: "{failing.url}"' in delivered["clouds.yaml"]
        assert "endpoint_type: public" in delivered["clouds.yaml"]
        assert await service.logs_in() is not None
        await service.delete()
        await service.gone(90)
        await service.left_nothing()

    await each_failure(real_stack, tmp_path, one)


async def exactly_one_of_everything(service: Service, generation: int) -> None:
    """In Keystone, in the cluster, in OpenBao and in Temporal; and no word of an error is left."""
    live = await service.is_ready()
    (row,), (user,), (project,) = await asyncio.gather(
        service.service_rows(), service.user_rows(), service.project_rows()
    )
    said = live["status"]
    assert said["catalog"]["serviceID"] == row["id"]
    assert (said["account"]["userID"], said["account"]["projectID"]) == (user["id"], project["id"])
    assert said["account"]["passwordGeneration"] == generation
    assert len(await service.stage.keystone.endpoints(service=row["id"])) == 2
    assert await service.role_names() == {"member", "reader"}
    assert set(await until(service.passwords, lambda found: set(found) == {generation}, 30)) == {generation}
    children = await until(service.children, lambda found: not any("probe" in name for name in found), 30)
    assert len(children) == 13, sorted(children)
    assert len(await until(service.open_runs, lambda runs: len(runs) == 1, 15)) == 1
    assert await service.logs_in() is not None
    assert "rror" not in str(said), "an error is left in the conditions"


@pytest.mark.row("T09", "A11")
async def test_a_worker_killed_at_any_step_loses_and_duplicates_nothing(real_stack: Stage, register: Register) -> None:
    """Four are made, four rotated and four deleted, one after the other, so that each kill finds them elsewhere."""
    made, rotated, deleted = ([whole(register, stem) for _ in range(4)] for stem in ("made", "rotated", "deleted"))
    await asyncio.gather(*(service.place() for service in (*rotated, *deleted)))
    await asyncio.gather(*(service.is_ready() for service in (*rotated, *deleted)))

    async def spread(acts: list[Awaitable[object]]) -> None:
        for act in acts:
            await act
            await asyncio.sleep(0.5)

    async def murder(*moments: float) -> None:
        for pause in moments:
            await asyncio.sleep(pause)
            await real_stack.kill("worker")
            await real_stack.start("worker")

    await asyncio.gather(
        spread([service.place() for service in made]),
        spread([service.nudge() for service in rotated]),
        spread([service.delete() for service in deleted]),
        murder(0.8, 0.7, 1.0),
    )
    for service in rotated:
        await until(service.live, lambda live: (live or {})["status"]["account"]["passwordGeneration"] == 2, 120)
    await asyncio.gather(*(service.is_ready(120) for service in (*made, *rotated)))
    await asyncio.gather(*(exactly_one_of_everything(service, 1) for service in made))
    await asyncio.gather(*(exactly_one_of_everything(service, 2) for service in rotated))
    await asyncio.gather(*(service.gone(120) for service in deleted))
    await asyncio.gather(*(service.left_nothing() for service in deleted))


@pytest.mark.row("T10")
async def test_registrations_written_while_watcher_and_temporal_are_dead_are_served(
    real_stack: Stage, register: Register
) -> None:
    """One is made, one deleted, one edited and one rotated in the meantime."""
    deleted, edited, rotated = (whole(register, "before") for _ in range(3))
    created = whole(register, "meanwhile")
    await asyncio.gather(*(each.place() for each in (deleted, edited, rotated)))
    await asyncio.gather(*(each.is_ready() for each in (deleted, edited, rotated)))
    await real_stack.kill("watcher", "temporal")
    try:
        await asyncio.gather(created.place(), deleted.delete(), rotated.nudge(), edited.edit(catalog=None))
        await asyncio.sleep(1)
        assert (await created.live() or {}).get("status") is None
    finally:
        await real_stack.start("temporal")
        await real_stack.start("watcher")
    await asyncio.gather(created.is_ready(90), edited.is_ready(90), deleted.gone(90))
    await deleted.left_nothing()
    await exactly_one_of_everything(created, 1)
    await until(rotated.live, lambda live: (live or {})["status"]["account"]["passwordGeneration"] == 2, 60)
    await exactly_one_of_everything(rotated, 2)
    assert await edited.service_rows() == []
