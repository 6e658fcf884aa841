"""The order in which parts come up and go, what is adopted and what replaced, and how failures are told."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import processes, stack
from deploy.local.part import Part, PartError, Process, Stack, say

SERVER = (
    "import sys, http.server as h;"
    "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
)
events: list[str] = []


class Fake(Part):
    """A part with a real process that serves a port."""

    def __init__(self, name: str, *needs: str, later: bool = False, code: str = SERVER, version: str = "") -> None:
        self.name, self.needs, self.later, self.code, self.version = name, needs, later, code, version
        self.port_names = (name,)

    async def prepare(self, stack: Stack) -> None:
        say("preparing")
        events.append(f"{self.name} prepares")

    def process(self, stack: Stack) -> Process | None:
        events.append(f"{self.name} starts")
        return Process((sys.executable, "-c", self.code, str(stack.ports[self.name])), version=self.version)

    async def ready(self, stack: Stack) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", stack.ports[self.name])) == 0

    async def bootstrap(self, stack: Stack) -> None:
        events.append(f"{self.name} is up")


class Parts:
    """Stands for the registry."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def are(self, *parts: Part) -> None:
        self.monkeypatch.setattr(stack, "registry", lambda: parts)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    monkeypatch.setenv("C5C3_STACK_HOME", str(tmp_path))
    events.clear()
    yield Parts(monkeypatch)
    for folder in (tmp_path / "instances").glob("*"):
        for process in processes.marked(folder):
            process.kill()


def note(found: Stack, part: str) -> processes.Note:
    running = processes.running(found, part)
    assert running is not None
    return running


async def test_a_part_starts_after_what_it_needs_is_up_but_prepares_at_once(parts: Parts) -> None:
    parts.are(Fake("a"), Fake("b", "a"), Fake("c", "b"))
    await stack.up("t")
    assert events.index("c prepares") < events.index("a is up") < events.index("b starts")
    assert events.index("b is up") < events.index("c starts")


async def test_up_again_adopts_what_runs(parts: Parts) -> None:
    parts.are(Fake("a"), Fake("b", "a"))
    first = await stack.up("t")
    pids = [note(first, name).pid for name in "ab"]
    again = await stack.up("t")
    assert [note(again, name).pid for name in "ab"] == pids


async def test_only_what_died_or_changed_is_replaced(parts: Parts) -> None:
    parts.are(Fake("a"), Fake("b"), Fake("c"))
    found = await stack.up("t")
    before = {name: note(found, name).pid for name in "abc"}
    await stack.kill_part(found, "a")
    parts.are(Fake("a"), Fake("b", version="new"), Fake("c"))
    await stack.up("t")
    after = {name: note(found, name).pid for name in "abc"}
    assert [after[name] == before[name] for name in "abc"] == [False, False, True]


async def test_a_killed_runs_leftover_that_holds_the_port_is_replaced(parts: Parts) -> None:
    """As when the launcher was killed between the start of a process and its note."""
    parts.are(Fake("a"))
    found = await stack.up("t")
    orphan = note(found, "a")
    processes.note_path(found, "a").unlink()
    await stack.up("t")
    assert note(found, "a").pid != orphan.pid
    assert not processes.is_alive(orphan)


