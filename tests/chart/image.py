"""The image made without a container engine: the Dockerfile's own instructions, one after the other, in plain folders.

Only the instructions that the file uses are understood; another one is an error.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chart.helm import DEPLOY

ROOT = DEPLOY.parent
DOCKERFILE = DEPLOY / "image" / "Dockerfile"
LOCK = DEPLOY / "image" / "requirements.lock"
INHERITED = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass
class Stage:
    """One stage: its root, and what the instructions so far have set."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)


def instructions() -> list[tuple[str, str]]:
    """Word and rest of each, in order."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def build(folder: Path, base: Callable[[Path], None], run: Callable[[Stage, str], None]) -> Stage:
    """The last stage. `base` makes a root, `run` runs a shell command in one."""
    stages: dict[str, Stage] = {}
    now: Stage | None = None
    for word, rest in instructions():
        words = shlex.split(rest)
        if word == "ARG":
            continue
        if word == "FROM":
            name = words[2] if words[1:2] == ["AS"] else "last"
            now = stages[name] = Stage(folder / name)
            base(now.root)
            continue
        assert now is not None
        if word == "RUN":
            run(now, rest)
        elif word == "COPY":
            source = stages[words.pop(0).removeprefix("--from=")].root if words[0].startswith("--from=") else ROOT
            copy(source / words[0].lstrip("/"), now.root / words[1].lstrip("/"))
        elif word == "ENV":
            now.env |= dict(each.split("=", 1) for each in words)
        elif word == "USER":
            now.user = words[0]
        elif word == "ENTRYPOINT":
            now.entrypoint = json.loads(rest)
        elif word != "CMD":
            raise AssertionError(f"the Dockerfile says {word}, which is not understood here")
    return stages["last"]


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def say(argv: list[str], env: Mapping[str, str], seconds: float = 900) -> subprocess.CompletedProcess[str]:
    """Runs it with this environment and the machine's ways to the network, and nothing else."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return subprocess.run(argv, env={**kept, **env}, capture_output=True, text=True, timeout=seconds, check=False)
