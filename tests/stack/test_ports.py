"""Ports of an instance: chosen once, kept, never another instance's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.local import ports
from deploy.local.part import PartError


def test_ports_are_kept_although_something_listens_there_now(tmp_path: Path) -> None:
    first = ports.choose(tmp_path / "a", ["x", "y"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first["x"]))
        taken.listen()
        assert not ports.is_free(first["x"])
        assert ports.choose(tmp_path / "a", ["x", "y"]) == first


def test_a_new_name_gets_a_port_of_the_same_block_and_moves_no_other(tmp_path: Path) -> None:
    first = ports.choose(tmp_path / "a", ["x", "y"])
    second = ports.choose(tmp_path / "a", ["new", "x", "y"])
    assert {name: second[name] for name in first} == first
    assert second["new"] // ports.SIZE == first["x"] // ports.SIZE
    assert len(set(second.values())) == 3


def test_instances_do_not_meet_even_when_neither_runs(tmp_path: Path) -> None:
    seen: set[int] = set()
    for number in range(40):
        mine = set(ports.choose(tmp_path / f"i{number}", ["x", "y", "z"]).values())
        assert not mine & seen
        seen |= mine


def test_a_block_in_which_something_listens_is_passed_over(tmp_path: Path) -> None:
    block = next(b for b in ports.blocks("a") if ports.is_free(b + 1))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", block + 1))
        taken.listen()
        assert block not in ports.choose(tmp_path / "a", ["x", "y"]).values()


def test_no_free_block_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _port: False)
    with pytest.raises(PartError, match="no block of"):
        ports.choose(tmp_path / "a", ["x"])


def test_a_torn_file_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ports.json").write_text('{"x": 1')
    assert set(ports.choose(tmp_path / "a", ["x"])) == {"x"}


def test_blocks_stay_below_the_ports_for_outgoing_connections() -> None:
    every = list(ports.blocks("demo"))
    assert len(every) == len(set(every))
    assert min(every) >= ports.FIRST
    assert max(every) + ports.SIZE <= 32768
