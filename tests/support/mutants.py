"""Which files are mutated, the tests that know their rules, and why the mutants that survive may.

Invariants: the tests of a file are quick, and run on SQLite; a reason names a mutant exactly as the run prints it.
"""

from __future__ import annotations

_GUARDS = ("tests/core/test_decide.py", "tests/faults/test_models.py", "tests/store/test_guards_agree.py")
TARGETS: dict[str, tuple[str, ...]] = {
    "core/decide.py": _GUARDS,
    "core/rulings.py": (*_GUARDS, "tests/engine/test_rulings.py"),
    "core/project.py": ("tests/core/test_project.py",),
    "core/machine.py": ("tests/core/test_machine.py",),
    "core/records.py": ("tests/core/test_records.py",),
    "core/digest.py": ("tests/core/test_digest.py",),
    "core/redaction.py": ("tests/core/test_redaction.py",),
    "engine/committer.py": ("tests/engine/test_committer.py",),
    "engine/isolation.py": ("tests/engine/test_committer.py", "tests/engine/test_effect_faults.py"),
}
REASONS: dict[str, str] = {}
