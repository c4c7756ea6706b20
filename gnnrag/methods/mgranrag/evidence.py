"""MGranRAG's evidence extraction: which sentences support the question; prompted, by rules, and by gold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import Field

from gnnrag.graphs.linking import stems
from gnnrag.methods.mgranrag.graph import EvidenceUnit
from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_element, together
from gnnrag.roles.base import Role
from gnnrag.roles.bridges import BridgingRole
from gnnrag.roles.oracle import gold_hops
from gnnrag.roles.parsing import ReplyModel, Rows, read_as
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.normalise import drop_qualifier, words
from gnnrag.types import Passage, Question


@dataclass(frozen=True, slots=True)
class ShownSentence:
    """A sentence that is read for evidence, and the id of its passage."""

    text: str
    passage: str


@dataclass(frozen=True, slots=True)
class EvidenceTask:
    """Ask which sentences support a question or its sub-questions (MGranRAG)."""

    question: Question
    parts: tuple[str, ...]  # its sub-questions
    sentences: tuple[ShownSentence, ...]  # what is read, passage by passage, best passage first
    facts: tuple[str, ...] = ()  # evidence found earlier, best first


@dataclass(frozen=True, slots=True)
class ExtractedEvidence:
    """The supporting sentences; none where no sentence helps, or where every reply was malformed."""

    items: tuple[EvidenceUnit, ...] = ()  # `node`: the position in `EvidenceTask.sentences`
    flags: tuple[str, ...] = ()


FIRST_QUESTION = 10  # number of the question in the prompt; sub-questions follow. The example has lower numbers.


class EvidenceRow(ReplyModel):
    """A supporting sentence: number, text, and for each question it helps `T` (answers it) or `P` (is a clue)."""

    id: int
    text: str = ""
    labels: dict[int, Literal["T", "P"]]
    phrases: list[str] = Field(default_factory=list)


class EvidenceReply(ReplyModel):
    evidence: Annotated[list[EvidenceRow], Rows]


@part("role", "evidence_extractor.prompted")
class PromptedEvidenceExtractor(PromptedPart[EvidenceTask, ExtractedEvidence]):
    """Asks which sentences support which questions. A reply that does not parse gives nothing (`evidence_failed`).

    A small model labels each sentence for the question, and perhaps for its first four sub-questions.
    """

    max_tokens: int = 2048

    prompt_name = "evidence"

    async def __call__(self, task: EvidenceTask, session: Session) -> ExtractedEvidence:
        questions = [task.question.text, *task.parts]
        lines = (f"{number}. {inline(q)}" for number, q in enumerate(questions, start=FIRST_QUESTION))
        facts = "\n".join(f"{n}. {inline(f)}" for n, f in enumerate(task.facts)) or "(none yet)"
        passages = render_sentences(task.sentences)
        values = {"questions": "\n".join(lines), "facts": notes_element(facts), "passages": passages}
        shown = [sentence.text for sentence in task.sentences]
        outcome = await self.ask(session, values, lambda text: parse_evidence(text, shown, len(task.parts)))
        if outcome.value is None:
            return ExtractedEvidence(flags=("evidence_failed",))
        return ExtractedEvidence(tuple(sorted(outcome.value, key=lambda unit: unit.node)))


def render_sentences(sentences: Sequence[ShownSentence]) -> Shown:
    """Return sentences, passage by passage, each on a line with its number."""
    elements = []
    rows = groupby(enumerate(sentences), key=lambda row: row[1].passage)
    for number, (_, group) in enumerate(rows, start=1):
        text = "\n".join(f"[{i}] {inline(sentence.text)}" for i, sentence in group)
        elements.append(passage_element(Passage("", "", text), number))
    return together(elements)


def parse_evidence(text: str, shown: Sequence[str], num_parts: int) -> tuple[EvidenceUnit, ...]:
    """Return the evidence of a reply: a JSON object with a list `evidence`, else MalformedError.

    It skips sentences that were not `shown`, labels of unknown questions, and all but the first record of a sentence.
    """
    evidence: dict[int, EvidenceUnit] = {}
    for record in read_as(EvidenceReply, text).evidence:
        numbers = {number - FIRST_QUESTION: label for number, label in record.labels.items()}
        labels = {n: label for n, label in sorted(numbers.items()) if 0 <= n <= num_parts}
        if labels and 0 <= record.id < len(shown):
            phrases = tuple(dict.fromkeys(name for phrase in record.phrases if (name := phrase.strip())))
            sentence = record.text.strip() or shown[record.id]
            evidence.setdefault(record.id, EvidenceUnit(record.id, sentence, phrases, labels))
    return tuple(evidence.values())


@part("role", "evidence_extractor.offline")
class OfflineEvidenceExtractor(BridgingRole[EvidenceTask, ExtractedEvidence]):
    """Labels two kinds of sentences. An anchor is a passage whose title the question names.

    1. In each anchor, the first sentence that names a bridge, with the bridge as key phrase: `P` for the question, `T`
    for sub-question k, taken to be about anchor k; without that sub-question, `T` for the question.
    2. In each anchor and bridge's passage, the sentence that shares most words with the question, names aside (`T`).
    """

    max_bridges: int = 3  # bridges followed
    frontier: int = 2  # passages searched for bridges if the question names no title

    async def __call__(self, task: EvidenceTask, session: Session) -> ExtractedEvidence:
        question = self.finder.read(task.question.text)
        shown: dict[int, list[int]] = {}
        for i, sentence in enumerate(task.sentences):
            shown.setdefault(self.index.position[sentence.passage], []).append(i)
        anchors = [a.passage for a in question.anchors]
        bridges = self.finder.bridges(question, anchors or list(shown)[: self.frontier])[: self.max_bridges]
        evidence: dict[int, EvidenceUnit] = {}
        for bridge in bridges:
            for i in shown.get(bridge.source, ()):
                if _names(task.sentences[i].text, bridge.name):
                    number = anchors.index(bridge.source) + 1 if bridge.source in anchors else 0
                    labels = {0: "P", number: "T"} if 0 < number <= len(task.parts) else {0: "T"}
                    evidence[i] = _as_evidence(self.index, task, i, labels, bridge.name)
                    break
        for passage in dict.fromkeys([*anchors, *(b.passage for b in bridges)]):
            best = max(
                shown.get(passage, ()),
                key=lambda i: (len(question.wanted & set(stems(words(task.sentences[i].text)))), -i),
                default=None,
            )
            if best is not None and best not in evidence:
                evidence[best] = _as_evidence(self.index, task, best, {0: "T"})
        return ExtractedEvidence(tuple(evidence[i] for i in sorted(evidence)))


def _as_evidence(index: Any, task: EvidenceTask, i: int, labels: Mapping[int, str], name: str = "") -> EvidenceUnit:
    """Return a sentence as evidence; its key phrases are the title of its passage, and a name."""
    sentence = task.sentences[i]
    title = drop_qualifier(index.passages[index.position[sentence.passage]].title)
    phrases = tuple(phrase for phrase in (title, name) if phrase)
    return EvidenceUnit(i, " ".join(sentence.text.split()), phrases, labels)


def _names(sentence: str, name: str) -> bool:
    return f" {' '.join(words(name))} " in f" {' '.join(words(sentence))} "


@part("role", "evidence_extractor.oracle")
class OracleEvidenceExtractor(Role[EvidenceTask, ExtractedEvidence]):
    """Labels, in each gold passage that is read, up to two sentences with the hop's answer, else the first two.

    The last hop answers the question (`T`), the others are clues to it (`P`) and answer their own sub-question.
    """

    async def __call__(self, task: EvidenceTask, session: Session) -> ExtractedEvidence:
        hops = gold_hops(task.question, self.index)
        evidence = {}
        for number, hop in enumerate(hops, start=1):
            shown = [i for i, s in enumerate(task.sentences) if s.passage == hop.gold]
            with_answer = [i for i in shown if words(hop.answer) and _names(task.sentences[i].text, hop.answer)]
            own = {0: "T" if number == len(hops) else "P", number: "T"}
            labels = own if number <= len(task.parts) else {0: "T"}
            for i in (with_answer or shown)[:2]:
                evidence[i] = _as_evidence(self.index, task, i, labels, hop.answer)
        return ExtractedEvidence(tuple(evidence[i] for i in sorted(evidence)))
