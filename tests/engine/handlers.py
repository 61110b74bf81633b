"""Handlers that misbehave, and some that are well-behaved, at the top of a module.

Other processes import them from here by name. `ENDS` says how each of the first kind must end, wherever it runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from holdfast import (
    Call,
    Cancel,
    Execution,
    FailureKind,
    Operation,
    Operations,
    Quarantine,
    RetryPolicy,
    Snooze,
    Strategy,
)
from holdfast.engine.failures import classify

R = TypeVar("R")

operations = Operations()
ENDS: dict[str, tuple[str, str | None, str | None]] = {}
EFFECT = "EffectError"  # the message differs by database


def ends(
    state: str,
    code: str | None = None,
    message: str | None = None,
    *,
    judge: Callable[[BaseException], FailureKind] = classify,
) -> Callable[[Callable[[Execution], R]], Operation[[], R]]:
    """Declare a handler that must end like this at its only attempt."""

    def declare(fn: Callable[[Execution], R]) -> Operation[[], R]:
        ENDS[fn.__name__] = state, code, message
        return operations.operation(fn.__name__, max_attempts=1, classify=judge)(fn)

    return declare


def some() -> Operations:
    """Return these operations in a set of its own, for a ledger that declares more."""
    copy = Operations()
    for operation in operations:
        copy.add(operation)
    return copy


# -- well-behaved -----------------------------------------------------------------------------------------------------


@operations.operation()
def good(run: Execution, n: int = 0) -> dict[str, int]:
    return {"n": n, "pid": os.getpid()}


@operations.operation(lease_s=3, max_attempts=1)
def until_cancelled(run: Execution, then: str, started: str) -> str:
    Path(started).touch()
    give_up = time.monotonic() + 60
    while not run.cancelled:
        if time.monotonic() > give_up:
            return "never cancelled"
        time.sleep(0.01)
    if then == "raise":
        raise Cancel("as you wish")
    return "cancelled"


# -- raising ----------------------------------------------------------------------------------------------------------


class OddError(BaseException):
    """Not even an Exception."""


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class EvasiveError(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError("no code for you")


@ends("failed", "value_error", "ValueError: no such thumbnail")
def raises_value_error(run: Execution) -> None:
    raise ValueError("no such thumbnail")


@ends("failed", "system_exit", "SystemExit: out_of_here")
def raises_system_exit(run: Execution) -> None:
    sys.exit("out_of_here")


@ends("failed", "keyboard_interrupt", "KeyboardInterrupt")
def raises_keyboard_interrupt(run: Execution) -> None:
    raise KeyboardInterrupt


@ends("failed", "memory_error", "MemoryError")
def raises_memory_error(run: Execution) -> None:
    raise MemoryError


@ends("failed", "odd_error", "OddError: odd")
def raises_a_base_exception(run: Execution) -> None:
    raise OddError("odd")


@ends("failed", "unprintable_error", "UnprintableError: its text cannot be read (RuntimeError)")
def raises_what_cannot_be_printed(run: Execution) -> None:
    raise UnprintableError


@ends("failed", "evasive_error", "EvasiveError: hm")
def raises_what_has_no_code(run: Execution) -> None:
    raise EvasiveError("hm")


@ends("failed", "recursion_error", "RecursionError: maximum recursion depth exceeded")
def recurses(run: Execution) -> None:
    recurses.fn(run)


@ends("failed", "connection_error", "ConnectionError: postgresql://app:***@db:5432/x refused, password=*** given")
def tells_secrets(run: Execution) -> None:
    raise ConnectionError("postgresql://app:hunter2@db:5432/x refused, password=hunter2 given")


@ends("failed", "value_error", "ValueError: a b c d e")
def says_what_no_database_keeps(run: Execution) -> None:
    raise ValueError("a\0b\ud800c\x1bd\ne")


def _confused(_error: BaseException) -> FailureKind:
    raise LookupError("which kind?")


@ends("failed", "value_error", "ValueError: x", judge=_confused)
def is_judged_by_a_broken_judge(run: Execution) -> None:
    raise ValueError("x")


@ends("failed", "bad_input", "InputError: seconds must be between 0 and 31622400")
def snoozes_for_no_number_of_seconds(run: Execution) -> None:
    raise Snooze(float("nan"))


@ends("quarantined", "the key was token=***", "Quarantine: the key was token=***")
def quarantines_with_a_secret(run: Execution) -> None:
    raise Quarantine("the key was token=abcdef")


# -- returning --------------------------------------------------------------------------------------------------------


@ends("quarantined", "payload_not_json", "PayloadNotJsonError: set is not a JSON type")
def returns_a_set(run: Execution) -> Any:
    return {1, 2}


@ends("quarantined", "payload_not_json", "PayloadNotJsonError: nan is not JSON")
def returns_nan(run: Execution) -> Any:
    return {"mean": float("nan")}


@ends("quarantined", "payload_not_json", "PayloadNotJsonError: object is not a JSON type")
def returns_an_object(run: Execution) -> Any:
    return object()


@ends("quarantined", "payload_too_large", "PayloadTooLargeError: the payload has 2000002 bytes; the limit is 1048576")
def returns_too_much(run: Execution) -> Any:
    return "x" * 2_000_000


@ends("quarantined", "payload_too_deep", "PayloadTooDeepError: the payload has more than 64 levels")
def returns_too_deep(run: Execution) -> Any:
    value: Any = []
    for _ in range(100):
        value = [value]
    return value


# -- staging ----------------------------------------------------------------------------------------------------------


@ends("failed", "effect_failed", EFFECT)
def stages_a_syntax_error(run: Execution) -> None:
    run.effect("INSERT INTO WHERE VALUES")


@ends("failed", "effect_failed", EFFECT)
def stages_rollback(run: Execution) -> None:
    run.effect("ROLLBACK")


@ends("failed", "effect_failed", EFFECT)
def stages_a_table_of_the_ledger(run: Execution) -> None:
    run.effect("UPDATE holdfast_jobs SET state = 'succeeded'")


@ends("failed", "effect_failed", EFFECT)
def stages_two_statements(run: Execution) -> None:
    run.effect("INSERT INTO thumbs (path) VALUES ('a'); INSERT INTO thumbs (path) VALUES ('b')")


@ends("failed", "effect_failed", EFFECT)
def stages_for_rows_that_are_not_there(run: Execution) -> None:
    run.effect("INSERT INTO thumbs (path) VALUES ('by a job that fails')")
    run.effect("UPDATE thumbs SET path = 'b' WHERE path = 'nowhere'", rows=1)


@ends(
    "failed",
    "operation_unknown",
    "UnknownOperationError: no process has declared the operation 'nobody.knows' to this ledger",
)
def stages_an_unknown_call(run: Execution) -> None:
    run.effect("INSERT INTO thumbs (path) VALUES ('by a job that fails')")
    run.after_commit(Call(operation="nobody.knows", payload={}))


@ends("quarantined", "payload_not_json", "PayloadNotJsonError: set is not a JSON type")
def stages_a_call_that_is_not_json(run: Execution) -> None:
    run.after_commit(Call(operation="noop", payload={"n": {1}}))


# -- changing the process ----------------------------------------------------------------------------------------


@ends("succeeded")
def forks(run: Execution) -> dict[str, int]:
    child = os.fork()
    if child == 0:
        run.effect("INSERT INTO thumbs (path) VALUES ('by a fork')")
        return {"fork": 1}
    run.effect("INSERT INTO thumbs (path) VALUES ('by the parent')")
    return {"fork_exit": os.waitpid(child, 0)[1]}


@ends("succeeded")
def forks_and_raises(run: Execution) -> dict[str, int]:
    child = os.fork()
    if child == 0:
        raise SystemExit(7)
    return {"fork_exit": os.waitpid(child, 0)[1]}


@ends("succeeded")
def closes_stdout(run: Execution) -> None:
    sys.stdout.close()


# -- only in a process of its own -------------------------------------------------------------------------------------


@operations.operation(max_attempts=1)
def dies(run: Execution, by: str) -> None:
    match by:
        case "SIGSEGV":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "closed line":
            os.closerange(3, 4096)
        case "noise":
            for descriptor in range(3, 4096):
                try:
                    os.write(descriptor, b"5\n")
                except OSError:
                    continue
            time.sleep(60)
        case "orphan":
            if os.fork() == 0:
                time.sleep(60)
            os._exit(4)


@operations.operation(
    retry=RetryPolicy(max_attempts=1, transient_max_attempts=2, base_s=0, strategy=Strategy.IMMEDIATE)
)
def dies_at_first(run: Execution) -> dict[str, Any]:
    kept = run.checkpoint("pid", os.getpid)
    run.effect("INSERT INTO thumbs (path) VALUES (:path)", {"path": f"attempt {run.attempt}"})
    if run.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"first": kept, "now": os.getpid()}


@operations.operation(max_attempts=1, timeout_s=0.3)
def hangs(run: Execution, note: str) -> None:
    beside = subprocess.Popen(["sleep", "60"])
    Path(note).write_text(f"{os.getpid()} {beside.pid}", encoding="ascii")
    time.sleep(60)


@operations.operation(max_attempts=1)
def waits(run: Execution, note: str) -> None:
    Path(note).write_text(str(os.getpid()), encoding="ascii")
    time.sleep(60)


@operations.operation(max_attempts=1)
def signals_itself_to_stop(run: Execution) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return "went on"


@operations.operation(max_attempts=1)
def shows_all(run: Execution, word: str) -> dict[str, Any]:
    run.effect("INSERT INTO thumbs (path) VALUES (:path)", {"path": word}, rows=1)
    run.effect("INSERT INTO thumbs (path) VALUES ('by hand')")
    run.after_commit(good.call(n=5).keyed("web", "follow"))
    run.progress(0.25, "a quarter")
    record = run.job
    return {
        "kept": run.checkpoint("word", lambda: [word]),
        "cancelled": run.cancelled,
        "attempt": run.attempt,
        "token": run.token,
        "job": [record.job_id, record.operation, record.payload, record.created_at.isoformat()],
        "big": 2**70,
        "pid": os.getpid(),
    }


@operations.operation(max_attempts=1)
def stages_what_json_cannot_carry(run: Execution, kind: str) -> None:
    values: dict[str, Any] = {"bytes": b"x", "decimal": Decimal(1), "tuple": (1,), "nan": float("nan")}
    run.effect("INSERT INTO thumbs (path) VALUES (:path)", {"path": values[kind]})


@operations.operation(max_attempts=1)
def commits_itself(run: Execution) -> None:
    run.commit(connection=None)


@operations.operation(max_attempts=1)
async def runs_on_a_loop(run: Execution) -> int:
    return os.getpid()
