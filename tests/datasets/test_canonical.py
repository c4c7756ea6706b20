"""The canonical layout: what is accepted, and that every fault is named with file, line, value and fix."""

import json
import tracemalloc

import pytest

from gnnrag.datasets.canonical import load_passages, load_questions, split_file
from gnnrag.datasets.jsonl import read_json
from gnnrag.errors import DataError
from gnnrag.types import GoldHop, Passage
from tests.helpers.each import each

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
    assert len(load_passages(write(b"\xef\xbb\xbf" + P1.encode() + b"\r\n"))) == 1, (
        "a byte order mark, Windows' line ends"
    )


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


def test_an_unanswerable_question_has_no_answers_and_defaults_apply(write):
    (question,) = load_questions(write('{"id": "q", "question": "?", "answers": []}'))
    assert (question.answers, question.type, question.gold) == ((), "unknown", ())
    (question,) = load_questions(write('{"id": "q", "question": "?", "answers": [], "gold": ["gone"]}'))
    assert question.gold == ("gone",), "it is not checked without a corpus"


BAD_LINES = {
    "not json": (f"{P1}\nhello\n", 2, ["is not JSON: Expecting value at column 1", "'hello'"]),
    "cut off": (f'{P1}\n{{"id": "p2", "te', 2, ["is cut off", "copy or download it again"]),
    "cut off in a number of braces": (f'{P1}\n{{"id": "p2", "text": ', 2, ["is cut off"]),
    "array": (f"[{P1}]\n", 1, ["is a JSON list; each line must be one object"]),
    "pretty printed": (f"[\n{P1}\n]", 1, ["spread over several lines"]),
    "no id": (f'{P1}\n{{"idd": 3, "text": "x"}}\n', 2, ["has no 'id'; its keys are idd, text"]),
    "no text": ('{"id": "p", "body": "x"}\n', 1, ["has no 'text'; its keys are body, id"]),
    "text is a number": ('{"id": "p", "text": 5}\n', 1, ["'text' is 5; it must be a string"]),
    "text is a long list": (json.dumps({"id": "p", "text": ["x" * 100_000]}), 1, ["'text' is ['xxx"]),
    "title is null": ('{"id": "p", "title": null, "text": "x"}\n', 1, ["'title' is None; it must be a string"]),
    "empty text": (f'{P1}\n\n{{"id": "p2", "text": " \\n"}}\n', 3, ["passage 'p2' has an empty 'text'", "delete"]),
    "duplicate id": (f"{P1}\n\n{P1}\n", 3, ["id 'p1' is already used on line 1"]),
    "boolean id": ('{"id": true, "text": "x"}\n', 1, ["'id' holds True; an id must be a string"]),
    "blank id": ('{"id": " ", "text": "x"}\n', 1, ["'id' holds ' '"]),
    "latin-1": (P1.encode() + b'\n{"id": "p2", "text": "caf\xe9 au lait"}\n', 2, ["0xe9", "position 25", "-f LATIN1"]),
    "utf-16": (P1.encode("utf-16"), 1, ["is UTF-16", "iconv -f UTF-16 -t UTF-8 corpus.jsonl"]),
    "utf-16 without mark": (P1.encode("utf-16-le"), 1, ["looks like UTF-16", "iconv -f UTF-16LE"]),
    "utf-32": (P1.encode("utf-32"), 1, ["is UTF-32"]),
    "cut within a character": (P1.encode() + b'\n{"id": "p2", "text": "caf\xc3', 2, ["cut off within a character"]),
    "ids alike once repaired": (
        '{"id": "p\\ud83d", "text": "x"}\n{"id": "p\\ud83e", "text": "y"}\n',
        2,
        ["id 'p\ufffd' is already used on line 1"],
    ),
    "nested": ('{"id": "p", "text": ' + "[" * 100_000 + "\n", 1, ["nested too deeply"]),
    "huge number": ('{"id": ' + "9" * 5000 + "}\n", 1, ["is not usable JSON"]),
}


