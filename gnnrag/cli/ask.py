"""Ask a question of an index: the answer, the evidence, and how it was found.

    python inference/ask.py "Who directed ...?" [configs/evaluate/sample.yaml] [key=value ...] [--explain] [--json]
    python inference/ask.py "..." data.path=FOLDER      your own documents; the index follows their changes
    python inference/ask.py "..." index.path=INDEX      an index as it is, for example after index.py add

Without any of these the sample corpus is asked. The index is built when it is missing; one of other data is replaced
only with index.replace=true. --explain shows the paths in the graph that a trained retriever (retriever=gfm) leaned on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill, shorten
from typing import Any

from gnnrag.cli.console import IndexProgress, load_corpus, note, refuse_flags, split_arguments, tell
from gnnrag.common.untrusted import one_line
from gnnrag.common.yaml_config import is_given
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.documents.report import write_report
from gnnrag.errors import GnnragError
from gnnrag.index.index import Index
from gnnrag.metrics.replies import by_role, remarks
from gnnrag.run.answers import citations, where
from gnnrag.run.pipeline import Pipeline, chunking, idle_settings, index_settings, open_index, refuse_sample
from gnnrag.session import Session
from gnnrag.text.sentences import excerpt, rows_around
from gnnrag.types import Prediction, Query, Question

FLAGS = ("--json", "--explain")
PAD = " " * 6


def main(arguments: Sequence[str]) -> int:
    """Answer; returns 1 when the question failed."""
    as_json, explains = "--json" in arguments, "--explain" in arguments
    words = [a for a in arguments if a not in FLAGS]
    if not words or words[0].endswith(".yaml") or not words[0].strip():
        raise GnnragError('give the question first, in quotes: python inference/ask.py "Who ...?"')
    refuse_flags(words, FLAGS)  # the first word too: a misspelt flag is no question
    source, overrides = split_arguments(words[1:])
    config = load_config(EvaluateConfig, source, overrides)
    refuse_sample(config.index, is_given("data.path", source, overrides))
    index = find_index(config, is_alone=source is None and not is_given("data", None, overrides))
    pipeline = Pipeline(config, index)
    for remark in idle_settings(config):
        note(remark)
    if explains and not pipeline.loop.retrievers[None].explains:
        raise GnnragError(f"--explain: retriever={config.retriever.name} has no paths to show; retriever=gfm has")
    result: list[tuple[Prediction, Session]] = []
    question = Question("ask", words[0].strip())
    asyncio.run(pipeline.run([question], lambda prediction, session: result.append((prediction, session))))
    prediction, session = result[0]
    data = as_data(prediction, session, index)
    reasons = explain(pipeline.loop.retrievers[None], prediction, session) if explains else []
    if as_json:
        print(json.dumps(data | ({"reasons": reasons} if explains else {}), ensure_ascii=False, indent=2))
    else:
        print("\n".join([as_text(prediction, session, index), *reason_lines(reasons, index)]))
    tell(remarks(by_role([prediction]), config.run.warn_bad_replies, None))
    return 0 if prediction.error is None else 1


def find_index(config: EvaluateConfig, is_alone: bool) -> Index:
    """Open the index of a config after bringing it up to date with its data; `is_alone`: as it is, if there is one."""
    path = config.index.path
    if is_alone and path and Path(path, "manifest.json").exists():
        return Index(path, index_settings(config))
    data = load_corpus(config.data.path, chunking(config.data), titles=config.data.titles)
    with IndexProgress() as progress:
        index = open_index(config, data.name, data.passages, progress)
    if data.report:
        write_report(index.store.root, data.report)
    return index


def as_data(prediction: Prediction, session: Session, index: Index) -> dict[str, Any]:
    """Return everything about an answer as JSON data."""
    shown = {
        "citations": citations(session.events, index),
        "ranking": list(prediction.ranking[:20]),
        "context": [asdict(p) for p in index.lookup(prediction.context)],
        "trace": session.events,
    }
    return {**asdict(prediction), **shown}


def as_text(prediction: Prediction, session: Session, index: Index) -> str:
    """Return an answer for a person to read."""
    if prediction.error:
        return f"failed: {prediction.error}"
    lines = [f"Answer: {prediction.answer or '(the passages do not say)'}", ""]
    chain = next((e["text"] for e in session.events if e["event"] == "chain"), "")
    if chain:
        lines += [
            "Chain (in brackets: where the pool had it, before promotion)",
            *(f"  {c}" for c in chain.splitlines()),
            "",
        ]
    lines += [route_line(e) for e in session.events if e["event"] in ("route", "sufficiency")]
    lines.append("Queries")
    kinds = {"question": "the question", "fast": "fast thought", "slow": "slow thought"}
    for event in session.events:
        if event["event"] == "query":
            found = event["ranking"]["ids"][:3]  # of passages, or of graph hits, which are named by their ids
            top = one_line("; ".join(index.lookup([i])[0].title if i in index.position else i for i in found))
            kind = kinds.get(event["kind"], event["kind"]) + (f" to {event['retriever']}" if event["retriever"] else "")
            lines.append(f"  round {event['round']}, {kind}: {event['text']}\n      found: {top}")
    lines += ["", *evidence_lines(prediction, session, index)]
    usage = prediction.usage
    lines.append(
        f"\nretrievals: {usage['retriever_calls']}, LLM calls: {usage['llm_calls']}, {prediction.seconds:.2f} s"
    )
    return "\n".join(lines)


def evidence_lines(prediction: Prediction, session: Session, index: Index) -> list[str]:
    """Return the passages that the reader saw, numbered as citations are, each around the sentence that matters."""
    answer = next((e for e in session.events if e["event"] == "answer"), {})
    asked = next((e["text"] for e in session.events if e["event"] == "query"), "")
    rows, support, lines = citations(session.events, index), answer.get("support", ()), ["Evidence"]
    for number, passage in enumerate(index.lookup(prediction.context), start=1):
        said = " ".join(row["sentence"] for row in rows if row["passage"] == passage.id)
        is_read = passage.id in support
        wanted = said or f"{prediction.answer if is_read else ''} {asked}"
        lines.append(f" {'*' if is_read else ' '}[{number}] {one_line(passage.title)} ({where(passage)})")
        prose, table = rows_around(passage.text, wanted)
        shown = [excerpt(prose, wanted), *table]
        lines += [fill(text, 110, initial_indent=PAD, subsequent_indent=PAD) for text in shown if text]
    if support:
        lines.append("\n * the answer was read from here")
    doubtful = [each["sentence"] for each in answer.get("citations", ()) if not each["supported"]]
    if doubtful:
        lines += ["\nNot borne out by the passages that they name:", *(f"  - {one_line(each)}" for each in doubtful)]
    if others := [row for row in rows if not row["supported"] and row["sentence"] not in doubtful]:
        lines += ["\nNamed, but does not bear it out:"]
        lines += [f"  - {row['place']}: {one_line(row['sentence'])}" for row in others]
    return lines


def route_line(event: dict[str, Any]) -> str:
    """Return what a routing method decided."""
    if event["event"] == "sufficiency":
        found = "suffices" if event["enough"] else "does not suffice: on to the multi_hop route"
        return f"Flat evidence {found} ({event['check']}: {event['value']:.2f})\n"
    shares = ", ".join(f"{name} {p:.2f}" for name, p in event["probabilities"].items())
    return f"Route: {event['route']} by rule {event['rule']} ({shares})\n"


def explain(retriever: Any, prediction: Prediction, session: Session) -> list[dict[str, Any]]:
    """Return the paths behind each passage that the reader saw, by the query that ranked it best."""
    reasons = []
    queries = [e for e in session.events if e["event"] == "query" and not e["retriever"]]
    for id_ in prediction.context:
        ranked = [(e["ranking"]["ids"].index(id_), i) for i, e in enumerate(queries) if id_ in e["ranking"]["ids"]]
        if ranked:
            query = Query(queries[min(ranked)[1]]["text"])
            reasons += [{"query": query.text, **asdict(reason)} for reason in retriever.explain(query, [id_])]
    return reasons


def reason_lines(reasons: Sequence[dict[str, Any]], index: Index) -> list[str]:
    """Return the paths for a person to read."""
    lines = ["", "Paths behind the evidence (how much the score leans on each)"] if reasons else []
    shown = None
    for reason in reasons:
        if reason["id"] != shown:
            shown = reason["id"]
            lines.append(f"  {one_line(index.lookup([shown])[0].title)} ({one_line(shown)}), asked: {reason['query']}")
        path = " -- ".join(shorten(step, 80, placeholder=" ...") for step in reason["steps"])
        lines.append(fill(f"{reason['score']:.3f}  {path}", 110, initial_indent=PAD, subsequent_indent=PAD * 2))
    return lines
