"""Finished runs without running anything, and judges whose preferences are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gnnrag.config import load_config
from gnnrag.datasets.base import load_dataset
from gnnrag.judge import DIMENSIONS, JudgeConfig
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend

Row = dict[str, Any]
_ANSWER = re.compile(r'<answer(?: id="([AB])")?>\n(.*?)\n</answer>', re.DOTALL)


def question(number: int, **more: Any) -> Row:
    """Return a question with a passage of gold and a triple."""
    row = {"id": f"q{number}", "question": f"What is thing {number}?", "answers": [f"gold {number}"], "type": "bridge"}
    return row | {"gold": [f"p{number}"], "evidence": [[f"thing {number}", "is", f"gold {number}"]]} | more


def write_data(folder: Path, questions: Sequence[Row]) -> Path:
    """Write a corpus of a passage per question, and the questions."""
    folder.mkdir(parents=True)
    rows = [{"id": f"p{n}", "title": f"Thing {n}", "text": f"Thing {n} is gold {n}."} for n in range(len(questions))]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "questions.dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions), "utf-8")
    return folder


def write_run(
    path: Path,
    data: Path,
    answers: Mapping[str, str | None],
    model: str = "",
    events: Mapping[str, Sequence[Row]] | None = None,
) -> Path:
    """Write a finished run: answers by question id, None for one that failed."""
    path.mkdir(parents=True)
    rest = {"ranking": [], "context": [], "rounds": 0, "usage": {}}
    rows = [
        {"question_id": i, "answer": a or "", "error": "broken" if a is None else None} | rest
        for i, a in answers.items()
    ]
    (path / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (path / "config.yaml").write_text(yaml.safe_dump({"data": {"path": str(data), "split": "dev"}}), "utf-8")
    inputs = {"data": load_dataset(data, "dev").fingerprints}
    (path / "meta.json").write_text(json.dumps({"settings": {}, "inputs": inputs}), "utf-8")
    (path / "metrics.json").write_text("{}", "utf-8")
    roles = {"reader": {"impl": "prompted", "llm": {"model": model}}} if model else {}
    log = {"event": "predicted", "seconds": 1.0, "roles": roles}
    (path / "log.jsonl").write_text(json.dumps(log) + "\n", "utf-8")
    traces = [{"question_id": i, "events": list(e)} for i, e in (events or {}).items()]
    (path / "traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in traces), "utf-8")
    return path


def settings(kind: str, *runs: Path, dots: Sequence[str] = ()) -> JudgeConfig:
    """Return settings of a judge that is scripted."""
    own = [f"kind={kind}", f"runs=[{','.join(map(str, runs))}]", "llm=scripted", "llm_cache=null"]
    return load_config(JudgeConfig, None, [*own, *dots])


def shown(request: Request) -> list[str]:
    """Return the answers that a request shows, in order."""
    return [text for _, text in _ANSWER.findall(request.messages[-1].content)]


def criterion(request: Request) -> str:
    """Return the quality that a request asks for."""
    found = re.search(r"Quality: ([a-z ]+)\.", request.messages[0].content)
    assert found
    return found[1].replace(" ", "_")


def question_of(request: Request) -> int:
    """Return the number of the question that a request is about."""
    found = re.search(r"Question: What is thing (\d+)\?", request.messages[-1].content)
    assert found
    return int(found[1])


def verdict(winner: str, **others: str) -> str:
    """Return a reply of the pairwise judge: a winner of all dimensions, and of some another one."""
    return json.dumps({name: {"reason": "because", "winner": others.get(name, winner)} for name in DIMENSIONS})


def scripted(reply: Callable[[Request], Any]) -> ScriptedBackend:
    """Return a judge that replies as a function says."""
    return ScriptedBackend.of((lambda request: True, reply))
