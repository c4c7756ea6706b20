from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.arrays import Lists
from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph


def typed(name: str, kind: str = "", text: str = "") -> Extraction:
    return Extraction((name,), details=(EntityRecord(name, kind, text),))


def relations(graph: KnowledgeGraph) -> list[tuple[str, str, str, str, float, list[int]]]:
    names = graph.names
    return [
        (names[h], graph.labels[i], names[t], graph.texts[i], graph.weights[i], graph.relation_passages[i].tolist())
        for i, (h, t) in enumerate(graph.ends.tolist())
    ]


def hyperedges(graph: KnowledgeGraph) -> list[tuple[str, float, dict[str, float], list[int]]]:
    rows, start = [], 0
    for i, text in enumerate(graph.hyper_texts):
        members = [graph.names[m] for m in graph.hyper_members[i].tolist()]
        importance = graph.hyper_importance[start : start + len(members)].tolist()
        start += len(members)
        where = graph.hyper_passages[i].tolist()
        rows.append((text, graph.hyper_scores[i], dict(zip(members, importance, strict=True)), where))
    return rows


class TestNames:
    @pytest.mark.parametrize(
        "rows, names, types, aliases",
        [
            (  # spellings of one type, or of none, are one name
                [typed("Ada Lovelace", "person"), typed("ADA LOVELACE"), typed("ada lovelace"), typed("Ada Lovelace")],
                ("Ada Lovelace",), ("person",), (("ADA LOVELACE", "ada lovelace"),),
            ),
            (  # types stay apart, and an untyped spelling by itself
                [typed("Jaws", "film"), typed("JAWS", "band"), typed("jaws"), typed("Film", "film")],
                ("Film", "JAWS", "Jaws", "jaws"), ("film", "band", "film", ""), None,
            ),
            # the key of a spelling without type must not equal that of a type
            ([typed("Film", "film"), typed("FILM", "band"), typed("film")], ("FILM", "Film", "film"), None, None),
            ([typed("iPod"), typed("IPOD"), typed("iPod")], ("iPod",), None, None),  # the commonest
            ([typed("iPod"), typed("IPOD")], ("IPOD",), None, None),  # ties go by alphabet
            ([Extraction(("a", "A"))], ("A",), None, None),
            ([Extraction(("a", "B", "A"), names_are_ids=True)], ("A", "a", "B"), None, None),
        ],
    )  # fmt: skip
    def test_names(self, rows, names, types, aliases) -> None:
        graph = fold(rows)
        assert graph.names == names
        assert graph.types == (graph.types if types is None else types)
        assert graph.aliases == (graph.aliases if aliases is None else aliases)

    def test_spaces_blanks_and_endless_names(self) -> None:
        graph = fold([Extraction(("a  b\n", "", "  ", "x" * 300), ((" ", "r", "a b"),))])
        assert graph.names == ("a b", "x" * 256)
        assert graph.num_relations == 0

    def test_renamed_are_aliases_and_only_one_step(self) -> None:
        rows = [Extraction(("U.S.", "USA"), (("U.S.", "has", "Texas"),)), Extraction(("Texas",))]
        graph = fold(rows, {"U.S.": "USA", "USA": "Nowhere", "America": "Texas"})
        assert graph.names == ("Nowhere", "Texas", "USA")
        assert graph.aliases == (("USA",), (), ("U.S.",)), "what nobody states leaves no alias"
        assert relations(graph) == [("USA", "has", "Texas", "", 1.0, [0])]


class TestDetails:
    def test_types_by_majority_then_by_name_and_descriptions_distinct_and_sorted(self) -> None:
        rows = [typed("a", "x"), typed("a", "y"), typed("a", "y")]
        assert fold(rows).types == ("y",)
        assert fold(rows[:2]).types == ("x",)
        rows = [typed("a", text="second"), typed("a", text="first"), typed("a", text="second"), typed("a")]
        assert fold(rows).descriptions == ("first\nsecond",)


class TestRelations:
    def test_parallel_relations_and_directions_stay_apart(self) -> None:
        rows = [
            Extraction(triples=(("a", "directed", "b"), ("a", "wrote", "b"), ("b", "directed", "a"))),
            Extraction(triples=(("A", "directed", "b"), ("a", " directed ", "c"))),
        ]
        graph = fold(rows)
        assert relations(graph) == [
            ("a", "directed", "b", "", 2.0, [0, 1]),
            ("a", "wrote", "b", "", 1.0, [0]),
            ("a", "directed", "c", "", 1.0, [1]),
            ("b", "directed", "a", "", 1.0, [0]),
        ]
        assert graph.edges.ends.tolist() == [[0, 1], [0, 2]] and graph.edges.of.tolist() == [0, 0, 1, 0]
        assert graph.edge_weights.tolist() == [4.0, 1.0]

    def test_described_relations_merge_over_a_pair_either_way_round(self) -> None:
        rows = [
            Extraction(relations=(RelationRecord("b", "a", "b of a", ("x", "y"), 2.0),)),
            Extraction(relations=(RelationRecord("a", "b", "a to b", ("y", "z"), 0.5), RelationRecord("a", "A", ""))),
        ]
        assert relations(fold(rows)) == [("a", "x, y, z", "b", "a to b\nb of a", 2.5, [0, 1])]

    def test_a_described_relation_adds_to_a_triple_that_says_the_same(self) -> None:
        row = Extraction(triples=(("a", "x", "b"),), relations=(RelationRecord("a", "b", "text", ("x",), 2.0),))
        assert relations(fold([row])) == [("a", "x", "b", "text", 3.0, [0])]

    def test_sentences_are_texts_without_a_label(self) -> None:
        row = Extraction(triples=(("a", "a met  b.", "b"),), is_sentences=True)
        graph = fold([row])
        assert relations(graph) == [("a", "", "b", "a met b.", 1.0, [0])]
        assert graph.statement(0) == "a met b."

    def test_a_relation_of_a_thing_with_itself_joins_nothing(self) -> None:
        graph = fold([Extraction(triples=(("a", "is", "A"), ("a", "likes", "b")))])
        assert graph.num_relations == 2 and graph.edges.of.tolist() == [-1, 0]
        assert graph.edges.degrees.tolist() == [1, 1] and graph.incident[0].tolist() == [1]


