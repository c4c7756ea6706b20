"""MultiHop-RAG, both benchmarks called GraphRAG-Bench and UltraDomain: small files of ours in the releases' formats."""

import copy
import json
from pathlib import Path

import pytest

from gnnrag.datasets.base import load_dataset, load_passages
from gnnrag.datasets.chunk import Chunking, cut
from gnnrag.datasets.jsonl import Skips
from gnnrag.datasets.long_documents import GoldPlacer
from gnnrag.errors import DataError

CUT = Chunking(20)
ARTICLE = ("title", "author", "source", "published_at", "category", "url", "body")
ARTICLES = [
    dict(zip(ARTICLE, row, strict=True))
    for row in (
        (
            *("Harbour bridge to close", "A. Writer", "The Quay", "2023-10-02T10:00:00+00:00", "business"),
            "https://quay.example/bridge",
            "The harbour bridge will close in May. Engineers found cracks in two piers.\n\n"
            "Mayor Iris Blom called the closure unavoidable. Ferries will run every ten minutes instead.",
        ),
        (
            *("Ferry firm wins contract", "B. Writer", "Port News", "2023-10-05T10:00:00+00:00", "business"),
            "https://port.example/ferry",
            "Nordlund Ferries won the city's contract. Its owner, Kai Nordlund, started with one boat.",
        ),
    )
]


def fact(article, words):
    return {key: ARTICLES[article][key] for key in ARTICLE if key != "body"} | {"fact": words}


QUERIES = [
    {
        "query": "Who owns the firm that carries people while the harbour bridge is closed?",
        "answer": "Kai Nordlund",
        "question_type": "inference_query",
        "evidence_list": [
            fact(0, "Ferries will run every ten minutes instead."),
            fact(1, "Its owner, Kai Nordlund, started with one boat."),
        ],
    },
    {
        "query": "What does the mayor's sister do?",
        "answer": "Insufficient information.",
        "question_type": "null_query",
        "evidence_list": [],
    },
]
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
def multihop(tmp_path):
    def make(queries=QUERIES, articles=ARTICLES):
        write(tmp_path / "mh" / "corpus.json", articles)
        write(tmp_path / "mh" / "MultiHopRAG.json", queries)
        return tmp_path / "mh"

    return make


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


# ------------------------------------------------------------------------------------------------------ MultiHop-RAG
def test_multihop_rag(multihop):
    data = load_dataset(multihop(), chunking=CUT)
    assert data.name == "multihop_rag"
    assert [p.id for p in data.passages] == ["article-0#1", "article-0#2", "article-1#1"]
    assert data.passages[1].title == "Harbour bridge to close"
    first, null = data.questions
    assert first.gold == ("article-0#2", "article-1#1")
    assert (first.id, first.answers, first.type, first.extra["hops"]) == (
        "multihop-rag-0",
        ("Kai Nordlund",),
        "inference_query",
        2,
    )
    assert (null.answers, null.gold, null.extra["hops"]) == ((), (), 0)
    assert null.extra["release_answer"] == "Insufficient information."
    assert data.remarks == []
    whole = load_dataset(multihop(), chunking=Chunking(200))
    assert whole.questions[0].gold == ("article-0#1", "article-1#1"), "other chunks, other gold"


@pytest.mark.parametrize("path", ["", "corpus.json", "MultiHopRAG.json"])
def test_every_way_to_name_multihop_rag(multihop, path):
    assert load_passages(multihop() / path, CUT).name == "multihop_rag"
    assert len(load_dataset(multihop() / path, limit=1, chunking=CUT).questions) == 1


def test_evidence_without_its_url_is_found_by_its_title(multihop):
    queries = copy.deepcopy(QUERIES)
    queries[0]["evidence_list"][0]["url"] = "https://elsewhere.example"
    assert load_dataset(multihop(queries), chunking=CUT).questions[0].gold == ("article-0#2", "article-1#1")
    queries[0]["evidence_list"][0]["title"] = "Another"
    with pytest.raises(DataError, match=r"https://elsewhere.example"):
        load_dataset(multihop(queries), chunking=CUT)
    kept = load_dataset(multihop(queries), chunking=CUT, missing_gold="drop")
    assert [q.id for q in kept.questions] == ["multihop-rag-1"]
    assert [*kept.skipped] == ["evidence from a document that is not in the corpus"]


# ---------------------------------------------------------------------------------------------------- GraphRAG-Bench
def test_graphrag_bench(novels):
    data = load_dataset(novels(), chunking=CUT)
    assert data.name == "novel"
    first, second = data.questions
    assert first.gold == ("Novel-1#1",)
    assert first.evidence == (("Tom", "sold honey in", "Ely market"),)
    assert (first.type, first.answers) == ("Fact Retrieval", ("Ely market",))
    # The release has one id for questions on two novels.
    assert (second.id, second.gold) == ("Novel-aa@Novel-2", ())
    assert second.extra["evidence_relations"] == "keeper -> oil"
    assert any("this one is Novel-aa@Novel-2" in note for note in data.remarks)
    assert any("1 questions have no gold passage" in note for note in data.remarks)
    assert len(load_dataset(novels(), chunking=CUT, missing_gold="drop").questions) == 1


