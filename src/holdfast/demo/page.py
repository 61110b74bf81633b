"""The report of a run as one self-contained HTML page: the proof, the faults, states, a timeline and a map.

Invariants: the page has no script and loads nothing; every text from the ledger is escaped.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.demo.proof import Fact
from holdfast.store import Store

_COLOURS = {
    "succeeded": "#2a7f62",
    "quarantined": "#8e3b8a",
    "failed": "#b3382c",
    "pending": "#c99a2e",
    "in_progress": "#2f6fb0",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --paper: #fbfaf7; --line: #d9d5cc; --soft: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e1; --paper: #16191d; --line: #353a41; --soft: #9aa3ad; } }
body { font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem; }
p.lead { color: var(--soft); margin-top: 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); } th, td { padding: .35rem .6rem .35rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } td.n { font-variant-numeric: tabular-nums; }
.ok { color: #2a7f62; font-weight: 600; } .bad { color: #b3382c; font-weight: 600; }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; } .wide { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 11px; }
svg.times { max-width: 48rem; } .key { white-space: nowrap; }
td { overflow-wrap: anywhere; } td.n, td:first-child { overflow-wrap: normal; }
@media (max-width: 30rem) { body { margin: 1.25rem auto; padding: 0 1rem; } th, td { padding-right: .4rem; }
  table { font-size: 13px; } .map text { font-size: 20px; } .times text { font-size: 16px; } }
.bar { display: flex; height: 1.4rem; border-radius: 4px; overflow: hidden; }
.bar span { color: #fff; font-size: 12px; padding-left: .4rem; white-space: nowrap; overflow: hidden; }
"""


def write(
    path: Path,
    store: Store[Any],
    facts: Sequence[Fact],
    faults: Sequence[tuple[str, str, str, str]],
    fates: Mapping[str, int],
) -> Path:
    with store.reading() as reading:
        _, states = reading.query("SELECT dataset, status FROM nodd_wal_records", {})
        _, ends = reading.query(
            "SELECT dataset, status, updated_at FROM nodd_wal_records WHERE status IN ('succeeded', 'quarantined')", {}
        )
        _, items = reading.query("SELECT dataset, item FROM nodd_items ORDER BY item_id", {})
        _, [[objects]] = reading.query("SELECT count(DISTINCT source_uri) FROM nodd_units", {})
    datasets = len({dataset for dataset, _ in states})
    lead = f"{objects} data files of {datasets} datasets, announced by a local feed with injected faults, are"
    lead += f" {len(states)} units of work: each write of a file is one. {len(items)} files are catalogued."
    heard = sorted((fate, str(n)) for fate, n in fates.items())
    parts = [
        "<h1>NOAA open data, each object catalogued exactly once</h1>",
        f'<p class="lead">{lead} Two workers; each was killed once with SIGKILL.</p>',
        "<h2>Checks</h2>", _facts(facts),
        "<h2>State of the units</h2>", _states(states),
        "<h2>When the units finished</h2>", _timeline(ends),
        "<h2>Areas that the data cover</h2>", _footprints(items),
        "<h2>Injected faults</h2>", _table(("Fault", "What happens", "Expected", "Result"), faults),
        "<h2>Results of the notices</h2>", _table(("Result", "Notices"), heard),
    ]  # fmt: skip
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Holdfast demonstration</title>'
        '<meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style>{''.join(parts)}</html>"
    )
    path.write_text(text, encoding="utf-8")
    return path


