"""Two blocks of one pass: both run to their ends, and the first failure is what the pass ends with."""

from __future__ import annotations

import asyncio

import pytest

from workflows.scaffold.run import Moved, Trouble, side_by_side


async def answering(value: str, log: list[str], *, after: float = 0) -> str:
    await asyncio.sleep(after)
    log.append(value)
    return value


async def failing(error: Exception, log: list[str], *, after: float = 0) -> str:
    await asyncio.sleep(after)
    log.append(str(error))
    raise error


@pytest.mark.row("S20")
async def test_answers_come_in_the_order_of_the_blocks() -> None:
    log: list[str] = []
    assert await side_by_side(answering("a", log, after=0.02), answering("b", log)) == ["a", "b"]
    assert log == ["b", "a"], "at the same time"


@pytest.mark.row("S20")
@pytest.mark.parametrize("slow", [0, 1])
async def test_none_works_on_when_the_pass_is_over(slow: int) -> None:
    log: list[str] = []
    delays = [0.02 if slow == which else 0 for which in (0, 1)]
    with pytest.raises(Moved):
        await side_by_side(failing(Moved("moved"), log, after=delays[0]), answering("b", log, after=delays[1]))
    assert sorted(log) == ["b", "moved"]


async def test_of_two_failures_the_first_blocks_is_told() -> None:
    log: list[str] = []
    with pytest.raises(Trouble, match="one"):
        await side_by_side(failing(Trouble("one"), log, after=0.02), failing(Moved("two"), log))
