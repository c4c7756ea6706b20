"""Names that a question is about, and the neighbourhood that an entity network reads for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnrag.datasets.base import load_passages
from gnnrag.gnn import GNNConfig, RankerConfig
from gnnrag.gnn.checkpoint import Checkpoint
from gnnrag.gnn.edges import join
from gnnrag.gnn.entity import EntityQuestions, NameFinder, NeighbourhoodConfig, Neighbourhoods
from gnnrag.gnn.examples import EntitySet, SupportSet
from gnnrag.gnn.features import nearest_entities
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.scoring import EntityScorer
from gnnrag.index.index import Index, build_index
from gnnrag.index_config import EmbedderConfig, ExtractConfig, IndexConfig, TextConfig
from gnnrag.io import write_jsonl
from gnnrag.types import Passage, Question

TITLES = ("Her", "directors", "The D.I.", "Face/Off", "Be Cool", "Be", "Joy Smith's")
FILMS = NameFinder(TITLES)
TEXT = NameFinder(["be cool", "joy smith", "malta", "of"], is_normalised=True)


@pytest.mark.parametrize(
    "text, name",
    [
        ("who are the directors of The D.I.", "The D.I."),
        ("which films share the directors of Face/Off?", "Face/Off"),
        ("who acted in Be Cool", "Be Cool"),  # the longest
        ("who are the directors", "directors"),
        ("who wrote be cool", "Be Cool"),  # in any case, where nothing is written so
        ("Joy Smith's", "Joy Smith's"),
    ],
)
def test_the_name_a_question_is_about(text: str, name: str) -> None:
    (found, (start, stop)), *_ = FILMS.find_all(text)
    assert found == name and text[start:stop].casefold() == name.casefold()


def test_several_names_do_not_overlap() -> None:
    found = TEXT.find_all("Was Joy Smith's film Be Cool shot in Malta?")
    assert [name for name, _ in found] == ["joy smith", "be cool", "malta"]
    found = NameFinder(["Be Cool", "Her"]).find_all("was Her in BE COOL")
    assert [name for name, _ in found] == ["Her", "Be Cool"], "one spelt as in the graph goes before a longer one"
    assert TEXT.find_all("of what?") == [] and FILMS.find_all("") == []


# A chain Alien - Ridley - Blade - Hampton - Far, and a hub of many films.
KB = "Alien|directed_by|Ridley\nBlade|directed_by|Ridley\nBlade|written_by|Hampton\nFar|written_by|Hampton\n"
KB += "Alien|in_year|1979\n" + "".join(f"Film{i:02}|in_year|1979\n" for i in range(40))
SETTINGS = GNNConfig(
    mode="entity", dim=8, layers=2, fusion="none", node_text=False, seed_weight=False, delexicalise=True
)
QUESTION = Question("q", "who directed Alien", ("Ridley",), extra={"nodes": ["Ridley"], "anchor": "Alien", "hops": 1})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("kb")
    (folder / "kb.txt").write_text(KB)
    settings = IndexConfig(
        embedder=EmbedderConfig(model="hash"),
        text=TextConfig(language="blank:en"),
        extract=ExtractConfig(method="kb", path=str(folder / "kb.txt")),
    )
    build_index(folder / "index", load_passages(folder).passages, settings, ("message_graph", "relation_vectors"))
    return Index(folder / "index")


def names(near: Neighbourhoods, *seeds: str) -> set[str]:
    graph = near.source.graph
    return {graph.entities[node] for node in near.nodes(sorted(graph.position[s] for s in seeds))}


def test_a_neighbourhood_has_what_hops_reach(index: Index) -> None:
    source = EntityQuestions(index, SETTINGS)
    assert names(Neighbourhoods(source, NeighbourhoodConfig(hops=1)), "Alien") == {"Alien", "Ridley", "1979"}
    two = names(Neighbourhoods(source, NeighbourhoodConfig(hops=2, fan=100)), "Alien")
    assert {"Blade", "Film00", "Film39"} <= two and "Hampton" not in two
    assert len(names(Neighbourhoods(source, NeighbourhoodConfig(hops=1)), "1979")) == 42, "seeds lead to all"
    assert len(Neighbourhoods(source, NeighbourhoodConfig(hops=None)).nodes([0])) == source.graph.num_entities


def test_a_sample_has_all_neighbours_of_a_node_or_as_many_as_the_fan(index: Index) -> None:
    near, other = (Neighbourhoods(EntityQuestions(index, SETTINGS), NeighbourhoodConfig(fan=5)) for _ in range(2))
    heads, _, tails = (part.tolist() for part in near.source.graph.edges)
    for node in range(near.source.graph.num_nodes):
        ends = sorted(tail for head, tail in zip(heads, tails, strict=True) if head == node)
        kept, again = (of._sampled[node].tolist() for of in (near, other))
        assert kept == again, "a sample stays"
        assert len(kept) == min(len(ends), 5) and set(kept) <= set(ends) and (len(ends) > 5 or sorted(kept) == ends)


def test_the_cut_has_every_edge_among_its_nodes(index: Index) -> None:
    source = EntityQuestions(index, SETTINGS)
    near = Neighbourhoods(source, NeighbourhoodConfig(hops=2, fan=5))
    part = near.cut(source.find(QUESTION.text), np.ones(256))
    inside = set(part.nodes.tolist())
    want = {e for e in zip(*(x.tolist() for x in source.graph.edges), strict=True) if e[0] in inside and e[2] in inside}
    rows = zip(part.nodes[part.source], part.relations[part.relation], part.nodes[part.target], strict=True)
    assert {tuple(int(x) for x in row) for row in rows} == want and len(part.source) == len(want)
    assert part.seeds.sum() == 1 and part.nodes[part.seeds.argmax()] == source.graph.position["Alien"]


def test_an_example_asks_for_its_answers_but_never_for_its_seed(index: Index) -> None:
    source = EntityQuestions(index, SETTINGS)
    far = Question("f", "films like Alien", extra={"nodes": ["Far", "Blade", "Alien"], "hops": 2})
    examples = EntitySet([QUESTION, far], source, NeighbourhoodConfig(hops=2, fan=5))
    first, second = examples[0], examples[1]
    assert source.graph.entities[first.subgraph.nodes[first.targets][0]] == "Ridley" and first.lost == 0
    assert second.targets.sum() == 1 and second.lost == 2 and not second.candidates.all()


def test_whole_graph_and_whole_neighbourhood_agree(index: Index) -> None:
    """Where the neighbourhood is the graph's whole component, cutting it changes no score of what it holds."""
    torch.manual_seed(0)
    model = QueryGNN(SETTINGS, index.embedder.dim)
    whole = EntityScorer(index, Checkpoint(model)).score(QUESTION.text)[0]
    facts = {"neighbourhood": {"hops": 9, "fan": 1000}}
    near = EntityScorer(index, Checkpoint(model, facts=facts)).score(QUESTION.text)[0]
    assert np.allclose(1 / (1 + np.exp(-whole)), 1 / (1 + np.exp(-near)), atol=1e-6)
    small = EntityScorer(index, Checkpoint(model, facts={"neighbourhood": {"hops": 1, "fan": 5}}))
    scores = small.score(QUESTION.text)[0]
    position = small.questions.graph.position
    inside = [position[name] for name in ("Alien", "Ridley", "1979")]
    assert scores[inside].min() > np.delete(scores, inside).max()
    for threshold, used in ((0.0, 0.0), (None, 0.5)):
        assert EntityScorer(index, Checkpoint(model, facts={"threshold": threshold})).threshold == used


