"""The command line over orders that are Ready, wait, are refused and are being deleted, on the whole real stack."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from deploy.local import kube
from tests.cli.program import Said, run
from tests.e2e.databases import ORDERS as DATABASES
from tests.e2e.services import Service, account, catalog
from tests.e2e.stage import CP, TARGET, Object, Order, Plane, Stage, condition, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@dataclass
class Scene:
    """Orders of every kind, each at rest in a way of its own.

    held  is being deleted, and waits for a KeystoneApplicationCredential
    """

    stage: Stage
    ready: Order
    afar: Order
    refused: Order
    lost: Order
    held: Order
    service: Service
    database: str

    async def run(self, *words: str, **more: object) -> Said:
        said = await run(self.stage.stack, *words, **more)  # type: ignore[arg-type]
        assert not [secret for secret in self.stage.secrets if secret in said.out + said.err]
        return said


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(real_stack: Stage) -> AsyncIterator[Scene]:
    here = real_stack.stack
    ready, held = real_stack.order(unique("listed")), real_stack.order(unique("held"))
    afar = real_stack.order(unique("afar"), cluster="target")
    refused = real_stack.order(unique("refused"), project="admin")
    lost = real_stack.order(unique("lost"), plane=Plane("no-such-plane", "openstack"))
    name = unique("served")
    service = Service(real_stack, name, "team-b", CP, catalog("public"), account(f"{name}-project", "member"))
    database = unique("reports")
    body = {
        "apiVersion": "c5c3.io/v1alpha1", "kind": "MariaDBDatabase",
        "metadata": {"name": database, "namespace": "team-a"},
        "spec": {"controlPlaneRef": {"name": CP.name, "namespace": CP.namespace}, "deletionPolicy": "Delete"},
    }  # fmt: skip
    blocker = {
        "apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneApplicationCredential",
        "metadata": {"name": held.name, "namespace": "team-a"},
        "spec": {"controlPlaneRef": {"name": "cp", "namespace": "openstack"},
                 "userRef": {"name": "somebody"}, "projectRef": {"name": held.name}},
    }  # fmt: skip
    orders = (ready, held, afar, refused, lost)

    async def live_database() -> Object | None:
        return await kube.get(here, "management", DATABASES, "team-a", database)

    try:
        await asyncio.gather(*(order.place() for order in orders), service.place())
        await kube.apply(here, "management", [body, blocker])
        await asyncio.gather(ready.is_ready(), afar.is_ready(), held.is_ready(), service.is_ready(120))
        await asyncio.gather(refused.reads("ProjectCollision"), lost.reads("ControlPlaneNotFound"))
        await until(live_database, lambda live: condition(live, "Ready").get("status") == "True", 120)
        await held.delete()
        await held.reads("ReferencedByApplicationCredentials")
        yield Scene(real_stack, ready, afar, refused, lost, held, service, database)
    finally:
        await real_stack.delete("management", "keystoneapplicationcredentials.c5c3.io", "team-a", held.name)
        await real_stack.delete("management", DATABASES, "team-a", database)
        await asyncio.gather(*(order.delete() for order in orders), service.delete())
        await asyncio.gather(*(order.gone(120) for order in orders), service.gone(120))
        await until(live_database, lambda live: live is None, 120)


def place_of(order: Order) -> str:
    return f"{order.namespace}/{order.name}" + (f"@{TARGET}" if order.cluster == "target" else "")


async def test_a_list_has_a_line_for_each_order_wherever_it_is(scene: Scene) -> None:
    said = await scene.run("list")
    assert said.code == 0, said.err
    assert said.line(place_of(scene.ready)).split()[:4] == [
        "KeystoneProject",
        place_of(scene.ready),
        "True",
        "AllReady",
    ]
    assert "AllReady" in said.line(place_of(scene.afar))
    refused = said.line(place_of(scene.refused))
    assert "False" in refused
    assert "ProjectCollision" in refused
    assert (await scene.refused.reads("ProjectCollision"))["message"] in refused, "cut though it is not a terminal"
    assert "openstack/no-such-plane" in said.line(place_of(scene.lost), "ControlPlaneNotFound")
    assert "ReferencedByApplicationCredentials" in said.line(place_of(scene.held))
    assert "MariaDBDatabase" in said.line(f"team-a/{scene.database}")
    assert "KeystoneService" in said.line(f"team-b/{scene.service.name}", "True")
    for columns in (80, 160):
        fitted = await scene.run("list", columns=columns)
        assert max(map(len, fitted.out.splitlines())) <= columns
        assert len(fitted.out.splitlines()) == len(said.out.splitlines())
        assert fitted.out.splitlines()[0].split()[2] == "READY"
    assert "ProjectCollision" in fitted.line(place_of(scene.refused), "False", "…"), "only the message is cut"


async def test_a_list_is_narrowed_and_read_by_machines(scene: Scene) -> None:
    async def names(*words: str) -> set[str]:
        said = await scene.run("list", "-o", "json", *words)
        assert said.code == 0, said.err
        return {each["name"] for each in said.json["orders"]}

    afar, refused, lost = (one.name for one in (scene.afar, scene.refused, scene.lost))
    every = {scene.ready.name, afar, refused, lost, scene.held.name, scene.service.name, scene.database}
    whole, unready, collided, of_kind, of_namespace, there, here = await asyncio.gather(
        names(), names("--not-ready"), names("--reason", "ProjectCollision"), names("--kind", "keystoneservices"),
        names("-n", "team-b"), names("--cluster", TARGET), names("--cluster", "management"),
    )  # fmt: skip
    assert whole >= every
    assert unready & every == {refused, lost, scene.held.name}
    assert collided & every == {refused}
    assert of_kind & every == of_namespace & every == {scene.service.name}
    assert there & every == {afar}
    assert here & every == every - {afar}
    (order,) = [each for each in (await scene.run("list", "-o", "json")).json["orders"] if each["name"] == afar]
    assert order | {"created": "", "message": ""} == {
        "kind": "KeystoneProject", "cluster": TARGET, "namespace": "team-a", "name": afar, "ready": True,
        "reason": "AllReady", "message": "", "controlPlane": "openstack/cp", "created": "", "deleting": None,
    }  # fmt: skip
    nowhere = await scene.run("list", "--cluster", "no-such-cluster")
    assert nowhere.code == 1
    assert "no Secret c5c3-clusters/no-such-cluster registers" in nowhere.err


async def test_an_order_is_explained_down_to_its_children_and_passes(scene: Scene) -> None:
    said = await scene.run("explain", "keystoneproject", place_of(scene.ready), page="explain-ready")
    assert said.code == 0, said.err
    assert "AllReady" in said.out
    assert "ready" in said.line(scene.ready.child, "Project")
    assert (await scene.ready.status())["projectID"] in said.out
    assert scene.ready.workflow_id in said.line("Lease", "held by")
    assert "the run's start" in said.out
    found = (await scene.run("explain", "KeystoneProject", place_of(scene.ready), "-o", "json")).json
    (run_,) = await scene.ready.open_runs()
    assert found["run"]["runId"] == run_.run_id
    assert run_.run_id in found["run"]["link"]
    steps = [step["name"] for one in found["run"]["passes"] for step in one["steps"]]
    assert "admit" in steps
    assert found["order"]["name"] == scene.ready.name

    waits = await scene.run("explain", "KeystoneProject", place_of(scene.lost), page="explain-waits")
    assert waits.code == 0
    assert "ControlPlaneNotFound" in waits.out
    assert "controlPlaneRef" in waits.out.partition("What would help")[2]
    assert "waits for" in waits.out
    assert "try " in waits.out

    held = await scene.run("explain", "KeystoneProject", place_of(scene.held))
    assert "being deleted" in held.out
    assert "KeystoneProjectTeardown" in held.out
    assert "ReferencedByApplicationCredentials" in held.out.partition("What would help")[2]

    afar = await scene.run("explain", "KeystoneProject", place_of(scene.afar))
    assert scene.afar.child in afar.line("Project", "ready")


async def test_every_child_of_a_registration_and_of_a_database_is_named_and_no_secret(scene: Scene) -> None:
    said = await scene.run("explain", "KeystoneService", f"team-b/{scene.service.name}", page="explain-service")
    assert said.code == 0, said.err
    for kind, name in (await scene.service.objects()).items():
        assert kind.partition("/")[2] in said.out, (kind, name)
    for kind in ("User", "Endpoint", "Service", "RoleAssignment", "PushSecret", "ExternalSecret", "Secret", "Lease"):
        assert any(line.startswith(kind) for line in said.out.splitlines()), kind
    passwords = (await scene.service.passwords()).values()
    assert passwords
    assert scene.stage.secrets >= set(passwords), "what is printed is compared with them"

    said = await scene.run("explain", "MariaDBDatabase", f"team-a/{scene.database}", columns=100)
    children = said.out.partition("Children")[2].partition("Run (")[0]
    for kind in ("Database", "ExternalSecret", "VaultDynamicSecret", "Secret", "Lease"):
        assert any(line.startswith(kind) for line in children.splitlines()), kind
    assert f"team-a/{scene.database}-credentials" in children
    lines = [line for line in said.out.splitlines() if "://" not in line]
    assert max(map(len, lines)) <= 100, "but for the link, which has to stay whole"


async def test_what_is_not_there_is_said_in_a_sentence(scene: Scene) -> None:
    said = await scene.run("explain", "KeystoneProject", "team-a/no-such-order")
    assert (said.code, said.out.count("there is no such order")) == (1, 1)
    for words in (("resync", "KeystoneProject"), ("rotate",)):
        said = await scene.run(*words, "team-a/no-such-order")
        assert said.code == 1
        assert "there is no Keystone" in said.err
        assert "team-a/no-such-order on the management cluster" in said.err
    assert (await scene.run("resync", "KeystoneProject", "no-slash")).code == 2
    assert (await scene.run("explain", "Project", "team-a/x")).code == 2
    wrong = await scene.run("list", "--temporal-address", "nowhere")
    assert (wrong.code, "HOST:PORT" in wrong.err) == (2, True)
    silent = await scene.run("resync", "KeystoneProject", place_of(scene.ready), "--temporal-address", "127.0.0.1:1")
    assert (silent.code, "does not answer" in silent.err) == (1, True)
    strange = await scene.run("list", "--context", "no-such-context")
    assert (strange.code, "no-such-context" in strange.err) == (1, True)
    missing = await scene.run("list", "--kubeconfig", "/no/such/file")
    assert (missing.code, "/no/such/file" in missing.err) == (1, True)


async def test_a_pass_is_asked_for_and_shown(scene: Scene) -> None:
    await scene.lost.describe()
    passes = await scene.lost.passes()
    said = await scene.run("resync", "KeystoneProject", place_of(scene.lost))
    assert said.code == 0, said.err
    assert "ControlPlaneNotFound" in said.line("ProjectReady")
    assert await scene.lost.passes() == passes + 1
    said = await scene.run("resync", "KeystoneProject", place_of(scene.held), "-o", "json")
    assert (said.json["found"]["phase"], said.json["found"]["ready"]) == ("being torn down", False)
    passes = await scene.lost.passes()
    said = await scene.run("resync", "KeystoneProject", place_of(scene.lost), "--no-wait")
    assert (said.code, "asked for" in said.out) == (0, True)
    await until(scene.lost.passes, lambda now: now == passes + 1, 10)
    told = json.loads((await scene.run("explain", "KeystoneProject", place_of(scene.lost), "-o", "json")).out)
    causes = [cause for one in told["run"]["passes"] for cause in one["causes"]]
    assert "resync from c5c3-orders" in causes
    assert "resync_now from c5c3-orders" in causes


async def test_a_password_is_rotated_and_a_refusal_is_the_runs_own(scene: Scene) -> None:
    before = set(await scene.service.passwords())
    said = await scene.run("rotate", f"team-b/{scene.service.name}")
    assert said.code == 0, said.err
    assert f"generation {max(before) + 1}" in said.out
    await scene.service.is_ready()
    assert set(await until(scene.service.passwords, lambda now: set(now) != before)) == {max(before) + 1}


async def test_without_a_worker_nobody_is_kept_waiting(scene: Scene) -> None:
    async with scene.stage.without("worker"):
        said = await scene.run("resync", "KeystoneProject", place_of(scene.ready), "--timeout", "3")
        assert said.code == 1
        assert "no worker answered for" in said.err
        assert "within 3 s" in said.err
        explained = await scene.run("explain", "KeystoneProject", place_of(scene.ready))
        assert explained.code == 0, "histories need no worker"
