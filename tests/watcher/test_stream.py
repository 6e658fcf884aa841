"""Streams against a server that does everything that API servers and what lies between have been seen to do."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web

from activities.cluster import KEYSTONE_PROJECT, SECRET, Cluster
from tests.watcher.objects import Object, order, until
from tests.watcher.server import Server, client, ended, gone, refusal, saying, serving, silent
from watcher.stream import Pace, Stream

QUICK = Pace(silence=0.5, lived_long=0.3, watch=30, first_pause=0.05, longest_pause=0.2, unserved_pause=0.3)


class Ledger:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.events: list[tuple[str, str]] = []

    def listed(self, items: Sequence[Object]) -> None:
        self.lists.append([item["metadata"]["name"] for item in items])

    def heard(self, type_: str, found: Object) -> None:
        self.events.append((type_, found["metadata"]["name"]))


class Rig:
    def __init__(self, server: Server, cluster: Cluster) -> None:
        self.server = server
        self.cluster = cluster
        self.ledger = Ledger()
        self.tasks: list[asyncio.Task[None]] = []
        self.target: Cluster | None = None

    def stream(self, pace: Pace = QUICK, cluster: Cluster | None = None) -> Stream:
        stream = Stream(cluster or self.cluster, KEYSTONE_PROJECT, self.ledger, pace=pace)
        self.run(stream)
        return stream

    def run(self, stream: Stream) -> None:
        self.tasks.append(asyncio.ensure_future(stream.run()))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as (server, cluster):
        rig = Rig(server, cluster)
        yield rig
        for task in rig.tasks:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), "a stream never ends by itself"
        if rig.target:
            await rig.target.close()


@pytest.fixture(autouse=True)
def _one_seed() -> None:
    random.seed(7)


async def test_lists_then_watches_from_the_lists_version_with_bookmarks(rig: Rig) -> None:
    rig.server.objects = [order()]
    rig.server.watches.append(saying(("ADDED", order("new", resourceVersion="101")), then=ended))
    rig.stream()
    await until(lambda: len(rig.server.versions) >= 2)
    assert rig.ledger.lists == [["reporting"]]
    assert rig.ledger.events == [("ADDED", "new")]
    assert rig.server.versions[:2] == ["100", "101"], "from the list's, then from the last event's"
    assert all(query["allowWatchBookmarks"] == "true" for what, query, _ in rig.server.requests if what == "watch")


@pytest.mark.row("T12")
async def test_410_in_the_stream_lists_again(rig: Rig) -> None:
    rig.server.watches.append(saying(("ERROR", gone()), then=ended))
    rig.stream()
    await until(lambda: rig.server.listed == 1)
    rig.server.version, rig.server.objects = "200", [order("x")]
    await until(lambda: len(rig.server.versions) == 2)
    assert rig.ledger.lists == [[], ["x"]]
    assert rig.server.versions == ["100", "200"]


@pytest.mark.row("T12")
async def test_410_on_the_request_lists_again(rig: Rig) -> None:
    rig.server.watches.append(refusal(410, "Expired", "too old resource version"))
    rig.stream()
    await until(lambda: rig.server.listed == 2)
    await until(lambda: len(rig.server.versions) == 2)
    assert None not in rig.server.versions


@pytest.mark.row("T12")
async def test_410_for_ever_is_asked_with_growing_pauses(rig: Rig) -> None:
    rig.server.usual = saying(("ERROR", gone()), then=ended)
    rig.stream(Pace())
    await asyncio.sleep(4)
    assert 3 <= rig.server.listed <= 10


@pytest.mark.row("T12")
async def test_a_watch_that_ends_at_once_is_begun_again_with_growing_pauses(rig: Rig) -> None:
    rig.server.usual = ended
    rig.stream(Pace())
    await asyncio.sleep(4)
    assert 3 <= len(rig.server.versions) <= 10, "a client without pauses makes a thousand a second"
    assert rig.server.listed == 1
    assert set(rig.server.versions) == {"100"}


@pytest.mark.row("T12")
async def test_a_server_that_is_down_is_asked_with_growing_pauses_and_heard_again(rig: Rig) -> None:
    rig.server.always = lambda: web.Response(status=503, text="upstream connect error")
    stream = rig.stream(Pace())
    await asyncio.sleep(3)
    assert 2 <= rig.server.listed <= 10
    assert stream.served is None
    assert "503" in stream.trouble
    rig.server.always = None
    await until(lambda: stream.served)
    assert stream.trouble == ""


@pytest.mark.row("T12")
async def test_a_silent_stream_is_given_up_and_what_happened_meanwhile_is_heard(rig: Rig) -> None:
    rig.server.watches.append(silent)
    stream = rig.stream()
    await until(lambda: rig.server.versions)
    rig.server.version, rig.server.objects = "105", [order("meanwhile")]
    began = time.monotonic()
    await until(lambda: rig.ledger.lists == [[], ["meanwhile"]])
    assert time.monotonic() - began >= 0.3
    await until(lambda: rig.server.versions == ["100", "105"])
    await asyncio.sleep(0.3)
    assert stream.age < 0.3, "bookmarks keep it fresh"


@pytest.mark.row("T12")
async def test_a_server_that_is_never_heard_on_any_watch_is_still_read(rig: Rig) -> None:
    rig.server.usual = silent
    stream = rig.stream()
    await until(lambda: rig.server.listed == 4)
    assert stream.age < 1.0
    assert 3 <= len(rig.server.versions) <= 4


@pytest.mark.row("T12")
async def test_a_half_open_connection_grows_stale_and_is_left_behind() -> None:
    """A peer that takes requests and never answers, as after a change of the control plane's machine."""
    asked = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await reader.readline():
            asked += 1
        writer.close()

    async with serving() as (server, cluster):
        hole = await asyncio.start_server(swallow, "127.0.0.1", 0)
        port = hole.sockets[0].getsockname()[1]
        ledger = Ledger()
        dead = client(f"http://127.0.0.1:{port}")
        stream = Stream(cluster, KEYSTONE_PROJECT, ledger, pace=QUICK)
        watch, cluster.watch = cluster.watch, dead.watch  # type: ignore[method-assign]
        task = asyncio.ensure_future(stream.run())
        await until(lambda: asked and server.listed == 2)
        cluster.watch = watch  # type: ignore[method-assign]
        await until(lambda: server.versions)
        task.cancel()
        await asyncio.wait([task])
        await dead.close()
        hole.close()