async def test_a_process_that_runs_on_but_answers_no_more_is_replaced(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator does that gave up on an API server which was away for too long."""
    hung = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(1); s.close();"
    )
    parts.are(Fake("a", code=hung + "time.sleep(600)"))
    monkeypatch.setattr(stack, "ADOPTION", 0.3)
    found = await stack.up("t")
    before = note(found, "a").pid
    await asyncio.sleep(1.2)
    await stack.up("t")
    assert note(found, "a").pid != before


async def test_a_taken_port_is_one_sentence_with_a_remedy(parts: Parts) -> None:
    parts.are(Fake("a"))
    port = stack.open_stack("t").ports["a"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(PartError, match=rf"a: port {port} \(a\) is taken by .*--forget"):
            await stack.up("t")


async def test_a_process_that_dies_tells_its_last_words(parts: Parts) -> None:
    parts.are(Fake("a", code="print('first'); raise SystemExit('no such database')"), Fake("b", "a"))
    seen: list[tuple[str, str]] = []
    with pytest.raises(PartError, match=r"(?s)a: ended while it started.*no such database"):
        await stack.up("t", progress=lambda part, state, detail: seen.append((part, state)))
    assert ("a", "failed") in seen
    assert ("b", "failed") not in seen
    assert "b starts" not in events


async def test_a_process_that_never_answers_is_given_up(parts: Parts) -> None:
    silent = Fake("a", code="import time; print('thinking', flush=True); time.sleep(60)")
    silent.patience = 0.5
    parts.are(silent)
    with pytest.raises(PartError, match=r"(?s)did not answer within.*thinking"):
        await stack.up("t")


async def test_the_core_does_not_wait_for_later_parts(parts: Parts) -> None:
    gate = asyncio.Event()

    class Slow(Fake):
        async def prepare(self, stack: Stack) -> None:
            await gate.wait()

    parts.are(Fake("a"), Slow("z", later=True), Fake("zz", "z"))
    await stack.up("t")
    assert "a is up" in events
    assert "z is up" not in events
    gate.set()
    await stack.later("t")
    assert "zz is up" in events


async def test_a_later_failure_is_told_by_later_and_stops_no_other(parts: Parts) -> None:
    parts.are(Fake("a"), Fake("y", later=True, code="raise SystemExit('bad')"), Fake("z", later=True))
    await stack.up("t")
    with pytest.raises(PartError, match="y: ended"):
        await stack.later("t")
    assert "z is up" in events


async def test_down_ends_who_needs_before_who_is_needed_and_forget_forgets(parts: Parts, tmp_path: Path) -> None:
    parts.are(Fake("a"), Fake("b", "a"), Fake("c", "b"))
    await stack.up("t")
    seen: list[str] = []
    await stack.down("t", progress=lambda part, state, detail: seen.append(f"{part} {state}"))
    assert [one for one in seen if "stopped" in one] == ["c stopped", "b stopped", "a stopped"]
    assert processes.marked(tmp_path / "instances" / "t") == []
    await stack.down("t", forget=True)
    assert not (tmp_path / "instances" / "t").exists()
    await stack.down("t", forget=True)


async def test_a_part_can_be_killed_stopped_and_started_alone(parts: Parts) -> None:
    parts.are(Fake("a"), Fake("b"))
    found = await stack.up("t")
    other = note(found, "b").pid
    await stack.kill_part(found, "a")
    assert {one.part: one.state for one in await stack.status("t")} == {"a": "-", "b": "up"}
    await stack.start_part(found, "a")
    await stack.stop_part(found, "a")
    await stack.start_part(found, "a")
    assert {one.part: one.state for one in await stack.status("t")} == {"a": "up", "b": "up"}
    assert note(found, "b").pid == other


async def test_two_runs_on_one_instance_share_the_work(parts: Parts) -> None:
    parts.are(Fake("a"), Fake("b", "a"))
    await asyncio.gather(stack.up("t"), stack.up("t"))
    found = stack.open_stack("t")
    assert len(processes.marked(found.folder)) == 2


async def test_two_instances_run_side_by_side(parts: Parts) -> None:
    parts.are(Fake("a"))
    one, two = await asyncio.gather(stack.up("one"), stack.up("two"))
    assert one.ports["a"] != two.ports["a"]
    await stack.down("one")
    assert processes.running(two, "a")


async def test_down_during_up_wins(parts: Parts) -> None:
    silent = Fake("a", code="import time; time.sleep(60)")
    parts.are(silent)
    rising = asyncio.create_task(stack.up("t"))
    await asyncio.sleep(0.5)
    await stack.down("t")
    with pytest.raises(PartError, match=r"taken down meanwhile|ended while it started"):
        await rising
    assert processes.marked(stack.open_stack("t").folder) == []


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "x" * 40])
async def test_a_bad_name_is_refused(parts: Parts, name: str) -> None:
    parts.are(Fake("a"))
    with pytest.raises(PartError, match="is no name"):
        await stack.up(name)


async def test_unknown_parts_are_refused(parts: Parts) -> None:
    parts.are(Fake("a"))
    with pytest.raises(PartError, match="unknown part 'x': there are a"):
        await stack.up("t", ["x"])


async def test_looking_makes_no_instance(parts: Parts, tmp_path: Path) -> None:
    parts.are(Fake("a"))
    with pytest.raises(PartError, match="there is no instance 'absent'"):
        await stack.status("absent")
    assert not (tmp_path / "instances").exists()
