"""Marked text, and articles by templates, which say nothing that a triple does not (DotRAG, specification 8.2).

The same bytes every time. Odd names are quoted: nobody could tell where `10 Things I Hate About You` ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, Protocol

import yaml  # type: ignore[import-untyped]

from gnnrag.common.files import digest
from gnnrag.datasets.kb import RELATIONS, Part, Triple, kinds_of, state
from gnnrag.session import Session

# Marked text has `<the topic>` and `[a neighbour]`. A name may hold any character: what would be markup in it is
# written behind a backslash, and so is a backslash.
_SPECIAL = re.compile(r"[<>\[\]\\]")
_TOKEN = re.compile(r"\\(.)|([<>\[\]])|(\\$)", re.DOTALL)
_CLOSING = {"<": ">", "[": "]"}


class MarkupError(ValueError):
    """The markup of a text is broken, or marks what it may not; the message says where."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A marked name; `start` and `end` are where it stands in the text without markup."""

    kind: Literal["topic", "neighbour"]
    name: str
    start: int
    end: int


def escape(name: str) -> str:
    """Return a name as it stands inside marked text."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], name)


def mark_topic(name: str) -> str:
    """Return the topic of an article as it is marked."""
    return f"<{escape(name)}>"


def mark_neighbour(name: str) -> str:
    """Return a neighbour as it is marked."""
    return f"[{escape(name)}]"


def read_marked(text: str) -> tuple[str, list[Mention]]:
    """Return a text without its markup, and what was marked, in order.

    Raises MarkupError for a mark that is nested, empty, not opened, not closed, or runs over a line's end.
    """
    plain: list[str] = []
    mentions: list[Mention] = []
    opened, start, length, first = "", 0, 0, 0
    for piece, is_mark in _pieces(text):
        if not is_mark:
            if opened and "\n" in piece:
                raise MarkupError(f"a {opened!r} is not closed on its line, before {_near(plain)!r}")
            plain.append(piece)
            length += len(piece)
        elif piece in _CLOSING:
            if opened:
                raise MarkupError(f"a {piece!r} stands inside {opened!r}, after {_near(plain)!r}")
            opened, start, first = piece, length, len(plain)
        elif _CLOSING.get(opened) != piece:
            raise MarkupError(f"a {piece!r} closes nothing, after {_near(plain)!r}")
        else:
            name = "".join(plain[first:])
            if not name.strip():
                raise MarkupError(f"nothing stands between {opened!r} and {piece!r}")
            mentions.append(Mention("topic" if opened == "<" else "neighbour", name, start, length))
            opened = ""
    if opened:
        raise MarkupError(f"a {opened!r} is not closed, before {_near(plain)!r}")
    return "".join(plain), mentions


def check_marked(text: str, topic: str, neighbours: Collection[str]) -> list[str]:
    """Return the neighbours that a text does not mark, in their order; names must match exactly, case included.

    Raises MarkupError as `read_marked`, and where the topic's or a neighbour's mark is around something else.
    """
    _, mentions = read_marked(text)
    for mention in mentions:
        if mention.kind == "topic" and mention.name != topic:
            raise MarkupError(f"<{mention.name}> is not the topic")
        if mention.kind == "neighbour" and mention.name not in neighbours:
            raise MarkupError(f"[{mention.name}] is not one of the names that were given")
    marked = {mention.name for mention in mentions if mention.kind == "neighbour"}
    return [name for name in neighbours if name not in marked]


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    done = 0
    for match in _TOKEN.finditer(text):
        if match.start() > done:
            yield text[done : match.start()], False
        if match[2]:
            yield match[2], True
        else:
            yield match[1] or "\\", False
        done = match.end()
    if done < len(text):
        yield text[done:], False


def _near(plain: list[str]) -> str:
    return "".join(plain[-3:])[-30:]


@dataclass(frozen=True, slots=True)
class Written:
    """Stage 1: a marked article that covers its part."""

    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityTask:
    """Stage 2: an entity with its first part, and that part's article without markup."""

    part: Part
    article: str


@dataclass(frozen=True, slots=True)
class Described:
    """Stage 2: a type and a description that rests on the article alone."""

    type: str
    description: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RelationsTask:
    """Stage 3: triples to describe from the article that states them, without markup."""

    part: Part
    article: str
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """Stage 3: a marked sentence or two for each triple, in their order; both ends are in square brackets."""

    texts: tuple[str, ...]
    flags: tuple[str, ...] = ()


class Writer(Protocol):
    """Does the three stages for one part at a time; safe to ask for many at once."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON data that changes whenever results would."""
        ...

    async def article(self, task: Part, session: Session) -> Written:
        """Stage 1."""
        ...

    async def entity(self, task: EntityTask, session: Session) -> Described:
        """Stage 2."""
        ...

    async def relations(self, task: RelationsTask, session: Session) -> Related:
        """Stage 3."""
        ...

    async def close(self) -> None:
        """Release what the running event loop holds."""
        ...


def batches(triples: Sequence[Triple], size: int) -> list[tuple[Triple, ...]]:
    """Return triples in batches of at most `size`."""
    return [tuple(triples[start : start + size]) for start in range(0, len(triples), size)]


