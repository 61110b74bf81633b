"""Real files of NOAA: in the right place, whole or refused, and noticed under a key that is not theirs.

Without the files (HOLDFAST_NOAA_FILES) the end of the run says so; what they showed is generated in the other tests.
"""

from __future__ import annotations

import pytest

from holdfast.nodd.dataset import shipped
from holdfast.nodd.formats import gzipped, nexrad
from holdfast.nodd.stations import place_of
from holdfast.nodd.structure import GZIP, in_memory
from tests.nodd import real_files

FILES = list(real_files.files())
MANY = ("nexrad-l3", "nexrad-chunks")
SAMPLE = [file for number, file in enumerate(FILES) if file.dataset not in MANY or number % 12 == 0]
# The first record of a volume alone; a text, which has no length in it.
SUSPECT = {"KJKL_20240227_102059", "KABR_NOUS63_FTMABR_201104281331"}


def test_the_list_names_each_file_once_and_each_has_a_key() -> None:
    listed = real_files.listed()
    assert len({path for _, path, _ in listed}) == len(listed) > 150
    assert all(path.endswith(".tar.gz") or real_files.object_of(path.rpartition("/")[2]) for _, path, _ in listed)
    assert not FILES or len(FILES) >= len(listed)


@pytest.mark.req("K-42", "K-43")
def test_a_real_file_is_complete_and_has_its_area() -> None:
    for file in FILES:
        status, verdict = real_files.looked_at(file)
        assert verdict is not None, file.name
        expected = {"ok", "suspect"} if file.name in SUSPECT else {"ok"}
        assert {status, verdict.status} == expected, (file.name, verdict.issues)
        points = real_files.oracle_points(file)
        if points is not None:
            assert verdict.data["bbox"] is not None, file.name
            assert real_files.outside(verdict.data["bbox"], points, 0.02) == 0, file.name


@pytest.mark.req("K-42")
def test_a_broken_file_is_never_ok() -> None:
    for file in SAMPLE:
        missed = set()
        for name, data in real_files.broken(file):
            status, verdict = real_files.looked_at(file, data)
            if status == "ok" and verdict is not None and verdict.status == "ok":
                missed.add(name)
        # Neither the size of a notice nor an .idx is here, which would show a cut between two messages.
        plain = shipped()[file.dataset].spec.format == "grib2"
        assert missed <= ({"cut between parts"} if plain else set()), file.name


@pytest.mark.req("K-42", "K-43")
def test_a_volume_is_what_metpy_reads_in_it() -> None:
    volumes = real_files.volumes()
    for file in FILES:
        if file.name not in volumes:
            continue
        facts, (read, size) = volumes[file.name], in_memory(file.data)
        if file.data[:2] == GZIP:
            read, size = in_memory(gzipped.unpacked(read, size))
        found = nexrad.header(read)
        assert (found.station, found.start) == (facts.station, facts.start), file.name
        if file.dataset == "nexrad-l2":
            assert nexrad.volume(read, size).ended == (facts.sweeps > 0), file.name
        if facts.place is not None and facts.station is not None:
            assert place_of(facts.station) == pytest.approx(facts.place[::-1], abs=0.02), file.name


@pytest.mark.req("K-43")
def test_a_file_under_a_key_that_is_not_its_own_is_suspect() -> None:
    for file in SAMPLE:
        key = real_files.another_key(file)
        if key is not None and "1999" not in file.name:  # the oldest volumes do not name their radar
            status, verdict = real_files.looked_at(file, key=key)
            assert status == "failed" or (verdict is not None and verdict.status == "suspect"), file.name
