"""One self-contained page of several runs: results, plots, and every question as each run went about it.

Runs and figures are JSON; questions, stories and passages are blocks (JSON, compressed, base64), unpacked on demand.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.io import interpreting, read_lines, read_object
from gnnrag.metrics.comparison import Run, differences
from gnnrag.metrics.replies import described
from gnnrag.pages import fill, inert
from gnnrag.pages.story import SHOWN, Passages, Story, clipped
from gnnrag.run.evaluate import load_data_for
from gnnrag.run.rundir import read_predictions, roles_label
from gnnrag.types import Prediction, Question

SCRIPTS = (
    "base", "inflate", "results", "charts", "sides", "plots", "words", "list", "path", "blocks", "detail", "main",
)  # fmt: skip
STYLES = ("page", "parts")
STORIES, PASSAGES = 20, 200  # of a block


def render(model: Model) -> str:
    """Return the page of some runs as HTML."""
    folder = files("gnnrag.pages") / "assets"
    template = (folder / "comparison.html").read_text("utf-8")
    # One scope for all files, and none of their names outside.
    parts = [(folder / f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n(function () {\n' + "\n".join(parts) + "})();\n"
    style = "\n".join((folder / f"{name}.css").read_text("utf-8") for name in STYLES)
    head = model.head | {"stories_in_block": STORIES, "passages_in_block": PASSAGES}
    blocks = "\n".join(
        f'<script type="text/plain" data-block="{name}">{text}</script>' for name, text in _blocks(model)
    )
    title = f"{model.head['name']}: {len(model.head['runs'])} runs · gnnrag"
    return fill(template, title, style, script, {"DATA": inert(head), "BLOCKS": blocks})


def _blocks(model: Model) -> Iterator[tuple[str, str]]:
    yield "questions", packed(model.questions)
    for run, stories in enumerate(model.stories):
        for number, start in enumerate(range(0, len(stories), STORIES)):
            yield f"story-{run}-{number}", packed(stories[start : start + STORIES])
    for number, start in enumerate(range(0, len(model.passages), PASSAGES)):
        yield f"passages-{number}", packed(model.passages[start : start + PASSAGES])


def packed(data: Any) -> str:
    """Return data as base64 of compressed JSON, the same bytes for the same data."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(plain, 9, mtime=0)).decode("ascii")


PASSAGE_TEXT = 3000  # characters of a passage
MOST_FACTS = 12
SECTIONS = ("data", "method", "retriever", "roles")  # of a run's settings: what is said of it here


@dataclass
class Model:
    """What the page holds: `head` is read at once, the other fields block by block."""

    head: dict[str, Any]
    questions: list[dict[str, Any]]
    stories: list[list[dict[str, Any]]]
    passages: list[list[str]] = field(default_factory=list)


def build_model(paths: Sequence[Path], runs: Sequence[Run], data: str | None = None) -> Model:
    """Return what a page of runs shows; `paths` are the folders of `runs`, in the order of `load_runs`.

    `data` is the benchmark's folder or file, where it is not where the first run found it. Raises GnnragError where a
    run's files are damaged, or `data` cannot be read.
    """
    configs = [_config(path) for path in paths]
    corpus, notes = _corpus(paths[0], configs[0]["data"], data)
    by_question = {question.id: question for question in corpus.questions} if corpus else {}
    if corpus and (lost := [id_ for id_ in runs[0].ids if id_ not in by_question]):
        notes.append(f"{len(lost)} questions of the runs are not in the data at hand; their gold is not known here.")
    types = zip(runs[0].ids, runs[0].types.tolist(), strict=True)
    asked = [by_question.get(id_) or Question(id_, "", type=type_) for id_, type_ in types]
    passages, texts = Passages(), dict[str, str]()
    stories = [_stories(path, asked, passages, texts) for path in paths]
    measures = [m for m in MEASURES if all(run.metrics.get(m.key) is not None and m.key in run.scores for run in runs)]
    place = str(configs[0]["data"].get("path", "")).rstrip("/")
    head: dict[str, Any] = {
        "name": corpus.name if corpus else place.split("/")[-1],
        "split": str(configs[0]["data"].get("split", "")), "count": len(asked), "notes": notes,
        "has_texts": corpus is not None, "measures": [vars(m) for m in measures],
        "runs": describe_runs(paths, runs, configs),
        "differences": differences(runs, [m.key for m in measures]),
    }  # fmt: skip
    questions = [_question(question, texts.get(question.id, ""), passages) for question in asked]
    for run, rows in zip(runs, stories, strict=True):
        _add_values(questions, run, [m.key for m in measures], rows)
    by_id = {passage.id: passage for passage in corpus.passages} if corpus else {}
    table = [
        [id_, passage.title, clipped(passage.text, PASSAGE_TEXT)] if (passage := by_id.get(id_)) else [id_, "", ""]
        for id_ in passages.ids
    ]
    return Model(head, questions, stories, table)


