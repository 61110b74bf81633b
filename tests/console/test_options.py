"""The options of the console: arguments, then the environment, then the table of holdfast.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.console.options import ConsoleOptions, console_options
from holdfast.core.errors import ConfigurationError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the table of a console."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text(
        '[console]\nport = 8500\nread_only = true\nproxy = ["10.0.0.1"]\nsession_idle_s = 600\n'
    )
    return tmp_path


def test_arguments_win_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ConsoleOptions(port=8500, read_only=True, proxy=("10.0.0.1",), session_idle_s=600)
    assert console_options({"host": None, "port": None}) == expected
    monkeypatch.setenv("HOLDFAST_CONSOLE_PORT", "8600")
    monkeypatch.setenv("HOLDFAST_CONSOLE_ORIGIN", "https://a.example,https://b.example")
    assert console_options({}).port == 8600
    assert console_options({}).origin == ("https://a.example", "https://b.example")
    assert console_options({"port": 8700}).port == 8700


@pytest.mark.parametrize("line, context", [
    ("prot = 1", {"setting": "prot", "nearest": "port", "origin": "[console]"}),
    ("port = 70000", {"setting": "port", "origin": "[console]"}),
    ('read_only = "yes"', {"setting": "read_only", "origin": "[console]"}),
])  # fmt: skip
def test_an_unknown_name_and_a_wrong_value_are_refused(here: Path, line: str, context: dict[str, str]) -> None:
    (here / "holdfast.toml").write_text(f"[console]\n{line}\n")
    with pytest.raises(ConfigurationError) as refused:
        console_options({"port": 8700})
    assert refused.value.context == context


def test_a_misspelt_variable_is_refused_with_the_nearest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CONSOLE_ACCOUNTS", "x.db")
    monkeypatch.setenv("HOLDFAST_CONSOLE_PASSWORD", "of a program")
    console_options({})
    monkeypatch.setenv("HOLDFAST_CONSOLE_PROT", "80")
    with pytest.raises(ConfigurationError) as caught:
        console_options({})
    assert caught.value.context["nearest"] == "HOLDFAST_CONSOLE_PORT"
