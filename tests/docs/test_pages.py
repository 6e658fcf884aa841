"""What is written agrees with itself: links lead somewhere, examples are marked, the build has no warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, anchors, blocks, links, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links to other sites are not followed: no test asks anybody else's server."""
    lost = []
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or not target.is_relative_to(ROOT) or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_manifest_is_one_or_is_marked_as_a_fragment(page: Path) -> None:
    for block in blocks(page, "yaml"):
        for body in yaml.safe_load_all(block.text):
            whole = isinstance(body, dict) and {"apiVersion", "kind", "metadata"} <= body.keys()
            assert whole or block.excused, f"{block}: write a whole object, or <!-- fragment --> above it"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_written_so_that_they_are_run(page: Path) -> None:
    """A block of another name would be run by nobody, and an excuse without a reason is none."""
    for language in ("bash", "shell", "console"):
        assert blocks(page, language) == [], f"{page.name}: write sh"
    assert all(block.excused is None or len(block.excused) > 15 for block in blocks(page, "sh"))


def test_the_build_has_no_warning(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path / "html")]
    done = subprocess.run(
        [*argv, "-d", str(tmp_path / "doctrees")], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    kind = (tmp_path / "html" / "kinds" / "keystoneproject.html").read_text()
    assert "metadata.name must be at most 63 bytes" in kind, "the tables of the definitions are not in the pages"