@each("case", BAD_LINES)
def test_broken_corpus_is_named_with_file_and_line(write, case):
    content, line, parts = BAD_LINES[case]
    path = write(content)
    with pytest.raises(DataError) as caught:
        load_passages(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert len(message) < 500
    for part in parts:
        assert part in message


@each("content", ["", "\n\n  \n"])
def test_no_passages_and_no_questions(write, content):
    with pytest.raises(DataError, match=r"corpus.jsonl: holds no passages; each line must be an object with 'id'"):
        load_passages(write(content))
    with pytest.raises(DataError, match="holds no questions; each line must be an object with 'id', 'question' and"):
        load_questions(write(content))


BAD_QUESTIONS = {
    "no answers": ('{"id": "q", "question": "?", "anwsers": []}', ["question 'q' has no 'answers'", "anwsers", "[]"]),
    "answers is text": ('{"id": "q", "question": "?", "answers": "Ann"}', ["'answers' is 'Ann'; it must be a list"]),
    "answer is a number": ('{"id": "q", "question": "?", "answers": ["1", 7]}', ["'answers' holds 7", "in quotes"]),
    "answer is null": ('{"id": "q", "question": "?", "answers": [null]}', ["'answers' holds None"]),
    "no question": ('{"id": "q", "text": "?", "answers": []}', ["has no 'question'; its keys are answers, id, text"]),
    "empty question": ('{"id": "q", "question": " ", "answers": []}', ["question 'q' has an empty 'question'"]),
    "gold is text": ('{"id": "q", "question": "?", "answers": [], "gold": "p1"}', ["'gold' is 'p1'", "a list"]),
    "evidence": ('{"id": "q", "question": "?", "answers": [], "evidence": [["a", "b"]]}', ["[head, relation, tail]"]),
    "hop": ('{"id": "q", "question": "?", "answers": [], "decomposition": ["a"]}', ["each hop must be an object"]),
    "hop key": ('{"id": "q", "question": "?", "answers": [], "decomposition": [{"question": "a"}]}', ["no 'answer'"]),
    "duplicate": (Q1, ["id 'q1' is already used on line 1"]),
    "gold id": (
        '{"id": "q", "question": "?", "answers": [], "gold": ["p1", "wiki-12O"]}',
        ["passage 'wiki-12O', which is not in the corpus my/docs; the nearest id there is 'wiki-120'"],
    ),
    "gold id of a hop": (
        '{"id": "q", "question": "?", "answers": [], '
        '"decomposition": [{"question": "a", "answer": "b", "gold": "zzz-zzz"}]}',
        ["gold passage 'zzz-zzz', which is not in the corpus my/docs"],
    ),
}


@each("case", BAD_QUESTIONS)
def test_broken_question_is_named_with_file_and_line(write, case):
    content, parts = BAD_QUESTIONS[case]
    path = write(f"{Q1}\n{content}\n", "questions.dev.jsonl")
    with pytest.raises(DataError) as caught:
        load_questions(path, {"p1", "wiki-120", "wiki-9"}, corpus="my/docs")
    assert str(caught.value).startswith(f"{path}, line 2: ")
    for part in parts:
        assert part in str(caught.value)


def test_missing_file_and_missing_split(write, tmp_path):
    with pytest.raises(DataError, match=r"corpus.jsonl: cannot be read: No such file"):
        load_passages(tmp_path / "corpus.jsonl")
    with pytest.raises(DataError, match=r"split='dev' does not exist; the folder has no questions.<split>.jsonl"):
        split_file(tmp_path, "dev")
    write(Q1, "questions.train.jsonl")
    path = write(Q1, "questions.test.jsonl")
    assert split_file(tmp_path, "test") == path
    with pytest.raises(DataError, match=r"split='dev' does not exist; splits here: test, train. .* questions=FILE"):
        split_file(tmp_path, "dev")


@each("limit, fits", [(len(P1), True), (len(P1) - 1, False)])
@each("end", ["", "\n"])
def test_line_limit_is_exact(write, limit, fits, end):
    path = write(P1 + end)
    if fits:
        assert len(load_passages(path, max_line_bytes=limit)) == 1
    else:
        with pytest.raises(DataError, match=f"line 1: is {len(P1)} bytes long, the limit is {limit}"):
            load_passages(path, max_line_bytes=limit)


@each("tail", [b"", b'"}\n' + P1.encode()])
def test_a_50_mb_line_is_refused_without_reading_it_into_memory(write, tail):
    start = b'{"id": "big", "text": "'
    path = write(P1.encode() + b"\n" + start + b"x" * 50_000_000 + tail)
    size = 50_000_000 + len(start) + (2 if tail else 0)
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            load_passages(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}, line 2: is {size:,} bytes long, the limit is 10,000,000; ")
    assert peak < 30_000_000


@each(
    "content, message",
    [
        ('{"a": [1, 2', "x.json, line 1: is cut off"),
        ('{"a": 1,\n b: 2}', "x.json, line 2: is not JSON: Expecting property name"),
        ("[] []", "x.json, line 1: is not JSON: Extra data"),
    ],
)
def test_json_files_report_the_line(write, content, message):
    with pytest.raises(DataError, match=message):
        read_json(write(content, "x.json"))
