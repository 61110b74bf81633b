"""Why the tables or triggers of a database are not those of a ledger that this version of Holdfast knows.

Invariants: nothing is written.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.errors import EnforcementDriftError, NotALedgerError, SchemaVersionError


def other_tables(tables: set[str]) -> NotALedgerError:
    """Return the error for tables with names of Holdfast, without a record of migrations."""
    return NotALedgerError(
        f"the database has a table {min(tables)} but no record of migrations",
        next_step="Use another database or schema; this one has other tables with names of Holdfast.",
        context={"tables": sorted(tables)},
    )


def other_version(applied: Mapping[int, str], known: Mapping[int, str]) -> SchemaVersionError:
    """Return the error for a record of migrations that is empty, newer, or differs; the arguments are digests."""
    if not applied:
        return SchemaVersionError(
            "the table holdfast_migrations is empty, so the version of the schema is unknown",
            next_step="Restore the table holdfast_migrations from a backup.",
        )
    unknown = sorted(applied.keys() - known.keys())
    if unknown:
        return SchemaVersionError(
            f"the schema of the ledger is newer: it has migration {unknown[-1]:04d}, this Holdfast {max(known):04d}",
            next_step="Upgrade Holdfast on this machine.",
            context={"ledger": unknown[-1], "holdfast": max(known)},
        )
    changed = [number for number, digest in applied.items() if known[number] != digest]
    return SchemaVersionError(
        f"migration {changed[0]:04d} of the ledger differs from migration {changed[0]:04d} of this Holdfast",
        next_step="Use the version of Holdfast that created this ledger.",
        context={"changed": changed},
    )


def older(missing: Sequence[int]) -> SchemaVersionError:
    """Return the error for a ledger to which migrations have not been applied, given by their numbers."""
    return SchemaVersionError(
        f"the schema of the ledger is older than this Holdfast: migration {missing[0]:04d} is missing",
        next_step="Run `holdfast migrate`.",
        context={"missing": list(missing)},
    )


def other_enforcement(differing: Sequence[str]) -> EnforcementDriftError:
    """Return the error for triggers, functions, indexes or machines that differ from this version's."""
    return EnforcementDriftError(
        f"the triggers or machines of the ledger differ from this version of Holdfast: {', '.join(differing)}",
        context={"differs": list(differing)},
    )
