"""Explores one model of the catalogue and prints what broke in it, or nothing: python -m tests.faults.explore RUN."""

from __future__ import annotations

import sys

from holdfast.model.catalogue import RUNS


def main() -> None:
    [wanted] = sys.argv[1:]
    [run] = [run for run in RUNS if run.name == wanted]
    print(run.outcome().fault or "")


if __name__ == "__main__":
    main()
