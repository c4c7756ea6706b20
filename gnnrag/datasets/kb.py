"""A knowledge base: a folder with `kb.txt` (a triple a line, `head|relation|tail`) and questions about its entities.

Each entity has an article: a sentence of a template for each of its triples, no model. (DotRAG writes MetaQA's
articles with a language model; templates are its default for tests, section 8.2.) Each triple stands in the articles of
both its ends. Articles are cut into parts of at most 25 neighbours; every sentence names its entity.

Questions lie in `<part>.questions.<split>.jsonl` (MetaQA: by hops), in `questions.<split>.jsonl`, or where the MetaQA
release has them: `N-hop/vanilla/qa_<split>.txt`, with types in `N-hop/qa_<split>_qtype.txt`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from gnnrag.datasets import jsonl
from gnnrag.datasets.jsonl import Skips, read_lines
from gnnrag.errors import DataError, nearest
from gnnrag.types import Passage, Question

Triple = tuple[str, str, str]  # head, relation, tail

FILE = "kb.txt"
MAX_NEIGHBOURS = 25

# ------------------------------------------------------------------------------------------------------------ articles


@dataclass(frozen=True, slots=True)
class Relation:
    """The type of a relation's tail, and its sentences in the articles of the head (a movie) and of the tail."""

    tail_type: str
    forwards: str
    backwards: str


RELATIONS = {
    "directed_by": Relation("person", "{head} was directed by {tail}.", "{tail} directed {head}."),
    "written_by": Relation("person", "{head} was written by {tail}.", "{tail} wrote {head}."),
    "starred_actors": Relation("person", "{head} stars {tail}.", "{tail} acted in {head}."),
    "release_year": Relation("year", "{head} came out in {tail}.", "{tail} is the year when {head} came out."),
    "in_language": Relation("language", "{head} is in {tail}.", "{tail} is the language of {head}."),
    "has_tags": Relation("tag", "{head} is tagged with {tail}.", "{tail} is a tag of {head}."),
    "has_genre": Relation("genre", "{head} is of the genre {tail}.", "{tail} is the genre of {head}."),
    "has_imdb_rating": Relation("rating", "{head} has the IMDb rating {tail}.", "{tail} is the IMDb rating of {head}."),
    "has_imdb_votes": Relation(
        "votes", "{head} is {tail} by its IMDb votes.", "{tail} is what the IMDb votes say of {head}."
    ),
}
_NOUNS = {"rating": "an IMDb rating", "votes": "a word for IMDb votes"}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an entity's article: at most `MAX_NEIGHBOURS` neighbours. `id`: the name, of part n `NAME#n`."""

    id: str
    name: str
    type: str
    triples: tuple[Triple, ...]

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The distinct neighbours, in order; a thing that is related to itself is its own neighbour."""
        return tuple(dict.fromkeys(tail if head == self.name else head for head, _, tail in self.triples))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The entity, and the neighbours that the part mentions."""
        return tuple(dict.fromkeys((self.name, *self.neighbours)))

    @property
    def passage(self) -> Passage:
        """The part as text: what the entity is, and its facts; the title is the entity's name."""
        kinds = [_NOUNS.get(kind, f"a {kind}") for kind in self.type.split("|") if kind]
        first = [f"{self.name} is {' and '.join(kinds)}."] if kinds else []
        return Passage(self.id, self.name, " ".join([*first, *(state(fact, self.name) for fact in self.triples)]))


def entity_types(triples: Iterable[Triple]) -> dict[str, str]:
    """Return each entity's types, sorted and joined by "|"; empty where all its relations are unknown."""
    types: dict[str, set[str]] = {}
    for head, relation, tail in triples:
        known = RELATIONS.get(relation)
        for name, type_ in ((head, known and "movie"), (tail, known and known.tail_type)):
            types.setdefault(name, set()).update([type_] if type_ else [])
    return {name: "|".join(sorted(values)) for name, values in types.items()}


def parts_of(triples: Sequence[Triple]) -> Iterator[Part]:
    """Yield the parts of all entities, by first appearance; a neighbour's relations stay together."""
    around: dict[str, dict[str, list[Triple]]] = {}
    for triple in triples:
        head, _, tail = triple
        around.setdefault(head, {}).setdefault(tail, []).append(triple)
        if head != tail:
            around.setdefault(tail, {}).setdefault(head, []).append(triple)
    types = entity_types(triples)
    for name, neighbours in around.items():
        groups = list(neighbours.values())
        for number, start in enumerate(range(0, len(groups), MAX_NEIGHBOURS), start=1):
            facts = tuple(triple for group in groups[start : start + MAX_NEIGHBOURS] for triple in group)
            yield Part(name if number == 1 else f"{name}#{number}", name, types[name], facts)


def state(triple: Triple, of: str) -> str:
    """Return a triple as a sentence in the article of one of its ends. Unknown relations keep their words."""
    head, relation, tail = triple
    template = "{head} {relation} {tail}."
    if known := RELATIONS.get(relation):
        template = known.forwards if of == head else known.backwards
    sentence = template.format(head=head, relation=relation.replace("_", " "), tail=tail)
    # A name may bring its own full stop: Sammy Davis Jr.
    return sentence[:-1] if sentence[-2] in ".!?" else sentence


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


def load_parts(folder: Path, skips: Skips) -> list[Part]:
    """Return the parts of all entities' articles; DataError: as in `read_triples`, or one is named like another's."""
    parts = list(parts_of(read_triples(folder / FILE, skips)))
    id_, count = Counter(part.id for part in parts).most_common(1)[0]
    if count > 1:
        raise DataError(folder / FILE, f"two entities need the id {id_!r}, of a part of one; rename the other")
    return parts


