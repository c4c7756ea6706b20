"""Every method's events have words on the page, and are told in a form of their own."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.index.index import Index, build_index
from gnnrag.pages.story import Passages, Story
from gnnrag.run.evaluate import Pipeline, index_settings, needed_stages
from gnnrag.session import Session
from gnnrag.types import Prediction, Question
from tests.helpers.every_method import SETTINGS
from tests.helpers.indexes import REPOSITORY
from tests.helpers.names import METHODS
from tests.helpers.parts import COMPOSITIONAL, CORPUS

BASE = ["index.embedder.model=hash", "index.text.language=blank:en", "roles=offline", "llm_cache=null"]
WORDS = (REPOSITORY / "gnnrag/pages/assets/words.js").read_text("utf-8")
OF_AN_INDEX = {"report", "summary", "triples"}  # written while an index is built, not for a question


def worded() -> set[str]:
    block = re.search(r"const WORDS = \{(.*?)\n\};", WORDS, re.S)
    assert block
    return set(re.findall(r"^  (\w+): \[", block[1], re.M)) | {"query"}


def config(name: str) -> EvaluateConfig:
    reader = "offline" if name in ("single", "bdtr") else "oracle"  # the network is slow, and its events are the same
    return load_config(EvaluateConfig, None, [*BASE, f"method={name}", f"roles.reader={reader}", *SETTINGS[name][0]])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    path = tmp_path_factory.mktemp("index")
    configs = [config(name) for name in METHODS]
    build_index(path, CORPUS, index_settings(configs[0]), set().union(*(needed_stages(c) for c in configs)))
    return Index(path)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_events_are_told_in_words(index: Index, name: str) -> None:
    answered: dict[str, tuple[Prediction, Session]] = {}
    question = Question("q", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1"))
    asyncio.run(Pipeline(config(name), index).run([question], lambda p, s: answered.update({p.question_id: (p, s)})))
    prediction, session = answered["q"]
    assert prediction.error is None
    sections = Story(Passages(), question.gold).tell(session.events)
    blocks = [block for section in sections for block in section["blocks"]]
    assert blocks and {block["n"] for block in blocks} <= worded()
    assert sections[-1]["stage"] == "end" or name == "closed_book"
    rounds = [section["stage"] for section in sections if isinstance(section["stage"], int)]
    assert rounds == sorted(set(rounds)), "a round is one section"
    queries = sum(event["event"] == "query" for event in session.events)
    assert sum(block["t"] == "query" for block in blocks) == queries


def test_what_any_code_records_has_words() -> None:
    texts = [p.read_text("utf-8") for p in Path(REPOSITORY / "gnnrag").rglob("*.py")]
    recorded = {name for text in texts for name in re.findall(r"session\.record\(\s*\"(\w+)\"", text)}
    assert len(recorded) > 20 and recorded - OF_AN_INDEX <= worded()
