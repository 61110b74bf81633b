"""Spec files: any bytes give a selection or the path of what is wrong; what is written reads back the same."""

from __future__ import annotations

import builtins
import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.cli.documents import DEPTH_MAX, DOCUMENT, FILE_BYTES_MAX, load_tree, parse_tree, write_tree, yaml_text
from holdfast.cli.nodd.replay import NODD_SPEC
from holdfast.cli.replay.spec_files import HOLDFAST_SPEC, SpecFormat, selection_of, tree_of
from holdfast.core.errors import ExtraMissingError, FileThereError, InputError, SpecInvalidError
from holdfast.core.machines import JobState
from holdfast.core.selection import (
    Attempts,
    Limits,
    Options,
    ReplayMode,
    Selection,
    SelectionFilters,
    Window,
    selection_fault,
)

pytestmark = pytest.mark.attack("input")

SPEC = """
apiVersion: kfm.nodd.replay/v1alpha1
kind: ReplaySelection
metadata:
  name: goes-drain
  description: Replay GOES failures after the schema fix.
  env: prod
  labels:
    replay_reason: dlq-drain
    incident_id: INC-2301
spec:
  mode: failed-only
  filters:
    datasets: [goes-abi]
    datasets_exclude: [hrrr]
    operations: [nodd.ingest]
    status: [failed]
    error_codes: [stac_validation_failed, io_error]
    event_time: {start: 2026-12-04T00:00:00Z, end: "2026-12-04T06:00:00+01:00"}
    created_at: {start: 2026-12-04 00:00:00Z}
    time_range_overlap: {end: 2026-12-04T06:00:00.5Z}
    attempts: {min: 1, max: 3}
    wal_ids: [12, "013", a.png]
  limits: {max_records: 5000, batch_size: 500, max_batches: 15}
  options: {dry_run: false, allow_repair_and_replace: false, respect_kill_switch: true, notes: "see the ticket"}
"""
EXPECTED = Selection(
    name="goes-drain",
    env="prod",
    description="Replay GOES failures after the schema fix.",
    labels={"replay_reason": "dlq-drain", "incident_id": "INC-2301"},
    mode=ReplayMode.FAILED_ONLY,
    filters=SelectionFilters(
        queues=("goes-abi",),
        queues_exclude=("hrrr",),
        operations=("nodd.ingest",),
        status=(JobState.FAILED,),
        error_codes=("stac_validation_failed", "io_error"),
        event_time=Window(start=datetime(2026, 12, 4, tzinfo=UTC), end=datetime(2026, 12, 4, 5, tzinfo=UTC)),
        created_at=Window(start=datetime(2026, 12, 4, tzinfo=UTC)),
        time_range_overlap=Window(end=datetime(2026, 12, 4, 6, 0, 0, 500_000, tzinfo=UTC)),
        attempts=Attempts(min=1, max=3),
        jobs=("12", "013", "a.png"),
        id_field="wal_id",
    ),
    limits=Limits(max_records=5000, batch_size=500, max_batches=15),
    options=Options(dry_run=False, notes="see the ticket"),
)
SMALL = """
apiVersion: kfm.nodd.replay/v1alpha1
kind: ReplaySelection
metadata: {name: s, env: dev}
spec:
  filters:
    datasets: [a]
"""


def read(text: str | bytes, kind: str = ".yaml", spec: SpecFormat = NODD_SPEC) -> Selection:
    return selection_of(parse_tree(text.encode() if isinstance(text, str) else text, kind=kind), spec)


def path_of(text: str | bytes, kind: str = ".yaml", spec: SpecFormat = NODD_SPEC) -> Any:
    with pytest.raises(SpecInvalidError) as caught:
        read(text, kind, spec)
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith(f"{caught.value.context['path']}: ")
    return caught.value.context["path"]


def as_json(text: str) -> str:
    """A spec as JSON, through YAML's own loader: it would make times of what we keep as text."""
    return json.dumps(yaml.load(text, Loader=yaml.BaseLoader))  # noqa: S506 - it makes text of everything


# ---------------------------------------------------------------------------------------------------------------------
# What can be taken


