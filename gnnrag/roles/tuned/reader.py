"""The reader without a language model: an encoder finds spans, and a policy chooses what is answered.

The policy takes the first of these that applies:
1. A question that compares two things is answered from their dates, countries or words (`comparing`).
2. A span of which the reader is sure is the answer.
3. A question that describes something without naming it is answered in steps (`text.descriptions`).
4. Sentences are quoted (`quoting`): that of an unsure span, then those that fit best; where none fits, there is no
   answer.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from gnnrag.batching import MicroBatcher
from gnnrag.devices import device_named
from gnnrag.io import WEIGHTS, digest, file_digest
from gnnrag.networks import compiled, openvino_runs
from gnnrag.parts import part
from gnnrag.roles.base import QUOTED, Answer, Citation, ReaderTask, Role, Search, with_marks
from gnnrag.roles.comparing import Finding, compare
from gnnrag.roles.quoting import Quoter, sureness_of
from gnnrag.roles.tables import TableReader, is_row, parse_row
from gnnrag.roles.tuned.checkpoint import LANGUAGE, SPAN, TunedRecord, TunedRole, filled, read_tuned, trained_settings
from gnnrag.roles.tuned.span_items import (
    Candidate,
    FoundAnswer,
    SpanItem,
    SpanNetwork,
    SpanReaderConfig,
    Sureness,
    WindowMaker,
    make_item,
    read_alone,
    signals,
)
from gnnrag.session import Session
from gnnrag.text.descriptions import descriptions
from gnnrag.text.normalise import words
from gnnrag.text.questions import answer_style
from gnnrag.text.sentences import BLANK_LINE, count_words, span_of
from gnnrag.text.support import content_stems, said
from gnnrag.types import Passage, Question

LIKELIEST = "likeliest span"  # the thought of an answer that the network found
COMPARED = 0.7  # least confidence of a comparison that is stated: both dates or countries are in the passages
LEAST_STEP = 0.2  # least confidence of a name that replaces its description
_PRESENT = re.compile(
    r"\W*(?:(?:who|what|which)\b.{0,60}?\b(?:is|are)\b|who (?!was\b|has\b|does\b)\w+s\b)", re.IGNORECASE
)
_ENDED = re.compile(
    r"\b(?:former(?:ly)?|previous(?:ly)?|no longer|(?:first|original|founding) (?:\w+ ){1,3}was)\b|"
    r"\b(?:was|were|led|held|ran|\w+ed)\b.{0,80} until(?: \w+){0,2} (?:1\d|20)\d\d\b",
    re.IGNORECASE,
)
_UNREAL = re.compile(
    r"\b(?:plans?|planned|propos(?:al|ed|es)|want(?:s|ed)|hoped|intend(?:s|ed)|tried|was) to (?!be\b)|"
    r"\bnominated for\b|"
    r"\b(?:plan|proposal|offer|bid)\b[^.;]{0,80}\b(?:rejected|abandoned|dropped|declined|refused)\b",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"\b(?:moved?s?|postponed|delayed|shifted|changed|rescheduled|renamed)\b"
    r"[^.;:\n]{0,60}? from ([^.;:,\n]{1,40}?) to\b",
    re.IGNORECASE,
)
_PAST = re.compile(r"\b(?:was|were|did|had|former|original)\b", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:1\d|20)\d\d\b")
MOST_STEPS, MOST_READ = 3, 8  # descriptions that are replaced, and questions that are read to find their names


@lru_cache(maxsize=2)  # the indexes of a server share the network
def opened(folder: Path, fingerprint: str, base: str | None, device: str) -> SpanNetwork:
    """Return the network of a checkpoint; on a CPU by OpenVINO where that is installed and the encoder is ours."""
    record = read_tuned(folder, "reader", (SPAN,))
    config = trained_settings(folder, record, SpanReaderConfig, base)

    def load() -> Any:
        from gnnrag.roles.tuned.span_network import SpanReader

        model = filled(SpanReader(config), folder)
        return model, model.logits

    if config.base != "embedded" or not openvino_runs("auto", device):
        return load()[0].to(device_named(device, "reader.device"))  # type: ignore[no-any-return]
    name = "span-" + digest([record.base, file_digest(folder / WEIGHTS)])[:32]
    return SpanNetwork(config, compiled(load, name, config.precision))


@part("role", "reader.tuned")
class TunedReader(TunedRole):
    """Answers with a trained span reader (`SpanAnswers`), or with a language model (`PromptedReader`)."""

    # least confidence of an answer that is stated; null: the calibrated one, or 0 where a short answer is asked for
    min_confidence: float | None = None
    min_fit: float = 0.5  # least fit of a quoted sentence
    # the same where a short answer is wanted: a sentence on something else misleads more than it helps
    min_fit_short: float = 0.7
    max_passages: Annotated[int, Ge(1)] = 10  # passages beyond this are not read
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...

    role: ClassVar[str] = "reader"
    kinds: ClassVar[tuple[str, ...]] = (SPAN, LANGUAGE)
    loads_at_once: ClassVar[bool] = True

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        if not isinstance(self.does, SpanAnswers):  # a language model was trained on short answers
            task = replace(task, style="short", passages=task.passages[: self.max_passages])
        return await super().__call__(task, session)  # type: ignore[no-any-return]

    def open(self, folder: Path, record: TunedRecord) -> Role[ReaderTask, Answer]:
        answers = SpanAnswers(getattr(self, "index", None), folder, record, self)
        if self.loads_at_once:
            answers.model  # noqa: B018 - a checkpoint of another network is refused before the first question
        return answers


@part("role", "reader.offline")
class OfflineReader(TunedReader):
    """The reader that ships; loaded by the first question, as a search needs none."""

    loads_at_once: ClassVar[bool] = False


class SpanAnswers(Role[ReaderTask, Answer]):
    """Answers by the policy of this module.

    Style `short` forces the best span, however unsure; `sentence` and `long` are quoted. With style None a short answer
    is given where the question wants one and it is sure; else some sentences are quoted, or a long answer where the
    question wants that. Questions read together do not affect each other.
    """

    def __init__(self, index: Any, folder: Path, record: TunedRecord, settings: TunedReader) -> None:
        self.settings, self.folder, self.fingerprint, self.index = settings, folder, record.fingerprint, index
        known = record.facts.get("sureness")
        self.sureness = Sureness(**known) if known else None
        self._tables = TableReader(index)
        self._quoter = Quoter(index, settings.max_passages)
        self._batcher: MicroBatcher[ReaderTask, Answer] = MicroBatcher(self._answers, 8)

    @cached_property
    def model(self) -> SpanNetwork:
        return opened(self.folder, self.fingerprint, self.settings.base, self.settings.device)

    @cached_property
    def _windows(self) -> WindowMaker:
        return WindowMaker(self.model.config)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        if task.style == "long":
            return await self._long(task, session)
        shown = replace(task, passages=task.passages[: self.settings.max_passages])
        exact = await asyncio.to_thread(self._tables.answer, shown, session.filter)
        if exact is not None:
            return exact
        (answer,) = await self._batcher([task])
        if task.search is None or (answer.text and answer.thought != QUOTED):
            return answer
        return await self._in_steps(task, task.search, answer, session) or answer

    async def _long(self, task: ReaderTask, session: Session) -> Answer:
        """Return what a short answer states, what states it, then other sentences that fit."""
        shown = {passage.id: passage for passage in task.passages}

        async def search(text: str) -> tuple[Passage, ...]:
            new = await task.search(text) if task.search else ()
            shown.update((passage.id, passage) for passage in new if passage.id not in shown)
            return new

        (quoted,) = await self._batcher([task])
        first = await self(replace(task, style=None, search=search if task.search else None), session)
        is_stated = bool(first.text) and first.thought != QUOTED
        if not is_stated and first.confidence == quoted.confidence:  # no steps were taken
            return quoted
        rows = {c.sentence: c for c in first.citations or _cited(first, shown, task.question.text)}
        is_of_table = any(map(is_row, rows))
        left = task.words - sum(map(count_words, (first.text, *rows)))
        for citation in quoted.citations:
            size = count_words(citation.sentence)
            if size <= left and citation.sentence not in rows and not (is_of_table and is_row(citation.sentence)):
                rows[citation.sentence] = citation
                left -= size
        return _worded(first, rows.values(), shown, with_text=is_stated)

    async def _in_steps(self, task: ReaderTask, search: Search, direct: Answer, session: Session) -> Answer | None:
        """Replace the descriptions in a question by the names of what they describe, then answer it.

        The answer is stated where the product of the confidences of all steps reaches the threshold of an answer in
        one step. Else the sentences of all steps are quoted, if the last of them has the name that the step before it
        found. None where the question has no description, or where no sentence fits better than `direct`, the
        quotation without steps.
        """
        text, steps, read = task.question.text, list[Answer](), 0
        while len(steps) < MOST_STEPS:
            found = None
            for places in descriptions(text):
                asked = [replace(task, question=Question("", each.question)) for each in places[: MOST_READ - read]]
                read += len(asked)
                answers = await asyncio.gather(*(self._step(each, session) for each in asked))
                best = max(answers, key=lambda each: each.confidence, default=Answer(""))
                is_name = not best.text[:1].isdigit()  # no date, no number
                if best.confidence >= LEAST_STEP and is_name and best.text not in text:
                    found = places[answers.index(best)], best
                    break
            if found is None:
                break
            text = f"{text[: found[0].start]}{found[1].text}{found[0].moved}{text[found[0].end :]}"
            steps.append(found[1])
        if not steps:
            return None
        new = await search(text)
        shown = {passage.id: passage for passage in (*task.passages, *new)}
        known = [p for p in task.passages if any(p.id in step.support for step in steps)]
        passages = tuple(dict.fromkeys((*new, *known, *task.passages)))
        last = replace(task, question=Question("", text), passages=passages)
        answer = await self._step(last, session)
        sure = math.prod(step.confidence for step in [*steps, answer])
        names = content_stems(steps[-1].text)
        is_named = names <= _said_in(answer, shown)
        is_sure = bool(answer.text) and sure >= self._least(task, self.sureness.threshold if self.sureness else 1.0)
        if is_sure and (answer.thought != LIKELIEST or is_named):
            citations = tuple(c for each in [*steps, answer] for c in each.citations)
            support = tuple(dict.fromkeys(id_ for each in [answer, *steps] for id_ in each.support))
            return replace(answer, support=support, confidence=round(sure, 4), citations=citations)
        (quoted,) = await self._batcher([replace(last, style="sentence")])
        least = max(direct.confidence, sureness_of(self.settings.min_fit_short))
        if quoted.confidence <= least or not names <= _said_in(quoted, shown):
            return None
        said = {c.sentence: c for each in [*steps, quoted] for c in each.citations}
        least_sure = min(each.confidence for each in [*steps, quoted])
        return _worded(replace(quoted, confidence=least_sure), said.values(), shown)

    async def _step(self, task: ReaderTask, session: Session) -> Answer:
        """Return the answer of one step, cited by the sentence or the rows that state it; confidence 0: none."""
        task = replace(task, passages=task.passages[: self.settings.max_passages])
        exact = await asyncio.to_thread(self._tables.answer, task, session.filter)
        if exact is not None:
            return exact
        passages = {passage.id: passage for each in task.passages if (passage := _without_rows(each)).text}
        (answer,) = await self._batcher([replace(task, passages=tuple(passages.values()), style="short")])
        if answer.flags or not answer.support:
            return Answer("")
        citations = _cited(answer, passages, task.question.text)
        whole = re.search(rf"\b[Tt]he ((?:[^\W\d_a-z][\w’'-]* )+{re.escape(answer.text)})\b", citations[0].sentence)
        return replace(answer, text=whole[1] if whole else answer.text, citations=citations)

    def _answers(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        styles = [task.style or answer_style(task.question.text) for task in tasks]
        short = [i for i, style in enumerate(styles) if style == "short"]
        answers = dict(zip(short, self._short([tasks[i] for i in short]), strict=True))
        stated = {i: answer for i, answer in answers.items() if answer.text or tasks[i].style == "short"}
        # What is not sure enough to be stated is quoted.
        asked = {
            i: replace(task, style="long") if styles[i] == "long" else task
            for i, task in enumerate(tasks)
            if i not in stated
        }
        floors = [self.settings.min_fit_short if i in answers else self.settings.min_fit for i in asked]
        likely = [next(iter(answers[i].citations), None) if i in answers else None for i in asked]
        stated |= zip(asked, self._quoter.answers(list(asked.values()), floors, likely), strict=True)
        return [stated[i] for i in range(len(tasks))]

    def _short(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        most = self.settings.max_passages
        items = [make_item(task.question.text, task.passages[:most], self._windows) for task in tasks]
        compared = [compare(item.asked.question, item.asked.reading) for item in items]
        left = [item for item, finding in zip(items, compared, strict=True) if finding is None]
        read = iter(read_alone(self.model, left, self._windows.pad))
        return [
            self._spanned(task, item, next(read)) if finding is None else self._compared(task, finding)
            for task, item, finding in zip(tasks, items, compared, strict=True)
        ]

    def _least(self, task: ReaderTask, calibrated: float) -> float:
        """Return the least confidence of an answer that is stated."""
        if self.settings.min_confidence is not None:
            return self.settings.min_confidence
        return 0.0 if task.style == "short" else calibrated

    def _compared(self, task: ReaderTask, finding: Finding) -> Answer:
        if finding.confidence < self._least(task, COMPARED):
            return Answer("", thought=f"withheld: {finding.how}")
        support = tuple(task.passages[i].id for i in finding.passages)
        return Answer(
            finding.text, support, finding.confidence, finding.how, ("guess",) if finding.how == "guess" else ()
        )

    def _spanned(self, task: ReaderTask, item: SpanItem, found: Sequence[FoundAnswer]) -> Answer:
        """Return the likeliest answer, with how likely it is right."""
        if not found:
            return Answer("", thought="no passages" if not task.passages else "nothing plausible")
        one, sure, least = found[0].candidate, found[0].chance, 1.0
        if self.sureness:
            values = signals(item, found, self._cosine(item.asked.question, task.passages[one.passage]))
            sure, least = self.sureness(values), self.sureness.threshold
        passage = task.passages[one.passage]
        if task.style is None and _is_beside_the_point(item, one, passage.title):
            return Answer("", thought="withheld: beside the point")
        if sure < self._least(task, least):
            unsure = Answer(one.text, (passage.id,))
            cited = () if task.style else _cited(unsure, {passage.id: passage}, task.question.text)
            return Answer("", thought=f"withheld: {sure:.3f}", citations=cited)
        return Answer(one.text, (passage.id,), round(sure, 4), LIKELIEST)

    def _cosine(self, question: str, passage: Passage) -> float:
        """Return the cosine of question and passage, by the embedder that the sureness was fitted with."""
        assert self.sureness is not None
        embedder: Any = getattr(self.index, "embedder", None)
        if getattr(getattr(embedder, "config", None), "model", None) != "embedded":
            return self.sureness.cosine
        (asked,), (told,) = embedder.encode([question], is_query=True), embedder.encode([passage.content])
        return float(asked @ told)


def _without_rows(passage: Passage) -> Passage:
    """Return a passage without the rows of its tables: those are read exactly, by `TableReader`, or not at all."""
    blocks = [block for block in BLANK_LINE.split(passage.text) if not is_row(block)]
    return replace(passage, text="\n\n".join(blocks))


def _worded(answer: Answer, citations: Iterable[Citation], shown: Iterable[str], with_text: bool = False) -> Answer:
    """Return an answer in the sentences that it cites, `with_text` after its own; `shown`: ids, numbered in order."""
    cited, numbers = tuple(citations), {id_: number for number, id_ in enumerate(shown, start=1)}
    parts = [(answer.text, answer.support)] if with_text else [], [(c.sentence, c.passages) for c in cited]
    marked = (with_marks((text, [numbers[i] for i in ids if i in numbers]) for text, ids in part) for part in parts)
    support = tuple(dict.fromkeys(id_ for each in cited for id_ in each.passages))
    return replace(answer, text="\n".join(filter(None, marked)), support=support, citations=cited)


def _cited(answer: Answer, passages: Mapping[str, Passage], question: str) -> tuple[Citation, ...]:
    """Return a citation of the sentence of each supporting passage that states an answer."""
    texts = [(id_, passages[id_].text) for id_ in answer.support]
    sentences = [(id_, text[slice(*span_of(text, answer.text, question))]) for id_, text in texts]
    return tuple(Citation(" ".join(sentence.split()), (id_,), (id_,)) for id_, sentence in sentences)


def _said_in(answer: Answer, passages: Mapping[str, Passage]) -> frozenset[str]:
    """Return the stems of the sentences that an answer cites and of the titles of their passages."""
    rows = [(c.sentence, id_) for c in answer.citations for id_ in c.passages]
    return content_stems(" ".join(f"{text} {passages[id_].title if id_ in passages else ''}" for text, id_ in rows))


def _before(match: re.Match[str]) -> str:
    """Return what stands before a match in its sentence, at most 200 characters."""
    return re.split(r"[.;:\n]", match.string[max(0, match.start() - 200) : match.start()])[-1]


def _is_beside_the_point(item: SpanItem, one: Candidate, title: str) -> bool:
    """Tell whether no span can answer the question (yes or no), or this one is of another time or of another topic.

    It is of another time where its passage lacks the year of the question, its sentence says that what is asked for in
    the present has ended (`was director until 2003`), or a passage says that it has changed (`moved from 1 to 9 July`).
    It is of something else where no passage has a name of the question, or its sentence tells of a plan.

    Rows of several cells are left to `tables`. A lone cell, `project leader: Ida Berg`, can answer only a question that
    names its label.
    """
    question, text = item.asked.question, item.asked.reading.texts[one.passage]
    start, end, _ = item.asked.sentence(one)
    has_ended = _PRESENT.match(question) and _ENDED.search(text[start:end]) and not _ENDED.search(question)
    has_changed = not _PAST.search(question) and any(
        words(m[1]) and {*words(m[1])} <= {*words(one.text)} and content_stems(_before(m) + m[0]) & item.asked.stems
        for each in item.asked.reading.texts
        for m in _CHANGED.finditer(each)
    )
    is_planned = _UNREAL.search(text[start:end]) and not _UNREAL.search(question)
    names = {name for name in said(question).names if len(name) > 3}  # shorter ones are written in several ways
    is_unknown = names and names - content_stems(" ".join([title, *item.asked.reading.texts]))
    is_of_year = {*_YEAR.findall(question)} <= {*_YEAR.findall(f"{title} {text}")}
    if has_ended or has_changed or is_planned or is_unknown or not is_of_year:
        return True
    cells = parse_row(text[start:end])
    is_of_row = len(cells) > 1 or not all(content_stems(label) <= item.asked.stems for label in cells)
    return item.asked.type == "yes_no" or is_of_row
