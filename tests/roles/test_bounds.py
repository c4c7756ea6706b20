"""Hostile lengths: replies, questions and passages that would keep a parser or an offline role busy for minutes.

What was quadratic once needed 3 to 40 seconds for 20 to 44 kB. No test here looks at a clock: the slow ones give texts
so long that anything quadratic runs into the time limit of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from gnnrag.index.index import Index
from gnnrag.judge import parse_score, shortened
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.dotrag.offline import NameReader
from gnnrag.methods.graphsearch.roles import cited_numbers, parse_draft, parse_verdict
from gnnrag.methods.mgranrag.evidence import parse_evidence
from gnnrag.parts import set_up
from gnnrag.prompts.untrusted import escaped
from gnnrag.retrievers.hypergraphrag import parse_hyper_query
from gnnrag.retrievers.keywords import OfflineKeywords
from gnnrag.roles.agent import parse_r1_searcher, parse_react, parse_search_r1
from gnnrag.roles.chain import parse_chain
from gnnrag.roles.comparing import Reading, compare
from gnnrag.roles.parsing import clean_line, is_refusal, json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, Prompter
from gnnrag.roles.reader import parse_hipporag
from gnnrag.roles.reasoner import parse_thought
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.roles.tuned.span_items import Asked, Candidate
from gnnrag.roles.verifier import parse_selection
from gnnrag.roles.writers.records import split_records
from gnnrag.roles.writers.report import parse_summary
from gnnrag.roles.writers.triples import LightRAGTriples
from gnnrag.session import Session
from gnnrag.text.normalise import drop_qualifier
from gnnrag.text.sentences import MAX_SENTENCE, beginning, pieces, split_sentences
from gnnrag.types import Passage

PARSERS: dict[str, Callable[[str], Any]] = {
    "json_objects": lambda text: list(json_objects(text)),
    "clean_line": clean_line,
    "thinking": strip_thinking,
    "escaped": escaped,
    "react": parse_react,
    "search_r1": parse_search_r1,
    "r1_searcher": parse_r1_searcher,
    "chain": parse_chain,
    "draft": lambda text: parse_draft(text, True),
    "evidence": lambda text: parse_evidence(text, ["a b c", "d e f"], 2),
    "hyper_query": parse_hyper_query,
    "hipporag": parse_hipporag,
    "thought": parse_thought,
    "verdict": parse_verdict,
    "cited": cited_numbers,
    "records": split_records,
    "selection": parse_selection,
    "summary": parse_summary,
    "thoughts": lambda text: parse_thoughts(text, may_stop=True, with_chain=True),
    "hyper": LightRAGTriples().read,
    "score": parse_score,
    "refusal": lambda text: is_refusal(text[:400]),
    "shortened": lambda text: shortened(text, 100),
}
# What made a parser slow once, or could: openings without an end, runs of what a pattern may divide in many ways.
ATOMS = (
    *("{", "(", "[", '"', "a", " ", "\n", "*", "#", "|", "“", "[1]", "(a", '"a', '"a:', "1 ", "9", "---\n", "```\n"),
    *('("entity"<|>', '{"a":', '{"a":1},', "search[a", "answer: ", '"sub-query 1": [', "fast thought ", "1/", "\n#"),
    *("<think>", '{"selected": ', "(<|>", "<|#", "< |", "- ", "as an ai, ", "sorry   ", "Unfortunately ,  ", "```"),
)
FRAMES = (("", ""), ("", "!x"), ('{"a": [', ""), ("Score: 1", "\n}"), ("", "<|>x<|#|>"))
NUMBERS = '{"selected": [1e999, NaN, -1, true, null, "' + "9" * 9999 + '"]}'


def parse_all(parse: Callable[[str], Any], length: int) -> None:
    """Give a parser everything hostile: it may refuse, and nothing else may come out of it."""
    texts = [start + atom * (length // len(atom)) + end for atom, (start, end) in product(ATOMS, FRAMES)]
    for text in (*texts, NUMBERS, "\x00", "\x00<|#|>\ud7ff<|#|>", "((((<|>", ""):
        with suppress(MalformedError, ValueError):  # the prompter makes malformed replies of them
            parse(text)


def test_hostile_replies_are_parsed_or_refused() -> None:
    for parse in PARSERS.values():
        parse_all(parse, 300)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PARSERS)
def test_parsing_time_does_not_grow_with_the_square(name: str) -> None:
    parse_all(PARSERS[name], 80_000)


def number_of(text: str) -> float:
    return float(int(text))


def depth_of(text: str) -> Any:
    return depth_of(text)


CHOKES = [("9" * 5000, number_of), ("9" * 400, number_of), ("x", depth_of), ("x" * 300_000, str)]


@pytest.mark.parametrize("reply, parse", CHOKES)
def test_what_a_parser_chokes_on_is_a_malformed_reply(reply: str, parse: Callable[[str], Any]) -> None:
    session = Session("q")
    prompter = Prompter("reader", ScriptedBackend.of((".", reply)), "reader")
    outcome = asyncio.run(prompter.ask(session, {"question": "Who?", "context": "A."}, parse))
    assert outcome.value is None and outcome.failure == "parse_failure"
    assert session.by_role["reader"]["parse_failure"] == 2
    assert all(len(event["reply"]) <= 200_000 and event["problem"] for event in session.events)


# --------------------------------------------------------------------------------------- questions and passages
LENGTH = 44_000
WORDS = ("word ", "Word ", '"A b" ', "A", "A. ", "? ", "a, ", "1 ", " ", "and ", "U.S. ", "who is the ", "A's ")


def long(atom: str, length: int = LENGTH) -> str:
    return f"Who is {atom * (length // len(atom))}?"


def analyse(index: Index, atom: str, length: int) -> None:
    """Let what works without a model read a long question, and a long passage of which no sentence ends."""
    set_up(OfflineKeywords(), index=index).find(long(atom, length))
    NameReader(SimpleNamespace(names=["Word word", "A"], aliases=[(), ()])).read(long(atom, length))
    drop_qualifier(atom * length)
    drop_qualifier(" " * length + "x")
    text = atom * (length // len(atom))
    passages = (Passage("p", "Foo", f"Foo {text}"), Passage("q", text[:length], "Foo was born in Rome."))
    reading = Reading.of(passages)
    compare(f"Who is older, {atom * 200} or Foo?", reading)
    item = Asked("Where was the director of film Foo born?", reading)
    item.features(Candidate("Rome", 1, 16, 20))
    assert max(map(len, split_sentences(text)), default=0) <= MAX_SENTENCE


def test_odd_questions_and_passages_are_read(index: Index) -> None:
    for atom in (*WORDS, "(", "a - ", "\n", "born in A, "):
        analyse(index, atom, 500)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("atom", [*WORDS, "(", "a - ", "\n", "born in A, "])
def test_long_questions_and_passages_are_read(atom: str, index: Index) -> None:
    analyse(index, atom, 5 * LENGTH)


def test_what_is_cut_is_cut_at_blanks_and_the_rest_stays_as_it_is() -> None:
    text = "one two three four"
    assert beginning(text, 18) is text and beginning(text, 10).split() == ["one", "two"]
    assert pieces(text, 8) == ["one two", "three", "four"] and pieces("x" * 9, 4) == ["xxxx", "xxxx", "x"]
    assert pieces("  ", 4) == [] and "".join(pieces("ab" * 5000)) == "ab" * 5000