class TestHyperedges:
    def test_extracted_ones_sum_scores_and_importance(self) -> None:
        fact = HyperedgeRecord("a met b  in c", 7.0, (("a", 90.0), ("B", 50.0), ("b", 10.0), (" ", 5.0)))
        again = HyperedgeRecord("a met b in c", 2.0, (("a", 5.0), ("b", 5.0)))
        rows = [Extraction(hyperedges=(fact,)), Extraction(hyperedges=(again, HyperedgeRecord("x", 1.0)))]
        graph = fold(rows)
        assert hyperedges(graph) == [("a met b in c", 9.0, {"a": 95.0, "b": 65.0}, [0, 1])]
        assert [edges.tolist() for edges in (graph.entity_hyperedges[0], graph.entity_hyperedges[1])] == [[0], [0]]

    def test_equal_sentences_are_one_fact_whatever_their_members(self) -> None:
        """In another order, in part, or others: members unite, scores and importance add up."""
        stated = [{"a": 90.0, "b": 80.0}, {"b": 70.0, "a": 60.0}, {"a": 1.0}, {"c": 5.0, "a": 2.0}]
        rows = [Extraction(hyperedges=(HyperedgeRecord("f", 8.0, tuple(members.items())),)) for members in stated]
        graph = fold([*rows, Extraction()])
        assert hyperedges(graph) == [("f", 32.0, {"a": 153.0, "b": 150.0, "c": 5.0}, [0, 1, 2, 3])]
        assert [row.tolist() for row in graph.hyper_members] == [[0, 1, 2]] and len(graph.hyper_importance) == 3
        within = Extraction(hyperedges=tuple(h for row in rows for h in row.hyperedges))
        assert hyperedges(fold([within])) == [("f", 32.0, {"a": 153.0, "b": 150.0, "c": 5.0}, [0])]

    def test_triples_that_join_two_things_are_written_out(self) -> None:
        row = Extraction(triples=(("Ann", "works_for", "Bob"), ("Ann", "is", "ANN"), (" ", "saw", "Bob")))
        assert hyperedges(fold([row])) == [("Ann works for Bob", 10.0, {"ANN": 100.0, "Bob": 100.0}, [0])]

    def test_joining_sentences_are_used_as_they_are(self) -> None:
        row = Extraction(triples=(("a", "s one", "b"), ("a", "s one", "c"), ("a", "s two", "A")), is_sentences=True)
        assert hyperedges(fold([row])) == [("s one", 10.0, {"A": 100.0, "b": 100.0, "c": 100.0}, [0])]


NAMES = st.sampled_from(["a", "A", "b", "B", "c", " c", "d e", "", "D  e"])
KINDS = st.sampled_from(["", "x", "y"])
NUMBERS = st.floats(0, 10, allow_nan=False)
EXTRACTIONS = st.builds(
    Extraction,
    st.lists(NAMES, max_size=3).map(tuple),
    st.lists(st.tuples(NAMES, st.sampled_from(["r", "s", "r "]), NAMES), max_size=4).map(tuple),
    details=st.lists(st.builds(EntityRecord, NAMES, KINDS, KINDS), max_size=3).map(tuple),
    relations=st.lists(
        st.builds(RelationRecord, NAMES, NAMES, KINDS, st.lists(KINDS, max_size=2).map(tuple), NUMBERS), max_size=3
    ).map(tuple),
    hyperedges=st.lists(
        st.builds(HyperedgeRecord, KINDS, NUMBERS, st.lists(st.tuples(NAMES, NUMBERS), max_size=3).map(tuple)),
        max_size=2,
    ).map(tuple),
    is_sentences=st.booleans(),
)
CORPORA = st.lists(EXTRACTIONS, max_size=5)


def built(corpus, is_exact: bool) -> KnowledgeGraph:
    extractions = [replace(e, names_are_ids=is_exact) for e in corpus]
    return fold(extractions, {"b": "c"})


def tables(graph: KnowledgeGraph, order: list[int] | None = None):
    """Return everything a graph holds; passages as they are numbered in `order`, members by position, sums rounded."""
    numbered = range(graph.num_passages) if order is None else order
    plain = {}
    for field in fields(graph):
        part = getattr(graph, field.name)
        if field.name.endswith("_passages") and isinstance(part, Lists):
            plain[field.name] = [sorted(numbered[p] for p in row.tolist()) for row in part]
        elif isinstance(part, Lists):
            plain[field.name] = [row.tolist() for row in part]
        else:
            plain[field.name] = np.round(part, 6).tolist() if isinstance(part, np.ndarray) else part
    members, importance = graph.hyper_members, plain.pop("hyper_importance")
    shares = zip(members.owners.tolist(), members.values.tolist(), importance, strict=True)
    return plain | {"hyper_members": sorted(shares)}


@pytest.mark.slow
@given(CORPORA.flatmap(lambda c: st.tuples(st.just(c), st.permutations(range(len(c))))), st.booleans())
@settings(max_examples=80, deadline=None)
def test_d2_the_order_of_passages_changes_their_positions_only(drawn, is_exact) -> None:
    corpus, order = drawn
    first = built(corpus, is_exact)
    other = built([corpus[i] for i in order], is_exact)
    assert tables(other, list(order)) == tables(first)
