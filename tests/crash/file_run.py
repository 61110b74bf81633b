"""A process that uses a ledger file, and also opens and closes it by itself: `python -m tests.crash.file_run`.

It prints a line for each acknowledged submit, `refused CODE CHANGE` for one that was not, and waits for a line before
each step.
"""

import shutil
import sys

from holdfast import Ledger
from holdfast.core.errors import StoreError
from holdfast.store.sqlite import identity
from tests.support.children import wait_for_start


def submit(ledger: Ledger, first: int, count: int) -> None:
    """Submit jobs with numbers as keys; print which of them were acknowledged."""
    for number in range(first, first + count):
        try:
            ledger.submit("noop", {}, client="test", key=str(number))
        except StoreError as error:
            print("refused", error.code, error.context["change"], flush=True)
        else:
            print("acknowledged", number, flush=True)
    print("end", flush=True)


def main(path: str, first: str, count: str, act: str) -> None:
    if "unguarded" in act:
        identity._SET = None  # a system without locks of descriptors: only the comparison after a commit is left
    ledger = Ledger(path)
    submit(ledger, int(first), 1)
    wait_for_start()
    if "copy" in act:
        for suffix in ("", "-wal", "-shm"):
            shutil.copyfile(path + suffix, f"{path}.copy{suffix}")
    wait_for_start()
    submit(ledger, int(first) + 1, int(count) - 1)
    wait_for_start()


if __name__ == "__main__":
    main(*sys.argv[1:])