# ---------------------------------------------------------------------------------------------------------- templates
_DATA = yaml.safe_load((files("gnnrag.textualise") / "sentences.yaml").read_text("utf-8"))
# Of each relation: sentences for the article of its head, and for that of its tail.
SENTENCES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    relation: (tuple(sides["head"]), tuple(sides["tail"])) for relation, sides in _DATA.items()
}
_UNKNOWN = "{head} {relation} {tail}."
_QUOTED_ROLES = frozenset(("movie", "tag", "rating", "votes"))
_PARTICLE = r"(?:da|das|de|del|della|den|der|di|do|dos|du|la|le|ten|the|van|von|y|zu)"
_NAME_LIKE = re.compile(rf"[^\W\d_a-z][\w.'’\-]*(?:,? (?:{_PARTICLE} )*[^\W\d_a-z][\w.'’\-]*)*")


def needs_quotes(name: str, role: str) -> bool:
    """Tell whether a name is quoted: titles, words, and what looks like no person's; `role` is such as `movie`."""
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
    templates = templates_of(relation, forwards)
    template = templates[int(digest([seed, *triple, of])[:8], 16) % len(templates)]
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

    Only templates are looked at. The topic may be missing at the start, as after a title that holds a full stop.
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
    needles = []
    for relation, forwards, template in all_templates():
        names = (topic, phrase) if forwards else (phrase, topic)
        head, tail = (quoted(name, name, role) for name, role in zip(names, roles_of(relation), strict=True))
        needle = template[:-1].format(head=head, tail=tail)
        needles.append((relation, forwards, needle.removeprefix(head if forwards else tail)))
    return tuple(needles)


def all_templates() -> Iterator[tuple[str, bool, str]]:
    """Yield (relation, forwards, template) of every template."""
    for relation, sides in SENTENCES.items():
        for forwards, templates in zip((True, False), sides, strict=True):
            for template in templates:
                yield relation, forwards, template


# The paragraphs of an article, in order: the relations that each tells, and how it opens. What is unknown comes last.
_MAKERS = ("directed_by", "written_by")
_PARAGRAPHS: tuple[tuple[tuple[str, ...], str], ...] = (
    (_MAKERS, "Of the making of {topic} the following is known, name by name."),
    (("starred_actors",), "Of the cast that goes with {topic} the following is known, name by name."),
    (("release_year", "in_language", "has_genre"), "Some facts place {topic} among the other titles."),
    (("has_tags", "has_imdb_rating", "has_imdb_votes"), "Viewers have had their say on {topic} as well."),
)
_OTHERS = "Further facts about {topic} are these."
_KINDS = {
    "person": "The lines below tell of a life in films, one statement after the other and without anything invented.",
    "movie": "The lines below sum up what is known of it, one statement after the other and without anything invented.",
}
_OVERVIEW = "The lines below give an overview of what goes with it, one statement after the other."


def template_article(part: Part, seed: int = 0) -> str:
    """Return the marked article of one part: paragraphs by relation, a sentence for each triple.

    Every neighbour of the part (at most 25) is marked, and the topic named in every sentence that states a triple.
    """
    kinds = kinds_of(part.type)
    role = "movie" if "movie" in part.type.split("|") else part.type
    topic = quoted(mark_topic(part.name), part.name, role)
    opening = f"{topic} is {' and '.join(kinds)}." if kinds else f"{topic} is what this article is about."
    about = _KINDS.get(part.type, _OVERVIEW)
    paragraphs = [f"{opening} {about}"]
    for relations, first in (*_PARAGRAPHS, ((), _OTHERS)):
        facts = [t for t in part.triples if (t[1] in relations if relations else not any(roles_of(t[1])))]
        if facts:
            stated = " ".join(marked_sentence(fact, part.name, seed) for fact in _in_order(facts, relations))
            paragraphs.append(f"{first.format(topic=topic)} {stated}")
    return "\n\n".join(paragraphs)


def appended_sentences(part: Part, missing: Sequence[str], seed: int = 0) -> str:
    """Return a paragraph of template sentences with all that joins the topic to some of its neighbours."""
    names = set(missing)
    facts = [t for t in part.triples if (t[2] if t[0] == part.name else t[0]) in names]
    return " ".join(marked_sentence(fact, part.name, seed) for fact in facts)


def template_description(part: Part, facts: int = 3) -> str:
    """Return what an entity is, and the first facts of its part, without markup."""
    kinds = kinds_of(part.type)
    first = [f"{part.name} is {' and '.join(kinds)}."] if kinds else []
    return " ".join([*first, *(state(fact, part.name) for fact in part.triples[:facts])])


def _in_order(facts: Sequence[Triple], relations: Sequence[str]) -> list[Triple]:
    return sorted(facts, key=lambda fact: relations.index(fact[1])) if relations else list(facts)


class TemplateWriter:
    """Does all three stages by templates, which `seed` chooses: no model, no call."""

    version = 1

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @property
    def identity(self) -> Mapping[str, Any]:
        """See `Writer`."""
        return {"method": "template", "version": self.version, "seed": self.seed, "templates": digest(SENTENCES)}

    async def article(self, task: Part, session: Session) -> Written:
        """See `Writer`."""
        return Written(template_article(task, self.seed))

    async def entity(self, task: EntityTask, session: Session) -> Described:
        """See `Writer`."""
        return Described(task.part.type, template_description(task.part))

    async def relations(self, task: RelationsTask, session: Session) -> Related:
        """See `Writer`."""
        return Related(tuple(bracketed_sentence(triple) for triple in task.triples))

    async def close(self) -> None:
        """Hold nothing, release nothing."""
