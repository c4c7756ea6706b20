"""A knowledge base: a folder with `kb.txt` (a triple a line, `head|relation|tail`) and questions about its entities.

Passages are articles made of templates (`articles.py`). Questions lie in `<part>.questions.<split>.jsonl` (MetaQA: by
hops), in `questions.<split>.jsonl`, or where the MetaQA release has them (`metaqa.py`); answers are entities.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from gnnrag.datasets import canonical, metaqa
from gnnrag.datasets.articles import Triple, parts_of, write_articles
from gnnrag.datasets.jsonl import Skips, read_lines
from gnnrag.errors import DataError, nearest
from gnnrag.types import Passage, Question

FILE = "kb.txt"


def read_triples(path: Path, skips: Skips | None = None) -> list[Triple]:
    """Return distinct triples in file order, names as written; DataError: unreadable, no three parts, no triple."""
    triples: dict[Triple, int] = {}
    for number, line in read_lines(path):
        parts = line.split("|")
        if len(parts) != 3 or not all(part.strip() for part in parts):
            problem = f"is {line[:80]!r}; each line must be head|relation|tail, three parts that are not empty"
            raise DataError(path, problem, number)
        first = triples.setdefault((parts[0], parts[1], parts[2]), number)
        if first != number and skips is not None:
            skips.add("the line repeats an earlier triple", f"line {number}")
    if not triples:
        raise DataError(path, "holds no triples; each line must be head|relation|tail")
    return list(triples)


def load_passages(folder: Path, skips: Skips) -> list[Passage]:
    """Return the articles of all entities; DataError: as in `read_triples`, or an entity named like another's part."""
    passages = [article.passage for article in write_articles(read_triples(folder / FILE, skips))]
    refuse_clashes(folder / FILE, [(passage.id, passage.title) for passage in passages])
    return passages


def passage_nodes(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return article id to its entity and the neighbours that it mentions. Raises DataError as `read_triples` does."""
    parts = parts_of(read_triples(folder / FILE))
    return {part.id: tuple(dict.fromkeys((part.name, *part.neighbours))) for part in parts}


def refuse_clashes(path: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Raise DataError where two of some articles, (id, entity) each, have one id."""
    last = {id_: number for number, (id_, _) in enumerate(rows)}
    if len(last) < len(rows):
        id_, name = next(row for number, row in enumerate(rows) if last[row[0]] != number)
        raise DataError(path, f"entity {name!r} needs the id {id_!r}, which is another entity's name; rename one")


def splits(folder: Path) -> list[tuple[str, Path]]:
    """Return (split, file) of all questions, such as `2-hop.dev`, sorted; MetaQA's release only without others."""
    ours = sorted(folder.glob("*questions.*.jsonl"))
    named = [(p.name.removesuffix(".jsonl").replace("questions.", "", 1), p) for p in ours]
    return named or metaqa.question_files(folder)


def question_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a split: `dev` is all of dev, `2-hop.dev` one part; DataError (lists the splits): none."""
    named = splits(folder)
    found = [p for name, p in named if name == split] or [p for name, p in named if name.endswith(f".{split}")]
    if split and found:
        return found
    names = {name for name, _ in named} | {name.rpartition(".")[2] for name, _ in named}
    fix = f"splits here: {', '.join(sorted(names))}" if names else "the folder has no questions at all"
    raise DataError(folder, f"split={split!r} does not exist; {fix}. Any other file can be given as questions=FILE")


def load_questions(files: Sequence[Path], passages: Sequence[Passage], limit: int | None = None) -> list[Question]:
    """Return the questions of some files (canonical, or `.txt` of MetaQA), in order, with their answers as gold nodes.

    `extra` has `nodes` (the answers, unless given), `anchor` (the entity a question starts from, where given) and
    `relations` from there to the answers (where given, or by MetaQA's type; see `metrics.traces`). Without `gold`, gold
    are the first parts of the answers' articles: an article that states the last triple from the other side may be one
    of dozens. `limit` is per file.

    Raises DataError for a broken file, an id in two files, or an answer or anchor that is no entity.
    """
    ids = {passage.id for passage in passages}
    names = {passage.title for passage in passages}
    seen: dict[str, Path] = {}
    questions = []
    for file in files:
        found = metaqa.load_questions(file) if file.suffix == ".txt" else canonical.load_questions(file, ids)
        for question in found[:limit]:
            if question.id in seen:
                raise DataError(file, f"id {question.id!r} is already used in {seen[question.id].name}")
            seen[question.id] = file
            questions.append(_with_nodes(file, question, names))
    return questions


def _with_nodes(file: Path, question: Question, names: Collection[str]) -> Question:
    nodes = question.extra.get("nodes", list(question.answers))
    anchor = question.extra.get("anchor")
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise DataError(file, f"question {question.id!r}: 'nodes' must be a list of names of entities, not {nodes!r}")
    for name in [*nodes, *([] if anchor is None else [anchor])]:
        if name not in names:
            hint = nearest(str(name), names)[:200]
            raise DataError(file, f"question {question.id!r} names {name!r}, which is no entity. {hint}")
    gold = question.gold or tuple(dict.fromkeys(nodes))
    relations = question.extra.get("relations", list(metaqa.relations_of(question.type)))
    if not isinstance(relations, list) or not all(isinstance(label, str) for label in relations):
        raise DataError(file, f"question {question.id!r}: 'relations' must be a list of relations, not {relations!r}")
    more = {"nodes": nodes} | ({"relations": relations} if relations else {})
    return replace(question, gold=gold, extra={**question.extra, **more})
