"""Reader of people's own documents: a model words the answer, and only what the passages bear out is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from annotated_types import Ge, Le

from gnnrag.parts import part, set_up
from gnnrag.roles.base import QUOTED, Answer, ReaderTask
from gnnrag.roles.reader import BORNE_OUT, Evidence, PromptedReader, Sentences
from gnnrag.roles.tables import TABLE
from gnnrag.roles.tuned.reader import LIKELIEST, OfflineReader
from gnnrag.session import Session
from gnnrag.text.normalise import lower_words
from gnnrag.text.questions import answer_style
from gnnrag.text.sentences import split_sentences
from gnnrag.text.support import Said, content_stems, said, without_citations
from gnnrag.types import Passage

# Models below two billion parameters answer what the passages do not say, in words that stand there: with .5, 26 of the
# 76 answers of a 1.5B to `tests/own_corpus` were false.
BORNE_OUT_SMALL = 0.95
COPIED = 0.85  # share of the words of two sentences that both have, from which on one is a copy


@part("role", "reader.checked")
class CheckedReader(PromptedReader):
    """States the sentences of a model that a passage bears out; where none is left, the reader without a model answers.

    A question about a table is answered from the table. What that reader is sure of comes before what a small model
    says otherwise. Small models copy a sentence where they have no answer: that is quoted, or what the reader without a
    model quotes. With `answer.style=short`, as in benchmarks, it is the prompted reader.
    """

    abstain: bool = True
    # see `borne_out`; null: .95 for models that get small prompts, else .5
    least_support: Annotated[float, Ge(0), Le(1)] | None = None

    def setup(self) -> None:
        super().setup()
        self._own = set_up(OfflineReader(), index=self.index)
        self.fingerprint = self._own.fingerprint

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        if task.style == "short":
            return await super().__call__(task, session)
        own = await self._own(task, session)
        is_sure = bool(own.text) and own.thought != QUOTED
        is_span, is_small = own.thought == LIKELIEST, self.backend.wants_small
        if not task.passages or (is_sure and not is_span and (is_small or own.thought == TABLE)):
            return own
        style = task.style or answer_style(task.question.text)
        worded = await super().__call__(replace(task, style="sentence" if style == "short" else style), session)
        stated, said = (lower_words(without_citations(text)) for text in (own.text.split("\n")[0], worded.text))
        says = is_sure and f" {stated} " in f" {said} "
        if worded.text and (says or not is_small):
            return worded
        if worded.text and not is_sure:
            if not is_copied(worded, task.passages):
                return worded
            if not own.text:
                return replace(worded, thought=QUOTED)
        return replace(own, flags=(*own.flags, *(flag for flag in worded.flags if flag != "abstained")))

    def kept(self, sentences: Sentences, evidence: Evidence) -> Sentences:
        least = self.least_support
        if least is None:
            least = BORNE_OUT_SMALL if self.backend.wants_small else BORNE_OUT
        return borne_out(sentences, evidence, least)


def is_copied(answer: Answer, passages: Sequence[Passage]) -> bool:
    """Tell whether all sentences of an answer are sentences of passages, as good as word by word."""
    texts = [each for passage in passages for each in split_sentences(passage.text)]
    known = [content_stems(text) for text in texts]

    def copied(sentence: str) -> bool:
        stems = content_stems(sentence)
        return any(len(stems & one) >= COPIED * len(stems | one) for one in known)

    return all(copied(each) for citation in answer.citations for each in split_sentences(citation.sentence))


def borne_out(sentences: Sentences, evidence: Evidence, least: float) -> Sentences:
    """Return the sentences that a passage bears out, each with those of its passages that do, or else the first one.

    To bear it out, three sentences in a row, with the title, have at least the share `least` of its words by inverse
    document frequency, its numbers and names, and deny something where it does. The first word is a name, too, unless
    a passage has it in lower case.
    """
    common = frozenset(word for passage in evidence.passages for word in passage.text.split() if word.islower())

    def read(sentence: str) -> Said:
        first = sentence.split()[0].strip(",;:")
        names = frozenset() if first.lower() in common else content_stems(first)
        return replace(said(sentence), names=said(sentence).names | names)

    kept, is_kept = [], False
    for text, numbers in reversed(sentences):
        parts = [part for each in split_sentences(text) if (part := read(each)).stems]
        by = [
            number
            for number in range(1, len(evidence.passages) + 1)
            if parts and all(evidence.support(part, number) >= least for part in parts)
        ]
        is_kept = bool(by) and (is_kept or not text.endswith(":"))  # a lead-in says nothing without what follows
        if is_kept:
            kept.append((text, tuple(n for n in numbers if n in by) or (by[0],)))
    return kept[::-1]
