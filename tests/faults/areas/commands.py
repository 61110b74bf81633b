"""Faults of the command: flags, files of selections, exit codes, and the reports on health."""

from __future__ import annotations

from tests.faults.seeded import Patch, plain

REQUEST = "cli/replay/request.py"
TESTS = "tests/cli/test_nodd_replay.py"

FAULTS = (
    plain(
        "commands.flag_without_effect",
        "The flag --limit of a replay has no effect.",
        Patch(REQUEST, "_selecting", 'yield FlagValue("--limit", "spec.limits.max_records", chosen.limit)', "return"),
        "tests/cli/test_replay.py",
    ),
    plain(
        "commands.error_exits_with_0",
        "A replay that fails with a typed error exits as if it had succeeded.",
        Patch(
            "cli/replay/formats.py",
            "",
            "raise click.exceptions.Exit(code) from None",
            "raise click.exceptions.Exit(0) from None",
        ),
        f"{TESTS}::test_exit_codes_and_errors",
    ),
    plain(
        "commands.file_for_another_environment",
        "A selection that names another environment is carried out.",
        Patch(REQUEST, "SelectionRequest.selection", "if env is not None and made.env != env:", "if False:"),
        f"{TESTS}::test_a_spec_for_another_environment",
    ),
    plain(
        "commands.expired_leases_healthy",
        "The health report does not warn of expired leases.",
        Patch("explain/status.py", "_checks", '_check("leases", expired == 0,', '_check("leases", True,'),
        "tests/cli/test_status.py::test_health_warns_of_what_needs_action_and_its_next_step_works",
    ),
    plain(
        "commands.operator_not_recorded",
        "A job that is quarantined by hand has the account of the computer in its journal, not the named operator.",
        Patch(
            "cli/commands/quarantine/act.py",
            "",
            "put(store, job_id, code, operator=actor() if operator is None else operator,",
            "put(store, job_id, code, operator=actor(),",
        ),
        "tests/cli/test_quarantine.py::test_the_journal_has_the_operator_who_is_named_or_else_the_account",
    ),
)
