"""The pages that people read, and what is in them: fenced blocks, tables, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<bar>```+)(?P<lang>[^\n`]*)\n(?P<text>.*?)^(?P=bar)[ ]*$", re.M | re.S)
_LIST_FENCE = re.compile(r"^(?P<indent> +)(?P<bar>```+)(?P<lang>[^\n`]*)\n(?P<text>.*?)^ +(?P=bar)[ ]*$", re.M | re.S)
_MARKER = re.compile(r"<!-- (?P<word>not run|fragment)(?:: (?P<why>[^>]+?))? -->\s*\Z")
_WHOLE_PAGE = re.compile(r"\A<!-- commands not run: (?P<why>[^>]+?) -->")


def pages() -> list[Path]:
    """Every page of the documentation, and those at the top of the repository."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "DECISIONS.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block. `excused` is why it is not run or not applied; None if it is to be."""

    page: Path
    line: int
    language: str
    text: str
    excused: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    """The page's blocks of that language, in order."""
    text = page.read_text()
    whole = _WHOLE_PAGE.match(text)
    found = []
    for fence in sorted([*_FENCE.finditer(text), *_LIST_FENCE.finditer(text)], key=lambda each: each.start()):
        if fence["lang"].strip() != language:
            continue
        marker = _MARKER.search(text[: fence.start()])
        excused = whole["why"] if whole else marker and (marker["why"] or marker["word"])
        line = text.count("\n", 0, fence.start()) + 1
        indent = fence.groupdict().get("indent") or ""
        body = re.sub(f"^{indent}", "", fence["text"], flags=re.M)
        found.append(Block(page, line, language, body, excused))
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _LIST_FENCE.sub("", _FENCE.sub("", page.read_text()))


def links(page: Path) -> Iterator[str]:
    """What the page links to or shows."""
    bare = re.sub(r"`[^`]*`", "", prose(page))
    yield from re.findall(r"\]\(([^)\s]+)\)", bare)


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub and MyST make them."""
    found = re.findall(r"^#{1,6} (.+)$", prose(page), re.M)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found]
    return set(slugs)


def rows(text: str) -> Iterator[list[str]]:
    """The rows of a table, head and rule left out, as cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for line in lines:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
