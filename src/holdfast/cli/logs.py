"""Writes Holdfast's log to standard error, for a command.

Invariants: no control character of the data reaches a terminal.
"""

import logging
import sys

from holdfast.cli.output import clean


class CleanFormatter(logging.Formatter):
    """Formats a record as a line with its time and level; characters that control a terminal are escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return clean(super().format(record))


def log_handler() -> logging.Handler:
    """Return a handler that writes to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(CleanFormatter())
    return handler
