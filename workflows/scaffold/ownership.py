"""Whose object is it: the test before anything is written or deleted (contracts 3.4, 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def owned(labels: Mapping[str, str], ours: Mapping[str, str]) -> bool:
    """Whether an object carries all of an order's ownership labels with exactly these values."""
    return all(labels.get(key) == value for key, value in ours.items())


def sweepable(name: str, labels: Mapping[str, str], ours: Mapping[str, str], prefix: str) -> bool:
    """Whether a sweep may delete it: both the labels and the name must say that it is the order's child."""
    return owned(labels, ours) and name.startswith(prefix)


def refusal(kind: str, namespace: str, name: str) -> str:
    """What is said of an object at a child's name that this order did not create."""
    return (
        f"{kind} {namespace}/{name} exists and was not created by this order, so it is left alone;"
        " delete or rename it, or order under another name."
    )


def includes(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the live object says everything that is wanted of it, so that an apply would change nothing."""
    for key, value in wanted.items():
        have = live.get(key)
        if isinstance(value, Mapping):
            if not isinstance(have, Mapping) or not includes(have, value):
                return False
        elif have != value:
            return False
    return True
