"""`gnnrag ask` and `gnnrag serve`: one question, a conversation, or a server."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from shutil import get_terminal_size
from textwrap import fill, shorten
from typing import Annotated

import typer
import yaml  # type: ignore[import-untyped]

from gnnrag.api import Index
from gnnrag.cli.console import AsJson, load_corpus, note, progress_bar, show_remarks, split
from gnnrag.cli.llm import with_chosen_model
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.datasets.base import chunking
from gnnrag.datasets.folder import write_report
from gnnrag.errors import GnnragError
from gnnrag.index import index as stored
from gnnrag.index.filters import EXAMPLE
from gnnrag.index.index import closure, exists
from gnnrag.io import well_formed
from gnnrag.metrics.replies import by_role, remarks
from gnnrag.run.answers import Answer, where
from gnnrag.run.evaluate import needed_stages, open_index, require_index_or_data
from gnnrag.text.sentences import excerpt

PAD = " " * 6
HELP = """\
/sources  the passages behind the last answer
/more     how it was found: searches, their passages, time
/quit     ends the conversation, as Ctrl-D does"""
ORIGINS = {"question": "the question", "fast": "fast thought", "slow": "slow thought"}


def ask(
    settings: Annotated[list[str], typer.Argument(metavar="[QUESTION] [CONFIG] [key=value ...]", default_factory=list)],
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="SQL", help=f"read only passages that pass: {EXAMPLE}")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Ask a question of an index: the answer, the evidence, and how it was found.

    \b
    gnnrag ask "Who directed ...?" data.path=FOLDER      your own documents; the index follows their changes
    gnnrag ask "Who directed ...?" index.path=INDEX      an index as it is
    gnnrag ask index.path=INDEX                          no question: a conversation; /help in it

    Without any of these the sample corpus is asked.
    """
    first = well_formed(settings[0]) if settings else ""
    question = first.strip() if first and not first.endswith(".yaml") and not re.match(r"[\w.]+=", first) else ""
    if not question and not (sys.stdin.isatty() and not as_json):
        raise GnnragError('give the question first, in quotes: gnnrag ask "Who ...?" (a conversation needs a terminal)')
    source, overrides = split(settings[1:] if question else settings)
    overrides += [f"filter={json.dumps(filter_)}"] if filter_ is not None else []
    overrides = with_chosen_model(source, overrides)
    config = load_config(EvaluateConfig, source, overrides)
    require_index_or_data(config.index, is_given("data.path", source, overrides))
    is_alone, path = source is None and not is_given("data", None, overrides), config.index.path
    # An index that is named without data keeps its passages as they are.
    if is_alone and path and exists(path):
        place = str(path)
    else:  # built of the config's data, or it follows their changes
        data = load_corpus(config.data.path, chunking(config.data), titles=config.data.titles)
        with progress_bar() as advance:
            built = open_index([config], data.name, data.passages, advance)
        if data.report:
            write_report(built.root, data.report)
        place = built.place
    given = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in overrides)}
    with Index(place, config=source, settings=given) as index:
        _make_what_it_lacks(index.stored, config)
        if not question:
            _converse(index)
            return 0
        answer = index.ask(question)
        if as_json:
            shown = {**answer.to_dict(), "ranking": answer.ranking[:20]}
            print(json.dumps(shown, ensure_ascii=False, indent=2))
        else:
            print(answer_text(answer, index))
    show_remarks(remarks(by_role([answer]), config.run.warn_bad_replies, None))
    return 0 if answer.error is None else 1


def _make_what_it_lacks(index: stored.Index, config: EvaluateConfig) -> None:
    lacking = [name for name in closure(needed_stages(config), index.config) if not index.has(name)]
    if lacking:
        who = f"method={config.method.name} on retriever={config.retriever.name}"
        note(f"the index lacks {', '.join(lacking)} for {who}: made now, once")
    with progress_bar() as index.progress:
        for name in lacking:
            index.folder(name)


def _converse(index: Index) -> None:
    """Answer what a person types, each with what was said before, until /quit or the end of the input."""
    with suppress(ImportError):
        import readline  # noqa: F401 - loading it is what gives `input` its history
    note("ask on, with he, she or it for what went before; /help lists the commands")
    answers: list[Answer] = []
    with suppress(EOFError):
        while (typed := well_formed(input("\n> ").strip())) != "/quit":
            if typed.startswith("/"):
                print(_command(typed, answers, index))
            elif typed:
                answers.append(index.ask(typed, history=answers))
                if answers[-1].question != typed:
                    note(f"asked: {answers[-1].question}")
                print("\n".join(_brief(answers[-1])))


def _command(typed: str, answers: Sequence[Answer], index: Index) -> str:
    if typed not in ("/sources", "/more"):
        return HELP if typed == "/help" else f"{typed} is no command\n{HELP}"
    if not answers:
        return "nothing has been asked yet"
    return "\n".join(_evidence_lines(answers[-1], index)) if typed == "/sources" else answer_text(answers[-1], index)


def _headed(answer: Answer, heading: str = "") -> str:
    """Return the text of an answer behind a heading; a quotation, which may not answer, is always headed `Nearest`."""
    return f"{answer.head or heading}{answer.marked or answer}"


