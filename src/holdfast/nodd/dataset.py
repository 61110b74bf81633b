"""Datasets: one TOML file describes a dataset; an object belongs to the dataset whose pattern matches its key.

Invariants: a file is validated when it is loaded: its pattern compiles, each of its examples matches it, has the time
range it states, and matches no other dataset; topics are compared by their whole ARN; no clock is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.errors import SpecInvalidError
from holdfast.nodd.durations import seconds_of

FORMATS = ("grib2", "grib2-gzip", "grib2-wmo", "netcdf4", "nexrad-l2", "nexrad-chunk", "nexrad-l3", "opaque")
ENVELOPES = ("s3-event", "nexrad-chunk")
RULES = ("reference-and-lead", "instant", "start-and-end", "start-only", "issued")
EXTENSIONS = ("file", "storage", "forecast", "processing", "timestamps", "version")  # of STAC
GEOMETRIES = ("static", "by-field", "from-file", "station-circle")
TENTHS = "+tenths"
PRODUCT = "{product}"
ATTEMPTS_MAX = 100
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
ARN = re.compile(r"arn:aws:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

Bbox = tuple[float, float, float, float]


class TimeRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to compute the time range from the fields of a key."""

    rule: str
    reference: str
    format: str
    end: str | None = None
    lead: str | None = None
    defaults: dict[str, str] = {}

    def reference_in(self, fields: Mapping[str, str]) -> bool:
        """Return whether a key has the reference time itself, and not only the defaults for it."""
        return any(f"{{{name}}}" in self.reference for name in fields)


class Geometry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The area that the data cover: fixed here, by a field of the key, from the file, or around its station."""

    kind: str
    bbox: Bbox | None = None
    bboxes: dict[str, Bbox] = {}
    field: str | None = None
    radius_km: float | None = None


class HeaderRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the header of an object must say, to agree with its key."""

    centers: tuple[int, ...] = ()  # the originating centres of the dataset
    parameters: dict[str, tuple[int, int, int]] = {}  # discipline, category and number by the key's `element`
    meridians: dict[str, tuple[str, float]] = {}  # projection and central meridian of a model, by the key's `region`


class StacCollection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The STAC collection of the items."""

    id: str
    description: str
    license: str
    extensions: tuple[str, ...]
    keywords: tuple[str, ...] = ()


class DatasetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions that an object must meet to be catalogued."""

    min_size: int
    max_size: int
    publication_window: str  # for this long after its notice, a missing object is expected to appear
    max_age: str  # after this age, a missing object counts as expired
    silence: str = "30m"  # without notices for longer, the feed is reported as silent
    metadata_required: tuple[str, ...] = ()
    max_attempts: int | None = None  # of a unit before it fails for good, 1 to 100; None is that of every job
    provenance_may_fail: bool = False  # catalogue an object even if its provenance failed; else the unit fails
    same_observation: tuple[str, ...] = ()  # key fields that identify an observation; its later file supersedes

    @property
    def publication_window_s(self) -> float:
        return seconds_of(self.publication_window)

    @property
    def silence_s(self) -> float:
        return seconds_of(self.silence)

    @property
    def max_age_s(self) -> float:
        return seconds_of(self.max_age)


class ExpectedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leads that a series of files has in the runs of some cycles."""

    series: dict[str, str]  # the fields of the key that all files of the series share
    cycles: tuple[str, ...]
    leads: str  # in hours: "0-120, 123-384/3"
    complete_after: str  # how long after its cycle a run is published as a whole

    @property
    def complete_after_s(self) -> float:
        """Return in seconds how long after its cycle a run is published as a whole."""
        return seconds_of(self.complete_after)

    def hours(self) -> list[float]:
        """Return the leads in hours; raise ValueError if the text is not a list of ranges."""
        found: list[float] = []
        for part in self.leads.split(","):
            span, _, step = part.strip().partition("/")
            first, _, last = span.partition("-")
            found += (float(hour) for hour in range(int(first), int(last or first) + 1, int(step or 1)))
        return found


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key with the time range and fields that it must give."""

    key: str
    source: str | None = None  # where this key was seen: a repository and a path in it, or an address; None if made up
    start: str
    end: str | None = None
    bucket: str | None = None
    fields: dict[str, str] = {}


class DatasetSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a dataset's file."""

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
    runs: tuple[ExpectedRun, ...] = ()  # of series whose leads are known beforehand
    header: HeaderRules = HeaderRules()
    archives: dict[str, str] = {}  # buckets without new objects, with their former topics; only for backfill
    sidecars: tuple[str, ...] = ()
    subscribe_prefixes: tuple[str, ...] = ()
    list_prefixes: tuple[str, ...] = ()  # for one day, with the codes of strftime, and {product} for each product
    list_products: tuple[str, ...] = ()  # the products that are listed if none is named

    @property
    def lists_products(self) -> bool:
        """Return whether a product is part of the prefixes that are listed."""
        return any(PRODUCT in prefix for prefix in self.list_prefixes)

    def prefixes_of(self, products: Sequence[str] = ()) -> list[str]:
        """Return the prefixes to list for some products, or for the usual ones."""
        chosen = products or self.list_products or ("",)
        prefixes = (prefix.replace(PRODUCT, product) for prefix in self.list_prefixes for product in chosen)
        return list(dict.fromkeys(prefixes))


class TimeRange(msgspec.Struct, frozen=True):
    """The time range of the data, and the reference time of a forecast. An unknown end is None."""

    start: datetime
    end: datetime | None
    reference: datetime | None = None


class Match(msgspec.Struct, frozen=True):
    """A key that matches a dataset, with the fields of the key."""

    dataset: Dataset
    key: str
    fields: Mapping[str, str]
    sidecar_of: str | None = None  # the key of the object that it belongs to

    @property
    def time_range(self) -> TimeRange:
        """Return the time range of the key; raise ValueError if its fields are not a time."""
        return self.dataset.time_range(self.fields)


class Dataset:
    """A dataset: its buckets and topics, the pattern of its keys, and the conditions for its objects."""

    def __init__(self, name: str, spec: DatasetSpec) -> None:
        self.name = name
        self.spec = spec
        try:
            self.pattern = re.compile(spec.key)
        except re.error as error:
            raise _invalid(name, "key", f"is not a regular expression: {error}") from None

    def __repr__(self) -> str:
        return f"Dataset({self.name!r})"

    def match(self, key: str) -> Match | None:
        """Match a key, also one of a sidecar; return None if it does not belong to the dataset."""
        found = self.pattern.fullmatch(key)
        if found is not None:
            return Match(self, key, _fields(found))
        for suffix in self.spec.sidecars:
            if key.endswith(suffix) and (main := self.pattern.fullmatch(key.removesuffix(suffix))):
                return Match(self, key, _fields(main), sidecar_of=key.removesuffix(suffix))
        return None

    def time_range(self, fields: Mapping[str, str]) -> TimeRange:
        """Return the time range for the fields of a key; raise ValueError if they are not a time, or disagree."""
        rule = self.spec.time
        values = {**rule.defaults, **fields}
        if "cycle" in fields and fields.get("hour", fields["cycle"]) != fields["cycle"]:
            raise ValueError("the hour of the directory is not the cycle of the file")
        reference = _moment(rule.reference.format_map(values), rule.format)
        if rule.rule == "reference-and-lead":
            valid = reference + _lead(values[rule.lead or ""])
            return TimeRange(valid, valid, reference)
        if rule.rule == "instant":
            return TimeRange(reference, reference)
        if rule.rule == "start-and-end":
            return TimeRange(reference, _moment((rule.end or "").format_map(values), rule.format))
        return TimeRange(reference, None)


def _fields(found: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in found.groupdict().items() if value is not None}


def _moment(text: str, form: str) -> datetime:
    tenths = 0
    if form.endswith(TENTHS):
        form, tenths, text = form.removesuffix(TENTHS), int(text[-1]), text[:-1]
    return datetime.strptime(text, form).replace(tzinfo=UTC) + timedelta(milliseconds=100 * tenths)


def _lead(text: str) -> timedelta:
    """Return a lead: up to three digits are hours, of more the last two are minutes; `tm` is before the cycle."""
    digits = text.lstrip("ftm")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 3 else (digits, "0")
    lead = timedelta(hours=int(hours), minutes=int(minutes))
    return -lead if text.startswith("tm") else lead


# ---------------------------------------------------------------------------------------------------------------------
# Loading


