"""The Sphinx settings of the documentation site (`make docs`).

Invariants:
- nothing is read from the network: theme, fonts and scripts come from installed packages;
- a broken link is a warning, and `make docs` ends at a warning.
"""

import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from pygments.lexers.sql import PostgresLexer
from sphinx.application import Sphinx

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Holdfast"
author = _project["authors"][0]["name"]
release = version = _project["version"]
project_copyright = author

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
language = "en"

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
    """Colour SQL as PostgreSQL's; show Mermaid sources as text, because drawing them needs a script from elsewhere."""
    app.add_lexer("mermaid", TextLexer)
    app.add_lexer("sql", PostgresLexer)
