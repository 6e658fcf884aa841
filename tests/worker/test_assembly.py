"""The sandbox holds all workflow code and nothing else."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from temporalio import activity, workflow

import workflows
from activities.cluster import Cluster
from activities.clusters import Clusters
from activities.openbao import OpenBao
from worker import assembly
from worker.assembly import PURE
from workflows.scaffold.steps import Steps

ROOT = Path(workflows.__path__[0])


def modules() -> dict[str, bool]:
    """Every module under `workflows`, and whether workflow code is in it: whether it uses `temporalio.workflow`."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        if file.name == "__init__.py":
            continue
        imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        name = ".".join(["workflows", *file.relative_to(ROOT).with_suffix("").parts])
        found[name] = any(
            (node.module == "temporalio" and "workflow" in {alias.name for alias in node.names})
            or (node.module or "").startswith("temporalio.workflow")
            for node in imports
        )
    return found


def passed_through(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in PURE)


def test_workflow_code_is_never_passed_through() -> None:
    assert [name for name, runs in modules().items() if runs and passed_through(name)] == []


def test_everything_else_is() -> None:
    assert [name for name, runs in modules().items() if not runs and not passed_through(name)] == []


def test_no_name_is_left_over() -> None:
    assert [name for name in PURE if not any(m == name or m.startswith(name + ".") for m in modules())] == []


def test_every_step_that_workflows_name_is_there_with_the_same_types() -> None:
    """Temporal finds a step by its name alone, so nothing else would tell that one is missing or takes other things."""
    signatures = {}
    for _, method in inspect.getmembers(Steps, inspect.isfunction):
        signatures[activity._Definition.must_from_callable(method).name] = method
    there = {
        activity._Definition.must_from_callable(step).name: step
        for step in assembly.activities_over(_nowhere(), OpenBao())
    }
    assert there.keys() == signatures.keys()
    for name, step in there.items():
        mine, wanted = (inspect.get_annotations(f, eval_str=True) for f in (inspect.unwrap(step), signatures[name]))
        assert list(mine.values()) == list(wanted.values()), name


def test_both_workflow_types_of_a_kind_hear_the_same() -> None:
    heard = []
    for kind in assembly.WORKFLOWS:
        definition = workflow._Definition.must_from_class(kind)
        assert definition.failure_exception_types == [workflow.NondeterminismError]
        heard.append((set(definition.signals), set(definition.updates), set(definition.queries)))
    # Only an account that is served can be given a new password.
    alike = [(signals, updates - {"rotate"}, queries) for signals, updates, queries in heard]
    assert all(one == ({"changed", "resync"}, {"resync_now"}, {"describe"}) for one in alike)
    assert sum("rotate" in updates for _, updates, _ in heard) == 1


def _nowhere() -> Clusters:
    api: Any = None
    return Clusters(Cluster("", api), "c5c3-clusters")
