"""GraphRAG-Bench and UltraDomain: small files of ours in the releases' formats."""

import json

import pytest

from gnnrag.datasets.base import load_dataset
from gnnrag.errors import DataError

NOVELS = [
    {
        "corpus_name": "Novel-1",
        "context": "Old Marta kept bees on the hill. Her nephew Tom sold the honey in Ely market.",
    },
    {"corpus_name": "Novel-2", "context": "The lighthouse at Skarn was dark. Keeper Olsen had gone to buy oil."},
]
NOVEL_QUESTIONS = [
    {
        "id": "Novel-aa",
        "source": "Novel-1",
        "question": "Where is Marta's honey sold?",
        "answer": "Ely market",
        "question_type": "Fact Retrieval",
        "evidence": ["Tom sold the honey in Ely market.", "Marta kept bees on the hill."],
        "evidence_triple": ["(Tom, sold honey in, Ely market).", "(Marta, kept, bees, on a hill)"],
    },
    {
        "id": "Novel-aa",
        "source": "Novel-2",
        "question": "Why was the lighthouse dark?",
        "answer": "The keeper had gone to buy oil.",
        "question_type": "Complex Reasoning",
        "evidence": ["A storm put out the lamp for good."],
        "evidence_relations": "keeper -> oil",
    },
]
GARDEN = {
    **{"context": "A garden year begins in frost. The gardener prunes the pear trees first.", "length": 13},
    **{"context_id": "c1", "label": "agriculture", "meta": {"title": "A Garden Year", "authors": "Nobody"}},
}
BOOKS = [
    {"input": "What does the gardener prune first?", "answers": ["The pear trees."], **GARDEN, "_id": "u1"},
    {"input": "When does the year begin?", "answers": ["In frost."], **GARDEN, "_id": "u2"},
    {  # as in fin.jsonl: no meta, no context_id
        **{"input": "What is a bond?", "answers": ["A loan."], "context": "A bond is a loan that can be sold."},
        **{"length": 9, "dataset": "fin", "_id": "u3", "label": "fin"},
    },
]


def write(path, value, lines=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(v) + "\n" for v in value) if lines else json.dumps(value), "utf-8")


@pytest.fixture
def novels(tmp_path):
    def make(questions=NOVEL_QUESTIONS, documents=NOVELS, name="novel"):
        write(tmp_path / "gb" / "Datasets" / "Corpus" / f"{name}.json", documents)
        write(tmp_path / "gb" / "Datasets" / "Questions" / f"{name}_questions.json", questions)
        return tmp_path / "gb"

    return make


@pytest.fixture
def books(tmp_path):
    def make(rows=BOOKS, name="cs"):
        write(tmp_path / "ud" / f"{name}.jsonl", rows, lines=True)
        return tmp_path / "ud" / f"{name}.jsonl"

    return make


def test_graphrag_bench(novels):
    folder = novels()
    data = load_dataset(folder / "novel", chunk_words=20)
    assert data.name == "novel"
    assert [p.id for p in data.passages] == ["Novel-1#1", "Novel-2#1"]
    first, second = data.questions
    assert (first.type, first.answers) == ("Fact Retrieval", ("Ely market",))
    assert first.extra == {"document": "Novel-1", "statements": NOVEL_QUESTIONS[0]["evidence"]}
    assert second.id == "Novel-aa@2"  # the release has one id for questions on two novels
    assert not first.gold and any("no passage is marked as gold" in note for note in data.remarks)


def test_the_medical_part_is_one_document_and_may_join_its_evidence(novels):
    document = {"corpus_name": "Medical", "context": "Basal cells grow slowly. Light harms the skin."}
    row = {
        "id": "Medical-1", "source": "Medical", "question": "What harms the skin?", "answer": "Light",
        "question_type": "Fact Retrieval", "evidence": "Light harms the skin.; Basal cells grow slowly.",
    }  # fmt: skip
    question = load_dataset(novels([row], document, "medical") / "medical", chunk_words=5).questions[0]
    assert question.extra["statements"] == ["Light harms the skin.", "Basal cells grow slowly."]


def test_ultradomain(books, tmp_path):
    data = load_dataset(books(), chunk_words=7)
    assert [p.id for p in data.passages] == ["cs-1#1", "cs-1#2", "cs-2#1"]
    assert [p.title for p in data.passages] == ["A Garden Year", "A Garden Year", ""]
    assert [(q.id, q.extra["document"]) for q in data.questions] == [("u1", "cs-1"), ("u2", "cs-1"), ("u3", "cs-2")]
    assert data.questions[2].type == "fin" and not any(q.gold for q in data.questions)
    row = {"id": "q", "question": "Where?", "answers": ["frost"], "gold": ["cs-1#1"]}
    write(tmp_path / "made.jsonl", [row], lines=True)
    data = load_dataset(books(), questions=tmp_path / "made.jsonl")
    assert data.questions[0].gold == ("cs-1#1",), "canonical questions on a release"
    own = tmp_path / "own" / "history.jsonl"
    write(own, [{"title": "Note", "text": "Context and input are ordinary words."}], lines=True)
    assert load_dataset(own).passages[0].title == "Note", "own documents are not taken for it"


def test_what_is_broken_is_named(novels):
    with pytest.raises(DataError, match=r"unknown shape: KeyError.*context"):
        load_dataset(novels(documents=[{"corpus_name": "A"}]) / "novel")
    with pytest.raises(DataError, match=r"unknown shape: KeyError.*question_type"):
        load_dataset(novels([{"id": "q", "question": "?", "answer": "!", "source": "Novel-1"}]) / "novel")
