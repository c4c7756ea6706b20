"""A knowledge base as a dataset folder, which appears whole or not at all, and how much is read out of it again.

A journal beside it lets the same command go on after a kill and end with the same bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
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
    write_folder,
    write_json,
    write_jsonl,
)
from gnnrag.common.records import interpreting, number, text
from gnnrag.config import ExtractConfig
from gnnrag.datasets import kb
from gnnrag.datasets.kb import Part, Triple, parts_of
from gnnrag.datasets.canonical import load_passages
from gnnrag.datasets.jsonl import Skips, read_json, read_jsonl
from gnnrag.datasets.kb import FILE, read_triples
from gnnrag.datasets.textualised import ENTITIES, MARKED, NODES, RELATIONS, SOURCE, read_nodes, text_digest
from gnnrag.errors import ArtefactError, BudgetError, ConfigError, DataError, LLMError
from gnnrag.extract.base import Extraction
from gnnrag.extract.offline import OfflineExtractor
from gnnrag.llm.cache import open_backend
from gnnrag.session import Session
from gnnrag.text.analyse import RULES, analyse
from gnnrag.textualise.prompted import (
    PromptedWriter,
    TextualiseConfig,
    check_textualise,
    chosen_entities,
    chosen_questions,
)
from gnnrag.textualise.templates import (
    Described,
    EntityTask,
    MarkupError,
    Mention,
    Related,
    RelationsTask,
    TemplateWriter,
    Writer,
    Written,
    batches,
    check_marked,
    read_marked,
    relations_said,
)
from gnnrag.types import Passage, Question

Progress = Callable[[str, int, int], None]  # stage, finished since the last call, all of the stage
STAGES = {"article": ("text",), "entity": ("type", "description"), "relations": ()}  # to the texts of a journal's row


def textualise(
    config: TextualiseConfig,
    on_progress: Progress = lambda stage, done, total: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> tuple[Path, dict[str, Any]]:
    """Write the folder `config.out`, or go on with writing it; return it with what its `SOURCE.json` holds.

    Raises ConfigError for bad settings or where `out` holds something else; DataError for a broken knowledge base or
    questions; ArtefactError for a damaged journal; LLMError where a call failed for good and BudgetError where
    `max_calls` is used up (what is finished is kept).
    """
    check_textualise(config)
    folder, out, skips = Path(config.path), Path(config.out), Skips()
    triples = kb.read_triples(folder / kb.FILE, skips)
    for reason, names in skips.frozen().items():
        on_note(f"{len(names)} x {reason}")
    parts = list(parts_of(triples, chosen_entities(triples, config.sample, config.seed)))
    kb.refuse_clashes(folder / kb.FILE, [(part.id, part.name) for part in parts])
    writer = make_writer(config, parts)
    splits = kb.splits(folder)
    files = (folder / kb.FILE, *dict(splits).values())
    made = {
        "inputs": {str(file.relative_to(folder)): file_digest(file) for file in files},
        "sample": {**vars(config.sample), "seed": config.seed},
        "writer": dict(writer.identity),
    }
    if source := _finished(out, made, config.licence, on_note):
        return out, source
    every = [Passage(part.id, part.name, part.name) for part in parts_of(triples)]
    questions = {name: kb.load_questions([file], every) for name, file in splits}  # broken ones are found now
    work = child(out.parent, f"{out.name}.work")
    with exclusive_lock(work / ".lock", str(work)):
        source = _finished(out, made, config.licence, on_note)  # another process may have ended in the meantime
        if source is None:
            _claim(work, digest(made))
            pieces, usage = _write_all(config, writer, work, triples, parts, on_progress)
            source = write_folder(out, lambda new: write_dataset(new, config, made, pieces, questions, usage))
    tidy(work, out.parent)
    return out, source


def make_writer(config: TextualiseConfig, parts: Sequence[Part]) -> Writer:
    """Return who writes. Raises ConfigError where a model is asked for and its settings do not fit."""
    if config.write.method == "template":
        return TemplateWriter(config.seed)
    kinds = sorted({kind for part in parts for kind in part.type.split("|") if kind})
    backend = open_backend("llm", config.llm.name, config.llm.settings, config.llm_cache)
    return PromptedWriter(backend, config.write, kinds, config.seed)


def _finished(out: Path, made: dict[str, Any], licence: str, on_note: Callable[[str], None]) -> dict[str, Any] | None:
    """Return `SOURCE.json` of this very conversion, updating the licence. Raises ConfigError for anything else."""
    if not out.exists():
        return None
    source = read_json(out / SOURCE) if (out / SOURCE).is_file() else {}
    if not isinstance(source, dict):
        raise DataError(out / SOURCE, "must hold an object")
    if digest(source.get("made")) != digest(made):
        raise ConfigError(f"out='{out}' exists and was not made from this with these settings; give another out")
    on_note(f"{out} is finished")
    if licence and source.get("licence") != licence:  # it changes no text, but the record must not hold an old one
        source["licence"] = licence
        write_json(out / SOURCE, source)
        on_note(f"{out / SOURCE} now says licence {licence!r}")
    return source


def _claim(work: Path, identity: str) -> None:
    """Refuse to go on with what other settings have begun."""
    refuse_links(work)
    mark = work / "made"
    if mark.is_file() and mark.read_bytes() != identity.encode():
        raise ConfigError(
            f"{work} holds the beginning of a conversion with other settings, another model or another knowledge base; "
            "give these again, delete that folder, or give another out"
        )
    write_atomic(mark, identity)


@dataclass(frozen=True)
class Pieces:
    """Results of the three stages: an article a part, descriptions by name, marked sentences by triple, flags."""

    parts: Sequence[Part]
    articles: Sequence[Written]
    entities: Mapping[str, Described]
    relations: Mapping[Triple, str]
    flags: Mapping[str, int]


def _write_all(
    config: TextualiseConfig,
    writer: Writer,
    folder: Path,
    triples: Sequence[Triple],
    parts: list[Part],
    on_progress: Progress,
) -> tuple[Pieces, dict[str, Any]]:
    work = _Work(Journal(folder / "journal.jsonl"), writer, config, on_progress)
    try:
        rows = work.stage("article", [(p.id, p) for p in parts], writer.article)
        articles = [Written(row["text"], tuple(row["flags"])) for row in rows]
        plain = [checked(part, article, folder)[0] for part, article in zip(parts, articles, strict=True)]
        first = {part.name: i for i, part in reversed(list(enumerate(parts)))}
        entities = [EntityTask(parts[i], plain[i]) for i in sorted(first.values())]
        rows = work.stage("entity", [(task.part.name, task) for task in entities], writer.entity)
        described = {
            task.part.name: Described(row["type"], row["description"], tuple(row["flags"]))
            for task, row in zip(entities, rows, strict=True)
        }
        tasks = list(_relation_tasks(parts, plain, config.write.batch))
        keys = [(digest([task.part.id, task.triples])[:24], task) for task in tasks]
        rows = work.stage("relations", keys, writer.relations)
        related = [Related(tuple(row["texts"]), tuple(row["flags"])) for row in rows]
        with work.interpreting():
            texts: dict[Triple, str] = {}
            for task, result in zip(tasks, related, strict=True):
                texts |= {t: s for t, s in zip(task.triples, result.texts, strict=True) if read_marked(s)}
        every: list[Written | Described | Related] = [*articles, *described.values(), *related]
        flags = dict(sorted(Counter(flag for row in every for flag in row.flags).items()))
        relations = {triple: texts[triple] for triple in triples if triple in texts}
        return Pieces(parts, articles, described, relations, flags), work.usage
    finally:
        work.journal.close()


def _relation_tasks(parts: Sequence[Part], plain: Sequence[str], size: int) -> Iterator[RelationsTask]:
    seen: set[Triple] = set()
    for part, article in zip(parts, plain, strict=True):
        new = [triple for triple in part.triples if triple not in seen]
        seen.update(new)
        yield from (RelationsTask(part, article, batch) for batch in batches(new, size))


class _Work:
    """The journal of one conversion, a row for each task that is finished: what is in it is not done again."""

    def __init__(self, journal: Journal, writer: Writer, config: TextualiseConfig, on_progress: Progress) -> None:
        self.journal, self.writer, self.config, self.on_progress = journal, writer, config, on_progress
        self.calls = 0  # of this process
        with self.interpreting():
            self.done = {(row["stage"], text(row["key"])): _checked_row(row) for row in journal.rows}

    def interpreting(self) -> AbstractContextManager[None]:
        return interpreting(self.journal.path, f"delete {self.journal.path.parent} and run the command again")

    @property
    def usage(self) -> dict[str, dict[str, float]]:
        """Calls, tokens, failures and cost of each stage; replies out of the cache count like all others."""
        spent = {stage: Counter[str]() for stage in STAGES}
        for (stage, _), row in self.done.items():
            spent[stage].update(row["usage"])
        # Rounded: the order of the journal, in which costs are added up, depends on timing.
        return {stage: {k: round(v, 4) for k, v in sorted(counts.items())} for stage, counts in spent.items() if counts}

    def stage(
        self, stage: str, tasks: Sequence[tuple[str, Any]], write: Callable[[Any, Session], Awaitable[Any]]
    ) -> list[dict[str, Any]]:
        todo = [(key, task) for key, task in tasks if (stage, key) not in self.done]
        self.on_progress(stage, len(tasks) - len(todo), len(tasks))
        if todo:
            asyncio.run(self._run(stage, todo, write, lambda: self.on_progress(stage, 1, len(tasks))))
        return [self.done[stage, key] for key, _ in tasks]

    async def _run(
        self,
        stage: str,
        todo: Sequence[tuple[str, Any]],
        write: Callable[[Any, Session], Awaitable[Any]],
        on_done: Callable[[], None],
    ) -> None:
        """Work off tasks, a bounded number at once; the first failure ends it, with what is finished in the journal."""
        waiting, most = iter(todo), self.config.max_calls

        async def work() -> None:
            for key, task in waiting:
                if most is not None and self.calls >= most:
                    raise BudgetError(f"max_calls={most} is used up; the same command goes on from here")
                session = Session(key)
                result = await write(task, session)
                if problem := session.failed_calls():
                    raise LLMError(f"{stage} {key!r}: {problem}")
                spent: Counter[str] = Counter()
                for counts in session.by_role.values():
                    spent.update(counts)
                self.calls += spent["calls"]
                spent["cost"] = round(session.cost, 8)  # type: ignore[assignment]
                usage = {name: count for name, count in sorted(spent.items()) if count}
                row = {"stage": stage, "key": key, **asdict(result), "usage": usage}
                self.journal.append(row)
                self.done[stage, key] = row
                on_done()

        workers = [asyncio.ensure_future(work()) for _ in range(min(self.config.concurrency, len(todo)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self.writer.close()


def _checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the journal. Raises ValueError, KeyError or the like where it is none that is written here."""
    texts = row["texts"] if row["stage"] == "relations" else [row[name] for name in STAGES[row["stage"]]]
    if not all(map(text, [*texts, *row["flags"]])):
        raise ValueError(f"an empty text of {row['key']!r:.80}")
    for value in row["usage"].values():
        number(value)
    return row


