"""The flow tests' server and worker."""

from __future__ import annotations

from tests.flows.conftest import clock_env, serve

__all__ = ["clock_env", "serve"]