def _config(path: Path) -> dict[str, Any]:
    with interpreting(path / "config.yaml"):
        config = yaml.safe_load((path / "config.yaml").read_text("utf-8"))
        return config | {name: config.get(name) or {} for name in SECTIONS}


def _corpus(path: Path, section: Mapping[str, Any], given: str | None) -> tuple[Dataset | None, list[str]]:
    """Return the benchmark of the runs (None where it is not there) and what a reader should know of it.

    Only data with the recorded fingerprints are used, or what the caller has `given`.
    """
    lacking = "Texts of passages and gold answers are missing here; give their folder with --data."
    if not section.get("path") and not given:
        return None, [f"The runs do not say where their data were. {lacking}"]
    try:
        settings = {**section, "path": given or section["path"]}
        corpus = load_data_for(load_config(EvaluateConfig, {"data": settings}))
    except (DataError, ConfigError) as error:
        if given:
            raise
        return None, [f"The data of the runs could not be read ({error}). {lacking}"]
    recorded = read_object(path / "meta.json").get("inputs", {}).get("data", {})
    changed = [name for name, print_ in corpus.fingerprints.items() if recorded.get(name, given and print_) != print_]
    if not changed:
        return corpus, []
    words = f"The data at {settings['path']} are not those that the runs read: the {' and the '.join(changed)} differ."
    return (corpus, [words]) if given else (None, [f"{words} {lacking}"])


def _question(question: Question, first: str, passages: Passages) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": question.id, "text": question.text or first, "answers": list(question.answers[:20]),
        "gold": passages.numbers(question.gold), "type": question.type, "runs": [],
    }  # fmt: skip
    if isinstance(question.extra.get("hops"), int):
        row["hops"] = question.extra["hops"]
    if question.decomposition:
        row["steps"] = [
            [hop.question, hop.answer, passages.number(hop.gold) if hop.gold else -1] for hop in question.decomposition
        ]
    elif question.evidence:
        row["facts"] = [list(fact) for fact in question.evidence[:MOST_FACTS]]
    return row


def _add_values(
    questions: Sequence[dict[str, Any]], run: Run, keys: Sequence[str], stories: Sequence[dict[str, Any]]
) -> None:
    """Write a run's answer (`a`), its value of each measure (`v`) and whether it failed (`f`) into each question."""
    for place, (row, story) in enumerate(zip(questions, stories, strict=True)):
        scores = [float(run.scores[key][place]) for key in keys]
        values = [None if math.isnan(score) else round(score, 4) for score in scores]
        row["runs"].append({"a": clipped(story["answer"], 160), "v": values, "f": int(bool(story["error"]))})


def _stories(path: Path, asked: Sequence[Question], passages: Passages, texts: dict[str, str]) -> list[dict[str, Any]]:
    """Return a run's story of each question; `texts` gets what the questions were, as the traces say it."""
    predictions = {prediction.question_id: prediction for prediction in read_predictions(path)}
    rows = {question.id: _ending(predictions.get(question.id), question, passages) for question in asked}
    gold = {question.id: question.gold for question in asked}
    for trace, _ in read_lines(path / "traces.jsonl"):  # one by one: some traces have 100 KB a question
        if (id_ := trace["question_id"]) in rows:
            rows[id_]["sections"] = Story(passages, gold[id_]).tell(trace["events"])
            asked_first = [e["text"] for e in trace["events"] if e["event"] == "query" and e["origin"] == "question"]
            texts.setdefault(id_, asked_first[0] if asked_first else "")
    return list(rows.values())


def _ending(prediction: Prediction | None, question: Question, passages: Passages) -> dict[str, Any]:
    if prediction is None:
        return {"answer": "", "error": "no prediction", "sections": []}
    ranks = {id_: place for place, id_ in enumerate(prediction.ranking, start=1)}
    usage = prediction.usage
    return {
        "answer": clipped(prediction.answer), "error": clipped(prediction.error) if prediction.error else "",
        "rounds": prediction.rounds, "seconds": round(prediction.seconds, 2),
        "calls": usage.get("llm_calls", 0), "queries": usage.get("retriever_calls", 0),
        "tokens": usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0),
        "gold": [[passages.number(id_), ranks.get(id_, 0)] for id_ in question.gold],
        "top": passages.numbers(prediction.ranking[:SHOWN]), "read": passages.numbers(prediction.context[:SHOWN * 2]),
        "nodes": [clipped(node, 120) for node in prediction.nodes[:SHOWN]], "depth": len(prediction.ranking),
        "sections": [],
    }  # fmt: skip


