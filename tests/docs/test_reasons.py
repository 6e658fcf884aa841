"""docs/reasons.md lists exactly the reasons that the code can write, on exactly the conditions on which it writes them.

What the code can write is read off its source. A reason stands with the condition in the smallest piece of code around
it that names one: the call, the entry of a dictionary, the function, at last the module; where none is named, with all
of the kind.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from types import ModuleType

from tests.docs.pages import ROOT, rows
from workflows.scaffold import conditions, gates, korc, steps

KINDS = {
    "keystoneproject": "KeystoneProject",
    "keystoneservice": "KeystoneService",
    "mariadbdatabase": "MariaDBDatabase",
}
NOT_A_CONDITION = {"ScheduledRotationDeferred"}
"""The one event."""
NEVER = {("KeystoneService", "ClusterNameTooLong"), ("MariaDBDatabase", "TransportErrorRetryFailed")}
"""What is said of all kinds, and cannot be of one that is served on the management cluster alone, which has no name; or
that has no child of K-ORC's, of which alone a failed connection is cleared."""

Said = set[tuple[str, str, str]]
"""(kind, condition, reason)"""


def sources(kind: str) -> Iterator[ast.Module]:
    """The modules that are about one kind, with every node's parent on it."""
    for file in sorted([*(ROOT / "workflows" / kind).glob("*.py"), *(ROOT / "activities").glob("*.py")]):
        tree = ast.parse(file.read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if file.parent.name == "activities" and not any(f"workflows.{kind}" in module for module in imported):
            continue
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                child.parent = node  # type: ignore[attr-defined]
        yield tree


def constants(module: ModuleType) -> dict[str, str]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def around(node: ast.AST, of_the_kind: dict[str, str]) -> set[str]:
    """The conditions with which the code at `node` stands."""
    here: ast.AST | None = node
    while here is not None:
        parent = getattr(here, "parent", None)
        if isinstance(parent, ast.Dict) and here in parent.values:
            beside = parent.keys[parent.values.index(here)]
            found = _named(beside, of_the_kind) if beside is not None else set()
            if found:
                return found
        found = _named(here, of_the_kind)
        if found:
            return found
        here = parent
    return set(of_the_kind.values())


def _named(node: ast.AST, of_the_kind: dict[str, str]) -> set[str]:
    return {
        of_the_kind[each.attr]
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and each.attr in of_the_kind
    }


def written() -> Said:
    said: Said = set()
    answers = _gates()
    for kind, name in KINDS.items():
        reasons = importlib.import_module(f"workflows.{kind}.reasons")
        of_the_kind = {key: value for key, value in constants(reasons).items() if value in reasons.CONDITIONS}
        known = {key: value for key, value in constants(reasons).items() if key not in of_the_kind}
        for condition in reasons.CONDITIONS:
            # `activities.orders` asks these two of every order.
            said |= {(name, condition, reason) for gate in ("cluster_name", "order_name") for reason in answers[gate]}
        for tree in sources(kind):
            shared = _shared(tree)
            for node in ast.walk(tree):
                if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                    continue
                found: set[str] = set()
                if node.value.id == "reasons" and node.attr in known:
                    found = {known[node.attr]}
                elif node.value.id == "korc" and node.attr == "classify_wait":
                    found = {reason for _, reason in korc._CLASSES}
                elif node.attr == "trouble_verdict":  # says so itself of a connection that could not be cleared
                    found = {steps.TRANSPORT_RETRY_FAILED}
                elif node.value.id in shared:  # a gate's answer goes on every condition
                    said |= {
                        (name, each, reason) for each in reasons.CONDITIONS for reason in answers.get(node.attr, ())
                    }
                if found:
                    said |= {(name, condition, each) for condition in around(node, of_the_kind) for each in found}
        said |= {(name, conditions.READY, each) for each in (conditions.ALL_READY, conditions.NOT_ALL_READY)}
    return {each for each in said if (each[0], each[2]) not in NEVER and each[2] not in NOT_A_CONDITION}


def _shared(tree: ast.Module) -> set[str]:
    """What a module calls the gates that all kinds share."""
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module == "workflows.scaffold"]
    return {alias.asname or alias.name for each in imports for alias in each.names if alias.name == "gates"}


def _gates() -> dict[str, set[str]]:
    """The reasons that each function of the shared gates may answer with."""
    names, found = constants(gates), dict[str, set[str]]()
    for function in ast.parse((ROOT / "workflows" / "scaffold" / "gates.py").read_text()).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        used = [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
        found[function.name] = {names[each] for each in used if each in names}
        found[function.name] |= {reason for each in used for reason in found.get(each, ())}
    return found


def documented() -> dict[tuple[str, str, str], list[str]]:
    """The rows of docs/reasons.md, by what they are about."""
    owners: dict[str, set[str]] = {}
    for kind, name in KINDS.items():
        owners |= {each: {name} for each in importlib.import_module(f"workflows.{kind}.reasons").CONDITIONS}
    owners["Ready"] = set(KINDS.values())
    found: dict[tuple[str, str, str], list[str]] = {}
    for section in re.split(r"^### ", (ROOT / "docs" / "reasons.md").read_text(), flags=re.M)[1:]:
        heading, _, text = section.partition("\n")
        for row in list(rows(text))[2:]:
            for condition in re.findall(r"`(\w+)`", heading):
                for kind in owners[condition]:
                    key = (kind, condition, row[0].strip("`"))
                    assert key not in found, f"{key} is said twice"
                    found[key] = row
    return found


def test_every_reason_that_the_code_can_write_is_documented_and_no_other() -> None:
    said, told = written(), set(documented())
    assert sorted(said - told) == [], "in the code, and not in docs/reasons.md"
    assert sorted(told - said) == [], "in docs/reasons.md, and not in the code"


def test_every_constant_of_a_kind_is_used() -> None:
    """One that no code names could stand in the page for ever."""
    said = {(kind, reason) for kind, _, reason in written()} | {("KeystoneService", each) for each in NOT_A_CONDITION}
    for kind, name in KINDS.items():
        module = importlib.import_module(f"workflows.{kind}.reasons")
        unused = {
            each for each in constants(module).values() if each not in module.CONDITIONS and (name, each) not in said
        }
        assert unused == set()


def test_every_row_says_what_it_means_and_every_trouble_who_can_mend_it() -> None:
    true = {"AllReady", "ProjectProvisioned", "CatalogRegistered", "CatalogNotDeclared", "AccountProvisioned",
            "AccountNotDeclared", "DatabaseProvisioned", "Delivered"}  # fmt: skip
    for (_, _, reason), (_, meaning, who, remedy, again) in documented().items():
        assert meaning
        assert meaning.startswith("True: ") == (reason in true)
        if reason not in true | {"NotAllReady"}:
            assert who in ("owner", "plane", "operator")
            assert remedy
            assert again
