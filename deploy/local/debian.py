"""Debian packages without root: downloads them with apt's own trust and unpacks them under `<home>/debian`.

What is unpacked is complete or absent: it appears under its final name by one rename.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from deploy.local.commands import run
from deploy.local.part import PartError
from deploy.local.programs import alone


async def unpack(home: Path, name: str, packages: tuple[str, ...], programs: tuple[str, ...], remedy: str) -> Path:
    """Unpacks `packages`, and every library that `programs` in them miss, into `<home>/debian/<name>`."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise PartError(f"{tool} is not on this machine, so {name} cannot be unpacked; {remedy}")
    root = home / "debian" / name
    async with alone(home / "debian" / f".{name}.lock"):
        if root.exists():
            return root
        scratch = home / "debian" / f".{name}.new"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "debs").mkdir(parents=True)
        for package in packages:
            await _add(home, scratch, (package,), remedy)
        for _ in range(3):  # a library may need another one
            missing = await _missing(scratch, programs, remedy)
            if not missing:
                break
            for library in sorted(missing):
                await _add(home, scratch, _candidates(library), remedy)
        else:
            raise PartError(f"{name} still misses {', '.join(sorted(missing))}; {remedy}")
        shutil.rmtree(scratch / "debs")
        scratch.rename(root)
    return root


def library_path(root: Path) -> str:
    """The LD_LIBRARY_PATH that programs under `root` need; empty when they need none."""
    folders = {str(file.parent) for file in root.glob("**/lib*.so.*") if "plugin" not in file.parts}
    return os.pathsep.join(sorted(folders))


async def _add(home: Path, scratch: Path, candidates: tuple[str, ...], remedy: str) -> None:
    debs = scratch / "debs"
    for fresh_lists in (False, True):
        options = _own_lists(home) if fresh_lists else ()
        if fresh_lists:
            await run("apt-get", *options, "-qq", "update", remedy=remedy)
        for package in candidates:
            try:
                await run("apt-get", *options, "-qq", "download", package, cwd=debs, remedy=remedy)
            except PartError as error:
                last = error
                continue
            for deb in debs.glob("*.deb"):
                await run("dpkg-deb", "-x", deb, scratch, remedy=remedy)
                deb.unlink()
            return
    raise last


def _own_lists(home: Path) -> tuple[str, ...]:
    """Options by which apt keeps its lists with us: for a user who is not root, or lists that are empty or old."""
    state = home / "debian" / ".apt"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    return ("-o", f"Dir::State::lists={state / 'lists'}", "-o", f"Dir::Cache={state / 'cache'}")


async def _missing(root: Path, programs: tuple[str, ...], remedy: str) -> set[str]:
    found: set[str] = set()
    env = {"LD_LIBRARY_PATH": library_path(root)}
    for program in programs:
        text = await run("ldd", root / program, env=env, remedy=remedy)
        found |= set(re.findall(r"(\S+) => not found", text))
    return found


def _candidates(library: str) -> tuple[str, ...]:
    """Package names for a library by Debian's rule: libaio.so.1 is in libaio1, since the 64-bit times libaio1t64."""
    match = re.fullmatch(r"(lib.+?)\.so\.(\d+).*", library)
    if match is None:
        return (library,)
    stem, number = match.groups()
    package = (f"{stem}-{number}" if stem[-1].isdigit() else f"{stem}{number}").lower().replace("_", "-")
    return (package, f"{package}t64")
