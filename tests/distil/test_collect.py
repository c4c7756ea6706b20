"""From a teacher to rows, end to end on a small corpus: oracle, offline and prompted teachers, any method."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import load_config
from gnnrag.errors import ArtefactError, ConfigError, DataError, GnnragError
from gnnrag.index.index import Index
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.roles.tuned.verifier import PairMaker
from gnnrag.roles.verifier import parse_selection
from gnnrag.run.evaluate import load_questions_for
from gnnrag.run.pipeline import Pipeline, open_index
from gnnrag.run.rundir import read_predictions
from gnnrag.session import Session
from gnnrag.training import collect as module
from gnnrag.training.decisions import Recorder
from gnnrag.training.rows import ThoughtsRow, TracesConfig, VerifierRow, gain, read_rows
from gnnrag.training.verifier_data import TrainVerifierConfig, open_set
from gnnrag.types import Query
from tests.helpers.replies import good
from tests.helpers.traces import QUESTIONS, collected, evaluate_config, run_settings, write_set

GOLD = {id_: set(gold) for id_, _, _, _, gold in QUESTIONS}
ORACLE = ("roles.thoughts=oracle", "roles.verifier=oracle")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces")
    write_set(path / "set")
    return path


@pytest.fixture(scope="module")
def oracle(root: Path) -> Path:
    collected(root, root / "oracle", *ORACLE, own=("mine_top=2",))
    return root / "oracle"


def rows_of(out: Path) -> tuple[list[VerifierRow], list[ThoughtsRow]]:
    return read_rows(out / "verifier.jsonl", VerifierRow), read_rows(out / "thoughts.jsonl", ThoughtsRow)


def test_the_oracles_verdicts_are_rows(root: Path, oracle: Path) -> None:
    rows, _ = rows_of(oracle)
    assert {row.question_id for row in rows} == {id_ for id_, gold in GOLD.items() if gold}
    index = Index(root / "index")
    for row in rows:
        seen = row.passages[: row.source["seen"]]
        mined = row.passages[row.source["seen"] :]
        ids = [p.id for p in seen]
        assert set(row.selected) == set(row.gold) == GOLD[row.question_id] & set(ids)
        scores = [p.score for p in seen if p.score is not None]
        assert len(scores) == len(ids) and scores == sorted(scores, reverse=True), "in pool order"
        assert len(mined) == row.source["mined"] <= 4 and all(p.score is None for p in mined)
        assert not {p.id for p in mined} & (GOLD[row.question_id] | set(ids))
        cosines = index.dense_scores([row.question])[0]
        for shown in row.passages:
            assert shown.cosine == pytest.approx(float(cosines[index.position[shown.id]]), abs=1e-6)
            assert shown.passage == index.lookup([shown.id])[0]
        chat = row.source["chat"]
        assert [chat[n - 1] for n in sorted(parse_selection(row.messages[-1].content))] == list(row.selected)
        assert row.teacher == "oracle" and row.set == "set" and row.source["retriever"] == "dense"


def test_gains_are_those_of_the_rankings(root: Path, oracle: Path) -> None:
    _, rows = rows_of(oracle)
    retriever = Pipeline(evaluate_config(root), Index(root / "index")).loop.retrievers[None]
    assert rows and all(any(value > 0 for value in row.gains.values()) for row in rows), "the others were dropped"
    for row in rows:
        assert set(row.gold) == GOLD[row.question_id] and [p.id for p in row.passages] == list(row.pool[:2])
        for kind, text in (("fast", row.fast), ("slow", row.slow)):
            if text is not None:
                ranking = retriever.retrieve([Query(text, top_k=3)])[0]
                assert row.gains[kind] == pytest.approx(gain(ranking.ids, row.pool, row.gold).value, abs=1e-6)
        reply = parse_thoughts(row.messages[-1].content)
        assert (reply.fast, reply.slow) == (row.fast, row.slow)
    assert {row.round for row in rows} == {1, 2}
    assert all(row.earlier for row in rows if row.round == 2)


def test_the_card_says_who_decided_and_what_was_kept(oracle: Path) -> None:
    meta = json.loads((oracle / "meta.json").read_text("utf-8"))
    card = (oracle / "README.md").read_text("utf-8")
    assert meta["counts"]["verifier"] == {"decisions": 8, "without unknown": 7, "rows": 7}
    assert meta["teachers"] == {"thoughts": ["oracle"], "verifier": ["oracle"]}
    for said in (
        "| verifier | oracle | none |",
        "| verifier | without unknown | 7 | 0.875 |",
        "set, dev, 8 questions",
        "set: unknown: ask where",
        'read_rows("verifier.jsonl", VerifierRow)',
        "near misses: bm25, dense",
    ):
        assert said in card
    parts = {row.question_id: row.part for row in rows_of(oracle)[0]}
    assert all(parts.get(row.question_id, row.part) == row.part for row in rows_of(oracle)[1])


@pytest.mark.slow
def test_offline_teachers_and_switches(root: Path) -> None:
    every = collected(root, root / "offline", own=("keep.helped=false", "mine=[]", "licence=CC0"))
    filtered = collected(root, root / "offline", own=("keep.precision=0.9", "mine=[]"))  # from the same recording
    assert every["counts"]["verifier"] == {"decisions": 8, "rows": 8} and every["licences"] == {"set": "CC0"}
    counts = filtered["counts"]
    assert (
        counts["verifier"]["rows"] < 7 and counts["thoughts"]["decisions"] == every["counts"]["thoughts"]["decisions"]
    )
    few = collected(root, root / "offline", own=("keep.helped=false", "mine=[]", "negatives=1", "chat_passages=2"))
    assert few["counts"]["verifier"] == {"decisions": 8, "rows": 8}
    for row in read_rows(root / "offline" / "verifier.jsonl", VerifierRow):
        assert sum(p.id not in {*row.gold, *row.selected} for p in row.passages) <= 1 and len(row.source["chat"]) <= 2
        assert row.source["mined"] == 0 and row.teacher == "offline"


@dataclass(frozen=True)
class Idea:
    text: str
    kind: str


class TitleBuilder:
    """Makes the titles of all passages candidates, one of them twice, and an empty one."""

    stages = ()

    def __init__(self, index: Index) -> None:
        self.titles = [p.title for p in index.passages]

    def __call__(self, task: ThoughtsTask) -> list[Idea]:
        return [Idea(t, "title") for t in [*self.titles, self.titles[0].upper(), " "]]


@pytest.mark.slow
def test_candidates_are_labelled_with_what_they_would_gain(
    root: Path, oracle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.BUILDERS, "titles", f"{__name__}:TitleBuilder")
    meta = collected(root, root / "titles", *ORACLE, own=("candidates=titles",))
    rows = read_rows(root / "titles" / "thoughts.jsonl", ThoughtsRow)
    counts = meta["counts"]["thoughts"]
    assert counts["with candidates alone"] == counts["decisions"] == 16, "what did not help keeps its candidates"
    twice = {(row.question_id, row.fast, tuple((c.text, c.gain) for c in row.candidates)) for row in rows}
    assert counts["rows"] == counts["without duplicates"] == len(twice) < 16, "a pool that did not change says nothing"
    retriever = Pipeline(evaluate_config(root), Index(root / "index")).loop.retrievers[None]
    for row in rows:
        assert len({c.text for c in row.candidates}) == len(row.candidates) == 8, "each query once"
        for candidate in row.candidates:
            found = gain(retriever.retrieve([Query(candidate.text, top_k=3)])[0].ids, row.pool, row.gold)
            assert (candidate.gain, candidate.new) == (pytest.approx(found.value, abs=1e-6), found.new)
        assert bool(row.messages) == bool(row.fast or row.slow)
    assert any(not row.fast and row.candidates for row in rows) and any(row.fast for row in rows)
    same = {p.question_id: (p.ranking, p.usage) for p in read_predictions(oracle / "run")}
    for p in read_predictions(root / "titles" / "run"):
        assert (p.ranking, p.usage) == same[p.question_id], "they leave no mark on the run"
    with pytest.raises(ConfigError, match="was recorded with candidates=titles, not None"):
        collected(root, root / "titles", *ORACLE)
    (root / "titles" / "recording.json").write_text("{", "utf-8")
    with pytest.raises(ArtefactError, match=r"recording\.json is damaged"):
        collected(root, root / "titles", *ORACLE)


def scripted(monkeypatch: pytest.MonkeyPatch, reply: Any = good) -> ScriptedBackend:
    """Make every prompted role ask one scripted model; returns it."""
    backend = ScriptedBackend.of(("", reply))
    monkeypatch.setattr("gnnrag.roles.registry.open_backend", lambda *_: backend)
    return backend


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bdtr", "multihop", "routed"])
def test_a_prompted_teacher_gives_the_chats_it_was_asked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    backend = scripted(monkeypatch)
    settings = {"multihop": ["method.context_passages=2"], "routed": ["method.multi_hop.retriever=dense"]}
    dots = ["llm=scripted", "roles=prompted", *settings.get(method, [])]
    rest = [d for d in run_settings(root) if not d.startswith("method") or method == "bdtr"]
    config = load_config(module.EvaluateConfig, None, [*rest, f"method={method}", *dots])
    own = load_config(TracesConfig, None, [f"out={tmp_path}", "keep.helped=false", "mine=[]", "chat_passages=60"])
    meta = module.collect(config, own)
    asked = {request.messages for request in backend.requests}
    found: list[Any] = []
    for name, kind in (("verifier", VerifierRow), ("thoughts", ThoughtsRow)):
        if f"{name}.jsonl" in meta["files"]:
            found += read_rows(tmp_path / f"{name}.jsonl", kind)
    assert found and meta["prompts"]["thoughts"].keys() == {"thoughts"}
    sent = {tuple((m.role, m.content) for m in messages) for messages in asked}
    for row in found:
        turns = tuple((t.role, t.content) for t in row.messages[:-1])
        assert turns in sent, "the prompt of a row is what the teacher was asked"
        assert row.teacher == "prompted"


def test_replies_that_failed_are_left_out(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda r: good(r) if "selected" not in r.text else "no idea")
    meta = collected(root, tmp_path, "roles=prompted", "llm=scripted", own=("keep.helped=false",))
    assert meta["counts"]["verifier"] == {"decisions": 8, "without failed": 0, "rows": 0}
    assert list(meta["files"]) == ["thoughts.jsonl"] and not (tmp_path / "verifier.jsonl").exists()
    assert read_rows(tmp_path / "thoughts.jsonl", ThoughtsRow)[0].slow is not None


@pytest.mark.slow
def test_rows_that_lack_passages_train_no_features(root: Path, tmp_path: Path) -> None:
    collected(root, tmp_path, *ORACLE, own=("negatives=1",))
    cut, _ = rows_of(tmp_path)
    assert any(row.source.get("left_out") for row in cut)
    sets = [f"sets.toy.rows=[{tmp_path / 'verifier.jsonl'}]", "network.text=false"]
    config = load_config(TrainVerifierConfig, None, sets)
    with pytest.raises(DataError, match=r"lacks \d+ of the passages .* collect the rows again with negatives=null"):
        open_set("toy", config, PairMaker(config.network))
    collected(root, tmp_path / "all", *ORACLE)
    assert not any("left_out" in row.source for row in rows_of(tmp_path / "all")[0])


@pytest.mark.slow
def test_methods_that_decide_nothing_are_refused(root: Path, oracle: Path, tmp_path: Path) -> None:
    config = load_config(module.EvaluateConfig, None, ["method=ircot"])
    with pytest.raises(ConfigError, match=r"method=ircot asks neither .*multihop \(thoughts\), bdtr \(thoughts, ver"):
        module.recorded_roles(config)
    assert module.recorded_roles(evaluate_config(root)) == ("thoughts", "verifier")
    with pytest.raises(ConfigError, match="mine=lightrag: asks roles"):
        collected(root, tmp_path, own=("mine=[lightrag]",))
    with pytest.raises(ConfigError, match="candidates='rule' is unknown"):
        collected(root, tmp_path, own=("candidates=rule",))
    with pytest.raises(ConfigError, match=r"run\.name and run\.traces are given"):
        collected(root, tmp_path, "run.name=mine")
    with pytest.raises(
        ConfigError, match=r"exists with other settings \(method\.floor\); give another out, or run\.fresh"
    ):
        collected(root, oracle, *ORACLE, "method.floor=1")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("of somebody else", "utf-8")
    with pytest.raises(ConfigError, match=r"would write over README\.md"):
        collected(root, tmp_path / "other")
    with pytest.raises(GnnragError, match="no row is left to write"):
        collected(root, tmp_path, "method.bgec=false", "method.max_rounds=0")


def test_teachers_are_named_by_what_they_are(root: Path) -> None:
    config = evaluate_config(
        root, "roles=prompted", "llm.model=big", "roles.verifier.model=small", "roles.chain=offline"
    )
    names = {role: module.teacher(config, role) for role in ("thoughts", "verifier", "chain")}
    assert names == {"thoughts": "prompted:big", "verifier": "prompted:small", "chain": "offline"}


def test_the_trace_holds_what_was_asked(root: Path) -> None:
    """Outside of a method that says what its pool is, the pool is what the role was shown."""
    config = evaluate_config(root, *ORACLE)
    data = load_questions_for(config)
    index = open_index(config, data.name, data.passages)
    pipeline = Pipeline(config, index, Recorder)
    session = Session("harbour")
    role = Recorder(pipeline)["thoughts"]
    asyncio.run(role(ThoughtsTask(data.questions[0], index.lookup(["p6"]), (0.5,), ("e",), 2), session))
    event = session.events[-1]
    assert event["pool"] == event["passages"] == ["p6"] and event["earlier"] == ["e"] and event["candidates"] == []
    assert Recorder(pipeline)["chain"] is pipeline.roles["chain"] and len(Recorder(pipeline)) == len(pipeline.roles)
    assert getattr(Recorder(evaluated(root))["thoughts"], "is_guess") is True  # noqa: B009 - of the role behind it


def evaluated(root: Path) -> Pipeline:
    return Pipeline(evaluate_config(root), Index(root / "index"))
