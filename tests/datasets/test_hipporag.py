"""HippoRAG's release layout: one small release per benchmark, with that benchmark's own field names."""

import json

import pytest

from gnnrag.datasets.base import load_dataset, load_passages, load_questions
from gnnrag.errors import DataError
from gnnrag.metrics.answer import exact_match
from gnnrag.types import GoldHop

CORPUS = [
    {"title": "Ann", "text": "Ann was born in Paris. She sang.", "idx": 0},
    {"title": "Paris", "text": "Paris is in France."},
    {"title": "Ann", "text": "Ann is also a river."},
    {"title": "Rome", "text": "Rome is in Italy. "},
]
HOTPOT = {
    "_id": "h1",
    "question": "Where was the singer born?",
    "answer": "Paris",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Ann", 0], ["Ann", 1], ["Rome", 0]],
    "context": [
        ["Ann", ["Ann was born in Paris.", " She sang."]],
        ["Paris", ["Paris is in France."]],
        ["Rome", ["Rome is in Italy."]],
    ],
}
TWO_WIKI = {
    **{"_id": "w1", "question": "Country?", "answer": "France", "type": "compositional"},
    "supporting_facts": [["Ann", 0]],
    "context": [["Ann", ["Ann was born in Paris.", "She sang."]]],
    "evidences": [["Ann", "place of birth", "Paris"]],
}
MUSIQUE = {
    **{
        "id": "3hop1__1_2_3",
        "question": "Country of the singer?",
        "answer": "France",
        "answer_aliases": ["FR", "France"],
    },
    "answerable": True,
    "paragraphs": [
        {"idx": 4, "title": "Ann", "paragraph_text": CORPUS[0]["text"], "is_supporting": True},
        {"idx": 6, "title": "Rome", "paragraph_text": "Rome is in Italy.", "is_supporting": False},
        {"idx": 9, "title": "Paris", "paragraph_text": "Paris is in France.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Ann >> born", "answer": "Paris", "paragraph_support_idx": 4},
        {"id": 2, "question": "#1 >> country", "answer": "France", "paragraph_support_idx": 9},
        {"id": 3, "question": "#2 ?", "answer": "yes", "paragraph_support_idx": None},
    ],
}
POPQA = {
    **{"id": 4222362, "question": "What is Ann's job?", "prop": "occupation", "obj": "singer"},
    "possible_answers": '["singer", "vocalist", "chanteuse \\u00e9"]',
    "o_wiki_title": "Singing",
    "o_aliases": '["vocalist", "crooner"]',
    "paragraphs": [{"title": "Ann", "text": "Ann is also a river.", "is_supporting": True}],
}
NQ = {
    **{"question": "where is rome", "reference": ["Italy", "in Italy"]},
    "contexts": [
        {"title": "Rome", "text": "Rome is in Italy.", "is_supporting": True},
        {"title": "Paris", "text": "Paris is in France.", "is_supporting": False},
    ],
}
NARRATIVE = {"question": "Who sings?", "answer": ["Ann", "She"], "document_id": "d1"}


@pytest.fixture
def release(tmp_path):
    def write(questions, corpus=CORPUS, name="toy"):
        (tmp_path / f"{name}_corpus.json").write_text(json.dumps(corpus))
        (tmp_path / f"{name}.json").write_text(json.dumps(questions))
        return tmp_path / name

    return write