# ----------------------------------------------------------------------------------------------------------- questions


def splits(folder: Path) -> list[tuple[str, Path]]:
    """Return (split, file) of all questions, such as `2-hop.dev`, sorted; MetaQA's release only without others."""
    ours = [(p.name.removesuffix(".jsonl").replace("questions.", "", 1), p) for p in folder.glob("*questions.*.jsonl")]
    released = [(f"{p.parents[1].name}.{p.stem.removeprefix('qa_')}", p) for p in folder.glob("*-hop/vanilla/qa_*.txt")]
    return sorted(ours or released)


def question_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a split: `dev` is all of dev, `2-hop.dev` one part; DataError (lists the splits): none."""
    named = splits(folder)
    files = [p for name, p in named if name == split] or [p for name, p in named if name.endswith(f".{split}")]
    if split and files:
        return files
    names = {name for name, _ in named} | {name.rpartition(".")[2] for name, _ in named}
    fix = f"splits here: {', '.join(sorted(names))}" if names else "the folder has no questions at all"
    raise DataError(folder, f"split={split!r} does not exist; {fix}. Any other file can be given as questions=FILE")


def load_questions(files: Sequence[Path], passages: Sequence[Passage], limit: int | None = None) -> list[Question]:
    """Return the questions of some files (canonical, or `.txt` of MetaQA), in order, with their answers as gold nodes.

    `extra` has `nodes` (the answers, unless given) and `anchor` (the entity a question starts from, where given).
    Without `gold`, gold are the first parts of the answers' articles: an article that states the last triple from the
    other side may be one of dozens. `limit` is per file.

    Raises DataError for a broken file, an id in two files, or an answer or anchor that is no entity.
    """
    ids = {passage.id for passage in passages}
    names = {passage.title for passage in passages}
    seen: dict[str, Path] = {}
    questions = []
    for file in files:
        rows = _metaqa_questions(file) if file.suffix == ".txt" else jsonl.load_questions(file, ids)
        for question in rows[:limit]:
            if question.id in seen:
                raise DataError(file, f"id {question.id!r} is already used in {seen[question.id].name}")
            seen[question.id] = file
            questions.append(_with_nodes(file, question, names))
    return questions


def _with_nodes(file: Path, question: Question, names: Collection[str]) -> Question:
    extra = dict(question.extra)
    nodes = list(extra.get("nodes", question.answers))
    anchor = extra.get("anchor")
    for name in [*nodes, *([] if anchor is None else [anchor])]:
        if name not in names:
            hint = nearest(str(name), names)[:200]
            raise DataError(file, f"question {question.id!r} names {name!r}, which is no entity. {hint}")
    gold = question.gold or tuple(dict.fromkeys(nodes))
    return replace(question, gold=gold, extra=extra | {"nodes": nodes})


# What joins a film to a thing of each kind that MetaQA's types of questions name. All triples are of a film.
_OF_FILM = {
    "actor": "starred_actors", "director": "directed_by", "writer": "written_by", "year": "release_year",
    "genre": "has_genre", "language": "in_language", "tag": "has_tags", "tags": "has_tags",
    "imdbrating": "has_imdb_rating", "imdbvotes": "has_imdb_votes",
}  # fmt: skip
_ANCHOR = re.compile(r"\[([^\[\]]+)\]")


def relations_of(type_: str) -> tuple[str, ...]:
    """Return the relations of a type of questions, from anchor to answers; empty for a type that is none of MetaQA's.

    `actor_to_movie_to_year` is `("~starred_actors", "release_year")`: "~" stands for against its direction.
    """
    relations = []
    for start, end in pairwise(type_.split("_to_")):
        if start == "movie" and end in _OF_FILM:
            relations.append(_OF_FILM[end])
        elif end == "movie" and start in _OF_FILM:
            relations.append(f"~{_OF_FILM[start]}")
        else:
            return ()
    return tuple(relations)


def _metaqa_questions(path: Path) -> list[Question]:
    """Return the questions of the release: question with an [anchor], tab, answers joined by |. Ids: `2-hop-dev-0`."""
    part, split = path.resolve().parents[1], path.stem.removeprefix("qa_")
    hops = re.fullmatch(r"(\d+)-hop", part.name)
    lines, types_file = list(read_lines(path)), part / f"qa_{split}_qtype.txt"
    types = [line.strip() for _, line in read_lines(types_file)] if types_file.is_file() else ["unknown"] * len(lines)
    if len(types) != len(lines):
        raise DataError(types_file, f"has {len(types)} types for {len(lines)} questions: give one each, or delete it")
    questions = []
    for i, (number, line) in enumerate(lines):
        text, _, rest = line.partition("\t")
        answers = tuple(dict.fromkeys(rest.split("|")))
        anchors = _ANCHOR.findall(text)
        if len(anchors) != 1 or not all(answer.strip() for answer in answers):
            problem = f"is {line[:80]!r}; each must be a question with one [anchor], a tab, and answers joined by |"
            raise DataError(path, problem, number)
        extra = {"anchor": anchors[0], **({"hops": int(hops[1])} if hops else {})}
        plain = _ANCHOR.sub(r"\1", text).strip()
        questions.append(Question(f"{part.name}-{split}-{i}", plain, answers, types[i], extra=extra))
    if not questions:
        raise DataError(path, "holds no questions")
    return questions
