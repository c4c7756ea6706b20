"""A knowledge base as a corpus: one article for each entity, a sentence of a template for each triple, no model.

DotRAG textualises MetaQA with a language model; its specification (section 8.2) names templates as the default for
tests and ablations. Each triple stands in the articles of both its ends, once from either side. Articles are cut into
parts of at most 25 neighbours; every sentence names its entity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gnnrag.types import Passage

Triple = tuple[str, str, str]  # head, relation, tail

MAX_NEIGHBOURS = 25


@dataclass(frozen=True, slots=True)
class Relation:
    """The types that a relation gives its ends, and its sentences in the articles of the head and of the tail."""

    head_type: str
    tail_type: str
    forwards: str
    backwards: str


RELATIONS = {
    "directed_by": Relation("movie", "person", "{head} was directed by {tail}.", "{tail} directed {head}."),
    "written_by": Relation("movie", "person", "{head} was written by {tail}.", "{tail} wrote {head}."),
    "starred_actors": Relation("movie", "person", "{head} stars {tail}.", "{tail} acted in {head}."),
    "release_year": Relation("movie", "year", "{head} came out in {tail}.", "{tail} is the year when {head} came out."),
    "in_language": Relation("movie", "language", "{head} is in {tail}.", "{tail} is the language of {head}."),
    "has_tags": Relation("movie", "tag", "{head} is tagged with {tail}.", "{tail} is a tag of {head}."),
    "has_genre": Relation("movie", "genre", "{head} is of the genre {tail}.", "{tail} is the genre of {head}."),
    "has_imdb_rating": Relation(
        "movie", "rating", "{head} has the IMDb rating {tail}.", "{tail} is the IMDb rating of {head}."
    ),
    "has_imdb_votes": Relation(
        "movie", "votes", "{head} is {tail} by its IMDb votes.", "{tail} is what the IMDb votes say of {head}."
    ),
}
_NOUNS = {"rating": "an IMDb rating", "votes": "a word for IMDb votes"}


@dataclass(frozen=True, slots=True)
class Part:
    """At most `MAX_NEIGHBOURS` neighbours of an entity (`id`: its name, of part n `NAME#n`): what one article tells."""

    id: str
    name: str
    type: str
    triples: tuple[Triple, ...]

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The distinct neighbours, in order; a thing that is related to itself is its own neighbour."""
        return tuple(dict.fromkeys(tail if head == self.name else head for head, _, tail in self.triples))


@dataclass(frozen=True, slots=True)
class Article:
    """A part of an entity's article, the roles of the entity, and the triples that the part states."""

    passage: Passage
    type: str
    triples: tuple[Triple, ...]


def entity_types(triples: Iterable[Triple]) -> dict[str, str]:
    """Return each entity's roles, sorted and joined by "|"; empty where all its relations are unknown."""
    roles: dict[str, set[str]] = {}
    for head, relation, tail in triples:
        known = RELATIONS.get(relation)
        for name, role in ((head, known and known.head_type), (tail, known and known.tail_type)):
            found = roles.setdefault(name, set())
            if role:
                found.add(role)
    return {name: "|".join(sorted(found)) for name, found in roles.items()}


def parts_of(triples: Sequence[Triple], only: Collection[str] | None = None) -> Iterator[Part]:
    """Yield the parts of all entities (or `only` some), by first appearance; a neighbour's relations stay together."""
    around: dict[str, dict[str, list[Triple]]] = {}
    for triple in triples:
        head, _, tail = triple
        around.setdefault(head, {}).setdefault(tail, []).append(triple)
        if head != tail:
            around.setdefault(tail, {}).setdefault(head, []).append(triple)
    types = entity_types(triples)
    for name, neighbours in around.items():
        if only is not None and name not in only:
            continue
        groups = list(neighbours.values())
        for number, start in enumerate(range(0, len(groups), MAX_NEIGHBOURS), start=1):
            facts = tuple(triple for group in groups[start : start + MAX_NEIGHBOURS] for triple in group)
            yield Part(name if number == 1 else f"{name}#{number}", name, types[name], facts)


def write_articles(triples: Sequence[Triple]) -> list[Article]:
    """Return the articles of all entities, in the order of `parts_of`; the title of each is the entity's name."""
    return [
        Article(Passage(part.id, part.name, _text(part.name, part.type, part.triples)), part.type, part.triples)
        for part in parts_of(triples)
    ]


def state(triple: Triple, of: str) -> str:
    """Return a triple as a sentence in the article of one of its ends. Unknown relations keep their words."""
    head, relation, tail = triple
    known = RELATIONS.get(relation)
    template = "{head} {relation} {tail}."
    if known:
        template = known.forwards if of == head else known.backwards
    sentence = template.format(head=head, relation=relation.replace("_", " "), tail=tail)
    # A name may bring its own full stop: Sammy Davis Jr.
    return sentence[:-1] if sentence[-2] in ".!?" else sentence


def kinds_of(types: str) -> list[str]:
    """Return the roles of an entity as words, such as `a movie`."""
    return [_NOUNS.get(kind, f"a {kind}") for kind in types.split("|") if kind]


def _text(name: str, types: str, facts: Sequence[Triple]) -> str:
    kinds = kinds_of(types)
    first = [f"{name} is {' and '.join(kinds)}."] if kinds else []
    return " ".join([*first, *(state(fact, name) for fact in facts)])
