"""The oracle's evidence: sentences of gold passages that hold what is found there. A ceiling; never a result."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.gold import OracleHop, gold_hops
from gnnrag.roles.reading import EvidenceFound, EvidenceTask, FoundEvidence
from gnnrag.session import Session
from gnnrag.text.normalise import drop_qualifier, words


class OracleEvidenceExtractor:
    """For each gold passage that is read: the sentences with the hop's answer, else its first one.

    The last hop answers the question (`T`), the others are clues to it (`P`) and answer their own sub-question. So is,
    for a gold passage that was not read yet, the first sentence elsewhere that names it: it leads there.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: EvidenceTask, session: Session) -> EvidenceFound:
        """See `Role`."""
        hops = gold_hops(task.question, self.index)
        found = {}
        for number, hop in enumerate(hops, start=1):
            shown = [i for i, s in enumerate(task.sentences) if s.passage == hop.gold]
            telling = [i for i in shown if _names(task.sentences[i].text, hop.answer)]
            label = (0, "T" if number == len(hops) else "P")
            labels = (label, (number, "T")) if number <= len(task.parts) else ((0, "T"),)
            phrases = tuple(name for name in (self._title(hop), hop.answer) if name)
            for i in (telling or shown)[:2]:
                found[i] = FoundEvidence(i, " ".join(task.sentences[i].text.split()), phrases, labels)
        gold = {hop.gold for hop in hops}
        for hop in hops:
            if self._is_found(hop, task):
                continue
            for i, sentence in enumerate(task.sentences):
                if sentence.passage not in gold and i not in found and _names(sentence.text, self._title(hop)):
                    found[i] = FoundEvidence(i, " ".join(sentence.text.split()), (self._title(hop),), ((0, "P"),))
                    break
        return EvidenceFound(tuple(found[i] for i in sorted(found)))

    def _title(self, hop: OracleHop) -> str:
        return drop_qualifier(self.index.passages[self.index.position[hop.gold]].title)

    def _is_found(self, hop: OracleHop, task: EvidenceTask) -> bool:
        """Say whether a hop's passage is read now or gave evidence before."""
        if any(sentence.passage == hop.gold for sentence in task.sentences):
            return True
        content = " ".join(self.index.passages[self.index.position[hop.gold]].content.split())
        return any(fact in content for fact in task.facts)


def _names(text: str, name: str) -> bool:
    return bool(name.strip()) and f" {' '.join(words(name))} " in f" {' '.join(words(text))} "
