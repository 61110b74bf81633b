"""A small file that decompresses into gigabytes is refused, within bounded memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from holdfast.audit.files.snapshot import LINE_MAX
from holdfast.audit.files.snapshot_verify import verify
from holdfast.core.errors import SnapshotInvalidError
from holdfast.store.configuration import variable_of

pytestmark = pytest.mark.attack("files")

MEBI = 1 << 20


def bomb(path: Path, begins: bytes, mebibytes: int) -> Path:
    parts = (begins, *[b" " * MEBI] * mebibytes, b"\n")
    compressed = {part: gzip.compress(part, 1) for part in set(parts)}
    path.write_bytes(b"".join(compressed[part] for part in parts))  # gzip reads concatenated files as one
    return path


@pytest.mark.parametrize("begins", [b"", b'{"holdfast_snapshot": 2, "x": "', b"[" * 1000])
def test_a_line_of_hundreds_of_megabytes_is_refused_in_bounded_memory(begins: bytes, tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb", begins, 256)
    assert path.stat().st_size < 4 * MEBI
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotInvalidError) as caught:
            verify(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.context["kind"] == "line_without_end"
    assert peak < 4 * LINE_MAX


def test_larger_payloads_make_longer_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(tmp_path / "long", b"", 65)
    monkeypatch.setenv(variable_of("payload_max_bytes"), str(16 * MEBI))
    with pytest.raises(SnapshotInvalidError) as caught:
        verify(path)
    assert caught.value.context["kind"] == "header"  # the line was read whole