def _text(text: str) -> str:
    """Return escaped HTML, with text in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{first}</tr>{body}</table></div>'


def _facts(facts: Sequence[Fact]) -> str:
    rows = "".join(
        f'<tr><td>{_text(fact.name)}</td><td class="n {"ok" if fact.holds else "bad"}">{fact.found}</td>'
        f'<td class="n">{fact.expected}</td></tr>'
        for fact in facts
    )
    return f'<div class="wide"><table><tr><th>Check</th><th>Found</th><th>Expected</th></tr>{rows}</table></div>'


def _states(states: Sequence[tuple[str, str]]) -> str:
    datasets = sorted({dataset for dataset, _ in states})
    rows = []
    for dataset in datasets:
        counts = Counter(status for name, status in states if name == dataset)
        total = sum(counts.values())
        spans = "".join(
            f'<span style="width:{100 * n / total:.2f}%;background:{_COLOURS[status]}" title="{n} {status}">{n}</span>'
            for status, n in sorted(counts.items(), key=lambda pair: -pair[1])
        )
        rows.append(
            f'<tr><td>{html.escape(dataset)}</td><td style="width:75%"><div class="bar">{spans}</div></td></tr>'
        )
    legend = " · ".join(
        f'<span class="key"><span style="color:{colour}">■</span> {name}</span>' for name, colour in _COLOURS.items()
    )
    return f'<table>{"".join(rows)}</table><p class="lead">{legend}</p>'


def _timeline(ends: Sequence[tuple[str, str, Any]]) -> str:
    moments = [(dataset, status, _moment(at)) for dataset, status, at in ends]
    if not moments:
        return "<p>No unit has finished.</p>"
    first, last = min(at for _, _, at in moments), max(at for _, _, at in moments)
    span = max((last - first).total_seconds(), 0.001)
    datasets = sorted({dataset for dataset, _, _ in moments})
    marks = []
    for dataset, status, at in moments:
        x, y = 120 + 430 * (at - first).total_seconds() / span, 18 + 22 * datasets.index(dataset)
        marks.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{_COLOURS[status]}" fill-opacity=".65"/>')
    names = "".join(f'<text x="0" y="{22 + 22 * n}">{html.escape(name)}</text>' for n, name in enumerate(datasets))
    height = 30 + 22 * len(datasets)
    scale = f'<text x="120" y="{height}">0 s</text><text x="550" y="{height}" text-anchor="end">{span:.0f} s</text>'
    inner = names + "".join(marks) + scale
    return (
        f'<svg class="times" viewBox="0 0 560 {height + 8}" role="img" aria-label="time at which each unit finished">'
        f"{inner}</svg>"
    )


def _footprints(items: Sequence[tuple[str, str]]) -> str:
    boxes = Counter((dataset, tuple(json.loads(item).get("bbox") or ())) for dataset, item in items)
    shapes = []
    for (dataset, bbox), n in sorted(boxes.items()):
        if len(bbox) != 4:
            continue
        west, south, east, north = bbox
        label = html.escape(f"{dataset}: {n}")
        # A box over the antimeridian is drawn as its two halves.
        for left, right in [(west, east)] if west <= east else [(west, 180), (-180, east)]:
            x, y, width, height = (left + 180) * 2, (90 - north) * 2, (right - left) * 2, (north - south) * 2
            shapes.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="#2f6fb0"'
                f' fill-opacity=".06" stroke="#2f6fb0" stroke-opacity=".5"><title>{label}</title></rect>'
            )
    lines = "".join(f'<line x1="{x}" y1="0" x2="{x}" y2="360" stroke="var(--line)"/>' for x in range(0, 721, 60))
    lines += "".join(f'<line x1="0" y1="{y}" x2="720" y2="{y}" stroke="var(--line)"/>' for y in range(0, 361, 60))
    lines += "".join(f'<text x="{x + 3}" y="356">{_degrees(x // 2 - 180, "EW")}</text>' for x in range(0, 720, 120))
    lines += "".join(f'<text x="3" y="{y - 3}">{_degrees(90 - y // 2, "NS")}</text>' for y in range(60, 360, 60))
    drawn = f'<svg viewBox="0 0 720 360" role="img" aria-label="covered areas">{lines}{"".join(shapes)}</svg>'
    sizes = Counter(dataset for dataset, _ in items)
    counts = ", ".join(f"{dataset} {n}" for dataset, n in sorted(sizes.items()))
    note = "The whole world without coastlines: 180° W is left, 90° N is up. Each box is the area of the items of one"
    note += f" dataset that cover the same place. Items by dataset: {counts}; together {len(items)}."
    return f'<div class="map">{drawn}</div><p class="lead">{html.escape(note)}</p>'


def _degrees(angle: int, names: str) -> str:
    return f"{abs(angle)}° {names[angle < 0]}" if angle else "0°"


def _moment(at: Any) -> datetime:
    return at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
