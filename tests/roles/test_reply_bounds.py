"""Every parser of replies takes time that grows with the reply's length, whatever the reply is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

from gnnrag.judge import replies as judged
from gnnrag.judge.answers import plain_text, shortened
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.graphsearch.method import parsing as searching_parse
from gnnrag.methods.graphsearch.method import prompted as drafter_prompted
from gnnrag.methods.mgranrag.method import evidence as evidence_prompted
from gnnrag.prompts.quoting import unquoted
from gnnrag.retrievers.hypergraphrag.retriever import query as hyper_query_prompted
from gnnrag.roles import agent as agent_prompted
from gnnrag.roles import chain as chain_prompted
from gnnrag.roles import parsing
from gnnrag.roles import parsing as literals
from gnnrag.roles import reader as reader_prompted
from gnnrag.roles import reasoner as reasoner_prompted
from gnnrag.roles import thoughts as thoughts_prompted
from gnnrag.roles import verifier as verifier_prompted
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.writers import summary as summary_prompted
from gnnrag.roles.writers import triples as triples_hyper
from gnnrag.session import Session
from gnnrag.textualise.writing import MarkupError, read_marked
from tests.helpers.each import each

LENGTH = 20_000
# What made a parser slow once, or could: openings without an end, runs of what a pattern may divide in many ways.
ATOMS = (
    *("{", "(", '"', "a", " ", "\n", "*", "#", "|", "“", "[1]", "(a", '"a', '"a:', "1 ", "9", "---\n", "```\n", "\n#"),
    *('("entity"<|>', '{"a":', '{"a":1},', "search[a", "answer: ", '"sub-query 1": [', "fast thought ", "1/"),
)
FRAMES = (("", ""), ("", "!x"), ('{"a": [', ""), ("Score: 1", "\n}"))
PARSERS: dict[str, Callable[[str], Any]] = {
    "json_objects": lambda text: list(parsing.json_objects(text)),
    "clean_line": parsing.clean_line,
    "objects": lambda text: list(literals.objects(text)),
    "react": agent_prompted.parse_react,
    "search_r1": agent_prompted.parse_search_r1,
    "r1_searcher": agent_prompted.parse_r1_searcher,
    "chain": chain_prompted.parse_chain,
    "draft": drafter_prompted.parse_lined,
    "evidence": lambda text: evidence_prompted.parse_evidence(text, ["a b c", "d e f"], 2),
    "hyper_query": hyper_query_prompted.parse_hyper_query,
    "reader": reader_prompted.parse_robust,
    "thought": reasoner_prompted.parse_thought,
    "verdict": searching_parse.parse_verdict,
    "cited": searching_parse.cited_numbers,
    "summary": summary_prompted.parse_summary,
    "thoughts": lambda text: thoughts_prompted.parse_thoughts(text, may_stop=True, with_chain=True),
    "hyper": triples_hyper.read,
    "yes or no": verifier_prompted.parse_yes_no,
    "score": judged.parse_score,
    "plain text": plain_text,
    "shortened": lambda text: shortened(text, 100, plain=True, answer="abc"),
    "marked": read_marked,
    "unquoted": lambda text: unquoted(text, text),
}


@each("name", PARSERS)
def test_a_hostile_reply_is_parsed_at_once(name: str) -> None:
    # Parsers need milliseconds; those that were quadratic, 3 to 20 seconds for one of these. Processor time, so that a
    # busy machine changes nothing.
    parse = PARSERS[name]
    worst, which = 0.0, ("", "", "")
    for atom, (start, end) in product(ATOMS, FRAMES):
        text = start + atom * (LENGTH // len(atom)) + end
        began = time.process_time()
        with suppress(MalformedError, MarkupError, ValueError):  # `parsed` makes malformed replies of them
            parse(text)
        worst, which = max((worst, which), (time.process_time() - began, (start, atom, end)))
        assert worst < 1.0, f"{worst:.1f} s for {which}"


def ask(reply: str, parse: Callable[[str], Any]) -> tuple[Any, Session]:
    session = Session("q")
    prompter = Prompter("reader", ScriptedBackend.of((".", reply)), PromptedConfig(), "reader")
    values = {"question": "Who?", "context": "A."}
    return asyncio.run(prompter.ask(session, values, parse)), session


def number_of(text: str) -> float:
    return float(int(text))


def depth_of(text: str) -> Any:
    return depth_of(text)


@each(
    "reply, parse",
    [("9" * 5000, number_of), ("9" * 400, number_of), ("x", depth_of), ("x" * 300_000, str)],
)
def test_what_a_parser_chokes_on_is_a_malformed_reply(reply: str, parse: Callable[[str], Any]) -> None:
    outcome, session = ask(reply, parse)
    assert outcome.value is None and outcome.failure == "parse_failure"
    assert session.by_role["reader"]["parse_failure"] == 2
    assert all(len(event["reply"]) <= 200_000 and event["problem"] for event in session.events)


@each("number", ["NaN", "-Infinity", "1e999", "9" * 30])
def test_what_is_no_number_is_null(number: str) -> None:
    assert list(parsing.json_objects(f'{{"a": {number}, "b": [1, 2.5, {number}]}}')) == [
        {"a": None, "b": [1, 2.5, None]}
    ]
    mended = next(parsing.json_objects(f"{{'a': {number}, 'b': 1}}"))
    assert mended["b"] == 1 and (mended["a"] is None or isinstance(mended["a"], str))


def test_broken_replies_are_mended_as_before() -> None:
    row = '{"id": 3, "text": "some "ordinary" text", "n": [1, 2,],},'
    found = list(parsing.json_objects("{'rows': [" + row * 100 + "]}"))
    assert len(found[0]["rows"]) >= 100 and found[0]["rows"][0]["id"] == 3
