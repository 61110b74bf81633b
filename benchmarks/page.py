"""Writes the figures into `docs/performance.md`: `python -m benchmarks.page [--results DIRECTORY]`.

Invariants: only what is between the marks `<!-- name: begin -->` and `<!-- name: end -->` is replaced; every figure
comes from a JSON file of results; what was not measured is named with the command that measures it; a peer that is
faster is shown as faster.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS
from benchmarks.cases import HOLDFAST
from benchmarks.engine_bench import latencies, number, ratio
from benchmarks.plots import bars, lines

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
DATABASES = {
    "sqlite": "SQLite", "postgres": "PostgreSQL", "redis-always": "Redis, appendfsync always",
    "redis-everysec": "Redis, appendfsync everysec",
}  # fmt: skip
FEEDS = {  # objects a day, of what NOAA announced in 2026
    "GEFS, the largest model feed": 115_708,
    "one GOES satellite": 110_000,
    "NEXRAD level 3": 1_000_000,
    "NEXRAD chunks, the largest feed": 2_000_000,
    "all of NOAA's notices": 10_000_000,
    "100 times the largest feed": 200_000_000,
}
IMAGES = {
    "engine": {"drain": "jobs drained a second", "processes": "by worker processes"},
    "load": {"mixed": "p99 under mixed load"},
}
BURST = 5  # notices come in bursts at cycle times
DAY_S = 86_400

Results = dict[str, dict[str, Any]]
Figure = dict[str, Any]


def load(directory: Path) -> Results:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))}


def missing(*suites: str) -> str:
    return f"Not measured yet: `python -m benchmarks {' '.join(suites)}`."


def table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *body])


def figures_of(results: Results, suite: str, database: str) -> list[Figure]:
    found: list[Figure] = [f for f in results.get(suite, {}).get("figures", []) if f["database"] == database]
    return found


def one(results: Results, suite: str, database: str, case: str, system: str = HOLDFAST) -> Figure | None:
    found = [f for f in figures_of(results, suite, database) if (f["case"], f["system"]) == (case, system)]
    return found[0] if found else None


# ---------------------------------------------------------------------------------------------------------------------
# Blocks


def block_run(results: Results) -> str:
    """The run: when, on what, and with which peers."""
    if "engine" not in results:
        return missing("engine")
    run = results["engine"]
    versions = sorted({f"{f['system']} {f['version']}" for r in results.values() for f in _rows(r) if f.get("version")})
    quick = " This was a quick run: its figures only show that the suite works." if run["quick"] else ""
    return (
        f"Run of {run['at'][:10]} on {run['cpus']} vCPU, {run['machine'].split('-with')[0]}, Python {run['python']}; "
        f"{run['sync_us'] / 1000:g} ms a sync. Systems: {', '.join(versions)}.{quick}"
    )


def _rows(result: dict[str, Any]) -> list[Figure]:
    return [f for f in result.get("figures", []) if isinstance(f, dict) and "system" in f]


def block_targets(results: Results) -> str:
    """Every target, with what was reached."""
    rows = [
        (DATABASES[v["database"]], v["case"], v["target"] + (f" ({v['peer']})" if v["peer"] else ""),
         number(v["value"]), "met" if v["met"] else "**missed**")
        for suite in ("engine", "load")
        for v in results.get(suite, {}).get("verdicts", [])
    ]  # fmt: skip
    for figure in results.get("memory", {}).get("figures", []):
        limit = f"≤ {results['memory']['limit_mb']:g} MB and flat over {figure['jobs']:,} jobs"
        rows.append(_own(figure, "worker's memory", limit, f"{figure['rss_mb'][-1]:g} MB"))
    for figure in results.get("recovery", {}).get("figures", []):
        met = {**figure, "met": figure["seconds"] <= 5}
        rows.append(_own(met, f"recovery of {figure['jobs']:,} jobs", "≤ 5 s", f"{figure['seconds']:.2f} s"))
    for figure in results.get("scale", {}).get("drains", []):
        name = f"drain at {max(map(int, figure['per_second'])):,} jobs"
        rows.append(_own(figure, name, "≥ 0.9 of a small ledger", number(figure["ratio"])))
    return table(("database", "case", "target", "reached", ""), rows) if rows else missing("engine")


def _own(figure: Figure, case: str, target: str, reached: str) -> tuple[str, str, str, str, str]:
    return DATABASES[figure["database"]], case, target, reached, "met" if figure["met"] else "**missed**"


def comparison(results: Results, suite: str, databases: Sequence[str]) -> str:
    """The rows of a suite, a table for each database."""
    texts = []
    drawn = {name for name, _ in plots(results)}
    for database in databases:
        figures = figures_of(results, suite, database)
        if not figures:
            continue
        rows = []
        for figure in figures:
            peers = [f for f in figures if f["case"] == figure["case"]]
            where = "postgres" if database.startswith("redis") else database
            ours = one(results, suite, where, figure["case"]) or {}
            first = figure is peers[0]
            rate = figure.get("failed") or number(figure.get("per_second"))
            fastest = max((f.get("per_second") or 0) for f in peers)
            if len(peers) > 1 and figure.get("per_second") == fastest and fastest and figure["system"] != "bare":
                rate = f"**{rate}**"
            rows.append((
                figure["case"] if first else "", figure["system"], rate, number(figure.get("client_us")),
                number(figure.get("server_us")), number(figure.get("fsyncs_per_job")),
                number(figure.get("life_wal_per_job") or figure.get("wal_per_job")),
                number(figure.get("life_disk_per_job") or figure.get("disk_per_job")), latencies(figure),
                number(figure.get("rss_mb")), ratio(ours, figure),
            ))  # fmt: skip
        head = ("case", "system", "jobs/s", "client µs", "server µs", "fsyncs", "WAL B", "disk B", "ms", "MB",
                "Holdfast is")  # fmt: skip
        names = {f"{name}-{database}.svg": words for name, words in IMAGES.get(suite, {}).items()}
        images = [f"![{words}](performance/{name})" for name, words in names.items() if name in drawn]
        texts.append("\n\n".join([f"### {DATABASES[database]}", table(head, rows), *images]))
    return "\n\n".join(texts) or missing(suite)


def block_memory(results: Results) -> str:
    if "memory" not in results:
        return missing("memory")
    figures = results["memory"]["figures"]
    rows = [
        (DATABASES[f["database"]], f"{f['jobs']:,}", " ".join(f"{mb:g}" for mb in f["rss_mb"]), number(f["per_second"]))
        for f in figures
    ]
    head = ("database", "jobs", "MB after each tenth", "submitted and run, jobs/s")
    return table(head, rows) + "\n\n![memory of a worker](performance/memory.svg)"


def block_scale(results: Results) -> str:
    if "scale" not in results:
        return missing("scale", "--sizes", "20000", "5000000")
    scale = results["scale"]
    sizes = scale["sizes"]
    rows = []
    for r in scale["ratios"]:
        times = [
            next(f["median_ms"] for f in scale["figures"]
                 if (f["database"], f["query"], f["jobs"]) == (r["database"], r["query"], size))
            for size in sizes
        ]  # fmt: skip
        flat = {True: "flat", False: "**grows**", None: "reads every job"}[r["flat"]]
        cells = (DATABASES[r["database"]], f"`{r['query']}`", *map(number, times), f"{r['ratio']:.2f}", flat)
        rows.append(cells)
    for d in scale.get("drains", []):
        rates = [f"{number(d['per_second'][str(size)])} jobs/s" for size in sizes]
        said = "flat" if d["met"] else "**slower**"
        rows.append((DATABASES[d["database"]], "a drain", *rates, f"{d['ratio']:.2f}", said))
    return table(("database", "query, ms", *(f"{size:,} jobs" for size in sizes), "ratio", ""), rows)


def block_recovery(results: Results) -> str:
    figures = results.get("recovery", {}).get("figures", [])
    if not figures:
        return missing("recovery")
    return table(
        ("database", "interrupted jobs", "seconds", "slowest", "fsyncs"),
        [(DATABASES[f["database"]], f"{f['jobs']:,}", f"{f['seconds']:.2f}", f"{f['slowest_s']:.2f}",
          number(f["fsyncs"])) for f in figures],
    )  # fmt: skip


def block_model(results: Results) -> str:
    """What one job costs, from its submit to its end, and what a byte of payload adds."""
    rows = []
    for database in ("sqlite", "postgres"):
        for case in ("submit, 1 caller", "submit, 100 callers", "bulk", "drain, 1 process"):
            if figure := one(results, "engine", database, case):
                names = ("client_us", "server_us", "fsyncs_per_job", "wal_per_job")
                cells = [number(figure.get(name)) for name in names]
                disk = figure.get("life_disk_per_job") or figure.get("disk_per_job")
                rows.append((DATABASES[database], case, *cells, number(disk)))
    if not rows:
        return missing("engine", "load")
    text = table(("database", "step", "client µs", "server µs", "fsyncs", "WAL B", "disk B"), rows)
    for database in ("sqlite", "postgres"):
        points = {}
        for size, name in ((1 << 10, "1 KiB"), (1 << 16, "64 KiB"), (1 << 20, "1 MiB")):
            if figure := one(results, "load", database, f"drain, {name}"):
                points[size] = figure["life_disk_per_job"]
        if len(points) == 3:
            slope = (points[1 << 20] - points[1 << 10]) / ((1 << 20) - (1 << 10))
            rest = points[1 << 10] - slope * (1 << 10)
            text += (
                f"\n\n{DATABASES[database]}, fitted to the three payload sizes: disk bytes a job ≈ {number(rest)} + "
                f"{slope:.2f} times the bytes of the payload; at 64 KiB that says "
                f"{number(rest + slope * (1 << 16))}, and {number(points[1 << 16])} were measured."
            )
    return text


def block_feeds(results: Results) -> str:
    """NOAA's feeds, and 100 times the largest, on the measured costs of PostgreSQL."""
    drain = one(results, "engine", "postgres", "drain, 1 process")
    bulk = one(results, "engine", "postgres", "bulk")
    if not drain or not bulk:
        return missing("engine")
    capacity = min(drain["per_second"], bulk["per_second"])
    rows = []
    for name, a_day in FEEDS.items():
        mean = a_day / DAY_S
        gb = [a_day * drain[field] / 1e9 for field in ("life_disk_per_job", "life_wal_per_job")]
        cores = mean * (drain["server_us"] + bulk["server_us"]) / 1e6
        workers = number(mean * BURST / capacity)
        cells = (f"{a_day:,}", number(mean), number(mean * BURST), workers, number(cores), *map(number, gb))
        rows.append((name, *cells))
    head = ("feed", "objects a day", "mean/s", f"burst/s ({BURST} times)", "workers of this machine at a burst",
            "server cores, mean", "disk GB a day", "WAL GB a day")  # fmt: skip
    return table(head, rows)


