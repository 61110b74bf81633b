"""Operations: named, versioned kinds of work, and the calls that are made of them.

Invariants: arguments are checked against the handler's annotations when a call is made and again when it is decoded,
so a mismatch is an error where the call is submitted; what is stored is canonical JSON; a handler can always be called
plainly as `operation.fn`; several versions of one operation can be declared, and a job runs on one that fits its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Unpack, get_type_hints, overload

import msgspec

from holdfast.core.digest import Json, payload_text, read_back, within
from holdfast.core.errors import ArgumentsError, InputError
from holdfast.core.guarded import GuardedMeta, guarded
from holdfast.core.protocol import chosen, newest, ranked
from holdfast.core.records import REPLAY_ATTEMPTS
from holdfast.core.typevars import P, R, R_co, T
from holdfast.engine.failures import FailureKind, classify
from holdfast.engine.worker.retry import RetryPolicy
from holdfast.store import Declared, Submission

if TYPE_CHECKING:
    from holdfast.engine.typed_settings import Settings
    from holdfast.engine.worker.execution import Execution

LEASE_S, LEASE_S_MAX = 30.0, 366 * 86_400.0
FOUND_MAX = 1000
_PLAIN = (None,) * 6
_decode = msgspec.json.Decoder().decode
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,127}")


class Given(dict[str, Any]):
    """Arguments as a caller gave them: times, tuples and the like are made JSON. Those of a Call are JSON already."""


class Call(msgspec.Struct, Generic[R_co], frozen=True, kw_only=True, metaclass=GuardedMeta):
    """An operation with its arguments: what is submitted, scheduled, replayed; typed by what its handler returns."""

    operation: str
    payload: dict[str, Json]
    client: str = "local"
    key: str | None = None
    run_at: datetime | None = None
    priority: int | None = None
    queue: str | None = None
    version: str | None = None  # of the operation; None: the newest
    unique: str | Mapping[str, Any] | None = None
    deadline_at: datetime | None = None
    deadline_s: float | None = None
    after: Sequence[Any] | None = None  # receipts or ids of jobs
    if_unsuccessful: str | None = None  # of the jobs in `after`

    def keyed(self, client: str, key: str) -> Call[R_co]:
        """Return this call under an idempotency key of a client."""
        return msgspec.structs.replace(self, client=client, key=key)

    def at(self, run_at: datetime) -> Call[R_co]:
        """Return this call for a later time."""
        return msgspec.structs.replace(self, run_at=run_at)

    def submission(self, declared: Declared, text: str) -> Submission:
        """Return what the store takes: the payload as canonical text, which is given, and the operation's defaults."""
        if self.version is not None and ranked(self.version) is None:
            raise ArgumentsError(f"{self.version!r} is not a SemVer version, such as 1.0.0")
        flow = None
        flows = self.unique, self.deadline_at, self.deadline_s, self.after, self.if_unsuccessful, declared.flow
        if flows != _PLAIN:
            from holdfast.engine.above import flow_of  # noqa: PLC0415 - only for work that is more than plain

            flow = flow_of(self, declared)
        return Submission(
            operation=self.operation,
            operation_version=self.version or declared.version,
            payload=text,
            client=self.client,
            key=self.key,
            queue=declared.queue if self.queue is None else self.queue,
            priority=declared.priority if self.priority is None else self.priority,
            run_at=self.run_at,
            max_attempts=declared.max_attempts,
            replay_attempts=declared.replay_attempts,
            flow=flow,
        )


