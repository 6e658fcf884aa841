"""`make check`: what takes seconds and needs no stack, each step's own words only when it fails."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
STEPS = (
    ("lint", (str(BIN / "ruff"), "check", "--quiet", ".")),
    ("format", (str(BIN / "ruff"), "format", "--check", "--quiet", ".")),
    ("types", (sys.executable, "-m", "mypy", "--no-error-summary")),
    ("imports", (str(BIN / "lint-imports"),)),
    (
        "pure tests",
        (sys.executable, "-m", "pytest", "-m", "not api and not real and not prove", "tests/workflows", "tests/docs"),
    ),
)


def main() -> int:
    failed = 0
    for name, command in STEPS:
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"{name:12} {'ok' if done.returncode == 0 else 'FAILED':7} {time.monotonic() - began:5.1f} s", flush=True)
        if done.returncode:
            failed += 1
            print(done.stdout, done.stderr, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
