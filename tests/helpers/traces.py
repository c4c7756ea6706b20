"""A small set with questions, how to collect traces from it, and rows made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.io import write_jsonl
from gnnrag.training.traces import TracesConfig, collect
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, CORPUS

QUESTIONS = [
    ("harbour", COMPOSITIONAL, "Kalmar", "compositional", ["p0", "p1"]),
    ("first", COMPARISON, "Otto Brandt", "comparison", ["p0", "p1", "p3", "p4"]),
    (
        "castle",
        "For what is the town known where Vera Lindqvist was born?",
        "its castle",
        "compositional",
        ["p1", "p2"],
    ),
    ("arctic", "In which country lies the city where Night Harbour was shot?", "Norway", "compositional", ["p0", "p5"]),
    ("brandt", "When was the director of Copper Road born?", "1931", "compositional", ["p3", "p4"]),
    ("music", "Who wrote the music of the film by Otto Brandt?", "Ines Faro", "compositional", ["p3"]),
    ("keeper", "Who wrote the novel Night Harbour?", "Pia Holm", "single", ["p6"]),
    ("nobody", "Which ship sank off the coast of Peru?", "", "unanswerable", []),
]


def write_set(folder: Path) -> Path:
    """Write the corpus of `tests.helpers.parts` with eight questions; returns the folder."""
    folder.mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"id": p.id, "title": p.title, "text": p.text} for p in CORPUS])
    rows = [
        {"id": id_, "question": text, "answers": [answer] if answer else [], "type": type_, "gold": gold}
        for id_, text, answer, type_, gold in QUESTIONS
    ]
    write_jsonl(folder / "questions.dev.jsonl", rows)
    return folder


def run_settings(root: Path, *more: str) -> list[str]:
    """Return the settings of a run on the set in `root`/set, with its index beside it and no weights."""
    return [
        *(f"data.path={root / 'set'}", f"index.path={root / 'index'}", "index.embedder.model=hash"),
        *("index.text.language=blank:en", "llm_cache=null", "retriever=dense", "method=bdtr", "roles=offline"),
        *("method.top_k=3", "method.thought_passages=2", "method.verifier_passages=6", "roles.reader=oracle"),
        *more,
    ]


def evaluate_config(root: Path, *more: str, llm: Mapping[str, Any] | None = None) -> EvaluateConfig:
    """Return the same as a config, with a language model of rules where one is given."""
    return load_config(EvaluateConfig, {"llm": llm} if llm else None, run_settings(root, *more))


def collected(root: Path, out: Path, *more: str, own: tuple[str, ...] = (), llm: Any = None) -> dict[str, Any]:
    """Collect traces into `out`; returns what `meta.json` holds."""
    settings = load_config(TracesConfig, None, [f"out={out}", *own])
    return collect(evaluate_config(root, *more, llm=llm), settings)
