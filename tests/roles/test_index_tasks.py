"""What an error leaves of the work of an index's writers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from gnnrag.config import RoleConfig
from gnnrag.errors import BudgetError, LLMError
from gnnrag.index.tables import ValueTable
from gnnrag.llm.base import ContentFilterError, ContextLengthError, NoReplyError, RejectedError, Reply, UnansweredError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.writers import tasks as tasks_module
from gnnrag.roles.writers.base import CurateTask, ReportTask, SummaryTask, TriplesTask
from gnnrag.roles.writers.tasks import BATCH, IndexTasks
from gnnrag.types import Passage
from tests.helpers.indexes import HASH, artefacts, build

REPORT = {"title": "T", "summary": "S.", "rating": 3, "rating_explanation": "R", "findings": []}
REPLY = json.dumps(REPORT | {"findings": [{"summary": "F", "explanation": "E."}]})
TOWNS = [Passage(f"p{i}", f"Town{i}", f"Town{i} lies near River{i}. River{i} meets Lake{i}.") for i in range(60)]


def settings(writer, **more):
    writers = replace(HASH.writers, **{writer: RoleConfig(impl="prompted")})
    llm = {"name": "scripted", "default": REPLY}
    tree = replace(HASH.tree, cluster_size=2.0)
    return replace(HASH, writers=writers, llm=llm, llm_cache=None, tree=tree, **more)


@pytest.mark.parametrize("stage, writer", [("reports", "report"), ("tree", "summary")])
def test_a_spend_limit_loses_one_batch_at_most(tmp_path, monkeypatch, stage, writer):
    asked, plain = [], ScriptedBackend.generate

    async def generate(self, request):
        asked.append(request)
        return await plain(self, request)

    monkeypatch.setattr(ScriptedBackend, "generate", generate)
    build(tmp_path / "whole", TOWNS, settings(writer), names=[stage])
    needed = len(asked)
    assert needed > BATCH + 4
    asked.clear()
    with pytest.raises(BudgetError, match=r"index\.max_calls"):
        build(tmp_path / "i", TOWNS, settings(writer, max_calls=BATCH), names=[stage])
    (table,) = (tmp_path / "i").glob(f"{stage}-*.lance")
    kept = len(ValueTable(str(table)).keys)
    assert kept and len(asked) - kept <= BATCH
    asked.clear()
    build(tmp_path / "i", TOWNS, settings(writer), names=[stage])
    assert len(asked) == needed - kept
    assert artefacts(tmp_path / "i") == artefacts(tmp_path / "whole")


def test_offline_writers_keep_their_batches():
    assert IndexTasks(HASH).batch("report", 256) == 256
    assert IndexTasks(settings("report")).batch("report", 256) == BATCH
    assert IndexTasks(settings("report")).batch("report", 4) == 4


REFUSALS = [RejectedError("status 400: no"), ContextLengthError("status 413: too long"), Reply("", "content_filter")]
ENTITIES = (("e1", "Tarn", "place", "a town"), ("e2", "Tarn (Town)", "place", "a town"))


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(
    "writer, tasks, name",
    [
        ("triples", [TriplesTask(Passage("p7", "Tarn", "Tarn lies near Quill."))], "id='p7'"),
        ("summary", [SummaryTask(("Tarn lies near Quill.", "Quill is a river."))], "Tarn lies near Quill."),
        ("summary", [SummaryTask(("Tarn lies near Quill.",), subject="Quill")], "'Quill'"),
        ("report", [ReportTask(ENTITIES)], "Tarn (Town)"),
        ("curator", [CurateTask(ENTITIES)], "Tarn (Town)"),
    ],
)
def test_what_a_model_refuses_is_named_and_ends_nothing(writer, tasks, name, refusal, caplog):
    config = settings(writer, extract=replace(HASH.extract, method="prompted", format="openie"))
    answer = refusal if isinstance(refusal, Exception) else lambda request: refusal
    runner = IndexTasks(replace(config, llm={"name": "scripted", "rules": [(".", answer)]}))
    (result,) = runner.run(writer, tasks)
    assert name in caplog.text and f"{writer} refused" in caplog.text
    assert result.flags or result.extraction is None
    kind = "rejected" if isinstance(refusal, Exception) else "filtered"
    assert runner.usage[writer][kind]


def test_a_rejected_passage_is_named_and_fails_alone_while_a_dead_server_ends_the_build(caplog):
    names = json.dumps({"named_entities": ["Town0", "River0"]})
    triples = json.dumps({"triples": [["Town0", "lies near", "River0"]]})

    def run(error):
        rules = [("Town1 ", error), ("a graph of facts", triples), (".", names)]
        config = settings("report", extract=replace(HASH.extract, method="prompted", format="openie"))
        config = replace(config, llm={"name": "scripted", "rules": rules})
        return IndexTasks(config).run("triples", [TriplesTask(passage) for passage in TOWNS[:3]])

    results = run(ContentFilterError("filtered: no"))
    assert [result.extraction is None for result in results] == [False, True, False]
    assert "Town1" in caplog.text and "filtered: no" in caplog.text
    with pytest.raises(LLMError, match="down"):
        run(LLMError("down"))


@pytest.mark.parametrize("error", [NoReplyError("no reply within 2 s"), UnansweredError("status 403: <html> blocked")])
def test_what_the_server_fails_at_is_the_passage_s_where_others_are_answered(error, caplog):
    asked = Counter()

    def replies(request):
        is_second = "a graph of facts" in request.text
        return json.dumps({"triples": []} if is_second else {"named_entities": ["Town0"]})

    def fails(request):
        asked[request.text] += 1
        return replies(request) if passes and asked.total() > 1 else error

    def says_hello(request):
        return error if is_down else "hello"

    def run(word, count):
        asked.clear()
        rules = [("^Say", says_hello), (word, fails), (".", replies)]
        config = settings("report", extract=replace(HASH.extract, method="prompted", format="openie"))
        runner = IndexTasks(replace(config, llm={"name": "scripted", "rules": rules}))
        return [row.extraction for row in runner.run("triples", [TriplesTask(p) for p in TOWNS[:count]])]

    passes = is_down = False
    assert [row is None for row in run("Town1 ", 3)] == [False, True, False]
    assert "Town1" in caplog.text and str(error) in caplog.text and max(asked.values()) == 2
    assert run("Town0 ", 1) == [None], "nor does it hinder a build that has nothing else to do"
    is_down = True
    for word, count in ((".", 3), ("Town1 ", 3)):  # from the start, or after a first reply
        with pytest.raises(LLMError, match=str(error)[:9]):
            run(word, count)
    is_down, passes = False, True
    assert None not in run("Town1 ", 3), "it is asked once more when the others have their replies"


def test_calls_that_take_long_are_reported_on(monkeypatch, caplog):
    monkeypatch.setattr(tasks_module, "NEWS_S", 0.02)
    config = replace(settings("report"), llm={"name": "scripted", "default": REPLY, "latency_s": 0.08})
    IndexTasks(config).run("report", [ReportTask(ENTITIES)] * 3, concurrency=1)
    assert "report: 0 of these 3 answered" in caplog.text and "report: 2 of these 3 answered" in caplog.text
