"""Runs the programs that prepare a part, and keeps the secrets that parts generate.

A secret reaches a program by environment, standard input or a file of mode 0600, never by its command line,
and an error quotes only the program's own last words.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from deploy.local.files import write_secret
from deploy.local.part import PartError


async def run(
    *argv: str | Path,
    remedy: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    timeout: float = 600,
) -> str:
    """Runs a program to its end and answers what it printed. `env` is added to this process's own."""
    words = [str(word) for word in argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
    except OSError as error:
        raise PartError(f"{words[0]} cannot be started ({error.strerror}); {remedy}") from error
    try:
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode() if stdin is not None else None), timeout)
    except (TimeoutError, asyncio.CancelledError) as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise PartError(f"{Path(words[0]).name} did not end within {timeout:.0f} s; {remedy}") from error
        raise
    text = output.decode(errors="replace")
    if process.returncode:
        last = " / ".join(line.strip() for line in text.strip().splitlines()[-3:]) or "it said nothing"
        raise PartError(f"{Path(words[0]).name} failed with {process.returncode}: {last}; {remedy}")
    return text


def password(path: Path) -> str:
    """The password kept at `path`, made at the first call."""
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(24).encode())
    return path.read_text()
