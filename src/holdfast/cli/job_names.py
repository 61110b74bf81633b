"""How a command names a job: by its id, or by the key under which a client submitted it."""

import re
from typing import Annotated

from holdfast.cli.declare import argument
from holdfast.cli.options import ID_MAX, word
from holdfast.core.errors import InputError, JobNotFoundError
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import keyed_clients

JobName = Annotated[str, argument(metavar="ID|KEY", help="Id of the job, or the key of its submit.")]
KeyClient = Annotated[
    str | None,
    word("--client", "The argument is the key of a job of this client, although it may be a number."),
]
NAMED_MAX = 5
_NUMBER = re.compile(r"-?[0-9]{1,20}")


def job_id_of(reading: Reading, name: str, client: str | None) -> int:
    """Return the id of the job with this id, or with this key, of a client or of the only one that has used it.

    Raise InputError for a number that is no id and for a key of several clients, JobNotFoundError for an unknown key.
    """
    if client is None and _NUMBER.fullmatch(name):
        if 1 <= (job_id := int(name)) <= ID_MAX:
            return job_id
        raise InputError(
            f"{name} is not the id of a job.", next_step="Give a number from 1 on; for a key, add --client NAME."
        )
    clients = keyed_clients(reading) if client is None else [client]
    found = {of: job.job_id for (of, _), job in reading.jobs.by_key([(of, name) for of in clients]).items()}
    if not found:
        raise JobNotFoundError(
            f"no job has the key {name!r}" if client is None else f"client {client!r} has no job with the key {name!r}",
            next_step="To list the jobs with their clients and keys, run `holdfast jobs`.",
            context={"client": client, "key": name},
        )
    if len(found) > 1:
        raise InputError(
            f"{len(found)} clients have used the key {name!r}: {', '.join(map(repr, sorted(found)[:NAMED_MAX]))}.",
            next_step="Name the client with --client.",
            context={"key": name, "clients": sorted(found)[:NAMED_MAX]},
        )
    return next(iter(found.values()))
