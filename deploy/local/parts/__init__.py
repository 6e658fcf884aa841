"""The parts of the local stack, one file per part or per pair of the same kind.

They are found by looking: every module here may have a tuple `PARTS`. The order is by need, then by name.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil

from deploy.local.part import Part, PartError


@functools.cache
def registry() -> tuple[Part, ...]:
    """All parts, each after what it needs. C5C3_STACK_WITHOUT names parts that the person's own cluster has already."""
    found: dict[str, Part] = {}
    for module in pkgutil.iter_modules(__path__):
        for part in getattr(importlib.import_module(f"{__name__}.{module.name}"), "PARTS", ()):
            found[part.name] = part
    without = {name for name in os.environ.get("C5C3_STACK_WITHOUT", "").replace(",", " ").split() if name}
    if unknown := without - set(found):
        raise PartError(f"C5C3_STACK_WITHOUT names unknown parts ({', '.join(sorted(unknown))})")
    ordered: dict[str, Part] = {}
    while len(ordered) < len(found):
        free = [p for n, p in sorted(found.items()) if n not in ordered and ordered.keys() >= set(p.needs)]
        if not free:
            raise PartError(
                f"these parts need each other or something absent: {', '.join(sorted(found.keys() - ordered.keys()))}"
            )
        ordered |= {p.name: p for p in free}
    return tuple(Left(p) if p.name in without else p for p in ordered.values())


class Left(Part):
    """A part that is left out: it counts as up."""

    def __init__(self, part: Part) -> None:
        self.name, self.needs = part.name, part.needs