def _brief(answer: Answer) -> Iterator[str]:
    """Yield an answer, and a line for each of its sources; without an answer, for the passages nearest to it."""
    yield _headed(answer)
    width = get_terminal_size().columns
    first = sorted({c.number: c for c in reversed(answer.citations)}.values(), key=lambda c: c.number)
    for citation in first:
        line = f"[{citation.number}] {citation.title or citation.place} ({citation.place}): {citation.sentence}"
        yield shorten(line, width, placeholder=" ...")
    for passage in answer.context[:3] if not answer.text and not answer.error else ():
        yield shorten(f"near: {passage.title} ({where(passage)}): {passage.text}", width, placeholder=" ...")


def answer_text(answer: Answer, index: Index) -> str:
    if answer.error:
        return str(answer)
    sure = "" if answer.confidence is None or not answer.text else f" (confidence {answer.confidence:.2f})"
    lines = [_headed(answer, "Answer: ") + sure, ""]
    queries = []
    for event in answer.trace:
        if event["event"] == "chain" and event["text"]:
            chain = re.sub(r"\[(\d+)\]", r"(no. \1 found)", event["text"])
            lines += ["Chain", *(f"  {line}" for line in chain.splitlines()), ""]
        elif event["event"] == "sufficiency":
            outcome = "suffices" if event["enough"] else "does not suffice: on to the multi_hop route"
            lines.append(f"Flat evidence {outcome} (confidence {event['value']:.2f})\n")
        elif event["event"] == "route":
            shares = ", ".join(f"{name} {p:.2f}" for name, p in event["probabilities"].items())
            lines.append(f"Route: {event['route']} ({shares})\n")
        elif event["event"] == "query":
            ids = event["ranking"]["ids"][:3]  # of passages, or of graph hits, which are named by their ids
            top = "; ".join(index.lookup([i])[0].title if i in index.stored.position else i for i in ids)
            to = f" to {event['retriever']}" if event["retriever"] else ""
            origin = ORIGINS.get(event["origin"], event["origin"])
            queries.append(f"  round {event['round']}, {origin}{to}: {event['text']}")
            queries.append(f"      found: {top}")
    usage = answer.usage
    cost = f"retrievals: {usage['retriever_calls']}, LLM calls: {usage['llm_calls']}, {answer.seconds:.2f} s"
    return "\n".join([*lines, "Queries", *queries, "", *_evidence_lines(answer, index), "", cost])


def _evidence_lines(answer: Answer, index: Index) -> Iterator[str]:
    first_query = next((e["text"] for e in answer.trace if e["event"] == "query"), "")
    numbers = {citation.passage: citation.number for citation in sorted(answer.citations, key=lambda c: c.number)}
    yield "Evidence"
    for passage in dict.fromkeys([*index.lookup(numbers), *answer.context]):
        quoted = " ".join(c.sentence for c in answer.citations if c.passage == passage.id)
        yield f" {f'[{numbers[passage.id]}]' if quoted else '   '} {passage.title} ({where(passage)})"
        if text := excerpt(passage.text, quoted or first_query):
            yield fill(text, 110, initial_indent=PAD, subsequent_indent=PAD)
    if answer.citations:
        yield "\nOnly the passages with a number were used for the answer."
    if unsupported := [c for c in answer.citations if not c.supported]:
        yield "\nNot borne out by the passage that it names:"
        yield from (f"  - {c.sentence} ({c.place})" for c in unsupported)


def serve(
    settings: Annotated[list[str], typer.Argument(metavar="INDEX [INDEX ...] [key=value ...]")],
    mcp: Annotated[bool, typer.Option("--mcp", help="no server: tools of an agent, on stdin and stdout")] = False,
) -> None:
    """Serve indexes: a page to ask in, an API that OpenAI's clients speak, REST, and MCP at /mcp.

    \b
    gnnrag serve indexes/papers                              the page: http://127.0.0.1:8765
    gnnrag serve indexes/a indexes/b serve.port=9000 method=bdtr retriever=chg
    gnnrag serve indexes/papers serve.host=0.0.0.0 serve.tokens=tokens.yaml serve.hosts=[papers.example]

    Settings of the server begin with serve., the others are those of gnnrag ask (docs/documents.md).
    """
    if missing := [name for name in ("fastapi", "mcp", "uvicorn") if find_spec(name) is None]:
        raise GnnragError(f"gnnrag serve needs {', '.join(missing)}: pip install 'gnnrag[serve]'")
    from gnnrag.serve.app import run
    from gnnrag.serve.settings import read_service

    words, dots = [s for s in settings if "=" not in s], [s for s in settings if "=" in s]
    file = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    service = read_service([*words, *with_chosen_model(file, dots)])
    if mcp:
        from gnnrag.serve.tools import serve_stdio

        asyncio.run(serve_stdio(service))
        return
    for name, path in service.indexes.items():
        if not exists(path):
            note(f"{path} is no index yet: {name} is made of the first documents that are added")
    run(service, lambda address: note(f"serving {', '.join(service.indexes)} at {address} (Ctrl-C ends)"))