def write_dataset(
    folder: Path,
    config: TextualiseConfig,
    made: Mapping[str, Any],
    pieces: Pieces,
    questions: Mapping[str, Sequence[Question]],
    usage: Mapping[str, Any],
) -> dict[str, Any]:
    """Write all files into an empty folder; return what `SOURCE.json` holds. Raises ArtefactError for missing marks."""
    passages, nodes = [], []
    for part, article in zip(pieces.parts, pieces.articles, strict=True):
        plain, mentions = checked(part, article, Path(f"{config.out}.work"))
        named = list(dict.fromkeys(mention.name for mention in mentions if mention.kind == "neighbour"))
        passages.append(Passage(part.id, part.name, plain))
        row = {"id": part.id, "entity": part.name, "mentions": named, "text": text_digest(plain)}
        nodes.append(row | {"flags": article.flags})
    asked, counts = _question_rows(config, questions, passages)
    rows: dict[str, list[Any]] = {
        "corpus.jsonl": [{"id": p.id, "title": p.title, "text": p.text} for p in passages],
        NODES: nodes,
        MARKED: [{"id": p.id, "text": a.text} for p, a in zip(pieces.parts, pieces.articles, strict=True)],
        ENTITIES: [{"name": name, **asdict(described)} for name, described in pieces.entities.items()],
        RELATIONS: [
            {"head": h, "relation": r, "tail": t, "description": read_marked(marked)[0], "marked": marked}
            for (h, r, t), marked in pieces.relations.items()
        ],
    }
    for name, values in (rows | asked).items():
        write_jsonl(folder / name, values)
    write_atomic(folder / kb.FILE, "".join(f"{h}|{r}|{t}\n" for h, r, t in pieces.relations))
    source = {
        "origin": "a knowledge base turned into text by gnnrag textualise (three stages, as in DotRAG)",
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
    """Return an article without markup, and its mentions. Raises ArtefactError for broken or missing marks."""
    try:
        missing = check_marked(article.text, part.name, part.neighbours)
        problem = f"does not mark {', '.join(missing)[:200]}" if missing else ""
    except MarkupError as error:
        problem = f"has broken markup: {error}"
    if problem:
        raise ArtefactError(f"article {part.id!r} {problem}; delete {work} and run the command again")
    return read_marked(article.text)


def _question_rows(
    config: TextualiseConfig, questions: Mapping[str, Sequence[Question]], passages: Sequence[Passage]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, int]]]:
    """Return the rows of the question files, one for each split and one for its parts together, and their counts."""
    entities, ids = frozenset(p.title for p in passages), frozenset(p.id for p in passages)
    rows: dict[str, list[dict[str, Any]]] = {}
    counts = {}
    for name, asked in questions.items():
        kept = chosen_questions(asked, entities, ids, config.sample.questions, config.seed)
        counts[name] = {"kept": len(kept), "of": len(asked)}
        written = [
            {"id": q.id, "question": q.text, "answers": q.answers, "type": q.type, "gold": q.gold, **q.extra}
            for q in kept
        ]
        for split in dict.fromkeys((name, name.rpartition(".")[2])):
            rows.setdefault(f"questions.{split}.jsonl", []).extend(written)
    return {name: values for name, values in rows.items() if values}, counts


