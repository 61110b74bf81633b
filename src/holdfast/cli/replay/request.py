"""The selection that a spec file and flags make together.

A flag may set what the file leaves open. A flag that contradicts the file is refused: the file keeps its meaning.

Invariants: flags and files become the same document and pass the same checks; an error names the flag or the file.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.cli.documents import Tree, invalid, load_tree
from holdfast.cli.replay.flags import PaceFlags, SelectionFlags
from holdfast.cli.replay.program import Program
from holdfast.cli.replay.spec_files import SpecFormat, selection_of
from holdfast.core.errors import InputError, SpecInvalidError
from holdfast.core.selection import ReplayMode, Selection

UNNAMED = "command-line"  # the name of a selection that was made of flags


class FlagValue(NamedTuple):
    """A flag, the path of its field in a spec, and its value."""

    flag: str
    path: str
    value: Any


def flag_values(program: Program, chosen: SelectionFlags, paced: PaceFlags | None = None) -> list[FlagValue]:
    """Return the flags that were given, as fields of a spec."""
    given = (*_selecting(program.queue, chosen), *_pacing(paced or PaceFlags()))
    return [FlagValue(flag, program.spec.path(path), value) for flag, path, value in given if value not in (None, [])]


def _selecting(queue: str, chosen: SelectionFlags) -> Iterator[FlagValue]:
    yield FlagValue(f"--{queue}", "spec.filters.queues", _words(chosen.queue, chosen.queue_in))
    yield FlagValue("--operation", "spec.filters.operations", _words(chosen.operation))
    yield FlagValue("--status", "spec.filters.status", _words(None, chosen.status))
    yield FlagValue("--error-code", "spec.filters.error_codes", _words(chosen.error_code, chosen.error_code_in))
    yield FlagValue("--event-time-start", "spec.filters.event_time.start", chosen.event_time_start)
    yield FlagValue("--event-time-end", "spec.filters.event_time.end", chosen.event_time_end)
    yield FlagValue("--created-after", "spec.filters.created_at.start", chosen.created_after)
    yield FlagValue("--created-before", "spec.filters.created_at.end", chosen.created_before)
    yield FlagValue("--attempts-max", "spec.filters.attempts.max", chosen.attempts_max)
    yield FlagValue("--limit", "spec.limits.max_records", chosen.limit)


def _pacing(paced: PaceFlags) -> Iterator[FlagValue]:
    yield FlagValue("--batch-size", "spec.limits.batch_size", paced.batch_size)
    yield FlagValue("--max-batches", "spec.limits.max_batches", paced.max_batches)
    yield FlagValue("--mode", "spec.mode", None if paced.mode is None else str(paced.mode))
    if paced.mode is ReplayMode.REPAIR_AND_REPLACE:
        # Typing the mode allows it; the run still needs a grant.
        yield FlagValue("--mode", "spec.options.allow_repair_and_replace", value=True)


def _words(one: str | None, several: str | None = None) -> list[str]:
    return ([] if one is None else [one]) + ([] if several is None else [word.strip() for word in several.split(",")])


class SelectionRequest(NamedTuple):
    """A document that selects jobs, and where it came from."""

    spec: SpecFormat
    tree: Tree
    file: Path | None
    flags: dict[str, str]  # the flag that set a field, by the field's path

    @property
    def env(self) -> str | None:
        """Return the environment that the file names."""
        metadata = self.tree.get("metadata")
        env = metadata.get("env") if isinstance(metadata, dict) else None
        return env if isinstance(env, str) else None

    def selection(self, env: str | None, *, to_replay: bool = True) -> Selection:
        """Return the selection for an environment, or raise SpecInvalidError."""
        tree = self.tree if self.file else _with(self.tree, "metadata.env", env or "dev")
        try:
            made = selection_of(tree, self.spec, to_replay=to_replay)
        except SpecInvalidError as error:
            flag = self.flags.get(str(error.context["path"]).partition("[")[0])
            error.context |= {"flag": flag} if flag else {"file": str(self.file)} if self.file else {}
            raise
        if env is not None and made.env != env:
            raise invalid("metadata.env", f"the selection is for {made.env}, but --env is {env}")
        return made


def selection_request(spec: SpecFormat, file: Path | None, flags: list[FlagValue]) -> SelectionRequest:
    """Return the document that a file, if there is one, and flags make together."""
    empty = {
        "apiVersion": spec.api_version,
        "kind": spec.kind,
        "metadata": {"name": UNNAMED},
        "spec": {"filters": {}},
    }
    tree = load_tree(file) if file else empty
    for flag, path, value in flags:
        present = _at(tree, path) if file else None
        if present is not None and not _same(present, value):
            raise InputError(
                f"{flag} contradicts {path} in {file}",
                next_step=f"Remove {flag}, or change {path} in {file}.",
                context={"flag": flag, "path": path, "file": str(file)},
            )
        if present is None:
            tree = _with(tree, path, value)
    return SelectionRequest(spec, tree, file, {path: flag for flag, path, _ in flags})


def _at(tree: object, path: str) -> object:
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _with(tree: Tree, path: str, value: object) -> Tree:
    """Return a document with one more field; a document that is not a mapping is refused later by the checks."""
    name, _, rest = path.partition(".")
    if not rest:
        return {**tree, name: value}
    inner = {} if tree.get(name) is None else tree[name]
    return {**tree, name: _with(inner, rest, value)} if isinstance(inner, dict) else tree


def _same(one: object, other: object) -> bool:
    """Return whether two values of a field are equal, without the order of lists and the zone of times."""
    if isinstance(one, list) and isinstance(other, list):
        return {*map(str, one)} == {*map(str, other)}
    if isinstance(one, str) and isinstance(other, str) and one != other:
        return _moment(one) == _moment(other) is not None
    return one == other


def _moment(text: str) -> datetime | None:
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.utcoffset() is not None else None
