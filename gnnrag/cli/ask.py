"""Ask a question of an index: the answer, the evidence, and how it was found.

    gnnrag ask "Who directed ...?" [configs/evaluate/sample.yaml] [key=value ...] [--explain] [--json]
    gnnrag ask "..." data.path=FOLDER      your own documents; the index follows their changes
    gnnrag ask "..." index.path=INDEX      an index as it is, for example after gnnrag index add

    gnnrag ask index.path=INDEX            no question: a conversation; roles.rewriter says what "he" or "it" is

Without any of these the sample corpus is asked. The index is built when it is missing; one of other data is replaced
only with index.replace=true. --explain shows the paths in the graph that a trained retriever (retriever=gfm) leaned on.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnrag.cli.answering import as_text, reason_lines
from gnnrag.cli.console import IndexProgress, load_corpus, note, refuse_flags, split_arguments, tell
from gnnrag.common.untrusted import well_formed
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.datasets.documents.report import write_report
from gnnrag.errors import GnnragError
from gnnrag.index.index import Index
from gnnrag.metrics.replies import by_role, remarks
from gnnrag.run.answers import citations
from gnnrag.run.pipeline import Pipeline, chunking, idle_settings, index_settings, open_index, refuse_sample
from gnnrag.session import Session
from gnnrag.types import Prediction, Query, Question

FLAGS = ("--json", "--explain")
_SETTING = re.compile(r"[\w.]+=")  # what a question does not begin with


def main(arguments: Sequence[str]) -> int:
    """Answer; returns 1 when the question failed."""
    as_json, explains = "--json" in arguments, "--explain" in arguments
    words = [a for a in arguments if a not in FLAGS]
    refuse_flags(words, FLAGS)  # the first word too: a misspelt flag is no question
    has_question = bool(words and words[0].strip() and not words[0].endswith(".yaml") and not _SETTING.match(words[0]))
    if not has_question and not (sys.stdin.isatty() and len(words) == len(arguments)):
        raise GnnragError('give the question first, in quotes: gnnrag ask "Who ...?"')
    source, overrides = split_arguments(words[1:] if has_question else words)
    config = load_config(EvaluateConfig, source, overrides)
    refuse_sample(config.index, is_given("data.path", source, overrides))
    index = find_index(config, is_alone=source is None and not is_given("data", None, overrides))
    pipeline = Pipeline(config, index)
    for remark in idle_settings(config, () if has_question else ("rewriter",)):
        note(remark)
    if explains and not pipeline.loop.retrievers[None].explains:
        raise GnnragError(f"--explain: retriever={config.retriever.name} has no paths to show; retriever=gfm has")
    if not has_question:
        return converse(pipeline, index)
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


def converse(pipeline: Pipeline, index: Index) -> int:
    """Answer what a person types, each with what was said before, until an empty line or the end of the input.

    The arrow keys bring back earlier questions where Python has readline.
    """
    with suppress(ImportError):
        import readline  # noqa: F401 - loading it is what gives `input` its history
    note("ask on, with he, she or it for what went before; an empty line ends")
    history: list[tuple[str, str]] = []
    with asyncio.Runner() as runner:
        try:
            while typed := _typed():
                session = Session(f"ask-{len(history)}", pipeline.loop.budget)
                text = runner.run(pipeline.standalone(typed, history, session))
                if text != typed:
                    note(f"asked: {text}")
                prediction, _ = runner.run(pipeline.loop.answer(Question(session.question_id, text), session))
                print(as_text(prediction, session, index))
                history.append((text, prediction.answer))
        finally:
            pipeline.loop.close()
            runner.run(pipeline.roles.close())
    return 0


def _typed() -> str:
    try:
        return well_formed(input("\n> ")).strip()
    except EOFError:
        return ""


def find_index(config: EvaluateConfig, is_alone: bool) -> Index:
    """Open the index of a config after bringing it up to date with its data; `is_alone`: as it is, if there is one."""
    path = config.index.path
    if is_alone and path and Path(path, "manifest.json").exists():
        return Index(path, index_settings(config))
    data = load_corpus(config.data.path, chunking(config.data), titles=config.data.titles)
    with IndexProgress() as progress:
        index = open_index(config, data.name, data.passages, progress)
    if data.report:
        write_report(index.root, data.report)
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
