"""What is made of what was read: lines of a list, children's words, passes of a history, remedies. No stack."""

from __future__ import annotations

import base64
import importlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.cluster import EXTERNAL_SECRET, KEYSTONE_PROJECT, KORC_PROJECT, LEASE, ORDER_KINDS, SECRET, Object
from activities.clusters import BadKubeconfig
from activities.errors import ClusterError
from tests.replay import record
from worker.cli import children, kubeconfig, orders, remedies, runs, show
from worker.cli.__main__ import main
from worker.cli.doctor.rights import Right, needed_at_home, needed_on_target
from worker.cli.reach import Reach, settings
from workflows.scaffold.naming import order_named, ownership_labels
from workflows.scaffold.order import OrderRef

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNTRUE = ("ERROR", "FAILED", "COLLISION", "WAITING", "PROBING", "REFUSED", "NOT", "UNAVAILABLE", "RETRY", "REFERENCED")


def raw(*conditions: tuple[str, str, str, str], deleting: bool = False) -> Object:
    meta: Object = {"name": "reporting", "namespace": "team-a", "creationTimestamp": "2026-01-01T11:00:00Z"}
    if deleting:
        meta |= {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": ["c5c3.io/keystoneproject-teardown"]}
    said = [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in conditions]
    return {"metadata": meta, "spec": {"controlPlaneRef": {"name": "cp"}}, "status": {"conditions": said}}


def order(*conditions: tuple[str, str, str, str], deleting: bool = False) -> orders.Order:
    return orders.order_of(KEYSTONE_PROJECT, "management", raw(*conditions, deleting=deleting))


PROVISIONED = ("ProjectReady", "True", "ProjectProvisioned", "it is there")


def test_a_line_says_what_keeps_an_order_and_nothing_else() -> None:
    ready = order(PROVISIONED, ("Ready", "True", "AllReady", "Everything."))
    assert (ready.ready, ready.reason, ready.control_plane) == (True, "AllReady", "team-a/cp")
    waits = order(("ProjectReady", "False", "WaitingForProject", "soon"),
                  ("Ready", "False", "NotAllReady", "ProjectReady is not True."))  # fmt: skip
    assert (waits.ready, waits.reason, waits.message) == (False, "WaitingForProject", "soon")
    paused = order(("ProjectReady", "False", "WaitingForProject", "soon"), ("Ready", "False", "NotAllReady", "Paused."))
    assert paused.message == "Paused. soon"
    noted = order(PROVISIONED, ("Ready", "False", "NotAllReady", "the API server is away"))
    assert (noted.reason, noted.message) == ("NotAllReady", "the API server is away")
    going = order(PROVISIONED, ("Ready", "False", "NotAllReady", "Deletion waits for X"), deleting=True)
    assert (going.reason, going.message, going.finalized) == ("Deleting", "Deletion waits for X", True)
    unseen = order()
    assert (unseen.ready, unseen.reason) == (False, "-")
    assert "c5c3-orders doctor" in unseen.message


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")]
)
def test_an_age_reads_as_kubectl_writes_it(seconds: int, text: str) -> None:
    assert orders.age(NOW - timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize("word", ["KeystoneProject", "keystoneproject", "keystoneprojects", "keystoneprojects.c5c3.io"])
def test_a_kind_may_be_spelled_as_kubectl_takes_it(word: str) -> None:
    assert orders.kind_named(word) is KEYSTONE_PROJECT


@pytest.mark.parametrize("width", [80, 160, 100_000])
def test_a_list_fits_its_width_and_lets_no_text_out_of_its_cell(width: int) -> None:
    message = "[red]not markup[/] \x1b[31mnot a colour\x07 " + "long " * 60
    found = orders.Listed(
        orders=(
            order(
                ("ProjectReady", "False", "ProjectFailed", message),
            ),
        )
    )
    out = io.StringIO()
    show.orders(Console(file=out, width=width, highlight=False, markup=False), found)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= width
    assert "\x1b" not in out.getvalue()
    assert ("[red]not markup[/]" in out.getvalue()) == (width > 80)
    assert out.getvalue().count("long") == (60 if width == 100_000 else out.getvalue().count("long"))


def test_children_speak_in_their_controllers_words() -> None:
    meta = {"name": "x", "namespace": "openstack", "generation": 2, "uid": "u"}

    def state(kind: Any, **more: Any) -> tuple[str, str]:
        child = children.child_of(kind, "management", {"metadata": {**meta, **more.pop("meta", {})}, **more})
        return child.state, child.words

    def status(type_: str, value: str, reason: str = "R", message: str = "words", generation: int = 2) -> Object:
        said = {"type": type_, "status": value, "reason": reason, "message": message, "observedGeneration": generation}
        return {"conditions": [said]}

    assert state(KORC_PROJECT, status={**status("Available", "True"), "id": "abc"}) == ("ready", "")
    assert state(KORC_PROJECT, status=status("Available", "True", generation=1)) == ("waiting", "words")
    assert state(KORC_PROJECT) == ("waiting", "K-ORC has not reported on it yet")
    stopped = status("Progressing", "False", "UnrecoverableError", "no such domain")
    assert state(KORC_PROJECT, status=stopped) == ("failed", "no such domain")
    assert state(EXTERNAL_SECRET, status=status("Ready", "False", message="sealed")) == ("waiting", "sealed")
    assert state(SECRET, data={"password": "aGVsbG8="}) == ("there", "")
    assert state(LEASE, spec={"holderIdentity": "me"}) == ("there", "held by me")
    going = {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": ["k-orc/project"]}
    assert state(KORC_PROJECT, meta=going)[0] == "deleting"
    assert "held by k-orc/project" in state(KORC_PROJECT, meta=going)[1]


@pytest.mark.parametrize("kind", ["keystoneproject", "keystoneservice", "mariadbdatabase"])
def test_every_reason_that_is_not_good_has_a_remedy(kind: str) -> None:
    module = importlib.import_module(f"workflows.{kind}.reasons")
    names = {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    bad = {value for name, value in names.items() if any(word in name for word in UNTRUE) and "DECLARED" not in name}
    assert len(bad) > 4
    camel = next(name for name in ORDER_KINDS if name.lower() == kind)
    for reason in bad:
        rows = [remedies.remedy(camel, type_, reason) for type_ in module.CONDITIONS]
        assert any(row is not None and row.meaning for row in rows), reason


def test_a_remedy_is_that_of_the_kind_and_the_condition() -> None:
    text = """
## One

| `AReady` | meaning | what to do |
| --- | --- | --- |
| `Waits` | a of one | help `me` |
| `Also` | more | The same. |

### On `BReady` and on `CReady`

| reason | meaning | who | what to do |
| --- | --- | --- | --- |
| `Waits` | b of one | owner | read [this](page.md) |
| `Like` | As `Also`. | | The same. |
"""
    first, also, second, like = remedies.parse(text)
    assert (first.kind, first.types, first.reason, first.help) == ("One", ("AReady",), "Waits", "help `me`")
    assert also.help == "help `me`"
    assert (second.types, second.help) == (("BReady", "CReady"), "read this")
    assert (like.meaning, like.help) == ("more", "help `me`")
    own = remedies.remedy("MariaDBDatabase", "DatabaseReady", "WaitingForCredentials")
    other = remedies.remedy("MariaDBDatabase", "DeliveryReady", "WaitingForCredentials")
    shared = remedies.remedy("KeystoneService", "CatalogReady", "AuthenticationFailed")
    assert own is not None
    assert own.help
    assert other is not None
    assert shared is not None
    assert "clouds.yaml" in shared.help
    assert remedies.remedy("KeystoneProject", "ProjectReady", "NoSuchReason") is None


async def passes(name: str) -> list[runs.Pass]:
    text = (record.FOLDER / f"{name}.json").read_text()
    history = WorkflowHistory.from_json(json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"], text)  # fmt: skip  # noqa: E501
    client: Any = SimpleNamespace(data_converter=pydantic_data_converter)
    return await runs.passes_of(client, history.events)


async def test_passes_are_read_off_real_histories() -> None:
    """Those that the replay tests keep, as they were recorded."""
    (first, *_) = await passes("becomes-ready-1")
    assert "the run's start" in first.causes
    assert first.steps[0].name == "admit"
    every = [step for one in await passes("is-frozen-and-troubled-1") for step in one.steps]
    assert {"admit", "report", "settle"} <= {step.name for step in every}
    assert any(step.failed and step.outcome for step in every), "a step that failed says with what"
    assert any(step.name == "report" and step.outcome == "status written" for step in every)
    assert any("NamespaceNotAssigned" in step.outcome for step in every if step.name == "admit")
    torn = [step for one in await passes("is-deleted-2") for step in one.steps]
    assert torn[0].name == "examine"
    assert any(step.outcome.startswith("left: ") for step in torn)
    for file in record.FOLDER.glob("*.json"):
        found = await passes(file.stem)
        assert found or "activityTaskScheduled" not in file.read_text(), (
            "only a run that has just begun has made no pass"
        )
        assert all(step.at <= after.at for one in found for step, after in zip(one.steps, one.steps[1:], strict=False))


def test_labels_are_read_back_as_they_were_written() -> None:
    for ref in (OrderRef(kind="KeystoneProject", cluster=cluster, namespace="a", name="b") for cluster in ("", "edge")):
        assert order_named(ref.kind, ownership_labels(ref)) == ref
    assert order_named("MariaDBDatabase", ownership_labels(ref)) is None
    without = {key: value for key, value in ownership_labels(ref).items() if not key.endswith("cluster")}
    assert order_named("KeystoneProject", without) is None
    assert order_named("KeystoneProject", without, at_home=True) is not None


def test_rights_are_read_off_the_manifests_as_they_are_applied() -> None:
    management = needed_at_home("c5c3-system")
    assert len(management) > 80
    assert len(set(management)) == len(management)
    (status,) = [each for each in management if each.resource == "users/status"]
    assert status.attributes == {"group": "openstack.k-orc.cloud", "resource": "users", "subresource": "status",
                                 "verb": "patch", "namespace": ""}  # fmt: skip
    assert {each.namespace for each in management if each.verb == "update" and each.resource == "leases"} == {
        "c5c3-system"
    }
    elsewhere = needed_at_home("elsewhere")
    assert {each.namespace for each in elsewhere if each.verb == "update" and each.resource == "leases"} == {
        "elsewhere"
    }
    assert len(elsewhere) == len(management)


def test_rights_on_a_target_cluster_are_asked_where_they_are_bound() -> None:
    everywhere = needed_on_target([None], [])
    assert {each.namespace for each in everywhere} == {""}
    assert not [each for each in everywhere if each.resource == "mariadbs"]
    assert Right("c5c3.io", "keystoneprojects", "list") in everywhere

    bound = needed_on_target(["team-a", "team-b"], [])
    assert {each.namespace for each in bound} == {"team-a", "team-b"}
    assert len(bound) == 2 * len(everywhere)

    beside = set(needed_on_target(["team-a"], ["openstack"])) - set(needed_on_target(["team-a"], []))
    assert {each.namespace for each in beside} == {"openstack"}
    assert {(each.resource, each.verb) for each in beside} == {
        ("mariadbs", "get"), *(("databases", verb) for verb in ("list", "watch", "create", "patch", "delete"))
    }  # fmt: skip


class Bound:
    """A registration whose login may list in these namespaces alone, as an API server answers it."""

    def __init__(self, namespaces: str, *may: str) -> None:
        self.name, self.may = "edge", may
        self.secret = {"data": {"namespaces": base64.b64encode(namespaces.encode()).decode()}}
        self.asked: list[str | None] = []

    async def get(self, name: str) -> Bound:
        return self

    async def registration(self, name: str) -> Object:
        return self.secret

    async def list(self, kind: Any, namespace: str | None) -> Object:
        self.asked.append(namespace)
        if namespace not in self.may:
            raise ClusterError("list", 403, "Forbidden", "")
        return {"items": [{**raw(), "metadata": {"name": "reporting", "namespace": namespace}}]}


@pytest.mark.parametrize(
    ("namespace", "asked"),
    [(None, ["team-a", "team-b"]), ("team-b", ["team-b"]), ("team-c", [])],
)
async def test_a_list_looks_only_where_a_registration_lets_it(namespace: str | None, asked: list[str]) -> None:
    edge: Any = Bound(" team-b,team-a", "team-a", "team-b")
    found = await orders.listed(edge, [KEYSTONE_PROJECT], namespace, "edge")
    assert edge.asked == asked
    assert [each.namespace for each in found.orders] == asked
    assert found.unread == ()


async def test_without_a_limit_a_list_looks_everywhere_and_a_refusal_is_said() -> None:
    edge: Any = Bound("", "team-a")
    found = await orders.listed(edge, [KEYSTONE_PROJECT], None, "edge")
    assert edge.asked == [None]
    assert [each.what for each in found.unread] == ["keystoneprojects"]


def test_flags_are_the_settings_and_a_bad_one_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C5C3_TEMPORAL_ADDRESS", "from-the-environment:1")
    assert settings(temporal_address=None).temporal_address == "from-the-environment:1"
    told = settings(temporal_address="from-the-flag:2", temporal_namespace="other")
    assert (told.temporal_address, told.temporal_namespace) == ("from-the-flag:2", "other")
    reach = Reach(told, None, None, "http://ui:8233/")
    assert reach.link("KeystoneProject:a/b@c", "r") == (
        "http://ui:8233/namespaces/other/workflows/KeystoneProject%3Aa%2Fb%40c/r/history"
    )
    ran = CliRunner().invoke(main, ["list", "--temporal-address", "nonsense"])
    assert (ran.exit_code, "C5C3_TEMPORAL_ADDRESS 'nonsense' cannot be used" in ran.stderr) == (2, True)


async def test_a_kubeconfig_is_found_as_kubectl_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files make one, a context chooses, and a plugin of the person's own is run."""
    server = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
              "args": ["-c", f"touch {tmp_path}/ran; echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\","
                       " \"kind\": \"ExecCredential\", \"status\": {\"token\": \"t\"}}'"]}  # fmt: skip
    one = {"apiVersion": "v1", "kind": "Config", "current-context": "plain",
           "clusters": [{"name": "c", "cluster": server}], "users": [{"name": "u", "user": {"token": "x"}}],
           "contexts": [{"name": "plain", "context": {"cluster": "c", "user": "u"}}]}  # fmt: skip
    two = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "p", "user": {"exec": plugin}}],
           "contexts": [{"name": "plugged", "context": {"cluster": "c", "user": "p"}}]}  # fmt: skip
    for name, content in (("one", one), ("two", two)):
        (tmp_path / name).write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/one:{tmp_path}/two:{tmp_path}/absent")
    await (await kubeconfig.connect(None, None)).close()
    assert not (tmp_path / "ran").exists()
    await (await kubeconfig.connect(None, "plugged")).close()
    assert (tmp_path / "ran").exists()
    with pytest.raises(BadKubeconfig, match="nothing-like-it"):
        await kubeconfig.connect(None, "nothing-like-it")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadKubeconfig, match="absent"):
        await kubeconfig.connect(None, None)