class Operation(Generic[P, R_co]):
    """A handler with its name, version and rules."""

    built_in = False  # a built-in operation gives way to one of the user's with the same name

    @guarded
    def __init__(
        self,
        fn: Callable[Concatenate[Execution, P], R_co],
        *,
        name: str,
        version: str = "1.0.0",
        queue: str = "default",
        priority: int = 0,
        max_attempts: int | None = None,
        replay_attempts: int = REPLAY_ATTEMPTS,
        lease_s: float = LEASE_S,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        classify: Callable[[BaseException], FailureKind] = classify,
        tracebacks: bool = True,
        unique: str | Mapping[str, Any] | None = None,
        deadline_s: float | None = None,
        limit: int | str | Mapping[str, Any] | None = None,
        limit_key: str | None = None,
    ) -> None:
        self.fn = fn
        self.name = name
        self.retry = retry or (RetryPolicy() if max_attempts is None else RetryPolicy(max_attempts=max_attempts))
        is_known = ranked(version) is not None and max_attempts in (None, self.retry.max_attempts)
        is_timed = 0 < lease_s <= LEASE_S_MAX and (timeout_s is None or timeout_s > 0)
        if not (isinstance(name, str) and NAME.fullmatch(name) and is_known and is_timed):  # type: ignore[redundant-expr]
            from holdfast.engine.unfit import refuse_unfit_operation  # noqa: PLC0415 - it is refused

            refuse_unfit_operation(name, version, lease_s, timeout_s)
        self.declared = Declared(
            version=version,
            queue=queue,
            max_attempts=self.retry.budget,
            replay_attempts=replay_attempts,
            priority=priority,
        )
        if (unique, deadline_s, limit, limit_key) != _PLAIN[2:]:
            from holdfast.engine.above import declared_flow  # noqa: PLC0415 - few operations have these

            self.declared = declared_flow(self, unique, deadline_s, limit, limit_key)
        self.lease_s = lease_s
        self.timeout_s = timeout_s
        self.classify = classify
        self.tracebacks = tracebacks  # keep where a failed attempt failed
        self.is_async = inspect.iscoroutinefunction(fn)
        self._signature = inspect.signature(fn)
        self._arguments = _arguments_type(name, fn, self._signature)
        last = list(self._signature.parameters.values())[-1:]
        # The name of a `**keywords` parameter: a handler that has one takes any arguments, unchecked.
        self._keywords = last[0].name if last and last[0].kind is inspect.Parameter.VAR_KEYWORD else None
        self._decoder = msgspec.json.Decoder(self._arguments, dec_hook=_decoded)
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", name)

    def __repr__(self) -> str:
        return f"Operation({self.name!r}, version={self.version!r})"

    @property
    def version(self) -> str:
        """The version of the protocol that the handler supports."""
        return self.declared.version

    @overload
    def call(self: Operation[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Call[T]: ...

    @overload
    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]: ...

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[Any]:
        """Return a call with these arguments, checked against the handler's annotations."""
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise ArgumentsError(f"{self.name}: {error}", context={"operation": self.name}) from None
        given = dict(list(bound.arguments.items())[1:])
        given.update(given.pop(self._keywords, {}) if self._keywords else {})
        return Call(operation=self.name, payload=self.checked(given), version=self.version)

    @guarded
    def checked(self, arguments: object) -> dict[str, Json]:
        """Return arguments as the JSON object that is stored, or raise ArgumentsError."""
        return self._read(arguments)[1]

    def stored(self, arguments: object, size_max: int) -> str:
        """Return the canonical text of arguments, or raise ArgumentsError, or an error of `payload_text`."""
        text, payload = self._read(arguments)
        if type(arguments) is not Given and (text is None or payload != arguments):
            return payload_text(arguments, size_max=size_max)
        return payload_text(payload, size_max=size_max) if text is None else within(text, size_max)

    def _read(self, arguments: object) -> tuple[str | None, dict[str, Json]]:
        """Return arguments as a JSON object, with its text if that is known."""
        try:
            text, payload = read_back(arguments) or _json_object(arguments)
            if self._keywords is None:
                msgspec.convert(payload, self._arguments, dec_hook=_decoded)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ArgumentsError(f"{self.name}: {error}", context={"operation": self.name}) from None
        return text, payload

    def _judge(self, payloads: list[dict[str, Json]]) -> None:
        """Raise TypeError or ValueError unless these are arguments of the handler; they are JSON."""
        if self._keywords is None:
            msgspec.convert(payloads, list[self._arguments], dec_hook=_decoded)  # type: ignore[name-defined]  # made above

    @guarded
    def arguments(self, payload: str) -> dict[str, Any]:
        """Return the handler's keyword arguments from a stored payload, as the types of its annotations."""
        if self._keywords is not None:
            keywords: dict[str, Any] = _decode(payload)
            return keywords
        try:
            decoded = self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ArgumentsError(f"{self.name}: {error}", context={"operation": self.name}) from None
        return {name: getattr(decoded, name) for name in self._arguments.__struct_fields__}


class Operations:
    """A set of operations, declared without a ledger."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, Operation[Any, Any]]] = {}
        self._newest: dict[str, Operation[Any, Any]] = {}
        self._all: list[Operation[Any, Any]] = []
        self.found = lru_cache(FOUND_MAX)(self._get)  # `get`, for a worker that looks one up for each job

    def operation(
        self, name: str | None = None, **settings: Unpack[Settings]
    ) -> Callable[[Callable[Concatenate[Execution, P], R]], Operation[P, R]]:
        """Declare a handler as an operation. Its first parameter is the Execution; the rest are its arguments.

        The same name may be declared again with another version: each job runs on a handler that supports its own.
        """

        @guarded
        def declare(fn: Callable[Concatenate[Execution, P], R]) -> Operation[P, R]:
            made = Operation(fn, name=getattr(fn, "__name__", "") if name is None else name, **settings)
            self.add(made)
            return made

        # Without parentheses `name` is the handler, which is no name.
        return declare(name) if callable(name) else declare  # type: ignore[redundant-expr]

    @guarded
    def add(self, operation: Operation[Any, Any]) -> None:
        """Add an operation; two of one name and version are a mistake."""
        for given_way in [each for each in self._all if each.built_in and each.name == operation.name]:
            self._all.remove(given_way)
            del self._by_name[given_way.name]
        versions = self._by_name.setdefault(operation.name, {})
        there = versions.setdefault(operation.version, operation)
        if there is not operation:
            from holdfast.engine.unfit import refuse_second  # noqa: PLC0415 - it is refused

            refuse_second(operation.name, operation.version)
        if operation not in self._all:
            self._all.append(operation)
        self._newest[operation.name] = versions[newest(versions) or operation.version]
        self.found = lru_cache(FOUND_MAX)(self._get)  # what was found before may have changed

    @guarded
    def get(self, name: str, version: str | None = None) -> Operation[Any, Any] | None:
        """Return the newest operation of this name, or the one that runs jobs of a version; None if it is not here."""
        return self.found(name, version)

    def _get(self, name: str, version: str | None) -> Operation[Any, Any] | None:
        # Jobs from before versions had to be SemVer run on the newest handler of their name.
        if version is None or ranked(version) is None:
            return self._newest.get(name)
        versions = self._by_name.get(name, {})
        spoken = chosen(versions, version)
        return None if spoken is None else versions[spoken]

    @guarded
    def versions(self, name: str) -> list[str]:
        """Return the versions of an operation that are here, as they were declared."""
        return list(self._by_name.get(name, {}))

    def __iter__(self) -> Iterator[Operation[Any, Any]]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)


def _arguments_type(name: str, fn: Callable[..., Any], signature: inspect.Signature) -> type[msgspec.Struct]:
    parameters = list(signature.parameters.values())
    if not parameters:
        raise InputError(f"{name}: a handler needs a parameter for the execution", context={"operation": name})
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise InputError(f"{name}: a parameter cannot be given by name", context={"parameter": parameter.name})
    fields: list[Any] = [
        (each.name, _kind(fn, each))
        + (() if each.default is each.empty else (msgspec.field(default_factory=_always(each.default)),))
        for each in parameters[1:]
        if each.kind is not each.VAR_KEYWORD
    ]
    return msgspec.defstruct(f"{name} arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _kind(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of one parameter; an annotation that cannot be resolved does not affect the others."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    alone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = getattr(inspect.unwrap(fn), "__globals__", {})
    try:
        return get_type_hints(alone, globalns=names, include_extras=True)[parameter.name]
    except NameError:
        return Any  # a name that only a type checker sees: this argument stays unchecked


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _json_object(arguments: object) -> tuple[None, dict[str, Json]]:
    from holdfast.engine.as_json import json_object  # noqa: PLC0415 - most arguments are plain

    return None, json_object(arguments)


def _decoded(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if isinstance(value, kind):
        return value
    raise TypeError(f"{getattr(kind, '__name__', kind)} cannot be made from JSON")
