"""Turns a knowledge base into a dataset folder: what `inference/textualise.py` does, importable and testable.

Every article, description and batch of relations that is finished is in a journal beside the folder; the same command
goes on from there after a kill and ends with the same bytes. The folder appears whole, or not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.common.files import (
    Journal,
    child,
    digest,
    exclusive_lock,
    file_digest,
    refuse_links,
    tidy,
    write_atomic,
    write_json,
    write_jsonl,
)
from gnnrag.common.files import write_folder as write_whole
from gnnrag.common.records import interpreting, number, text
from gnnrag.datasets import kb
from gnnrag.datasets.articles import Part, Triple, parts_of
from gnnrag.datasets.jsonl import Skips, read_json
from gnnrag.datasets.textualised import ENTITIES, MARKED, NODES, RELATIONS, SOURCE, text_digest
from gnnrag.errors import ArtefactError, BudgetError, ConfigError, DataError, LLMError
from gnnrag.llm.opening import open_backend
from gnnrag.session import Session
from gnnrag.textualise.config import TextualiseConfig, check_textualise, chosen_entities, chosen_questions
from gnnrag.textualise.prompted import PromptedWriter
from gnnrag.textualise.templates import TemplateWriter
from gnnrag.textualise.writing import (
    Described,
    EntityTask,
    MarkupError,
    Mention,
    Related,
    RelationsTask,
    Writer,
    Written,
    batches,
    check_marked,
    read_marked,
)
from gnnrag.types import Passage, Question

Progress = Callable[[str, int, int], None]  # stage, finished since the last call, all of the stage
STAGES = ("article", "entity", "relations")
_TEXTS = {"article": ("text",), "entity": ("type", "description")}  # of a row of the journal


@dataclass
class _Work:
    """The journal of one conversion, and what it has spent."""

    journal: Journal
    writer: Writer
    config: TextualiseConfig
    done: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    calls: int = 0  # of this process

    def __post_init__(self) -> None:
        with self.interpreting():
            self.done = {(row["stage"], text(row["key"])): _checked(row) for row in self.journal.rows}

    def interpreting(self) -> AbstractContextManager[None]:
        """See `records.interpreting`."""
        return interpreting(self.journal.path, f"delete {self.journal.path.parent} and run the command again")

    @property
    def usage(self) -> dict[str, dict[str, float]]:
        """Calls, tokens, failures and cost of each stage; replies out of the cache count like all others."""
        spent = {stage: Counter[str]() for stage in STAGES}
        for (stage, _), row in self.done.items():
            spent[stage].update(row["usage"])
        # Rounded: the order of the journal, in which costs are added up, depends on timing.
        return {stage: {k: round(v, 4) for k, v in sorted(counts.items())} for stage, counts in spent.items() if counts}


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the journal. Raises ValueError, KeyError or the like where it is none that is written here."""
    texts = row["texts"] if row["stage"] == "relations" else [row[name] for name in _TEXTS[row["stage"]]]
    if not all(map(text, [*texts, *row["flags"]])):
        raise ValueError(f"an empty text of {row['key']!r:.80}")
    for value in row["usage"].values():
        number(value)
    return row


