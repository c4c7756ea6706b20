"""GraphSearch's roles by gold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gnnrag.index.index import Index
from gnnrag.methods.graphsearch.parsing import parse_triples
from gnnrag.methods.graphsearch.tasks import (
    Check,
    CheckTask,
    Draft,
    DraftTask,
    ExpandTask,
    Expansion,
    Refined,
    RefineTask,
    SubAnswer,
    SubAnswerTask,
)
from gnnrag.roles.base import ReaderTask, ResultT, Role, TaskT
from gnnrag.roles.gold import OracleHop, gold_hops
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reader import OracleReader, OracleReaderConfig
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import words
from gnnrag.types import Passage, Question


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

    config_class = OracleReaderConfig

    def __init__(self, index: Any = None, config: OracleReaderConfig | None = None) -> None:
        self.reader = OracleReader(config=config)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        answer = self.reader.read(ReaderTask(task.question, task.passages))
        return Draft(f"{answer.thought}\nAnswer: {answer.text}", answer.text)
