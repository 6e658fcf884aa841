"""The worker of a later release: `RELEASE=guarded python -m tests.upgrades.release`, otherwise `python -m worker`."""

from __future__ import annotations

import os

from tests.upgrades import releases
from worker import __main__ as program
from worker import assembly
from workflows.keystoneproject.teardown import KeystoneProjectTeardown
from workflows.keystoneproject.workflow import KeystoneProject

CHANGED: dict[str, tuple[type, type]] = {
    "guarded": (releases.Guarded, releases.GuardedTeardown),
    "unguarded": (releases.Unguarded, releases.UnguardedTeardown),
}

if __name__ == "__main__":
    kept = tuple(each for each in assembly.WORKFLOWS if each not in (KeystoneProject, KeystoneProjectTeardown))
    assembly.WORKFLOWS = (*CHANGED[os.environ["RELEASE"]], *kept)
    program.main()
