"""MGranRAG: iterative multi-granular retrieval on the contextual hierarchical graph (AAAI 2026); its evidence role."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from gnnrag.common.waiting import Worker
from gnnrag.graphs.linking import stems
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.index.index import Index
from gnnrag.llm.base import estimate_tokens
from gnnrag.methods.base import Method, State
from gnnrag.methods.mgranrag.graph import (
    EvidenceMemory,
    EvidenceUnit,
    MGranRAGConfig,
    Overlay,
    PhraseAligner,
    Seeds,
    confidence,
    is_kept,
    personalisation,
    resolve_preset,
)
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_element, together
from gnnrag.roles.base import DecomposeTask, Role
from gnnrag.roles.bridges import Bridge, BridgeFinder, OpenQuestion
from gnnrag.roles.gold import gold_hops
from gnnrag.roles.parsing import json_objects, json_value, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.session import Session
from gnnrag.text.normalise import drop_qualifier, words
from gnnrag.types import Evidence, Passage, Query, Question, Ranking


@dataclass(frozen=True, slots=True)
class ShownSentence:
    """A sentence of a passage that is read for evidence."""

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
class FoundEvidence:
    """A sentence that helps."""

    sentence: int  # position in `EvidenceTask.sentences`
    text: str  # with its pronouns resolved
    phrases: tuple[str, ...] = ()  # its key phrases
    labels: tuple[tuple[int, str], ...] = ()  # (question number, label), see `EvidenceUnit`


@dataclass(frozen=True, slots=True)
class EvidenceFound:
    """The sentences that help; none where no sentence does, or where every reply was malformed."""

    items: tuple[FoundEvidence, ...] = ()
    flags: tuple[str, ...] = ()


FIRST_QUESTION = 10  # number of the question in the prompt; its parts follow. Example numbers are below.
_REPAIR = 0.6  # least similarity at which a sentence with an unknown number is taken for one that was shown
# A reply may hold anything: how many such sentences are looked up, how long one is, with how many it is compared.
_REPAIRS, _LONGEST, _COMPARED = 20, 2000, 50
_LABELS = {"t": "T", "ts": "T", "full": "T", "p": "P", "ps": "P", "partial": "P"}
_NUMBER = re.compile(r"(?<!\d)(\d{1,9})(?!\d)\W*+$")
_BLANK = re.compile(r"^\W*+(?:(?:n/?a|none)\W*+)?$", re.IGNORECASE)


@dataclass
class PromptedEvidenceConfig(PromptedConfig):
    """Settings of `PromptedEvidenceExtractor`."""

    max_tokens: int = 2048
    block_tokens: int = 24000  # more sentences than this are read in several calls, estimated


class PromptedEvidenceExtractor(PromptedRole[EvidenceTask, EvidenceFound]):
    """Asks which sentences support which questions; a call for all of them, or for blocks where they are too many."""

    # Replies that do not parse give nothing (`evidence_failed`, or `evidence_partial` when other blocks succeeded).

    role = "evidence_extractor"
    prompt = "evidence"
    config_class = PromptedEvidenceConfig

    async def __call__(self, task: EvidenceTask, session: Session) -> EvidenceFound:
        """See `Role`."""
        questions = [task.question.text, *task.parts]
        lines = (f"{number}. {inline(q)}" for number, q in enumerate(questions, start=FIRST_QUESTION))
        facts = "\n".join(f"{n}. {inline(f)}" for n, f in enumerate(task.facts)) or "(none yet)"
        values = {"questions": "\n".join(lines), "facts": notes_element(facts)}
        blocks = list(_blocks(task.sentences, self.config.block_tokens))
        batch = [{**values, "passages": render_sentences(task.sentences, block)} for block in blocks]

        def parse(text: str) -> tuple[FoundEvidence, ...]:
            return parse_evidence(text, [s.text for s in task.sentences], len(task.parts))

        outcomes = await self.ask_many(session, batch, parse)
        found: dict[int, FoundEvidence] = {}
        for outcome in outcomes:
            for item in outcome.value or ():
                found.setdefault(item.sentence, item)
        failed = sum(bool(o.failure) for o in outcomes)
        flags = () if not failed else ("evidence_failed" if failed == len(outcomes) else "evidence_partial",)
        return EvidenceFound(tuple(found[i] for i in sorted(found)), flags)


def render_sentences(sentences: Sequence[ShownSentence], chosen: Iterable[int]) -> Shown:
    """Return the chosen sentences, passage by passage, each on a line with its number."""
    elements = []
    for number, (_, rows) in enumerate(groupby(chosen, key=lambda i: sentences[i].passage), start=1):
        text = "\n".join(f"[{i}] {inline(sentences[i].text)}" for i in rows)
        elements.append(passage_element(Passage("", "", text), number))
    return together(elements)


def parse_evidence(text: str, shown: Sequence[str], num_parts: int) -> tuple[FoundEvidence, ...]:
    """Return the evidence of a reply: a JSON object with `evidence`, or what can be saved of a torn one.

    Unknown question numbers are ignored; of two records of one sentence the first counts; a record of a sentence number
    not `shown` is given to the most similar sentence that was, if any is similar enough. Raises MalformedError where
    there is no such object, nor a word that says that there is no evidence.
    """
    text = strip_markup(strip_thinking(text))
    if not text:
        raise MalformedError("empty reply")
    records: list[Any] | None = json_value(text) if text.startswith("[") else None
    if not isinstance(records, list):
        objects = list(json_objects(text))
        records = next((d["evidence"] for d in objects if isinstance(d.get("evidence"), list)), None)
        if records is None and not _BLANK.match(text):
            records = [d for d in objects if "labels" in d]
            if not records:
                raise MalformedError("no JSON object with a list 'evidence'")
    found: dict[int, FoundEvidence] = {}
    left = _REPAIRS
    for record in records or ():
        if not isinstance(record, Mapping):
            continue
        words = str(record.get("text") or record.get("sentence") or "").strip()
        number = _sentence_number(record.get("id", record.get("sid")), shown)
        if number is None and left > 0:
            left -= 1
            number = _most_similar(words, shown)
        if number is not None and (item := _item(record, number, words or shown[number], num_parts)):
            found.setdefault(item.sentence, item)
    return tuple(found.values())


def _item(record: Mapping[str, Any], number: int, text: str, num_parts: int) -> FoundEvidence | None:
    labels = record.get("labels")
    if not isinstance(labels, Mapping):
        return None
    read: dict[int, str] = {}
    for key, value in labels.items():
        match, label = _NUMBER.search(str(key)), _LABELS.get(str(value).strip().lower())
        if match and label and 0 <= int(match[1]) - FIRST_QUESTION <= num_parts:
            read[int(match[1]) - FIRST_QUESTION] = label
    phrases = record.get("phrases")
    names = [str(p).strip() for p in phrases if isinstance(p, str)] if isinstance(phrases, list) else []
    kept = tuple(dict.fromkeys(n for n in names if not _BLANK.match(n)))
    return FoundEvidence(number, text, kept, tuple(sorted(read.items()))) if read else None


def _sentence_number(value: Any, shown: Sequence[str]) -> int | None:
    match = _NUMBER.search(str(value))
    return int(match[1]) if match and int(match[1]) < len(shown) else None


def _most_similar(text: str, shown: Sequence[str]) -> int | None:
    """Return the position of the sentence most like a text, the first of equals; None where none is similar enough."""
    # Comparing takes the product of the lengths, so only the candidates with the highest upper bounds are compared.
    if not text or len(text) > _LONGEST:
        return None
    matchers = {i: difflib.SequenceMatcher(None, text, s) for i, s in enumerate(shown) if len(s) <= _LONGEST}
    bounds = sorted((-m.quick_ratio(), i) for i, m in matchers.items() if m.real_quick_ratio() >= _REPAIR)
    best = (0.0, 0)
    for bound, i in bounds[:_COMPARED]:
        if -bound < max(_REPAIR, best[0]):
            break
        best = max(best, (matchers[i].ratio(), -i))
    return -best[1] if best[0] >= _REPAIR else None


def _blocks(sentences: Sequence[ShownSentence], limit: int) -> Iterable[list[int]]:
    """Cut into runs of at most `limit` estimated tokens; a sentence that is longer stands alone."""
    block: list[int] = []
    used = 0
    for i, sentence in enumerate(sentences):
        size = estimate_tokens(sentence.text) + 4
        if block and used + size > limit:
            yield block
            block, used = [], 0
        block.append(i)
        used += size
    if block:
        yield block


@dataclass
class OfflineEvidenceConfig:
    """Settings of `OfflineEvidenceExtractor`."""

    max_bridges: int = 3  # bridges out of the things that the question names
    frontier: int = 2  # passages that bridges are looked for in when the question names nothing


class OfflineEvidenceExtractor(Role[EvidenceTask, EvidenceFound]):
    """Labels two kinds of sentences.

    1. Of a passage that the question names: those that name a bridge (`P` for the question, `T` for the sub-question
    about that thing), with the bridge as key phrase. 2. Of that passage and of a bridge's passage: the one that shares
    most words with the open part (`T`).
    """

    config_class = OfflineEvidenceConfig
    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: OfflineEvidenceConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineEvidenceConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: EvidenceTask, session: Session) -> EvidenceFound:
        """See `Role`."""
        question = self.finder.read(task.question.text)
        shown: dict[int, list[int]] = {}
        for i, sentence in enumerate(task.sentences):
            shown.setdefault(self.index.position[sentence.passage], []).append(i)
        anchors = [a.passage for a in question.anchors]
        sources = anchors or list(shown)[: self.config.frontier]
        bridges = self.finder.bridges(question, sources)[: self.config.max_bridges]
        found: dict[int, FoundEvidence] = {}
        for bridge in bridges:
            for i in shown.get(bridge.source, ()):
                if _names(task.sentences[i].text, bridge.name):
                    part = anchors.index(bridge.source) + 1 if bridge.source in anchors else 0
                    labels = ((0, "P"), (part, "T")) if 0 < part <= len(task.parts) else ((0, "T"),)
                    found[i] = self._unit(task, i, labels, bridge)
                    break
        for passage in dict.fromkeys([*anchors, *(b.passage for b in bridges)]):
            best = self._best(question, task, shown.get(passage, []))
            if best is not None and best not in found:
                found[best] = self._unit(task, best, ((0, "T"),))
        return EvidenceFound(tuple(found[i] for i in sorted(found)))

    def _best(self, question: OpenQuestion, task: EvidenceTask, sentences: list[int]) -> int | None:
        """Return the sentence that shares most stems with the open part; the first one where none shares any."""
        scored = [(-len(question.wanted & set(stems(words(task.sentences[i].text)))), i) for i in sentences]
        return min(scored)[1] if scored else None

    def _unit(
        self, task: EvidenceTask, i: int, labels: tuple[tuple[int, str], ...], bridge: Bridge | None = None
    ) -> FoundEvidence:
        sentence = task.sentences[i]
        title = drop_qualifier(self.index.passages[self.index.position[sentence.passage]].title)
        names = [title, bridge.name] if bridge else [title]
        return FoundEvidence(i, " ".join(sentence.text.split()), tuple(n for n in names if n), labels)


def _names(sentence: str, name: str) -> bool:
    return f" {' '.join(words(name))} " in f" {' '.join(words(sentence))} "


class OracleEvidenceExtractor(Role[EvidenceTask, EvidenceFound]):
    """For each gold passage that is read: the sentences with the hop's answer, else its first one."""

    # The last hop answers the question (`T`), the others are clues to it (`P`) and answer their own sub-question.

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: EvidenceTask, session: Session) -> EvidenceFound:
        """See `Role`."""
        hops = gold_hops(task.question, self.index)
        found = {}
        for number, hop in enumerate(hops, start=1):
            shown = [i for i, s in enumerate(task.sentences) if s.passage == hop.gold]
            answer = f" {' '.join(words(hop.answer))} "
            telling = [i for i in shown if answer.strip() and answer in f" {' '.join(words(task.sentences[i].text))} "]
            label = (0, "T" if number == len(hops) else "P")
            labels = (label, (number, "T")) if number <= len(task.parts) else ((0, "T"),)
            title = drop_qualifier(self.index.passages[self.index.position[hop.gold]].title)
            phrases = tuple(name for name in (title, hop.answer) if name)
            for i in (telling or shown)[:2]:
                found[i] = FoundEvidence(i, " ".join(task.sentences[i].text.split()), phrases, labels)
        return EvidenceFound(tuple(found[i] for i in sorted(found)))


