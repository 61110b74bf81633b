"""The alert rules: every policy id of K-65, only metrics of the tables, and thresholds that fire."""

from __future__ import annotations

import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.core.instruments import Instrument, InstrumentKind
from holdfast.nodd import metrics as nodd
from holdfast.telemetry import metrics
from tests.support.promtool import PROMTOOL

RULES = files("holdfast.telemetry").joinpath("alerts.yml")
GROUPS: Any = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
POLICIES = {
    "NODD-Q-AGE-CRIT", "NODD-Q-DEPTH-WARN", "NODD-Q-DEPTH-CRIT", "NODD-DLQ-RATE-CRIT", "NODD-VAL-ERR-WARN",
    "NODD-REPLAY-MISMATCH-CRIT", "NODD-REPLAY-VOLUME-WARN", "NODD-LAT-P90-CRIT", "NODD-LAT-TREND-WARN",
    "NODD-TEL-SILENCE-CRIT", "NODD-TEL-METRIC-MISS-WARN",
}  # fmt: skip
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; the end of the run says so")


def exposed() -> set[str]:
    """Every name that Prometheus can know."""
    rows: list[tuple[str, Instrument]] = [
        *((nodd.PREFIX, row) for row in nodd.INSTRUMENTS.values()),
        *((metrics.PREFIX, row) for row in metrics.LEDGER.values()),
    ]
    names = set()
    for prefix, row in rows:
        name = row.exposed(prefix)
        names |= {f"{name}_bucket"} if row.kind is InstrumentKind.HISTOGRAM else {name}
    return names


@pytest.mark.req("K-65")
def test_every_policy_has_a_rule_with_a_severity_and_a_next_step() -> None:
    of_nodd, of_ledger = GROUPS
    assert {rule["alert"] for rule in of_nodd["rules"]} == POLICIES
    for rule in (*of_nodd["rules"], *of_ledger["rules"]):
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "next"}


@pytest.mark.req("K-65")
@pytest.mark.parametrize(
    "alert, threshold, lasts",
    [
        ("NODD-Q-AGE-CRIT", "> 90", "10m"),
        ("NODD-Q-DEPTH-WARN", "> 5000", "15m"),
        ("NODD-Q-DEPTH-CRIT", "> 20000", None),
        ("NODD-DLQ-RATE-CRIT", "> 0.0005", None),
        ("NODD-LAT-P90-CRIT", "> 300", "20m"),
    ],
)
def test_thresholds_are_those_of_the_objectives(alert: str, threshold: str, lasts: str | None) -> None:
    [rule] = [rule for rule in GROUPS[0]["rules"] if rule["alert"] == alert]
    assert re.search(rf"{re.escape(threshold)}(?![\d.])", rule["expr"])
    assert rule.get("for") == lasts


def test_rules_name_only_metrics_of_the_tables() -> None:
    for group in GROUPS:
        for rule in group["rules"]:
            named = set(re.findall(r"\b(?:nodd_sns|holdfast)_[a-z_]*[a-z]\b", rule["expr"]))
            assert named <= exposed(), rule["alert"]


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_promtool
@pytest.mark.req("K-65")
def test_the_rules_fire_beyond_their_thresholds_and_not_below(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    firing = {
        "NODD-Q-DEPTH-WARN": ('nodd_sns_queue_depth{queue="primary"}', "5001x20", "5000x20", "16m"),
        "NODD-Q-DEPTH-CRIT": ('nodd_sns_queue_depth{queue="primary"}', "20001x20", "20000x20", "6m"),
        "NODD-REPLAY-MISMATCH-CRIT": ('nodd_sns_replay_mismatch_total{dataset="gfs"}', "_ _ 1 1", "0 0 0 0", "3m"),
        "HOLDFAST-LEASES-EXPIRED": ('holdfast_leases{status="expired"}', "1x20", "0x20", "6m"),
        "HOLDFAST-QUEUE-AGE": ('holdfast_queue_age_seconds{queue="q"}', "301x20", "300x20", "6m"),
    }
    tests = [
        _unit(alert, series, values, at, fires=fires)
        for alert, (series, above, below, at) in firing.items()
        for values, fires in ((above, True), (below, False))
    ]
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _unit(alert: str, series: str, values: str, at: str, *, fires: bool) -> dict[str, Any]:
    """Return a test in promtool's format: of these values of a series at a time, the alert fires or not."""
    [rule] = [rule for group in GROUPS for rule in group["rules"] if rule["alert"] == alert]
    labels: dict[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', series)) | rule["labels"]
    value = next(word for word in values.replace("_", "").split() if word).split("x")[0]
    annotations = {
        name: re.sub(r"{{ \$(?:labels\.(\w+)|value) }}", lambda found: labels.get(found[1] or "", value), text)
        for name, text in rule["annotations"].items()
    }
    expected = [{"exp_labels": labels, "exp_annotations": annotations}] if fires else []
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values}],
        "alert_rule_test": [{"alertname": alert, "eval_time": at, "exp_alerts": expected}],
    }
