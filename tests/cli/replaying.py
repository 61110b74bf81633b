"""What the tests of `holdfast replay` and `nodd-replay` share: both commands, and a ledger with something to replay.

Invariants: as in `commands`; the ledger has eight failed jobs: 1 to 5 of goes-abi, 6 to 8 of hrrr, all made just now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast.cli.nodd import replay as nodd_replay
from holdfast.store import open_store
from tests.cli import commands
from tests.cli.commands import Outcome, holdfast
from tests.governance.replays import checksum, fill, states
from tests.support.ledgers import new_store

SINCE = ("--created-after", "2020-01-01T00:00:00Z")
WINDOW = (*SINCE, "--created-before", "2099-01-01T00:00:00Z")
GOES = ("--queue", "goes-abi", *SINCE)
NODD_GOES = ("--dataset", "goes-abi", *SINCE)
DO = ("--confirm", "--reason", "the disk was full")
SPEC = """
apiVersion: holdfast.replay/v1
kind: ReplaySelection
metadata: {name: goes, env: dev}
spec:
  filters:
    queues: [goes-abi]
    created_at: {start: 2020-01-01T00:00:00Z}
"""
NODD_SPEC = SPEC.replace("holdfast.replay/v1", "kfm.nodd.replay/v1alpha1").replace("queues:", "datasets:")


def nodd(*arguments: str, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `nodd-replay` in this process."""
    with mock.patch.object(commands, "run", nodd_replay.run), mock.patch.dict("os.environ", env or {}):
        return holdfast(*arguments)


def failed_jobs(url: str, env: str = "dev") -> str:
    """Make a ledger with eight failed jobs."""
    payload = '{"object_uri":"s3://noaa/a","event_time":"2026-01-01T06:00:00Z","token":"hunter2"}'
    with new_store(url, environment=env) as store:
        fill(store, 5, max_attempts=1, payload=payload)
        fill(store, 3, queue="hrrr", code="schema_mismatch", max_attempts=1)
    return url


def sum_of(url: str) -> str:
    with open_store(url) as store:
        return checksum(store)


def states_of(url: str) -> dict[str, int]:
    with open_store(url) as store:
        return states(store)


def written(directory: Path, text: str, name: str = "s.yaml") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def replay(url: str, *arguments: str) -> Outcome:
    """Run `holdfast replay` on a ledger."""
    return holdfast("replay", arguments[0], "--db", url, *arguments[1:])


def refused(outcome: Outcome) -> tuple[int, str, Any]:
    """The exit code, the error's code, and the guard or the path that it names."""
    code = outcome.error_code
    context = outcome.json["context"]
    return outcome.code, code, context.get("guard_type") or context.get("path") or context.get("flag")


def counters_in(err: str) -> dict[str, int]:
    """Return the counters that telemetry printed, each with its labels."""
    found: dict[str, int] = {}
    decoder, at = json.JSONDecoder(), 0
    while (at := err.find("{", at)) >= 0:
        value, at = decoder.raw_decode(err, at)
        metrics = [m for r in value["resource_metrics"] for s in r["scope_metrics"] for m in s["metrics"]]
        for metric in metrics:
            for point in metric["data"]["data_points"]:
                labels = " ".join(f"{name}={text}" for name, text in sorted(point["attributes"].items()))
                found[f"{metric['name'].removeprefix('nodd_sns.')} {labels}"] = point.get("value", point.get("count"))
    return found
