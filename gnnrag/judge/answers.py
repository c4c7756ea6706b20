"""What a judge is shown: the answers of finished runs, and the gold that they are compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.io import file_digest, read_journal, read_json, read_lines
from gnnrag.metrics.long_answers import cut
from gnnrag.run.evaluate import load_data_of
from gnnrag.run.rundir import read_predictions
from gnnrag.types import Passage, Question


@dataclass(frozen=True)
class JudgedRun:
    path: Path
    answers: Mapping[str, str]  # the judged texts by question id; empty: no answer
    models: frozenset[str]  # that the run asked
    digest: str  # SHA-256 of `predictions.jsonl`
    inputs: Mapping[str, str]  # digests of the run's data

    @property
    def name(self) -> str:
        return self.path.resolve().name


def read_run(path: Path) -> JudgedRun:
    """Read a finished run. Raises GnnragError where the folder is no run, or has not ended."""
    predictions = read_predictions(path)
    if not (path / "metrics.json").is_file():
        raise GnnragError(f"run {path} has not ended: run its command again")
    answers = {p.question_id: "" if p.error is not None else p.answer.strip() for p in predictions}
    for row, _ in read_lines(path / "traces.jsonl"):
        if answer := answers.get(row["question_id"]):
            answers[row["question_id"]] = long_answer(row["events"], answer) or answer
    log = [row.get("roles", {}) for row in read_journal(path / "log.jsonl") if row.get("event") == "predicted"]
    models = {role.get("llm", {}).get("model") for roles in log for role in roles.values()}
    return JudgedRun(
        path,
        answers,
        frozenset(str(model) for model in models if model),
        file_digest(path / "predictions.jsonl"),
        read_json(path / "meta.json")["inputs"]["data"],
    )


def long_answer(events: Sequence[Mapping[str, Any]], answer: str) -> str:
    """Return the reasoning with the answer out of a trace; empty where no language model's reasoning led to it.

    That is `final` (GraphSearch), else what the reader thought, if it was a language model: what others note was not
    written for a person who asks.
    """
    for event in reversed(events):
        if event["event"] == "final" and event["answer"] == answer:
            return str(event["text"]).strip()
        if event["event"] == "answer":
            asked = any(e["event"] == "llm" and e["role"] == "reader" for e in events)
            thought = event["thought"].strip()
            return f"{thought}\n{answer.strip()}" if asked and thought and event["text"] == answer else ""
    return ""


def load_data(runs: Sequence[JudgedRun]) -> Dataset:
    """Load the data that all runs were made on, from where the first run found them.

    Raises ConfigError where the runs' questions differ, DataError where the data are not those of the runs.
    """
    first = runs[0]
    data = load_data_of(first.path)
    for run in runs:
        if set(run.answers) != set(first.answers) or run.inputs["questions"] != first.inputs["questions"]:
            raise ConfigError(
                f"{run.name} and {first.name} answered different questions; judge runs on the same data.split, "
                "data.questions, data.limit and data.sample"
            )
    if data.fingerprints != first.inputs:
        raise DataError(data.name, f"is not what {first.name} was made on")
    return data


def draw(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """Return `limit` questions at random, in order; a smaller limit gives a subset."""
    places = list(range(len(questions)))
    Random(0).shuffle(places)
    return [questions[i] for i in sorted(places[:limit])]


def golden_evidence(question: Question, passages: Mapping[str, Passage]) -> str:
    """Return the text of the gold passages, else the gold triples, a line each; empty where there is none."""
    texts = [passages[id_].content for id_ in question.gold if id_ in passages]
    return "\n\n".join(texts) or "\n".join(" | ".join(triple) for triple in question.evidence)


# The text of an answer that a judge is shown: without what gives the method away, and within one cap for all.

_PART = (
    r"(?:(?:final|short|interim|sub|logic(?:al)?|fast|slow)[ \t-]+)?(?:answer|response|reply|thoughts?|reasoning|draft|"
    r"conclusion|summary|evidence|paths?|context)(?:[ \t]+\d+)?"
)
_HEADING = re.compile(rf"^[ \t]*(?:#{{1,6}}|\*\*|__)[ \t*_]*{_PART}[ \t:*_#]*$", re.IGNORECASE | re.MULTILINE)
_LABEL = re.compile(rf"^[ \t#*_]*{_PART}[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE | re.MULTILINE)
_RULE = re.compile(r"^[ \t]*(?:={3,}|-{3,}|\*{3,}|_{3,})[ \t]*$", re.MULTILINE)
_MARK = re.compile(r"^[ \t]*#{1,6}[ \t]+|\*\*|__", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n\s*")


def plain_text(text: str) -> str:
    """Return a text without rules, marks of headings and bold, and what methods call the parts of an answer.

    `## Logic draft` goes, of `**Answer:** Rome` the label; a text of nothing else stays as it is.
    """
    plain = _MARK.sub("", _LABEL.sub("", _HEADING.sub("", _RULE.sub("", text))))
    return _BLANK.sub("\n\n", plain).strip() or text.strip()


def shortened(text: str, max_words: int) -> str:
    """Return at most `max_words` words: the beginning and a quarter of the end, where the answer stands."""
    words = text.split()
    if len(words) <= max_words:
        return text
    tail = max_words // 4
    return " ".join([cut(text, max_words - tail), "…", *words[len(words) - tail :]])
