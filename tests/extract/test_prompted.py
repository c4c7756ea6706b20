"""Extraction by a language model: what is asked, kept and paid for, and what it is estimated to cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnrag.errors import BudgetError, LLMError, NotGivenError
from gnnrag.index.index import Index
from gnnrag.index.update import update_index
from gnnrag.index_config import ExtractConfig, RoleConfig
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.types import Passage
from tests.helpers.indexes import CORPUS, HASH, artefacts, build

NAMES = {"match": "so that facts about it", "reply": '{"named_entities": ["Lord Byron"]}'}
RULES = [
    NAMES,
    {"match": 'title="Lord Byron"', "reply": '{"triples": [["Lord Byron", "died in", "Missolonghi"], ["x", "y"]]}'},
    {"match": "A note without", "reply": '{"triples": []}'},
    {"match": "", "reply": '{"triples": [["Ada Lovelace", "child of", "Lord Byron"]]}'},
]


def settings(*rules, extract=None, **more):
    llm = {"name": "scripted", "rules": list(rules or RULES)}
    return replace(HASH, extract=ExtractConfig("prompted", **(extract or {})), llm=llm, **more)


@pytest.fixture
def asked(monkeypatch):
    """Return the texts of all requests."""
    seen, plain = [], ScriptedBackend.generate

    async def generate(self, request):
        seen.append(request.messages[-1].content)
        return await plain(self, request)

    monkeypatch.setattr(ScriptedBackend, "generate", generate)
    return seen


def test_an_index_from_a_model(tmp_path, asked):
    build(tmp_path, settings=settings(), names=["extraction", "entity_graph", "knowledge"])
    assert len(asked) == 2 * 5  # p5 is p2's text again
    info = Index(tmp_path).record("extraction")["counts"]
    assert info["triples"] == 5 and info["malformed triples"] == 2 and info["passages without a record"] == 0
    assert info["triples calls"] == 10 and info["triples prompt_tokens"] > 1000
    assert info["triples records_seen"] == 5 and info["triples records_dropped_fields"] == 1
    assert Index(tmp_path).entity_graph.graph.facts[1] == ["lord byron", "died in", "missolonghi"]


def test_only_new_passages_are_read(tmp_path, asked):
    root, new = tmp_path / "i", Passage("p9", "Rome", "Rome lies on the Tiber.")
    build(root, settings=settings(), names=["entity_graph"])
    asked.clear()
    update_index(root, add=[new], remove=["p1"], caller=settings())
    assert len(asked) == 2 and all("Tiber" in text for text in asked)


def test_a_run_with_another_model_leaves_the_extraction_as_it_is(tmp_path, asked):
    root, new = tmp_path / "i", Passage("p9", "Rome", "Rome lies on the Tiber.")
    build(root, settings=settings(), names=["knowledge"])
    before = artefacts(root)
    asked.clear()
    other = replace(HASH, llm={"name": "scripted", "rules": [{"match": "", "reply": "A summary."}]}, llm_cache=None)
    other = replace(other, writers=replace(other.writers, summary=RoleConfig(impl="prompted")))
    tree = replace(other, tree=replace(other.tree, cluster_size=2.0))
    assert "extraction" not in build(root, settings=tree, names=["tree"])
    assert artefacts(root)["extraction"] == before["extraction"]
    assert not [text for text in asked if "Types of entities" in text]
    assert build(root, settings=tree, names=["tree"]) == []
    asked.clear()
    with pytest.raises(NotGivenError, match=r"index\.writers\.triples"):
        update_index(root, add=[new])
    reader = RoleConfig(llm="scripted", settings={"rules": settings().llm["rules"]})
    update_index(root, add=[new], caller=replace(tree, writers=replace(tree.writers, triples=reader)))
    read = [text for text in asked if "Types of entities" in text]
    assert len(read) == 1 and "Tiber" in read[0]
    assert "extraction" not in build(root, [*CORPUS, new], settings(), names=["extraction"])


def test_failed_passages_end_the_build_and_are_asked_for_again(tmp_path, asked):
    bad = settings(NAMES, {"match": "A note without", "reply": "no"}, *RULES[1:])
    with pytest.raises(LLMError, match=r"failed for 1 of 6 passages.*max_failed \(now 0\.02\)"):
        build(tmp_path, settings=bad, names=["extraction"])
    asked.clear()
    with pytest.raises(LLMError):
        build(tmp_path, settings=bad, names=["extraction"])
    assert len(asked) == 3 and all("A note" in text for text in asked)  # names, triples twice
    lenient = replace(bad, extract=ExtractConfig("prompted", max_failed=0.2))
    build(tmp_path, settings=lenient, names=["extraction"])
    assert Index(tmp_path).record("extraction")["counts"]["passages without a record"] == 1
    asked.clear()
    build(tmp_path, CORPUS[1:], lenient, names=["extraction"])
    assert len(asked) == 3 and all("A note" in text for text in asked)


def test_a_spend_limit_stops_the_build_and_what_was_done_is_kept(tmp_path, asked, monkeypatch):
    monkeypatch.setattr("gnnrag.roles.writers.tasks.BATCH", 2)
    with pytest.raises(BudgetError, match=r"index\.max_calls=4 is used up \(4\)"):
        build(tmp_path, settings=settings(max_calls=4), names=["extraction"])
    assert len(asked) == 4
    with pytest.raises(BudgetError, match=r"index\.max_tokens=10 is used up"):
        build(tmp_path, settings=settings(max_tokens=10), names=["extraction"])
    assert len(asked) <= 8
    before = len(asked)
    build(tmp_path, settings=settings(), names=["extraction"])
    assert len(asked) == 10 and before < 10


def test_what_was_asked_decides_the_artefact(tmp_path):
    def key(made):
        build(tmp_path / str(len(list(tmp_path.iterdir()))), settings=made, names=["extraction"])
        return Index(max(tmp_path.iterdir(), key=lambda p: int(p.name)), made).artefact_key("extraction")

    plain = {"format": "lightrag", "gleaning": 0}
    base = [{"match": "", "reply": "<|COMPLETE|>"}]
    keys = [
        key(settings(*base, extract=plain)),
        key(settings(*base, extract={**plain, "gleaning": 1})),
        key(settings(*base, extract={**plain, "types": ["ship"]})),
        key(settings(*base, extract={**plain, "language": "French"})),
        key(settings({"match": "", "reply": "<|COMPLETE|> "}, extract=plain)),
    ]
    writers = replace(HASH.writers, triples=RoleConfig(options={"temperature": 0.5}))
    keys.append(key(settings(*base, extract=plain, writers=writers)))
    assert len(set(keys)) == len(keys)
    assert key(settings(*base, extract={**plain, "max_failed": 0.5})) == keys[0]
