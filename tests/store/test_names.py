"""Names that one of the databases could not hold are refused by both, and an uncommitted operation is unknown."""

import pytest
from msgspec.structs import replace

from holdfast.core.errors import InputError, UnknownOperationError
from holdfast.store import Declared, Submission, Transaction, create_store

pytestmark = pytest.mark.attack("input")


@pytest.mark.parametrize("word", ["a\0b", "\ud800", "é" * 513, "x" * 1025])
@pytest.mark.parametrize("where", ["client", "key", "queue"])
def test_a_name_that_cannot_be_held_is_refused(ledger_url: str, where: str, word: str) -> None:
    with create_store(ledger_url) as store:
        with pytest.raises(InputError), store.transaction() as transaction:
            transaction.jobs.submit([replace(Submission(operation="noop", payload="{}"), **{where: word})])
        with store.reading() as reading:
            assert reading.lists.jobs() == []


@pytest.mark.parametrize("word", ["é" * 512, "x" * 1024, "tab\tand\nline", "🪸"])
def test_any_other_name_is_kept_as_it_is(ledger_url: str, word: str) -> None:
    with create_store(ledger_url) as store, store.transaction() as transaction:
        [admission] = transaction.jobs.submit([Submission(operation="noop", payload="{}", client=word, key=word)])
        assert (transaction.jobs.get(admission.job_id).client, transaction.jobs.get(admission.job_id).key) == (
            word,
            word,
        )


def test_an_operation_whose_declaration_was_rolled_back_is_unknown(ledger_url: str) -> None:
    submission = Submission(operation="never", payload="{}")
    with create_store(ledger_url) as store:
        with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
            _declare_submit_and_fail(transaction, submission)
        with pytest.raises(UnknownOperationError), store.transaction() as transaction:
            transaction.jobs.submit([submission])


def test_a_page_of_no_jobs_is_refused(ledger_url: str) -> None:
    with create_store(ledger_url) as store, store.reading() as reading, pytest.raises(InputError):
        reading.lists.jobs(limit=0)


def _declare_submit_and_fail(transaction: Transaction, submission: Submission) -> None:
    transaction.operations.declare({"never": Declared()})
    transaction.jobs.submit([submission])
    raise ZeroDivisionError
