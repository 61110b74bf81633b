"""The page of the models matches the catalogue, and the command reports differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model import __main__ as command
from holdfast.model.catalogue import RUNS, Outcome, Run

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
FAST = tuple(run for run in RUNS if run.expected.generated < 2000)


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    command.main(["--check", str(PAGE)])
    command.main(["--write", str(tmp_path / "models.md")])
    assert (tmp_path / "models.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [None, "# Something else\n"])
def test_a_page_that_is_out_of_date_is_an_error(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "models.md"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match="is out of date: run `make docs` and commit it"):
        command.main(["--check", str(path)])


def test_every_model_is_on_the_page_once() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for run in RUNS:
        assert sum(line.startswith((f"| {run.name} |", f"| {run.name} (large) |")) for line in lines) == 1, run.name


def test_the_command_prints_each_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "RUNS", FAST)
    command.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FAST) > 0
    assert all(line.endswith("as expected") for line in lines)


def test_a_run_with_another_outcome_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Run("wrong", FAST[0].model, replace(FAST[0].expected, generated=1))
    monkeypatch.setattr(command, "RUNS", (wrong, FAST[0]))
    with pytest.raises(SystemExit) as error:
        command.main([])
    assert error.value.code
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(f"NOT AS EXPECTED: {FAST[0].expected}")
    assert second.endswith("as expected")


def test_a_promise_that_is_never_kept_is_a_fault() -> None:
    assert Outcome(generated=1, distinct=1).sound
    assert not Outcome(generated=1, distinct=1, broken="one entry a key").sound
