"""Files of an instance that only we may read: keys, passwords, kubeconfigs. One is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_secret(path: Path, data: bytes) -> None:
    """Writes under a temporary name and renames, so a killed run leaves no half key behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    half.replace(path)