# --------------------------------------------------------------------------------------------------------- the method
class MGranRAG(Method):
    """Reads the best passages for evidence, and ranks all passages by PageRank from that evidence; T times.

    Needs an index with the hierarchy and, for `phrase_match=embedding`, phrase vectors. Raises ConfigError where a
    switch has an unknown value.
    """

    config_class, role_names = MGranRAGConfig, ("decomposer", "evidence_extractor")
    stages = ("hierarchy", "phrase_vectors", "embeddings")
    top_k, reader_top_k, damping = 200, 5, 0.5
    check_settings = staticmethod(lambda config: resolve_preset(config))

    def __init__(self, index: Any, roles: Any, config: MGranRAGConfig | None = None) -> None:
        c = self.config = resolve_preset(config or MGranRAGConfig())
        self.index, self.graph, self.phrases = index, index.hierarchy, index.question_phrases
        self.decomposer, self.extractor = roles["decomposer"], roles["evidence_extractor"]
        vectors = index.phrase_vectors if c.phrase_match == "embedding" else None
        self.aligner = PhraseAligner(self.graph, vectors, index.embedder, c.phrase_same, bool(c.phrase_folding))
        self.walk = PageRankOperator(self.graph.adjacency, self.damping)
        self.worker = Worker()

    async def start(self, question: Question, session: Session) -> State:
        """Decompose the question."""
        state = State(question, session)
        parts: tuple[str, ...] = ()
        if "decomposition" not in self.config.ablate:
            found = await self.decomposer(DecomposeTask(question), session)
            session.flag("decomposer", *found.flags)
            parts = tuple(sorted(found.parts)) if self.config.subquery_order == "alphabetical" else found.parts
        overlay, phrases = Overlay(self.graph.num_nodes), self.phrases(question.text)
        state.memory.update(parts=parts, phrases=phrases, evidence=EvidenceMemory(), overlay=overlay)
        session.record("decomposition", parts=list(parts))
        return state

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then the question with the evidence read since."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.top_k)]
        if state.round > int(self.config.iterations or 0):
            return []
        before = (state.memory.get("read"), dict(state.memory["evidence"].units))
        await self._read(state)
        if before == (state.memory["read"], state.memory["evidence"].units):
            return []  # the same passages gave the same evidence: the round would repeat itself
        text = state.question.text
        if "augmentation" not in self.config.ablate:
            count, form = len(state.memory["parts"]), str(self.config.query_form)
            text = state.memory["evidence"].augment(text, self._psi(state), count, form)
        return [Query(text, top_k=int(self.config.weights.sim_top_k or self.top_k), kind="augmented")]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Rank all passages by PageRank from the evidence; without evidence the ranking stays as it is."""
        found, evidence = rankings[0], state.memory["evidence"]
        state.memory["ranked"] = state.memory["next"] = list(found.ids)
        if state.round == 0 or not evidence.units:
            return
        scores = found.scores if found.branch == "cosine" else found.normalised()
        similarity = {self.index.position[i]: float(s) for i, s in zip(found.ids, scores, strict=True)}
        rank, overlay = await self.worker(lambda: self._rank(state, similarity)), state.memory["overlay"]
        state.session.record("expansion", nodes=len(overlay.phrases), edges=len(overlay.edges))
        if "ppr" not in self.config.ablate:
            state.memory["previous"] = rank[: self.graph.num_nodes] if len(rank) else None
        if len(rank):
            order = np.argsort(-rank[: self.graph.num_passages], kind="stable")[: self.top_k]
            state.memory["ranked"] = [self.index.ids[p] for p in order.tolist()]
        ranked = state.memory["ranked"]
        state.memory["next"] = ranked if self.config.next_candidates == "ppr" else state.memory["next"]
        state.session.record("mgranrag", round=state.round, before=list(found.ids[:10]), after=ranked[:10])

    async def select(self, state: State) -> Evidence:
        """The last round's ranking; the reader sees its first passages."""
        ranked = state.memory.get("ranked", [])
        return Evidence(ranked[: self.top_k], ranked[: self.reader_top_k])

    async def _read(self, state: State) -> None:
        """Ask for the evidence in the candidates and take it into memory."""
        memory, evidence, limit = state.memory, state.memory["evidence"], self.config.candidates
        chosen = [self.index.position[i] for i in memory["next"]]
        if self.config.skip_read != "none":
            chosen = chosen[:limit] if self.config.skip_read == "skip" else chosen
            chosen = [p for p in chosen if p not in evidence.read]
        chosen = chosen[:limit]
        memory["read"] = chosen
        nodes = [(p, s) for p in chosen for s in self.graph.sentences_of(p).tolist()]
        shown = tuple(ShownSentence(self.graph.sentences[s], self.index.ids[p]) for p, s in nodes)
        facts = tuple(u.text for u in evidence.ranked(self._psi(state)))
        found = EvidenceFound()
        if shown:
            found = await self.extractor(EvidenceTask(state.question, memory["parts"], shown, facts), state.session)
        state.session.flag("evidence_extractor", *found.flags)
        count, norm = len(memory["parts"]), str(self.config.psi_norm)
        rows = [(self.graph.first_sentence + nodes[e.sentence][1], e, dict(e.labels)) for e in found.items]
        units = [EvidenceUnit(s, e.text, e.phrases, own, confidence(own, count, norm)) for s, e, own in rows]
        evidence.merge([u for u in units if not self.config.keep_rule or is_kept(u.labels)], self.config.merge_keywords)
        evidence.read.update(chosen)

    def _psi(self, state: State) -> dict[int, float]:
        return {sentence: unit.psi for sentence, unit in state.memory["evidence"].units.items()}

    def _rank(self, state: State, similarity: dict[int, float]) -> np.ndarray:
        """Return a score for each node, or for each passage; none where nothing is weighed."""
        weights, walk = self._weights(state, similarity)
        if "ppr" in self.config.ablate:
            return weights[: self.graph.num_passages]
        return walk.solve(weights, 1e-8) if weights.sum() > 0 else np.zeros(0)

    def _weights(self, state: State, similarity: dict[int, float]) -> tuple[np.ndarray, PageRankOperator]:
        """Return the reset, and the walk on the graph with this question's additions."""
        evidence, overlay, graph = state.memory["evidence"], state.memory["overlay"], self.graph
        every = self.config.sentence_scope == "memory"
        units = [u for u in evidence.units.values() if every or u.sentence in evidence.found]
        named = self.aligner.named(units, overlay, str(self.config.expand_graph))
        unnamed = [self.aligner.entities_of(u.sentence, nodes) for u, nodes in zip(units, named, strict=True)]
        unused = {graph.first_sentence + s for p in evidence.read for s in graph.sentences_of(p).tolist()}
        is_released = self.config.weights.query_phrases == "additive"
        asked = self.aligner.asked(state.memory["phrases"], units if is_released else None)
        psi, before, left = self._psi(state), state.memory.get("previous"), sorted(unused - evidence.units.keys())
        seeds = Seeds(similarity, units, psi, named, unnamed, asked, before, left)
        weights = personalisation(seeds, overlay.degrees(graph.degrees), graph.num_passages, self.config.weights)
        walk = PageRankOperator(overlay.adjacency(graph.adjacency), self.damping) if overlay.edges else self.walk
        return weights, walk
