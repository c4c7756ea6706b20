"""GraphSearch's roles by rules, and by gold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gnnrag.graphs.linking import stems
from gnnrag.index.index import Index
from gnnrag.methods.graphsearch.prompted import parse_triples
from gnnrag.methods.graphsearch.tasks import (
    Check,
    CheckTask,
    Draft,
    DraftTask,
    ExpandTask,
    Expansion,
    Grounded,
    GroundTask,
    Refined,
    RefineTask,
    SubAnswer,
    SubAnswerTask,
)
from gnnrag.parts import ready
from gnnrag.roles.base import ReaderTask, ResultT, Role, TaskT, ThoughtsTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.gold import OracleHop, gold_hops
from gnnrag.roles.offline_reader.reader import OfflineReader, OfflineReaderConfig
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reader import OracleReader
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import words
from gnnrag.text.subqueries import answers_by_reference, answers_by_variable, fill, without_placeholders
from gnnrag.types import Passage, Question


class OfflineGrounder(Role[GroundTask, Grounded]):
    """Fills references with the answers of the sub-queries that they name; one without an answer stays."""

    def __init__(self, index: Any = None, config: None = None) -> None:
        pass

    async def __call__(self, task: GroundTask, session: Session) -> Grounded:
        """See `Role`."""
        is_graph = task.side == "relational"
        answers = answers_by_variable(task.history) if is_graph else answers_by_reference(task.history)
        if is_graph:  # inside the quotes of a triple
            answers = {k: answer.replace("\\", "\\\\").replace('"', '\\"') for k, answer in answers.items()}
        return Grounded(fill(task.query, answers, of_variables=is_graph))


@dataclass
class OfflineSubAnswererConfig:
    """Settings of `OfflineSubAnswerer`."""

    frontier: int = 1  # passages that bridges are looked for in when the sub-query names nothing that was retrieved
    read: int = 5  # passages that a span is looked for in


class OfflineSubAnswerer(Role[SubAnswerTask, SubAnswer]):
    """Answers with what leads on: a name in the passage about the thing asked of, for which the index has a passage."""

    # Where there is none that the question and the earlier answers lack, the offline reader answers.

    config_class = OfflineSubAnswererConfig
    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: OfflineSubAnswererConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineSubAnswererConfig()
        self.finder, self.reader = BridgeFinder(index), OfflineReader()

    async def __call__(self, task: SubAnswerTask, session: Session) -> SubAnswer:
        """See `Role`."""
        query, ids = without_placeholders(task.query), task.view.ids
        if not ids:
            return SubAnswer()
        known = set(ids)
        named = [a.passage for a in self.finder.read(query).anchors if self.index.ids[a.passage] in known]
        sources = named or [self.index.position[id_] for id_ in ids[: self.config.frontier]]
        question = self.finder.read(task.question.text)
        given = {normalised(item.answer) for item in task.history if item.answer}
        for bridge in self.finder.bridges(question, sources, named):
            if normalised(bridge.name) not in given:
                return SubAnswer(bridge.name)
        asked = replace(task.question, text=query)
        return SubAnswer(self.reader.read(ReaderTask(asked, self.index.lookup(ids[: self.config.read]))).text)


@dataclass
class OfflineRefinerConfig:
    """Settings of `OfflineRefiner`."""

    kept: int = 6  # sentences or facts of a refined context
    read: int = 10  # passages, and three times as many facts, that they are looked for in


class OfflineRefiner(Role[RefineTask, Refined]):
    """Keeps what is nearest to the query by shared stems, best first, ties in the order of retrieval."""

    # It rests on the passages about the things that the query names, where they were retrieved.

    config_class = OfflineRefinerConfig
    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: OfflineRefinerConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineRefinerConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: RefineTask, session: Session) -> Refined:
        """See `Role`."""
        query = without_placeholders(task.query)
        named = [self.index.ids[a.passage] for a in self.finder.read(query).anchors]
        known = set(task.view.ids)
        support = tuple(dict.fromkeys(id_ for id_ in named if id_ in known))
        lines = [(fact.text or fact.id) for fact in task.view.facts[: 3 * self.config.read]]
        shown = sorted(task.view.passages[: self.config.read], key=lambda p: p.id not in support)
        graph = self.index.hierarchy
        for passage in shown:
            position = self.index.position[passage.id]
            lines += [" ".join(graph.sentences[s].split()) for s in graph.sentences_of(position).tolist()]
        wanted = set(stems(words(query)))
        lines = sorted(dict.fromkeys(lines), key=lambda line: -len(wanted & set(stems(words(line)))))
        return Refined("\n".join(lines[: self.config.kept]), support)


class OfflineDrafter(Role[DraftTask, Draft]):
    """The answer of the offline reader, with how it was found as the draft."""

    config_class = OfflineReaderConfig

    def __init__(self, index: Any = None, config: OfflineReaderConfig | None = None) -> None:
        self.reader = OfflineReader(config=config)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        answer = self.reader.read(ReaderTask(task.question, task.passages))
        return Draft(f"{answer.thought}\nAnswer: {answer.text}", answer.text, answer.flags)


class OfflineEvidenceCheck(Role[CheckTask, Check]):
    """Accepts when the passages about what the question names, and its bridges, are among those shown."""

    config_class = OfflineThoughts
    stages = OfflineThoughts.reads

    def __init__(self, index: Index, config: OfflineThoughts | None = None) -> None:
        self.thoughts = ready(config or OfflineThoughts(), index=index)

    async def __call__(self, task: CheckTask, session: Session) -> Check:
        """See `Role`."""
        missing = self.thoughts.think(ThoughtsTask(task.question, task.passages)).fast
        return Check("reject", f"missing: {missing}") if missing else Check("accept", "nothing is missing")


class OfflineExpander(Role[ExpandTask, Expansion]):
    """Asks for what the passages lack, see `OfflineThoughts`."""

    config_class = OfflineThoughts
    stages = OfflineThoughts.reads

    def __init__(self, index: Index, config: OfflineThoughts | None = None) -> None:
        self.thoughts = ready(config or OfflineThoughts(), index=index)

    async def __call__(self, task: ExpandTask, session: Session) -> Expansion:
        """See `Role`."""
        # Sub-queries name what they ask about, so what they asked for is not taken for asked unless it was found.
        found = self.thoughts.think(ThoughtsTask(task.question, task.passages))
        return Expansion(tuple(query for query in (found.fast, found.slow) if query))


# ------------------------------------------------------------------------------------------------------------ by gold
class GoldModule(Role[TaskT, ResultT]):
    """What the oracle's modules share: the gold hops of a question."""

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    def missing(self, question: Question, passages: Iterable[Passage]) -> list[OracleHop]:
        """Return the gold hops whose passage is not among those given, in reasoning order."""
        shown = {passage.id for passage in passages}
        return [hop for hop in gold_hops(question, self.index) if hop.gold not in shown]


