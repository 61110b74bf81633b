"""The headers of every response: what a page may load, and that nothing is kept by a browser or a proxy.

Invariants: every response has them, errors and streams too, under any base path; no response allows another origin.
"""

from __future__ import annotations

from typing import Any

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
NO_STORE = (b"cache-control", b"no-store")


async def add_headers(message: Any, _scope: Any) -> None:
    """Add the headers to the beginning of a response; one that sets its own Cache-Control keeps it."""
    if message["type"] != "http.response.start":
        return
    headers = [(name, value) for name, value in message["headers"] if name.lower() not in HEADERS]
    if not any(name.lower() == NO_STORE[0] for name, _ in headers):
        headers.append(NO_STORE)
    message["headers"] = [*headers, *HEADERS.items()]
