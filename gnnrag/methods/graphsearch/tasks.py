"""What GraphSearch asks its roles, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnrag.llm.base import estimate_tokens
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.text.subqueries import HistoryItem
from gnnrag.types import Hit, Passage, Question

Side = Literal["semantic", "relational"]  # sub-queries are questions with references `#k`, or triples with `Entity#k`
Judgement = Literal["accept", "reject", "unknown"]


@dataclass(frozen=True, slots=True)
class View:
    """What a side sees of one retrieval: passages, or entities and relations, or both; best first."""

    passages: tuple[Passage, ...] = ()
    facts: tuple[Hit, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The passages, then those behind the facts."""
        return tuple(dict.fromkeys([*(p.id for p in self.passages), *(s for fact in self.facts for s in fact.sources)]))

    @property
    def text(self) -> str:
        """The passages, a blank line between them, then the facts, a line each."""
        facts = "\n".join(fact.text or fact.id for fact in self.facts)
        return "\n\n".join([*(p.content for p in self.passages), *([facts] if facts else [])])

    def cut(self, limit: int) -> View:
        """Return at most `limit` estimated tokens: passages go first, from the end, then relations, then entities."""
        relations = [fact for fact in self.facts if fact.kind != "entity"]
        entities = [fact for fact in self.facts if fact.kind == "entity"]
        passages = list(self.passages)
        sizes = {id(x): estimate_tokens(x.content) for x in passages}
        sizes |= {id(x): estimate_tokens(x.text or x.id) for x in self.facts}
        spare = sum(sizes[id(x)] for x in [*passages, *self.facts]) - limit
        for group in (passages, relations, entities):
            while spare > 0 and group:
                spare -= sizes[id(group.pop())]
        left = {id(fact) for fact in [*relations, *entities]}
        return View(tuple(passages), tuple(fact for fact in self.facts if id(fact) in left))

    def shown(self) -> Shown:
        """Return the passages as elements, and the entities and relations as notes, a line each."""
        parts = [passage_elements(self.passages)] if self.passages or not self.facts else []
        if self.facts:
            lines = (f"{fact.kind}: {inline(fact.text or fact.id)}" for fact in self.facts)
            parts.append(notes_element("\n".join(lines)))
        return together(parts, "\n\n")


@dataclass(frozen=True, slots=True)
class GroundTask:
    """Ask for a sub-query with its references filled in from the answers before it (QG)."""

    question: Question
    side: Side
    query: str
    plan: str  # the decomposition as it was written
    history: tuple[HistoryItem, ...]  # earlier sub-queries
    labels: str = "plain"  # how they are shown, see `render_history`


@dataclass(frozen=True, slots=True)
class Grounded:
    """The sub-query that stands alone; unchanged where nothing could be filled in."""

    query: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefineTask:
    """Ask for what helps with a query in what was retrieved: a paragraph, or triples on the relational side (CR)."""

    question: Question
    side: Side
    query: str
    view: View


@dataclass(frozen=True, slots=True)
class Refined:
    """The refined context, and the passages that it rests on, where the implementation knows them."""

    text: str = ""
    support: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubAnswerTask:
    """Ask for the interim answer of a sub-query (ANS)."""

    question: Question
    side: Side
    query: str
    history: tuple[HistoryItem, ...]  # earlier sub-queries
    context: str  # refined or raw
    view: View  # what was retrieved, for implementations that read it themselves
    short: bool = False  # ask for a short answer first
    labels: str = "plain"  # how the history is shown, see `render_history`


@dataclass(frozen=True, slots=True)
class SubAnswer:
    """An interim answer; empty where there is none."""

    text: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftTask:
    """Ask for a step-by-step answer from a rendered context (LD, FIN)."""

    question: Question
    context: str  # history of one side, or everything for the final answer
    passages: tuple[Passage, ...] = ()  # those behind it, best first
    final: bool = False  # this is the final answer
    answer_line: bool = False  # it shall end with a line that holds the short answer


@dataclass(frozen=True, slots=True)
class Draft:
    """The reasoning, and the short answer where a line gives one (else the reasoning again)."""

    text: str = ""
    answer: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckTask:
    """Ask whether the context supports a draft (EV); `parse` says how a reply is read, see `parse_verdict`."""

    question: Question
    context: str
    draft: str
    passages: tuple[Passage, ...] = ()
    parse: str = "last"


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict and its reasons."""

    verdict: Judgement
    analysis: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpandTask:
    """Ask for queries that fill the gaps (QE)."""

    question: Question
    context: str  # the rendered history
    draft: str  # the draft that was judged
    analysis: str  # why it was judged so
    passages: tuple[Passage, ...] = ()  # what is known, best first
    earlier: tuple[str, ...] = ()  # queries sent already
    fallback: str = "drop"  # `drop` a reply that does not parse, or take it `raw` as one query
    parsing: str = "repaired"  # how a reply is read, see `parse_expansion`


@dataclass(frozen=True, slots=True)
class Expansion:
    """Further queries; none where nothing is missing, or where the reply did not parse."""

    queries: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
