"""The whole of the active replica, against API servers that say what the test wants and a doorbell that remembers."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.watcher.objects import (
    Object,
    Recorder,
    child,
    order,
    part,
    plane,
    ready,
    ref,
    says,
    secret,
    service,
    until,
)
from tests.watcher.running import running
from tests.watcher.server import Server, refusal, saying, serving, silent
from watcher import engine
from watcher.dispatch import Rates
from watcher.doorbell import NotTaken
from watcher.engine import Engine
from watcher.health import Health
from watcher.mapping import SOURCES
from watcher.stream import Pace
from workflows.scaffold.order import OrderRef

PACE = Pace(silence=0.6, lived_long=0.3, watch=30, first_pause=0.05, longest_pause=0.2, unserved_pause=0.3)
RATES = Rates(fold=0.02, fold_child=0.02, hold=0, cold=50, first_pause=0.05, longest_pause=0.2)


class Rig:
    def __init__(self, server: Server, engine: Engine, doorbell: Recorder) -> None:
        self.server = server
        self.engine = engine
        self.doorbell = doorbell


def registration(name: str, url: str, **data: str) -> Object:
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }  # fmt: skip
    values = {"kubeconfig": json.dumps(kubeconfig), **data}
    return {
        "metadata": {"name": name, "namespace": "c5c3-clusters", "uid": name, "resourceVersion": "1"},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Not started yet: tests say first what the servers hold."""
    async with serving() as (server, cluster):
        doorbell = Recorder()
        yield Rig(server, Engine(cluster, doorbell, "c5c3-clusters", rates=RATES, pace=PACE), doorbell)


async def test_a_cold_start_rings_every_order_and_every_run_whose_order_is_gone(rig: Rig) -> None:
    rig.server.objects = [ready(order("done")), order("young")]
    rig.doorbell.open = [ref("gone"), ref("done"), ref("elsewhere", cluster="edge-9")]
    async with running(rig.engine):
        await until(lambda: len(rig.doorbell.rings) == 3)
        await asyncio.sleep(0.2)
    assert set(rig.doorbell.rung) == {ref("done"), ref("young"), ref("gone")}
    assert not rig.doorbell.started(ref("gone"))
    assert rig.doorbell.started(ref("young"))
    assert rig.doorbell.rung.index(ref("young")) < rig.doorbell.rung.index(ref("done"))


@pytest.mark.row("T13")
async def test_orders_written_while_temporal_is_down_are_rung_afterwards(rig: Rig) -> None:
    rig.doorbell.refusing = NotTaken("Temporal answered UNAVAILABLE", everybody=True)
    rig.doorbell.open = [ref("gone")]
    async with running(rig.engine):
        await until(lambda: rig.server.versions)
        await rig.server.of("keystoneprojects").say("ADDED", order("new"))
        await asyncio.sleep(0.3)
        assert rig.doorbell.rings == []
        health = Health(engine=rig.engine, queue_seconds=0.2)
        assert any("a ring waits" in why for why in health.why_not_ready())
        rig.doorbell.refusing = None
        await until(lambda: {ref("new"), ref("gone")} <= set(rig.doorbell.rung))
        assert health.why_not_ready() == []


async def test_each_source_wakes_its_orders_on_both_clusters(rig: Rig) -> None:
    async with serving() as (target, _), running(rig.engine):
        rig.server.of("secrets").objects = [registration("edge-1", target.url)]
        target.objects = [ready(order("far"))]
        await rig.server.of("secrets").say("ADDED", registration("edge-1", target.url))
        await until(lambda: rig.doorbell.rung == [ref("far", cluster="edge-1")])
        await rig.server.of("controlplanes").say("ADDED", plane())
        await until(lambda: len(rig.doorbell.rings) == 2)
        await rig.server.of("projects").say("ADDED", child(of=ref("far", cluster="edge-1"), status="True"))
        await until(lambda: len(rig.doorbell.rings) == 3)
        await target.say("MODIFIED", order("far", generation=2))
        await until(lambda: len(rig.doorbell.rings) == 4)
    assert set(rig.doorbell.rung) == {ref("far", cluster="edge-1")}


