"""Ports of an instance: a block of its own on 127.0.0.1, chosen free once and kept in its folder.

The block is found by the instance's name, so instances rarely even try for the same; blocks that other instances have
written down are passed over although nothing listens there now, because those instances come back.
"""

from __future__ import annotations

import contextlib
import json
import socket
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from deploy.local.part import PartError

# Below the ports that Linux hands out for outgoing connections (32768 and up), so that none of them sits in a block.
FIRST, LAST, SIZE = 20000, 32000, 60


def is_free(port: int) -> bool:
    """Whether a server could listen there now. A connection in TIME_WAIT does not count."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def blocks(instance: str) -> Iterator[int]:
    """First ports of all blocks, beginning at the instance's own."""
    count = (LAST - FIRST) // SIZE
    start = zlib.crc32(instance.encode()) % count
    for step in range(count):
        yield FIRST + (start + step) % count * SIZE


def written(folder: Path) -> dict[str, int]:
    """The ports an instance has written down, or none. A half-written file cannot be: it is renamed into place."""
    try:
        kept: dict[str, int] = json.loads((folder / "ports.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return kept


def choose(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """The instance's ports. Names that a newer version of the stack adds get the next ports of the same block."""
    kept = written(folder)
    missing = [name for name in names if name not in kept]
    if not missing:
        return kept
    if kept:
        first = min(kept.values())
    else:
        taken = {p // SIZE for other in folder.parent.glob("*/ports.json") for p in written(other.parent).values()}
        first = next(
            (
                b
                for b in blocks(folder.name)
                if b // SIZE not in taken and all(is_free(b + i) for i in range(len(names)))
            ),
            0,
        )
    unused = [first + i for i in range(SIZE) if first + i not in kept.values()]
    if not first or len(unused) < len(missing):
        raise PartError(
            f"no block of {SIZE} free ports between {FIRST} and {LAST}: end what listens there, or forget an instance"
        )
    ports = {**kept, **dict(zip(missing, unused, strict=False))}
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / ".ports.json"
    half.write_text(json.dumps(ports, indent=1))
    half.replace(folder / "ports.json")
    return ports


def holder(port: int) -> str:
    """Who listens on a port, as well as we may know: "postgres (pid 4711)", or "another process"."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another process"
