"""Run the demonstration, or one of its workers: `python -m holdfast.demo`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from rich.console import Console

from holdfast.core.errors import HoldfastError
from holdfast.demo import scenario, worker
from holdfast.store import create_store

FOLDER = Path(".demo")


def main() -> int:
    """Run the demonstration, or with `--work` one of its workers; return the exit code."""
    parser = argparse.ArgumentParser(description="Demonstration of Holdfast with objects like NOAA's open data.")
    parser.add_argument("--url", default=None, help="URL of the ledger; by default a new SQLite file in the folder")
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="folder for the ledger, the catalogue and the report; it is deleted first",
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 118)
    if arguments.work:
        worker.work(arguments.url, arguments.endpoint, arguments.folder)
        return 0
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    url = arguments.url or str(arguments.folder / "ledger.db")
    try:
        create_store(url).close()
        return scenario.run(url, arguments.folder, console)
    except HoldfastError as error:
        console.print(f"[red]{error.message}[/]\n{error.hint}")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
