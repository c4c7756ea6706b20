"""Any sequence of changes gives the artefacts that building the final corpus from scratch gives, in every stage."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnrag.graphs import synonyms
from gnnrag.index.build import update_index
from gnnrag.index.stages import STAGES
from gnnrag.types import Passage
from tests.helpers.indexes import HASH, artefacts, build, files

# Few names, so that passages share entities, change each other's degrees and communities, and repeat each other's text.
NAMES = ("Ada Lovelace", "Lord Byron", "London", "Missolonghi", "Greece", "Old Greece", "Ελλάδα", "The Mill")
NAME = st.sampled_from(NAMES)
SENTENCE = st.one_of(
    st.builds("{} was born in {}.".format, NAME, NAME),
    st.builds("{} met {} in 1824, near {}.".format, NAME, NAME, NAME),
    st.sampled_from(["It is old.", "...", "They never came back to 北京."]),
)
PASSAGE = st.builds(
    lambda title, sentences: Passage("", title, " ".join(sentences)),
    st.one_of(NAME, st.just("")),
    st.lists(SENTENCE, min_size=1, max_size=3),
)
CORPUS = st.lists(PASSAGE, min_size=6, max_size=10)
CHANGE = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "edit"]), st.integers(0, 99), PASSAGE), min_size=1, max_size=3
)
QUICK = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def check(start: list[Passage], changes: list[list[tuple[str, int, Passage]]]) -> None:
    """Apply changes to an index of all stages, and compare it with one of the final corpus, file by file."""
    corpus = {f"q{i}": replace(p, id=f"q{i}") for i, p in enumerate(start)}
    serial = len(corpus)
    # Without waiting for the disk, which matters to power cuts only.
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        changed, fresh = Path(folder, "changed"), Path(folder, "fresh")
        build(changed, list(corpus.values()), HASH)
        assert list(artefacts(changed)) == list(STAGES), "no stage is left out"
        for change in changes:
            add: dict[str, Passage] = {}
            remove: list[str] = []
            for kind, number, passage in change:
                known = [i for i in corpus if i not in remove and i not in add]
                if kind == "add":
                    serial += 1
                    add[f"q{serial}"] = replace(passage, id=f"q{serial}")
                elif len(known) > 1 and kind == "remove":
                    remove.append(known[number % len(known)])
                elif known and kind == "edit":
                    add[known[number % len(known)]] = replace(passage, id=known[number % len(known)])
            update_index(changed, add=list(add.values()), remove=remove)
            corpus = {i: p for i, p in corpus.items() if i not in remove} | add
        build(fresh, list(corpus.values()), HASH)
        different = [s for s in STAGES if artefacts(changed)[s] != artefacts(fresh)[s]]
        assert not different
        assert files(changed) == files(fresh), "and nothing is left behind"


@pytest.mark.slow
@settings(QUICK, max_examples=5)
@given(CORPUS, st.lists(CHANGE, min_size=1, max_size=3))
def test_changing_equals_rebuilding_in_every_stage(start, changes):
    check(start, changes)


@pytest.mark.slow
@settings(QUICK, max_examples=120)
@given(CORPUS, st.lists(CHANGE, min_size=1, max_size=5))
def test_changing_equals_rebuilding_in_every_stage_at_length(start, changes):
    check(start, changes)


@pytest.mark.slow
@settings(QUICK, max_examples=3)
@given(CORPUS, st.lists(CHANGE, min_size=1, max_size=2))
def test_also_where_synonyms_are_searched_in_cells(start, changes):
    with mock.patch.object(synonyms, "EXACT_UP_TO", 6):
        check(start, changes)


@pytest.mark.slow
@settings(QUICK, max_examples=60)
@given(CORPUS, st.lists(CHANGE, min_size=1, max_size=4))
def test_also_where_synonyms_are_searched_in_cells_at_length(start, changes):
    with mock.patch.object(synonyms, "EXACT_UP_TO", 6):
        check(start, changes)
