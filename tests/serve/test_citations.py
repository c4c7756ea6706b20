"""Citations: every mark of 200 random answers leads to its sentence, in Python, in REST, in OpenAI's form."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.folder import load_documents
from gnnrag.datasets.jsonl import Skips, load_passages
from gnnrag.roles.base import Answer as Read
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.quoting import Quoter
from gnnrag.roles.reader import Evidence, cited_answer
from gnnrag.roles.tables import TableReader
from gnnrag.run.answers import Answer, make_answer
from gnnrag.text.normalise import words
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Passage, Prediction, Question
from tests.helpers.serving import Client, build, serving

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
HARBOUR = """# Harbour

The harbour was dredged in 1904 [2]. Ferries leave the harbour twice a day, as the board decided [1, 3].
Two ferries are kept in reserve. The reserve is paid by the town.

## Rules

Who moors here has to bring:

- a copy of the insurance of the boat
- two fenders for each side of the boat
- the receipt of the harbour office

| berth | length | tenant |
| --- | --- | --- |
| North 1 | 12 | Ada Holm |
| North 2 | 15 | Ines Duarte |
| South 1 | 9 | Karl Rask |
"""
FEES = "customer,country,fee\n" + "".join(
    f"Vann {n},{('Norway', 'Sweden', 'Iceland')[n % 3]},{100 + n}\n" for n in range(30)
)
ON_TABLES = ("How many customers are in Norway?", "Which customer has the highest fee?", "What is the fee of Vann 7?",
             "Who is the tenant of South 1?", "Which tenants have a length of more than 10?")  # fmt: skip


def index_of(passages: list[Passage]) -> Any:
    known = {passage.id: passage for passage in passages}
    return SimpleNamespace(
        position=known, lookup=lambda ids: tuple(known[i] for i in ids), generation="g", passages=passages
    )


def read(rng: random.Random, index: Any, context: tuple[Passage, ...]) -> tuple[str, Read]:
    """Return how a reader answered: with sentences of the passages, a model's own, a table, a few words."""
    kind = rng.choice(["quoted", "written", "table", "short"])
    asked = " ".join(rng.sample([w for p in context for w in p.text.split()], 6))
    if kind == "quoted":
        task = ReaderTask(Question("q", asked), context, "", "long", rng.choice([20, 90]))
        (answer,) = Quoter(None, 10).answers([task], [0.0], [None])
        return kind, answer
    if kind == "written":
        sentences = [rng.choice(split_sentences(rng.choice(context).text)) for _ in range(rng.randint(1, 5))]
        numbers = [rng.sample(range(1, len(context) + 1), min(len(context), rng.randint(0, 2))) for _ in sentences]
        plain = [re.sub(r" ?\[[\d, ]+\]", "", " ".join(sentence.split())) for sentence in sentences]
        return kind, cited_answer(zip(plain, map(tuple, numbers), strict=True), Evidence(context))
    if kind == "table":
        task = ReaderTask(Question("q", rng.choice(ON_TABLES)), context, "", None)
        if (said := TableReader(index).answer(task)) is not None:
            return kind, said
    passage = rng.choice(context)
    return "short", Read(" ".join(passage.text.split()[2:4]), (passage.id,), 0.9)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Any, Answer]]:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "harbour.md").write_text(HARBOUR)
    (folder / "fees.csv").write_text(FEES)
    corpora = [load_passages(SAMPLE / "corpus.jsonl"), load_documents(folder, Chunking(40), Skips()).passages]
    rng, answers = random.Random(0), []
    for number in range(200):
        index = index_of(list(corpora[number % 2]))
        context = tuple(rng.sample(index.passages, rng.randint(1, 5)))
        kind, answer = read(rng, index, context)
        row = json.loads(json.dumps({"event": "answer", **asdict(answer)}))  # as a trace keeps it
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "retriever_calls": 1, "llm_calls": 0}
        prediction = Prediction(f"q{number}", answer.text, (), tuple(p.id for p in context), 0, usage, 0.1)
        answers.append((kind, index, make_answer(f"question {number}", prediction, [row], index)))
    assert {"quoted", "written", "table", "short"} == {kind for kind, _, answer in answers if answer.citations}
    return answers


def plain(text: str) -> list[str]:
    return words(re.sub(r"\[[\d, ]+\]", "", text))


def test_every_mark_leads_to_the_sentence_that_it_stands_behind(drawn: list[tuple[str, Any, Answer]]) -> None:
    for kind, index, answer in drawn:
        numbers = {citation.passage: citation.number for citation in answer.citations}
        assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))  # each source has one, without a gap
        places = {citation.at for citation in answer.citations}
        marks = {match.start(): int(match[1]) for match in re.finditer(r"\[(\d+)\]", answer.marked)}
        assert marks.keys() == places
        assert list(dict.fromkeys(marks.values())) == sorted(numbers.values())  # in the order of the text
        for citation in answer.citations:
            assert marks[citation.at] == citation.number == numbers[citation.passage]
            (passage,) = index.lookup([citation.passage])
            said, there = plain(citation.sentence), plain(passage.text[citation.start : citation.end])
            if kind != "written" or passage.text.find(citation.sentence) >= 0:  # a model may name any passage
                assert said == there or (kind == "quoted" and " ".join(said) in " ".join(there))
            if kind in ("quoted", "written"):
                before = plain(answer.marked[: citation.at])
                assert " ".join(said) in " ".join(before)
                *_, last = (other for other in answer.citations if other.at == citation.at)
                assert before[-len(plain(last.sentence)) :] == plain(last.sentence)
        if kind == "quoted":
            ordered = [marks[at] for at in sorted(marks)]
            assert all(a != b for a, b in pairwise(ordered))  # none is repeated


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving([build(tmp_path_factory.mktemp("citations"))]) as found:
        yield found


def test_rest_and_openai_say_the_same(
    client: Client, drawn: list[tuple[str, Any, Answer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {answer.question: answer for _, _, answer in drawn}

    async def answered(self: Any, served: Any, ask: Any) -> Answer:
        return answers[ask.question]

    monkeypatch.setattr("gnnrag.serve.indexes.Server.answer", answered)
    for question, answer in answers.items():
        data = client("POST", "/api/indexes/index/ask", {"question": question})[1]
        assert data["citations"] == [asdict(citation) for citation in answer.citations]
        assert (data["text"], data["marked"]) == (answer.text, answer.marked)
        body = {"model": "index/bdtr", "messages": [{"role": "user", "content": question}]}
        message = client("POST", "/v1/chat/completions", body)[1]["choices"][0]["message"]
        text, _, sources = message["content"].partition("\n\nSources:\n")
        head = "Nearest: " if answer.form == "quoted" else ""
        assert text == head + (answer.marked or "No answer was found in the passages.")
        notes = {
            note["url_citation"]["start_index"] - len(head): note["url_citation"] for note in message["annotations"]
        }
        assert notes.keys() == {citation.at for citation in answer.citations}
        for citation in answer.citations:
            note = notes[citation.at]
            assert message["content"][note["start_index"] : note["end_index"]] == f"[{citation.number}]"
            assert unquote(note["url"]).endswith(f"#/index/passage/{citation.passage}")
            line = next(row for row in sources.split("\n") if row.startswith(f"[{citation.number}] "))
            assert " ".join(citation.sentence.split()) in line
