"""The next-hop encoder: where it begins, what its checkpoint refuses, and thoughts that ask in vectors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.methods.baselines import ClosedBook
from gnnrag.networks import EMBEDDED_SHA256
from gnnrag.parts import set_up
from gnnrag.retrievers.chg import CHGRetriever
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.retrievers.hybrid import HybridRetriever
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.roles.tuned.checkpoint import read_tuned, shipped_folder
from gnnrag.roles.tuned.thoughts import ENCODER, NextHop, NextHopConfig, QueryTokens, TunedThoughts, VectorThoughts
from gnnrag.run.evaluate import check_fit
from gnnrag.run.loop import Loop
from gnnrag.session import Session
from gnnrag.types import Query, Question
from tests.helpers.next_hop import QUESTIONS, index_by, make_base, make_network


def test_before_the_first_step_queries_are_the_bases(base: Path, by_base: Index) -> None:
    """Without passages that of the question; with them that of all their text, moved as the settings say."""
    work = NextHop(by_base, make_network(base), QueryTokens(NextHopConfig(base=str(base))))
    (question, *_), passage = QUESTIONS, by_base.passages[0]
    assert np.allclose(work.vectors([(question, ())])[0], by_base.embedder.encode([question])[0], atol=1e-5)
    read = by_base.embedder.encode([f"{question} {passage.content}"])[0]
    expected = read - 0.5 * by_base.passage_vectors[0]
    found = work.vectors([(question, (0,))])[0]
    assert np.allclose(found, expected / np.linalg.norm(expected), atol=1e-5)


def test_a_trained_encoder_differs(encoder: Path, base: Path, by_base: Index) -> None:
    trained, fresh = NextHop.open(by_base, str(encoder), str(base)), make_network(base)
    before = NextHop(by_base, fresh, trained.rows)
    asked = [(QUESTIONS[0], ()), (QUESTIONS[0], (0,)), (QUESTIONS[0], (0, 2))]
    own, theirs = trained.vectors(asked), before.vectors(asked)
    assert np.allclose(theirs[0], by_base.embedder.encode([QUESTIONS[0]], True)[0], atol=1e-5)
    assert np.abs(own - theirs).max(axis=1).min() > 0.01
    assert np.allclose(np.linalg.norm(own, axis=1), 1, atol=1e-5)


def test_the_newest_passage_keeps_half_of_the_room(base: Path) -> None:
    config = NextHopConfig(base=str(base), max_tokens=48, question_tokens=8, older_tokens=24)
    maker, long = QueryTokens(config), "the road to Tromso " * 40
    alone, after = maker.row(QUESTIONS[0], [long]), maker.row(QUESTIONS[0], [long, long, "who was born"])
    assert len(alone) == 48 and len(after) <= 48
    newest = maker._tokens("who was born")
    assert after[-len(newest) :] == newest


def test_an_index_of_other_vectors_is_refused(encoder: Path, base: Path, tmp_path: Path) -> None:
    other = index_by(make_base(tmp_path / "other", seed=3), tmp_path / "index")
    with pytest.raises(ArtefactError, match="vectors"):
        NextHop.open(other, str(encoder), str(base))


# ------------------------------------------------------------------------------------------------- thoughts in vectors
def role(encoder: Path, base: Path, by_base: Index) -> TunedThoughts:
    return set_up(TunedThoughts(path=str(encoder), base=str(base), mixed=False), index=by_base)


def test_names_are_asked_for_in_words(encoder: Path, base: Path, by_base: Index) -> None:
    """Rules know a passage that the question names and nothing shown is about: the slow thought is theirs."""
    encoder = NextHop.open(by_base, str(encoder), str(base))
    named = next(p for p in by_base.passages if p.title == "Tromso" or p.title == "Copper Road")
    others = tuple(p for p in by_base.passages if p.id != named.id)[:3]
    task = ThoughtsTask(Question("q", f"Who made {named.title}?"), others)
    (mixed,) = VectorThoughts(encoder, is_mixed=True).think([task])
    expected = set_up(OfflineThoughts(), index=by_base).think(task).fast
    assert expected and mixed.slow == expected and list(mixed.vectors) == ["fast"]
    unnamed = ThoughtsTask(Question("q", "hm?"), others[:0])
    assert VectorThoughts(encoder, is_mixed=True).think([unnamed])[0].fast is None


def test_thoughts_follow_the_best_passages(encoder: Path, base: Path, by_base: Index) -> None:
    thoughts = role(encoder, base, by_base)
    question = Question("q", QUESTIONS[0])
    first, second = (ThoughtsTask(question, tuple(by_base.passages[:4]), round=n) for n in (1, 2))

    async def ask() -> list[Any]:
        try:
            return [await thoughts(task, Session("q")) for task in (first, second)]
        finally:
            await thoughts.close()

    one, two = asyncio.run(ask())
    expected = thoughts.does.encoder.vectors([(question.text, chain) for chain in ((0,), (1,), (0, 1), (0, 2))])  # type: ignore[union-attr]
    found = [one.vectors["fast"], one.vectors["slow"], two.vectors["fast"], two.vectors["slow"]]
    assert np.allclose(np.array(found, dtype=np.float32), expected, atol=1e-5)
    assert one.fast == f"{question.text} {by_base.passages[0].title}"
    assert len({one.fast, one.slow, two.fast, two.slow}) == 4
    (few,) = thoughts.does.think([ThoughtsTask(question, tuple(by_base.passages[:1]), round=2)])
    assert few.fast and few.slow is None and list(few.vectors) == ["fast"]
    (none,) = thoughts.does.think([ThoughtsTask(question, ())])
    assert none.fast is None and none.flags == ("nothing_shown",)


def test_vectors_are_searched_by_in_place_of_texts(by_base: Index) -> None:
    """Dense search by the vector of passage 2 finds it, whatever the text says; so do the graph and a hybrid."""
    vector = tuple(by_base.passage_vectors[2].tolist())
    for retriever in (
        set_up(DenseRetriever(), index=by_base),
        set_up(CHGRetriever(), index=by_base),
        set_up(HybridRetriever(["dense", "chg"]), index=by_base, roles=None),
    ):
        by_text, by_vector = retriever.retrieve([Query("hm", top_k=9), Query("hm", top_k=9, vector=vector)])
        assert by_vector.ids[0] == by_base.ids[2], type(retriever).__name__
        assert not np.array_equal(by_text.scores, by_vector.scores)


def test_the_loop_tells_vectors_apart_and_the_trace_keeps_no_numbers(by_base: Index) -> None:
    loop = Loop(
        set_up(ClosedBook(), index=by_base, roles={}), set_up(DenseRetriever(), index=by_base), None, by_base.lookup
    )  # type: ignore[abstract, arg-type]
    session = Session("q")
    vectors = [tuple(by_base.passage_vectors[i].tolist()) for i in (1, 3, 1)]
    queries = [Query("the same words", top_k=3, vector=v) for v in vectors]
    rankings = asyncio.run(loop._retrieve(queries, Question("q", "?"), session, 0))
    assert [r.ids[0] for r in rankings] == [by_base.ids[1], by_base.ids[3], by_base.ids[1]]
    assert session.counts["duplicate_query"] == 1
    assert session.events[0]["vector"] is True
    json.dumps(session.events)


def test_that_is_found_before_an_index_is_built() -> None:
    given = ["method=bdtr", "roles.thoughts=tuned", f"roles.thoughts.path={shipped_folder('thoughts')}"]
    for name in ("dense", "chg", "hybrid"):
        check_fit(load_config(EvaluateConfig, None, [*given, f"retriever={name}"]))
    check_fit(load_config(EvaluateConfig, None, ["method=single", *given[1:], "retriever=linearrag"]))  # nobody thinks
    with pytest.raises(ConfigError, match="retriever=linearrag"):
        check_fit(load_config(EvaluateConfig, None, [*given, "retriever=linearrag"]))


def test_what_ships_is_small_and_made_for_the_embedded_base() -> None:
    encoder = shipped_folder("thoughts")
    record = read_tuned(encoder, "thoughts", (ENCODER,))
    assert record.base == {"name": "embedded", "weights": EMBEDDED_SHA256}
    assert sum(path.stat().st_size for path in encoder.iterdir()) < 3_000_000
