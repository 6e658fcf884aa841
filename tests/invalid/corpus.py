"""The corpus: for each kind a base that is admitted, and mutations of one aspect each with what must become of them.

A file reads top to bottom: `base`, then the waves. `create` mutates the base and creates it; `update` stores the base
(with the case's `stored` changes) and mutates that; `status` does the same through the status subresource. A case says
`set` and `unset` (dotted paths; numbers index lists) and either `refused`, a part of the message, with the `field` that
is named, or `admitted`, with `reads` for what is then on the object (null: nothing there). `!times [3, x]` is xxx,
`!times [3, x, y-]` is y-xxx, `!numbered [2, n-{}]` is [n-0, n-1].
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.invalid.api import Object

HERE = Path(__file__).parent
WAVES = ("create", "update", "status")


@dataclass(frozen=True)
class Case:
    corpus: str
    wave: str
    name: str
    plural: str
    base: Object
    stored: Object = dataclasses.field(default_factory=dict)
    set: Object = dataclasses.field(default_factory=dict)
    unset: tuple[str, ...] = ()
    refused: str | None = None
    field: str | None = None
    reads: Object = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.corpus}-{self.wave}-{self.name}".replace(" ", "_")

    def before(self) -> Object:
        return mutated(self.base, self.stored, ())

    def after(self, start: Object) -> Object:
        return mutated(start, self.set, self.unset)


class _Loader(yaml.SafeLoader):
    pass


def _times(loader: _Loader, node: yaml.SequenceNode) -> str:
    count, text, *before = loader.construct_sequence(node)
    return "".join(before) + str(text) * int(count)


def _numbered(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    count, pattern = loader.construct_sequence(node, deep=True)

    def fill(value: Any, number: int) -> Any:
        if isinstance(value, dict):
            return {k: fill(v, number) for k, v in value.items()}
        return value.replace("{}", str(number)) if isinstance(value, str) else value

    return [fill(pattern, number) for number in range(int(count))]


_Loader.add_constructor("!times", _times)
_Loader.add_constructor("!numbered", _numbered)


def mutated(start: Object, changes: Object, gone: tuple[str, ...]) -> Object:
    """A copy with the dotted paths set or removed. Objects missing on the way are made; lists grow by one entry."""
    result = copy.deepcopy(start)
    for path, value in changes.items():
        holder, last = _walk(result, path)
        if isinstance(holder, list) and last == len(holder):
            holder.append(None)
        holder[last] = copy.deepcopy(value)
    for path in gone:
        holder, last = _walk(result, path)
        del holder[last]
    return result


def look(start: Object, path: str) -> Any:
    """What is at a dotted path, or None."""
    here: Any = start
    for part in path.split("."):
        if isinstance(here, list):
            here = here[int(part)] if int(part) < len(here) else None
        else:
            here = here.get(part) if isinstance(here, dict) else None
    return here


def _walk(start: Any, path: str) -> tuple[Any, Any]:
    here = start
    *way, last = path.split(".")
    for part in way:
        here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
    return here, int(last) if isinstance(here, list) else last


def load(file: Path) -> list[Case]:
    document = yaml.load(file.read_text(), _Loader)
    cases = []
    for wave in WAVES:
        for entry in document.get(wave) or ():
            name = entry.pop("case")
            assert ("refused" in entry) != entry.pop("admitted", False), f"{file.name}: {name}: refused or admitted?"
            assert ("refused" in entry) == ("field" in entry), f"{file.name}: {name}: a refusal names its field"
            entry["unset"] = tuple(entry.get("unset", ()))
            cases.append(Case(file.stem, wave, name, document["plural"], document["base"], **entry))
    return cases


@functools.cache
def all_cases() -> tuple[Case, ...]:
    return tuple(case for file in sorted(HERE.glob("*.yaml")) for case in load(file))
