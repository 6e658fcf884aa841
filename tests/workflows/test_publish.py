"""Every branch of the judge of the way to the service's Secret: contracts 3.2, 4.7, 13."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.registrations import Live, does
from tests.workflows.test_registration import P, account
from tests.workflows.things import condition
from workflows.api.korc import KorcObject
from workflows.keystoneservice import children, delivery
from workflows.keystoneservice.publish import Content, judge_publish
from workflows.scaffold.child import fingerprint
from workflows.scaffold.verdict import Act, Decision

READY = condition("Ready", "True", "Synced", "", generation=None)
ONE, TWO = "1" * 64, "2" * 64
SOURCE, PUSH = ("Secret", f"{P}source"), ("PushSecret", f"{P}backup")
FETCH = ("ExternalSecret", "images-credentials")
OWNER = {"controller": True, "uid": "u-1", "kind": "KeystoneService", "name": "images"}


def content(password: str = "one", digest: str = ONE) -> Content:
    keys = ("username", "project_name", "user_domain_name", "project_domain_name", "auth_url", "region_name")
    values = {"password": password, "clouds.yaml": f"clouds {digest}", **dict.fromkeys(keys, "x")}
    return Content(digest=digest, source={key: fingerprint(value.encode()) for key, value in values.items()})


def judged(live: Live, what: Content | None = None, generation: int = 1) -> Decision:
    return judge_publish(live.reg, generation, what or content(), live.seen)


def says(decision: Decision, reason: str, *do: tuple[Act, tuple[str, str]]) -> str:
    verdict = decision.verdict
    assert (verdict.type, verdict.status, verdict.reason) == (
        "AccountReady", reason == "AccountProvisioned", reason,
    )  # fmt: skip
    assert does(decision) == [(act, *name) for act, name in do]
    return verdict.message


def waits(decision: Decision, *do: tuple[Act, tuple[str, str]]) -> str:
    message = says(decision, "WaitingForServiceAccounts", *do)
    assert (decision.verdict.again, decision.stays) == (10, True)
    return message


def put_source(live: Live, what: Content | None = None, **more: Any) -> KorcObject:
    meta = children.metadata(live.reg, f"{P}source", "team-a")
    data = dict((what or content()).source)
    return live.put({"kind": "Secret", "metadata": meta}, data={**data, **more.pop("data", {})}, **more)


def put_push(live: Live, *conditions: dict[str, Any], digest: str = ONE, synced: str = "1-a", **more: Any) -> None:
    live.put(delivery.push_secret(live.reg, digest), *(conditions or (READY,)), synced=synced, **more)


def put_fetch(live: Live, mark: str = f"{ONE}/1-a", *conditions: dict[str, Any], **more: Any) -> None:
    digest, _, synced = mark.partition("/")
    live.put(delivery.external_secret(live.reg, digest, synced), *(conditions or (READY,)), **more)


def put_consumer(live: Live, password: str = "one") -> None:
    meta = {"name": "images-credentials", "namespace": "team-a", "labels": {}}
    live.put({"kind": "Secret", "metadata": meta}, data={"password": fingerprint(password.encode())})


def whole(live: Live) -> None:
    put_source(live)
    put_push(live)
    put_fetch(live)
    put_consumer(live)


@pytest.mark.row("A18")
def test_one_thing_comes_after_the_other() -> None:
    live = Live()
    waits(judged(live), (Act.APPLY, SOURCE))
    put_source(live)
    waits(judged(live), (Act.APPLY, PUSH))
    for conditions in ((condition("Ready", "False", "Errored", "sealed", generation=None),), ()):
        put_push(live, *(conditions or (condition("Ready", "Unknown", generation=None),)), synced="")
        waits(judged(live))
    put_push(live, synced="")
    waits(judged(live))
    put_push(live)
    decision = judged(live)
    waits(decision, (Act.APPLY, FETCH))
    assert decision.do[0].body["metadata"]["annotations"] == {delivery.FORCE_SYNC: f"{ONE}/1-a"}
    put_fetch(live)
    assert "does not exist yet" in waits(judged(live))
    put_consumer(live, "")
    assert "does not hold the current password" in waits(judged(live))
    put_consumer(live)
    message = says(judged(live), "AccountProvisioned")
    assert "team-a/images-credentials" in message


def test_the_words_of_external_secrets_are_in_every_wait() -> None:
    live = Live()
    put_source(live)
    put_push(live, condition("Ready", "False", "Errored", "could not write: sealed", generation=None), synced="")
    assert "Errored: could not write: sealed" in waits(judged(live))
    live.put(delivery.push_secret(live.reg, ONE))
    assert "has not reported" in waits(judged(live))
    put_push(live)
    put_fetch(live, f"{ONE}/1-a", condition("Ready", "False", "SecretSyncedError", "no such path", generation=None))
    assert "SecretSyncedError: no such path" in waits(judged(live))


def test_a_push_that_was_taken_back_for_want_of_its_source_is_made_anew() -> None:
    """External Secrets (chart 2.3 on) neither tries again nor hears of the source; its key in OpenBao is gone."""
    live = Live()
    whole(live)
    gone = condition("Ready", "False", "SourceDeleted", "source secret deleted", generation=None)
    put_push(live, gone)
    live.drop(delivery.source_secret(live.reg))
    waits(judged(live), (Act.APPLY, SOURCE))
    put_source(live)
    decision = judged(live)
    assert "source secret deleted" in waits(decision, (Act.DELETE, PUSH))
    assert decision.do[0].exact, "one that has pushed since has a key in OpenBao, which would go along"
    put_push(live, gone, deleting=True)
    waits(judged(live))
    live.drop(delivery.push_secret(live.reg, ONE))
    waits(judged(live), (Act.APPLY, PUSH))
    # Whatever else it says, and even that word on a push that went well, is no reason to take a key out of OpenBao.
    for status, reason in (("False", "Errored"), ("Unknown", "SourceDeleted")):
        put_push(live, condition("Ready", status, reason, "", generation=None))
        waits(judged(live))
    put_push(live, condition("Ready", "True", "SourceDeleted", "", generation=None))
    says(judged(live), "AccountProvisioned")


@pytest.mark.row("A21")
def test_a_password_that_is_not_there_is_a_wait() -> None:
    live = Live()
    whole(live)
    decision = judge_publish(live.reg, 3, None, live.seen)
    assert f"openstack/{P}password-v3" in waits(decision)


@pytest.mark.row("A19")
def test_a_rotated_password_is_pushed_and_fetched_and_the_old_one_never_reads_ready() -> None:
    live, new = Live(), content("two", TWO)
    whole(live)
    waits(judged(live, new), (Act.APPLY, SOURCE))
    put_source(live, new)
    waits(judged(live, new), (Act.APPLY, PUSH))
    # Ready still, of the push before.
    put_push(live, digest=TWO, synced="1-a")
    assert "has not brought" in waits(judged(live, new))
    put_push(live, digest=TWO, synced="1-b")
    decision = judged(live, new)
    waits(decision, (Act.APPLY, FETCH))
    assert decision.do[0].body["metadata"]["annotations"] == {delivery.FORCE_SYNC: f"{TWO}/1-b"}
    put_fetch(live, f"{TWO}/1-b")
    assert "does not hold the current password" in waits(judged(live, new))
    put_consumer(live, "two")
    says(judged(live, new), "AccountProvisioned")


def test_a_later_push_of_the_same_content_is_fetched_once_more() -> None:
    live = Live()
    whole(live)
    put_push(live, synced="1-z")
    waits(judged(live), (Act.APPLY, FETCH))


@pytest.mark.row("A20")
def test_a_consumer_secret_that_was_edited_or_deleted_is_noticed() -> None:
    live = Live()
    whole(live)
    put_consumer(live, "mine")
    waits(judged(live))
    live.drop(delivery.consumer(live.reg.order))
    waits(judged(live))


@pytest.mark.row("S30")
def test_objects_of_the_reference_operator_are_taken_as_they_are() -> None:
    """It leaves the labels off both delivery objects: no reason to have all pushed and fetched again."""
    live = Live()
    whole(live)
    put_push(live, labels={})
    put_fetch(live, labels={})
    says(judged(live), "AccountProvisioned")
    # Whatever has to be written for another reason gets them.
    put_push(live, digest=TWO, labels={})
    (written,) = judged(live).do
    assert written.body["metadata"]["labels"] == children.labels(live.reg.order)


@pytest.mark.row("S12")
@pytest.mark.parametrize("what", ["source", "push", "fetch"])
def test_a_strangers_object_is_refused(what: str) -> None:
    live = Live()
    whole(live)
    for body in (
        delivery.source(live.reg, account(), "x"),
        delivery.push_secret(live.reg, ONE),
        delivery.external_secret(live.reg, ONE, "1-a"),
    ):
        kind = {"Secret": "source", "PushSecret": "push", "ExternalSecret": "fetch"}[body["kind"]]
        if kind == what:
            stranger = {**body, "metadata": {**body["metadata"], "ownerReferences": [{**OWNER, "uid": "u-2"}]}}
            live.put({k: v for k, v in stranger.items() if k != "data"}, READY, labels={})
    assert "was not created by this order" in says(judged(live), "ServiceAccountError")


def test_what_is_going_is_waited_for() -> None:
    live = Live()
    whole(live)
    put_push(live, deleting=True)
    assert "is being deleted" in waits(judged(live))


def test_what_others_add_is_no_difference() -> None:
    """An apply would leave it there, so writing against it would never end."""
    live = Live()
    whole(live)
    put_source(live, data={"note": "mine"})
    body = delivery.push_secret(live.reg, ONE)
    body["metadata"]["ownerReferences"] = [
        {"kind": "App", "name": "x", "uid": "x"}, *body["metadata"]["ownerReferences"],
    ]  # fmt: skip
    live.put(body, READY, synced="1-a")
    says(judged(live), "AccountProvisioned")


def test_an_owner_that_is_gone_or_changed_is_a_difference() -> None:
    live = Live()
    whole(live)
    body = delivery.push_secret(live.reg, ONE)
    for owners in ([], [{**OWNER, "uid": "u-0"}]):
        live.put({**body, "metadata": {**body["metadata"], "ownerReferences": owners}}, READY, synced="1-a")
        waits(judged(live), (Act.APPLY, PUSH))


@pytest.mark.row("S12")
def test_a_strangers_secret_of_the_name_is_not_handed_to_external_secrets() -> None:
    """It would be taken over without a word, and go with the ExternalSecret."""
    live = Live()
    put_source(live)
    put_push(live)
    put_consumer(live, "theirs")
    message = says(judged(live), "ServiceAccountError")
    assert "Secret team-a/images-credentials exists and was not created by this order" in message
    meta = {"name": "images-credentials", "namespace": "team-a", "labels": {}}
    for kind, name in (("ExternalSecret", "images"), ("Deployment", "images-credentials")):
        live.put({"kind": "Secret", "metadata": {**meta, "ownerReferences": [{"kind": kind, "name": name}]}})
        says(judged(live), "ServiceAccountError")
    owner = {"kind": "ExternalSecret", "name": "images-credentials"}
    live.put({"kind": "Secret", "metadata": {**meta, "ownerReferences": [owner]}})
    waits(judged(live), (Act.APPLY, FETCH))
