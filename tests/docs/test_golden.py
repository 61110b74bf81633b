"""The golden files are what the code makes of them."""

from __future__ import annotations

from tests.support import golden


def test_the_golden_files_are_up_to_date() -> None:
    assert "".join(golden.differences()) == "", "if the change is meant: make golden"
