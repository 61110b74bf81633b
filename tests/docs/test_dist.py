"""What is published: the wheel holds the whole package, and the locked core is what the package needs."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.support.dist import CONTAINER, PYTHONS, build, locked
from tests.support.guides import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_the_wheel_of_the_sdist_holds_every_file_of_the_package(tmp_path: Path) -> None:
    with zipfile.ZipFile(build(tmp_path)) as wheel:
        published = {name for name in wheel.namelist() if name.startswith("holdfast/")}
    package = ROOT / "src"
    files = {path for path in (package / "holdfast").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert published == {path.relative_to(package).as_posix() for path in files}


@pytest.mark.parametrize("python", PYTHONS)
def test_the_locked_core_has_the_core_and_no_extra(python: str) -> None:
    names = set(re.findall(r"^([a-z0-9-]+)==", locked((), python, LOCK), re.MULTILINE))
    assert {"click", "cronsim", "msgspec", "rich"} <= names
    assert not names & {"psycopg", "litestar", "boto3", "pydantic", "pytest", "hatchling"}


def test_the_lock_of_the_container_has_its_extras_and_nothing_for_tests() -> None:
    names = set(re.findall(r"^([a-z0-9-]+)==", locked(CONTAINER, "3.12", LOCK), re.MULTILINE))
    assert {"psycopg", "psycopg-binary", "litestar", "uvicorn", "cryptography", "opentelemetry-sdk", "msgspec"} <= names
    assert not names & {"boto3", "pytest", "hatchling", "sphinx"}
