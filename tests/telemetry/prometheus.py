"""Debian's Prometheus and promtool, and one that scrapes the running programs and evaluates our rules every second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from deploy.local import debian, stack
from deploy.local.commands import run
from tests.telemetry.files import ALERTS
from tests.worker.program import free_port

_REMEDY = "install the Debian package prometheus (2.42 or newer), then run this again"
SHORTER = {
    "for: 1m": "for: 1s", "for: 2m": "for: 1s", "for: 3m": "for: 3s", "for: 5m": "for: 1s", "for: 15m": "for: 1s",
    "> 1800": "> 5", "[10m]": "[15s]", "[15m]": "[15s]",
}  # fmt: skip
"""What a test cannot wait for, and what it waits for instead. The rules are otherwise as they are."""


async def program(name: str) -> Path:
    """`prometheus` or `promtool`."""
    programs = ("usr/bin/prometheus", "usr/bin/promtool")
    return await debian.unpack(stack.home(), "prometheus", ("prometheus",), programs, _REMEDY) / "usr" / "bin" / name


async def promtool(*words: str | Path) -> str:
    """What promtool says. Raises with its words when it is not content."""
    return await run(await program("promtool"), *words, remedy="mend what it names")


def shortened() -> str:
    text = ALERTS.read_text()
    for long, short in SHORTER.items():
        assert long in text, f"no rule says {long!r} any more"
        text = text.replace(long, short)
    return text


class Prometheus:
    """One that runs. Answers are as of now."""

    def __init__(self, port: int) -> None:
        self._api = f"http://127.0.0.1:{port}/api/v1"

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query, each with `metric` and `value`."""
        answer = await self._get("query", query=expression)
        assert answer["status"] == "success", (expression, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    async def firing(self) -> set[str]:
        """The alerts that fire."""
        answer = await self._get("alerts")
        return {each["labels"]["alertname"] for each in answer["data"]["alerts"] if each["state"] == "firing"}

    async def fires(self, *names: str, seconds: float = 60) -> None:
        await self._until(lambda firing: set(names) <= firing, f"{names} do not all fire", seconds)

    async def is_silent(self, *names: str, seconds: float = 60) -> None:
        await self._until(lambda firing: not set(names) & firing, f"of {names} some still fire", seconds)

    async def _until(self, holds: Any, what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds(firing := await self.firing()):
            assert time.monotonic() < end, f"{what} after {seconds:g} s; firing: {sorted(firing)}"
            await asyncio.sleep(0.3)

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self._api}/{path}", params=parameters) as answer,
        ):
            found: dict[str, Any] = await answer.json()
            return found


@asynccontextmanager
async def running(folder: Path, targets: dict[str, int], rules: str) -> AsyncIterator[Prometheus]:
    """Scrapes each target (a job's name, and a port of the loopback) every second."""
    port = free_port()
    (folder / "rules.yaml").write_text(rules)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]} for job, at in targets.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            await program("prometheus"), f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        here, end = Prometheus(port), time.monotonic() + 30
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if len(await here.query("up == 1")) == len(targets):
                    break
            assert process.returncode is None and time.monotonic() < end, (folder / "log").read_text()  # noqa: PT018
            await asyncio.sleep(0.2)
        yield here
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