BLOCKS: dict[str, Callable[[Results], str]] = {
    "run": block_run,
    "targets": block_targets,
    "engine": lambda results: comparison(results, "engine", ("sqlite", "postgres")),
    "load": lambda results: comparison(results, "load", ("sqlite", "postgres")),
    "brokers": lambda results: comparison(results, "brokers", tuple(DATABASES)),
    "memory": block_memory,
    "scale": block_scale,
    "recovery": block_recovery,
    "model": block_model,
    "feeds": block_feeds,
}


# ---------------------------------------------------------------------------------------------------------------------
# Plots


def plots(results: Results) -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of each plot whose figures exist."""
    for database in ("sqlite", "postgres"):
        name = DATABASES[database]
        rates = _by_system(results, "engine", database, "drain, 1 process", "per_second")
        if rates:
            yield f"drain-{database}.svg", bars(f"{name}: jobs drained a second, one worker process", rates)
        series = {
            system: points
            for system in (HOLDFAST, "pgqueuer", "huey", "litequeue")
            if len(points := list(_by_processes(results, database, system))) > 1
        }
        if series:
            title = f"{name}: jobs drained a second by worker processes"
            yield f"processes-{database}.svg", lines(title, series, x_words="worker processes")
        tails = _by_system(results, "load", database, "mixed, 100 jobs a second", "p99_ms")
        if tails:
            title = f"{name}: p99 ms from submit to done, 100 jobs a second"
            yield f"mixed-{database}.svg", bars(title, tails)
    if memory := results.get("memory", {}).get("figures", []):
        series = {
            DATABASES[f["database"]]: [(f["jobs"] * (i + 1) / 10, mb) for i, mb in enumerate(f["rss_mb"])]
            for f in memory
        }
        yield "memory.svg", lines("Memory of a worker, MB", series, x_words="jobs done", top=60)


def _by_system(results: Results, suite: str, database: str, case: str, field: str) -> dict[str, float]:
    rows = [f for f in figures_of(results, suite, database) if f["case"] == case and f.get(field)]
    return {f["system"]: f[field] for f in sorted(rows, key=lambda f: -f[field])}


def _by_processes(results: Results, database: str, system: str) -> Iterator[tuple[float, float]]:
    for processes in (1, 2, 4):
        case = f"drain, {processes} process{'es' if processes > 1 else ''}"
        figure = one(results, "engine", database, case, system)
        if figure and figure.get("per_second"):
            yield processes, figure["per_second"]


def written(text: str, results: Results) -> str:
    """Return the page with every block replaced."""
    for name, block in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"The page has no marks for {name}.")
        body = block(results)
        text = pattern.sub(lambda found, body=body: f"{found[1]}{body}\n{found[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="Write docs/performance.md anew.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    results = load(parser.parse_args().results)
    folder = PAGE.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, svg in plots(results):
        (folder / name).write_text(svg, encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} files of results")


if __name__ == "__main__":
    main()