class Datasets:
    """The known datasets, by name, bucket and topic."""

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        self._by_name = dict(sorted(datasets.items()))
        self._by_bucket: dict[str, list[Dataset]] = {}
        for dataset in self._by_name.values():
            for bucket in (*dataset.spec.buckets, *dataset.spec.archives):
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
        """Return the buckets of all datasets; no other bucket is read."""
        return frozenset(self._by_bucket)

    def match(self, bucket: str, key: str) -> Match | None:
        """Return the dataset and fields of an object; None if it belongs to no dataset."""
        for dataset in self._by_bucket.get(bucket, ()):
            found = dataset.match(key)
            if found is not None:
                return found
        return None

    def topics(self) -> dict[str, str]:
        """Return the bucket of each topic by its ARN."""
        return {arn: bucket for dataset in self for bucket, arn in dataset.spec.buckets.items()}

    def _require_examples(self, dataset: Dataset) -> None:
        for number, example in enumerate(dataset.spec.examples):
            where = f"examples[{number}]"
            for bucket in [example.bucket] if example.bucket else dataset.spec.buckets:
                homes = [other.name for other in self._by_bucket.get(bucket, ()) if other.match(example.key)]
                if homes != [dataset.name]:
                    raise _invalid(
                        dataset.name,
                        where,
                        f"{example.key} must belong to {dataset.name} alone, but belongs to {homes or 'no dataset'}",
                    )
            found = dataset.match(example.key)
            if found is None:
                raise _invalid(dataset.name, where, f"{example.key} does not match the pattern")
            for field, value in example.fields.items():
                if found.fields.get(field) != value:
                    raise _invalid(dataset.name, where, f"{field} is {found.fields.get(field)!r}, not {value!r}")
            range_ = found.time_range
            end = datetime.fromisoformat(example.end) if example.end else range_.end
            if (range_.start, range_.end) != (datetime.fromisoformat(example.start), end):
                raise _invalid(
                    dataset.name, where, f"{example.key} gives the time range {range_.start} to {range_.end}"
                )

    def _require_topics(self) -> None:
        seen: dict[str, str] = {}
        for dataset in self:
            for bucket, arn in dataset.spec.buckets.items():
                if seen.setdefault(arn, bucket) != bucket:
                    raise _invalid(
                        dataset.name, f"buckets.{bucket}", f"{arn} is already the topic of bucket {seen[arn]}"
                    )


def load(name: str, text: str) -> Dataset:
    """Return the dataset that a TOML text describes; raise SpecInvalidError if the text is not valid."""
    if not NAME.fullmatch(name):
        raise _invalid(name, "", "the name of a dataset has only lowercase letters, digits and single dashes")
    try:
        spec = msgspec.convert(tomllib.loads(text), DatasetSpec)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(name, "", f"is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise _invalid(name, path.strip("`.") or "", problem) from None
    for path, value, known in (
        ("envelope", spec.envelope, ENVELOPES),
        ("format", spec.format, FORMATS),
        ("time.rule", spec.time.rule, RULES),
        ("geometry.kind", spec.geometry.kind, GEOMETRIES),
    ):
        if value not in known:
            raise _invalid(name, path, f"{value!r} is not one of {', '.join(known)}")
    _require_extensions(name, spec)
    for bucket, arn in (*spec.buckets.items(), *spec.archives.items()):
        if not BUCKET.fullmatch(bucket) or not ARN.fullmatch(arn):
            raise _invalid(name, f"buckets.{bucket}", "needs the name of a bucket and the ARN of its SNS topic")
    if not spec.buckets or not spec.examples:
        raise _invalid(name, "examples", "needs at least one bucket and one example")
    if spec.policy.max_attempts is not None and not 1 <= spec.policy.max_attempts <= ATTEMPTS_MAX:
        raise _invalid(name, "policy.max_attempts", f"must be from 1 to {ATTEMPTS_MAX}")
    for path, age in (
        ("policy.publication_window", spec.policy.publication_window),
        ("policy.max_age", spec.policy.max_age),
        ("policy.silence", spec.policy.silence),
    ):
        try:
            seconds_of(age)
        except ValueError:
            raise _invalid(name, path, f"{age!r} is not a duration; write for example 30m, 2h or 7d") from None
    return Dataset(name, spec)


def _require_extensions(name: str, spec: DatasetSpec) -> None:
    named = spec.collection.extensions
    unknown = [extension for extension in named if extension not in EXTENSIONS]
    if unknown:
        raise _invalid(name, "collection.extensions", f"{unknown[0]!r} is not one of {', '.join(EXTENSIONS)}")
    if spec.policy.same_observation and "version" not in named:
        raise _invalid(name, "collection.extensions", "must include version, because policy.same_observation is set")


@cache
def shipped() -> Datasets:
    """Return the datasets that come with Holdfast."""
    return Datasets(_of_directory(files("holdfast.nodd").joinpath("datasets")))


def with_own(directory: Path | None) -> Datasets:
    """Return the shipped datasets and those of a directory, whose files replace shipped ones of the same name.

    Raises SpecInvalidError if the directory does not exist, or one of its files is not valid.
    """
    if directory is None:
        return shipped()
    if not directory.is_dir():
        raise SpecInvalidError(f"{directory} is not a directory", context={"path": str(directory)})
    return Datasets({dataset.name: dataset for dataset in shipped()} | _of_directory(directory))


def _of_directory(directory: Any) -> dict[str, Dataset]:
    found = {}
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            name = entry.name.removesuffix(".toml")
            found[name] = load(name, entry.read_text(encoding="utf-8"))
    return found


def _invalid(name: str, path: str, problem: str) -> SpecInvalidError:
    where = f"{name}.toml: {path} " if path else f"{name}.toml: "
    return SpecInvalidError(where + problem, context={"dataset": name, "path": path})
