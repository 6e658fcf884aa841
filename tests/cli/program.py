"""`c5c3-orders` run as a person runs it, on the stack of the tests: a process with flags, and what it printed.

C5C3_CLI_PAGES   a folder that what was printed goes to, a file a run; docs/command-line.md has been filled so
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local import kube
from deploy.local.part import Stack
from deploy.local.parts import temporal

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Said:
    """One run: its exit code, and what went to the two streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def line(self, *words: str) -> str:
        """The one line that has all of these words."""
        found = [line for line in self.out.splitlines() if all(word in line for word in words)]
        assert len(found) == 1, f"{len(found)} lines have {words}:\n{self.out}\n{self.err}"
        return found[0]


async def run(
    here: Stack, *words: str, user: str = "admin", columns: int | None = None, page: str = "", **more: str
) -> Said:
    """Runs it against the stack, found by the variables that `python -m deploy.local env` sets. Never on a terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("C5C3_", "TEMPORAL_"))}
    found = {
        "KUBECONFIG": str(kube.kubeconfig(here, "management", user)),
        "TEMPORAL_ADDRESS": temporal.address(here),
        "TEMPORAL_UI": f"http://127.0.0.1:{here.ports['temporal-ui']}",
        "PYTHONPATH": str(ROOT),
    }
    wide = {"COLUMNS": str(columns)} if columns else {}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "worker.cli", *words, env={**kept, **found, **wide, **more},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    said = Said(process.returncode or 0, out.decode(), err.decode())
    assert "\x1b" not in said.out + said.err
    assert "Traceback" not in said.err, said.err
    if pages := os.environ.get("C5C3_CLI_PAGES"):
        text = f"$ c5c3-orders {' '.join(words)}\n{said.out}{said.err}(exit {said.code})\n"
        await asyncio.to_thread((Path(pages) / f"{page or words[0]}-{columns or 'piped'}.txt").write_text, text)
    return said