async def test_a_bad_registration_disturbs_nobody_and_is_read_again_when_corrected(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = rig.server.of("secrets")
    async with serving() as (target, _), serving() as (other, _):
        plugin = registration("bad", "http://x")
        plugin["data"]["kubeconfig"] = base64.b64encode(
            json.dumps({"users": [{"name": "x", "user": {"exec": {"command": "rm"}}}]}).encode()
        ).decode()
        strange = registration("strange", "http://x")
        strange["data"]["kubeconfig"] = base64.b64encode(b"users: 7\nclusters: [1]").decode()
        secrets.objects = [plugin, strange, {"metadata": {"name": "empty"}}, registration("good", other.url)]
        other.objects = [order("o")]
        with caplog.at_level(logging.ERROR):
            async with running(rig.engine):
                await until(lambda: rig.doorbell.rung == [ref("o", cluster="good")])
                await until(lambda: len(rig.engine.engaged) == 4)
                assert rig.engine.engaged == {"bad": False, "strange": False, "empty": False, "good": True}
                assert [len(m) < 300 and "is not listened to" in m for m in caplog.messages] == [True] * 3
                assert any("exec" in message for message in caplog.messages)
                assert rig.engine.stale(30) == []
                target.objects = [order("t")]
                await secrets.say("MODIFIED", registration("bad", target.url))
                await until(lambda: ref("t", cluster="bad") in rig.doorbell.rung)
                assert rig.engine.engaged["bad"]


async def test_a_cluster_that_is_removed_is_left_alone_and_others_go_on(rig: Rig) -> None:
    secrets = rig.server.of("secrets")
    async with serving() as (target, _):
        secrets.objects = [registration("edge-1", target.url)]
        target.objects = [order("far")]
        async with running(rig.engine):
            await until(lambda: rig.engine.engaged.get("edge-1"))
            await until(lambda: len(rig.doorbell.rings) == 1)
            streams = len(rig.engine.streams)
            await secrets.say("DELETED", registration("edge-1", target.url))
            await until(lambda: not rig.engine.engaged)
            assert len(rig.engine.streams) == streams - sum(source.on_targets for source in SOURCES)
            assert ref("far", cluster="edge-1") not in rig.engine.index
            await rig.server.of("keystoneprojects").say("ADDED", order("near"))
            await until(lambda: ref("near") in rig.doorbell.rung)
            await secrets.say("ADDED", registration("edge-1", target.url))
            await until(lambda: rig.doorbell.rung.count(ref("far", cluster="edge-1")) == 2)


async def test_a_write_to_a_registration_that_says_the_same_starts_nothing_anew(rig: Rig) -> None:
    secrets = rig.server.of("secrets")
    async with serving() as (target, _):
        secrets.objects = [registration("edge-1", target.url)]
        async with running(rig.engine):
            await until(lambda: target.listed)
            await secrets.say("MODIFIED", registration("edge-1", target.url))
            gets = len(secrets.requests)
            await until(lambda: any(what == "get" for what, _, _ in secrets.requests[gets - 2 :]))
            await asyncio.sleep(0.3)
            assert target.listed == 1
            await secrets.say("MODIFIED", registration("edge-1", target.url, namespaces="team-a, team-b"))
            await until(lambda: target.listed == 3)


@pytest.mark.row("T13")
async def test_health_names_the_stream_that_is_stale(rig: Rig) -> None:
    async with running(rig.engine):
        await until(lambda: rig.engine.stale(30) == [])
        health = Health(engine=rig.engine, fresh_seconds=0.5)
        assert health.why_not_ready() == []
        projects = rig.server.of("projects")
        projects.usual = silent
        projects.always = lambda: refusal(403, "Forbidden", "no")
        projects.cut()
        await until(lambda: health.why_not_ready() != [])
        (why,) = health.why_not_ready()
        assert why.startswith("projects on the management cluster: not heard for")
        assert "Grant list and watch on projects.openstack.k-orc.cloud" in why
        projects.always, projects.usual = None, None
        await until(lambda: health.why_not_ready() == [])


async def test_a_dead_target_cluster_is_a_metric_and_no_outage(rig: Rig) -> None:
    rig.server.of("secrets").objects = [registration("dead", "http://127.0.0.1:9")]
    async with running(rig.engine):
        await until(lambda: rig.engine.engaged.get("dead"))
        await until(lambda: rig.engine.stale(30) == [])
        await asyncio.sleep(0.5)
        assert rig.engine.stale(0.4) == []
        assert rig.engine.sight().stream_ages["dead", "KeystoneProject"] > 0.4
        await rig.server.of("keystoneprojects").say("ADDED", order("near"))
        await until(lambda: ref("near") in rig.doorbell.rung)


async def test_kinds_that_are_not_installed_are_no_outage(rig: Rig) -> None:
    for plural in ("keystoneroleassignments", "keystoneapplicationcredentials"):
        rig.server.of(plural).always = lambda: web.Response(status=404, text="404 page not found\n")
    rig.server.objects = [order()]
    async with running(rig.engine):
        await until(lambda: rig.doorbell.rung == [ref()])
        await until(lambda: rig.engine.stale(30) == [])


@pytest.mark.row("S21")
async def test_registrations_are_served_at_home_and_without_external_secrets_too(rig: Rig) -> None:
    for plural in ("pushsecrets", "externalsecrets"):
        rig.server.of(plural).always = lambda: web.Response(status=404, text="404 page not found\n")
    secrets = rig.server.of("secrets")
    async with serving() as (target, _):
        secrets.objects = [registration("edge-1", target.url)]
        rig.server.of("keystoneservices").objects = [order("images")]
        async with running(rig.engine):
            await until(lambda: rig.doorbell.rung == [service()])
            assert rig.doorbell.started(service())
            await until(lambda: rig.engine.stale(30) == [] and target.listed)
            await secrets.say("ADDED", secret("images-credentials"))
            await until(lambda: len(rig.doorbell.rings) == 2)
            await secrets.say("MODIFIED", secret("theirs"))
            await rig.server.of("users").say("ADDED", says(part("u", of=service()), "Available", "True"))
            await until(lambda: len(rig.doorbell.rings) == 3)
            assert target.of("keystoneservices").requests == []
            # Of Secrets, where databases are delivered, only the metadata is heard.
            assert all("as=PartialObjectMetadata" in accept for _, _, accept in target.of("secrets").requests)
            asked = [accept for what, _, accept in secrets.requests if what != "get"]
            assert all("as=PartialObjectMetadata" in accept for accept in asked)
    assert set(rig.doorbell.rung) == {service()}


async def test_an_api_server_that_was_away_is_heard_again(rig: Rig) -> None:
    async with running(rig.engine):
        await until(lambda: rig.engine.stale(30) == [])
        servers = [rig.server, *(rig.server.of(p) for p in ("projects", "controlplanes", "secrets"))]
        for server in servers:
            server.always = lambda: web.Response(status=502)
            server.cut()
        await asyncio.sleep(0.3)
        rig.server.objects = [order("meanwhile")]
        rig.server.watches.append(saying(("ADDED", order("meanwhile", resourceVersion="101"))))
        for server in servers:
            server.always = None
        await until(lambda: ref("meanwhile") in rig.doorbell.rung)


async def test_an_order_whose_run_somebody_ended_is_rung_without_an_event(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for what is not watched, so nobody else would ever miss its run."""
    over = order("over", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.org/hold"])
    rig.server.objects = [ready(order("served")), ready(order("ended")), order("waits"), over]
    rig.server.of("keystoneservices").objects = [ready(order("images"))]
    every = [ref("served"), ref("ended"), ref("waits"), service()]
    rig.doorbell.open = list(every)
    monkeypatch.setattr(engine, "MISSED_SECONDS", 0.15)
    async with running(rig.engine):
        await until(lambda: set(rig.doorbell.rung) == {*every, ref("over")})
        await asyncio.sleep(0.5)
        assert len(rig.doorbell.rings) == 5, "an order with a run hears nothing"

        rig.doorbell.open = [ref("served"), ref("waits")]
        await until(lambda: rig.doorbell.rung.count(ref("ended")) == rig.doorbell.rung.count(service()) == 2)
        assert rig.doorbell.started(ref("ended"))
        rig.doorbell.open = list(every)
        rings = len(rig.doorbell.rings)
        await asyncio.sleep(0.5)
        assert len(rig.doorbell.rings) == rings

        rig.doorbell.refusing = NotTaken("Temporal answered UNAVAILABLE", everybody=True)
        await asyncio.sleep(0.5)
        assert rig.doorbell.tries == rings, "who cannot be asked is not missed"
    assert {rig.doorbell.rung.count(each) for each in (ref("served"), ref("waits"))} == {1}
    assert rig.doorbell.rung.count(ref("over")) == 1, "nothing is left to do for it, and its run ended"


async def test_a_run_that_is_not_listed_for_a_moment_is_not_missed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that has just begun, or begins anew: what Temporal lists comes later than what it does."""
    rig.server.objects = [ready(order("served"))]
    rig.doorbell.open = [ref("served")]
    monkeypatch.setattr(engine, "MISSED_SECONDS", 0.15)
    looks = 0
    listed = rig.doorbell.open_runs

    async def every_other(kind: str) -> AsyncIterator[OrderRef]:
        nonlocal looks
        looks += 1
        if looks % 2:
            async for each in listed(kind):
                yield each

    rig.doorbell.open_runs = every_other  # type: ignore[method-assign]
    async with running(rig.engine):
        await until(lambda: looks > 6)
    assert rig.doorbell.rung == [ref("served")]
