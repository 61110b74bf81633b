"""The configuration: arguments, environment, file, default, in this order; what is unknown or wrong is an error."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from holdfast import Ledger
from holdfast.core.digest import PAYLOAD_BYTES_MAX
from holdfast.core.errors import ConfigurationError
from holdfast.store.configuration import Configuration, configuration, misspelt, resolved, variable_of
from tests.cli.commands import holdfast


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one, in an environment without settings."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, text: str, name: str = "holdfast.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_arguments_win_over_the_environment_that_over_the_file_and_that_over_defaults(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(folder, 'concurrency = 2\ndrain_s = 2\nlog = "json"\n')
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "3")
    monkeypatch.setenv("HOLDFAST_DRAIN_S", "3.5")
    found, origins = resolved({"concurrency": 4, "drain_s": None})
    assert (found.concurrency, found.drain_s, found.log, found.telemetry) == (4, 3.5, "json", "off")
    assert {name: origins[name] for name in ("concurrency", "drain_s", "log", "telemetry")} == {
        "concurrency": "argument", "drain_s": "HOLDFAST_DRAIN_S", "log": str(path), "telemetry": "default",
    }  # fmt: skip
    with pytest.raises(AttributeError):
        found.log = "text"  # type: ignore[misc]


def test_a_section_of_pyproject_in_a_folder_above_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, '[project]\nname = "shop"\n[tool.holdfast]\nurl = "work.db"\n', "pyproject.toml")
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    written(inner, '[project]\nname = "no section"\n', "pyproject.toml")
    monkeypatch.chdir(inner)
    assert configuration().url == str(folder / "work.db")  # relative to the file
    written(inner, 'url = "sqlite:///near.db"\n')
    assert configuration().url == f"sqlite:///{inner / 'near.db'}"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(written(folder, 'url = "postgresql://h/d"\n', "other.toml")))
    assert configuration().url == "postgresql://h/d"


@pytest.mark.parametrize("name, nearest", [("concurency", "concurrency"), ("URL", "url"), ("metrics_port", "metrics")])
def test_an_unknown_key_names_the_nearest(folder: Path, name: str, nearest: str) -> None:
    path = written(folder, f"{name} = 1\n")
    with pytest.raises(ConfigurationError) as refused:
        configuration()
    assert refused.value.context == {"setting": name, "nearest": nearest, "origin": str(path)}
    done = holdfast("config", "show", "--json")
    assert (done.code, done.error_code, done.json["context"]["nearest"]) == (2, "configuration_invalid", nearest)


@pytest.mark.parametrize(
    "text", ["concurrency = 0", 'concurrency = "2"', "concurrency = 10001", 'log = "xml"', "metrics = -1", "url = 5"]
)
def test_a_wrong_value_of_a_file_is_an_error(folder: Path, text: str) -> None:
    path = written(folder, text)
    with pytest.raises(ConfigurationError) as refused:
        configuration()
    assert refused.value.context == {"setting": text.split(maxsplit=1)[0], "origin": str(path)}


@pytest.mark.parametrize("name, value", [("concurrency", "many"), ("payload_max_bytes", "0"), ("telemetry", "on")])
def test_a_wrong_variable_is_an_error_and_its_value_is_not_shown(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_of(name), value)
    with pytest.raises(ConfigurationError) as refused:
        configuration()
    assert refused.value.context == {"setting": name, "origin": variable_of(name)}


def test_a_wrong_value_that_the_environment_hides_is_an_error_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, "concurrency = 0")
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "3")
    with pytest.raises(ConfigurationError):
        configuration()


@pytest.mark.parametrize(
    "text, at",
    [
        ("concurrency = 1\nurl = a\n", "line 2, column"),
        ("url = [", "end of the file"),
        ("a = 1\na = 2\n", "line 2, column"),
        ("\x00", "line 1, column"),
    ],
)
def test_a_file_that_is_not_toml_is_an_error(folder: Path, text: str, at: str) -> None:
    path = written(folder, text)
    with pytest.raises(ConfigurationError) as refused:
        configuration()
    assert refused.value.context["origin"] == str(path)
    assert str(refused.value.context["at"]).startswith(at)


def test_a_directory_with_the_name_of_the_file_is_an_error(folder: Path) -> None:
    path = folder / "holdfast.toml"
    path.mkdir()
    with pytest.raises(ConfigurationError) as refused:
        configuration()
    assert refused.value.context == {"origin": str(path)}


def test_a_named_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", "nowhere.toml")
    with pytest.raises(ConfigurationError) as refused:
        configuration()
    assert refused.value.context["setting"] == "HOLDFAST_CONFIG"


def test_a_file_of_another_user_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder, 'url = "evil.db"')
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    if os.geteuid() == 0:
        os.chown(path, 4712, -1)
    assert configuration().url is None


def test_the_command_and_the_library_use_it(folder: Path, new_sqlite_ledger: str) -> None:
    written(folder, f'url = "{new_sqlite_ledger}"\npayload_max_bytes = 100\n')
    assert holdfast("stats", "--json").json["states"]["pending"] == 0
    with Ledger() as ledger:
        assert (ledger.payload_bytes_max, ledger.submit("noop").is_new) == (100, True)
    assert holdfast("stats", "--json").json["states"]["pending"] == 1
    refused = holdfast("submit", "noop", f'{{"a": "{"x" * 100}"}}', "--json")
    assert (refused.code, refused.error_code) == (2, "payload_too_large")
    assert Ledger(new_sqlite_ledger).payload_bytes_max == PAYLOAD_BYTES_MAX  # a URL of the program: no file is read


def test_show_has_each_value_its_origin_and_no_password(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://ann:hunter2@db.example/work")
    path = written(folder, "drain_s = 5\n")
    rows = {row["setting"]: row for row in holdfast("config", "show", "--json").json}
    assert list(rows) == list(Configuration.__struct_fields__)
    assert rows["url"] == {
        "setting": "url", "value": "db.example/work", "origin": "HOLDFAST_URL", "variable": "HOLDFAST_URL",
    }  # fmt: skip
    assert (rows["drain_s"]["value"], rows["drain_s"]["origin"]) == (5, str(path))
    assert rows["concurrency"]["origin"] == "default"
    given = holdfast("config", "show", "--db", "other.db", "--json").json
    assert (given[0]["value"], given[0]["origin"]) == ("other.db", "argument")
    printed = holdfast("config", "show")
    assert printed.tells("url", "db.example/work", "HOLDFAST_URL")
    assert "hunter2" not in printed.out


def test_the_page_names_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text(encoding="utf-8")
    for field in msgspec.structs.fields(Configuration):
        assert f"| `{field.name}` | `{variable_of(field.name)}` |" in page


@pytest.mark.parametrize(
    "variable, nearest",
    [
        ("HOLDFAST_ULR", "HOLDFAST_URL"),
        ("HOLDFAST_CONCURENCY", "HOLDFAST_CONCURRENCY"),
        ("HOLDFAST_PAYLOAD_MAX", "HOLDFAST_PAYLOAD_MAX_BYTES"),
        ("HOLDFAST_DRAIN", "HOLDFAST_DRAIN_S"),
        ("HOLDFAST_CONFIGS", "HOLDFAST_CONFIG"),
        ("HOLDFAST_DEBUGS", "HOLDFAST_DEBUG"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_setting(
    new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch, variable: str, nearest: str
) -> None:
    monkeypatch.setenv(variable, "secret")
    assert misspelt() == {variable: nearest}
    row = holdfast("config", "show", "--json").json[-1]
    assert (row["setting"], row["value"], row["variable"]) == (None, None, variable)
    assert nearest in row["origin"]
    [finding] = [
        one
        for one in holdfast("doctor", "--db", new_sqlite_ledger, "--json").json["findings"]
        if one["code"] == "variable_misspelt"
    ]
    assert variable in finding["message"]
    assert nearest in finding["message"]
    assert "secret" not in holdfast("config", "show").out


def test_a_variable_of_a_program_or_of_the_console_is_not_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DB_PASSWORD", "CONSOLE_PORT", "TEST_PG_BIN", "HYPOTHESIS", "NOAA_FILES", "BENCH_SERVER", "JOBS"):
        monkeypatch.setenv(f"HOLDFAST_{name}", "x")
    assert misspelt() == {}
