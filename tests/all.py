"""`make test`: the quick checks, then every test but the long runs, in two halves side by side.

The tests that need the whole stack mostly wait for it, the others mostly work: together they take little longer than
either. Arguments go to pytest, as in `make test ARGS="-k teardown"`. A run begins on a stack of its own: what an
earlier one left, perhaps because it was killed, is forgotten first (programs stay built). With --again what failed is
run once more by itself, and counts as failed only if it fails again: on two shared cores a real API server may stall
for a minute.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local import stack
from tests import check
from tests.e2e.fixtures import instance

CACHE = Path(".pytest_cache")
HALVES = {"without the stack": "not prove and not real", "on the stack": "real and not prove"}
WHOLE = "TESTS_WHOLE"
"""Set for the tests when no argument picks some of them."""
_ONLY_FAILED = ("--last-failed", "--last-failed-no-failures=none")
NO_TESTS = 5  # pytest's exit code where a half has nothing that was asked for


@dataclass(frozen=True)
class Ran:
    """How a half ended."""

    code: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0


async def run(half: str, arguments: list[str]) -> Ran:
    """Runs one half; what pytest says comes in one piece when it has ended."""
    folder = CACHE / half.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    whole = {} if set(arguments) - set(_ONLY_FAILED) else {WHOLE: "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-m", HALVES[half], "-o", f"cache_dir={folder}", f"--junitxml={report}",
        "--durations=8", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **whole},
    )  # fmt: skip
    output, _ = await process.communicate()
    print(f"\n== {half}: {time.monotonic() - began:.0f} s\n{output.decode(errors='replace')}", flush=True)
    return _read(process.returncode or 0, report)


def _read(code: int, report: Path) -> Ran:
    if not report.exists():
        return Ran(0 if code == NO_TESTS else code, failed=0 if code == NO_TESTS else 1)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        return Ran(code)
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return Ran(0 if code == NO_TESTS else code, max(0, total - skipped - failed), failed, skipped)


async def _forget_earlier() -> None:
    """Forgets the instance that the tests share, and those of runs that were killed before they could."""
    for left in (stack.home() / "instances").glob("tests-*"):
        pid = left.name.removeprefix("tests-")
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            await stack.down(left.name, forget=True)
    await stack.down(instance(), forget=True)


async def _all(arguments: list[str], *, again: bool) -> int:
    await _forget_earlier()
    ran = dict(zip(HALVES, await asyncio.gather(*(run(half, arguments) for half in HALVES)), strict=True))
    if again and any(each.code for each in ran.values()):
        for half, first in ran.items():
            if first.code:
                print(f"\n{first.failed} failed {half}; once more, only what failed:", flush=True)
                second = await run(half, [*_ONLY_FAILED, *arguments])
                mended = max(0, first.failed - second.failed)
                ran[half] = Ran(second.code, first.passed + mended, second.failed, first.skipped)
    passed, failed, skipped = (
        sum(getattr(each, what) for each in ran.values()) for what in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or any(each.code for each in ran.values()) else 0


def main() -> int:
    arguments = sys.argv[1:]
    again = "--again" in arguments
    if check.main():
        return 1
    return asyncio.run(_all([each for each in arguments if each != "--again"], again=again))


if __name__ == "__main__":
    sys.exit(main())