EXPECTED = {  # sample -> id, answers, type, gold
    "hotpotqa": (HOTPOT, "h1", ("Paris",), "bridge", ("toy-0", "toy-3")),
    "2wiki": (TWO_WIKI, "w1", ("France",), "compositional", ("toy-0",)),
    "musique": (MUSIQUE, "3hop1__1_2_3", ("France", "FR"), "3hop1", ("toy-0", "toy-1")),
    "popqa": (
        *(POPQA, "4222362", ("singer", "Singing", "vocalist", "chanteuse é", "crooner")),
        *("unknown", ("toy-2",)),
    ),
    "nq": (NQ, "toy-q0", ("Italy", "in Italy"), "unknown", ("toy-3",)),
    "narrativeqa": (NARRATIVE, "toy-q0", ("Ann", "She"), "unknown", ()),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_each_benchmark(release, case):
    sample, qid, answers, kind, gold = EXPECTED[case]
    dataset = load_dataset(release([sample]))
    (question,) = dataset.questions
    assert (question.id, question.answers, question.type, question.gold) == (qid, answers, kind, gold)
    assert question.text == sample["question"]
    assert [p.id for p in dataset.passages] == ["toy-0", "toy-1", "toy-2", "toy-3"]
    assert dataset.passages[3].text == "Rome is in Italy. "
    assert (dataset.name, dataset.remarks) == ("toy", ())


UNANSWERABLE = [
    {"answer": "Paris", "answerable": False},
    {"answer": "Paris", "answerable": "false"},
    {"answers": {"text": [], "answer_start": []}, "is_impossible": True},
    {"answers": [{"text": "Paris", "answer_start": 5}], "is_impossible": True},
    {"answer": "Paris", "has_answer": 0},
    {"answer": ["Paris"], "is_unanswerable": True},
]


@pytest.mark.parametrize("fields", UNANSWERABLE)
def test_where_nothing_answers_abstaining_scores_and_guessing_does_not(release, fields):
    (question,) = load_dataset(release([{"question": "Where?", **fields}])).questions
    assert question.answers == ()
    assert [exact_match(said, question.answers) for said in ("", "Paris")] == [1, 0]


@pytest.mark.parametrize(
    "fields", [{"answerable": True}, {"is_impossible": False}, {"is_impossible": None}, {"has_answer": "yes"}, {}]
)
def test_where_something_answers_it_does(release, fields):
    squad = {"answers": {"text": ["Paris", "Paris", "in Paris"], "answer_start": [1, 1, 0]}}
    (question,) = load_dataset(release([{"question": "Where?", **squad, **fields}])).questions
    assert question.answers == ("Paris", "in Paris")


def test_an_id_of_several_questions_loads(release):
    """As in MuSiQue-Full, which asks each question with and without what answers it."""
    twin = {**MUSIQUE, "answerable": False, "paragraphs": MUSIQUE["paragraphs"][1:], "question_decomposition": []}
    third = {**MUSIQUE, "question": "Another?"}
    data = load_dataset(release([MUSIQUE, twin, MUSIQUE, third]))
    id_ = MUSIQUE["id"]
    assert [(q.id, bool(q.answers)) for q in data.questions] == [(id_, True), (f"{id_}@2", False), (f"{id_}@3", True)]
    assert data.remarks[0] == f"skipped 1: repeated question ({id_})" and f"{id_}@2" in data.remarks[1]


def test_decomposition_evidence_and_extra(release):
    musique, two_wiki, popqa = load_dataset(release([MUSIQUE, TWO_WIKI, POPQA])).questions
    assert musique.decomposition == (
        GoldHop("Ann >> born", "Paris", "toy-0"),
        GoldHop("#1 >> country", "France", "toy-1"),
        GoldHop("#2 ?", "yes", None),
    )
    assert two_wiki.evidence == (("Ann", "place of birth", "Paris"),)
    assert two_wiki.extra == {"supporting_facts": [["Ann", 0]]}
    assert popqa.extra == {"prop": "occupation"}
    assert musique.extra == {"answerable": True}
    (question,) = load_dataset(release([{**MUSIQUE, "answer": "", "answer_aliases": []}])).questions
    assert question.answers == (), "an empty answer means unanswerable"


def test_duplicates_keep_the_first_and_carry_gold(release):
    corpus = [{"title": "Empty", "text": " "}, *CORPUS, CORPUS[0], CORPUS[0]]
    dataset = load_dataset(release([TWO_WIKI], corpus))
    assert [p.id for p in dataset.passages] == ["toy-1", "toy-2", "toy-3", "toy-4"]
    assert [remark.partition(" (")[0] for remark in dataset.remarks] == [
        "skipped 1: empty passage", "skipped 2: duplicate passage",
    ]  # fmt: skip
    assert "(toy-5 (same as toy-1), " in dataset.remarks[1]
    assert dataset.questions[0].gold == ("toy-1",)


def test_gold_falls_back_to_a_title_that_is_unique(release):
    sample = {**TWO_WIKI, "supporting_facts": [["Paris", 0], ["Rome", 0]], "context": [["Paris", ["Other text."]]]}
    dataset = load_dataset(release([sample]))
    assert dataset.questions[0].gold == ("toy-1", "toy-3")
    assert dataset.remarks == ("2 gold passages were matched by their title, as their text differs",)


@pytest.mark.parametrize(("title", "count"), [("Ann", 2), ("Berlin", 0)])
def test_gold_that_is_not_in_the_corpus(release, title, count):
    lost = {**TWO_WIKI, "_id": "lost", "supporting_facts": [[title, 0]], "context": [[title, ["Other text."]]]}
    path = release([TWO_WIKI, lost])
    with pytest.raises(DataError) as caught:
        load_dataset(path)
    for part in ("toy.json", "question 'lost' (number 1)", repr(title), f"{count} passages have its title"):
        assert part in str(caught.value)


@pytest.mark.parametrize("suffix", ["", ".json", "_corpus.json"])
def test_ways_to_name_a_release(release, suffix):
    path = release([TWO_WIKI])
    named = path.with_name(path.name + suffix)
    assert load_dataset(named).name == "toy"
    assert len(load_passages(named).passages) == 4
    (question,) = load_questions(path.with_suffix(".json"), load_passages(named).passages)
    assert question.gold == ("toy-0",)


def test_a_folder_with_one_release_needs_no_name_and_with_two_asks_for_it(release, tmp_path):
    release([TWO_WIKI])
    assert load_dataset(tmp_path).name == "toy"
    release([TWO_WIKI], name="zoo")
    with pytest.raises(DataError, match="toy, zoo"):
        load_dataset(tmp_path)


def without(sample, key):
    return {k: v for k, v in sample.items() if k != key}


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([without(HOTPOT, "answer")], "'h1'.*answer, gold_ans"),
        ([{**MUSIQUE, "paragraphs": [{"title": "x"}]}], "'3hop1__1_2_3'.*'paragraph_text'"),
        ([{**POPQA, "o_aliases": "[broken"}], "'o_aliases'"),
        ({"data": []}, "list of questions"),
    ],
)
def test_broken_questions(release, questions, message):
    with pytest.raises(DataError, match=message):
        load_dataset(release(questions))
