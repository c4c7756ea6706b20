"""DotRAG's roles by gold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from gnnrag.graphs.schema import Schema
from gnnrag.index.index import Index
from gnnrag.methods.dotrag.offline import OfflineConcepts
from gnnrag.methods.dotrag.paths import Judgement, Label
from gnnrag.methods.dotrag.search import satisfied
from gnnrag.methods.dotrag.start import fold_name
from gnnrag.methods.dotrag.tasks import (
    GENERIC,
    Concept,
    Concepts,
    ConceptsTask,
    DotRules,
    Judged,
    JudgeTask,
    PathText,
    Redirect,
    RedirectTask,
    RulesTask,
)
from gnnrag.roles.base import Role
from gnnrag.roles.gold import OracleHop, gold_hops, ways_to_ask
from gnnrag.session import Session, normalised
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
    """Return the keys of the answers' names, and of names on the way with the sub-question that each one opens."""
    # On the way are the answers of a decomposition's hops (MuSiQue) and the ends of evidence triples (2WikiMultiHopQA).
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


class OracleConcepts(OfflineConcepts):
    """Gives the anchor of a knowledge base's question; of a text set, the names in its sub-questions."""

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        """Return the concepts; what no annotation gives is read from the question."""
        question = task.question
        if anchor := question.extra.get("anchor"):
            return Concepts((Concept(anchor),), ())
        steps = sorted(question.decomposition, key=lambda step: "#" in step.question)  # those that stand alone first
        texts = [re.sub(r"#\d+|>>", " ", step.question) for step in steps]
        tails = {tail for _, _, tail in question.evidence}
        spans = [head for head, _, _ in question.evidence if head not in tails]
        spans += [span for text in texts for span, _ in self.names.read(text)]
        spans += [] if spans else [span for span, _ in self.names.read(question.text)]
        spans += [] if spans else [hop.query for hop in gold_hops(question, self.index)[:1]]
        named = tuple(Concept(span) for span in dict.fromkeys(spans))
        return Concepts(named, (question.text,), bool(named))


class OracleRules(Role[RulesTask, DotRules]):
    """Allows the types that the gold predicates meet; without such a path there is no filter."""

    def __init__(self, index: Index | None = None, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        """Return the rules."""
        sequence = gold_sequence(task.question)
        met = types_along(task.schema, task.anchor_types, sequence)
        if not sequence or not met[-1]:
            return GENERIC
        words = [step.replace("_", " ").replace("~", "inverse of ") for step in sequence]
        return DotRules(
            "",
            f"the beginning of: {', then '.join(words)}",
            f"exactly: {', then '.join(words)}",
            tuple(kind for kind in task.schema.names if any(kind in types for types in met)),
            tuple(kind for kind in task.schema.names if kind in met[-1]),
            tuple(kind for kind in task.schema.names if any(kind in types for types in met[1:-1])),
        )


class OraclePathJudge(Role[JudgeTask, Judged]):
    """Complete: all gold predicates, or an end that is an answer; partial: a beginning of them, or a gold name."""

    # A path whose last link a gold passage states is partial, too: decomposition and graph spell names differently.

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: JudgeTask, session: Session) -> Judged:
        """Judge all paths."""
        sequence = gold_sequence(task.question)
        wanted, opened = gold_names(task.question, self.index)
        stated = {} if sequence else self._stated(gold_hops(task.question, self.index))
        return Judged(tuple(_judge(path, sequence, wanted, opened, stated) for path in task.paths))

    def _stated(self, hops: Sequence[OracleHop]) -> dict[frozenset[str], str]:
        """Return the pairs of names that gold passages relate, each with the query that leads on from there."""
        graph, found = self.index.knowledge, dict[frozenset[str], str]()
        for number, hop in enumerate(hops):
            here = self.index.position[hop.gold]
            leads_to = hops[number + 1].query if number + 1 < len(hops) else ""
            for node in graph.passage_entities[here].tolist():
                for relation in graph.incident[node].tolist():
                    if here in graph.relation_passages[relation]:
                        found[frozenset(graph.names[end] for end in graph.ends[relation].tolist())] = leads_to
        return found


def _judge(
    path: PathText,
    sequence: tuple[str, ...],
    wanted: frozenset[str],
    opened: dict[str, str],
    stated: Mapping[frozenset[str], str],
) -> Judgement:
    """Judge one path; where predicates are known, the beginning of a path decides what is partial."""
    end, length, follow = name_key(path.names[-1]), len(path.steps), ""
    link = frozenset(path.names[-2:])
    label: Label = "irrelevant"
    if end in wanted or satisfied(path.steps, sequence):
        label = "complete"
    elif sequence and satisfied(path.steps, sequence[:length]):
        label, follow = "partial", f"{path.names[-1]} {sequence[length].strip('~').replace('_', ' ')}"
    elif not sequence and end in opened:
        label, follow = "partial", opened[end]
    elif link in stated:
        label, follow = "partial", stated[link]
    return Judgement(path.id, label, 1.0, "gold", follow or None)


class OracleRedirect(Role[RedirectTask, Redirect]):
    """Asks the next gold sub-question; without any, where the annotated answers are."""

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Return a query that was not sent before, or none."""
        hops = gold_hops(task.question, self.index) if task.question.decomposition else []
        ideas = [query for _, query in ways_to_ask(hops, task.history, self.index)]
        asked = {normalised(text) for text in task.history}
        ideas += [" ".join(task.question.answers[:5])]
        return Redirect(next((idea for idea in ideas if idea and normalised(idea) not in asked), None))
