"""What of a registration goes, in which order, and what must be asked about first: contracts 4.8, 4.9, 14.2."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.workflows.registrations import DONE, Live, does
from tests.workflows.test_registration import FULL, P, everything, spec
from tests.workflows.things import ABSENT, NOW, REFUSED, condition, plane, stopped
from workflows.api.keystoneservice import Account, Catalog
from workflows.keystoneservice import children, delivery, sweep
from workflows.scaffold.child import key
from workflows.scaffold.removal import Removing, judge_pushed, judge_removal
from workflows.scaffold.verdict import Act

KINDS = (*sweep.BESIDE_THE_PLANE, *sweep.BESIDE_THE_ORDER, sweep.SECRETS)
ENTRY, USER = FULL
LATCHED = stopped(REFUSED, since=NOW - timedelta(minutes=3))


def whole() -> Live:
    live = Live()
    for body in everything(live.reg, FULL):
        bare = {key: value for key, value in body.items() if key != "data"}
        live.put(bare, *DONE, id_="x", finalizers=(f"openstack.k-orc.cloud/{body['kind'].lower()}",))
    return live


def removal(live: Live, *, gone: bool = False) -> Removing:
    marks = children.marks(live.reg.order, live.reg.uid)
    return judge_removal(KINDS, marks, None if gone else plane(), live.seen)


def swept(live: Live, entry: Catalog | None, user: Account | None) -> Removing:
    marks, declared = children.marks(live.reg.order, live.reg.uid), spec(entry, user)
    return judge_removal(
        KINDS, marks, plane(), live.seen, sweep.keeps(live.reg.order, declared)
    )  # fmt: skip


@pytest.mark.row("S15")
@pytest.mark.parametrize("gone", [False, True])
def test_dependents_go_first_and_managed_before_probes(gone: bool) -> None:
    found = removal(whole(), gone=gone)
    kinds = [kind for act, kind, _ in does(found) if act is Act.DELETE]
    assert list(dict.fromkeys(kinds)) == list(KINDS)
    assert kinds == sorted(kinds, key=KINDS.index)
    names = [name for _, _, name in does(found)]
    for what in ("service", "project", "user"):
        assert names.index(f"{P}{what}") < names.index(f"{P}{what}-probe")
    assert len(names) == len(everything(whole().reg, FULL)) == len(found.left)
    assert found.stays
    if gone:  # K-ORC has no credentials any more; External Secrets may have its store
        without = whole()
        without.drop(delivery.push_secret(without.reg, "0" * 64))
        assert not removal(without, gone=True).stays


@pytest.mark.row("S14")
def test_a_sweep_wants_both_marks_and_name_and_keeps_what_is_declared() -> None:
    live = whole()
    for name, labels in ((f"{P}endpoint-internal", {}), ("not-ours", children.labels(live.reg.order))):
        body = {"kind": "Endpoint", "metadata": {"name": name, "namespace": "openstack", "labels": labels}}
        live.put(body, *DONE, labels=labels)
    assert does(swept(live, *FULL)) == []
    less = swept(live, ENTRY.model_copy(update={"endpoints": ENTRY.endpoints[:1]}), USER)
    assert does(less) == [(Act.DELETE, "Endpoint", f"{P}endpoint-admin")]


@pytest.mark.row("S13")
def test_a_removed_block_goes_whole_and_the_other_stays() -> None:
    live = whole()
    assert {kind for _, kind, _ in does(swept(live, None, USER))} == {"Endpoint", "Service"}
    account = does(swept(live, ENTRY, None))
    assert {kind for _, kind, _ in account} == set(KINDS) - {"Endpoint", "Service"}
    assert (Act.DELETE, "Secret", delivery.password_name(live.reg.order, 1)) in account


@pytest.mark.parametrize("kind", ["Service", "User", "Project"])
def test_what_never_got_an_id_is_asked_about_by_a_probe_that_stays_meanwhile(kind: str) -> None:
    live = whole()
    name = f"{P}{kind.lower()}"
    body = next(b for b in everything(live.reg, FULL) if (b["kind"], b["metadata"]["name"]) == (kind, name))
    live.put(body, *LATCHED, finalizers=(f"openstack.k-orc.cloud/{kind.lower()}",))
    probe = next(b for b in everything(live.reg, FULL) if b["metadata"]["name"] == f"{name}-probe")
    live.drop(probe)
    (asked,) = [write for write in removal(live).do if write.name in (name, f"{name}-probe")]
    assert (asked.act, asked.name) == (Act.CREATE, f"{name}-probe")
    assert asked.body["spec"] == probe["spec"], "the probe asks for what the child would have become"
    assert asked.body["metadata"]["labels"] == children.labels(live.reg.order)
    # The order may not declare the block any more: the probe is asked all the same, and outlives the sweep till then.
    live.put(probe, condition("Progressing", "True", "Progressing", "Waiting for Domain/x"), age=timedelta(minutes=1))
    for found in (
        removal(live),
        swept(live, None if kind == "Service" else ENTRY, USER if kind == "Service" else None),
    ):
        assert [write for write in found.do if write.name in (name, f"{name}-probe")] == []
        assert any(f"{name} to be deleted" in left for left in found.left)
    live.put(probe, *ABSENT, age=timedelta(minutes=1))
    acts = [(write.act, write.name) for write in removal(live).do if write.name in (name, f"{name}-probe")]
    assert acts == [(Act.DELETE, name), (Act.DELETE, f"{name}-probe")]
    live.put(probe, *DONE, age=timedelta(minutes=1))
    acts = [(write.act, write.name) for write in removal(live).do if write.name in (name, f"{name}-probe")]
    assert acts == [(Act.DETACH, name)]


@pytest.mark.parametrize("kind", ["Endpoint", "RoleAssignment"])
def test_what_can_be_nobody_elses_goes_without_an_id(kind: str) -> None:
    live = whole()
    for body in everything(live.reg, FULL):
        if body["kind"] == kind:
            live.put(body, *LATCHED, finalizers=(f"openstack.k-orc.cloud/{kind.lower()}",))
    assert {act for act, each, _ in does(removal(live)) if each == kind} == {Act.DELETE}


def test_what_is_left_says_whose_turn_it_is() -> None:
    live = whole()
    words = condition("Progressing", "True", "Progressing", "Waiting for finalizer openstack.k-orc.cloud/endpoint")
    live.put(children.service(live.reg, ENTRY), words, id_="s", deleting=True)
    push = delivery.push_secret(live.reg, "0" * 64)
    live.put(push, deleting=True, finalizers=("pushsecret.externalsecrets.io/finalizer",))
    left = removal(live).left
    assert any("Service" in each and "K-ORC: Waiting for finalizer" in each for each in left)
    (said,) = [each for each in left if each.startswith("PushSecret")]
    assert "held by pushsecret.externalsecrets.io/finalizer" in said
    assert "K-ORC" not in said


def test_what_was_pushed_to_a_store_that_is_gone_is_let_go_of_after_a_while() -> None:
    """A namespace that is deleted takes its store along, and External Secrets holds the PushSecret for ever (D4)."""
    gone = 'could not get SecretStore "s", SecretStore.external-secrets.io "s" not found'
    sealed = "could not get secrets client for store s: Vault is sealed"

    def pushed(message: str, *, seconds: int, policy: str = "Delete") -> Removing:
        live = whole()
        push = delivery.push_secret(live.reg, "0" * 64)
        push["spec"]["deletionPolicy"] = policy
        made = live.put(push, condition("Ready", "False", "Errored", message), deleting=True, finalizers=("eso",))
        meta = made.metadata.model_copy(update={"deletion_timestamp": NOW - timedelta(seconds=seconds)})
        live.children[key("PushSecret", meta.namespace, meta.name)] = made.model_copy(update={"metadata": meta})
        return removal(live)

    def acts(found: Removing) -> list[Act]:
        return [act for act, kind, _ in does(found) if kind == "PushSecret"]

    assert acts(pushed(gone, seconds=31)) == [Act.DETACH]
    assert acts(pushed(gone, seconds=29)) == []
    assert acts(pushed(gone, seconds=31, policy="None")) == [], "once is enough"
    assert acts(pushed(sealed, seconds=3600)) == [], "a store that is there may come back"
    assert any(sealed in left for left in pushed(sealed, seconds=5).left), "someone can see why"


@pytest.mark.row("S17")
def test_without_a_plane_what_is_pushed_and_held_is_let_go_of_at_once() -> None:
    """Nobody comes back for it: the order is released in the same step."""

    def pushed(*, deleting: bool, policy: str = "Delete") -> list[tuple[Act, str, str]]:
        live = whole()
        push = delivery.push_secret(live.reg, "0" * 64)
        push["spec"]["deletionPolicy"] = policy
        live.put(push, deleting=deleting, finalizers=("eso",))
        return does(judge_pushed(children.marks(live.reg.order, live.reg.uid), live.seen))

    assert pushed(deleting=True) == [(Act.DETACH, "PushSecret", f"{P}backup")]
    assert pushed(deleting=True, policy="None") == [], "once is enough"
    assert pushed(deleting=False) == []
