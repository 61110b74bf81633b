"""Writes Holdfast's log to standard error, for a command: as text for people, or as JSON, one object a line.

Invariants: no control character of the data reaches a terminal; a line of JSON is ASCII.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from holdfast.cli.output import clean

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How log entries are written."""

    TEXT = "text"
    JSON = "json"


class CleanFormatter(logging.Formatter):
    """Formats a record as a line with its time and level; characters that control a terminal are escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, its extra fields, and the current trace."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        value: dict[str, object] = {
            "time": at, "level": record.levelname, "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        value |= {name: extra for name, extra in vars(record).items() if name not in _STANDARD}
        if "trace_id" not in value:
            value |= _trace()
        if record.exc_info:
            value["exception"] = self.formatException(record.exc_info)
        return json.dumps(value, default=str)


def _trace() -> dict[str, str]:
    """Return the ids of the current span; none without telemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace else None
    if context is None or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def log_handler(form: LogFormat = LogFormat.TEXT) -> logging.Handler:
    """Return a handler that writes to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else CleanFormatter())
    return handler
