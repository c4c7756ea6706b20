"""The canonical layout: what is accepted, and that every fault is named with file, line and field."""

import json

import pytest

from gnnrag.datasets.jsonl import load_passages, load_questions, read_question, split_file
from gnnrag.errors import DataError
from gnnrag.types import GoldHop, Passage, Question

P1 = '{"id": "p1", "title": "Alpha", "text": "First."}'
Q1 = '{"id": "q1", "question": "Who?", "answers": ["Ann"]}'


@pytest.fixture
def write(tmp_path):
    def write(content, name="corpus.jsonl"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_passages_keep_order_and_text_exactly(write):
    path = write(f'{P1}\n\n{{"id": 7, "text": " é “x” \\n", "score": 3}}')
    assert load_passages(path) == [Passage("p1", "Alpha", "First."), Passage("7", "", " é “x” \n")]
    with_mark = write(b"\xef\xbb\xbf" + P1.encode() + b"\r\n")  # byte-order mark, line ends of Windows
    assert len(load_passages(with_mark)) == 1


def test_texts_are_in_a_form_that_can_be_written_and_compared(write):
    """Half a surrogate pair becomes a question mark, and a letter with its accent apart one letter."""
    path = write('{"id": "e\\u0301", "title": "e\u0301", "text": "\\ud83d\\ude00, \\ud83d"}')
    assert load_passages(path) == [Passage("é", "é", "\U0001f600, ?")]
    row = {"id": "q", "question": "Cafe\u0301?", "answers": ["e\u0301"], "gold": ["e\u0301"]}
    expected = Question("q", "Café?", ("é",), gold=("é",))
    assert load_questions(write(json.dumps(row)), {"é"}) == [expected] == [read_question(row, 1, frozenset("é"))]


def test_question_fields_and_the_rest_in_extra(write):
    row = {
        "id": "2hop__1",
        "question": "Where was #?",
        "answers": ["Paris", "Paname"],
        "type": "2hop",
        "gold": ["p1", 2, "p1"],
        "decomposition": [{"question": "a", "answer": "b", "gold": "p1"}, {"question": "#1 >> x", "answer": "y"}],
        "evidence": [["h", "r", "t"]],
        "anchor": "Ann",
        "hops": 2,
    }
    (question,) = load_questions(write(json.dumps(row)), {"p1", "2"})
    assert question.answers == ("Paris", "Paname")
    assert question.gold == ("p1", "2")
    assert question.decomposition == (GoldHop("a", "b", "p1"), GoldHop("#1 >> x", "y", None))
    assert question.evidence == (("h", "r", "t"),)
    assert question.extra == {"anchor": "Ann", "hops": 2}


def test_defaults_and_no_check_of_gold_without_a_corpus(write):
    (question,) = load_questions(write('{"id": "q", "question": "?", "answers": [], "gold": ["gone"]}'))
    assert (question.answers, question.type, question.gold) == ((), "unknown", ("gone",))


@pytest.mark.parametrize(
    ("content", "line", "field"),
    [
        (f"{P1}\nhello\n", 2, "JSON"),
        (f'{P1}\n{{"id": "p2", "te', 2, "JSON"),
        (f'{P1}\n{{"idd": 3, "text": "x"}}\n', 2, "'id'"),
        (json.dumps({"id": "p", "text": ["x" * 100_000]}), 1, "'text'"),
        (f'{P1}\n\n{{"id": "p2", "text": " \\n"}}\n', 3, "'text'"),
        (f"{P1}\n\n{P1}\n", 3, "'p1' is already used on line 1"),
        (P1.encode() + b'\n{"id": "p2", "text": "caf\xe9 au lait"}\n', 2, "iconv"),
        ('{"id": "p", "text": ' + "[" * 100_000 + "\n", 1, "JSON"),
        ('{"id": ' + "9" * 5000 + "}\n", 1, "JSON"),
    ],
)
def test_a_broken_corpus_is_named_with_file_and_line(write, content, line, field):
    path = write(content)
    with pytest.raises(DataError) as caught:
        load_passages(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(str(path)) and len(str(caught.value)) < 500
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ('{"id": "q", "question": "?", "anwsers": []}', "'answers'"),
        ('{"id": "q", "question": "?", "answers": [null]}', "'answers.0'"),
        ('{"id": "q", "question": "?", "answers": [], "gold": "p1"}', "'gold'"),
        ('{"id": "q", "question": "?", "answers": [], "decomposition": [{"answer": "a"}]}', "question'"),
        (Q1, "'q1' is already used on line 1"),
        ('{"id": "q", "question": "?", "answers": [], "gold": ["p1", "wiki-12O"]}', "'wiki-12O'"),
        (
            '{"id": "q", "question": "?", "answers": [], '
            '"decomposition": [{"question": "a", "answer": "b", "gold": "z"}]}',
            "'z', which is not in the corpus my/docs",
        ),
    ],
)
def test_a_broken_question_is_named_with_file_and_line(write, content, field):
    path = write(f"{Q1}\n{content}\n", "questions.dev.jsonl")
    with pytest.raises(DataError) as caught:
        load_questions(path, {"p1", "wiki-120", "wiki-9"}, corpus="my/docs")
    assert caught.value.line == 2
    assert field in str(caught.value)


def test_missing_files_and_splits(write, tmp_path):
    with pytest.raises(DataError, match=r"corpus\.jsonl"):
        load_passages(tmp_path / "corpus.jsonl")
    with pytest.raises(DataError, match="split='dev'"):
        split_file(tmp_path, "dev")
    write(Q1, "questions.train.jsonl")
    path = write(Q1, "questions.test.jsonl")
    assert split_file(tmp_path, "test") == path
    with pytest.raises(DataError, match="splits here: test, train"):
        split_file(tmp_path, "dev")
