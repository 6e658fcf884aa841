"""A headless Chromium, driven over its own debugging protocol: pages as people see them, and pictures of them."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

WIDTH, HEIGHT = 1360, 1000
NAMES = ("chromium", "chromium-browser", "google-chrome")


def quoted(text: str) -> str:
    """A workflow id as it stands in an address of the UI."""
    return quote(text, safe="")


async def program() -> str:
    """Chromium, from the machine, or from its Debian package where we may install one."""
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
            process = await asyncio.create_subprocess_exec(
                "apt-get", "-qq", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
            await process.wait()
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("this test looks at Temporal's UI in a browser: install the Debian package chromium")
    return found


class Window:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            answer = await self._socket.receive_json(timeout=30)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    async def text(self) -> str:
        """What can be read on the page now, frames included: the UI shows Markdown in frames of its own."""
        found = await self.call("DOM.getDocument", depth=-1, pierce=True)
        return " ".join(_texts(found["root"]))

    async def shows(self, address: str, *words: str, seconds: float = 45) -> str:
        """Opens a page and waits until all the words can be read on it."""
        await self.call("Page.navigate", url=address)
        deadline = time.monotonic() + seconds
        while True:
            text = await self.text()
            missing = [word for word in words if word not in text]
            if not missing:
                return text
            assert time.monotonic() < deadline, f"{address} does not show {missing}, but:\n{text[:3000]}"
            await asyncio.sleep(1)

    async def picture(self, file: Path) -> None:
        """Keeps what the window shows."""
        await asyncio.sleep(1)  # fonts and transitions
        shot = await self.call("Page.captureScreenshot", format="png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))


def _texts(node: dict[str, Any]) -> list[str]:
    if node["nodeName"] in ("SCRIPT", "STYLE"):
        return []
    below = [*node.get("children", ()), *node.get("shadowRoots", ())]
    if "contentDocument" in node:
        below.append(node["contentDocument"])
    words = node.get("nodeValue", "").split() if node["nodeType"] == 3 else []
    return [*words, *(word for child in below for word in _texts(child))]


@asynccontextmanager
async def opened() -> AsyncIterator[Window]:
    """A browser with nothing kept of earlier ones."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            await program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-features=IsolateSandboxedIframes", "--disable-site-isolation-trials",
            "--no-proxy-server", f"--window-size={WIDTH},{HEIGHT}",
            f"--user-data-dir={folder}",
            "--remote-debugging-port=0", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = await _port(Path(folder) / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    targets = await answer.json(content_type=None)
                where = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
                async with session.ws_connect(where, max_msg_size=0) as socket:
                    window = Window(socket)
                    await window.call("Page.enable")
                    metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
                    await window.call("Emulation.setDeviceMetricsOverride", **metrics)
                    yield window
        finally:
            process.kill()
            await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text().strip()):
        assert process.returncode is None, "the browser ended at its start"
        assert time.monotonic() < deadline, "the browser does not come up"
        await asyncio.sleep(0.1)
    return int(file.read_text().split()[0])