def test_answers_that_the_graph_or_a_start_does_not_reach_are_missed(index: Index) -> None:
    extra = {"nodes": ["Ridley", "Nobody", "Nothing"], "hops": 1}
    examples = EntitySet([Question("q", "who directed Alien", extra=extra)], EntityQuestions(index, SETTINGS))
    assert examples[0].lost == 2
    (row,) = examples.rank(QueryGNN(SETTINGS, index.embedder.dim).eval(), [0], torch.device("cpu"))
    assert row["gold"] == 3 and row["hops"] == 1 and row["metrics"]["recall@10"] == pytest.approx(1 / 3)
    lost = Question("q", "who directed it", extra={"nodes": ["Ridley"], "hops": 1})
    examples = EntitySet([lost], EntityQuestions(index, SETTINGS))
    (row,) = examples.rank(QueryGNN(SETTINGS, index.embedder.dim).eval(), [0], torch.device("cpu"))
    assert not examples.can_train(0) and row["gold"] == 1 and set(row["metrics"].values()) == {0.0}, "no start"


def test_articles_score_as_their_entities_and_further_parts_after_them(index: Index) -> None:
    torch.manual_seed(0)
    scorer = EntityScorer(index, Checkpoint(QueryGNN(SETTINGS, index.embedder.dim)))
    logits, found, _ = scorer.score(QUESTION.text)
    chances = 1 / (1 + np.exp(-logits))
    (scores, branch), (none, no_branch) = map(scorer.passage_scores, (QUESTION.text, "who is it"))
    position, seen, want = scorer.questions.graph.position, set(), []
    for passage in index.passages:
        entity = position.get(passage.title)
        less = 1.0 if entity is None or entity in seen else 0.0
        seen.add(entity)
        want.append((0.0 if entity is None or entity in found.seeds else chances[entity], less))
    assert scores == pytest.approx([chance - less for chance, less in want]) and branch == "exact"
    assert none.tolist() == [-less for _, less in want] and no_branch == "none"


