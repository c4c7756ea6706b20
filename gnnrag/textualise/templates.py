"""Articles by templates: no model, the same bytes every time (DotRAG, specification 8.2, `textualise=template`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnrag.datasets.articles import Part, Triple, kinds_of, state
from gnnrag.files import digest
from gnnrag.session import Session
from gnnrag.textualise.markup import mark_topic
from gnnrag.textualise.sentences import SENTENCES, bracketed_sentence, marked_sentence, quoted, roles_of
from gnnrag.textualise.types import Described, EntityTask, Related, RelationsTask, Written

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

    Every neighbour of the part is marked, the topic is named in every sentence that states a triple, and nothing is
    said that the triples do not say.

    Args:
        part: an entity with at most 25 of its neighbours.
        seed: another choice among the templates.
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
    wanted = set(missing)
    facts = [t for t in part.triples if (t[2] if t[0] == part.name else t[0]) in wanted]
    return " ".join(marked_sentence(fact, part.name, seed) for fact in facts)


def template_description(part: Part, facts: int = 3) -> str:
    """Return what an entity is, and the first facts of its part, without markup."""
    kinds = kinds_of(part.type)
    first = [f"{part.name} is {' and '.join(kinds)}."] if kinds else []
    return " ".join([*first, *(state(fact, part.name) for fact in part.triples[:facts])])


def _in_order(facts: Sequence[Triple], relations: Sequence[str]) -> list[Triple]:
    return sorted(facts, key=lambda fact: relations.index(fact[1])) if relations else list(facts)


class TemplateWriter:
    """Does all three stages by templates: no model, no call.

    Args:
        seed: another choice among the templates.
    """

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
