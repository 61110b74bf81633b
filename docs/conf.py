"""The Sphinx settings of the documentation site (`make docs`).

Invariants:
- nothing is read from the network: theme, fonts and scripts come from installed packages;
- a broken link is a warning, and `make docs` ends at a warning.
"""

import tomllib
from base64 import b64encode
from pathlib import Path

from pygments.lexers.sql import PostgresLexer
from sphinx.application import Sphinx

from holdfast.diagrams import diagrams, mermaid, svg

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Holdfast"
author = _project["authors"][0]["name"]
release = version = _project["version"]
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
language = "en"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# The pages of other projects, and types that are internal, are not part of this site.
nitpick_ignore_regex = [(r"py:.*", r".*")]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"Holdfast {release}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
# A block without a language is plain text.
highlight_language = "none"


def setup(app: Sphinx) -> None:
    """Colour SQL as PostgreSQL's, and draw the machines."""
    app.add_lexer("sql", PostgresLexer)
    app.connect("source-read", draw_machines)


def draw_machines(_app: Sphinx, name: str, text: list[str]) -> None:
    """Replace the Mermaid sources of the page of the machines, for which a browser needs a script, by drawings."""
    if name != "machines":
        return
    for diagram in diagrams():
        drawing = b64encode(svg([diagram]).encode()).decode()
        image = f'<img alt="States and moves of {diagram.name}" src="data:image/svg+xml;base64,{drawing}">'
        source = f"```mermaid\n{mermaid([diagram])}```"
        text[0] = text[0].replace(source, f"```{{raw}} html\n{image}\n```")
