"""Whose object is it: the test before anything is written or deleted (contracts 3.4, 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflows.api.meta import Meta, Model
from workflows.scaffold.times import seconds


class Marks(Model):
    """By what an order's children are known: their labels, and how their names begin.

    also   `Kind/name` of children that do not begin so
    owner  the order's uid; being controlled by it counts as the labels do
    """

    labels: dict[str, str]
    prefix: str
    also: tuple[str, ...] = ()
    owner: str = ""

    def own(self, meta: Meta) -> bool:
        """Whether the order created the object: all labels with exactly these values, or its controller reference."""
        return self.controls(meta) or all(meta.labels.get(key) == value for key, value in self.labels.items())

    def controls(self, meta: Meta) -> bool:
        return bool(self.owner) and any(
            each.get("controller") and each.get("uid") == self.owner for each in meta.owner_references
        )

    def sweeps(self, kind: str, meta: Meta) -> bool:
        """Whether a sweep may delete it: ownership and name must both say that it is the order's child."""
        return self.own(meta) and (meta.name.startswith(self.prefix) or f"{kind}/{meta.name}" in self.also)


def refusal(kind: str, namespace: str, name: str) -> str:
    """What is said of an object at a child's name that this order did not create."""
    return (
        f"{kind} {namespace}/{name} exists and was not created by this order, so it is left alone;"
        " delete or rename it, or order under another name."
    )


def includes(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the live object says everything that is wanted of it, so that an apply would change nothing.

    Items of a list are compared one by one: a server fills in defaults there, too. Whoever writes a whole object back,
    as some versions of External Secrets do, writes its durations in another way; they say the same.
    """
    return all(
        key in live and (_says(live[key], value) or (key in _DURATIONS and _lasts(live[key], value)))
        for key, value in wanted.items()
    )


_DURATIONS = frozenset({"refreshInterval", "duration", "renewBefore"})


def _lasts(have: Any, want: Any) -> bool:
    return seconds(want) is not None and seconds(have) == seconds(want)


def _says(have: Any, want: Any) -> bool:
    if isinstance(want, Mapping):
        return isinstance(have, Mapping) and includes(have, want)
    if isinstance(want, list | tuple):
        return isinstance(have, list | tuple) and len(have) == len(want) and all(map(_says, have, want))
    return bool(have == want)
