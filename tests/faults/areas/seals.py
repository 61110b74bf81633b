"""Faults of the seals: what a seal covers, when one is written, and what a verification compares."""

from __future__ import annotations

from tests.faults.seeded import BOTH, Patch, SeededFault

SEALER = "audit/seals/sealer.py"
CHAIN = "audit/seals/chain.py"
VERIFIER = "audit/seals/verify.py"
SEALS = "tests/audit/test_seals.py"
TAMPERING = "tests/audit/test_tampering.py"

FAULTS = (
    SeededFault(
        id="seals.row_not_hashed",
        meaning="The first row of each page is left out of the hash of its block.",
        patches=(Patch(SEALER, "_close", "hashed.update(row_lines(page))", "hashed.update(row_lines(page[1:]))"),),
        tests=(f"{SEALS}::test_a_sealing_closes_full_blocks_and_the_rest", f"{SEALS}::test_whole_work_is_sealed"),
        databases=BOTH,
    ),
    SeededFault(
        id="seals.previous_not_hashed",
        meaning="The hash of a seal does not cover the hash of the seal before it.",
        patches=(Patch(SEALER, "", '"digest", "previous",', '"digest",'),),
        tests=(f"{SEALS}::test_the_bytes_of_a_seal_never_change", f"{TAMPERING}::test_an_edited_seal"),
    ),
    SeededFault(
        id="seals.format_not_hashed",
        meaning="The hash of a seal does not cover the number of the format of its rows.",
        patches=(Patch(SEALER, "", '"seal_id", "format", "epoch",', '"seal_id", "epoch",'),),
        tests=(f"{SEALS}::test_the_bytes_of_a_seal_never_change", f"{TAMPERING}::test_an_edited_seal"),
    ),
    SeededFault(
        id="seals.broken_end_covered_up",
        meaning="A seal is added to a chain whose last seals were cut off or changed.",
        patches=(Patch(SEALER, "_SealingView.look", "require_sound_end(meta, last)", "pass"),),
        tests=(f"{SEALS}::test_nothing_is_sealed_after_a_broken_end",),
        databases=BOTH,
    ),
    SeededFault(
        id="seals.digest_not_compared",
        meaning="A verification compares the number of rows of a block, not their digest.",
        patches=(
            Patch(
                VERIFIER,
                "_PassingBlock.is_as_sealed",
                "(self.rows, self._hashed.hexdigest()) == (self.seal.rows, self.seal.digest)",
                "self.rows == self.seal.rows",
            ),
        ),
        tests=(f"{TAMPERING}::test_an_edited_row",),
        databases=BOTH,
    ),
    SeededFault(
        id="seals.link_not_compared",
        meaning="A verification does not compare a seal with the hash of the seal before it.",
        patches=(Patch(CHAIN, "SealChain._judged", "elif seal.previous != self._previous:", "elif False:"),),
        tests=(f"{TAMPERING}::test_the_links_of_an_edited_seal", f"{TAMPERING}::test_two_seals_that_changed_places"),
        databases=BOTH,
    ),
    SeededFault(
        id="seals.own_hash_not_compared",
        meaning="A verification does not recompute the hash of a seal.",
        patches=(Patch(CHAIN, "SealChain._judged", "if seal_hash(seal) != seal.hash:", "if False:"),),
        tests=(f"{TAMPERING}::test_an_edited_seal",),
        databases=BOTH,
    ),
    SeededFault(
        id="seals.saved_head_not_compared",
        meaning="A verification does not compare the chain with the saved head.",
        patches=(Patch(CHAIN, "SealChain._compare_head", "if head.hash != found:", "if False:"),),
        tests=(f"{TAMPERING}::test_history_rewritten_with_all_its_hashes_is_found_through_a_head",),
        databases=BOTH,
    ),
    SeededFault(
        id="seals.missing_end_not_noticed",
        meaning="A verification does not notice that the last seals are gone.",
        patches=(Patch(CHAIN, "SealChain.judge_end", "if noted != found:", "if False:"),),
        tests=(f"{TAMPERING}::test_seals_that_are_cut_off",),
        databases=BOTH,
    ),
)
