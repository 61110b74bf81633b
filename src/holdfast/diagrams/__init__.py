"""The machines as pictures: Mermaid, plain text, SVG and JSON, all from the transition table.

Invariants: states, events and edges come from `holdfast.core.machines` alone.
"""

from holdfast.diagrams.model import Arrow, Diagram, Route, diagrams, find
from holdfast.diagrams.svg import svg
from holdfast.diagrams.text import ascii_text, json_value, mermaid

__all__ = ["Arrow", "Diagram", "Route", "ascii_text", "diagrams", "find", "json_value", "mermaid", "svg"]
