"""Corruptions of the application's tables: each by a raw edit, each with all that a check must find.

Invariants: a corruption names every violation it causes, as (invariant, subject), on both databases; whatever else a
check reports of that ledger is a false alarm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from holdfast.core.digest import canonical
from holdfast.nodd import stac
from tests.audit.knife import Knife, unguarded
from tests.audit.rich import Rich
from tests.enforcement.raw import Client
from tests.nodd.busy import Busy

Found = set[tuple[str, str]]
GHOST = "00000000-0000-5000-8000-000000000000"


class Hand:
    """A raw client of a busy ledger: foreign keys are off."""

    def __init__(self, client: Client, busy: Busy) -> None:
        self.run, self.busy = client.run, busy
        self._changed = client.changed

    def set(self, table: str, key: str, subject: str | int, /, **columns: object) -> None:
        """Edit columns of one row."""
        sets = ", ".join(f"{column} = ?" for column in columns)
        assert self._changed(f"UPDATE {table} SET {sets} WHERE {key} = ?", *columns.values(), subject) == 1

    def unit(self, wal_id: str, /, **columns: object) -> None:
        """Edit a unit."""
        self.set("nodd_units", "wal_id", wal_id, **columns)

    def job(self, wal_id: str) -> int:
        """Return the job of a unit."""
        return int(self.get("nodd_units", "wal_id", wal_id, "job_id"))

    def item(self, wal_id: str) -> str:
        """Return the item of a unit."""
        return str(self.get("nodd_items", "wal_id", wal_id, "item_id"))

    def get(self, table: str, key: str, subject: str, column: str) -> Any:
        [[value]] = self.run(f"SELECT {column} FROM {table} WHERE {key} = ?", subject)
        return value

    def said(self, item_id: str) -> dict[str, Any]:
        """Return what an item says."""
        return dict(json.loads(self.get("nodd_items", "item_id", item_id, "item")))

    def say(self, item_id: str, said: dict[str, Any], *, forged: bool = False) -> None:
        """Let an item say something else, with a digest that fits if it is well forged."""
        content = {"content": stac.content_digest(said)} if forged else {}
        self.set("nodd_items", "item_id", item_id, item=canonical(said), **content)

    def observation(self, wal_id: str) -> str:
        """Return the observation that lists the file of a unit."""
        rows = self.run("SELECT observation FROM nodd_observations WHERE files LIKE ?", f"%{wal_id}%")
        return str(rows[0][0])


Plant = Callable[[Hand], Found]
CORRUPTIONS: dict[str, Plant] = {}
OF_JOBS: set[str] = set()  # these edit the ledger's own tables too


@contextmanager
def by_hand(url: str, busy: Busy, *, of_jobs: bool = False) -> Iterator[Hand]:
    """Yield a hand, for jobs too if their guards are to be off; when the block ends, what it did is committed."""
    if of_jobs:
        with unguarded(url, cast("Rich", None)) as knife:
            yield _hand_of(knife, busy)
        return
    client = Client(url)
    client.rollback()
    client.run("PRAGMA foreign_keys = OFF" if client.dialect == "sqlite" else "SET session_replication_role = replica")
    try:
        client.begin()
        yield Hand(client, busy)
        client.commit()
    finally:
        client.close()


def _hand_of(knife: Knife, busy: Busy) -> Hand:
    return Hand(knife.client, busy)


def corrupt(url: str, busy: Busy, name: str) -> Found:
    """Plant a corruption, and return what a check must find: no less and no more."""
    with by_hand(url, busy, of_jobs=name in OF_JOBS) as hand:
        return CORRUPTIONS[name](hand)


def listed(plant: Plant) -> Plant:
    CORRUPTIONS[plant.__name__] = plant
    return plant


def of_jobs(plant: Plant) -> Plant:
    OF_JOBS.add(plant.__name__)
    return listed(plant)


def unit(wal_id: str, *invariants: str) -> Found:
    return {(invariant, f"UNIT {wal_id}") for invariant in invariants}


def item(item_id: str, *invariants: str) -> Found:
    return {(invariant, f"ITEM {item_id}") for invariant in invariants}


def job(job_id: int) -> Found:
    return {("units_have_jobs", f"JOB {job_id}")}


MISCOUNTED: Found = {("admitted_counted", "COUNTS gfs/admitted")}

# ---------------------------------------------------------------------------------------------------------------------
# Tables


@listed
def a_table_that_is_gone(hand: Hand) -> Found:
    hand.run("DROP TABLE nodd_rejected")
    return {("tables", "TABLE nodd_rejected")}


@listed
def a_view_that_is_gone(hand: Hand) -> Found:
    hand.run("DROP VIEW nodd_wal_records")
    return {("tables", "VIEW nodd_wal_records")}


# ---------------------------------------------------------------------------------------------------------------------
# Units and jobs


@listed
def a_unit_of_no_job(hand: Hand) -> Found:
    before = hand.job(hand.busy.failed)
    hand.unit(hand.busy.failed, job_id=7777)
    return unit(hand.busy.failed, "units_have_jobs") | job(before)


@listed
def a_unit_of_a_job_of_another_kind(hand: Hand) -> Found:
    before = hand.job(hand.busy.failed)
    [[other]] = hand.run("SELECT min(job_id) FROM holdfast_jobs WHERE operation = 'nodd.publish'")
    hand.unit(hand.busy.failed, job_id=other)
    return unit(hand.busy.failed, "units_have_jobs") | job(before)


@listed
def a_job_without_its_unit(hand: Hand) -> Found:
    before = hand.job(hand.busy.failed)
    hand.run("DELETE FROM nodd_units WHERE wal_id = ?", hand.busy.failed)
    return job(before) | MISCOUNTED


@listed
def a_replacement_that_was_lost(hand: Hand) -> Found:
    now = hand.job(hand.busy.carried)
    [[before]] = hand.run("SELECT replaces FROM holdfast_calls WHERE job_id = ?", now)
    hand.unit(hand.busy.carried, job_id=before, created_before=None, attempts_before=0, version_before=0)
    return job(now)


@of_jobs
def a_job_about_nothing(hand: Hand) -> Found:
    [[waiting]] = hand.run("SELECT max(job_id) FROM holdfast_calls WHERE replaces IS NOT NULL")
    hand.set("holdfast_calls", "job_id", waiting, payload="[]")
    return job(waiting)


@listed
def another_etag_than_was_announced(hand: Hand) -> Found:
    hand.unit(hand.busy.second, etag="0" * 32)
    found = item(hand.item(hand.busy.second), "items_fit_objects")
    return unit(hand.busy.second, "units_as_announced") | found


@listed
def another_size_than_was_announced(hand: Hand) -> Found:
    hand.unit(hand.busy.carried, size=7)
    found = item(hand.item(hand.busy.carried), "items_fit_objects")
    return unit(hand.busy.carried, "units_as_announced") | found


@listed
def a_unit_under_another_id(hand: Hand) -> Found:
    hand.unit(hand.busy.failed, wal_id=GHOST)
    return unit(GHOST, "units_as_announced")


@listed
def a_unit_of_another_object(hand: Hand) -> Found:
    hand.unit(hand.busy.held, source_uri="s3://noaa-gfs-bdp-pds/elsewhere")
    return unit(hand.busy.held, "units_as_announced")


@of_jobs
def a_payload_that_cannot_be_read(hand: Hand) -> Found:
    hand.set("holdfast_calls", "job_id", hand.job(hand.busy.failed), payload="{")
    return unit(hand.busy.failed, "units_as_announced")


@of_jobs
def a_slimmed_job_under_another_key(hand: Hand) -> Found:
    hand.set("holdfast_calls", "job_id", hand.job(hand.busy.slimmed), key="another")
    return unit(hand.busy.slimmed, "units_as_announced")


@listed
def a_replacement_that_forgot(hand: Hand) -> Found:
    [[before]] = hand.run("SELECT replaces FROM holdfast_calls WHERE job_id = ?", hand.job(hand.busy.carried))
    hand.unit(hand.busy.carried, created_before=None)
    return unit(hand.busy.carried, "replacements_carry_on") | job(before)


@listed
def attempts_without_an_execution(hand: Hand) -> Found:
    hand.unit(hand.busy.failed, attempts_before=3)
    return unit(hand.busy.failed, "replacements_carry_on")


# ---------------------------------------------------------------------------------------------------------------------
# Generations


@listed
def two_current_generations(hand: Hand) -> Found:
    hand.unit(hand.busy.first, superseded_by=None)
    return unit(hand.busy.first, "one_current_generation")


@listed
def no_current_generation(hand: Hand) -> Found:
    hand.unit(hand.busy.third, superseded_by=hand.busy.first)
    return unit(hand.busy.third, "one_current_generation")


@listed
def superseded_by_what_is_not_there(hand: Hand) -> Found:
    hand.unit(hand.busy.second, superseded_by=GHOST)
    return unit(hand.busy.second, "one_current_generation")


@listed
def a_generation_that_supersedes_another_than_the_last(hand: Hand) -> Found:
    hand.unit(hand.busy.third, supersedes=hand.busy.first)
    return unit(hand.busy.third, "one_current_generation")


@listed
def a_generation_that_was_left_out(hand: Hand) -> Found:
    hand.unit(hand.busy.third, generation=4)
    return unit(hand.busy.third, "one_current_generation", "units_as_announced")


@listed
def a_sequencer_that_runs_backwards(hand: Hand) -> Found:
    hand.unit(hand.busy.second, sequencer="f")
    return unit(hand.busy.third, "sequencers_grow") | unit(hand.busy.second, "units_as_announced")


@listed
def a_sequencer_twice(hand: Hand) -> Found:
    hand.unit(hand.busy.third, sequencer="00000b")
    return unit(hand.busy.third, "sequencers_grow", "units_as_announced")


# ---------------------------------------------------------------------------------------------------------------------
# Items and provenance of what succeeded


@listed
def an_item_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_items WHERE wal_id = ?", hand.busy.carried)
    return unit(hand.busy.carried, "succeeded_is_catalogued")


@listed
def an_item_of_a_slimmed_job_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_items WHERE wal_id = ?", hand.busy.slimmed)
    return unit(hand.busy.slimmed, "succeeded_is_catalogued")


@listed
def an_item_of_what_is_committed_and_not_done_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_items WHERE wal_id = ?", hand.busy.committed)
    return unit(hand.busy.committed, "succeeded_is_catalogued")


@listed
def an_item_that_was_put_back(hand: Hand) -> Found:
    back = hand.item(hand.busy.second)
    hand.set("nodd_items", "item_id", back, wal_id=hand.busy.first, generation=1)
    return unit(hand.busy.second, "succeeded_is_catalogued") | item(back, "items_fit_objects")


@listed
def an_item_of_another_object_that_is_named(hand: Hand) -> Found:
    hand.unit(hand.busy.slimmed, stac_item_id=GHOST)
    return unit(hand.busy.slimmed, "succeeded_is_catalogued")


@listed
def a_success_that_an_operator_has_refused(hand: Hand) -> Found:
    hand.unit(hand.busy.slimmed, integrity_status="failed")
    return unit(hand.busy.slimmed, "succeeded_is_catalogued")


@listed
def a_success_with_an_unknown_provenance_status(hand: Hand) -> Found:
    hand.unit(hand.busy.slimmed, provenance_status="unknown")
    return unit(hand.busy.slimmed, "succeeded_is_catalogued")


@of_jobs
def a_unit_that_is_called_succeeded(hand: Hand) -> Found:
    hand.set("holdfast_jobs", "job_id", hand.job(hand.busy.failed), state="succeeded")
    return unit(hand.busy.failed, "succeeded_is_catalogued", "outcomes_kept")


@listed
def an_outcome_that_is_gone(hand: Hand) -> Found:
    hand.unit(hand.busy.slimmed, stac_status=None)
    return unit(hand.busy.slimmed, "outcomes_kept")


@listed
def an_outcome_of_what_is_committed_and_not_done_that_is_gone(hand: Hand) -> Found:
    hand.unit(hand.busy.committed, metadata_status=None)
    return unit(hand.busy.committed, "outcomes_kept")


@listed
def an_outcome_of_what_has_not_succeeded(hand: Hand) -> Found:
    hand.unit(hand.busy.failed, integrity_status="ok")
    return unit(hand.busy.failed, "outcomes_kept")


@listed
def an_outcome_that_is_not_the_result(hand: Hand) -> Found:
    hand.unit(hand.busy.first, stac_status="updated")
    return unit(hand.busy.first, "outcomes_kept")


@listed
def an_outcome_of_another_run(hand: Hand) -> Found:
    hand.unit(hand.busy.carried, ingest_run_id=f"{hand.busy.carried}/1")
    return unit(hand.busy.carried, "outcomes_kept")


@listed
def an_outcome_at_another_place(hand: Hand) -> Found:
    hand.unit(hand.busy.slimmed, stac_item_href="data/stac/nodd/gfs/elsewhere.json")
    return unit(hand.busy.slimmed, "outcomes_kept")


@listed
def an_outcome_in_another_collection(hand: Hand) -> Found:
    hand.unit(hand.busy.slimmed, stac_collection_id="nodd-hrrr")
    return unit(hand.busy.slimmed, "outcomes_kept")


@of_jobs
def a_result_that_names_another_item(hand: Hand) -> Found:
    job_id = hand.job(hand.busy.replacing)
    [[result]] = hand.run("SELECT result FROM holdfast_jobs WHERE job_id = ?", job_id)
    hand.set("holdfast_jobs", "job_id", job_id, result=canonical({**json.loads(result), "stac_item_id": GHOST}))
    return unit(hand.busy.replacing, "outcomes_kept")


@of_jobs
def a_result_that_cannot_be_read(hand: Hand) -> Found:
    hand.set("holdfast_jobs", "job_id", hand.job(hand.busy.replacing), result="{")
    return unit(hand.busy.replacing, "outcomes_kept")


@listed
def provenance_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_provenance WHERE wal_id = ?", hand.busy.carried)
    return unit(hand.busy.carried, "succeeded_has_provenance")


@listed
def provenance_of_a_slimmed_job_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_provenance WHERE wal_id = ?", hand.busy.slimmed)
    return unit(hand.busy.slimmed, "succeeded_has_provenance")


@listed
def an_edge_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_provenance WHERE wal_id = ? AND content LIKE '%wasGeneratedBy%'", hand.busy.slimmed)
    return unit(hand.busy.slimmed, "succeeded_has_provenance")


@listed
def an_event_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_provenance WHERE wal_id = ? AND kind = 'openlineage'", hand.busy.alone)
    return unit(hand.busy.alone, "succeeded_has_provenance")


@listed
def an_item_of_what_has_not_succeeded(hand: Hand) -> Found:
    moved = hand.item(hand.busy.second)
    hand.set("nodd_items", "item_id", moved, wal_id=hand.busy.third, generation=3)
    return item(moved, "written_at_commit", "items_fit_objects")


@listed
def provenance_of_what_has_not_succeeded(hand: Hand) -> Found:
    [[shared]] = hand.run("SELECT record_id FROM nodd_provenance WHERE content LIKE '%SoftwareAgent%'")
    hand.set("nodd_provenance", "record_id", shared, wal_id=hand.busy.failed)
    return unit(hand.busy.failed, "written_at_commit")


@listed
def a_record_of_provenance_that_was_edited(hand: Hand) -> Found:
    rows = hand.run("SELECT record_id, content FROM nodd_provenance WHERE wal_id = ?", hand.busy.carried)
    [(record_id, content)] = [row for row in rows if '"nodd:Object"' in row[1]]
    hand.set("nodd_provenance", "record_id", record_id, content=content.replace('"nodd:Object"', '"nodd:Thing"'))
    return {("provenance_whole", f"PROVENANCE {record_id}")}


@listed
def a_record_of_provenance_that_cannot_be_read(hand: Hand) -> Found:
    rows = hand.run("SELECT record_id, content FROM nodd_provenance WHERE wal_id = ?", hand.busy.carried)
    [record_id] = [row[0] for row in rows if row[1].startswith('{"wasGeneratedBy"')]
    hand.set("nodd_provenance", "record_id", record_id, content="{")
    found = unit(hand.busy.carried, "succeeded_has_provenance")
    return {("provenance_whole", f"PROVENANCE {record_id}")} | found


# ---------------------------------------------------------------------------------------------------------------------
# Items


@listed
def an_item_that_was_edited(hand: Hand) -> Found:
    edited = hand.item(hand.busy.carried)
    said = hand.said(edited)
    said["properties"]["title"] = "another"
    hand.say(edited, said)
    return item(edited, "items_whole")


@listed
def an_item_of_another_size_well_forged(hand: Hand) -> Found:
    edited = hand.item(hand.busy.carried)
    said = hand.said(edited)
    said["assets"]["data"]["file:size"] += 1
    hand.say(edited, said, forged=True)
    return item(edited, "items_fit_objects")


@listed
def an_item_that_cannot_be_read(hand: Hand) -> Found:
    edited = hand.item(hand.busy.alone)
    hand.set("nodd_items", "item_id", edited, item="{")
    return item(edited, "items_whole")


@listed
def an_item_without_its_parts(hand: Hand) -> Found:
    edited = hand.item(hand.busy.carried)
    hand.set("nodd_items", "item_id", edited, item="{}")
    return item(edited, "items_whole", "items_fit_objects")


@listed
def an_item_whose_row_says_otherwise(hand: Hand) -> Found:
    edited = hand.item(hand.busy.carried)
    hand.set("nodd_items", "item_id", edited, updated="2020-01-01T00:00:00.000000Z")
    return item(edited, "items_whole")


@listed
def an_item_of_another_generation(hand: Hand) -> Found:
    edited = hand.item(hand.busy.carried)
    hand.set("nodd_items", "item_id", edited, generation=5)
    return item(edited, "items_whole")


@listed
def an_item_under_another_id(hand: Hand) -> Found:
    hand.set("nodd_items", "item_id", hand.item(hand.busy.carried), item_id=GHOST)
    return item(GHOST, "items_whole") | unit(hand.busy.carried, "succeeded_is_catalogued")


# ---------------------------------------------------------------------------------------------------------------------
# Observations


def of_observation(name: str, *invariants: str) -> Found:
    return {(invariant, f"OBSERVATION {name}") for invariant in invariants}


@listed
def an_observation_of_an_item_that_is_gone(hand: Hand) -> Found:
    name = hand.observation(hand.busy.alone)
    hand.run("DELETE FROM nodd_items WHERE wal_id = ?", hand.busy.alone)
    return of_observation(name, "observations_agree") | unit(hand.busy.alone, "succeeded_is_catalogued")


@listed
def an_observation_of_a_unit_that_is_another(hand: Hand) -> Found:
    name = hand.observation(hand.busy.alone)
    text = hand.get("nodd_observations", "observation", name, "files")
    hand.set("nodd_observations", "observation", name, files=text.replace(hand.busy.alone, hand.busy.failed))
    return of_observation(name, "observations_agree")


@listed
def an_observation_at_another_place(hand: Hand) -> Found:
    name = hand.observation(hand.busy.alone)
    text = hand.get("nodd_observations", "observation", name, "files")
    hand.set("nodd_observations", "observation", name, files=text.replace("/2026/318/", "/2026/319/"))
    return of_observation(name, "observations_agree")


@listed
def an_observation_in_another_order(hand: Hand) -> Found:
    name = hand.observation(hand.busy.files[0])
    files = json.loads(hand.get("nodd_observations", "observation", name, "files"))
    hand.set("nodd_observations", "observation", name, files=canonical(files[::-1]))
    marked = set().union(*(item(file[2], "observations_agree") for file in files))
    return of_observation(name, "observations_agree") | marked | unit(hand.busy.files[0], "observations_agree")


@listed
def an_observation_that_was_written_too_seldom(hand: Hand) -> Found:
    name = hand.observation(hand.busy.files[0])
    hand.set("nodd_observations", "observation", name, version=2)
    return of_observation(name, "observations_agree")


@listed
def an_observation_that_cannot_be_read(hand: Hand) -> Found:
    name = hand.observation(hand.busy.alone)
    hand.set("nodd_observations", "observation", name, files="[")
    lost = item(hand.item(hand.busy.alone), "observations_complete")
    return of_observation(name, "observations_agree") | lost


@listed
def a_mark_that_is_gone_well_forged(hand: Hand) -> Found:
    edited = hand.item(hand.busy.files[0])
    said = hand.said(edited)
    del said["properties"]["deprecated"]
    hand.say(edited, said, forged=True)
    return item(edited, "observations_agree")


@listed
def a_link_that_is_gone(hand: Hand) -> Found:
    edited = hand.item(hand.busy.files[0])
    said = hand.said(edited)
    said["links"] = [link for link in said["links"] if link["rel"] != "successor-version"]
    hand.say(edited, said)  # links are no part of the digest
    return item(edited, "observations_agree")


@listed
def a_file_that_supersedes_nothing(hand: Hand) -> Found:
    hand.unit(hand.busy.files[2], supersedes=None)
    return unit(hand.busy.files[2], "observations_agree")


@listed
def an_observation_that_is_gone(hand: Hand) -> Found:
    hand.run("DELETE FROM nodd_observations WHERE observation = ?", hand.observation(hand.busy.alone))
    return item(hand.item(hand.busy.alone), "observations_complete")


# ---------------------------------------------------------------------------------------------------------------------
# Orphans, rejected bodies, counts


@listed
def a_unit_that_is_gone(hand: Hand) -> Found:
    lost = hand.busy.slimmed
    records = hand.run("SELECT record_id FROM nodd_provenance WHERE wal_id = ?", lost)
    assert len(records) == 8  # three nodes, four edges, an event
    alone = {("nothing_without_unit", f"PROVENANCE {record_id}") for (record_id,) in records}
    found = alone | item(hand.item(lost), "nothing_without_unit") | job(hand.job(lost)) | MISCOUNTED
    hand.run("DELETE FROM nodd_units WHERE wal_id = ?", lost)
    return found


@listed
def a_file_that_supersedes_what_is_not_there(hand: Hand) -> Found:
    hand.unit(hand.busy.files[2], supersedes=GHOST)
    return unit(hand.busy.files[2], "nothing_without_unit", "observations_agree")


def rejected(hand: Hand) -> str:
    return str(hand.get("nodd_rejected", "body", "not json", "sha256"))


@listed
def a_rejected_body_that_was_edited(hand: Hand) -> Found:
    sha256 = rejected(hand)
    hand.set("nodd_rejected", "sha256", sha256, body="not jsom")
    return {("rejected_whole", f"REJECTED {sha256}")}


@listed
def a_rejected_body_that_never_came(hand: Hand) -> Found:
    sha256 = rejected(hand)
    hand.set("nodd_rejected", "sha256", sha256, times=0)
    return {("rejected_whole", f"REJECTED {sha256}")}


@listed
def a_rejected_body_without_a_fate(hand: Hand) -> Found:
    sha256 = rejected(hand)
    hand.set("nodd_rejected", "sha256", sha256, replayed_at="2026-11-15T00:00:00.000000Z")
    return {("rejected_whole", f"REJECTED {sha256}")}


@listed
def an_admission_that_was_not_counted(hand: Hand) -> Found:
    hand.run("UPDATE nodd_counts SET n = n - 1 WHERE dataset = 'gfs' AND fate = 'admitted'")
    return MISCOUNTED
