"""The gold annotation as paths of a graph: what DotRAG's oracle roles read."""

from __future__ import annotations

from itertools import pairwise

from gnnrag.graphs.dotanchors import fold_name
from gnnrag.graphs.schema import Schema
from gnnrag.roles.gold import gold_hops
from gnnrag.text.normalise import phrase_key
from gnnrag.types import Question

# MetaQA names the things on a question's path by their roles: movie_to_director_to_movie_to_year.
_ROLES = {
    "director": "directed_by",
    "writer": "written_by",
    "actor": "starred_actors",
    "year": "release_year",
    "language": "in_language",
    "genre": "has_genre",
    "tags": "has_tags",
    "tag": "has_tags",
    "imdbrating": "has_imdb_rating",
    "imdbvotes": "has_imdb_votes",
}


def gold_sequence(question: Question) -> tuple[str, ...]:
    """Return the predicates from anchor to answer, "~" in front of those walked from tail to head; else nothing."""
    roles = question.type.split("_to_")
    steps = []
    for here, there in pairwise(roles):
        if here == "movie" and there in _ROLES:
            steps.append(_ROLES[there])
        elif there == "movie" and here in _ROLES:
            steps.append(f"~{_ROLES[here]}")
        else:
            return ()
    return tuple(steps)


def types_along(schema: Schema, starts: tuple[str, ...], sequence: tuple[str, ...]) -> list[set[str]]:
    """Return the types that a sequence of predicates meets, one set for each node from the anchor on."""
    met = [set(starts)]
    for step in sequence:
        met.append({other for kind in met[-1] for label, other in schema.steps.get(kind, ()) if label == step})
    return met


def gold_names(question: Question, index: object) -> tuple[frozenset[str], dict[str, str]]:
    """Return the keys of the answers' names, and of names on the way with the sub-question that each one opens.

    On the way are the answers of a decomposition's hops (MuSiQue) and the ends of evidence triples (2WikiMultiHopQA).
    """
    wanted = frozenset(name_key(a) for a in (*question.answers, *question.extra.get("nodes", ())))
    opened: dict[str, str] = {}
    hops = gold_hops(question, index)  # type: ignore[arg-type]
    for hop, following in pairwise(hops):
        opened.setdefault(name_key(hop.answer), following.query)
    for head, relation, tail in question.evidence:
        opened.setdefault(name_key(head), f"{head} {relation}")
        opened.setdefault(name_key(tail), "")
    return wanted, {key: query for key, query in opened.items() if key and key not in wanted}


def name_key(name: str) -> str:
    """Return what decides whether two names are one: words without case, accents and punctuation."""
    return phrase_key(fold_name(name))
