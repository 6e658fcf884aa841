"""How Sphinx builds the pages, and the directives that put generated tables into them.

Everything comes from this repository: no page of elsewhere is asked while it builds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs import generate

project = "c5c3-orders"
copyright = "the c5c3-orders authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "c5c3-orders"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_show_sphinx = False
html_copy_source = False
exclude_patterns = ["README.md"]
myst_heading_anchors = 4
nitpicky = True


class _Generated(SphinxDirective):
    """A directive whose arguments go to a function that answers Markdown."""

    make: ClassVar[Callable[..., str]]
    has_content = False

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(type(self).make(*self.arguments))


class Fields(_Generated):
    """`{crd-fields} PLURAL spec|status`"""

    required_arguments = 2
    make = staticmethod(generate.fields)


class Rules(_Generated):
    """`{crd-rules} PLURAL`"""

    required_arguments = 1
    make = staticmethod(generate.rules)


class Columns(_Generated):
    """`{crd-columns} PLURAL`"""

    required_arguments = 1
    make = staticmethod(generate.columns)


class Settings(_Generated):
    """`{settings} both|worker|watcher`"""

    required_arguments = 1
    make = staticmethod(generate.settings)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls it."""
    for name, directive in (
        ("crd-fields", Fields),
        ("crd-rules", Rules),
        ("crd-columns", Columns),
        ("settings", Settings),
    ):
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
