"""Which files are mutated, the tests that know their rules, and why the mutants that survive may.

Invariants: the tests of a file are quick, and run on SQLite; those of ON_POSTGRES run on both databases; a reason names
a mutant exactly as the run prints it.
"""

from __future__ import annotations

_GUARDS = ("tests/core/test_decide.py", "tests/faults/test_models.py", "tests/store/test_guards_agree.py")
_CRASHES = "tests/engine/test_testing.py"
_ROUTING = "tests/engine/test_routing.py"
TARGETS: dict[str, tuple[str, ...]] = {
    "core/decide.py": _GUARDS,
    "core/stepwise.py": _GUARDS,
    "core/rulings.py": (*_GUARDS, "tests/engine/test_rulings.py"),
    "core/project.py": ("tests/core/test_project.py",),
    "core/machine.py": ("tests/core/test_machine.py",),
    "core/machine_flaws.py": ("tests/core/test_machine.py",),
    "core/records.py": ("tests/core/test_records.py",),
    "core/digest.py": ("tests/core/test_digest.py",),
    "core/canonical_lines.py": ("tests/core/test_canonical_lines.py",),
    "core/exact_json.py": ("tests/core/test_digest.py",),
    "core/json_input.py": ("tests/core/test_digest.py",),
    "core/redaction.py": ("tests/core/test_redaction.py", "tests/engine/test_error_messages.py"),
    "core/secret_kinds.py": ("tests/core/test_redaction.py",),
    "core/entries.py": ("tests/core/test_machine.py",),
    "core/authority.py": (
        "tests/governance/test_authority.py",
        "tests/governance/test_grants_forged.py",
        "tests/governance/test_grants.py",
    ),
    "core/governed.py": (*_GUARDS, "tests/governance/test_vocabulary.py"),
    "core/rollback.py": ("tests/governance/test_rollback.py", "tests/governance/test_vocabulary.py"),
    "core/vocabulary.py": ("tests/governance/test_vocabulary.py", "tests/governance/test_rollback.py"),
    "core/manifest.py": ("tests/governance/test_vocabulary.py",),
    "core/selection.py": ("tests/governance/test_selection.py",),
    "core/protocol.py": (
        f"{_ROUTING}::test_a_handler_supports_a_version_of_its_major",
        f"{_ROUTING}::test_the_exact_or_newest_compatible_handler_is_chosen",
        f"{_ROUTING}::test_the_chosen_handler_is_the_best_compatible_one",
        f"{_ROUTING}::test_a_version_is_semver",
        f"{_ROUTING}::test_pre_releases_rank_as_semver_says",
        f"{_ROUTING}::test_a_version_has_at_most_64_characters",
        f"{_ROUTING}::test_a_version_that_does_not_rank_is_below_all_others",
        "tests/governance/test_rollback.py",
    ),
    "core/arguments.py": (
        "tests/core/test_arguments.py",
        "tests/engine/test_arguments.py",
        "tests/engine/test_bad_arguments.py",
    ),
    "core/guarded.py": ("tests/core/test_arguments.py",),
    "core/limits.py": ("tests/core/test_limits.py", "tests/store/test_limits.py", "tests/scheduling/test_limits.py"),
    "core/limit_texts.py": ("tests/core/test_limits.py",),
    "core/errors.py": ("tests/core/test_errors.py", "tests/engine/test_error_messages.py"),
    "core/feature_errors.py": ("tests/core/test_errors.py",),
    "core/candidates.py": ("tests/core/test_texts.py", "tests/governance/test_replay_candidates.py"),
    "core/pairing.py": ("tests/core/test_machine.py",),
    "core/frames.py": ("tests/core/test_texts.py",),
    "core/instruments.py": ("tests/telemetry/test_metrics.py",),
    "core/spans.py": ("tests/core/test_texts.py",),
    "core/printable.py": ("tests/core/test_texts.py",),
    "core/log_names.py": ("tests/core/test_texts.py",),
    "core/steps.py": ("tests/engine/test_retention.py",),
    "core/seals.py": ("tests/audit/test_seals.py",),
    "engine/committer.py": (
        "tests/engine/test_committer.py",
        f"{_CRASHES}::test_a_crash_at_any_point_costs_no_job_and_no_second_effect",
        f"{_CRASHES}::test_a_crashed_submit_is_there_or_not_at_all",
        f"{_CRASHES}::test_commit_and_finish_can_be_run_apart_without_a_fault",
    ),
    "engine/isolation.py": (
        "tests/engine/test_isolation.py",
        "tests/engine/test_committer.py",
        "tests/engine/test_effect_faults.py",
        "tests/engine/test_effect_waits.py",
        f"{_CRASHES}::test_commit_and_finish_can_be_run_apart_without_a_fault",
        f"{_CRASHES}::test_a_crash_at_any_point_costs_no_job_and_no_second_effect",
    ),
}
# What these do with effects that wait or lose their connection, only PostgreSQL shows.
ON_POSTGRES = frozenset({"engine/committer.py", "engine/isolation.py"})
_PRINTABLE = "equal: the character at the bound can be printed"
_REMEMBERED = "how much is remembered; the answers are the same"
_WORDS = "the words of a message; tests compare codes and fields"
_TRUTH = "equal: only whether it is true counts"
_SLOWER = "equal: the other writer, which is slower, writes the same text"
_LOST = "equal: no loss and one loss are both below LOSSES_EXCUSED"
REASONS: dict[str, str] = {
    "core/decide.py step_of: `invariant(len(steps) == 1, f'a move with {len(steps)} steps of {machine}')` removed": (
        "a check of the program against itself: no move has two steps of a machine"
    ),
    "core/decide.py decide: `type(command) not in _GUARDS` becomes `type(command) in _GUARDS`": (
        "equal here: it says when a module is imported, and the tests have imported it"
    ),
    "core/decide.py guards: `return guard` becomes `return None`": "equal: no caller uses the names of the guards",
    "core/machine.py Machine.__repr__: `return f'Machine({self.name!r})'` becomes `return None`": "for debugging only",
    "core/records.py Attempt.__init__: `0` becomes `1`": _LOST,
    "core/rulings.py _expire: `0` becomes `1`": _LOST,
    "core/rollback.py _follower: `row.successor_code is None or row.successor_version is None` with and": (
        "equal: the database requires both or neither"
    ),
    "core/limits.py Tokens.next_at: `missing <= TINY` becomes `missing < TINY`": "equal: times are whole microseconds",
    "core/limits.py rule_of: `1` becomes `2`": "equal: only the first part is used",
    "core/limits.py Room.free_slot: `2` becomes `3`": "equal: a lower slot is free",
    "core/spans.py age: `seconds > 0` becomes `seconds >= 0`": "equal: less than a second is `now`",
    "core/printable.py _Escapes.__missing__: `code < 256` becomes `code <= 256`": _PRINTABLE,
    "core/printable.py _Escapes.__missing__: `256` becomes `257`": _PRINTABLE,
    "core/printable.py _Escapes.__missing__: `code < 65536` becomes `code <= 65536`": _PRINTABLE,
    "core/printable.py _Escapes.__missing__: `65536` becomes `65537`": _PRINTABLE,
    "core/printable.py _Escapes.__missing__: `len(self) < _KNOWN_MAX` becomes `len(self) <= _KNOWN_MAX`": _REMEMBERED,
    "core/redaction.py _Printable.__missing__: `len(self) < _KNOWN_MAX` becomes `len(self) <= _KNOWN_MAX`": _REMEMBERED,
    "core/redaction.py _beginning: `0` becomes `1`": "equal: a space at the start is not in the second half",
    "core/protocol.py ranked: `0` becomes `1`": "equal: among words the number is the same for all",
    "core/digest.py canonical: `text.isascii() or unicodedata.is_normalized('NFC', text)` with and": _SLOWER,
    "core/digest.py refuse_foreign: `return False` becomes `return None`": _TRUTH,
    "core/digest.py refuse_foreign: `False` becomes `True`": _SLOWER,
    "core/digest.py refuse_foreign: `kind is str or (kind is int and -_SMALL < item < _SMALL)` with and": _SLOWER,
    "core/digest.py _written_differently: `return False` becomes `return None`": _TRUTH,
    "core/digest.py _written_differently: `False` becomes `True`": _SLOWER,
    "core/exact_json.py _shortest: `abs(number) < 2 ** 53` becomes `abs(number) <= 2 ** 53`": (
        "equal: the number at the bound is written alike by both"
    ),
    "core/selection.py _in_range: `return False` becomes `return None`": _TRUTH,
    "core/arguments.py refuse: `value is None` becomes `value is not None`": _WORDS,
    "core/arguments.py refuse: `isinstance(value, str | int | float | datetime) and (not isinstance(value, bool))`"
    " with or": _WORDS,
    "core/arguments.py refuse: `kind += ' with a value that cannot be used'` removed": _WORDS,
    "core/arguments.py refuse: `not isinstance(value, bool)` without not": _WORDS,
    "core/arguments.py _is_function: `return False` becomes `return None`": _TRUTH,
    "core/vocabulary.py shown: `80` becomes `81`": "how much of a text a message shows",
    "core/vocabulary.py shown: `return repr(value)[:80] if isinstance(value, str) else type(value).__name__` becomes"
    " `return None`": "the words of a message; tests compare codes",
    "engine/committer.py _Batch.__init__: `self.woken.acquire()` removed": "equal: it looks once more before it waits",
    "engine/committer.py Committer.perform: `batch.woken.acquire(timeout=LOST_S)` removed": (
        "the same answers: it would only spin"
    ),
    "engine/committer.py Committer._lead: `False` becomes `True`": "equal: a task that has its answer keeps it",
    "engine/committer.py Committer._lead: `True` becomes `False`": (
        "of `zip`: equal, each batch has one that follows; of `taken`: it counts only if a thread is stopped between"
        " two lines, as the queue is emptied beside it"
    ),
    "engine/committer.py Committer._write: `True` becomes `False`": "equal: a set has an outcome for each of its tasks",
    "engine/isolation.py ran_in_two: `return False` becomes `return None`": _TRUTH,
}