class OracleRefiner(GoldModule[RefineTask, Refined]):
    """The sentences of gold passages that hold what is found there, else their first one."""

    stages = ("hierarchy",)

    async def __call__(self, task: RefineTask, session: Session) -> Refined:
        """See `Role`."""
        known = set(task.view.ids)
        lines, support = [], []
        graph = self.index.hierarchy
        for hop in gold_hops(task.question, self.index):
            if hop.gold not in known:
                continue
            support.append(hop.gold)
            position = self.index.position[hop.gold]
            sentences = [" ".join(graph.sentences[s].split()) for s in graph.sentences_of(position).tolist()]
            answer = f" {' '.join(words(hop.answer))} "
            telling = [s for s in sentences if answer.strip() and answer in f" {' '.join(words(s))} "]
            lines += (telling or sentences)[:1]
        return Refined("\n".join(lines), tuple(support))


class OracleSubAnswerer(GoldModule[SubAnswerTask, SubAnswer]):
    """The gold answer of the hop that is asked for; where one hop's query is part of another's, of the longer one."""

    async def __call__(self, task: SubAnswerTask, session: Session) -> SubAnswer:
        """See `Role`."""
        asked = normalised(_unquoted(task.query) if task.side == "relational" else task.query)
        hops = [hop for hop in gold_hops(task.question, self.index) if normalised(hop.query) in asked]
        return SubAnswer(max(hops, key=lambda hop: len(normalised(hop.query))).answer if hops else "")


class OracleEvidenceCheck(GoldModule[CheckTask, Check]):
    """Accepts when all gold passages are among those shown."""

    async def __call__(self, task: CheckTask, session: Session) -> Check:
        """See `Role`."""
        missing = [hop.gold for hop in self.missing(task.question, task.passages)]
        return Check("reject", f"missing: {', '.join(missing)}") if missing else Check("accept", "all gold is here")


class OracleExpander(GoldModule[ExpandTask, Expansion]):
    """Asks for the gold hops that are missing; what was asked already is asked with its answer in it."""

    async def __call__(self, task: ExpandTask, session: Session) -> Expansion:
        """See `Role`."""
        earlier = {normalised(query) for query in task.earlier}
        queries = []
        for hop in self.missing(task.question, task.passages):
            title = self.index.passages[self.index.position[hop.gold]].title
            again = f"{hop.query} {hop.answer} {title}".strip()
            queries.append(again if normalised(hop.query) in earlier else hop.query)
        return Expansion(tuple(queries))


def _unquoted(query: str) -> str:
    """Return the words of a list of triples, in which quotation marks are escaped; other text as it is."""
    try:
        return " ".join(part for triple in parse_triples(query) for part in triple)
    except MalformedError:
        return query


class OracleDrafter(Role[DraftTask, Draft]):
    """The answer of the oracle reader to the passages shown; `config` says which evidence is required."""

    config_class = OracleReader

    def __init__(self, index: Any = None, config: OracleReader | None = None) -> None:
        self.reader = config or OracleReader()

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        answer = self.reader.read(ReaderTask(task.question, task.passages))
        return Draft(f"{answer.thought}\nAnswer: {answer.text}", answer.text)