def describe_runs(
    paths: Sequence[Path], runs: Sequence[Run], configs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return name, label, method, notes and figures of each run; no two have one label."""
    rows = []
    for path, run, config in zip(paths, runs, configs, strict=True):
        roles = config.get("roles") or {}
        method, retriever = ((config.get(part) or {}).get("name", "?") for part in ("method", "retriever"))
        with_impl = {name: role for name, role in roles.items() if isinstance(role, dict) and "impl" in role}
        label = f"{method} · {retriever} · {roles_label({'default': roles.get('default', '?'), **with_impl})}"
        notes, metrics = _warnings(path, roles.get("default"), with_impl, run), trimmed(run.metrics)
        rows.append({"name": run.name, "label": label, "method": method, "notes": notes, "metrics": metrics})
    labels = [row["label"] for row in rows]
    for row, label in zip(rows, labels, strict=True):
        if labels.count(label) > 1:
            row["label"] = f"{label} · {row['name']}"
    return rows


def _warnings(path: Path, default: Any, own: Mapping[str, Any], run: Run) -> list[str]:
    trained = read_object(path / "meta.json").get("trained_on") or {}
    notes = [f"{name} was trained on {count} of these questions: no result." for name, count in trained.items()]
    oracles = [name for name, role in own.items() if role["impl"] == "oracle"]
    if default == "oracle" or oracles:
        whom = "All roles" if default == "oracle" else f"The role {', '.join(oracles)}"
        read = "reads" if len(oracles) == 1 and default != "oracle" else "read"
        notes.append(f"{whom} {read} the gold annotations (oracle): a ceiling of what is possible, not a result.")
    if failed := run.metrics.get("failed"):
        notes.append(f"{failed} questions failed; they count as wrong.")
    rows = run.metrics.get("replies", {}).items()
    notes += [f"The model in the role {role}: {described(counts)}." for role, counts in rows if counts["bad"]]
    if not (path / "traces.jsonl").is_file():
        notes.append("There are no traces: its rounds cannot be shown.")
    return notes


@dataclass(frozen=True)
class Measure:
    """A figure that every question has, in `group` `passages` or `answer`.

    `right` says what 1 means; empty where a question is not simply right or wrong by it.
    """

    key: str
    group: str
    name: str
    help: str
    right: str = ""


_FOUND, _ANSWER = "passages", "answer"
MEASURES = (
    Measure("retrieval/recall@2", _FOUND, "Recall@2", "share of the gold passages among the first 2 found"),
    Measure(
        "retrieval/recall@5", _FOUND, "Recall@5",
        "share of the gold passages (those that prove the answer) among the first 5 found",
        "all gold passages are among the first 5",
    ),
    Measure("retrieval/all@5", _FOUND, "All@5", "questions that have every gold passage among the first 5"),
    Measure("retrieval/mrr", _FOUND, "MRR", "1 / rank of the first gold passage: 1 if it comes first, 0.5 if second"),
    Measure(
        "retrieval/hits@1", _FOUND, "Hits@1", "questions whose first graph node is an answer",
        "the first node is an answer",
    ),
    Measure(
        "retrieval/node_recall", _FOUND, "Node recall", "share of the answer nodes that were found",
        "all answer nodes are found",
    ),
    Measure("retrieval/node_precision", _FOUND, "Node precision", "share of the found nodes that are answers"),
    Measure(
        "retrieval/node_f1", _FOUND, "Node F1", "balance of node recall and node precision",
        "exactly the answer nodes are found",
    ),
    Measure(
        "answer/em", _ANSWER, "Exact match", "questions whose answer is, word for word, a gold answer",
        "the answer is exactly a gold answer",
    ),
    Measure("answer/f1", _ANSWER, "F1", "words that the answer shares with the gold answer, 1 for all"),
    Measure("text/rouge_l", _ANSWER, "ROUGE-L", "longest common sequence of words of answer and reference, 1 for all"),
    Measure("text/cosine_embedding", _ANSWER, "Similarity", "cosine of the embeddings of answer and reference"),
    Measure(
        "answer/sub_em", _ANSWER, "Contains", "questions whose answer contains a gold answer",
        "the answer contains a gold answer",
    ),
    Measure(
        "answer/abstained", _ANSWER, "No answer",
        "questions that were left without an answer; lower is better, but for those that have none",
    ),
)  # fmt: skip
COSTS = (
    "cost/retriever_calls", "cost/llm_calls", "cost/prompt_tokens", "cost/completion_tokens", "cost/usd",
    "cost/seconds_per_question", "context/size",
)  # fmt: skip
WHOLE = ("questions", "failed", "no_gold", "by_round", "by_step", "replies")
GROUPS = ("by_type", "by_hops", "by_length")


def trimmed(metrics: Mapping[str, Any]) -> dict[str, Any]:
    keys = {measure.key for measure in MEASURES}
    whole = keys | {f"{key}_ci" for key in keys} | {*WHOLE, *COSTS}
    shown = {k: v for k, v in metrics.items() if k in whole or k.removeprefix("retrieval/recall@").isdigit()}
    for group in GROUPS:
        rows = metrics.get(group, {}).items()
        if rows:
            shown[group] = {str(name): {k: v for k, v in row.items() if k in keys | {"count"}} for name, row in rows}
    return shown
