"""Placeholders for values that differ between runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TIME = re.compile(r"\b(?!2020|2099)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
MOVE_ID = re.compile(r"[\w-]{11}")  # what `new_move_id` returns; others are made of words and digests
TEXTS = (
    (TIME, "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\b"), "<time>"),
    (re.compile(r"\b[0-9a-f]{128}\b"), "<signature>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<digest>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b(replay|drain|worker)-[0-9a-f]{12}\b"), r"\1-<id>"),
    (re.compile(r"\bcli:[\w.-]+"), "cli:<user>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<endpoint>"),
)
"""The patterns to replace, longest first; times of 2020 and 2099 belong to the scenario, and stay."""


class Placeholders:
    """Replaces values that differ between runs; `own` adds texts, such as the directory of the scenario."""

    def __init__(self, own: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self._own = own
        self._fields = fields

    def value(self, found: Any, field: str = "") -> Any:
        """Return a JSON value with placeholders in it; the fields in `fields` are always replaced."""
        if field in self._fields and found is not None:
            return self._fields[field]
        if field == "move_id" and MOVE_ID.fullmatch(found):
            return "<id>"
        if isinstance(found, dict):
            return {name: self.value(inner, name) for name, inner in found.items()}
        if isinstance(found, list):
            return [self.value(inner, field) for inner in found]
        return self.text(found) if isinstance(found, str) else found

    def text(self, found: str) -> str:
        """Return a text with placeholders in it."""
        for what, placeholder in self._own.items():
            found = found.replace(what, placeholder)
        for pattern, placeholder in TEXTS:
            found = pattern.sub(placeholder, found)
        return found
