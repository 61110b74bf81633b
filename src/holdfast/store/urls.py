"""Reads the URL of a ledger, refuses what names no database, and shows a URL without its secrets.

Invariants: what looks like the address of a server never becomes the name of a file; no part of a URL that may be a
password is in an error or in the shown text. Imported for a URL that is not a plain file path.
"""

import os
import re
from urllib.parse import unquote, urlsplit

from holdfast.core.errors import BadUrlError

_SERVERS = ("postgresql", "postgres")
# Names that begin the address of a database or a service: `postgresql:work` is a URL without its slashes, not a file.
_SCHEME = re.compile(
    r"(postgres(?:ql)?|psql|pg|sqlite3?|mysql|mariadb|mssql|oracle|redis|mongodb|jdbc|file|https?)(?:\+\w+)?:",
    re.IGNORECASE,
)
_CONNINFO = re.compile(
    r"(?i)(?:^|\s)(host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options|application_name)\s*=\s*"
)
_ADDRESS = re.compile(r"[^/\s]+:[^/\s]*@[^/\s]")  # user:password@host
_SHOWN = re.compile(r"postgres(?:ql)?://(?:[^@/?#]*@)?(?P<place>[^@/?#]*(?:/[^@/?#]*)?)(?:\?[^@]*)?")
_PASSWORD = re.compile(r"(?i)passw\w*\s*=")
_SERVER_STEP = (
    "Give a URL: postgresql://USER@HOST:5432/DATABASE. Set the password in PGPASSWORD, or in the file ~/.pgpass."
)
_HIDDEN = "…"


def parsed(url: object) -> tuple[str, str]:
    """Return ("sqlite", path) or ("postgresql", url); raise BadUrlError if it is neither.

    Three slashes begin a relative path, four an absolute one.
    """
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str):
        raise BadUrlError(f"the URL of the ledger is a {type(url).__name__}, not text")
    if not url.strip():
        raise BadUrlError("the URL of the ledger is empty")
    if any(character < " " for character in url) or not _is_file_name(url):
        raise BadUrlError("the URL of the ledger contains a control character or half of a surrogate pair")
    return _split(url) if "://" in url else ("sqlite", _path(url))


def shown(url: str) -> str:
    """Return a URL as it may be printed: of a server only its host and database, of a file its path."""
    if (found := _SHOWN.fullmatch(url)) is not None:
        return found["place"]
    return _HIDDEN if has_password(url) or url.startswith(_SERVERS) else url


def has_password(url: str) -> bool:
    """Return whether the URL of a ledger contains a password, or may contain one."""
    plain = unquote(url)
    if "://" not in url or url.startswith("sqlite:"):
        return _PASSWORD.search(plain) is not None or _ADDRESS.match(plain) is not None
    return re.search(r"://.*:.*@|password|secret", plain, re.IGNORECASE | re.DOTALL) is not None


def _is_file_name(text: str) -> bool:
    """Return whether the operating system can encode the text, including bytes that are not UTF-8."""
    try:
        return bool(os.fsencode(text))
    except UnicodeEncodeError:
        return False


def _split(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that do not close; its text may quote the password
        raise BadUrlError("the URL of the ledger cannot be parsed") from None
    if parts.scheme in _SERVERS:
        return "postgresql", url
    if parts.scheme == "sqlite":
        path = unquote(parts.path[1:])
        if parts.netloc or not path or "\0" in path:
            raise BadUrlError("a SQLite URL must be sqlite:///relative/path or sqlite:////absolute/path")
        return "sqlite", _on_disk(path)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]{0,30}", parts.scheme):
        raise BadUrlError("the URL of the ledger names no database; use sqlite or postgresql")
    raise BadUrlError(f"unknown database {parts.scheme!r}; use sqlite or postgresql", context={"scheme": parts.scheme})


def _path(text: str) -> str:
    """Return the text as the path of a file, or raise BadUrlError if it is the address of a server."""
    if (scheme := _SCHEME.match(text)) is not None:
        name = scheme[1].lower()
        if name.startswith("sqlite"):
            raise BadUrlError(
                f"{name}: needs three slashes before the path", next_step="Give sqlite:///FILE, or only the path."
            )
        raise BadUrlError(
            f"{name}: is the beginning of a URL, not of a file name",
            next_step=_SERVER_STEP if name.startswith("p") else BadUrlError.next_step,
            context={"scheme": name},
        )
    if _CONNINFO.search(text) is not None and not os.path.lexists(text):
        raise BadUrlError("this is a connection string of PostgreSQL, not a file name", next_step=_SERVER_STEP)
    if _ADDRESS.match(text) is not None and not os.path.lexists(text):
        raise BadUrlError("this looks like user:password@host, not like a file name", next_step=_SERVER_STEP)
    return _on_disk(text)


def _on_disk(path: str) -> str:
    if path == ":memory:":
        raise BadUrlError("a ledger in memory would lose its jobs; Holdfast stores them in a file")
    return path
