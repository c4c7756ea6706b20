"""Evidence without a language model: the sentences that name a bridge, or that the open part asks for."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.bridges import Bridge, BridgeFinder, OpenQuestion
from gnnrag.roles.reading import EvidenceFound, EvidenceTask, FoundEvidence
from gnnrag.session import Session
from gnnrag.text.normalise import drop_qualifier, words


@dataclass
class OfflineEvidenceConfig:
    """Settings of `OfflineEvidenceExtractor`."""

    max_bridges: int = 3  # bridges out of the things that the question names
    frontier: int = 2  # passages that bridges are looked for in when the question names nothing


class OfflineEvidenceExtractor:
    """Labels two kinds of sentences.

    1. Of a passage that the question names: those that name a bridge (`P` for the question, `T` for the sub-question
       about that thing), with the bridge as key phrase.
    2. Of that passage and of a bridge's passage: the one that shares most words with the open part (`T`).

    Args:
        index: an opened index.
        config: see `OfflineEvidenceConfig`.
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