# ---------------------------------------------------------------------------------------------------- back to triples
def round_trip(parts: Sequence[Part], passages: Sequence[Passage], language: str = RULES) -> dict[str, Any]:
    """Extract triples from articles (without markup), and hold them against those that each part states.

    Relations of the offline extractor are sentences. A triple is recovered where one joins its ends, spelt exactly, and
    says its relation in its direction and no other (`relations_said`); `both_ends` where the ends are joined at all.

    Returns `stated`, `recovered`, `both_ends` by occurrence; `triples`, `triples_recovered`: distinct ones; `read`,
    `false`: relations that were read, and those not stated; `by_relation`: the first three by relation and side.
    """
    extractions = OfflineExtractor(ExtractConfig()).extract(passages, analyse(passages, language))
    counts: Counter[str] = Counter()
    sides: dict[str, Counter[str]] = {}
    stated: set[Triple] = set()
    recovered: set[Triple] = set()
    for part, extraction in zip(parts, extractions, strict=True):
        assert extraction is not None
        read, joined = read_back(part.name, extraction)
        counts["read"] += len(read)
        counts["false"] += len(read - set(part.triples))
        for triple in part.triples:
            head, relation, tail = triple
            row = sides.setdefault(f"{relation}, told of its {'head' if head == part.name else 'tail'}", Counter())
            row["stated"] += 1
            row["recovered"] += triple in read
            row["both_ends"] += (tail if head == part.name else head) in joined
        stated |= set(part.triples)
        recovered |= read & set(part.triples)
    for name in ("stated", "recovered", "both_ends"):
        counts[name] = sum(row[name] for row in sides.values())
    distinct = {"triples": len(stated), "triples_recovered": len(recovered)}
    return {**dict(counts), **distinct, "by_relation": {name: dict(row) for name, row in sorted(sides.items())}}


