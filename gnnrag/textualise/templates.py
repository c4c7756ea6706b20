"""Articles by templates: no model, the same bytes every time (DotRAG, specification 8.2, `textualise=template`)."""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.datasets.articles import Part, Triple, kinds_of
from gnnrag.textualise.markup import mark_topic
from gnnrag.textualise.sentences import marked_sentence, quoted, roles_of

# The paragraphs of an article, in order: the relations that each tells, and how it opens. What is unknown comes last.
_MAKERS = ("directed_by", "written_by")
_PARAGRAPHS: tuple[tuple[tuple[str, ...], str], ...] = (
    (_MAKERS, "This is what is known of the making of {topic}."),
    (("starred_actors",), "This is what is known of the cast that goes with {topic}."),
    (("release_year", "in_language", "has_genre"), "Some facts place {topic} among the other titles."),
    (("has_tags", "has_imdb_rating", "has_imdb_votes"), "Viewers have had their say on {topic} as well."),
)
_OTHERS = "Further facts about {topic} are these."
_KINDS = {"person": "The lines below tell of a life in films.", "movie": "The lines below sum up what is known of it."}
_OVERVIEW = "The lines below give an overview of what goes with it."


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
    opening = f"{topic} is {' and '.join(kinds)}." if kinds else f"This article is about {topic}."
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


def _in_order(facts: Sequence[Triple], relations: Sequence[str]) -> list[Triple]:
    return sorted(facts, key=lambda fact: relations.index(fact[1])) if relations else list(facts)
