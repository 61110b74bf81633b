"""How a command names a job: by its id, or by the key under which a client submitted it."""

import re
from typing import Annotated

from holdfast.cli.declare import argument
from holdfast.cli.options import ID_MAX, word
from holdfast.core.errors import InputError, JobNotFoundError
from holdfast.store.transaction import Reading

JobName = Annotated[str, argument(metavar="ID|KEY", help="Id of the job, or the key of its submit.")]
KeyClient = Annotated[
    str | None,
    word("--client", "The argument is the key of a job of this client (default for a key that is no number: local)."),
]
_NUMBER = re.compile(r"-?[0-9]{1,20}")


def job_id_of(reading: Reading, name: str, client: str | None) -> int:
    """Return the id of the job with this id, or with this key of a client.

    Raise InputError for a number that is no id, JobNotFoundError if the client has no job with this key.
    """
    if client is None and _NUMBER.fullmatch(name):
        if 1 <= (job_id := int(name)) <= ID_MAX:
            return job_id
        raise InputError(
            f"{name} is not the id of a job.", next_step="Give a number from 1 on; for a key, add --client NAME."
        )
    of = client or "local"
    found = reading.jobs.by_key([(of, name)])
    if not found:
        raise JobNotFoundError(
            f"client {of!r} has no job with the key {name!r}",
            next_step="To list the jobs with their clients and keys, run `holdfast jobs`.",
            context={"client": of, "key": name},
        )
    return found[of, name].job_id
