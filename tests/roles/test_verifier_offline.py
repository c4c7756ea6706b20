"""The offline verifier together with the offline chain it reads: what they say to each other is their own affair."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.base import Chain, ChainTask, VerifierTask
from gnnrag.roles.chain import OfflineChain
from gnnrag.roles.verifier import OfflineVerifier
from gnnrag.session import Session
from gnnrag.types import Question
from tests.helpers.parts import small_index

QUESTION = "Where was the director of the film Night Harbour born?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(tmp_path_factory.mktemp("index"))


def select(index: Index, text: str, *shown: str, chain: Chain | None = None) -> tuple[str, ...]:
    session, question, passages = Session("q"), Question("q", text), index.lookup(shown)
    chain = chain or asyncio.run(OfflineChain(index)(ChainTask(question, passages), session))
    task = VerifierTask(question, chain, passages, tuple(1.0 for _ in shown))
    selected = asyncio.run(OfflineVerifier(index)(task, session)).selected
    assert session.usage()["llm_calls"] == 0
    assert list(selected) == [i for i in shown if i in selected], "in the order shown"
    return selected


def test_what_the_question_names_and_what_that_leads_to(index: Index) -> None:
    selected = select(index, QUESTION, "p7", "p1", "p4", "p0")
    assert {"p0", "p1"} <= set(selected) and not {"p4", "p7"} & set(selected)


def test_what_the_question_names_needs_no_chain(index: Index) -> None:
    assert select(index, QUESTION, "p2", "p0", "p3", chain=Chain("?")) == ("p0",)


def test_nothing_of_the_chain_is_there(index: Index) -> None:
    assert select(index, "which food is prepared with dry heat", "p2", "p3") == ()
    assert select(index, QUESTION, "p7") == () == select(index, QUESTION)
