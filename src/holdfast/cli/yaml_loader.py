"""A YAML loader for plain data: PyYAML's safe loader without tags, anchors, aliases, merge keys and times.

Invariants: everything else than plain data is refused where it begins, with its path; nesting is limited before it is
followed; an unquoted word is text unless it is null, a boolean or a decimal number.
"""

import re
from typing import Any

import yaml

from holdfast.cli.documents import DEPTH_MAX, DOCUMENT, Pairs, below, invalid


class PlainLoader(yaml.SafeLoader):
    """Loads one document of plain data; a mapping becomes `Pairs`, so that repeated keys can be refused."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._open: list[str] = []  # the paths of the collections around the present node

    def compose_document(self) -> Any:
        if getattr(self._next_event(), "tags", None):
            raise invalid(DOCUMENT, "tags are not allowed")
        return super().compose_document()

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, path = self._next_event(), self._path(parent, index)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise invalid(path, "anchors and aliases are not allowed; repeat the value")
        if event.tag is not None:
            raise invalid(path, "tags are not allowed")
        if not isinstance(event, yaml.ScalarEvent):
            if parent is not None and index is None:
                raise invalid(path, "a key must be text")
            if len(self._open) == DEPTH_MAX:
                raise invalid(path, f"nested deeper than {DEPTH_MAX} levels")
        self._open.append(path)
        node = super().compose_node(parent, index)
        self._open.pop()
        return node

    def _next_event(self) -> Any:
        return self.peek_event()  # type: ignore[no-untyped-call]

    def _path(self, parent: Any, index: Any) -> str:
        """Return the path of a node; a key has the path of its mapping."""
        around = "" if parent is None else self._open[-1]
        if isinstance(index, int):
            return f"{around}[{index}]"
        return around if index is None else below(around, index.value)


def _pairs(loader: PlainLoader, node: yaml.MappingNode) -> Pairs:
    return Pairs((key.value, loader.construct_object(value, deep=True)) for key, value in node.value)


PlainLoader.yaml_implicit_resolvers = {}  # without those for times, merge keys and other numbers
PlainLoader.add_constructor("tag:yaml.org,2002:map", _pairs)
for _name, _word, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"-?(?:0|[1-9][0-9]{0,17})", list("-0123456789")),
    ("float", r"-?[0-9]{1,17}\.[0-9]{1,17}", list("-0123456789")),
):
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_word})\Z"), _first)
