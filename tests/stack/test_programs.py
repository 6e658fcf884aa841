"""What decides the name of a built program, and that builds take turns in the order of need."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.local import programs
from deploy.local.part import PartError
from deploy.local.programs import Program

ROOT = Path(__file__).parents[2]
RUN = "asyncio.run(p.build(pathlib.Path(HOME), 'etcd'))"
PROGRAM = Program("m", "example.org/m")


def module(folder: Path) -> Path:
    (folder / "m" / "cmd").mkdir(parents=True)
    (folder / "m" / "go.mod").write_text("module m\n")
    (folder / "m" / "go.sum").write_text("")
    (folder / "m" / "cmd" / "main.go").write_text("package main\n")
    return folder


def test_the_key_is_a_matter_of_content_alone(tmp_path: Path) -> None:
    one, two = module(tmp_path / "one"), module(tmp_path / "two")
    assert programs.key(PROGRAM, one) == programs.key(PROGRAM, two)


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "cmd/main.go"])
def test_each_file_counts(tmp_path: Path, file: str) -> None:
    before = programs.key(PROGRAM, module(tmp_path))
    with (tmp_path / "m" / file).open("a") as out:
        out.write("// more\n")
    assert programs.key(PROGRAM, tmp_path) != before


def test_flags_and_package_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path)
    keys = {programs.key(PROGRAM, tmp_path)}
    keys.add(programs.key(replace(PROGRAM, ldflags=""), tmp_path))
    keys.add(programs.key(replace(PROGRAM, package="example.org/n"), tmp_path))
    monkeypatch.setattr(programs, "FLAGS", ("-trimpath",))
    keys.add(programs.key(PROGRAM, tmp_path))
    assert len(keys) == 4


def test_every_program_has_its_module_pinned() -> None:
    for name, program in programs.PROGRAMS.items():
        assert (programs.MODULES / program.module / "go.sum").stat().st_size > 1000, name
        if program.package.startswith("./"):
            assert (programs.MODULES / program.module / program.package / "main.go").exists()
        else:
            assert f"tool {program.package}\n" in (programs.MODULES / program.module / "go.mod").read_text()


async def test_builds_take_turns_in_the_order_of_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    busy = 0

    async def fake(home: Path, folder: Path, *arguments: str, **_: object) -> str:
        nonlocal busy
        busy += 1
        assert busy == 1
        await asyncio.sleep(0.01)
        half = Path(arguments[arguments.index("-o") + 1])
        half.write_text("program")
        built.append(half.name)
        busy -= 1
        return ""

    monkeypatch.setattr(programs, "_go", fake)
    await asyncio.gather(*(programs.build(tmp_path, name) for name in reversed(programs.PROGRAMS)))
    assert built == [f".{name}.half" for name in programs.PROGRAMS]
    assert all(programs.path(tmp_path, name).exists() for name in programs.PROGRAMS)


async def test_an_interrupted_build_leaves_nothing_that_could_be_taken_for_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fake(home: Path, folder: Path, *arguments: str, **_: object) -> str:
        Path(arguments[arguments.index("-o") + 1]).write_text("half")
        raise asyncio.CancelledError

    monkeypatch.setattr(programs, "_go", fake)
    with pytest.raises(asyncio.CancelledError):
        await programs.build(tmp_path, "etcd")
    assert not programs.path(tmp_path, "etcd").exists()


async def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "DISK_WANTED", 1 << 60)
    with pytest.raises(PartError, match="MB free under"):
        await programs.build(tmp_path, "etcd")


FAKE_GO = """#!/bin/sh
case "$1" in
env) echo go1.26.9 ;;
build)
    while [ "$1" != -o ]; do shift; done
    printf half > "$2"; echo "$$" >> "$HOME/built"; sleep "$(cat "$HOME/seconds")"; printf whole >> "$2" ;;
esac
"""


def fake_go(folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: str, version: str = "go1.26.9") -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "go").write_text(FAKE_GO.replace("go1.26.9", version))
    (folder / "bin" / "go").chmod(0o755)
    (folder / "seconds").write_text(seconds)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(folder))


async def appears(file: Path) -> None:
    for _ in range(2000):
        if file.exists():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"{file} never appeared")


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def test_a_build_that_outlives_a_killed_run_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of the launcher leaves Go running: a second build beside it would write the same file."""
    fake_go(tmp_path, monkeypatch, "2")
    home = tmp_path / "home"
    code = f"import asyncio, pathlib; from deploy.local import programs as p; {RUN}"
    first = await asyncio.create_subprocess_exec(sys.executable, "-c", code.replace("HOME", repr(str(home))), cwd=ROOT)
    await appears(tmp_path / "built")
    first.kill()
    await first.wait()
    orphan = psutil.Process(int((tmp_path / "built").read_text()))
    assert not has_ended(orphan)
    (tmp_path / "seconds").write_text("0")
    built = await programs.build(home, "etcd")
    assert has_ended(orphan)
    assert built.read_text() == "halfwhole"


async def test_an_interrupted_run_ends_its_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch, "60")
    building = asyncio.create_task(programs.build(tmp_path / "home", "etcd"))
    await appears(tmp_path / "built")
    child = psutil.Process(int((tmp_path / "built").read_text()))
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert has_ended(child)


async def test_an_old_go_on_the_path_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch, "0", version="go1.25.9")
    own = tmp_path / "home" / "go" / "go" / "bin" / "go"
    own.parent.mkdir(parents=True)
    own.write_text(FAKE_GO)
    own.chmod(0o755)
    assert await programs.go(tmp_path / "home") == own
