"""One retrieval and the reader, and the reader alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.methods.baselines import ClosedBook, Single
from gnnrag.parts import set_up
from gnnrag.retrievers.base import ANSWER, rank_hits
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.run.evaluate import check_fit
from gnnrag.session import Session
from gnnrag.types import Hit, Prediction, Query, Ranking
from tests.helpers.parts import ToyIndex, ToyRetriever, answer_one, scripted_roles

WIDE = {"Q": {f"d{i:02}": float(9 - i) for i in range(9)}}


def test_one_retrieval_and_the_reader() -> None:
    roles, retriever = scripted_roles(), ToyRetriever(WIDE)
    prediction, session = answer_one(set_up(Single(), index=ToyIndex(), roles=roles), retriever, roles["reader"])
    assert prediction.ranking == tuple(WIDE["Q"]) and prediction.context == tuple(WIDE["Q"])[:5]
    assert (prediction.usage["retriever_calls"], prediction.usage["llm_calls"], prediction.rounds) == (1, 1, 0)
    assert prediction.answer == "yes" and prediction.error is None
    assert not roles["thoughts"].tasks
    assert [e["event"] for e in session.events] == ["query", "evidence", "answer"]


def test_settings() -> None:
    method = set_up(Single(top_k=4, reader_top_k=2), index=ToyIndex(), roles={})
    prediction, _ = answer_one(method, ToyRetriever(WIDE))
    assert prediction.ranking == ("d00", "d01", "d02", "d03") and prediction.answer == "d00 d01"


def test_closed_book_shows_the_reader_the_question_alone() -> None:
    roles, retriever = scripted_roles(), ToyRetriever({})
    prediction, session = answer_one(set_up(ClosedBook(), index=ToyIndex(), roles=roles), retriever, roles["reader"])
    assert retriever.asked == [] and prediction.usage["retriever_calls"] == 0 and prediction.usage["llm_calls"] == 1
    assert prediction.answer == "yes" and prediction.ranking == prediction.context == () and prediction.rounds == 0
    (task,) = roles["reader"].tasks
    assert task.passages == () and task.notes == ""
    assert [e["event"] for e in session.events] == ["evidence", "answer"]


class GraphRetriever(ToyRetriever):
    """Finds graph hits for the graph channel, passages for text."""

    channels = frozenset({"text", "graph"})

    def __init__(self, hits: list[Hit]) -> None:
        super().__init__(WIDE)
        self.hits = hits

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        text = iter(super().retrieve([q for q in queries if q.channel == "text"]))
        return [next(text) if q.channel == "text" else rank_hits(self.hits, q.top_k, "toy") for q in queries]


HITS = [
    Hit("e1", 0.9, 1, "entity", "e1 is one", ("p2", "p1")),
    Hit("c1", 0.8, 2, "community", "a report", ("p3", "p2")),
    Hit("e2", 0.7, 3, "entity", "", ("p4",)),
]
OWN = Hit(ANSWER, 1.0, 1, "community", "The answer [c1].", ("p9",))


def run_graph(hits: list[Hit], **settings: Any) -> tuple[Prediction, Session, list[Any]]:
    tasks: list[Any] = []

    async def reader(task: ReaderTask, session: Session) -> Answer:
        tasks.append(task)
        return Answer("read")

    method = set_up(Single(**settings), index=ToyIndex(), roles={})
    return (*answer_one(method, GraphRetriever(hits), reader), tasks)


def test_the_graph_channel() -> None:
    prediction, session, (task,) = run_graph(HITS, channel="graph", reader_top_k=3, reader_notes=2)
    assert prediction.ranking == ("p2", "p1", "p3", "p4"), "source passages in the order of the hits"
    assert prediction.nodes == ("e1", "e2") and prediction.context == ("p2", "p1", "p3")
    assert task.notes == "e1 is one\n\na report" and prediction.answer == "read"
    assert [e["channel"] for e in session.events if e["event"] == "query"] == ["graph"]


def test_both_channels() -> None:
    prediction, session, (task,) = run_graph(HITS, channel="both")
    assert prediction.ranking == tuple(WIDE["Q"]) and prediction.nodes == ("e1", "e2")
    assert "a report" in task.notes and session.counts["retriever_calls"] == 2


def test_the_answer_of_the_retriever() -> None:
    prediction, _, tasks = run_graph([OWN, *HITS], channel="graph")
    assert prediction.answer == "The answer [c1]." and not tasks and prediction.ranking[0] == "p9"
    prediction, _, (task,) = run_graph([OWN, *HITS], channel="graph", answer="reader")
    assert prediction.answer == "read" and task.notes.startswith("The answer [c1].")
    prediction, _, tasks = run_graph(HITS, channel="graph", answer="nodes")
    assert prediction.answer == "e1; e2" and not tasks
    prediction, _, tasks = run_graph([], channel="graph", answer="nodes")
    assert prediction.answer == "" and not tasks, "nothing found is no answer"
    prediction, _, _ = run_graph([], channel="graph")
    assert prediction.answer == "read" and prediction.ranking == ()


def test_channels_that_do_not_fit() -> None:
    for channel, asked in (("graph", "graph"), ("both", "graph, text")):
        config = load_config(EvaluateConfig, None, ["retriever=dense", "method=single", f"method.channel={channel}"])
        with pytest.raises(ConfigError, match=f"asks the channels {asked}.*suitable: .*graphrag_global"):
            check_fit(config)
    check_fit(load_config(EvaluateConfig, None, ["retriever=graphrag_local", "method=single", "method.channel=both"]))
