"""The reader without a language model: an encoder finds spans, and a policy says what is answered.

A question that compares two things is answered by `comparing`. Else the best span is the answer where it is sure; where
it is not, the sentences that fit best are quoted (`quoting`); where none fits, there is no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from gnnrag.batching import MicroBatcher
from gnnrag.devices import device_named
from gnnrag.parts import part
from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.comparing import Finding, compare
from gnnrag.roles.quoting import Quoter
from gnnrag.roles.tables import TableReader, parse_row
from gnnrag.roles.tuned.checkpoint import LANGUAGE, SPAN, TunedRecord, TunedRole
from gnnrag.roles.tuned.span_items import Candidate, Found, SpanItem, WindowMaker, make_item
from gnnrag.roles.tuned.sureness import Sureness, signals
from gnnrag.session import Session
from gnnrag.text.questions import answer_style
from gnnrag.text.support import content_stems
from gnnrag.types import Passage

if TYPE_CHECKING:
    from gnnrag.roles.tuned.span_network import SpanReader

COMPARED = 0.7  # confidence from which on a comparison is stated: both dates or countries are in the passages
FEW_WORDS = 60  # of sentences that are quoted in place of an unsure answer


@part("role", "reader.tuned")
class TunedReader(TunedRole):
    """Answers with a trained span reader (`SpanAnswers`), or with a language model (`BriefReader`)."""

    # answers less sure are not stated; null: as the calibration chose, and none where a short answer is asked for
    min_confidence: float | None = None
    min_fit: float = 0.5  # of a quoted sentence; below, nothing fits
    # the same in place of a short answer, where a sentence on something else misleads more than it helps
    min_fit_short: float = 0.7
    max_passages: Annotated[int, Ge(1)] = 10  # passages beyond this are not read
    batch: Annotated[int, Ge(1)] = 8  # questions read at once
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...

    role: ClassVar[str] = "reader"
    kinds: ClassVar[tuple[str, ...]] = (SPAN, LANGUAGE)
    loads_at_once: ClassVar[bool] = True

    def setup(self) -> None:
        self.prompted = {"max_passages": self.max_passages, **self.prompted}
        super().setup()

    def open(self, folder: Path, record: TunedRecord) -> Role[ReaderTask, Answer]:
        """Return what answers with spans and quotations."""
        answers = SpanAnswers(getattr(self, "index", None), folder, record, self)
        if self.loads_at_once:
            answers.model  # noqa: B018 - a checkpoint of another network is refused before the first question
        return answers


@part("role", "reader.offline")
class OfflineReader(TunedReader):
    """The reader that ships; loaded by the first question, as a search needs none."""

    loads_at_once: ClassVar[bool] = False


class SpanAnswers(Role[ReaderTask, Answer]):
    """Says what it is sure of, else quotes the sentences that fit best, else nothing.

    A comparison is answered from the dates, countries or words of the two passages. Style `short` forces the best span,
    however unsure; `sentence` and `long` are quoted; None is one of them by the question, a short answer only where it
    is sure. Questions read together do not affect each other.
    """

    def __init__(self, index: Any, folder: Path, record: TunedRecord, settings: TunedReader) -> None:
        self.settings, self.folder, self.fingerprint, self.index = settings, folder, record.fingerprint, index
        known = record.facts.get("sureness")
        self.sureness = Sureness(**known) if known else None
        self._tables = TableReader(index)
        self._quoter = Quoter(index, settings.max_passages)
        self._batcher: MicroBatcher[ReaderTask, Answer] = MicroBatcher(self._answers, settings.batch)

    @cached_property
    def model(self) -> SpanReader:
        """The network."""
        from gnnrag.roles.tuned.span_network import opened  # imports torch, which a search does not need

        device = str(device_named(self.settings.device, "reader.device"))
        return opened(self.folder, self.fingerprint, self.settings.base, device)

    @cached_property
    def _windows(self) -> WindowMaker:
        from gnnrag.roles.tuned.span_network import window_maker

        return window_maker(self.model.config)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        if task.style != "long":
            shown = replace(task, passages=task.passages[: self.settings.max_passages])
            exact = await asyncio.to_thread(self._tables.answer, shown, session.filter is not None)
            if exact is not None:
                return exact
        (answer,) = await self._batcher([task])
        return answer

    def _answers(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        styles = [task.style or answer_style(task.question.text) for task in tasks]
        short = [i for i, style in enumerate(styles) if style == "short"]
        answers = dict(zip(short, self._short([tasks[i] for i in short]), strict=True))
        stated = {i: answer for i, answer in answers.items() if answer.text or tasks[i].style == "short"}
        # A few sentences are quoted in place of an answer that is not sure.
        asked = {
            i: replace(task, style="long", words=FEW_WORDS) if i in answers else replace(task, style=styles[i])
            for i, task in enumerate(tasks)
            if i not in stated
        }
        floors = [self.settings.min_fit_short if i in answers else self.settings.min_fit for i in asked]
        stated |= zip(asked, self._quoter.answers(list(asked.values()), floors), strict=True)
        return [stated[i] for i in range(len(tasks))]

    def _short(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        from gnnrag.roles.tuned.span_network import read_alone

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
        """Return from which confidence on an answer is stated."""
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

    def _spanned(self, task: ReaderTask, item: SpanItem, found: Sequence[Found]) -> Answer:
        """Return the likeliest answer, with how likely it is right."""
        if not found:
            return Answer("", thought="no passages" if not task.passages else "nothing plausible")
        one, sure, least = found[0].one, found[0].chance, 1.0
        if self.sureness:
            values = signals(item, found, self._cosine(item.asked.question, task.passages[one.passage]))
            sure, least = self.sureness(values), self.sureness.threshold
        if sure < self._least(task, least) or (task.style is None and _is_beside_the_point(item, one)):
            return Answer("", thought=f"withheld: {sure:.3f}")
        return Answer(one.text, (task.passages[one.passage].id,), round(sure, 4), "likeliest span")

    def _cosine(self, question: str, passage: Passage) -> float:
        """Return the cosine of question and passage, by the embedder that the sureness was fitted with."""
        assert self.sureness is not None
        embedder: Any = getattr(self.index, "embedder", None)
        if getattr(getattr(embedder, "config", None), "model", None) != "embedded":
            return self.sureness.cosine
        (asked,), (told,) = embedder.encode([question], is_query=True), embedder.encode([passage.content])
        return float(asked @ told)


def _is_beside_the_point(item: SpanItem, one: Candidate) -> bool:
    """Tell whether no span can answer, or this one stands in a cell of which the question does not speak.

    Rows of a table are for `tables`; of `project leader: Ida Berg`, the question has to name the label.
    """
    start, end, _ = item.asked.sentence(one)
    cells = parse_row(item.asked.reading.texts[one.passage][start:end])
    is_of_row = len(cells) > 1 or not all(content_stems(label) <= item.asked.stems for label in cells)
    return item.asked.type == "yes_no" or is_of_row
