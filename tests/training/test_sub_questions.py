"""Rows of a thought generator out of sub-questions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.prompts import load_prompt
from gnnrag.roles.base import Thoughts
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.training.language.data import asked, read_role
from gnnrag.training.rows import ThoughtsRow, read_rows
from gnnrag.training.sub_questions import Hop, hops_of, thoughts_at
from gnnrag.types import Passage, Question

FILM, TOWN = Passage("f", "Low Tide (film)", "Low Tide was made by Ann Roe."), Passage("t", "Ann Roe", "Born in Wick.")
QUESTION = Question("q", "Where was the maker of Low Tide born?", ("Wick",), gold=("f", "t"))


def hops(*texts: str, answers: tuple[str, ...] = ("Ann Roe", "Wick")) -> list[Hop]:
    return [Hop(text, answer, FILM) for text, answer in zip(texts, answers, strict=True)]


@pytest.mark.parametrize("texts, place, expected, reason", [
    # The second hop names Ann Roe, whom only the first finds: it cannot be asked yet.
    (("Who made Low Tide?", "Where was Ann Roe born?"), 0, Thoughts("Who made Low Tide?"), ""),
    (("Who made Low Tide?", "Where was Ann Roe born?"), 1, Thoughts("Where was Ann Roe born?"), ""),
    (("Who made Low Tide?", "Where was she born?"), 0, Thoughts("Who made Low Tide?", "Where was she born?"), ""),
    (("Did Ann Roe make Low Tide?", "Where was she born?"), 0, Thoughts(), "leak"),
    (("Who made Low Tide?", "Was Ann Roe born in Wick?"), 1, Thoughts(), "leak"),
    (("Who made Low Tide?", "who made  low tide?"), 1, Thoughts(), "repeated"),
    (("Where was the maker of Low Tide born?", "Where?"), 0, Thoughts(), "repeated"),
    (("Who made it?", "who made it?"), 0, Thoughts("Who made it?"), ""),
])  # fmt: skip
def test_what_is_asked_gives_nothing_away_and_repeats_nothing(
    texts: tuple[str, ...], place: int, expected: Thoughts, reason: str
) -> None:
    assert thoughts_at(QUESTION, hops(*texts), place) == (expected, reason)


def test_what_the_question_says_itself_is_no_leak() -> None:
    question = Question("q", "Is Low Tide older than High Tide?", ("Low Tide",))
    found = hops("When is Low Tide from?", "When is High Tide from?", answers=("1990", "1980"))
    assert thoughts_at(question, found, 0) == (Thoughts("When is Low Tide from?", "When is High Tide from?"), "")


@pytest.mark.parametrize("evidence, count, linked", [
    ((("Low Tide", "by", "Ann Roe"), ("Ann Roe", "born", "Wick")), 2, ["f", "t"]),
    ((("Low Tide", "by", "Ann Roe"), ("Someone", "born", "Wick")), 2, []),
    ((("Low Tide", "by", "Ann Roe"),), 2, []),
    ((), 0, []),
])  # fmt: skip
def test_hops_are_linked_to_passages_or_the_question_is_left_out(
    evidence: tuple[tuple[str, str, str], ...], count: int, linked: list[str]
) -> None:
    extra = {"sub_questions": [{"question": f"What {n}?"} for n in range(count)]}
    question = Question("q", "?", ("Wick",), gold=("f", "t"), evidence=evidence, extra=extra)
    assert [hop.passage.id for hop in hops_of(question, {"f": FILM, "t": TOWN})] == linked


def make_set(folder: Path, count: int = 20) -> Path:
    folder.mkdir()
    corpus = [row for n in range(count) for row in (
        {"id": f"f{n}", "title": f"Film{n} (film)", "text": f"Film{n} was made by Maker{n}."},
        {"id": f"m{n}", "title": f"Maker{n}", "text": f"Maker{n} was born in Town{n}. " + "More. " * 90},
    )]  # fmt: skip
    questions = [{
        "id": f"q{n}", "question": f"Where was the maker of Film{n} born?", "answers": [f"Town{n}"],
        "gold": [f"m{n}", f"f{n}"],
        "evidence": [[f"Film{n}", "made by", f"Maker{n}"], [f"Maker{n}", "born", f"Town{n}"]],
        "sub_questions": [{"question": f"Who made Film{n}?"}, {"question": f"Where was Maker{n} born?"}],
    } for n in range(count)]  # fmt: skip
    for name, rows in (("corpus", corpus), ("questions.train", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return folder


def test_rows_show_what_is_known_and_read_as_the_role_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "new" / "rows.jsonl", make_set(tmp_path / "set")
    dots = [f"out={out}", f"sets.toy.path={data}", "sets.toy.split=train", "words=9"]
    assert run(["sub-question-rows", *dots]) == 0
    assert str(out) in capsys.readouterr().out
    rows = read_rows(out, ThoughtsRow)
    first, later = [r for r in rows if r.source["hop"] == 1], [r for r in rows if r.source["hop"] == 2]
    assert len(first) == len(later) == 20 and {r.part for r in rows} >= {"train", "report"}
    for row in rows:
        n = row.question_id[1:]
        assert len(row.passages) == 2 and all(len(p.text.split()) <= 9 for p in row.passages)
        assert ({p.id for p in row.passages} & {f"f{n}", f"m{n}"}) == ({f"f{n}"} if row in later else set())
        found = parse_thoughts(row.messages[-1].content)
        assert (found.fast, found.slow) == (row.fast, row.slow), "the reply is what the role reads"
        assert row.earlier in ((), (f"Who made Film{n}?",)) and row.round == 1 + len(row.earlier)
    assert Counter(bool(r.earlier) for r in later).keys() == {True, False}
    role = read_role("thoughts", [str(out)], "thoughts_brief")
    assert [m.content for m in asked(role.rows[0], "thoughts_brief")] == [t.content for t in rows[0].messages[:-1]]


def test_the_prompt_is_short() -> None:
    brief, usual = load_prompt("thoughts_brief"), load_prompt("thoughts")
    assert len(brief.system) < 300 < len(usual.system) and not brief.examples
    assert brief.placeholders == usual.placeholders


def test_a_set_without_sub_questions_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_set(tmp_path / "set")
    path = data / "questions.train.jsonl"
    path.write_text(path.read_text("utf-8").replace("sub_questions", "parts"), "utf-8")
    assert run(["sub-question-rows", f"out={tmp_path / 'x'}", f"sets.toy.path={data}", "sets.toy.split=train"]) == 2
    assert "toy" in capsys.readouterr().err


@pytest.mark.parametrize("dots, problem", [
    (["out=x"], "give what is written"),
    (["out=x", "sets.a.path=b", "shown=0"], "shown=0"),
    (["out=x", "sets.a.path=b", "asked=2"], "asked=2"),
])  # fmt: skip
def test_bad_settings_are_refused(dots: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sub-question-rows", *dots]) == 2
    assert problem in capsys.readouterr().err
