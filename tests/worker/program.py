"""A program of ours as a process, `worker` or `watcher`, with settings, a log and its readiness."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[2]


class Program:
    """One run of a program; its log is in `folder`."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        self.settings = settings
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, module: str = "worker", **more: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("C5C3_")}
        with (self.folder / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, env={**kept, "PYTHONPATH": str(ROOT), **self.settings, **more},
                cwd=self.folder, stdout=log, stderr=log,
            )  # fmt: skip

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    async def kill(self) -> None:
        """Ends it, if it still runs."""
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def ended(self, seconds: float = 60) -> int:
        assert self.process
        return await asyncio.wait_for(self.process.wait(), seconds)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def logs(self, words: str, seconds: float = 60) -> None:
        """Waits until the log has these words."""
        end = time.monotonic() + seconds
        while words not in self.log():
            assert time.monotonic() < end, self.log()
            await asyncio.sleep(0.05)

    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.log().splitlines()]

    async def readyz(self) -> tuple[int, str]:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{self.settings['C5C3_HTTP_ADDRESS']}/readyz") as answer,
            ):
                return answer.status, (await answer.text()).strip()
        except aiohttp.ClientError:
            return 0, ""

    async def says(self, status: int, text: str = "", seconds: float = 90) -> None:
        """Waits for that answer of /readyz; an empty text takes any."""
        end = time.monotonic() + seconds
        while (said := await self.readyz()) != (status, text or said[1]):
            assert time.monotonic() < end, f"last answer {said}\n{self.log()}"
            assert self.process
            assert self.process.returncode is None, self.log()
            await asyncio.sleep(0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
