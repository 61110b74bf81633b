"""How an exception of a handler becomes the outcome of its attempt.

Invariants: whatever the exception does when it is looked at, `raised` does not raise.
"""

from collections.abc import Callable

from holdfast.core.decide import CANCELLED, DEADLINE_PASSED
from holdfast.core.errors import HoldfastError, StoreError
from holdfast.engine.error_texts import error_code, error_message, short_code
from holdfast.engine.failures import FailureKind, classify
from holdfast.engine.worker.outcome import Raised, Then
from holdfast.engine.worker.signals import Cancel, Quarantine, RetryAfter, Snooze
from holdfast.engine.worker.traces import traceback_text
from holdfast.store.verbs.long_payloads import PAYLOAD_OF

UNSTORABLE = frozenset({"payload_not_json", "payload_too_deep", "payload_too_large"})
# The same call would end the same way: no retry will help.
HOPELESS = UNSTORABLE | {"arguments_invalid", DEADLINE_PASSED}


def raised(error: BaseException, judge: Callable[[BaseException], FailureKind] = classify) -> Raised:
    """Return an exception as an outcome. Whatever the exception does when it is looked at, this does not raise."""
    code, message = error_code(error), error_message(error)
    match error:
        case Snooze():
            return Raised(short_code(error.reason), message, Then.GIVE_BACK, error.seconds)
        case Cancel():
            return Raised(CANCELLED, message, Then.CANCEL)
        case StoreError() if PAYLOAD_OF in error.context:
            return Raised("not_started", message, Then.GIVE_BACK)  # its payload could not be read
    trace = traceback_text(error)
    match error:
        case RetryAfter():
            then = Then.HOLD if error.hold else Then.RETRY
            return Raised(code, message, then, error.seconds, traceback=trace)
        case Quarantine():
            return Raised(short_code(error.reason), message, Then.QUARANTINE, traceback=trace)
        case HoldfastError() if code in HOPELESS:
            if code in UNSTORABLE and trace is None:  # no statement of the handler raised it
                message = f"What the handler returned or staged cannot be stored: {message}"
            return Raised(code, message, Then.QUARANTINE, traceback=trace)
    try:
        return Raised(code, message, kind=FailureKind(judge(error)), traceback=trace)
    except BaseException:  # noqa: BLE001 - the judge is the user's code too
        return Raised(code, message, traceback=trace)