def test_the_medical_part_is_one_document_and_may_join_its_evidence(novels):
    document = {"corpus_name": "Medical", "context": "Basal cells grow slowly. Light harms the skin."}
    row = {
        "id": "Medical-1",
        "source": "Medical",
        "question": "What harms the skin?",
        "answer": "Light",
        "question_type": "Fact Retrieval",
        "evidence": "Light harms the skin.; Basal cells grow slowly.",
    }
    folder = novels([row], document, "medical")
    question = load_dataset(folder / "medical", chunking=Chunking(5)).questions[0]
    assert question.gold == ("Medical#2", "Medical#1")
    assert question.extra["statements"] == ["Light harms the skin.", "Basal cells grow slowly."]


@pytest.mark.parametrize("path", ["novel", "Datasets/Corpus/novel.json", "Datasets/Questions/novel_questions.json"])
def test_every_way_to_name_one_of_several(novels, path):
    folder = novels()
    novels(NOVEL_QUESTIONS[:1], NOVELS, "medical")
    with pytest.raises(DataError, match="medical, novel"):
        load_dataset(folder)
    assert load_dataset(folder / path, chunking=CUT).name == "novel"
    assert load_dataset(folder / "Datasets" / "Corpus" / "medical.json", chunking=CUT).name == "medical"


# ------------------------------------------------------------------------------------------------------- UltraDomain
def test_ultradomain(books, tmp_path):
    data = load_dataset(books(), chunking=Chunking(7))
    assert [p.id for p in data.passages] == ["cs-1#1", "cs-1#2", "cs-2#1", "cs-2#2"]
    assert [p.title for p in data.passages] == ["A Garden Year", "A Garden Year", "", ""]
    assert [q.extra["document"] for q in data.questions] == ["cs-1", "cs-1", "cs-2"]
    assert [q.id for q in data.questions] == ["u1", "u2", "u3"]
    assert data.questions[2].type == "fin"
    assert not any(q.gold for q in data.questions)
    row = {"id": "q", "question": "Where?", "answers": ["frost"], "gold": ["cs-1#1"]}
    write(tmp_path / "made.jsonl", [row], lines=True)
    data = load_dataset(books(), questions=tmp_path / "made.jsonl")
    assert data.questions[0].gold == ("cs-1#1",), "canonical questions on a release"
    own = tmp_path / "own" / "history.jsonl"
    write(own, [{"title": "Note", "text": "Context and input are ordinary words."}], lines=True)
    assert load_dataset(own).passages[0].title == "Note", "own documents are not taken for it"
    assert load_dataset(own.parent).passages[0].id.startswith("history.jsonl")


def test_a_repeated_row_is_left_out_and_an_id_of_two_questions_gets_a_number(books):
    data = load_dataset(books([BOOKS[0], BOOKS[0]]))
    assert len(data.questions) == 1 and [*data.skipped] == ["repeated question"]
    assert [q.id for q in load_dataset(books([BOOKS[0], BOOKS[1] | {"_id": "u1"}])).questions] == ["u1", "u1@2"]


# ---------------------------------------------------------------------------------------------------- placing evidence
TEXT = (
    "The ferry left Oban at noon. Its captain, Ann Reid, had sailed for “thirty years”.\n\n"
    "A storm broke near Mull. The crew lost two sails before dusk. They reached Tobermory by night.\n\n"
    "In spring the owners sold the ferry. A museum in Leith bought it."
)


def placer(skips=None, missing="error", text=TEXT):
    passages = cut("log", "The ferry", text, Chunking(18)) + cut("other", "Other", "Nothing of note.", Chunking(18))
    return GoldPlacer(Path("q.json"), passages, missing, skips or Skips()), passages


def place(statement, document="log", **given):
    return placer(**given)[0].place("question 1", [(document, document or "lost", statement)])


@pytest.mark.parametrize(
    ("statement", "gold"),
    [
        ("The crew lost two sails before dusk.", ("log#2",)),
        ("the crew  LOST two sails, before dusk", ("log#2",)),
        ('had sailed for "thirty years"', ("log#1",)),
        ("thirty years”. A storm broke near Mull", ("log#1", "log#2")),  # runs over a border
        ("Two of the sails had been lost by the crew at dusk", ()),  # 7 of 11 words
        ("Before dusk the crew lost two sails", ("log#2",)),  # all words, in another order
        ("The ferry", ("log#1",)),  # where it stands first
        ("erry left", ()),  # whole words only
        ("...", ()),
        ("Nothing of note.", ()),  # stands in another document
    ],
)
def test_a_statement_is_found_where_its_words_are(statement, gold):
    assert place(statement) == gold


def test_a_question_without_its_document_is_an_error_or_left_out():
    with pytest.raises(DataError, match=r"'lost'.*missing_gold=drop"):
        place("x", document=None)
    skips = Skips()
    assert place("x", document=None, skips=skips, missing="drop") is None
    assert place("Zebras sang", skips=skips, missing="drop") is None
    assert [len(names) for names in skips.by_reason.values()] == [1, 1]
