"""Scored runs as the page of `compare.py --html` reads them: results, plots, questions, and a story of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnrag.comparison import Comparison, Run
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.explorer.measures import MEASURES, trimmed
from gnnrag.explorer.story import SHOWN, Passages, Story, clipped
from gnnrag.files import read_journal
from gnnrag.rundir import read_predictions, roles_label
from gnnrag.types import Prediction, Question

PASSAGE_TEXT = 3000  # characters of a passage
MOST_FACTS = 12


@dataclass
class Model:
    """What the page holds.

    Attributes:
        head: what is read at once: the runs, their figures, and what is worth knowing.
        questions: one row each: text, answers, type, gold and, by run, its answer and its values.
        stories: for each run, one row for each question.
        passages: id, title and text of every passage that a story names, by number.
    """

    head: dict[str, Any]
    questions: list[dict[str, Any]]
    stories: list[list[dict[str, Any]]]
    passages: list[list[str]] = field(default_factory=list)


def build_model(paths: Sequence[Path], runs: Sequence[Run], data: str | None = None) -> Model:
    """Return what a page of runs shows.

    Args:
        paths: folders of the runs.
        runs: the same runs, as `load_runs` gives them.
        data: the benchmark's folder or file, where it is not where the first run found it.

    Raises:
        GnnragError: a run's files are damaged, or `data` cannot be read.
    """
    configs = [_config(path) for path in paths]
    corpus, notes = _corpus(configs[0], paths[0], data)
    known = {question.id: question for question in corpus.questions} if corpus else {}
    if corpus and (lost := [id_ for id_ in runs[0].ids if id_ not in known]):
        notes.append(f"{len(lost)} questions of the runs are not in the data at hand; their gold is not known here.")
    asked = [known.get(id_) or Question(id_, "") for id_ in runs[0].ids]
    passages, stories, texts = Passages(), [], {}
    for path in paths:
        rows, first = _stories(path, asked, passages)
        stories.append(rows)
        texts |= {id_: text for id_, text in first.items() if id_ not in texts}
    measures = [m for m in MEASURES if all(m.key in run.scores for run in runs)]
    head = {
        "name": corpus.name if corpus else str(configs[0].get("data", {}).get("path", "")).rstrip("/").split("/")[-1],
        "split": str(configs[0].get("data", {}).get("split", "")), "count": len(asked), "notes": notes,
        "has_texts": corpus is not None, "measures": [vars(m) for m in measures],
        "runs": [_run(path, run, config) for path, run, config in zip(paths, runs, configs, strict=True)],
        "differences": Comparison(runs).differences([m.key for m in measures]),
    }  # fmt: skip
    _distinct(head["runs"])
    questions = [_question(q, texts.get(q.id, ""), passages) for q in asked]
    types = _types(paths[0])
    for row, question in zip(questions, asked, strict=True):
        row["type"] = types.get(question.id, question.type)
        row["runs"] = []
    _add_values(questions, runs, [m.key for m in measures], stories)
    by_id = {p.id: p for p in corpus.passages} if corpus else {}
    shown = [by_id.get(id_) for id_ in passages.ids]
    table = [
        [i, p.title, clipped(p.text, PASSAGE_TEXT)] if p else [i, "", ""]
        for i, p in zip(passages.ids, shown, strict=True)
    ]
    return Model(head, questions, stories, table)


def _config(path: Path) -> dict[str, Any]:
    """Return the settings of a run as they were written; an older version's are read just as well."""
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.load(path / "config.yaml"))
    except (OSError, ValueError, OmegaConfBaseException):
        return {}
    except Exception as error:  # noqa: BLE001 - the YAML library's own errors have no common base
        raise DataError(path / "config.yaml", f"is damaged: {error}") from error
    return plain if isinstance(plain, dict) else {}


def _corpus(config: Mapping[str, Any], path: Path, given: str | None) -> tuple[Dataset | None, list[str]]:
    """Return the benchmark that the runs answered, and what a reader should know of it; None where it is not there."""
    settings = config.get("data") or {}
    place = given or settings.get("path")
    if not place:
        return None, ["The runs do not say where their data were: texts of passages and gold answers are missing here."]
    try:
        corpus = load_dataset(
            place, settings.get("split") or "dev", settings.get("questions"), settings.get("limit"),
            popqa_aliases=settings.get("popqa_aliases") or "decoded", missing_gold=settings.get("missing_gold") or "error",
        )  # fmt: skip
    except (DataError, ConfigError) as error:
        if given:
            raise
        return None, [
            f"The data of the runs could not be read ({error}). Texts of passages and gold answers are missing here; "
            "give their folder with --data."
        ]
    meta = _json(path / "meta.json").get("inputs", {}).get("data", {})
    changed = [name for name, print_ in corpus.fingerprints.items() if meta.get(name, print_) != print_]
    words = f"The data at {place} are not those that the runs read: the {' and the '.join(changed)} differ."
    return corpus, [words] if changed else []


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _types(path: Path) -> dict[str, str]:
    return {row["question_id"]: str(row.get("type", "")) for row in read_journal(path / "scores.jsonl")}


