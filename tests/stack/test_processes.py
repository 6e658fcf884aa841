"""Processes of an instance: found again, never confused with someone else's, ended with their children."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from deploy.local import processes
from deploy.local.part import PartError, Process, Stack

SLEEP = Process((sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"))


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    stack = Stack("t", tmp_path, tmp_path / "t", {})
    stack.folder.mkdir()
    yield stack
    await processes.end(stack, kill=True)


async def test_a_started_process_is_found_again_by_its_note_alone(stack: Stack) -> None:
    note = processes.start(stack, "p", SLEEP)
    assert processes.running(stack, "p") == note
    assert os.getsid(note.pid) == note.pid  # apart from us: it survives our end and our Ctrl-C


async def test_a_killed_process_is_not_taken_for_running(stack: Stack) -> None:
    note = processes.start(stack, "p", SLEEP)
    os.kill(note.pid, signal.SIGKILL)
    for _ in range(100):
        if processes.running(stack, "p") is None:
            return
        await asyncio.sleep(0.02)
    pytest.fail("still taken for running")


async def test_a_reused_pid_is_not_ours(stack: Stack) -> None:
    """A stale note names a pid that some other program has now: it is neither adopted nor ended."""
    other = psutil.Process(os.getpid())
    stale = processes.Note(other.pid, other.create_time() - 1000, "old")
    processes.note_path(stack, "p").parent.mkdir()
    processes.note_path(stack, "p").write_text(json.dumps(asdict(stale)))
    assert processes.running(stack, "p") is None
    assert not await processes.end(stack, "p")
    assert other.is_running()


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "[]", '"x"'])
async def test_a_torn_note_is_as_good_as_none(stack: Stack, text: str) -> None:
    processes.note_path(stack, "p").parent.mkdir()
    processes.note_path(stack, "p").write_text(text)
    assert processes.running(stack, "p") is None


async def test_what_was_started_but_never_noted_is_ended_too(stack: Stack) -> None:
    note = processes.start(stack, "p", SLEEP)
    processes.note_path(stack, "p").unlink()
    assert await processes.end(stack, "p")
    assert not processes.is_alive(note)


async def test_children_end_with_their_leader_and_the_stubborn_are_killed(stack: Stack) -> None:
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
    )
    processes.start(stack, "p", Process((sys.executable, "-c", code)))
    for _ in range(200):
        if len(processes.marked(stack.folder, "p")) == 2:
            break
        await asyncio.sleep(0.02)
    assert await processes.end(stack, "p", patience=0.5)
    assert processes.marked(stack.folder) == []


async def test_a_stopped_process_ends_as_politely_as_any(stack: Stack) -> None:
    note = processes.start(stack, "p", SLEEP)
    psutil.Process(note.pid).suspend()
    assert await asyncio.wait_for(processes.end(stack, "p", patience=60), 20)


async def test_another_part_and_another_instance_stay(stack: Stack, tmp_path: Path) -> None:
    twin = Stack("u", tmp_path, tmp_path / "u", {})
    twin.folder.mkdir()
    mine, sibling, theirs = (
        processes.start(where, name, SLEEP) for where, name in ((stack, "p"), (stack, "q"), (twin, "p"))
    )
    await processes.end(stack, "p", kill=True)
    assert [processes.is_alive(note) for note in (mine, sibling, theirs)] == [False, True, True]
    await processes.end(twin, kill=True)


def test_a_changed_wish_is_another_digest(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("one")
    wish = Process((str(program), "-x"))
    digests = {processes.digest(wish)}
    digests.add(processes.digest(Process((str(program), "-y"))))
    digests.add(processes.digest(Process((str(program), "-x"), {"A": "1"})))
    digests.add(processes.digest(Process((str(program), "-x"), version="2")))
    program.write_text("rebuilt")
    digests.add(processes.digest(wish))
    assert len(digests) == 5


async def test_a_program_that_cannot_be_started_is_one_sentence(stack: Stack) -> None:
    with pytest.raises(PartError, match="cannot be started"):
        processes.start(stack, "p", Process((str(stack.folder / "absent"),)))


async def test_the_launchers_environment_does_not_leak(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://elsewhere")
    note = processes.start(stack, "p", SLEEP)
    assert not {"KUBECONFIG", "HTTPS_PROXY"} & psutil.Process(note.pid).environ().keys()
