"""The settings of a console: where its accounts are, which origins may post, and what it refuses.

Invariants: an origin is a scheme, a host and a port, and nothing else; a base path is empty or begins with a slash and
does not end with one.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast.core.errors import InputError

ACCOUNTS_FILE = "holdfast-console.db"
PORT = 8420
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a console runs. `origins` are the addresses under which browsers reach it, such as https://ops.example.org."""

    accounts: Path = Path(ACCOUNTS_FILE)
    origins: tuple[str, ...] = ()
    base_path: str = ""
    read_only: bool = False
    open_to_all: bool = False  # no accounts: only for a dev ledger on loopback; `create_app` refuses anything else
    loopback: bool = True  # whether only this machine can reach it
    session_idle_s: int = 3600  # a session ends after so long without a request

    def __post_init__(self) -> None:
        """Raise InputError for an origin or a base path that is not valid."""
        if not _BASE_PATH.fullmatch(self.base_path):
            raise InputError(
                f"The base path {self.base_path!r} is not valid.",
                next_step="Write it as /ops or /team/ops: letters, digits and . _ ~ - between slashes.",
                context={"field": "base_path"},
            )
        for origin in self.origins:
            _require_origin(origin)

    @property
    def secure(self) -> bool:
        """Return whether every browser reaches it by https, so that cookies are only sent by https."""
        return bool(self.origins) and all(origin.startswith("https://") for origin in self.origins)

    @property
    def hosts(self) -> frozenset[str]:
        """Return the values of the Host header that are accepted: those of the origins."""
        return frozenset(urlsplit(origin).netloc for origin in self.origins)


def _require_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        raise InputError(
            f"{origin!r} is not an origin.",
            next_step="Write a scheme, a host and, if it is not the usual one, a port: https://ops.example.org.",
            context={"field": "origin"},
        )


def local_origins(host: str, port: int) -> tuple[str, ...]:
    """Return the origins under which browsers of this machine reach a console that listens on a loopback address."""
    names = dict.fromkeys((f"[{host}]" if ":" in host else host, "localhost", "127.0.0.1"))
    return tuple(f"http://{name}" if port == 80 else f"http://{name}:{port}" for name in names)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
