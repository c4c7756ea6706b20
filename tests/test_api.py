"""The Python API: building, changing, searching, asking in all its forms, evaluating."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gnnrag
from gnnrag import Answer, Index
from gnnrag.errors import ArtefactError, ConfigError, DataError
from gnnrag.methods.baselines import Single
from tests.helpers.slow import slow_questions

SETTINGS = {"index.embedder.model": "hash", "index.text.language": "blank:en", "roles": "offline"}
DOCUMENTS = {
    "solaris.txt": "Solaris is a Soviet film of 1972. Solaris was directed by Andrei Tarkovsky.",
    "tarkovsky.txt": "Andrei Tarkovsky was born in Zavrazhye. Andrei Tarkovsky died in Paris in 1986.",
    "paris.txt": "Paris is the capital of France. <b>Paris</b> lies on the Seine.",
}
QUESTION = "Who directed the film Solaris?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "papers").mkdir()
    for name, text in DOCUMENTS.items():
        (tmp_path / "papers" / name).write_text(text)
    return tmp_path / "papers"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("api")
    (root / "papers").mkdir()
    for name, text in DOCUMENTS.items():
        (root / "papers" / name).write_text(text)
    Index.build(root / "papers", root / "index", settings=SETTINGS).close()
    return root


@pytest.fixture
def index(folder: Path, built: Path) -> Iterator[Index]:
    shutil.copytree(built / "index", folder.parent / "index")
    with Index(folder.parent / "index", settings=SETTINGS) as opened:
        yield opened


def test_a_name_that_the_package_lacks() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Indx'"):
        _ = gnnrag.Indx  # type: ignore[attr-defined]


def test_an_answer_has_its_sources_and_trace(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    answer = index.ask(QUESTION, method="bdtr", retriever="chg")
    assert answer.error is None and answer.text == "Andrei Tarkovsky" and str(answer) == answer.text
    assert [(c.passage, c.supported) for c in answer.citations] == [("solaris.txt#1", True)]
    assert answer.citations[0].sentence == "Solaris was directed by Andrei Tarkovsky."
    assert answer.context[0].id == answer.ranking[0] and answer.usage["llm_calls"] == 0
    assert answer.generation == index.generation and answer.trace[0]["event"] == "query"
    assert answer.trace[0]["text"] == QUESTION and answer.trace[0]["ranking"]["ids"][0] == "solaris.txt#1"
    assert json.loads(json.dumps(answer.to_dict()))["text"] == answer.text
    assert capsys.readouterr() == ("", "")


def test_search(index: Index) -> None:
    found = index.search("capital of France", 2, retriever="bm25")
    assert [f.rank for f in found] == list(range(1, len(found) + 1)) and len(found) <= 2
    assert found[0].passage.id == "paris.txt#1" and found[0].score > 0


def test_adding_and_removing_is_asked_at_once(index: Index, folder: Path) -> None:
    before = index.generation
    assert len(index) == 3 and "3 passages" in repr(index)
    more = folder.parent / "stalker.txt"
    more.write_text("Stalker is a film of 1979. Stalker was photographed by Alexander Knyazhinsky.")
    index.add(more)
    assert len(index) == 4 and index.generation != before
    assert index.search("Stalker Knyazhinsky", 1, retriever="bm25")[0].passage.id == "stalker.txt#1"
    index.remove("stalker.txt")
    assert len(index) == 3 and index.generation == before
    assert index.inspect()["stages"]
    with pytest.raises(DataError, match="stalker"):
        index.remove("stalker.txt")


def test_a_file_of_the_indexed_folder_is_named_as_there(index: Index, built: Path) -> None:
    (part := built / "papers" / "part").mkdir()
    for text in ("Stalker is a film of 1979.", "Stalker was made in 1979."):
        (part / "new.txt").write_text(text)
        index.add(part / "new.txt")
    assert [(p.id, p.text) for p in index.passages if "new" in p.id] == [("part/new.txt#1", text)]
    shutil.rmtree(part)


def test_a_name_with_its_accents_apart_is_the_name_of_the_document(index: Index, folder: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "résumé.txt") for form in ("NFC", "NFD"))
    (folder / apart).write_text("Stalker is a film of 1979.")
    index.add(folder / apart)
    assert f"{composed}#1" in {passage.id for passage in index.passages}
    index.remove(apart)
    assert len(index.passages) == len(DOCUMENTS)


def test_async_streaming_and_sync_give_the_same(index: Index) -> None:
    asked = index.ask(QUESTION, method="bdtr", retriever="dense")

    async def both() -> tuple[Answer, list[Any]]:
        one = await index.aask(QUESTION, method="bdtr", retriever="dense")
        return one, [event async for event in index.stream(QUESTION, method="bdtr", retriever="dense")]

    one, events = asyncio.run(both())
    *trace, last = events
    assert isinstance(last, Answer) and tuple(trace) == last.trace
    assert one.text == last.text == asked.text and one.ranking == last.ranking == asked.ranking
    assert [e["event"] for e in one.trace] == [e["event"] for e in last.trace]


def test_rounds_come_while_the_question_is_under_way(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question waits in its `select` until the caller has seen its first round."""
    seen = threading.Event()

    async def select(self: Single, state: Any) -> Any:
        assert await asyncio.to_thread(seen.wait, 20)
        return await original(self, state)

    original = Single.select
    monkeypatch.setattr(Single, "select", select)

    async def watch() -> None:
        async for event in index.stream(QUESTION, method="single", retriever="bm25"):
            if not isinstance(event, Answer):
                seen.set()
            else:
                assert event.error is None

    asyncio.run(watch())
    assert seen.is_set()


