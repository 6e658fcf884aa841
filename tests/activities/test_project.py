"""A project's own steps against a real API server, K-ORC's answers given by hand: each reason from its cause."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import projection
from activities.cluster import KEYSTONE_PROJECT, KORC_PROJECT
from activities.clusters import Clusters
from activities.errors import ClusterError, Conflict
from activities.keystoneproject import KeystoneProjects
from tests import korc_by_hand as words
from tests.audit import Audit, writes
from tests.meddled import Call, Meddled
from tests.world import REGISTRATIONS, World, retried, run
from workflows.keystoneproject import children, reasons
from workflows.scaffold.korc import UNLATCHED_AT
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import TRANSPORT_RETRY_FAILED
from workflows.scaffold.verdict import Outcome, Verdict

pytestmark = pytest.mark.api


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests answer between the steps; what a step sees while it lingers is tested with K-ORC playing."""
    monkeypatch.setattr(projection, "LINGER_SECONDS", 0.2)


async def provision(world: World, ref: OrderRef) -> Outcome:
    return await retried(world.projects.provision_project, await world.task(ref))


async def verdict(world: World, ref: OrderRef) -> Verdict:
    (found,) = (await provision(world, ref)).verdicts
    return found


async def managed(world: World, ref: OrderRef) -> str:
    """The order's managed Project, made by the product and not looked at by K-ORC yet."""
    await provision(world, ref)
    await world.korc.absent(world.probe_of(ref))
    await provision(world, ref)
    name = world.project_of(ref)
    await world.korc.let_go(world.probe_of(ref))
    assert await world.names() == [name]
    return name


@pytest.mark.row("P13")
async def test_nothing_is_created_while_the_probe_is_pending(world: World) -> None:
    await world.plane()
    ref = await world.order()
    found = await verdict(world, ref)
    assert (found.reason, found.again) == (reasons.PROBING, 10)
    for say in (
        world.korc.notice(world.probe_of(ref)),
        world.korc.waits_for(world.probe_of(ref), "Domain/cp-domain-default"),
        world.korc.transient(world.probe_of(ref), words.NO_CONNECTION),
        world.korc.terminal(world.probe_of(ref), "invalid configuration: bad filter"),
    ):
        await say
        found = await verdict(world, ref)
        assert found.reason == reasons.PROBING, found
        assert await world.names() == [world.probe_of(ref)]
        assert await world.leases() == []
    assert "bad filter" in found.message


