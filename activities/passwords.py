"""Passwords: made here, and nowhere but in a Kubernetes Secret after that."""

from __future__ import annotations

import secrets


def new() -> str:
    """32 random bytes, URL-safe base64 without padding: 43 characters of `[A-Za-z0-9_-]` (contracts 4.7)."""
    return secrets.token_urlsafe(32)
