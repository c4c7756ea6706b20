"""GraphSearch's roles by rules, and by gold."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from gnnrag.graphs.linking import stems
from gnnrag.methods.graphsearch.roles import (
    Check,
    ContextTask,
    Draft,
    Expansion,
    SubQueryTask,
    TextResult,
    parse_triples,
)
from gnnrag.parts import part, set_up
from gnnrag.roles.base import ReaderTask, Role, ThoughtsTask
from gnnrag.roles.bridges import BridgingRole
from gnnrag.roles.oracle import OracleHop, OracleReader, gold_hops
from gnnrag.roles.parsing import MalformedError
from gnnrag.roles.thoughts import ThinkingRole
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import words
from gnnrag.text.subqueries import answers_by_reference, answers_by_variable, fill, without_placeholders
from gnnrag.types import Passage, Question


@part("role", "grounder.offline")
class OfflineGrounder(Role[SubQueryTask, TextResult]):
    """Fills references with the answers of the sub-queries that they name; one without an answer stays."""

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        is_graph = task.side == "relational"
        answers = answers_by_variable(task.history) if is_graph else answers_by_reference(task.history)
        if is_graph:  # inside the quotes of a triple
            answers = {k: answer.replace("\\", "\\\\").replace('"', '\\"') for k, answer in answers.items()}
        return TextResult(fill(task.query, answers, of_variables=is_graph))


@part("role", "sub_answerer.offline")
class OfflineSubAnswerer(BridgingRole[SubQueryTask, TextResult]):
    """Answers with what leads on: a name in the passage about the thing asked of, for which the index has a passage.

    Where there is none that the question and the earlier answers lack, the reader answers.
    """

    frontier: int = 1  # passages that bridges are looked for in when the sub-query names nothing that was retrieved
    read: int = 5  # passages that a span is looked for in

    roles: ClassVar[Any]  # set by `build`

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        query, ids = without_placeholders(task.query), task.view.ids
        if not ids:
            return TextResult()
        known = set(ids)
        named = [a.passage for a in self.finder.read(query).anchors if self.index.ids[a.passage] in known]
        sources = named or [self.index.position[id_] for id_ in ids[: self.frontier]]
        question = self.finder.read(task.question.text)
        given = {normalised(item.answer) for item in task.history if item.answer}
        for bridge in self.finder.bridges(question, sources, named):
            if normalised(bridge.name) not in given:
                return TextResult(bridge.name)
        asked = ReaderTask(replace(task.question, text=query), self.index.lookup(ids[: self.read]))
        return TextResult((await self.roles["reader"](asked, session)).text)


@part("role", "refiner.offline")
class OfflineRefiner(BridgingRole[SubQueryTask, TextResult]):
    """Takes what is nearest to the query by shared stems, best first, ties in the order of retrieval.

    It rests on the passages about the things that the query names, where they were retrieved.
    """

    kept: int = 6  # sentences or facts of a refined context
    read: int = 10  # passages, and three times as many facts, that they are looked for in

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        query = without_placeholders(task.query)
        named = [self.index.ids[a.passage] for a in self.finder.read(query).anchors]
        known = set(task.view.ids)
        support = tuple(dict.fromkeys(id_ for id_ in named if id_ in known))
        lines = [(fact.text or fact.id) for fact in task.view.facts[: 3 * self.read]]
        for passage in sorted(task.view.passages[: self.read], key=lambda p: p.id not in support):
            lines += _sentences(self.index, passage.id)
        wanted = set(stems(words(query)))
        lines = sorted(dict.fromkeys(lines), key=lambda line: -len(wanted & set(stems(words(line)))))
        return TextResult("\n".join(lines[: self.kept]), support)


def _sentences(index: Any, id_: str) -> list[str]:
    graph = index.hierarchy
    return [" ".join(graph.sentences[s].split()) for s in graph.passage_sentences[index.position[id_]].tolist()]


@part("role", "drafter.offline")
class OfflineDrafter(Role[ContextTask, Draft]):
    """The answer of the reader, with how it was found as the draft."""

    roles: ClassVar[Any]  # set by `build`

    def reader(self) -> Any:
        return self.roles["reader"]

    async def __call__(self, task: ContextTask, session: Session) -> Draft:
        answer = await self.reader()(ReaderTask(task.question, task.passages), session)
        return Draft(f"{answer.thought}\nAnswer: {answer.text}", answer.text, answer.flags)


@part("role", "drafter.oracle")
class OracleDrafter(OfflineDrafter):
    """The answer of the oracle reader to the passages shown."""

    def reader(self) -> Any:
        return set_up(OracleReader())


@part("role", "evidence_check.offline")
class OfflineEvidenceCheck(ThinkingRole[ContextTask, Check]):
    """Accepts when the passages shown lack nothing."""

    async def __call__(self, task: ContextTask, session: Session) -> Check:
        missing = self.thoughts.think(ThoughtsTask(task.question, task.passages)).fast
        return Check("reject", f"missing: {missing}") if missing else Check("accept", "nothing is missing")


@part("role", "expander.offline")
class OfflineExpander(ThinkingRole[ContextTask, Expansion]):
    """Asks for what the passages lack."""

    async def __call__(self, task: ContextTask, session: Session) -> Expansion:
        # Sub-queries name what they ask about, so what they asked for is not taken for asked unless it was found.
        thoughts = self.thoughts.think(ThoughtsTask(task.question, task.passages))
        return Expansion(tuple(query for query in (thoughts.fast, thoughts.slow) if query))


# ------------------------------------------------------------------------------------------------------------ by gold
def _missing(index: Any, question: Question, passages: Iterable[Passage]) -> list[OracleHop]:
    """Return the gold hops whose passage is not among those given, in reasoning order."""
    shown = {passage.id for passage in passages}
    return [hop for hop in gold_hops(question, index) if hop.gold not in shown]


@part("role", "refiner.oracle")
class OracleRefiner(Role[SubQueryTask, TextResult]):
    """The sentences of gold passages that hold what is found there, else their first one."""

    reads = ("hierarchy",)

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        known = set(task.view.ids)
        lines, support = [], []
        for hop in gold_hops(task.question, self.index):
            if hop.gold not in known:
                continue
            support.append(hop.gold)
            sentences, answer = _sentences(self.index, hop.gold), f" {' '.join(words(hop.answer))} "
            telling = [s for s in sentences if answer.strip() and answer in f" {' '.join(words(s))} "]
            lines += (telling or sentences)[:1]
        return TextResult("\n".join(lines), tuple(support))


@part("role", "sub_answerer.oracle")
class OracleSubAnswerer(Role[SubQueryTask, TextResult]):
    """The gold answer of the hop that is asked for; where one hop's query is part of another's, of the longer one."""

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        query = task.query
        if task.side == "relational":  # the words of a list of triples, in which quotation marks are escaped
            with suppress(MalformedError):
                query = " ".join(text for triple in parse_triples(query) for text in triple)
        hops = [hop for hop in gold_hops(task.question, self.index) if normalised(hop.query) in normalised(query)]
        return TextResult(max(hops, key=lambda hop: len(normalised(hop.query))).answer if hops else "")


@part("role", "evidence_check.oracle")
class OracleEvidenceCheck(Role[ContextTask, Check]):
    """Accepts when all gold passages are among those shown."""

    async def __call__(self, task: ContextTask, session: Session) -> Check:
        missing = [hop.gold for hop in _missing(self.index, task.question, task.passages)]
        return Check("reject", f"missing: {', '.join(missing)}") if missing else Check("accept", "all gold is here")


@part("role", "expander.oracle")
class OracleExpander(Role[ContextTask, Expansion]):
    """Asks for the gold hops that are missing; what was asked already is asked with its answer in it."""

    async def __call__(self, task: ContextTask, session: Session) -> Expansion:
        earlier = {normalised(query) for query in task.earlier}
        queries = []
        for hop in _missing(self.index, task.question, task.passages):
            title = self.index.passages[self.index.position[hop.gold]].title
            again = f"{hop.query} {hop.answer} {title}".strip()
            queries.append(again if normalised(hop.query) in earlier else hop.query)
        return Expansion(tuple(queries))
