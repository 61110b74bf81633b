"""A process that holds a lock of a SQLite ledger until it is killed: `python -m tests.support.lock_child PATH LOCK`."""

import fcntl
import os
import sqlite3
import sys
import time


def main(path: str, lock: str) -> None:
    """Hold the turn of Holdfast, or the write lock of SQLite as a shell does; print the process id."""
    if lock == "turn":
        turn = os.open(f"{path}-turn", os.O_RDWR)
        fcntl.flock(turn, fcntl.LOCK_EX)
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
    print(os.getpid(), flush=True)
    time.sleep(300)


if __name__ == "__main__":
    main(*sys.argv[1:])
