"""The files of pages: read once when the console starts, and served by their exact names.

Invariants: a request is answered from memory: no part of an address ever becomes a path on the disk.
"""

from __future__ import annotations

import hashlib
import mimetypes
from importlib.resources import files

import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from holdfast.console.injected import AnyRequest
from holdfast.console.security.callers import Permission

CACHED = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    """A file: its content, its type, and the beginning of its SHA-256, which its address contains."""

    content: bytes
    media_type: str
    digest: str


def load_assets() -> dict[str, Asset]:
    """Return the files of the package's folder static, by name."""
    found = {}
    for entry in files("holdfast.console").joinpath("static").iterdir():
        if entry.is_file():
            content = entry.read_bytes()
            kind = mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
            found[entry.name] = Asset(content, kind, hashlib.sha256(content).hexdigest()[:12])
    return found


@get("/static/{name:str}", opt={"permission": Permission.PUBLIC}, sync_to_thread=False, include_in_schema=False)
def static_file(request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    asset = request.app.state.assets.get(name)
    if asset is None:
        raise NotFoundException
    return Response(asset.content, media_type=asset.media_type, headers={"Cache-Control": CACHED})
