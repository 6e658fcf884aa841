"""Which version of the product runs."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """Of the installed package; `source` where it runs from a working copy."""
    try:
        return importlib.metadata.version("c5c3-orders")
    except importlib.metadata.PackageNotFoundError:
        return "source"
