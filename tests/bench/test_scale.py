"""The benchmark of size fills a ledger with what real work would have left, asks every question, and judges growth."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import scale
from benchmarks.scale import GROWS_BY_NATURE, OLDEST, SIZES_QUICK, Figure, fill, questions, ratios
from holdfast.audit.as_of import job_at
from holdfast.core.machines import JobState
from holdfast.core.project import project, rulings_of
from holdfast.store import create_store
from tests.bench.test_store_bench import command

QUESTIONS = [
    "stats", "jobs", "jobs --before", *(f"jobs --state {state}" for state in JobState), "show", GROWS_BY_NATURE
]  # fmt: skip


def test_a_quick_run_asks_every_question_at_every_size(tmp_path: Path) -> None:
    done = command("scale", "--quick", "--db", "sqlite", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "scale.json").read_text())
    assert (result["suite"], result["quick"], result["sizes"]) == ("scale", True, list(SIZES_QUICK))
    asked = [(figure["jobs"], figure["question"]) for figure in result["figures"]]
    assert asked == [(size, question) for size in SIZES_QUICK for question in QUESTIONS]
    assert all(0 < figure["median_ms"] <= figure["p95_ms"] for figure in result["figures"])
    medians = {(figure["jobs"], figure["question"]): figure["median_ms"] for figure in result["figures"]}
    small, large = SIZES_QUICK
    assert [ratio["question"] for ratio in result["ratios"]] == QUESTIONS
    for ratio in result["ratios"]:
        question = ratio["question"]
        assert ratio["ratio"] == pytest.approx(medians[large, question] / medians[small, question])
        assert ratio["flat"] == (None if question == GROWS_BY_NATURE else ratio["ratio"] <= scale.FLAT)
    assert all(question in done.stdout for question in QUESTIONS)


@pytest.mark.parametrize("arguments", [["store", "--sizes", "10"], ["scale", "--sizes", "0"], ["--sizes", "10"]])
def test_sizes_that_make_no_sense_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    done = command(*arguments, "--results", str(tmp_path / "results"))
    assert done.returncode == 2
    assert "--sizes goes with the suite scale alone" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_filled_ledger_is_what_real_work_would_have_left(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "CHUNK", 700)
    with create_store(ledger_url) as store:
        fill(store, 0, OLDEST)
        fill(store, OLDEST, OLDEST + 500)
        with store.reading() as reading:
            counts = {count.state.value: count.n for count in reading.counts.current()}
            assert counts == {"pending": 200, "running": 200, "failed": 205, "quarantined": 200, "succeeded": 695}
            for job_id in (*range(1, 11), OLDEST + 1, OLDEST + 100):
                job, executions = reading.jobs.get(job_id), reading.executions.of_job(job_id)
                journal = reading.journal.of(job_id)
                assert [row.version for row in journal] == list(range(1, job.version + 1))
                assert (journal[-1].target, len(executions)) == (job.state, job.attempts)
                assert project(executions, rulings_of(journal)) == job.state
                for execution in executions:
                    rows = [row for row in reading.journal.of_executions(job_id) if row.subject == execution.exec_id]
                    assert [row.version for row in rows] == list(range(1, execution.version + 1))
                    assert rows[-1].target == execution.status
                past = job_at(reading, job_id, scale.BEGAN, scale.BEGAN)
                assert (past.job.state, past.job.version) == (job.state, job.version)
            for question, answer in questions(OLDEST + 500).items():
                assert answer(reading), question


def test_growth_is_said_in_its_row() -> None:
    def figure(jobs: int, question: str, median_ms: float) -> Figure:
        return Figure(database="sqlite", jobs=jobs, question=question, samples=9, median_ms=median_ms, p95_ms=median_ms)

    figures = [
        figure(10, "show", 2.0), figure(10, "jobs", 2.0), figure(10, GROWS_BY_NATURE, 2.0),
        figure(50, "show", 3.0), figure(50, "jobs", 3.1), figure(50, GROWS_BY_NATURE, 10.0),
    ]  # fmt: skip
    judged = [(ratio.question, ratio.ratio, ratio.flat) for ratio in ratios("sqlite", [10, 50], figures)]
    assert judged == [("show", 1.5, True), ("jobs", pytest.approx(1.55), False), (GROWS_BY_NATURE, 5.0, None)]
    console = Console(width=118, record=True, file=StringIO())
    console.print(scale._table("sqlite", [10, 50], figures))
    rows = [line.split() for line in console.export_text().splitlines() if ".000" in line]
    assert rows == [
        ["show", "2.000", "3.000", "1.50", "flat"],
        ["jobs", "2.000", "3.100", "1.55", "GROWS"],
        ["stats", "--at", "2.000", "10.000", "5.00"],
    ]
