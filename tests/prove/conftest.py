"""One instance of the stack for all long proofs, with the product on it; taken down at the end.

C5C3_PROVE_ORDERS    how many orders at once (200); a rehearsal takes 20
C5C3_PROVE_SECONDS   how long "left alone" is (600)
C5C3_PROVE_INSTANCE  the instance's name (prove)
C5C3_PROVE_KEEP      set: the instance stays up
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator

import pytest

from deploy.local import stack
from deploy.local.part import Stack
from tests.bench.__main__ import PARTS

ORDERS = int(os.environ.get("C5C3_PROVE_ORDERS", "200"))
SECONDS = float(os.environ.get("C5C3_PROVE_SECONDS", "600"))
INSTANCE = os.environ.get("C5C3_PROVE_INSTANCE", "prove")


@pytest.fixture(scope="session")
def here() -> Iterator[Stack]:
    """The stack, up."""
    yield asyncio.run(stack.up(INSTANCE, PARTS))
    if not os.environ.get("C5C3_PROVE_KEEP"):
        asyncio.run(stack.down(INSTANCE))


@pytest.fixture
def batch() -> str:
    """A name that no run had before."""
    return f"p{secrets.token_hex(3)}"
