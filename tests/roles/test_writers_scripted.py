"""The writers of an index, driven well and badly by a scripted model; the list of them is the registry's."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.registry import WRITERS, resolve
from gnnrag.roles.writers.base import CurateTask, ReportTask, SummaryTask, TriplesTask, TypesTask
from gnnrag.session import Session
from gnnrag.types import Passage
from tests.helpers.each import each
from tests.helpers.parts import CORPUS
from tests.helpers.replies import ATTACK, BAD, good

SAID = f"Vera Lindqvist directed it. {ATTACK}"
ENTITIES = (
    ("e1", "Vera Lindqvist", "person", SAID),
    ("e2", "V. Lindqvist", "person", ""),
    ("e3", "Kalmar", "town", ""),
)
TASKS: dict[str, Any] = {
    "triples": TriplesTask(Passage("p", "Night Harbour", SAID), gleaning=1),
    "summary": SummaryTask((SAID, CORPUS[1].text)),
    "report": ReportTask(ENTITIES, (("r1", "Vera Lindqvist", "Kalmar", "born in"),), (CORPUS[0],)),
    "curator": CurateTask(ENTITIES),
    "types": TypesTask(tuple((i, name, text) for i, name, _, text in ENTITIES), (("person", "who lives"),)),
}
CLASSES = {
    f"{writer}-{form}": (writer, resolve("writer", form, table))
    for writer, table in WRITERS.items()
    for form in table
    if form != "offline"
}
TYPED = {"curator-prompted", "types-prompted"}  # descriptions are cut before they are shown
EXCLUDED_FIELDS = {"summary-prompted"}
COUNTS = {"calls", "prompt_tokens", "completion_tokens", "cached_calls", "parse_failure", "refused", "records_seen"}


def write(name: str, reply: Any) -> tuple[Any, Counter[str], ScriptedBackend]:
    writer, cls = CLASSES[name]
    backend, session = ScriptedBackend.of((".", reply)), Session("index")
    result = asyncio.run(ready(cls(), backend=backend)(TASKS[writer], session))
    session.flag(writer, *result.flags)
    return result, session.by_role[writer], backend


@each("name", CLASSES)
def test_success(name: str) -> None:
    result, counts, backend = write(name, good)
    assert counts["calls"] == len(backend.requests) > 0
    assert not counts["parse_failure"] and not [f for f in result.flags if "fail" in f or "fallback" in f]


@each("kind", BAD)
@each("name", CLASSES)
def test_a_bad_reply_is_counted(name: str, kind: str) -> None:
    _, counts, _ = write(name, lambda _: BAD[kind])
    if kind == "garbage" and name in EXCLUDED_FIELDS:
        return
    assert counts["parse_failure"] and counts.keys() - COUNTS
    assert kind != "refusal" or counts["refused"]