FACTS = {
    "f": ("Alien", "directed by", "Ridley"),
    "b": ("Blade", "directed by", "Ridley"),
    "r": ("Ridley", "lives in", "Varn"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder: Path = tmp_path_factory.mktemp("facts")
    write_jsonl(folder / "triples.jsonl", [{"id": i, "triples": [t], "entities": []} for i, t in FACTS.items()])
    passages = [Passage(id_, head, f"{head} {link} {tail}.") for id_, (head, link, tail) in FACTS.items()]
    settings = IndexConfig(
        embedder=EmbedderConfig(model="hash"),
        text=TextConfig(language="blank:en"),
        extract=ExtractConfig(method="precomputed", path=str(folder / "triples.jsonl")),
    )
    stages = ("message_graph", "relation_vectors", "entity_vectors", "embeddings")
    build_index(folder / "index", [*passages, Passage("n", "", "who was born, a note")], settings, stages)
    return Index(folder / "index")


@pytest.mark.parametrize("hops", [None, 1])
def test_passages_of_a_corpus_sum_the_logits_of_their_entities(corpus: Index, hops: int | None) -> None:
    config = replace(SETTINGS, delexicalise=False)
    torch.manual_seed(0)
    model, ranker = QueryGNN(config, corpus.embedder.dim).eval(), RankerConfig(name="simple")
    known = Question("k", "Where was the director of Alien born?", gold=("f", "r"), extra={"nodes": ["blade"]})
    lost = Question("l", "Who wrote this note?", gold=("n",))
    near = NeighbourhoodConfig(hops=hops)
    examples = SupportSet([known, lost], EntityQuestions(corpus, config), near, ranker)
    graph, example = examples.source.graph, examples[0]
    support = {"alien", "ridley", "varn", "blade"}  # of both gold passages, and the answer
    inside = [graph.entities[i] for i in example.subgraph.nodes.tolist()]
    assert sorted(inside) == sorted(support if hops is None else {"alien", "ridley"})
    assert example.targets.all() and example.candidates.all() and example.lost == len(support) - len(inside)

    with torch.inference_mode():
        logits = dict(zip(inside, model(join([example.subgraph]))[:, 0].tolist(), strict=True))
    below = min(min(logits.values()) - 1, -10.0)
    want = [sum(logits.get(t[end].casefold(), below) for end in (0, 2)) for t in FACTS.values()] + [0.0]
    cosines = [float(row @ corpus.embedder.encode([lost.text], is_query=True)[0]) for row in corpus.passage_vectors]
    facts = {"neighbourhood": {"hops": hops}, "fallback": "dense"}
    scorer = EntityScorer(corpus, Checkpoint(model, ranker, facts=facts))
    (first, branch), (second, other) = map(scorer.passage_scores, (known.text, lost.text))
    assert (branch, other) == ("exact", "dense_fallback")
    assert first == pytest.approx(want, abs=1e-5) and second == pytest.approx(cosines, abs=1e-6)
    rows = examples.rank(model, [0, 1], torch.device("cpu"))
    for row, scores, gold in zip(rows, (want, cosines), ({0, 2}, {3}), strict=True):
        order = sorted(range(4), key=lambda i: -scores[i])
        assert row["ranking"] == order and row["scores"] == pytest.approx([scores[i] for i in order], abs=1e-5)
        assert row["metrics"]["recall@2"] == len(gold & set(order[:2])) / len(gold)
        assert row["metrics"]["mrr"] == 1 / min(order.index(i) + 1 for i in gold)
    assert [row["has_start"] for row in rows] == [True, False]


def test_a_question_that_names_nothing_starts_at_the_ends_of_the_nearest_facts(corpus: Index) -> None:
    source = EntityQuestions(corpus, replace(SETTINGS, link_vectors=True))
    graph, vector = source.graph, corpus.embedder.encode(["what lives with ridley"])[0]
    names = [float(row @ vector) for row in source.entity_vectors]
    nearness = [names[h] + float(source.relation_vectors[r] @ vector) + names[t] for h, r, t in graph.triples.tolist()]
    ends: dict[int, float] = {}
    for fact in sorted(range(len(nearness)), key=lambda i: -nearness[i])[:5]:
        for end in graph.triples[fact, [0, 2]].tolist():
            ends[end] = min(max(names[end], 0.01), 1.0)
    want = dict(list(ends.items())[:5])
    found, branch = nearest_entities(source, vector)
    assert list(found) == list(want) and found == pytest.approx(want) and branch == "facts"
