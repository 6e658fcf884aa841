"""What decides the name of a built program, and that builds take turns in the order of need."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import programs
from deploy.local.part import PartError
from deploy.local.programs import Program

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