def test_of_several_kubeconfigs_the_first_word_counts_and_files_are_found_beside_each(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    user = {"client-certificate": "me.crt", "exec": {"command": "./login"}}
    first = {"current-context": "one", "users": [{"name": "u", "user": user}]}
    second = {"current-context": "two", "users": [{"name": "u", "user": {"token": "t"}}, {"name": "v", "user": {}}],
              "clusters": [{"name": "c", "cluster": {"certificate-authority": "/etc/ca.crt"}}]}  # fmt: skip
    (tmp_path / "a" / "config").write_text(json.dumps(first))
    (tmp_path / "b" / "config").write_text(json.dumps(second))
    found = kubeconfig.merged(f"{tmp_path}/a/config:{tmp_path}/none:{tmp_path}/b/config")
    assert found is not None
    assert found["current-context"] == "one"
    assert [each["name"] for each in found["users"]] == ["u", "v"]
    assert found["users"][0]["user"]["client-certificate"] == str(tmp_path / "a" / "me.crt")
    assert found["users"][0]["user"]["exec"]["command"] == str(tmp_path / "a" / "./login")
    assert found["clusters"][0]["cluster"]["certificate-authority"] == "/etc/ca.crt"
    assert kubeconfig.merged(f"{tmp_path}/none") is None
    (tmp_path / "b" / "config").write_text("- not\n- one")
    with pytest.raises(BadKubeconfig, match="b/config cannot be read"):
        kubeconfig.merged(f"{tmp_path}/b/config")