@pytest.mark.req("K-54")
def test_a_spec_with_every_field_is_read() -> None:
    assert read(SPEC) == EXPECTED
    assert read("\ufeff" + SPEC) == EXPECTED
    document = tree_of(EXPECTED, NODD_SPEC)
    assert read(json.dumps(document), ".json") == EXPECTED
    assert read(json.dumps(document, indent=2), "") == EXPECTED  # it begins with a brace
    assert read(json.dumps(document, indent=2), ".yaml") == EXPECTED  # JSON is YAML
    assert read(SPEC, ".txt") == EXPECTED


def test_a_spec_with_few_fields_is_read() -> None:
    assert read(SMALL) == Selection(name="s", env="dev", filters=SelectionFilters(queues=("a",)))
    assert read(SMALL).hash == Selection(name="s", env="dev", filters=SelectionFilters(queues=("a",))).hash
    nothing = SMALL.replace("datasets: [a]", "created_at: null\n    attempts: ~")
    assert read(nothing) == Selection(name="s", env="dev")


def test_words_that_other_readers_change_stay_words() -> None:
    words = "[no, on, y, 1e3, 0x10, 0o7, 012, 1_000, 1:30, .inf, 2026-01-01, <<, =, 12e03, 0b1, -, off]"
    text = SMALL.replace("[a]", words)
    assert list(read(text).filters.queues) == words.strip("[]").split(", ")


# ---------------------------------------------------------------------------------------------------------------------
# What cannot


def changed(old: str, new: str, *, of: str = SMALL) -> str:
    assert old in of
    return of.replace(old, new)


