"""Sentences for MetaQA's nine relations, several for each direction, and the way back from a sentence to its relation.

A template says nothing that its triple does not say. Titles, tags and names that do not look like names are put in
quotation marks, as a careful writer does: without them nobody could tell where `10 Things I Hate About You` ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from gnnrag.datasets.articles import RELATIONS, Triple
from gnnrag.files import digest
from gnnrag.textualise.markup import escape, mark_neighbour, mark_topic

# Of each relation: sentences for the article of its head, and for that of its tail.
SENTENCES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "directed_by": (
        (
            "{head} was directed by {tail}.",
            "The director of the film {head} is {tail}.",
            "As far as direction is concerned, {head} is the work of {tail}.",
            "{head} is a film that was made under the direction of {tail}.",
        ),
        (
            "{tail} directed {head}.",
            "{tail} is the director of the film {head}.",
            "Among the films that {tail} directed there is {head}.",
            "One of the films made under the direction of {tail} is {head}.",
        ),
    ),
    "written_by": (
        (
            "{head} was written by {tail}.",
            "The writing of the film {head} is credited to {tail}.",
            "For what was written for it, {head} goes back to {tail}.",
            "{head} is a film that was put into words by {tail}.",
        ),
        (
            "{tail} wrote {head}.",
            "{tail} is credited with the writing of the film {head}.",
            "Among the films that {tail} wrote there is {head}.",
            "One of the films with the writing of {tail} is {head}.",
        ),
    ),
    "starred_actors": (
        (
            "{head} stars {tail}.",
            "The cast of the film {head} includes {tail}.",
            "In front of the camera, {head} can count on {tail}.",
            "{head} is a film in which a part is played by {tail}.",
        ),
        (
            "{tail} acted in {head}.",
            "{tail} belongs to the cast of the film {head}.",
            "Among the films that {tail} played a part in there is {head}.",
            "One of the films with {tail} in the cast is {head}.",
        ),
    ),
    "release_year": (
        (
            "{head} came out in {tail}.",
            "The film {head} was released in the year {tail}.",
            "The first release of {head} took place in {tail}.",
            "{head} is a film whose year of release is {tail}.",
        ),
        (
            "{tail} is the year when {head} came out.",
            "In the course of {tail} there was the release of {head}.",
            "Among the films that were released in {tail} there is {head}.",
            "{tail} is the year of release of the film {head}.",
        ),
    ),
    "in_language": (
        (
            "{head} is in {tail}.",
            "The language of the film {head} is {tail}.",
            "What is spoken in {head} is {tail}.",
            "{head} is a film whose dialogue is in {tail}.",
        ),
        (
            "{tail} is the language of {head}.",
            "{tail} is what is spoken in the film {head}.",
            "Among the films in the language {tail} there is {head}.",
            "One of the films whose dialogue is in {tail} is {head}.",
        ),
    ),
    "has_tags": (
        (
            "{head} is tagged with {tail}.",
            "The film {head} carries the tag {tail}.",
            "One of the tags that viewers give to {head} is {tail}.",
            "{head} is a film that is listed under the tag {tail}.",
        ),
        (
            "{tail} is a tag of {head}.",
            "{tail} is a tag that viewers give to the film {head}.",
            "Among the films that carry the tag {tail} there is {head}.",
            "One of the films listed under the tag {tail} is {head}.",
        ),
    ),
    "has_genre": (
        (
            "{head} is of the genre {tail}.",
            "The film {head} belongs to the genre {tail}.",
            "By its genre, {head} counts as {tail}.",
            "{head} is a film that is classed under the genre {tail}.",
        ),
        (
            "{tail} is the genre of {head}.",
            "{tail} is the genre that the film {head} belongs to.",
            "Among the films of the genre {tail} there is {head}.",
            "One of the films classed under the genre {tail} is {head}.",
        ),
    ),
    "has_imdb_rating": (
        (
            "{head} has the IMDb rating {tail}.",
            "On IMDb the rating of the film {head} is {tail}.",
            "By the ratings that users of IMDb gave it, {head} is {tail}.",
        ),
        (
            "{tail} is the IMDb rating of {head}.",
            "{tail} is what the ratings on IMDb say of the film {head}.",
            "Among the films whose rating on IMDb is {tail} there is {head}.",
        ),
    ),
    "has_imdb_votes": (
        (
            "{head} is {tail} by its IMDb votes.",
            "On IMDb the number of votes makes the film {head} count as {tail}.",
            "By the votes that users of IMDb cast for it, {head} is {tail}.",
        ),
        (
            "{tail} is what the IMDb votes say of {head}.",
            "{tail} is how the number of votes on IMDb describes the film {head}.",
            "Among the films that are {tail} by the number of votes on IMDb there is {head}.",
        ),
    ),
}
_UNKNOWN = "{head} {relation} {tail}."
_QUOTED_ROLES = frozenset(("movie", "tag", "rating", "votes"))
_PARTICLE = r"(?:da|das|de|del|della|den|der|di|do|dos|du|la|le|ten|the|van|von|y|zu)"
_NAME_LIKE = re.compile(rf"[^\W\d_a-z][\w.'’\-]*(?:,? (?:{_PARTICLE} )*[^\W\d_a-z][\w.'’\-]*)*")


def needs_quotes(name: str, role: str) -> bool:
    """Tell whether a name is put in quotation marks: titles, words, and what does not look like a person's name.

    Args:
        name: the name.
        role: of the end of the relation that it stands at, such as `movie`; empty where nothing is known.
    """
    if "“" in name or "”" in name:
        return False
    return role in _QUOTED_ROLES or not (name.isdigit() if role == "year" else _NAME_LIKE.fullmatch(name))


def quoted(text: str, name: str, role: str) -> str:
    """Return `text`, which stands for a name, with quotation marks where that name needs them."""
    return f"“{text}”" if needs_quotes(name, role) else text


def roles_of(relation: str) -> tuple[str, str]:
    """Return the roles that a relation gives its head and its tail; empty ones where it is unknown."""
    known = RELATIONS.get(relation)
    return (known.head_type, known.tail_type) if known else ("", "")


def templates_of(relation: str, forwards: bool) -> tuple[str, ...]:
    """Return the templates of a relation, for the article of its head or for that of its tail."""
    if relation in SENTENCES:
        return SENTENCES[relation][0 if forwards else 1]
    # What is no word of ours is neither a placeholder nor markup.
    words = escape(relation.replace("_", " ")).replace("{", "{{").replace("}", "}}")
    return (_UNKNOWN.replace("{relation}", words),)


def marked_sentence(triple: Triple, of: str, seed: int = 0) -> str:
    """Return a triple as a marked sentence of the article of one of its ends; a hash chooses among the templates."""
    relation, forwards = triple[1], of == triple[0]
    found = templates_of(relation, forwards)
    template = found[int(digest([seed, *triple, of])[:8], 16) % len(found)]
    return _filled(template, triple, (mark_topic, mark_neighbour) if forwards else (mark_neighbour, mark_topic))


def bracketed_sentence(triple: Triple) -> str:
    """Return a triple as a plain sentence from its head to its tail, both in square brackets."""
    return _filled(templates_of(triple[1], True)[0], triple, (mark_neighbour, mark_neighbour))


def _filled(template: str, triple: Triple, marks: tuple[Callable[[str], str], Callable[[str], str]]) -> str:
    head, relation, tail = triple
    names = [quoted(mark(n), n, role) for mark, n, role in zip(marks, (head, tail), roles_of(relation), strict=True)]
    text = template.format(head=names[0], tail=names[1])
    # A name at the end may bring its own full stop (Sammy Davis Jr.), unless a quotation mark closes it.
    last = tail if template.endswith("{tail}.") else head if template.endswith("{head}.") else ""
    return text[:-1] if last.endswith((".", "!", "?")) and not text.endswith("”.") else text


def relations_said(sentence: str, topic: str, phrase: str) -> set[tuple[str, bool]]:
    """Return what a sentence of the article on `topic` says of a phrase in it: (relation, the topic is its head).

    Only the templates are looked at, never the knowledge base. The topic may be missing at the sentence's start, as
    after a title that holds a full stop.
    """
    said = set()
    for relation, forwards, needle in _needles(topic, phrase):
        at = sentence.find(needle)
        while at >= 0:
            after = sentence[at + len(needle) : at + len(needle) + 1]
            # A further word would belong to the name: Sammy Davis is not Sammy Davis Jr.
            if after in "” .!?" if needle.endswith((".", "!", "?")) else after in "”.!?":
                said.add((relation, forwards))
                break
            at = sentence.find(needle, at + 1)
    return said


@lru_cache(maxsize=4096)
def _needles(topic: str, phrase: str) -> tuple[tuple[str, bool, str], ...]:
    """Return (relation, forwards, text) of each template about topic and phrase."""
    found = []
    for relation, forwards, template in all_templates():
        names = (topic, phrase) if forwards else (phrase, topic)
        head, tail = (quoted(name, name, role) for name, role in zip(names, roles_of(relation), strict=True))
        needle = template[:-1].format(head=head, tail=tail)
        found.append((relation, forwards, needle.removeprefix(head if forwards else tail)))
    return tuple(found)


def all_templates() -> Iterator[tuple[str, bool, str]]:
    """Yield (relation, forwards, template) of every template."""
    for relation, sides in SENTENCES.items():
        for forwards, templates in zip((True, False), sides, strict=True):
            for template in templates:
                yield relation, forwards, template
