"""Private keys and tokens touch no disk: looked for in a process that holds them, and after it was killed there.

What is looked for is told apart by its content, so no list of likely places can miss it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from deploy.local.authority import issue
from tests.bao_by_hand import LOGIN, ROLE, TOKEN, Server, serving

JWT = "eyJhbGciOi.that-nobody-may-find.signature"
ROOT = Path(__file__).parents[2]
MOMENTS = ("key", "login", "session", "target's key", "management's key", "person's key")
ANYWHERE = ("/dev/shm", "/tmp", "/var/tmp", "/run")
DEPTH = 2
"""Folders below those: a temporary file's own, and one in it."""


class Holder:
    """The process, the folders that it would write to, and what must not be found."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, server: Server) -> None:
        self.process = process
        self.began = time.time() - 1
        self.folder, self.server = folder, server
        key = server.pair["tls.key"]
        # Parts that tell this key from others: the first line begins alike in all of a kind.
        self.secrets = (key.splitlines()[2], base64.b64encode(key)[140:200], JWT.encode(), TOKEN.encode())
        self.told: list[str] = []

    async def halted(self, moment: str) -> None:
        """Until it stands still at that moment."""
        if moment == "login":
            while True:
                await asyncio.sleep(0.02)
                if f"POST {LOGIN}" in self.server.calls:
                    return
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line == b"now\n":
                return
            self.told.append(line.decode().strip())
        assert self.process.stderr is not None
        raise AssertionError((await self.process.stderr.read()).decode())

    def named_files_that_hold_any(self) -> list[str]:
        """Files with a name, anywhere where one of ours could be; but those that the test itself has given it."""
        given = self.folder / "given"
        return [str(path) for path in self._candidates() if given not in path.parents and self._holds(path)]

    def open_files_that_hold_any(self) -> list[tuple[str, os.stat_result]]:
        """Of those that it has open now: where they are, and what they are."""
        found = []
        for number in Path(f"/proc/{self.process.pid}/fd").iterdir():
            state = number.stat()
            if stat.S_ISREG(state.st_mode) and self._holds(number):
                found.append((os.readlink(number), state))
        return found

    def _candidates(self) -> Iterable[Path]:
        for root in (self.folder, *map(Path, ANYWHERE)):
            for where, below, names in os.walk(root):
                if root != self.folder and len(Path(where).relative_to(root).parts) == DEPTH:
                    below.clear()
                for name in names:
                    path = Path(where, name)
                    try:
                        state = path.lstat()
                    except OSError:
                        continue
                    if stat.S_ISREG(state.st_mode) and state.st_mtime > self.began and state.st_size < 1 << 20:
                        yield path

    def _holds(self, path: Path) -> bool:
        try:
            content = path.read_bytes()
        except OSError:
            return False
        return any(secret in content for secret in self.secrets)


@asynccontextmanager
async def holding(moment: str, folder: Path) -> AsyncIterator[Holder]:
    given, home = folder / "given", folder / "home"
    for each in (given, home, folder / "tmp"):
        each.mkdir()
    with serving(given) as server:
        server.says(f"GET {ROLE}", 200, {"data": {}})
        server.delay = 30 if moment == "login" else 0
        (given / "token").write_text(JWT)
        user = issue(server.ca, given, "user")
        server.client = user
        pair = {key: base64.b64encode(value).decode() for key, value in server.pair.items()}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [
                {"name": "k", "cluster": {"server": server.bao.server, "certificate-authority-data": pair["ca.crt"]}}
            ],
            "users": [
                {"name": "u", "user": {"client-certificate-data": pair["tls.crt"], "client-key-data": pair["tls.key"]}}
            ],
        }
        (given / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        around = {"HOME": str(home), "TMPDIR": str(folder / "tmp"), "PATH": os.environ["PATH"]}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.activities.holder", moment,
            cwd=ROOT, env={**around, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        said = {
            **pair, "server": server.bao.server, "token_file": str(given / "token"),
            "kubeconfig": yaml.safe_dump(kubeconfig), "kubeconfig_file": str(given / "kubeconfig"),
        }  # fmt: skip
        process.stdin.write(json.dumps(said).encode())
        process.stdin.close()
        try:
            yield Holder(process, folder, server)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.mark.row("B03")
@pytest.mark.parametrize("moment", MOMENTS)
async def test_whoever_is_killed_with_a_key_in_hand_leaves_nothing(moment: str, tmp_path: Path) -> None:
    async with holding(moment, tmp_path) as holder:
        async with asyncio.timeout(30):
            await holder.halted(moment)
        assert holder.told == [], "no file was opened for writing"
        held = holder.open_files_that_hold_any()
        assert bool(held) == moment.endswith("key"), "only while OpenSSL reads it, the key is a file"
        for link, state in held:
            assert link.startswith("/memfd:")
            assert (state.st_nlink, state.st_uid, stat.S_IMODE(state.st_mode)) == (0, os.getuid(), 0o600)
        assert holder.named_files_that_hold_any() == []
        holder.process.kill()
        await holder.process.wait()
        assert holder.named_files_that_hold_any() == []
