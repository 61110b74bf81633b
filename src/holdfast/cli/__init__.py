"""The `holdfast` command: `main` is its entry point, `run` the same without leaving the process."""

from holdfast.cli.app import main, run

__all__ = ["main", "run"]