def _run(path: Path, run: Run, config: Mapping[str, Any]) -> dict[str, Any]:
    roles = config.get("roles") or {}
    method = (config.get("method") or {}).get("name", "?")
    retriever = (config.get("retriever") or {}).get("name", "?")
    who = roles_label({"default": roles.get("default", "?"), **{k: v for k, v in roles.items() if isinstance(v, dict)}})
    meta, metrics = _json(path / "meta.json"), run.metrics
    notes = [
        f"{name} was trained on {count} of these questions: no result."
        for name, count in meta.get("trained_on", {}).items()
    ]
    told = [name for name, role in roles.items() if isinstance(role, dict) and role.get("impl") == "oracle"]
    if roles.get("default") == "oracle" or told:
        whom = "All roles" if roles.get("default") == "oracle" else f"The {', '.join(told)}"
        notes.append(f"{whom} read the gold annotations (oracle): a ceiling of what is possible, not a result.")
    if metrics.get("failed"):
        notes.append(f"{metrics['failed']} questions failed; they count as wrong.")
    if not (path / "traces.jsonl").is_file():
        notes.append("No traces were kept (run.traces=false): rounds cannot be shown.")
    return {
        "name": run.name, "label": f"{method} · {retriever} · {who}", "method": method, "notes": notes,
        "commit": meta.get("commit", ""), "metrics": trimmed(metrics),
    }  # fmt: skip


def _distinct(runs: Sequence[dict[str, Any]]) -> None:
    """Tell runs of the same label apart by the end of their folder's name."""
    labels = [run["label"] for run in runs]
    for run in runs:
        if labels.count(run["label"]) > 1:
            run["label"] += f" · {run['name'].rsplit('-', 1)[-1]}"


def _question(question: Question, first: str, passages: Passages) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": question.id, "text": question.text or first, "answers": list(question.answers[:20]),
        "gold": passages.numbers(question.gold),
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
    questions: Sequence[dict[str, Any]],
    runs: Sequence[Run],
    keys: Sequence[str],
    stories: Sequence[Sequence[dict[str, Any]]],
) -> None:
    for run, told in zip(runs, stories, strict=True):
        for place, (row, story) in enumerate(zip(questions, told, strict=True)):
            values = [round(float(run.scores[key][place]), 4) for key in keys]
            row["runs"].append({"a": clipped(story["answer"], 160), "v": values, "f": int(bool(story["error"]))})


def _stories(path: Path, asked: Sequence[Question], passages: Passages) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a run's story of each question, and the questions' texts as the traces say them."""
    places = {question.id: place for place, question in enumerate(asked)}
    predictions = {p.question_id: p for p in read_predictions(path)}
    rows: list[dict[str, Any]] = [{} for _ in asked]
    texts: dict[str, str] = {}
    for question, place in ((q, places[q.id]) for q in asked):
        rows[place] = _ending(predictions.get(question.id), question, passages)
    for trace in _traces(path):
        place = places.get(str(trace.get("question_id")), -1)
        if place < 0:
            continue
        events = [e for e in trace.get("events") or () if isinstance(e, dict)]
        rows[place]["sections"] = Story(passages, asked[place].gold).tell(events)
        first = next((e for e in events if e.get("event") == "query" and e.get("kind") == "question"), {})
        texts[asked[place].id] = str(first.get("text", ""))
    return rows, texts


def _traces(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows one by one: the traces of GraphSearch are 100 KB a question."""
    file = path / "traces.jsonl"
    if not file.is_file():
        return
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(file, f"line {number} is damaged ({error}); run the run's command again") from error
            if isinstance(row, dict):
                yield row


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
        "nodes": [clipped(node, 120) for node in prediction.nodes[:SHOWN]], "depth": len(prediction.ranking), "sections": [],
    }  # fmt: skip