def textualise(
    config: TextualiseConfig,
    on_progress: Progress = lambda stage, done, total: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> tuple[Path, dict[str, Any]]:
    """Write the folder `config.out`, or go on with writing it.

    Returns:
        The folder, and what its `SOURCE.json` holds.

    Raises:
        ConfigError: a setting that cannot be, or `out` holds something else.
        DataError: the knowledge base or its questions are broken.
        ArtefactError: the journal was edited or is damaged.
        LLMError: a call failed for good; what is finished is kept.
        BudgetError: `max_calls` is used up; what is finished is kept.
    """
    check_textualise(config)
    folder, out, skips = Path(config.path), Path(config.out), Skips()
    triples = kb.read_triples(folder / kb.FILE, skips)
    for reason, names in skips.frozen().items():
        on_note(f"{len(names)} x {reason}")
    entities = chosen_entities(triples, config.sample, config.seed)
    parts = list(parts_of(triples, entities))
    kb.refuse_clashes(folder / kb.FILE, [(part.id, part.name) for part in parts])
    writer = make_writer(config, parts)
    splits = kb.splits(folder)
    files = (folder / kb.FILE, *dict(splits).values())
    made = {
        "inputs": {str(file.relative_to(folder)): file_digest(file) for file in files},
        "sample": {**vars(config.sample), "seed": config.seed},
        "writer": dict(writer.identity),
    }
    if there := _finished(out, made, config.licence, on_note):
        return out, there
    _refuse_taken(out)
    every = [Passage(part.id, part.name, part.name) for part in parts_of(triples)]
    questions = {name: kb.load_questions([file], every) for name, file in splits}  # broken ones are found now
    work = child(out.parent, f"{out.name}.work")
    with exclusive_lock(work / ".lock", str(work)):
        if there := _finished(out, made, config.licence, on_note):  # another process ended in the meantime
            tidy(work, out.parent)
            return out, there
        _refuse_taken(out)
        _same_work(work, digest(made))
        pieces, usage = _write_all(config, writer, work, triples, parts, on_progress)
        source = write_whole(out, lambda new: write_folder(new, config, made, pieces, questions, usage))
    tidy(work, out.parent)
    return out, source


def _refuse_taken(out: Path) -> None:
    if out.exists():
        raise ConfigError(f"out='{out}' exists and was not made from this with these settings; give another out")


def _finished(out: Path, made: dict[str, Any], licence: str, on_note: Callable[[str], None]) -> dict[str, Any] | None:
    """Return what `SOURCE.json` holds where this very conversion is there already; another licence is written down."""
    if not (out / SOURCE).is_file():
        return None
    there = read_source(out)
    if digest(there.get("made")) != digest(made):
        return None
    on_note(f"{out} is finished")
    if licence and there.get("licence") != licence:  # it changes no text, but the record must not hold an old one
        there = update_licence(out, there, licence)
        on_note(f"{out / SOURCE} now says licence {licence!r}")
    return there


def make_writer(config: TextualiseConfig, parts: Sequence[Part]) -> Writer:
    """Return who writes. Raises ConfigError where a model is asked for and its settings do not fit."""
    if config.write.method == "template":
        return TemplateWriter(config.seed)
    kinds = sorted({kind for part in parts for kind in part.type.split("|") if kind})
    backend = open_backend("llm", config.llm.name, config.llm.settings, config.llm_cache)
    return PromptedWriter(backend, config.write, kinds, config.seed)


def _same_work(work: Path, identity: str) -> None:
    """Refuse to go on with what other settings have begun."""
    refuse_links(work)
    mark = work / "made"
    if mark.is_file() and mark.read_bytes() != identity.encode():
        raise ConfigError(
            f"{work} holds the beginning of a conversion with other settings, another model or another knowledge base; "
            "give these again, delete that folder, or give another out"
        )
    write_atomic(mark, identity)


def _write_all(
    config: TextualiseConfig, writer: Writer, folder: Path, triples: Sequence[Triple], parts: list[Part], told: Progress
) -> tuple[Pieces, dict[str, Any]]:
    """Do the three stages, each over all parts."""
    work = _Work(Journal(folder / "journal.jsonl"), writer, config)
    try:
        rows = _run(work, "article", [(p.id, p) for p in parts], writer.article, told)
        articles = [Written(row["text"], tuple(row["flags"])) for row in rows]
        plain = [checked(part, article, folder)[0] for part, article in zip(parts, articles, strict=True)]
        first = {part.name: i for i, part in reversed(list(enumerate(parts)))}
        entities = [EntityTask(parts[i], plain[i]) for i in sorted(first.values())]
        rows = _run(work, "entity", [(task.part.name, task) for task in entities], writer.entity, told)
        described = {
            task.part.name: Described(row["type"], row["description"], tuple(row["flags"]))
            for task, row in zip(entities, rows, strict=True)
        }
        tasks = list(_relation_tasks(parts, plain, config.write.batch))
        keys = [(digest([task.part.id, task.triples])[:24], task) for task in tasks]
        rows = _run(work, "relations", keys, writer.relations, told)
        related = [Related(tuple(row["texts"]), tuple(row["flags"])) for row in rows]
        with work.interpreting():
            texts: dict[Triple, str] = {}
            for task, made in zip(tasks, related, strict=True):
                texts |= {t: s for t, s in zip(task.triples, made.texts, strict=True) if read_marked(s)}
        every: list[Written | Described | Related] = [*articles, *described.values(), *related]
        flags = Counter(flag for row in every for flag in row.flags)
        order = [triple for triple in triples if triple in texts]
        return Pieces(parts, articles, described, {t: texts[t] for t in order}, dict(sorted(flags.items()))), work.usage
    finally:
        work.journal.close()


def _relation_tasks(parts: Sequence[Part], plain: Sequence[str], size: int) -> Iterator[RelationsTask]:
    """Yield each triple once, with the first article that states it."""
    seen: set[Triple] = set()
    for part, article in zip(parts, plain, strict=True):
        new = [triple for triple in part.triples if triple not in seen]
        seen.update(new)
        yield from (RelationsTask(part, article, batch) for batch in batches(new, size))


def _run(
    work: _Work,
    stage: str,
    tasks: Sequence[tuple[str, Any]],
    do: Callable[[Any, Session], Awaitable[Any]],
    told: Progress,
) -> list[dict[str, Any]]:
    """Return the rows of a stage in the order of its tasks; what the journal has is not done again."""
    todo = [(key, task) for key, task in tasks if (stage, key) not in work.done]
    told(stage, len(tasks) - len(todo), len(tasks))
    if todo:
        asyncio.run(_run_missing(work, stage, todo, do, lambda: told(stage, 1, len(tasks))))
    return [work.done[stage, key] for key, _ in tasks]


async def _run_missing(
    work: _Work,
    stage: str,
    todo: Sequence[tuple[str, Any]],
    do: Callable[[Any, Session], Awaitable[Any]],
    on_done: Callable[[], None],
) -> None:
    """Work off tasks, a bounded number at once; the first failure ends it, with what is finished in the journal."""
    waiting = iter(todo)

    async def worker() -> None:
        for key, task in waiting:
            if work.config.max_calls is not None and work.calls >= work.config.max_calls:
                raise BudgetError(f"max_calls={work.config.max_calls} is used up; the same command goes on from here")
            session = Session(key)
            result = await do(task, session)
            if problem := session.failed_calls():
                raise LLMError(f"{stage} {key!r}: {problem}")
            spent: Counter[str] = Counter()
            for counts in session.by_role.values():
                spent.update(counts)
            work.calls += spent["calls"]
            spent["cost"] = round(session.cost, 8)  # type: ignore[assignment]
            row = {
                "stage": stage,
                "key": key,
                **result.to_json(),
                "usage": {k: v for k, v in sorted(spent.items()) if v},
            }
            work.journal.append(row)
            work.done[stage, key] = row
            on_done()

    workers = [asyncio.ensure_future(worker()) for _ in range(min(work.config.concurrency, len(todo)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await work.writer.close()


# ------------------------------------------------------------
# The dataset folder that a conversion leaves: corpus, side table, descriptions, questions, and where it is from.
@dataclass(frozen=True)
class Pieces:
    """All that the three stages gave.

    Attributes:
        parts: what the articles tell.
        articles: one for each part.
        entities: name to description.
        relations: triple to its marked sentence, in the order of the knowledge base.
        flags: how often something did not come about as it should.
    """

    parts: Sequence[Part]
    articles: Sequence[Written]
    entities: Mapping[str, Described]
    relations: Mapping[Triple, str]
    flags: Mapping[str, int]


def write_folder(
    folder: Path,
    config: TextualiseConfig,
    made: Mapping[str, Any],
    pieces: Pieces,
    questions: Mapping[str, Sequence[Question]],
    usage: Mapping[str, Any],
) -> dict[str, Any]:
    """Write all files into an empty folder, and return what `SOURCE.json` holds.

    Raises:
        ArtefactError: an article does not mark all that its part tells; a journal that was edited is one way there.
    """
    passages, nodes = [], []
    for part, article in zip(pieces.parts, pieces.articles, strict=True):
        text, mentions = checked(part, article, Path(f"{config.out}.work"))
        named = list(dict.fromkeys(mention.name for mention in mentions if mention.kind == "neighbour"))
        passages.append(Passage(part.id, part.name, text))
        nodes.append(
            {"id": part.id, "entity": part.name, "mentions": named, "text": text_digest(text), "flags": article.flags}
        )
    rows: dict[str, list[Any]] = {
        "corpus.jsonl": [{"id": p.id, "title": p.title, "text": p.text} for p in passages],
        NODES: nodes,
    }
    rows |= _descriptions(pieces)
    asked, counts = _questions(config, questions, passages)
    for name, values in (rows | asked).items():
        write_jsonl(folder / name, values)
    write_atomic(folder / kb.FILE, "".join(f"{h}|{r}|{t}\n" for h, r, t in pieces.relations))
    source = {
        "origin": "a knowledge base turned into text by inference/textualise.py (three stages, as in DotRAG)",
        "licence": config.licence or "that of the knowledge base, see data/README.md; redistribute on its terms only",
        "made": dict(made),
        "counts": {
            "entities": len(pieces.entities), "articles": len(passages), "triples": len(pieces.relations),
            "flagged_articles": sum(bool(article.flags) for article in pieces.articles),
            "flags": dict(pieces.flags), "questions": counts,
        },
        "usage": dict(usage),
        "files": {path.name: file_digest(path) for path in sorted(folder.iterdir())},
    }  # fmt: skip
    write_json(folder / SOURCE, source)
    return source


def checked(part: Part, article: Written, work: Path) -> tuple[str, list[Mention]]:
    """Return an article without its markup, and its mentions; holds its writer to what `Writer` promises.

    Raises:
        ArtefactError: broken markup, or a neighbour that is not marked; `work` is the folder that holds the article.
    """
    try:
        left = check_marked(article.text, part.name, part.neighbours)
        problem = f"does not mark {', '.join(left)[:200]}" if left else ""
    except MarkupError as error:
        problem = f"has broken markup: {error}"
    if problem:
        raise ArtefactError(f"article {part.id!r} {problem}; delete {work} and run the command again")
    return read_marked(article.text)


def _descriptions(pieces: Pieces) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of what was written besides the plain articles."""
    return {
        MARKED: [{"id": p.id, "text": a.text} for p, a in zip(pieces.parts, pieces.articles, strict=True)],
        ENTITIES: [
            {"name": name, "type": d.type, "description": d.description, "flags": d.flags}
            for name, d in pieces.entities.items()
        ],
        RELATIONS: [
            {"head": h, "relation": r, "tail": t, "description": read_marked(text)[0], "marked": text}
            for (h, r, t), text in pieces.relations.items()
        ],
    }


def read_source(folder: Path) -> dict[str, Any]:
    """Return what `SOURCE.json` of a folder holds. Raises DataError where that is no object."""
    found = read_json(folder / SOURCE)
    if not isinstance(found, dict):
        raise DataError(folder / SOURCE, "must hold an object")
    return found


def update_licence(folder: Path, source: Mapping[str, Any], licence: str) -> dict[str, Any]:
    """Write another licence into `SOURCE.json`, and return what it holds then."""
    updated = dict(source) | {"licence": licence}
    write_json(folder / SOURCE, updated)
    return updated


def _questions(
    config: TextualiseConfig, questions: Mapping[str, Sequence[Question]], passages: Sequence[Passage]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, int]]]:
    """Return the rows of the question files, one for each split and one for its parts together, and their counts."""
    entities, ids = frozenset(p.title for p in passages), frozenset(p.id for p in passages)
    rows: dict[str, list[dict[str, Any]]] = {}
    counts = {}
    for name, found in questions.items():
        kept = chosen_questions(found, entities, ids, config.sample.questions, config.seed)
        counts[name] = {"kept": len(kept), "of": len(found)}
        for split in dict.fromkeys((name, name.rpartition(".")[2])):
            rows.setdefault(f"questions.{split}.jsonl", []).extend(_row(question) for question in kept)
    return {name: values for name, values in rows.items() if values}, counts


def _row(question: Question) -> dict[str, Any]:
    q = question
    return {"id": q.id, "question": q.text, "answers": q.answers, "type": q.type, "gold": q.gold, **q.extra}