async def test_the_probe_and_the_project_are_what_the_contract_lists(world: World) -> None:
    await world.plane()
    ref = await world.order(project="finance")
    await provision(world, ref)
    probe = await world.korc.there(world.probe_of(ref))
    assert probe["spec"] == {
        "cloudCredentialsRef": {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"},
        "managementPolicy": "unmanaged",
        "import": {"filter": {"name": "finance", "domainRef": "cp-domain-default"}},
    }
    await world.korc.absent(world.probe_of(ref))
    await provision(world, ref)
    project = await world.korc.there(world.project_of(ref))
    assert {key: project["spec"][key] for key in ("cloudCredentialsRef", "managementPolicy", "resource")} == {
        "cloudCredentialsRef": {"secretName": "cp-admin-password-cloud", "cloudName": "admin"},
        "managementPolicy": "managed",
        "resource": {"name": "finance", "domainRef": "cp-domain-default"},
    }
    for child in (probe, project):
        assert child["metadata"]["labels"] == ownership_labels(ref)
        assert child["metadata"]["labels"]["c5c3.io/keystoneproject-cluster"] == ""
        assert "ownerReferences" not in child["metadata"]
    applied = [each for each in project["metadata"]["managedFields"] if each["operation"] == "Apply"]
    assert [each["manager"] for each in applied] == ["cobaltcore-operator"]
    (lease,) = await world.leases()
    assert lease["spec"]["holderIdentity"] == ref.workflow_id
    assert lease["metadata"]["labels"] == {**ownership_labels(ref), "c5c3.io/claims": "project"}


@pytest.mark.row("P04")
async def test_a_project_that_is_not_available_yet_is_waited_for(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    assert (await verdict(world, ref)).reason == reasons.WAITING
    await world.korc.waits_for(name, "Domain/cp-domain-default")
    found = await verdict(world, ref)
    assert (found.reason, found.again) == (reasons.WAITING, 10)
    assert "Domain/cp-domain-default" in found.message
    # Available, but for a generation that is no more.
    await world.korc.available(name, generation=0)
    assert (await verdict(world, ref)).reason == reasons.WAITING
    await world.korc.available(name)
    outcome = await provision(world, ref)
    assert outcome.verdicts[0].reason == reasons.PROVISIONED
    assert outcome.verdicts[0].again is None
    live = await world.korc.there(name)
    assert outcome.fields == {
        "projectID": live["status"]["id"],
        "projectName": "reporting",
        "domainName": "Default",
    }


@pytest.mark.row("P04")
@pytest.mark.parametrize("reason", ["InvalidConfiguration", "UnrecoverableError"])
async def test_a_terminal_error_reads_failed_with_the_words_of_korc(world: World, reason: str) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    text = "invalid configuration creating resource: Expected HTTP response code [201], but got 400"
    await world.korc.terminal(name, text, reason)
    before = await world.korc.get(name)
    found = await verdict(world, ref)
    assert (found.reason, found.again) == (reasons.FAILED, 10)
    assert text in found.message
    assert await world.korc.get(name) == before
    # A latch of an older generation says nothing of this one.
    await world.korc.say(name, ("False", reason, text), ("False", reason, text), generation=0)
    assert (await verdict(world, ref)).reason == reasons.WAITING


async def test_a_resource_that_somebody_deleted_reads_failed(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await world.korc.available(name, "deadbeef")
    await world.korc.terminal(name, words.VANISHED, "UnrecoverableError", id_="deadbeef")
    found = await verdict(world, ref)
    assert found.reason == reasons.FAILED
    assert words.VANISHED in found.message


@pytest.mark.row("P04")
async def test_a_name_that_korc_does_not_take_reads_error_with_the_limit(world: World) -> None:
    await world.plane()
    ref = await world.order(project="x" * 65)
    with pytest.raises(ApplicationError) as caught:
        await run(world.projects.provision_project, await world.task(ref))
    assert caught.value.non_retryable
    assert "64" in caught.value.message
    assert "name" in caught.value.message
    assert await world.names() == []


@pytest.mark.row("P04")
async def test_an_api_server_that_refuses_the_child_is_an_error_and_never_a_verdict(world: World) -> None:
    await world.plane()
    ref = await world.order()
    task = await world.task(ref)
    plane = task.plane
    assert plane is not None
    elsewhere = plane.model_copy(update={"metadata": plane.metadata.model_copy(update={"namespace": "no-such-place"})})
    with pytest.raises(ApplicationError, match="no-such-place"):
        await run(world.projects.provision_project, task.model_copy(update={"plane": elsewhere}))


async def test_an_existing_project_is_a_collision_and_nothing_is_written_over_it(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await world.one_pass(ref)
    await world.korc.available(world.probe_of(ref), "f00d")
    audit = Audit(world.stack)
    found = await verdict(world, ref)
    assert (found.reason, found.again) == (reasons.COLLISION, 10)
    assert "reporting" in found.message
    assert "Default" in found.message
    assert await world.names() == [world.probe_of(ref)]
    assert await world.leases() == []
    assert writes(await audit.asked(world.plane_ns)) == []


async def test_several_existing_projects_are_a_collision_too(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await provision(world, ref)
    await world.korc.terminal(world.probe_of(ref), words.AMBIGUOUS)
    assert (await verdict(world, ref)).reason == reasons.COLLISION
    assert await world.names() == [world.probe_of(ref)]


@pytest.mark.row("K04")
async def test_on_a_managed_plane_nothing_is_classified(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await provision(world, ref)
    for text in (words.NO_CONNECTION, words.UNAUTHORIZED, "x509: certificate signed by unknown authority"):
        await world.korc.transient(world.probe_of(ref), text)
        found = await verdict(world, ref)
        assert found.reason == reasons.PROBING
        assert text in found.message
    await world.korc.absent(world.probe_of(ref))
    await provision(world, ref)
    await world.korc.transient(world.project_of(ref), words.UNAUTHORIZED)
    assert (await verdict(world, ref)).reason == reasons.WAITING


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (words.NO_CONNECTION, "EndpointUnreachable"),
        (words.UNAUTHORIZED, "AuthenticationFailed"),
        ("tls: failed to verify certificate: x509: unknown authority", "TLSVerificationFailed"),
        ("No suitable endpoint could be found in the service catalog.", "CatalogEndpointMismatch"),
    ],
)
async def test_on_an_external_plane_the_waits_are_classified(world: World, text: str, reason: str) -> None:
    await world.plane(external=True)
    ref = await world.order()
    await provision(world, ref)
    await world.korc.transient(world.probe_of(ref), text)
    found = await verdict(world, ref)
    assert (found.reason, found.again) == (reason, 10)
    assert f"https://keystone.example.org/v3: {text}" in found.message
    await world.korc.absent(world.probe_of(ref))
    await provision(world, ref)
    await world.korc.transient(world.project_of(ref), text)
    assert (await verdict(world, ref)).reason == reason


# -- somebody else's objects -----------------------------------------------------------------------------------------

FOREIGN = {
    "spec": {
        "cloudCredentialsRef": {"secretName": "theirs", "cloudName": "admin"},
        "managementPolicy": "unmanaged",
        "import": {"filter": {"name": "theirs"}},
    }
}


def almost(ref: OrderRef) -> dict[str, Any]:
    """Labels of which one is missing: not ours."""
    return {k: v for k, v in ownership_labels(ref).items() if not k.endswith("-cluster")}


@pytest.mark.parametrize("labels", [False, True], ids=["bare", "two of three labels"])
async def test_a_foreign_object_at_the_projects_name_is_refused(world: World, labels: bool) -> None:
    await world.plane()
    ref = await world.order()
    meta = {"labels": almost(ref)} if labels else {}
    theirs = await world.child(world.project_of(ref), {**FOREIGN, "metadata": meta})
    found = await verdict(world, ref)
    assert found.reason == reasons.ERROR
    assert "not created by this order" in found.message
    assert world.project_of(ref) in found.message
    await world.delete(ref)
    await world.torn_down(ref)
    assert await world.find(ref) is None
    assert await world.children() == [theirs]


@pytest.mark.parametrize("answer", ["absent", "available"])
async def test_a_foreign_object_at_the_probes_name_is_refused(world: World, answer: str) -> None:
    await world.plane()
    ref = await world.order()
    await world.child(world.probe_of(ref), FOREIGN)
    await getattr(world.korc, answer)(world.probe_of(ref))
    theirs = await world.children()
    found = await verdict(world, ref)
    assert found.reason == reasons.ERROR
    assert world.probe_of(ref) in found.message
    assert await world.children() == theirs
    await world.delete(ref)
    await world.torn_down(ref)
    assert await world.find(ref) is None
    assert await world.children() == theirs


async def test_a_foreign_probe_is_never_dropped_for_a_latched_project(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await world.child(world.probe_of(ref), FOREIGN)
    await world.korc.available(world.probe_of(ref))
    await asyncio.sleep(1.1)
    await world.korc.terminal(name, words.REFUSED)
    theirs = await world.korc.get(world.probe_of(ref))
    found = await verdict(world, ref)
    assert found.reason == reasons.ERROR
    assert world.probe_of(ref) in found.message
    assert await world.korc.get(world.probe_of(ref)) == theirs


async def test_a_foreign_probe_does_not_decide_a_removal_and_is_left_alone(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await world.child(world.probe_of(ref), FOREIGN)
    await world.korc.available(world.probe_of(ref))
    await asyncio.sleep(1.1)
    await world.korc.terminal(name, words.REFUSED)
    theirs = await world.korc.get(world.probe_of(ref))
    await world.delete(ref)
    removal = await world.torn_down(ref)
    assert await world.korc.get(world.probe_of(ref)) == theirs
    # Nobody can be asked, so what may be a stranger's project in Keystone is not deleted, and the order says why.
    project = await world.korc.there(name)
    assert "deletionTimestamp" not in project["metadata"]
    assert world.probe_of(ref) in removal.left[0]


async def test_a_project_that_appears_between_look_and_apply_is_not_overwritten(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await provision(world, ref)
    await world.korc.absent(world.probe_of(ref))
    task = await world.task(ref)
    plane = task.plane
    assert plane is not None
    theirs = await world.child(world.project_of(ref), FOREIGN)
    body = children.project(ref, plane, "reporting")
    with pytest.raises(Conflict):
        await projection.apply_onto(world.clusters.management, KORC_PROJECT, body, None)
    assert await world.korc.get(world.project_of(ref)) == theirs


async def test_an_apply_lands_on_the_object_that_was_read_or_on_none(world: World) -> None:
    await world.plane()
    ref = await world.order()
    task = await world.task(ref)
    plane = task.plane
    assert plane is not None
    body = children.project(ref, plane, "reporting")
    meta = (await projection.apply_onto(world.clusters.management, KORC_PROJECT, body, None))["metadata"]
    await world.admin.delete(KORC_PROJECT, world.plane_ns, meta["name"], meta["uid"])
    again = await world.child(meta["name"], FOREIGN)
    with pytest.raises(Conflict):
        await projection.apply_onto(world.clusters.management, KORC_PROJECT, body, meta["uid"])
    await world.clusters.management.delete(KORC_PROJECT, world.plane_ns, meta["name"], meta["uid"])
    assert await world.korc.get(meta["name"]) == again
    assert again["metadata"]["uid"] != meta["uid"]


# -- drift -----------------------------------------------------------------------------------------------------------


async def test_an_edited_project_is_brought_back_and_a_deleted_one_is_made_anew(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await world.korc.available(name)
    edit = {"spec": {"cloudCredentialsRef": {"secretName": "elsewhere"}}}
    await world.admin.patch(KORC_PROJECT, world.plane_ns, name, edit)
    assert (await verdict(world, ref)).reason == reasons.WAITING
    live = await world.korc.there(name)
    assert live["spec"]["cloudCredentialsRef"]["secretName"] == "cp-admin-password-cloud"
    await world.korc.available(name)
    assert (await verdict(world, ref)).reason == reasons.PROVISIONED
    await world.admin.delete(KORC_PROJECT, world.plane_ns, name, live["metadata"]["uid"])
    found = await verdict(world, ref)
    assert found.reason == reasons.WAITING
    assert "being deleted" in found.message
    await world.korc.let_go(name)
    assert (await verdict(world, ref)).reason == reasons.PROBING
    await world.korc.absent(world.probe_of(ref))
    assert (await verdict(world, ref)).reason == reasons.WAITING
    assert name in await world.names()


async def test_a_probe_of_another_plane_or_name_is_asked_anew(world: World) -> None:
    await world.plane()
    ref = await world.order()
    await provision(world, ref)
    await world.korc.absent(world.probe_of(ref))
    edit = {"spec": {"import": {"filter": {"name": "other"}}}}
    await world.admin.patch(KORC_PROJECT, world.plane_ns, world.probe_of(ref), edit)
    await world.korc.absent(world.probe_of(ref))
    old = await world.korc.there(world.probe_of(ref))
    assert (await verdict(world, ref)).reason == reasons.PROBING
    await world.korc.let_go(world.probe_of(ref))
    assert (await verdict(world, ref)).reason == reasons.PROBING
    new = await world.korc.there(world.probe_of(ref))
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["spec"]["import"]["filter"]["name"] == "reporting"
    assert await world.leases() == []


# -- the latch -------------------------------------------------------------------------------------------------------


async def test_a_latch_is_cleared_only_once_a_fresh_probe_says_absent(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await asyncio.sleep(1.1)
    await world.korc.terminal(name, words.REFUSED)
    # Keystone is still away: the probe cannot tell, and the latch stays.
    assert (await verdict(world, ref)).reason == reasons.WAITING
    await world.korc.transient(world.probe_of(ref), words.NO_CONNECTION)
    assert (await verdict(world, ref)).reason == reasons.WAITING
    assert _progressing(await world.korc.there(name)) == "InvalidConfiguration"
    await world.korc.absent(world.probe_of(ref))
    await verdict(world, ref)
    live = await world.korc.there(name)
    assert _progressing(live) is None
    assert [c["type"] for c in live["status"]["conditions"]] == ["Available"]
    stamp = datetime.fromisoformat(live["metadata"]["annotations"][UNLATCHED_AT])
    assert timedelta(0) <= datetime.now(UTC) - stamp < timedelta(seconds=5)
    await world.korc.let_go(world.probe_of(ref))
    # Latched again at once: not before the backoff is over.
    await world.korc.terminal(name, words.REFUSED)
    found = await verdict(world, ref)
    assert found.reason == reasons.FAILED
    assert words.REFUSED in found.message
    assert _progressing(await world.korc.there(name)) == "InvalidConfiguration"
    past = (datetime.now(UTC) - timedelta(seconds=61)).strftime("%Y-%m-%dT%H:%M:%SZ")
    note = {"metadata": {"annotations": {UNLATCHED_AT: past}}}
    await world.admin.patch(KORC_PROJECT, world.plane_ns, name, note)
    assert (await verdict(world, ref)).reason == reasons.WAITING  # asks again first
    await world.korc.absent(world.probe_of(ref))
    await verdict(world, ref)
    assert _progressing(await world.korc.there(name)) is None
    await world.korc.available(name)
    assert (await verdict(world, ref)).reason == reasons.PROVISIONED


async def test_a_latch_is_never_cleared_onto_a_strangers_project(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await asyncio.sleep(1.1)
    await world.korc.terminal(name, words.REFUSED)
    await verdict(world, ref)
    await world.korc.available(world.probe_of(ref), "strangers")
    found = await verdict(world, ref)
    assert found.reason == reasons.COLLISION
    assert _progressing(await world.korc.there(name)) == "InvalidConfiguration"


async def test_a_latch_of_a_child_with_an_id_needs_no_probe(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await world.korc.available(name, "known")
    await world.korc.terminal(name, words.REFUSED.replace("creating", "updating"), id_="known")
    await verdict(world, ref)
    live = await world.korc.there(name)
    assert _progressing(live) is None
    assert live["status"]["id"] == "known"
    assert await world.names() == [name]


async def test_a_misconfiguration_stays_latched(world: World) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    for text in ("x509: dial tcp", "401 dial tcp", "some other trouble"):
        await world.korc.terminal(name, text)
        assert (await verdict(world, ref)).reason == reasons.FAILED
        assert _progressing(await world.korc.there(name)) == "InvalidConfiguration"
    await world.korc.terminal(name, words.REFUSED, "UnrecoverableError")
    assert (await verdict(world, ref)).reason == reasons.FAILED
    assert await world.names() == [name]


def _progressing(live: dict[str, Any]) -> str | None:
    conditions = (live.get("status") or {}).get("conditions") or []
    return next((c["reason"] for c in conditions if c["type"] == "Progressing"), None)


async def test_a_clear_that_is_refused_reads_so_and_one_that_meets_trouble_waits_for_the_next_pass(
    world: World,
) -> None:
    await world.plane()
    ref = await world.order()
    name = await managed(world, ref)
    await world.korc.available(name, "known")
    await world.korc.terminal(name, words.REFUSED.replace("creating", "updating"), id_="known")
    task = await world.task(ref)
    for status in (403, 404, 409, 429, 500, 503, 504):
        meddled = Meddled(world.clusters.management)

        async def refuse(call: Call, status: int = status) -> None:
            if str(call) == "PATCH projects/status":
                raise (Conflict if status == 409 else ClusterError)(str(call), status, "Refused", "by the test")

        meddled.before = refuse
        step = KeystoneProjects(Clusters(meddled, REGISTRATIONS)).provision_project
        if status == 403:
            with pytest.raises(ApplicationError) as caught:
                await run(step, task)
            assert caught.value.type == TRANSPORT_RETRY_FAILED
            assert caught.value.non_retryable
        else:
            assert (await run(step, task)).verdicts[0].reason == reasons.FAILED
        live = await world.korc.there(name)
        assert _progressing(live) == "InvalidConfiguration"
        assert UNLATCHED_AT not in live["metadata"].get("annotations", {})


async def test_any_name_reaches_korc_letter_by_letter(world: World) -> None:
    """An apply is read as YAML, and YAML has its own ways with letters."""
    await world.plane()
    name = "😀\U0010ffff漢é\x7f\x85\u2028\ufeff'\"\\ud83d\\\n\t:#{}"
    ref = await world.order(project=name)
    await managed(world, ref)
    assert (await world.korc.there(world.project_of(ref)))["spec"]["resource"]["name"] == name


async def test_a_plane_without_a_namespace_is_the_one_beside_the_order(world: World) -> None:
    beside = dataclasses.replace(world, plane_ns=world.order_ns)
    await beside.plane()
    body = {"metadata": {"name": "beside", "namespace": world.order_ns}, "spec": {"controlPlaneRef": {"name": "cp"}}}
    await world.admin.create(KEYSTONE_PROJECT, body)
    ref = OrderRef(kind="KeystoneProject", cluster="", namespace=world.order_ns, name="beside")
    await provision(world, ref)
    assert await beside.names() == [world.probe_of(ref)]
    assert await world.names() == []
    await world.admin.patch(KORC_PROJECT, world.order_ns, world.probe_of(ref), {"metadata": {"finalizers": None}})