def read_back(topic: str, extraction: Extraction) -> tuple[set[Triple], set[str]]:
    """Return the triples that the sentences of an extraction say, and all that it joins with the topic."""
    read: set[Triple] = set()
    joined: set[str] = set()
    for head, sentence, tail in extraction.triples:
        if head != topic:
            continue
        joined.add(tail)
        said = relations_said(sentence, topic, tail)
        if len(said) == 1:
            relation, forwards = said.pop()
            read.add((topic, relation, tail) if forwards else (tail, relation, topic))
    return read, joined


def check_folder(folder: Path, language: str = RULES) -> dict[str, Any]:
    """Check a folder of `textualise` from its files alone. Raises DataError where a file or its markup is broken.

    Returns `round_trip`'s figures with `articles`, and `uncovered`: how many leave a neighbour out.
    """
    nodes = read_nodes(folder / NODES)
    parts = {part.id: part for part in parts_of(read_triples(folder / FILE), {row.entity for row in nodes.values()})}
    passages = load_passages(folder / "corpus.jsonl")
    marked = {row["id"]: row["text"] for _, row in read_jsonl(folder / MARKED)}
    uncovered = 0
    for passage in passages:
        try:
            part = parts[passage.id]
            uncovered += bool(check_marked(marked[passage.id], part.name, part.neighbours))
            if read_marked(marked[passage.id])[0] != passage.text:
                raise MarkupError("is not the corpus's text when its markup is stripped")
        except (MarkupError, KeyError) as error:
            raise DataError(folder / MARKED, f"article {passage.id!r}: {error}") from error
    report = round_trip([parts[p.id] for p in passages], passages, language)
    return report | {"articles": len(passages), "uncovered": uncovered}
