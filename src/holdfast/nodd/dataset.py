"""Datasets: what is known of each feed, one TOML file a dataset, and which dataset a key belongs to.

Invariants: a file is checked when it is loaded: its pattern compiles, each of its examples matches it, gives the time
it says, and matches no other dataset; a topic is known by its whole ARN, never by its name alone; no clock is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.errors import SpecInvalidError
from holdfast.nodd.durations import seconds_of

FORMATS = ("grib2", "grib2-gzip", "grib2-wmo", "netcdf4", "nexrad-l2", "nexrad-chunk", "opaque")
ENVELOPES = ("s3-event", "nexrad-chunk")
RULES = ("reference-and-lead", "instant", "start-and-end", "start-only")
EXTENSIONS = ("file", "storage", "forecast", "processing", "timestamps", "version")  # of STAC
GEOMETRIES = ("static", "by-field", "from-file", "station-circle")
TENTHS = "+tenths"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
ARN = re.compile(r"arn:aws:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

Bbox = tuple[float, float, float, float]


class TimeRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the time range follows from a key's fields."""

    rule: str
    reference: str
    format: str
    end: str | None = None
    lead: str | None = None
    defaults: dict[str, str] = {}


class Geometry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the data lie: told here, by a field of the key, by the file, or by its station."""

    kind: str
    bbox: Bbox | None = None
    bboxes: dict[str, Bbox] = {}
    field: str | None = None
    radius_km: float | None = None


class StacCollection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The STAC collection that the items belong to."""

    id: str
    description: str
    license: str
    extensions: tuple[str, ...]
    keywords: tuple[str, ...] = ()


class DatasetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of an object before it is catalogued."""

    min_size: int
    max_size: int
    publication_window: str  # so long after the notice an object may not be there yet
    max_age: str  # so long after its time an object may be gone again
    metadata_required: tuple[str, ...] = ()
    provenance_may_fail: bool = False  # catalogue what provenance cannot tell of; else the unit fails
    same_observation: tuple[str, ...] = ()  # fields that tell an observation; another file of it supersedes the first

    @property
    def publication_window_s(self) -> float:
        """Return how long an object that was announced may not be there yet."""
        return seconds_of(self.publication_window)

    @property
    def max_age_s(self) -> float:
        """Return how old data may be before it is no wonder that the object is gone."""
        return seconds_of(self.max_age)


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key, and what must follow from it."""

    key: str
    start: str
    end: str | None = None
    bucket: str | None = None
    fields: dict[str, str] = {}


class DatasetSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dataset as its file has it."""

    title: str
    envelope: str
    format: str
    media: str
    key: str
    buckets: dict[str, str]
    time: TimeRule
    geometry: Geometry
    collection: StacCollection
    policy: DatasetPolicy
    examples: tuple[Example, ...]
    sidecars: tuple[str, ...] = ()
    subscribe_prefixes: tuple[str, ...] = ()
    list_prefixes: tuple[str, ...] = ()  # of one day, as strftime has it


class TimeRange(msgspec.Struct, frozen=True):
    """From when to when the data tell; the reference time of a forecast. An end that is not known is None."""

    start: datetime
    end: datetime | None
    reference: datetime | None = None


class Match(msgspec.Struct, frozen=True):
    """A key that belongs to a dataset: what its parts say."""

    dataset: Dataset
    key: str
    fields: Mapping[str, str]
    sidecar_of: str | None = None  # the key that it stands beside

    @property
    def time_range(self) -> TimeRange:
        """Return the time range that the key tells of."""
        return self.dataset.time_range(self.fields)


class Dataset:
    """A feed: its buckets and topics, what its keys mean, and what is asked of its objects."""

    def __init__(self, name: str, spec: DatasetSpec) -> None:
        self.name = name
        self.spec = spec
        try:
            self.pattern = re.compile(spec.key)
        except re.error as error:
            raise _invalid(name, "key", f"is no pattern: {error}") from None

    def __repr__(self) -> str:
        return f"Dataset({self.name!r})"

    def match(self, key: str) -> Match | None:
        """Return what a key of one of the dataset's buckets says, a sidecar's too; None if it is not the dataset's."""
        found = self.pattern.fullmatch(key)
        if found is not None:
            return Match(self, key, _told(found))
        for suffix in self.spec.sidecars:
            if key.endswith(suffix) and (main := self.pattern.fullmatch(key.removesuffix(suffix))):
                return Match(self, key, _told(main), sidecar_of=key.removesuffix(suffix))
        return None

    def time_range(self, fields: Mapping[str, str]) -> TimeRange:
        """Return the time range that a key's fields tell of; raise ValueError if they name no time."""
        rule = self.spec.time
        words = {**rule.defaults, **fields}
        reference = _moment(rule.reference.format_map(words), rule.format)
        if rule.rule == "reference-and-lead":
            valid = reference + _lead(words[rule.lead or ""])
            return TimeRange(valid, valid, reference)
        if rule.rule == "instant":
            return TimeRange(reference, reference)
        if rule.rule == "start-and-end":
            return TimeRange(reference, _moment((rule.end or "").format_map(words), rule.format))
        return TimeRange(reference, None)


def _told(found: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in found.groupdict().items() if value is not None}


def _moment(text: str, form: str) -> datetime:
    tenths = 0
    if form.endswith(TENTHS):
        form, tenths, text = form.removesuffix(TENTHS), int(text[-1]), text[:-1]
    return datetime.strptime(text, form).replace(tzinfo=UTC) + timedelta(milliseconds=100 * tenths)


def _lead(text: str) -> timedelta:
    hours = int(text.lstrip("ftm"))
    return timedelta(hours=-hours if text.startswith("tm") else hours)


