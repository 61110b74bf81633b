"""A ledger in plain Python: what the store's verbs should do, implemented a second time.

Invariants: it never asks the code under test what is right: no machine, no `decide`, no SQL. Where the store is free to
choose (ids, which of equals goes first) the oracle gets the choice and checks that it was permitted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from holdfast.core.digest import sha256
from holdfast.store import Lease, Submission
from holdfast.testing import VirtualClock

OPEN = ("LEASED", "IN_PROGRESS", "COMMITTED")
FROM = {
    "start": ("LEASED",),
    "commit": ("IN_PROGRESS",),
    "complete": ("IN_PROGRESS",),
    "fail": ("LEASED", "IN_PROGRESS"),
    "give_back": ("LEASED", "IN_PROGRESS"),
}
REASONS = ("dlq-drain", "incident", "backfill", "test")
Row = dict[str, Any]
Edge = tuple[Any, ...]  # machine, subject, version, source, target, event, actor, reason, attempt, grant, at


class Conflict(Exception):
    """The key was used for other work."""


@dataclass
class Oracle:
    """Jobs, executions and grants as dictionaries, and the journal as a list of edges."""

    clock: VirtualClock
    jobs: dict[int, Row] = field(default_factory=dict)
    executions: dict[int, Row] = field(default_factory=dict)
    grants: dict[int, Row] = field(default_factory=dict)
    journal: list[Edge] = field(default_factory=list)
    tokens: dict[int, int] = field(default_factory=dict)  # the last one of each job

    # -- submitting ---------------------------------------------------------------------------------------------------

    def expected(self, batch: list[Submission]) -> list[int | str | None]:
        """Return for each submission the job that it repeats, the key that it shares within the batch, or None."""
        seen: dict[tuple[str, str], Submission] = {}
        answers: list[int | str | None] = []
        for submission in batch:
            answer: int | str | None = None
            if submission.key is not None:
                pair = (submission.client, submission.key)
                old = next((job for job in self.jobs.values() if (job["client"], job["key"]) == pair), None)
                work = (submission.operation, submission.payload)
                if old is not None and (old["operation"], old["payload"]) != work:
                    raise Conflict
                if pair in seen and (seen[pair].operation, seen[pair].payload) != work:
                    raise Conflict
                answer = old["job_id"] if old is not None else submission.key if pair in seen else None
                seen[pair] = submission
            answers.append(answer)
        return answers

    def submitted(self, submission: Submission, job_id: int, actor: str) -> None:
        assert job_id not in self.jobs
        now = self.clock()
        self.jobs[job_id] = {
            "job_id": job_id,
            "operation": submission.operation,
            "operation_version": submission.operation_version,
            "client": submission.client,
            "key": submission.key,
            "queue": submission.queue,
            "state": "pending",
            "version": 1,
            "attempts": 0,
            "excused": 0,
            "lost": None,
            "max_attempts": submission.max_attempts,
            "replay_attempts": submission.replay_attempts,
            "priority": submission.priority,
            "run_at": submission.run_at or now,
            "payload": submission.payload,
            "digest": sha256(f"{submission.operation}\n{submission.payload}"),
            "result": None,
            "last_attempt_at": None,
            "last_error_code": None,
            "last_error_message": None,
            "quarantine_code": None,
            "replay_reason": None,
            "replaces": None,
            "created_at": now,
            "updated_at": now,
        }
        self._write_down("JOB", job_id, 1, None, "pending", "submit", actor, None, 0, None, now)

    # -- claiming -----------------------------------------------------------------------------------------------------

    def claimed(self, lease: Lease, won: list[tuple[int, int]]) -> None:
        """Check that these (job, execution) pairs are what a claim may answer, and record them."""
        now = self.clock()
        due = [
            job
            for job in self.jobs.values()
            if job["state"] == "pending" and job["queue"] in lease.queues and job["run_at"] <= now
        ]
        got = [self.jobs[job_id] for job_id, _ in won]
        assert len({job["job_id"] for job in got}) == len(got) == min(lease.n, len(due))
        assert all(job in due for job in got)
        best = sorted((job["priority"] for job in due), reverse=True)[: lease.n]
        assert [job["priority"] for job in got] == best
        for lane in {(job["queue"], job["priority"]) for job in got}:
            waiting = sorted(
                (job for job in due if (job["queue"], job["priority"]) == lane),
                key=lambda job: (job["run_at"], job["job_id"]),
            )
            mine = [job for job in got if (job["queue"], job["priority"]) == lane]
            assert mine == waiting[: len(mine)]
        for job, (_, exec_id) in zip(got, won, strict=True):
            self._begin(job, exec_id, lease)

    def _begin(self, job: Row, exec_id: int, lease: Lease) -> None:
        now, owner = self.clock(), lease.owner
        job["attempts"] += 1
        assert exec_id == job["job_id"] * 1_000_000 + job["attempts"]
        job["last_attempt_at"] = now
        self._job_moves(job, ["running"], "claim", owner, None)
        seconds = lease.seconds_by_operation.get(job["operation"], lease.seconds)
        self.executions[exec_id] = {
            "exec_id": exec_id,
            "job_id": job["job_id"],
            "attempt": job["attempts"],
            "status": "IN_PROGRESS" if lease.begin else "LEASED",
            "version": 2 if lease.begin else 1,
            "lease_owner": owner,
            "lease_token": max(self.tokens.get(job["job_id"], 0) + 1, int(now.timestamp() * 1_000_000)),
            "lease_expires_at": now + timedelta(seconds=seconds),
            "excused": False,
            "error_code": None,
            "error_message": None,
            "progress": None,
            "progress_note": None,
            "cancel_requested_at": None,
            "started_at": now if lease.begin else None,
            "finished_at": None,
            "created_at": now,
            "updated_at": job["updated_at"],
        }
        self.tokens[job["job_id"]] = self.executions[exec_id]["lease_token"]
        event, attempt, now = ("begin" if lease.begin else "lease"), job["attempts"], job["updated_at"]
        self._write_down("EXECUTION", exec_id, 1, None, "LEASED", event, owner, None, attempt, None, now)
        if lease.begin:
            self._write_down("EXECUTION", exec_id, 2, "LEASED", "IN_PROGRESS", event, owner, None, attempt, None, now)

    # -- working ------------------------------------------------------------------------------------------------------

    def held(self, exec_id: int, token: int) -> bool:
        """Return whether a worker with this token may still write to the execution."""
        execution = self.executions[exec_id]
        live = execution["lease_expires_at"] > self.clock()
        return bool(token == execution["lease_token"] and execution["status"] in OPEN and live)

    def work(self, verb: str, exec_id: int, token: int, actor: str, **given: Any) -> bool:
        """Apply a command of a worker or the reaper, and return whether it was accepted."""
        execution = self.executions[exec_id]
        status = execution["status"]
        expired = execution["lease_expires_at"] <= self.clock()
        if verb == "finish":  # however late
            accepted = token == execution["lease_token"] and status in ("COMMITTED", "DONE")
        elif verb == "recover":  # without a token
            accepted = status == "DONE" or (status in OPEN and expired)
        else:
            accepted = token == execution["lease_token"] and not expired and status in FROM[verb]
        if accepted and status != "DONE":
            self._do(verb, execution, actor, **given)
        return accepted

    def _do(self, verb: str, execution: Row, actor: str, **given: Any) -> None:
        job = self.jobs[execution["job_id"]]
        if verb == "finish" or (verb == "recover" and execution["status"] == "COMMITTED"):
            self._execution_moves(execution, ["DONE"], "finish", actor)
            self._job_moves(job, ["succeeded"], "succeed", actor, None)
        elif verb == "recover":
            self._expire(execution, job, actor, given["retry_at"])
        elif verb == "start":
            execution["started_at"] = self.clock()
            self._execution_moves(execution, ["IN_PROGRESS"], "start", actor)
        elif verb == "commit":
            self._execution_moves(execution, ["COMMITTED"], "commit", actor)
            job["result"] = given["result"] or job["result"]
        elif verb == "complete":
            self._execution_moves(execution, ["COMMITTED", "DONE"], "complete", actor)
            job["result"] = given["result"] or job["result"]
            self._job_moves(job, ["succeeded"], "succeed", actor, None)
        elif verb == "give_back":
            execution["excused"] = True
            self._execution_moves(execution, ["ABORTED"], "abort", actor)
            job["excused"] += 1
            job["run_at"] = given["run_at"]
            self._job_moves(job, ["failed", "pending"], "give_back", actor, None)
        else:
            self._fail(execution, job, actor, **given)

    def _fail(
        self,
        execution: Row,
        job: Row,
        actor: str,
        *,
        code: str,
        message: str,
        retry_at: datetime | None,
        permanent: bool,
        cancelled: bool,
    ) -> None:
        execution["error_code"], execution["error_message"] = code, message
        self._execution_moves(execution, ["ABORTED"], "abort", actor)
        job["last_error_code"], job["last_error_message"] = code, message
        spent = job["attempts"] - job["excused"]
        if cancelled:
            self._job_moves(job, ["failed", "quarantined"], "cancel", actor, "cancelled")
        elif permanent or spent >= job["max_attempts"] + job["replay_attempts"]:
            self._job_moves(job, ["failed", "quarantined"], "quarantine", actor, code)
        elif retry_at is not None and spent < job["max_attempts"]:
            job["run_at"] = retry_at
            self._job_moves(job, ["failed", "pending"], "retry", actor, None)
        else:
            self._job_moves(job, ["failed"], "fail", actor, None)

    def _expire(self, execution: Row, job: Row, actor: str, retry_at: datetime) -> None:
        message = f"the lease of {execution['lease_owner']} expired during attempt {execution['attempt']}"
        execution["error_code"], execution["error_message"] = "lease_expired", message
        job["lost"] = (job["lost"] or 0) + 1
        execution["excused"] = job["lost"] <= 2
        self._execution_moves(execution, ["ABORTED"], "abort", actor)
        if execution["excused"]:
            job["excused"] += 1
        else:
            job["last_error_code"], job["last_error_message"] = "lease_expired", message
        spent = job["attempts"] - job["excused"]
        if execution["excused"] or spent < job["max_attempts"]:
            job["run_at"] = retry_at
            self._job_moves(job, ["failed", "pending"], "expire", actor, None)
        elif spent < job["max_attempts"] + job["replay_attempts"]:
            self._job_moves(job, ["failed"], "fail", actor, None)
        else:
            self._job_moves(job, ["failed", "quarantined"], "quarantine", actor, "lease_expired")

    def expired(self) -> list[int]:
        """Return the open executions whose lease has expired."""
        return [
            exec_id
            for exec_id, execution in self.executions.items()
            if execution["status"] in OPEN and execution["lease_expires_at"] <= self.clock()
        ]

    def beat(self, exec_id: int, token: int, seconds: float) -> bool:
        if self.held(exec_id, token):
            self.executions[exec_id]["lease_expires_at"] = self.clock() + timedelta(seconds=seconds)
            return True
        return False

    def progress(self, exec_id: int, token: int, fraction: float, note: str | None) -> bool:
        if self.held(exec_id, token):
            self.executions[exec_id] |= {"progress": fraction, "progress_note": note}
            return True
        return False

    # -- ruling -------------------------------------------------------------------------------------------------------

    def rule(self, verb: str, job_id: int, version: int, actor: str, **given: Any) -> str:
        """Apply a ruling of an operator; return `moved`, `no-op` or `refused`."""
        job = self.jobs[job_id]
        state = job["state"]
        if verb in ("retry", "replay"):
            if verb == "replay" and given["replay_reason"] not in REASONS:
                return "refused"
            if state == "pending":
                return "no-op"
            if state != "failed" or version != job["version"]:
                return "refused"
            if job["attempts"] - job["excused"] >= job["max_attempts"] + job["replay_attempts"]:
                return "refused"
            job["run_at"] = given["run_at"] or job["run_at"]
            if verb == "replay":
                job["replay_reason"] = given["replay_reason"]
            self._job_moves(job, ["pending"], verb, actor, None)
            return "moved"
        assert verb in ("quarantine", "cancel")
        if state == "quarantined":
            return "no-op"
        if state not in ("pending", "failed") or version != job["version"]:
            return "refused"
        code = "cancelled" if verb == "cancel" else given["code"]
        if job["last_error_code"] is None:
            job["last_error_code"] = code
            if verb == "quarantine":
                job["last_error_message"] = given["message"]
        self._job_moves(job, ["quarantined"], verb, actor, code)
        return "moved"

    def release(self, job_id: int, grant_id: int, actor: str, reason: str, run_at: datetime | None) -> None:
        """Consume a grant and release a quarantined job."""
        job = self.jobs[job_id]
        assert job["state"] == "quarantined"
        job["run_at"] = run_at or job["run_at"]
        self._grant_moves(self.grants[grant_id], "active", "consumed", "consume", actor)
        self.grants[grant_id]["consumed_by"] = actor
        self._job_moves(job, ["pending"], "release", actor, None, reason=reason, grant_id=grant_id)

    def granted(self, grant: Row, approver: str) -> None:
        """Record a grant that was requested and approved."""
        now = self.clock()
        grant_id, actor, reason = grant["grant_id"], grant["requested_by"], grant["reason"]
        self._write_down("GRANT", grant_id, 1, None, "draft", "request", actor, reason, None, grant_id, now)
        self.grants[grant_id] = {
            **grant, "state": "draft", "version": 1, "approved_by": None, "consumed_by": None,
            "requested_via": None, "approved_via": None, "created_at": now, "updated_at": now,
        }  # fmt: skip
        self._grant_moves(self.grants[grant_id], "draft", "active", "approve", approver)
        self.grants[grant_id]["approved_by"] = approver

    # -- what every move does -----------------------------------------------------------------------------------------

    def counts(self) -> Counter[tuple[str, str, str]]:
        return Counter((job["operation"], job["queue"], job["state"]) for job in self.jobs.values())

    def _job_moves(
        self,
        job: Row,
        path: list[str],
        event: str,
        actor: str,
        quarantine_code: str | None,
        *,
        reason: str | None = None,
        grant_id: int | None = None,
    ) -> None:
        self._touch(job)
        job["quarantine_code"] = quarantine_code
        for target in path:
            job["version"] += 1
            self._write_down(
                "JOB", job["job_id"], job["version"], job["state"], target, event, actor, reason, job["attempts"],
                grant_id, job["updated_at"],
            )  # fmt: skip
            job["state"] = target

    def _touch(self, job: Row) -> datetime:
        job["updated_at"] = max(job["updated_at"], self.clock())
        return cast("datetime", job["updated_at"])

    def _execution_moves(self, execution: Row, path: list[str], event: str, actor: str) -> None:
        # An attempt and its job are one row, with one time.
        execution["updated_at"] = self._touch(self.jobs[execution["job_id"]])
        if path[-1] in ("DONE", "ABORTED"):
            execution["finished_at"] = execution["updated_at"]
        if path[-1] == "DONE":
            execution["lease_expires_at"] = execution["updated_at"]
        for target in path:
            execution["version"] += 1
            self._write_down(
                "EXECUTION", execution["exec_id"], execution["version"], execution["status"], target, event, actor,
                None, execution["attempt"], None, execution["updated_at"],
            )  # fmt: skip
            execution["status"] = target

    def _grant_moves(self, grant: Row, source: str, target: str, event: str, actor: str) -> None:
        assert grant["state"] == source
        grant["updated_at"] = max(grant["updated_at"], self.clock())
        grant["version"] += 1
        grant["state"] = target
        self._write_down(
            "GRANT", grant["grant_id"], grant["version"], source, target, event, actor, grant["reason"], None,
            grant["grant_id"], grant["updated_at"],
        )  # fmt: skip

    def _write_down(self, *edge: Any) -> None:
        self.journal.append(edge)