@pytest.mark.row("T12")
async def test_an_event_of_five_mebibytes_is_heard(rig: Rig) -> None:
    huge = order("huge", resourceVersion="101", annotations={"a": "x" * (5 << 20)})
    rig.server.watches.append(saying(("ADDED", huge), ("ADDED", order("small", resourceVersion="102")), then=ended))
    rig.stream()
    await until(lambda: len(rig.server.versions) == 2)
    assert rig.ledger.events == [("ADDED", "huge"), ("ADDED", "small")]
    assert rig.server.versions == ["100", "102"], "nothing was read twice"


async def test_a_connection_cut_in_the_middle_of_an_event_hears_it_again(rig: Rig) -> None:
    async def cut(watching: object) -> None:
        await watching.response.write(b'{"type": "ADDED", "object": {"meta')  # type: ignore[attr-defined]
        watching.response._req.transport.abort()  # type: ignore[attr-defined]

    rig.server.watches += [cut, saying(("ADDED", order("new", resourceVersion="101")))]
    rig.stream()
    await until(lambda: rig.ledger.events == [("ADDED", "new")])
    assert rig.server.versions == ["100", "100"]
    assert rig.server.listed == 1


async def test_forbidden_says_which_right_is_missing_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.server.always = lambda: refusal(403, "Forbidden", 'keystoneprojects.c5c3.io is forbidden: User "x" cannot list')
    with caplog.at_level(logging.WARNING):
        stream = rig.stream()
        await until(lambda: rig.server.listed >= 4)
    assert len(caplog.messages) == 1
    assert "Grant list and watch on keystoneprojects.c5c3.io" in caplog.messages[0]
    rig.server.always = None
    await until(lambda: stream.served)


async def test_a_kind_that_is_not_served_is_asked_for_again_and_does_not_count(rig: Rig) -> None:
    rig.server.always = lambda: web.Response(status=404, text="404 page not found\n", content_type="text/plain")
    stream = rig.stream()
    assert stream.counts, "not known yet"
    await until(lambda: stream.served is False)
    assert not stream.counts
    await asyncio.sleep(0.7)
    assert 2 <= rig.server.listed <= 4, "once per unserved_pause"
    assert rig.ledger.lists == [], "a missing kind is never read as no objects"
    rig.server.always = None
    await until(lambda: stream.served)
    assert stream.counts
    rig.server.always = lambda: web.Response(status=404, text="404 page not found\n", content_type="text/plain")
    rig.server.watches.clear()
    assert stream.counts, "once served it counts for ever"


async def test_a_target_cluster_never_counts(rig: Rig) -> None:
    rig.target = client(rig.server.url, "edge-1")
    stream = rig.stream(cluster=rig.target)
    await until(lambda: stream.served)
    assert not stream.counts


@pytest.mark.parametrize("version", ["", None])
async def test_a_list_without_a_version_is_an_error_and_no_watch_follows(rig: Rig, version: str | None) -> None:
    rig.server.lists.append(web.json_response({"metadata": {"resourceVersion": version}, "items": []}))
    rig.stream()
    await until(lambda: rig.server.versions)
    assert rig.server.versions == ["100"]
    assert rig.server.listed == 2


@pytest.mark.parametrize("metadata", [{}, {"resourceVersion": ""}, {"resourceVersion": None}])
async def test_an_event_without_a_version_leaves_the_last_one(rig: Rig, metadata: Object) -> None:
    rig.server.watches.append(saying(("BOOKMARK", {"metadata": metadata}), then=ended))
    rig.stream()
    await until(lambda: len(rig.server.versions) == 2)
    assert rig.server.versions == ["100", "100"]


async def test_an_answer_that_is_not_json_ends_nothing(rig: Rig) -> None:
    rig.server.lists += [web.Response(text="<html>captive portal</html>"), web.json_response({"items": []})]

    async def page(watching: object) -> None:
        await watching.response.write(b"<html>captive portal</html>\n")  # type: ignore[attr-defined]

    rig.server.watches.append(page)
    stream = rig.stream()
    await until(lambda: len(rig.server.versions) == 2)
    assert rig.server.listed == 4
    assert stream.served


async def test_secrets_come_as_metadata_only(rig: Rig) -> None:
    rig.run(Stream(rig.cluster, SECRET, rig.ledger, namespace="c5c3-clusters", metadata_only=True, pace=QUICK))
    server = rig.server.of("secrets")
    await until(lambda: server.versions)
    accepts = {what: accept for what, _, accept in server.requests}
    assert accepts["list"].startswith("application/json;as=PartialObjectMetadataList")
    assert accepts["watch"].startswith("application/json;as=PartialObjectMetadata;")
