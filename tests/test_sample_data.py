"""What the sample set in `data/sample` promises: sizes, types, and questions that its passages answer."""

import json
import re
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
    return [q for q in QUESTIONS if q["type"] in types]


def test_each_split_holds_every_type_and_hop_count_and_no_question_twice():
    for split, least in (("dev", 40), ("test", 22)):
        questions = QUESTIONS_BY_SPLIT[split]
        assert len(questions) >= least and {q["type"] for q in questions} == ALL_TYPES
        assert {2, 3, 4} <= {q["hops"] for q in questions}
    assert len({q["id"] for q in QUESTIONS}) == len({q["question"] for q in QUESTIONS}) == len(QUESTIONS)
    assert 4 <= len(of_type("thematic")) <= 6 and len(of_type("unanswerable")) == 5


@pytest.mark.parametrize("q", QUESTIONS)
def test_gold_and_evidence_are_of_the_corpus(q):
    assert set(q) == QUESTION_FIELDS and q["hops"] == len(q["decomposition"])
    assert len(set(q["gold"])) == len(q["gold"]) and set(q["gold"]) <= BY_ID.keys()
    titles = {plain_title(BY_ID[g]["title"]) for g in q["gold"]}
    assert all(len(triple) == 3 and all(triple) and triple[0] in titles for triple in q["evidence"])


@pytest.mark.parametrize("q", QUESTIONS)
def test_each_hop_is_answered_by_its_gold_passage(q):
    for i, hop in enumerate(q["decomposition"]):
        assert set(hop) == {"question", "answer", "gold"} and hop["gold"] in q["gold"]
        assert contains(BY_ID[hop["gold"]]["text"], hop["answer"])
        assert all(1 <= int(k) <= i for k in re.findall(r"#(\d+)", hop["question"]))
    assert not q["decomposition"] or {h["gold"] for h in q["decomposition"]} == set(q["gold"])


@pytest.mark.parametrize("q", of_type(*CHAIN_TYPES))
def test_a_chain_ends_in_the_answer_and_names_neither_it_nor_a_bridge(q):
    assert any(contains(BY_ID[g]["text"], q["answers"][0]) for g in q["gold"])
    assert q["decomposition"][-1]["answer"] == q["answers"][0]
    assert not [a for a in (*q["answers"], *(h["answer"] for h in q["decomposition"])) if contains(q["question"], a)]
    assert all(f"#{i}" in hop["question"] for i, hop in enumerate(q["decomposition"][1:], start=1))