@pytest.mark.parametrize("form", ["aask", "stream"])
def test_cancelling_stops_the_question(index: Index, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    began, ended = slow_questions(monkeypatch)

    async def consume() -> None:
        if form == "aask":
            await index.aask(QUESTION, method="single", retriever="bm25")
        async for _ in index.stream(QUESTION, method="single", retriever="bm25"):
            pass

    async def cancel() -> None:
        task = asyncio.create_task(consume())
        assert await asyncio.to_thread(began.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 20)

    asyncio.run(cancel())


def test_a_change_while_a_question_is_under_way_leaves_it_its_generation(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, original = threading.Event(), threading.Event(), Single.select

    async def select(self: Single, state: Any) -> Any:
        began.set()
        assert await asyncio.to_thread(go_on.wait, 20)
        return await original(self, state)

    monkeypatch.setattr(Single, "select", select)

    async def ask() -> Answer:
        task = asyncio.create_task(index.aask(QUESTION, method="single", retriever="bm25"))
        assert await asyncio.to_thread(began.wait, 20)
        await asyncio.to_thread(index.remove, "paris.txt")
        go_on.set()
        return await task

    before = index.generation
    answer = asyncio.run(ask())
    assert answer.error is None and answer.generation == before != index.generation


def test_a_closed_index_can_be_asked_again(index: Index) -> None:
    index.ask(QUESTION, method="single", retriever="bm25")
    index.close()
    assert index.ask(QUESTION, method="single", retriever="bm25").error is None


def test_what_is_no_question_and_no_index(index: Index, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a question in words"):
        index.ask("  ")
    with pytest.raises(ConfigError, match="k=0"):
        index.search("x", 0)
    with pytest.raises(ArtefactError, match="none"):
        Index(tmp_path / "none")


def test_a_build_undoes_changes_only_when_told(folder: Path) -> None:
    path = folder.parent / "changed"
    with Index.build(folder, path, settings=SETTINGS) as index:
        before = len(index)
        index.remove("paris.txt")
    with pytest.raises(ArtefactError, match="would undo it"):
        Index.build(folder, path, settings=SETTINGS)
    with Index.build(folder, path, settings=SETTINGS, fresh=True) as index:
        assert len(index) == before
    Index.build(folder, path, settings=SETTINGS).close()


def test_a_follow_up_is_asked_as_a_question_of_its_own(index: Index) -> None:
    first = index.ask(QUESTION, method="single", retriever="bm25")
    second = index.ask("Where was he born?", method="single", retriever="bm25", history=[first])
    assert second.question == "Where was Andrei Tarkovsky born?" and second.text == "Zavrazhye"
    assert second.trace[0] == {"event": "rewrite", "asked": "Where was he born?", "text": second.question}
    pairs = [("Who directed Solaris?", "Andrei Tarkovsky")]
    again = index.ask("Where was he born?", method="single", retriever="bm25", history=pairs)
    assert again.text == "Zavrazhye" and again.question == second.question
    for wrong in ([("a", "b", "c")], [("a", 1)]):
        with pytest.raises(ConfigError, match="history="):
            index.ask("Where was he born?", history=wrong)  # type: ignore[arg-type]


def test_evaluating(index: Index, folder: Path) -> None:
    settings = {"run.root": str(folder.parent / "runs")}
    rows = [
        {"id": "a", "question": QUESTION, "answers": ["Andrei Tarkovsky"], "gold": ["solaris.txt#1"]},
        {"question": "What is the capital of France?", "answer": "Paris", "gold": ["paris.txt#1"]},
    ]
    results = gnnrag.evaluate(index, rows, method="single", retriever="bm25", settings=settings)
    assert results.metrics["questions"] == 2 and results.metrics["retrieval/recall@5"] == 1.0
    assert [p.question_id for p in results.predictions] == ["a", "2"] and (results.path / "metrics.json").is_file()

    async def in_a_notebook() -> gnnrag.Results:
        return gnnrag.evaluate(index, rows, method="single", retriever="bm25", settings=settings)

    assert asyncio.run(in_a_notebook()).path == results.path
    for row, message in (
        ({"question": "?", "answers": [], "gold": ["no"]}, "gold passage 'no'"),
        ({"answers": []}, "question"),
    ):
        with pytest.raises(DataError, match=message):
            gnnrag.evaluate(index, [row], settings=settings)


def test_the_library_keeps_its_threads_to_itself(index: Index) -> None:
    """Asking starts one thread of the index; closing ends it, and what was under way."""
    index.ask(QUESTION, method="single", retriever="bm25")
    assert any(thread.name == "gnnrag-index" for thread in threading.enumerate())
    index.close()
    assert not any(thread.name == "gnnrag-index" for thread in threading.enumerate())


def test_limits_of_one_question_open_no_part_anew(index: Index) -> None:
    how: dict[str, Any] = {"method": "single", "retriever": "bm25"}
    assert index.ask(QUESTION, **how).error is None
    late = index.ask(QUESTION, **how, settings={"budget.max_seconds": 1e-9})
    assert str(late.error).startswith("budget.max_seconds=1e-09 is used up")
    assert index.ask(QUESTION, **how, settings={"budget.max_cost": 0.5, "budget.max_calls": 3}).error is None
    assert len(index._opened._pipelines) == 1
    with pytest.raises(ConfigError, match="must be a number"):
        index.ask(QUESTION, **how, settings={"budget.max_tokens": "many"})


def test_no_more_questions_are_under_way_than_the_settings_say(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    most, now, original = [0], [0], Single.select

    async def select(self: Single, state: Any) -> Any:
        now[0] += 1
        most[0] = max(most[0], now[0])
        full.set() if now[0] == 3 else None
        await asyncio.wait_for(full.wait(), 60)
        await asyncio.sleep(0.01)
        now[0] -= 1
        return await original(self, state)

    monkeypatch.setattr(Single, "select", select)
    how: dict[str, Any] = {"method": "single", "retriever": "bm25", "settings": {"concurrency": 3}}

    async def ask() -> None:
        await asyncio.gather(*(index.aask(QUESTION, **how) for _ in range(12)))

    full = asyncio.Event()
    asyncio.run(ask())
    assert most == [3]
