"""The oracle's evidence: sentences of gold passages that hold what is found there. A ceiling; never a result."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.gold import gold_hops
from gnnrag.roles.reading import EvidenceFound, EvidenceTask, FoundEvidence
from gnnrag.session import Session
from gnnrag.text.normalise import drop_qualifier, words


class OracleEvidenceExtractor:
    """For each gold passage that is read: the sentences with the hop's answer, else its first one.

    The last hop answers the question (`T`), the others are clues to it (`P`) and answer their own sub-question.

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
            answer = f" {' '.join(words(hop.answer))} "
            telling = [i for i in shown if answer.strip() and answer in f" {' '.join(words(task.sentences[i].text))} "]
            label = (0, "T" if number == len(hops) else "P")
            labels = (label, (number, "T")) if number <= len(task.parts) else ((0, "T"),)
            title = drop_qualifier(self.index.passages[self.index.position[hop.gold]].title)
            phrases = tuple(name for name in (title, hop.answer) if name)
            for i in (telling or shown)[:2]:
                found[i] = FoundEvidence(i, " ".join(task.sentences[i].text.split()), phrases, labels)
        return EvidenceFound(tuple(found[i] for i in sorted(found)))
