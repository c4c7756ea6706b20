"""Consistency checks for the sample set in ``data/sample`` (standard library and pytest only)."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
SPLITS = ("dev", "test")
CHAIN_TYPES = ("bridge", "compositional", "inference")
COMPARISON_TYPES = ("comparison", "bridge_comparison")
ALL_TYPES = {*CHAIN_TYPES, *COMPARISON_TYPES, "thematic", "unanswerable"}
QUESTION_FIELDS = {"id", "question", "answers", "type", "hops", "gold", "evidence", "decomposition"}


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def plain_title(title):
    return re.sub(r" \([^)]*\)$", "", title)


def contains(text, phrase):
    """Case-insensitive search for ``phrase`` as whole words."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


PASSAGES = read_jsonl(SAMPLE / "corpus.jsonl")
BY_ID = {p["id"]: p for p in PASSAGES}
QUESTIONS_BY_SPLIT = {s: read_jsonl(SAMPLE / f"questions.{s}.jsonl") for s in SPLITS}
QUESTIONS = [q for s in SPLITS for q in QUESTIONS_BY_SPLIT[s]]


def of_type(*types):
    return [pytest.param(q, id=q["id"]) for q in QUESTIONS if q["type"] in types]


each_question = pytest.mark.parametrize("q", [pytest.param(q, id=q["id"]) for q in QUESTIONS])


def test_counts():
    assert len(PASSAGES) >= 160
    assert len(QUESTIONS_BY_SPLIT["dev"]) >= 40
    assert len(QUESTIONS_BY_SPLIT["test"]) >= 22


def test_passages_are_well_formed():
    for p in PASSAGES:
        assert set(p) == {"id", "title", "text"}
        assert p["title"].strip() == p["title"] != ""
        assert p["text"].strip() == p["text"] != ""
        assert 40 <= len(p["text"].split()) <= 90, p["id"]


@pytest.mark.parametrize("field", ["id", "title", "text"])
def test_passages_are_unique(field):
    repeated = [v for v, n in Counter(p[field] for p in PASSAGES).items() if n > 1]
    assert repeated == []


def test_question_ids_and_wordings_are_unique_over_both_splits():
    assert len({q["id"] for q in QUESTIONS}) == len(QUESTIONS)
    assert len({q["question"] for q in QUESTIONS}) == len(QUESTIONS)


@pytest.mark.parametrize("split", SPLITS)
def test_every_type_and_hop_count_in_each_split(split):
    assert {q["type"] for q in QUESTIONS_BY_SPLIT[split]} == ALL_TYPES
    assert {2, 3, 4} <= {q["hops"] for q in QUESTIONS_BY_SPLIT[split]}


def test_enough_thematic_and_unanswerable():
    n = Counter(q["type"] for q in QUESTIONS)
    assert 4 <= n["thematic"] <= 6
    assert n["unanswerable"] == 5


@each_question
def test_fields_and_gold(q):
    assert set(q) == QUESTION_FIELDS
    assert len(set(q["gold"])) == len(q["gold"])
    assert [g for g in q["gold"] if g not in BY_ID] == []
    assert q["hops"] == len(q["decomposition"])


@each_question
def test_decomposition(q):
    for i, hop in enumerate(q["decomposition"]):
        assert set(hop) == {"question", "answer", "gold"}
        assert hop["gold"] in q["gold"]
        assert contains(BY_ID[hop["gold"]]["text"], hop["answer"])
        references = [int(k) for k in re.findall(r"#(\d+)", hop["question"])]
        assert all(1 <= k <= i for k in references)
    if q["decomposition"]:
        assert {h["gold"] for h in q["decomposition"]} == set(q["gold"])


@each_question
def test_evidence_heads_are_gold_titles(q):
    titles = {plain_title(BY_ID[g]["title"]) for g in q["gold"]}
    for triple in q["evidence"]:
        assert len(triple) == 3 and all(triple)
        assert triple[0] in titles


@pytest.mark.parametrize("q", of_type(*CHAIN_TYPES))
def test_chain_answers(q):
    assert any(contains(BY_ID[g]["text"], q["answers"][0]) for g in q["gold"])
    assert q["decomposition"][-1]["answer"] == q["answers"][0]
    for answer in q["answers"]:
        assert not contains(q["question"], answer)


@pytest.mark.parametrize("q", of_type(*CHAIN_TYPES))
def test_chain_questions_do_not_name_the_bridge(q):
    for hop in q["decomposition"][:-1]:
        assert not contains(q["question"], hop["answer"])


@pytest.mark.parametrize("q", of_type(*CHAIN_TYPES))
def test_chain_hops_are_connected(q):
    for i, hop in enumerate(q["decomposition"][1:], start=1):
        assert f"#{i}" in hop["question"]


@pytest.mark.parametrize("q", of_type(*COMPARISON_TYPES))
def test_comparison_answers(q):
    titles = {BY_ID[g]["title"] for g in q["gold"]}
    assert q["answers"][0] in titles | {plain_title(t) for t in titles} | {"yes", "no"}
    assert len(q["gold"]) == (2 if q["type"] == "comparison" else 4)


@pytest.mark.parametrize("q", of_type("thematic"))
def test_thematic(q):
    assert len(q["answers"]) == 1
    assert 3 <= len(q["gold"]) <= 8
    assert q["decomposition"] == []


@pytest.mark.parametrize("q", of_type("unanswerable"))
def test_unanswerable(q):
    assert q["answers"] == q["gold"] == q["evidence"] == q["decomposition"] == []
    assert q["hops"] == 0