# ---------------------------------------------------------------------------------------------------------------------
# Loading


class Datasets:
    """The datasets that a feed may carry, by name, bucket and topic."""

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        self._by_name = dict(sorted(datasets.items()))
        self._by_bucket: dict[str, list[Dataset]] = {}
        for dataset in self._by_name.values():
            for bucket in dataset.spec.buckets:
                self._by_bucket.setdefault(bucket, []).append(dataset)
        for dataset in self._by_name.values():
            self._require_examples(dataset)
        self._require_topics()

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Dataset:
        return self._by_name[name]

    def buckets(self) -> frozenset[str]:
        """Return every bucket that may be read from."""
        return frozenset(self._by_bucket)

    def match(self, bucket: str, key: str) -> Match | None:
        """Return the dataset's view of an object; None if no dataset knows it."""
        for dataset in self._by_bucket.get(bucket, ()):
            found = dataset.match(key)
            if found is not None:
                return found
        return None

    def topics(self) -> dict[str, str]:
        """Return the bucket of each topic, by the topic's whole ARN."""
        return {arn: bucket for dataset in self for bucket, arn in dataset.spec.buckets.items()}

    def _require_examples(self, dataset: Dataset) -> None:
        for number, example in enumerate(dataset.spec.examples):
            where = f"examples[{number}]"
            for bucket in [example.bucket] if example.bucket else dataset.spec.buckets:
                homes = [other.name for other in self._by_bucket.get(bucket, ()) if other.match(example.key)]
                if homes != [dataset.name]:
                    raise _invalid(dataset.name, where, f"{example.key} belongs to {homes or 'no dataset'}")
            found = dataset.match(example.key)
            if found is None:
                raise _invalid(dataset.name, where, f"{example.key} does not match")
            for field, value in example.fields.items():
                if found.fields.get(field) != value:
                    raise _invalid(dataset.name, where, f"{field} is {found.fields.get(field)!r}, not {value!r}")
            range_ = found.time_range
            end = datetime.fromisoformat(example.end) if example.end else range_.end
            if (range_.start, range_.end) != (datetime.fromisoformat(example.start), end):
                raise _invalid(dataset.name, where, f"{example.key} tells of {range_.start} to {range_.end}")

    def _require_topics(self) -> None:
        seen: dict[str, str] = {}
        for dataset in self:
            for bucket, arn in dataset.spec.buckets.items():
                if seen.setdefault(arn, bucket) != bucket:
                    raise _invalid(dataset.name, f"buckets.{bucket}", f"{arn} announces {seen[arn]} already")


def load(name: str, text: str) -> Dataset:
    """Return the dataset that a TOML text describes, checked by itself."""
    if not NAME.fullmatch(name):
        raise _invalid(name, "", "a dataset is named in small letters, digits and single dashes")
    try:
        spec = msgspec.convert(tomllib.loads(text), DatasetSpec)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(name, "", f"is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `$")
        raise _invalid(name, path.strip("`.") or "", words) from None
    for path, value, known in (
        ("envelope", spec.envelope, ENVELOPES),
        ("format", spec.format, FORMATS),
        ("time.rule", spec.time.rule, RULES),
        ("geometry.kind", spec.geometry.kind, GEOMETRIES),
    ):
        if value not in known:
            raise _invalid(name, path, f"{value!r} is not one of {', '.join(known)}")
    _require_extensions(name, spec)
    for bucket, arn in spec.buckets.items():
        if not BUCKET.fullmatch(bucket) or not ARN.fullmatch(arn):
            raise _invalid(name, f"buckets.{bucket}", "a bucket and the whole ARN of its topic are needed")
    if not spec.buckets or not spec.examples:
        raise _invalid(name, "examples", "a dataset has a bucket and an example at least")
    for path, age in (
        ("policy.publication_window", spec.policy.publication_window),
        ("policy.max_age", spec.policy.max_age),
    ):
        try:
            seconds_of(age)
        except ValueError:
            raise _invalid(name, path, f"{age!r} is no age: write 30m, 2h or 7d") from None
    return Dataset(name, spec)


def _require_extensions(name: str, spec: DatasetSpec) -> None:
    named = spec.collection.extensions
    unknown = [extension for extension in named if extension not in EXTENSIONS]
    if unknown:
        raise _invalid(name, "collection.extensions", f"{unknown[0]!r} is not one of {', '.join(EXTENSIONS)}")
    if spec.policy.same_observation and "version" not in named:
        raise _invalid(name, "collection.extensions", "lacks version, by which files of one observation are marked")


@cache
def shipped() -> Datasets:
    """Return the datasets that come with Holdfast."""
    return Datasets(_of_directory(files("holdfast.nodd").joinpath("datasets")))


def with_own(directory: Path | None) -> Datasets:
    """Return the shipped datasets and those of a user's own directory; a file of the same name takes the place."""
    if directory is None:
        return shipped()
    if not directory.is_dir():
        raise SpecInvalidError(f"{directory} is not a directory of datasets", context={"path": str(directory)})
    return Datasets({dataset.name: dataset for dataset in shipped()} | _of_directory(directory))


def _of_directory(directory: Any) -> dict[str, Dataset]:
    found = {}
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            name = entry.name.removesuffix(".toml")
            found[name] = load(name, entry.read_text(encoding="utf-8"))
    return found


def _invalid(name: str, path: str, words: str) -> SpecInvalidError:
    where = f"{name}.toml: {path} " if path else f"{name}.toml: "
    return SpecInvalidError(where + words, context={"dataset": name, "path": path})
