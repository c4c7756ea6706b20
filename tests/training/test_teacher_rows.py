"""From a teacher to rows, end to end on a small corpus; what is kept, and on which side of a split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.roles.verifier import parse_selection
from gnnrag.run.evaluate import Pipeline
from gnnrag.training.language_rows import reply_of
from gnnrag.training.rows import ThoughtsRow, VerifierRow, gain, read_rows
from gnnrag.training.traces import Decision, KeepConfig, decisions_of, row_of, verdict_on
from gnnrag.types import GoldHop, Query, Question
from tests.helpers.traces import QUESTIONS, collected, evaluate_config, write_set

GOLD = {id_: set(gold) for id_, _, _, _, gold in QUESTIONS}
ORACLE = ("roles.thoughts=oracle", "roles.verifier=oracle")
QUESTION = Question("q", "Q?", ("Paris",), gold=("a", "b"), decomposition=(GoldHop("Where?", "Meudon", "b"),))
THOUGHTS = {
    **{"event": "decision", "role": "thoughts", "sufficient": False, "flags": [], "pool": ["x", "a"]},
    **{"fast": "Who was he?", "slow": "Why?", "passages": ["a"]},
}
VERIFIER = {"event": "decision", "role": "verifier", "passages": ["x", "a", "b"], "selected": ["a"], "flags": []}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces")
    write_set(path / "set")
    return path


@pytest.fixture(scope="module")
def oracle(root: Path) -> Path:
    collected(root, root / "oracle", *ORACLE)
    return root / "oracle"


# ----------------------------------------------------------------------------------------------------------- decisions
def query(text: str, *ids: str) -> dict[str, Any]:
    return {"event": "query", "text": text, "ranking": {"ids": list(ids)}}


def verdict(event: dict[str, Any], question: Question = QUESTION, **keep: Any) -> str:
    return verdict_on(Decision(event["role"], question, 0, event), KeepConfig(**keep))


def test_queries_belong_to_the_thoughts_that_they_follow() -> None:
    again = THOUGHTS | {"fast": "Who was he?", "slow": None, "pool": ["b", "a"]}
    events = [
        query("Q?", "x"), query("who was he?", "b"), THOUGHTS, query("who was  HE?", "b", "a"), query("Other", "b"),
        {"event": "merge"}, again, query("Who was he?", "b", "a"), VERIFIER,
    ]  # fmt: skip
    first, second, last = decisions_of(QUESTION, events)
    assert (first.number, second.number, last.number) == (0, 1, 0) and last.role == "verifier"
    assert first.gains == {"who was he?": 1.0}, "slow was not sent"
    assert second.gains == {"who was he?": 0.0}, "nothing is new to the pool by then"


@pytest.mark.parametrize("sent, helped, expected", [("b", True, ""), ("a", True, "useless"), ("a", False, "")])
def test_thoughts_are_kept_if_a_query_gained(sent: str, helped: bool, expected: str) -> None:
    decision = decisions_of(QUESTION, [THOUGHTS, query("Why?", "x", sent), query("who was he?", "x")])[0]
    assert verdict_on(decision, KeepConfig(helped=helped)) == expected


@pytest.mark.parametrize(
    "change, keep, expected",
    [
        ({"fast": None, "slow": None}, {}, "stop"),
        ({"flags": ["answer_leak"]}, {}, "failed"),
        ({"fast": "Paris?", "slow": "When was PARIS, the capital, founded?"}, {}, "leaked"),
        ({"flags": ["answer_leak"], "slow": "When was Paris founded?"}, {"clean": False, "helped": False}, ""),
        ({"slow": "What is a comparison?"}, {"helped": False}, ""),  # a part of a word
    ],
)
def test_thoughts_that_ask_nothing_or_failed(change: dict[str, Any], keep: dict[str, Any], expected: str) -> None:
    assert verdict(THOUGHTS | change, **keep) == expected


def test_a_thought_that_states_what_was_not_found_is_left_out() -> None:
    (decision,) = decisions_of(QUESTION, [THOUGHTS | {"slow": "Where is Meudon?"}, query("Where is Meudon?", "b")])
    assert verdict_on(decision, KeepConfig()) == "useless", "only the other one found something"


@pytest.mark.parametrize(
    "selected, passages, expected",
    [
        (["a"], "xab", ""),
        (["a", "x"], "xab", ""),
        (["a", "x", "y"], "xyab", "useless"),  # a third of the choice is gold
        ([], "xab", "useless"),  # there was something to select
        ([], "xy", ""),  # there was not
    ],
)
def test_a_choice_helped_if_half_of_it_is_gold(selected: list[str], passages: str, expected: str) -> None:
    event = VERIFIER | {"selected": selected, "passages": list(passages)}
    assert verdict(event) == expected
    assert verdict(event, helped=False) == "" and verdict(event, Question("q", "Q?")) == "unknown"
    assert verdict(event | {"flags": ["verifier_failed"]}) == "failed"


# --------------------------------------------------------------------------------------------------------- end to end
def test_the_oracles_verdicts_are_rows(root: Path, oracle: Path) -> None:
    rows = read_rows(oracle / "verifier.jsonl", VerifierRow)
    assert {row.question_id for row in rows} == {id_ for id_, gold in GOLD.items() if gold}
    index = Index(root / "index")
    for row in rows:
        ids = [p.id for p in row.passages]
        assert set(row.selected) == set(row.gold) == GOLD[row.question_id] & set(ids)
        scores = [p.score for p in row.passages if p.score is not None]
        assert len(scores) == len(ids) and scores == sorted(scores, reverse=True), "in pool order"
        cosines = index.dense_scores([row.question])[0]
        for shown in row.passages:
            assert shown.cosine == pytest.approx(float(cosines[index.position[shown.id]]), abs=1e-6)
        chat = row.source["chat"]
        assert [chat[n - 1] for n in sorted(parse_selection(reply_of(row)))] == list(row.selected)
        assert row.teacher == "oracle" and row.set == "set" and row.source["retriever"] == "dense"


def test_thoughts_that_helped_are_rows(root: Path, oracle: Path) -> None:
    rows = read_rows(oracle / "thoughts.jsonl", ThoughtsRow)
    retriever = Pipeline(evaluate_config(root), Index(root / "index")).loop.retrievers[None]
    for row in rows:
        assert set(row.gold) == GOLD[row.question_id] and [p.id for p in row.passages] == list(row.pool[:2])
        rankings = retriever.retrieve([Query(text, top_k=3) for text in (row.fast, row.slow) if text])
        assert gain([r.ids for r in rankings], row.pool, row.gold) > 0, "the others were dropped"
        reply = parse_thoughts(reply_of(row))
        assert (reply.fast, reply.slow) == (row.fast, row.slow)
    assert {row.round for row in rows} == {1, 2} and all(row.earlier for row in rows if row.round == 2)
    event = THOUGHTS | {"slow": "Where is Meudon?", "passages": [rows[0].pool[0]], "scores": [1.0], "round": 1}
    half = Decision("thoughts", QUESTION, 0, event | dict.fromkeys(("earlier", "may_stop", "with_chain"), ()))
    made = row_of(half, KeepConfig(), Index(root / "index"), "run", set="set", source={}, teacher="oracle")
    assert isinstance(made, ThoughtsRow) and (made.fast, made.slow) == ("Who was he?", None)