@pytest.mark.req("K-54", "K-53")
@pytest.mark.parametrize(
    "text, path",
    [
        # Of another kind, or of none.
        (changed("v1alpha1", "v1alpha2"), "apiVersion"),
        (changed("v1alpha1", "v1beta1") + "  unknown: 1\n", "apiVersion"),
        (changed("apiVersion: kfm.nodd.replay/v1alpha1", ""), "apiVersion"),
        (changed("apiVersion: kfm.nodd.replay/v1alpha1", "apiVersion: 1"), "apiVersion"),
        (changed("ReplaySelection", "NoddEnvOverlay"), "kind"),
        (changed("kind: ReplaySelection", "kind: [ReplaySelection]"), "kind"),
        ("", DOCUMENT),
        ("# only a comment\n", DOCUMENT),
        ("- a\n- b\n", DOCUMENT),
        ("just text", DOCUMENT),
        ("42", DOCUMENT),
        ("null", DOCUMENT),
        # Fields that are missing, unknown, or twice there.
        (changed("name: s, ", ""), "metadata.name"),
        (changed("metadata: {name: s, env: dev}\n", ""), "metadata"),
        (changed("metadata: {name: s, env: dev}", "metadata: s"), "metadata"),
        (changed("spec:\n  filters:\n    datasets: [a]\n", ""), "spec"),
        (changed("  filters:\n    datasets: [a]\n", "  mode: failed-only\n"), "spec.filters"),
        (changed("  filters:\n    datasets: [a]\n", "  filters:\n"), "spec.filters"),
        (SMALL + "status: failed\n", "status"),
        (SMALL + "    dataset: a\n", "spec.filters.dataset"),
        (SMALL + "    created_at: {from: 2026-01-01T00:00:00Z}\n", "spec.filters.created_at.from"),
        (SMALL + "  limits: {rate: 5}\n", "spec.limits.rate"),
        (SMALL + "  options: {force: true}\n", "spec.options.force"),
        (changed("env: dev}", "env: dev, owner: me}"), "metadata.owner"),
        (SMALL + "    datasets: [b]\n", "spec.filters.datasets"),
        (changed("env: dev}", "env: dev, env: dev}"), "metadata.env"),
        # Of another type.
        (changed("[a]", "a"), "spec.filters.datasets"),
        (changed("[a]", "[a, 1]"), "spec.filters.datasets[1]"),
        (changed("[a]", "[a, null]"), "spec.filters.datasets[1]"),
        (changed("[a]", "[[a]]"), "spec.filters.datasets[0]"),
        (changed("[a]", "null"), "spec.filters.datasets"),
        (changed("name: s", "name: 7"), "metadata.name"),
        (changed("name: s", "name: true"), "metadata.name"),
        (changed("env: dev}", "env: dev, labels: {incident_id: 1187}}"), "metadata.labels.incident_id"),
        (changed("env: dev}", "env: dev, labels: [a]}"), "metadata.labels"),
        (SMALL + "  limits: {batch_size: '5'}\n", "spec.limits.batch_size"),
        (SMALL + "  limits: {batch_size: 5.5}\n", "spec.limits.batch_size"),
        (SMALL + "  limits: {batch_size: true}\n", "spec.limits.batch_size"),
        (SMALL + "  limits: {batch_size: 0}\n", "spec.limits.batch_size"),
        (SMALL + "  limits: {max_records: 99999999999999999999}\n", "spec.limits.max_records"),
        (SMALL + "  options: {dry_run: yes}\n", "spec.options.dry_run"),
        (SMALL + "  options: {dry_run: 'true'}\n", "spec.options.dry_run"),
        (SMALL + "  mode: everything\n", "spec.mode"),
        (SMALL + "    status: [lost]\n", "spec.filters.status[0]"),
        (SMALL + "    wal_ids: 12\n", "spec.filters.wal_ids"),
        (SMALL + "    wal_ids: [1.5]\n", "spec.filters.wal_ids[0]"),
        # Contradictions.
        (changed("env: dev", "env: test"), "metadata.env"),
        (SMALL + "    datasets_exclude: [a]\n", "spec.filters.datasets_exclude"),
        (SMALL + "    attempts: {min: 3, max: 2}\n", "spec.filters.attempts.max"),
        (SMALL + "    status: [failed, pending]\n", "spec.filters.status[1]"),
        (SMALL + "    status: [running]\n", "spec.filters.status[0]"),
        (SMALL + "    status: []\n", "spec.filters.status"),
        (SMALL + "  mode: repair-and-replace\n", "spec.filters.status"),
        (changed("env: dev", "env: prod") + "  options: {respect_kill_switch: false}\n",
         "spec.options.respect_kill_switch"),
        (SMALL + "    created_at: {start: 2026-01-02T00:00:00Z, end: 2026-01-01T00:00:00Z}\n",
         "spec.filters.created_at.end"),
        (SMALL + "    created_at: {start: 2026-01-01T00:00:00Z, end: 2026-01-01T01:00:00+01:00}\n",
         "spec.filters.created_at.end"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_with_its_path(text: str, path: str) -> None:
    assert path_of(text) == path


@pytest.mark.req("K-54")
@pytest.mark.parametrize("kind", [".yaml", ".json"])
@pytest.mark.parametrize(
    "moment",
    [
        "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00", "2026-01-01T00:00:00.5", "2026-13-01T00:00:00Z",
        "20260101T000000Z", "2026-W01-1", "1767225600", "yesterday", "0001-01-01T00:00:00+01:00", "2026-01-01T24:00Z",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["start", "end"])
@pytest.mark.parametrize("name", ["created_at", "event_time", "time_range_overlap"])
def test_a_time_without_a_zone_is_no_time(name: str, end: str, moment: str, kind: str) -> None:
    text = SMALL + f"    {name}: {{{end}: {moment}}}\n"
    assert path_of(as_json(text) if kind == ".json" else text, kind) == f"spec.filters.{name}.{end}"


@pytest.mark.parametrize(
    "text, path",
    [
        (SMALL + "---\n" + SMALL, DOCUMENT),
        ("--- {}\n--- {}\n", DOCUMENT),
        (changed("[a]", "&a [a]"), "spec.filters.datasets"),
        (changed("[a]", "[a]\n    operations: *a"), "spec.filters.operations"),
        (changed("[a]", "[&x a, *x]"), "spec.filters.datasets[0]"),
        (changed("metadata: {", "metadata: &m {"), "metadata"),
        ("&root\n" + SMALL.lstrip(), DOCUMENT),
        (changed("[a]", "!!set {a}"), "spec.filters.datasets"),
        (changed("[a]", "!!python/object/apply:os.system [a]"), "spec.filters.datasets"),
        (changed("[a]", "[!!str a]"), "spec.filters.datasets[0]"),
        (changed("[a]", "[! a]"), "spec.filters.datasets[0]"),
        (changed("name: s", "!!str name: s"), "metadata"),
        ("%TAG !e! tag:example.com,2026:\n---\n" + SMALL, DOCUMENT),
        (changed("datasets: [a]", "<<: {datasets: [a]}"), "spec.filters.<<"),
        (changed("datasets: [a]", "? [datasets]\n    : [a]"), "spec.filters"),
        (changed("[a]", "[a"), DOCUMENT),
        (changed("[a]", "@a"), DOCUMENT),
        (changed("[a]", '["\\UFFFFFFFF"]'), DOCUMENT),
        (changed("[a]", '["\\ud800"]'), "spec.filters.datasets[0]"),
        (changed("[a]", '["\\0"]'), "spec.filters.datasets[0]"),
        (changed("ReplaySelection", '"\\ud800"'), "kind"),
        (SMALL + '    status: ["\\udfff"]\n', "spec.filters.status[0]"),
        (SMALL + '    created_at: {start: "\\udfff"}\n', "spec.filters.created_at.start"),
        (SMALL + '    "\\ud800": 1\n', "spec.filters"),
        (changed("[a]", "[a]\n\t- b"), DOCUMENT),
        ("a: \x07", DOCUMENT),
        ("a: " * 20000, DOCUMENT),
        ("- " * 20000, "[0]" * DEPTH_MAX),
        ("a: " + "[" * 20000, "a" + "[0]" * (DEPTH_MAX - 1)),
        ("? " * 20000, DOCUMENT),
    ],
    ids=lambda text: repr(text)[-40:],
)
def test_only_plain_data_of_yaml_is_accepted(text: str, path: str) -> None:
    begun = time.perf_counter()
    assert path_of(text) == path
    assert time.perf_counter() - begun < 5


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor() -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" if i else "l0: &l0 [lol]" for i in range(9)]
    assert path_of("\n".join(levels)) == "l0"


@pytest.mark.parametrize(
    "text, path",
    [
        ("{", DOCUMENT),
        ("[]", DOCUMENT),
        ('"text"', DOCUMENT),
        ("null", DOCUMENT),
        ('{"a": NaN}', DOCUMENT),
        ('{"a": Infinity}', DOCUMENT),
        ('{"a": ' + "9" * 5000 + "}", DOCUMENT),
        ('{"a": 1} {"b": 2}', DOCUMENT),
        ("{'a': 1}", DOCUMENT),
        ('{"a": {"b": 1, "b": 2}}', "a.b"),
        ('{"a": [{"b": 1, "b": 1}]}', "a[0].b"),
        ('{"a": ' * 40 + "1" + "}" * 40, ".".join("a" * DEPTH_MAX)),
        ("[" * 30000, DOCUMENT),
        ('{"apiVersion": "kfm.nodd.replay/v1alpha1", "kind": "ReplaySelection", "metadata": 1, "spec": 2}', "metadata"),
    ],
    ids=lambda text: repr(text)[:30],
)
def test_json_specs_are_checked_in_the_same_way(text: str, path: str) -> None:
    assert path_of(text, ".json") == path


def test_a_file_that_is_not_text_or_too_large_is_refused() -> None:
    assert path_of(b"\xff\xfe") == DOCUMENT
    assert path_of(SMALL.encode("utf-16")) == DOCUMENT
    padded = SMALL + "#" * (FILE_BYTES_MAX - len(SMALL))
    assert read(padded).name == "s"
    assert path_of(padded + "#") == DOCUMENT


def test_a_very_long_key_is_shortened_in_the_error() -> None:
    path = path_of(json.dumps({**tree_of(EXPECTED, NODD_SPEC), "x" * 60_000: 1}), ".json")
    assert path == "x" * 200 + "…"


# ---------------------------------------------------------------------------------------------------------------------
# Any bytes at all


def taken_or_refused(data: bytes, kind: str) -> None:
    try:
        selection = selection_of(parse_tree(data, kind=kind), NODD_SPEC)
    except SpecInvalidError as error:
        if not error.context["path"]:
            raise
        return
    assert selection_fault(selection) is None
    assert len(selection.hash) == 64
    assert selection_of(parse_tree(yaml_text(tree_of(selection, NODD_SPEC)).encode()), NODD_SPEC) == selection


KINDS = st.sampled_from([".yaml", ".json", ""])
PIECES = [line + "\n" for line in (SPEC + SMALL).splitlines()] + [
    "---\n", "...\n", "%YAML 1.2\n", "&a ", "*a", "!!str ", "? ", ": ", "- ", "[", "]", "{", "}", ",", '"', "'",
    "\\x", "\t", "|\n", ">-\n", "#", "\x85", "\u2028", "\ufeff", "\\ud800", "2026-01-01", "null", "~", "\x00", "<<: ",
    "é", "1e999", "-",
]  # fmt: skip


@given(st.binary(max_size=400), KINDS)
@example(b"!<%FF> a", "")
@example(b'"\\UFFFFFFFF"', "")
@example(b"%YAML " + b"9" * 5000 + b".1\n--- a", "")
@example(b"a: |9\n b", "")
@example(b"\xef\xbb\xbf\xef\xbb\xbfa: 1", "")
def test_any_bytes_are_taken_or_refused(data: bytes, kind: str) -> None:
    taken_or_refused(data, kind)


@given(st.lists(st.sampled_from(PIECES), max_size=40), KINDS)
def test_pieces_of_specs_in_any_order_are_taken_or_refused(pieces: list[str], kind: str) -> None:
    taken_or_refused("".join(pieces).encode(), kind)


@given(st.data())
def test_a_spec_with_a_few_bytes_changed_is_taken_or_refused(data: st.DataObject) -> None:
    as_yaml = data.draw(st.booleans())
    raw = bytearray((SPEC if as_yaml else json.dumps(tree_of(EXPECTED, NODD_SPEC))).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    taken_or_refused(bytes(raw), ".yaml" if as_yaml else ".json")


# ---------------------------------------------------------------------------------------------------------------------
# What is written reads back the same

TEXT = st.text(min_size=1, max_size=30).filter(
    lambda t: t.strip() and "\x00" not in t and _encodes(t)
) | st.sampled_from(
    ["no", "1e3", "0x10", "~", "2026-01-01", "1_0", "=", "<<", "'", '"', "a: b", "- a", "#", "\x85", "\ufeff", "é", "…"]
)
MOMENTS = st.datetimes(
    min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-6)), timezone(timedelta(hours=5, minutes=45))]),
)  # fmt: skip


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


WINDOWS = st.none() | st.builds(Window, start=st.none() | MOMENTS, end=st.none() | MOMENTS)
COUNTS = st.none() | st.integers(1, 10**6)
WORDS = st.lists(TEXT, max_size=3).map(tuple)
SELECTIONS = st.builds(
    Selection,
    name=TEXT,
    env=st.sampled_from(["dev", "stage", "prod"]),
    description=st.none() | TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    mode=st.sampled_from(list(ReplayMode)),
    filters=st.builds(
        SelectionFilters,
        queues=WORDS,
        queues_exclude=WORDS,
        operations=WORDS,
        status=st.lists(st.sampled_from(list(JobState)), max_size=3).map(tuple),
        error_codes=WORDS,
        event_time=WINDOWS,
        created_at=WINDOWS,
        time_range_overlap=WINDOWS,
        attempts=st.none() | st.builds(Attempts, min=COUNTS, max=COUNTS),
        jobs=WORDS,
        id_field=st.none() | TEXT,
    ),
    limits=st.builds(Limits, max_records=COUNTS, batch_size=COUNTS, max_batches=COUNTS),
    options=st.builds(
        Options,
        dry_run=st.none() | st.booleans(),
        allow_repair_and_replace=st.booleans(),
        respect_kill_switch=st.booleans(),
        notes=st.none() | TEXT,
    ),
)


@pytest.mark.parametrize("text", ["0\x85", "\x85", "a\x85b", "a\u2028", "\u2029 a", "a\n", " a ", "…"])
def test_a_text_with_breaks_in_it_reads_back_the_same(text: str) -> None:
    assert parse_tree(yaml_text({"a": [text], text: 1}).encode(), kind=".yaml") == {"a": [text], text: 1}


@pytest.mark.req("K-54")
@pytest.mark.parametrize("spec", [HOLDFAST_SPEC, NODD_SPEC], ids=lambda spec: spec.api_version)
@given(made=SELECTIONS)
def test_a_selection_that_is_written_reads_back_the_same(made: Selection, spec: SpecFormat) -> None:
    selection = made if spec is HOLDFAST_SPEC else identified_by_wal_id(made)
    tree = tree_of(selection, spec)
    fault = selection_fault(selection)
    for text, kind in ((yaml_text(tree), ".yaml"), (json.dumps(tree), ".json")):
        if fault is not None:
            assert path_of(text, kind, spec) == spec.path(fault.path)
            continue
        back = read(text, kind, spec)
        assert back == selection
        assert back.hash == selection.hash


def identified_by_wal_id(selection: Selection) -> Selection:
    """Return a selection as a spec file of NODD can write it."""
    id_field = "wal_id" if selection.filters.jobs else None
    return msgspec.structs.replace(selection, filters=msgspec.structs.replace(selection.filters, id_field=id_field))


@pytest.mark.req("K-54")
def test_each_program_reads_its_own_version_and_its_own_names() -> None:
    general = changed("kfm.nodd.replay/v1alpha1", "holdfast.replay/v1").replace("datasets:", "queues:")
    assert read(general, spec=HOLDFAST_SPEC) == read(SMALL)
    assert path_of(general) == "apiVersion"
    assert path_of(SMALL, spec=HOLDFAST_SPEC) == "apiVersion"
    assert path_of(changed("datasets:", "queues:")) == "spec.filters.queues"
    assert path_of(changed("datasets:", "id_field: wal_id\n    datasets:")) == "spec.filters.id_field"
    assert path_of(general.replace("queues:", "datasets:"), spec=HOLDFAST_SPEC) == "spec.filters.datasets"
    assert path_of(general.replace("[a]", "['']"), spec=HOLDFAST_SPEC) == "spec.filters.queues[0]"
    assert path_of(changed("[a]", "['']")) == "spec.filters.datasets[0]"
    running = SMALL + "    status: [in_progress]\n"
    tree = parse_tree(running.encode())
    assert selection_of(tree, NODD_SPEC, to_replay=False).filters.status == (JobState.RUNNING,)
    assert path_of(general + "    status: [in_progress]\n", spec=HOLDFAST_SPEC) == "spec.filters.status[0]"


@pytest.mark.req("K-54")
@pytest.mark.parametrize("spec", [HOLDFAST_SPEC, NODD_SPEC], ids=lambda spec: spec.api_version)
def test_the_json_schema_of_a_spec_comes_from_its_types(spec: SpecFormat) -> None:
    schema = spec.json_schema()
    filters = schema["$defs"][spec.filters.__name__]
    assert set(filters["properties"]) == set(spec.filters.__struct_fields__)
    assert filters["additionalProperties"] is False


@pytest.mark.parametrize("name", ["s.yaml", "s.yml", "s.json", "s"])
def test_a_file_is_written_once_and_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_tree(path, tree_of(EXPECTED, NODD_SPEC))
    assert selection_of(load_tree(path), NODD_SPEC) == EXPECTED
    before = path.read_bytes()
    with pytest.raises(FileThereError):
        write_tree(path, tree_of(read(SMALL), NODD_SPEC))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "no" / "where", Path("a\x00b"), tmp_path / ("n" * 300)):
        with pytest.raises(InputError) as caught:
            load_tree(path)
        assert caught.value.exit_code == 2
        assert caught.value.context["file"] == str(path)
    for path in (tmp_path / "no" / "s.yaml", tmp_path / ("n" * 300)):
        with pytest.raises(InputError):
            write_tree(path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_is_named_beside_the_path(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("[")
    with pytest.raises(SpecInvalidError) as caught:
        load_tree(tmp_path / "s.yaml")
    assert caught.value.context == {"path": DOCUMENT, "line": 1, "column": 2, "file": str(tmp_path / "s.yaml")}


def test_without_the_extra_json_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_yaml(name: str, *args: Any, **more: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return imported(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    assert read(json.dumps(tree_of(EXPECTED, NODD_SPEC)), ".json") == EXPECTED
    with pytest.raises(ExtraMissingError) as caught:
        read(SMALL)
    assert (caught.value.exit_code, caught.value.code) == (2, "extra_missing")
