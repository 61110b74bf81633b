"""Says why a submission cannot be stored. Imported for a submission that needs a closer look.

Invariants: a submission that both databases can store unchanged is not refused.
"""

from holdfast.core.arguments import refuse_unfit
from holdfast.core.digest import is_storable
from holdfast.core.errors import ArgumentsError, InputError
from holdfast.core.records import time_text
from holdfast.store.requests import ENGINE, INTEGER_MAX, WORD_BYTES_MAX, Submission


def refuse_unfit_submission(submission: Submission) -> None:
    """Raise InputError if one of the databases could not store the submission unchanged."""
    words = {name: getattr(submission, name) for name in ("operation", "operation_version", "client", "key", "queue")}
    for name, word in words.items():
        _require_word(name, word)
    if submission.client == ENGINE and not submission.by_engine:
        raise InputError(
            f"the client name {ENGINE!r} is reserved for the follow-ups that the ledger submits itself",
            next_step="Use another client name.",
            context={"client": ENGINE},
        )
    for name, least in (("priority", -INTEGER_MAX), ("max_attempts", 1), ("replay_attempts", 0)):
        number = getattr(submission, name)
        refuse_unfit(name, number, "int")
        if not least <= number <= INTEGER_MAX:
            raise InputError(
                f"{name} is {number}; it must be from {least} to {INTEGER_MAX}", context={"argument": name}
            )
    _require_moment(submission)


def _require_word(name: str, word: object) -> None:
    if name == "key" and word is None:
        return
    if isinstance(word, str) and not is_storable(word):
        raise InputError(f"{name} contains a zero character or half of a surrogate pair", context={"argument": name})
    refuse_unfit(name, word, "str")
    if word == "":
        raise ArgumentsError(
            f"{name} must not be empty", next_step=f"Give {name} a value, or omit it.", context={"argument": name}
        )
    size = len(str(word).encode())
    if size > WORD_BYTES_MAX:
        raise InputError(
            f"{name} has {size} bytes; the limit is {WORD_BYTES_MAX}", context={"argument": name, "bytes": size}
        )


def _require_moment(submission: Submission) -> None:
    run_at = submission.run_at
    if run_at is None:
        return
    if run_at.tzinfo is None:
        raise ArgumentsError(
            f"run_at is {run_at.isoformat()}, without a time zone",
            next_step="Give an aware time, such as datetime.now(UTC).",
            context={"argument": "run_at"},
        )
    try:
        time_text(run_at)
    except (OverflowError, ValueError):
        raise InputError(
            "run_at is too near to the end of the calendar to be written in UTC",
            next_step="Give an earlier time.",
            context={"argument": "run_at"},
        ) from None
