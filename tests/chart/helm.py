"""Helm as a person runs it: the pinned program, its words, and what it renders, by kind and name.

Helm keeps files of its own nowhere but in the folder that it is given.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from deploy.local import programs, stack

Object = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
PRODUCT = DEPLOY / "chart"
ACCESS = DEPLOY / "target-cluster-access"
NAMESPACE = "c5c3-system"
NEEDED: Object = {"image": {"repository": "registry.example/c5c3-orders"}, "temporal": {"address": "temporal:7233"}}
"""The two values that have no default."""


class Helm:
    """The program, with a folder for its cache and for the files of values."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self.folder = folder

    def run(self, *words: str | Path, kubeconfig: Path | None = None, values: Object | None = None) -> str:
        """What it says. Raises CalledProcessError, with its words in `stderr`, when it fails."""
        if values is not None:
            file = self.folder / "values.json"
            file.write_text(json.dumps(values))
            words = (*words, "--values", file)
        homes = {name: str(self.folder) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        # No cluster of the environment: what is not named is not there.
        cluster = {"KUBECONFIG": str(kubeconfig or self.folder / "no-kubeconfig")}
        done = subprocess.run(
            [self._program, *words], env={**os.environ, **homes, **cluster}, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        if done.returncode:
            raise subprocess.CalledProcessError(
                done.returncode, [str(word) for word in words], done.stdout, done.stderr
            )
        return done.stdout

    def refusal(self, *words: str | Path, kubeconfig: Path | None = None, values: Object | None = None) -> str:
        """Its words when it refuses, on one line each."""
        try:
            said = self.run(*words, kubeconfig=kubeconfig, values=values)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        raise AssertionError(f"helm accepted {words}: {said[:300]}")

    def render(self, chart: Path, values: Object, *words: str, namespace: str = NAMESPACE) -> list[Object]:
        """The objects that a release would hold, hooks included."""
        text = self.run("template", "c5c3-orders", chart, "--namespace", namespace, *words, values=values)
        return [one for one in yaml.safe_load_all(text) if one]


async def built(folder: Path) -> Helm:
    """The pinned Helm; the first time it is built, which takes minutes."""
    return Helm(await programs.build(stack.home(), "helm"), folder)


def named(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """By kind and name. Two of the same would be one too many."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


def variables(deployment: Object) -> dict[str, str]:
    """What the program's environment says."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


def merged(*values: Object) -> Object:
    """Values over values, as Helm lays them."""
    out: Object = {}
    for each in values:
        for key, value in each.items():
            out[key] = merged(out.get(key, {}), value) if isinstance(value, dict) else value
    return out
