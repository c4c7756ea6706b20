"""DotRAG's roles by gold: the path of a knowledge base's question, or the annotated hops of a text set's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from gnnrag.datasets.kb import relations_of
from gnnrag.methods.dotrag.anchors import fold_name
from gnnrag.methods.dotrag.offline import OfflineConcepts, rules_of
from gnnrag.methods.dotrag.paths import Label, PathVerdict, satisfied
from gnnrag.methods.dotrag.roles import (
    GENERIC,
    Concept,
    Concepts,
    ConceptsTask,
    DotRules,
    JudgeTask,
    PathText,
    PathVerdicts,
    Redirect,
    RedirectTask,
    RulesTask,
)
from gnnrag.parts import part
from gnnrag.roles.base import Role
from gnnrag.roles.oracle import OracleHop, gold_hops, ways_to_ask
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import phrase_key


@part("role", "concepts.oracle")
class OracleConcepts(OfflineConcepts):
    """Gives the anchor of a knowledge base's question; of a text set, the names in its sub-questions."""

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        question = task.question
        if anchor := question.extra.get("anchor"):
            return Concepts((Concept(anchor),), ())
        steps = sorted(question.decomposition, key=lambda step: "#" in step.question)  # those that stand alone first
        texts = [re.sub(r"#\d+|>>", " ", step.question) for step in steps]
        tails = {tail for _, _, tail in question.evidence}
        spans = [head for head, _, _ in question.evidence if head not in tails]
        spans += [span for text in texts for span, _ in self.names.read(text)]
        spans = spans or [span for span, _ in self.names.read(question.text)]
        spans = spans or [hop.query for hop in gold_hops(question, self.index)[:1]]
        return Concepts(tuple(Concept(span) for span in dict.fromkeys(spans)), (question.text,), bool(spans))


@part("role", "rules.oracle")
class OracleRules(Role[RulesTask, DotRules]):
    """Allows the types that the gold predicates meet; without such a path there is no filter."""

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        sequence = relations_of(task.question.type)
        met = [set(task.anchor_types)]  # the types of the nodes from the anchor on
        for step in sequence:
            ways = (way for kind in met[-1] for way in task.schema.steps.get(kind, ()))
            met.append({other for label, other in ways if label == step})
        return rules_of(task.schema, sequence, met) if sequence and met[-1] else GENERIC


@part("role", "path_judge.oracle")
class OraclePathJudge(Role[JudgeTask, PathVerdicts]):
    """Complete: all gold predicates, or an end that is an answer; partial: a beginning of them, or a gold name.

    A path whose last link a gold passage states is partial, too: decomposition and graph spell names differently.
    """

    async def __call__(self, task: JudgeTask, session: Session) -> PathVerdicts:
        question, sequence = task.question, relations_of(task.question.type)
        hops = gold_hops(question, self.index)
        answers = {name_key(name) for name in (*question.answers, *question.extra.get("nodes", ()))}
        # Names on the way, with the query that each one opens: ends of hops (MuSiQue), of evidence triples (2Wiki).
        opened: dict[str, str] = {}
        for hop, following in pairwise(hops):
            opened.setdefault(name_key(hop.answer), following.query)
        for head, relation, tail in question.evidence:
            opened.setdefault(name_key(head), f"{head} {relation}")
            opened.setdefault(name_key(tail), "")
        opened.pop("", None)
        stated = {} if sequence else self._stated(hops)

        def judge(path: PathText) -> PathVerdict:
            end, length, follow = name_key(path.names[-1]), len(path.steps), ""
            label: Label = "partial"
            if end in answers or satisfied(path.steps, sequence):
                label = "complete"
            elif sequence and satisfied(path.steps, sequence[:length]):
                follow = f"{path.names[-1]} {sequence[length].strip('~').replace('_', ' ')}"
            elif not sequence and end in opened:
                follow = opened[end]
            elif (link := frozenset(path.names[-2:])) in stated:
                follow = stated[link]
            else:
                label = "irrelevant"
            return PathVerdict(path.id, label, 1.0, "gold", follow or None)

        return PathVerdicts(tuple(judge(path) for path in task.paths))

    def _stated(self, hops: Sequence[OracleHop]) -> Mapping[frozenset[str], str]:
        """Return the pairs of names that gold passages relate, each with the query that leads on from there."""
        graph, stated = self.index.knowledge, dict[frozenset[str], str]()
        following = [*(hop.query for hop in hops[1:]), ""]
        for hop, query in zip(hops, following, strict=bool(hops)):
            passage = self.index.position[hop.gold]
            for node in graph.passage_entities[passage].tolist():
                for relation in graph.incident[node].tolist():
                    if passage in graph.relation_passages[relation]:
                        stated[frozenset(graph.names[end] for end in graph.ends[relation].tolist())] = query
        return stated


def name_key(name: str) -> str:
    """Return what decides whether two names are one: words without case, accents and punctuation."""
    return phrase_key(fold_name(name))


@part("role", "redirect.oracle")
class OracleRedirect(Role[RedirectTask, Redirect]):
    """Asks the next gold sub-question; without any, where the annotated answers are."""

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        hops = gold_hops(task.question, self.index) if task.question.decomposition else []
        ideas = [query for _, query in ways_to_ask(hops, task.history, self.index)]
        ideas.append(" ".join(task.question.answers[:5]))
        asked = {normalised(text) for text in task.history}
        return Redirect(next((idea for idea in ideas if idea and normalised(idea) not in asked), None))
