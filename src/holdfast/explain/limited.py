"""Explains a job that a limit holds back: which limit, who set it, which key, and who holds the slots.

Invariants: everything is read from the snapshot of the view; nothing here writes.
"""

import shlex

from holdfast.core.limit_texts import rate_text
from holdfast.core.limits import DEPTH, KEY, KIND, RATE, Tokens, rule_of
from holdfast.core.spans import counted
from holdfast.explain.explanation import Finding, FindingCode
from holdfast.explain.view import JobView, moment_text

HOLDERS_MAX = 10


def limited_finding(seen: JobView) -> Finding | None:
    """Return which limit holds a job back; None if none does."""
    limits = seen.reading.limits
    cause, bucket = limits.cause_of(seen.job.job_id)
    if bucket is None or cause not in ("limit", "depth"):
        return None
    name = bucket.removeprefix(RATE)
    subject, _, key = name.partition("=") if name.startswith(f"{KEY}:") else (name, "", "")
    rule = rule_of(bucket, limits.rules())
    setting = seen.reading.configuration.get(KIND, subject)
    evidence: dict[str, object] = {
        "limit": subject, "bucket": bucket, "key": key or None,
        "set_by": setting and setting.actor, "reason": setting and setting.reason,
    }  # fmt: skip
    whose = f"{subject} (key {key})" if key else subject
    if rule is None:
        said = f"The job was parked for the limit {whose}, which was removed; workers can claim it within a second."
    elif bucket.startswith(DEPTH):
        evidence |= {"depth": rule.depth, "queue": seen.job.queue}
        said = (
            f"At most {counted(rule.depth or 0, 'job')} may wait in queue {seen.job.queue}; this one is parked until"
            " fewer do."
        )
    elif bucket.startswith(RATE):
        tokens = limits.tokens().get(bucket)
        at = None if tokens is None else Tokens(*tokens).next_at(seen.now, rule)
        evidence |= {"rate": rate_text(rule), "next_at": moment_text(at)}
        said = (
            f"The rate of {whose} is {rate_text(rule)}; the next job starts at {seen.when(at) if at else 'any time'}."
        )
    else:
        holders = limits.holders(bucket, HOLDERS_MAX)
        evidence |= {
            "running": rule.running,
            "holders": [{"slot": slot, "job_id": job_id, "worker": owner} for slot, job_id, owner in holders],
        }
        by = ", ".join(f"job {job_id} on {owner}" for _, job_id, owner in holders) or "no job now"
        said = f"The limit of {whose} is {counted(rule.running or 0, 'job')} at once; running: {by}."
    said += f" Set by {setting.actor}: {setting.reason}" if setting else ""
    return seen.finding(FindingCode.LIMITED, said, evidence, f"holdfast limits show {shlex.quote(subject)}")
