"""Rows for language models made of questions, without a teacher: sub-questions as thoughts, answers of passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Lt

from gnnrag.config import DataConfig, Share
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.metrics.answer import gives_away
from gnnrag.roles.base import ReaderTask, Thoughts, ThoughtsTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.tuned.causal_reader import brief_chat, brief_reply
from gnnrag.session import normalised
from gnnrag.training.composing import bare_title
from gnnrag.training.config import FoldConfig, draw
from gnnrag.training.rows import ReaderRow, ShownPassage, ThoughtsRow, Turn
from gnnrag.training.traces import parts_of
from gnnrag.types import Passage, Question

KEY = "sub_questions"  # of a question: a list of objects with `question`, one for each evidence triple
TRIES = 20  # draws for each passage that is to be shown, so that enough are not gold


@dataclass
class SubQuestionsConfig:
    """Rows of a thought generator: what they are made of."""

    out: str = ""  # file that is written
    sets: dict[str, DataConfig] = field(default_factory=dict)  # by name; train splits
    prompt: str = "thoughts_brief"  # what the rows show; the training is given the same as data.prompt
    shown: Annotated[int, Ge(1)] = 2  # passages of a row: those of earlier hops, the latest first, then others
    words: Annotated[int, Ge(1)] = 60  # most words of a passage: what is learned is to read its beginning
    asked: Share = 0.5  # share of later hops that list the sub-questions before them as asked already
    folds: FoldConfig = field(default_factory=FoldConfig)


@dataclass
class ReaderRowsConfig:
    """Rows of a reader that answers with citations: what they are made of."""

    out: str = ""  # file that is written
    sets: dict[str, DataConfig] = field(default_factory=dict)  # by name; train splits
    shown: Annotated[int, Ge(2)] = 5  # passages of a row, the gold ones among them
    # share of rows that show no gold passage, so that `unknown` is right
    unanswerable: Annotated[float, Ge(0), Lt(1)] = 0.15
    validation: Share = 0.02  # share of titles (of first gold passages) whose questions validate
    report: Share = 0.05  # and are reported on
    seed: int = 0


def check_target(config: SubQuestionsConfig | ReaderRowsConfig) -> None:
    """Raise ConfigError where it is not said what is written, or what it is made of."""
    if not config.out or not config.sets:
        raise ConfigError("out=FILE and sets.NAME.path=FOLDER: give what is written, and what it is made from")


# ---------------------------------------------------------------------------------------------------- sub-questions
@dataclass(frozen=True)
class Hop:
    """A sub-question, the short answer to it, and the passage that holds that."""

    text: str
    answer: str
    passage: Passage


def sub_question_rows(config: SubQuestionsConfig, dropped: Counter[str]) -> Iterator[ThoughtsRow]:
    """Yield a row for each hop of each question, in their order.

    `dropped` counts what gave no row: `unlinked` questions (no passage for a hop), hops whose sub-question has a
    `leak`, and those that are `repeated`. Raises DataError: no such data.
    """
    check_target(config)
    for name, d in config.sets.items():
        data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
        parts = parts_of(((q.id, q.text) for q in data.questions), config.folds)
        passages = {passage.id: passage for passage in data.passages}
        for question in data.questions:
            if not (hops := hops_of(question, passages)):
                dropped["unlinked"] += 1
            for place in range(len(hops)):
                thoughts, reason = thoughts_at(question, hops, place)
                if reason:
                    dropped[reason] += 1
                    continue
                shown = _shown(question, hops[:place], data.passages, config)
                yield _thoughts_row(name, question, hops, place, thoughts, shown, parts[question.id], config)


def hops_of(question: Question, passages: Mapping[str, Passage]) -> list[Hop]:
    """Return a question's hops; none where a sub-question has no triple, or no gold passage has the triple's head."""
    asked: Sequence[Any] = question.extra.get(KEY) or ()
    if len(asked) != len(question.evidence):
        return []
    titles = {bare_title(passages[id_].title): passages[id_] for id_ in question.gold}
    hops = []
    for one, (head, _, tail) in zip(asked, question.evidence, strict=True):
        passage = titles.get(bare_title(head))
        if passage is None or not one["question"].strip():
            return []
        hops.append(Hop(one["question"], tail, passage))
    return hops


def thoughts_at(question: Question, hops: Sequence[Hop], place: int) -> tuple[Thoughts, str]:
    """Return what is to be asked when the hops before `place` are known, or why nothing is to be learned from it.

    The slow thought is the hop after, where it can be asked already: its words say nothing that is yet to be found.
    """
    unknown = [*question.answers, *(hop.answer for hop in hops[place:])]
    fast = hops[place].text
    if gives_away(fast, question.text, unknown):
        return Thoughts(), "leak"
    if normalised(fast) in {normalised(t) for t in (question.text, *(hop.text for hop in hops[:place]))}:
        return Thoughts(), "repeated"
    later = (hop.text for hop in hops[place + 1 :] if not gives_away(hop.text, question.text, unknown))
    return Thoughts(fast, next((text for text in later if normalised(text) != normalised(fast)), None)), ""


def _shown(
    question: Question, known: Sequence[Hop], passages: Sequence[Passage], config: SubQuestionsConfig
) -> tuple[Passage, ...]:
    """Return the passages of known hops, the latest first, then any that are not gold, all cut to their beginning."""
    shown = {hop.passage.id: hop.passage for hop in reversed(known)}
    for i in range(TRIES * config.shown):
        other = passages[int(draw(f"{question.id}/{len(known)}/{i}", "sub_questions/any") * len(passages))]
        if other.id not in question.gold:
            shown.setdefault(other.id, other)
    cut = [Passage(p.id, p.title, " ".join(p.text.split()[: config.words])) for p in shown.values()]
    return tuple(cut[: config.shown])


def _thoughts_row(
    name: str,
    question: Question,
    hops: Sequence[Hop],
    place: int,
    thoughts: Thoughts,
    shown: tuple[Passage, ...],
    part: str,
    config: SubQuestionsConfig,
) -> ThoughtsRow:
    key = f"{name}/{question.id}/{place + 1}"
    is_listed = draw(key, "sub_questions/asked") < config.asked
    earlier = tuple(hop.text for hop in hops[:place]) if is_listed else ()
    task = ThoughtsTask(Question(question.id, question.text), shown, (), earlier, 2 if earlier else 1)
    return ThoughtsRow(
        **_common(key, name, question, part, KEY, shown, thoughts_chat(task, thoughts, config.prompt)),
        source={"type": question.type, "hop": place + 1, "hops": len(hops)},
        round=task.round,
        earlier=earlier,
        fast=thoughts.fast,
        slow=thoughts.slow,
        gold=question.gold,
    )


def _common(
    key: str, name: str, question: Question, part: str, teacher: str, shown: Sequence[Passage], chat: Sequence[Any]
) -> dict[str, Any]:
    return {
        "id": key,
        "set": name,
        "question_id": question.id,
        "question": question.text,
        "part": part,
        "teacher": teacher,
        "passages": tuple(ShownPassage(id=p.id, title=p.title, text=p.text) for p in shown),
        "messages": tuple(Turn(role=m.role, content=m.content) for m in chat),
    }


# ---------------------------------------------------------------------------------------------------------- readers
def reader_rows(config: ReaderRowsConfig) -> Iterator[ReaderRow]:
    """Yield the rows of all sets, in the order of their questions; the seed decides all that is drawn.

    Questions without an answer, or with more gold passages than a row shows, give none. All questions whose first gold
    passage has one title are in one part. Raises DataError: no such data.
    """
    check_target(config)
    for name, d in config.sets.items():
        data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
        passages = {passage.id: passage for passage in data.passages}
        titles: dict[str, list[str]] = {}
        for passage in passages.values():
            titles.setdefault(passage.title, []).append(passage.id)
        for question in data.questions:
            if question.answers and question.gold and len(question.gold) < config.shown:
                yield _reader_row(name, question, passages, titles, list(passages), config)


def _reader_row(
    name: str,
    question: Question,
    passages: Mapping[str, Passage],
    titles: Mapping[str, list[str]],
    ids: Sequence[str],
    config: ReaderRowsConfig,
) -> ReaderRow:
    salt, key = f"reader-{config.seed}", f"{name}/{question.id}"
    is_answered = draw(key, f"{salt}/unanswerable") >= config.unanswerable
    gold = question.gold if is_answered else ()
    # Beside the gold ones: passages of the same titles, which are hard, then any.
    near = [id_ for g in question.gold for id_ in titles[passages[g].title]]
    near = sorted(dict.fromkeys(near), key=lambda id_: draw(f"{question.id}/{id_}", f"{salt}/near"))
    count = config.shown - len(gold)
    anywhere = (ids[int(draw(f"{question.id}/{i}", f"{salt}/any") * len(ids))] for i in range(TRIES * count))
    others = list(dict.fromkeys(id_ for id_ in (*near, *anywhere) if id_ not in question.gold))[:count]
    shown = sorted([*gold, *others], key=lambda id_: draw(f"{key}/{id_}", f"{salt}/order"))
    numbers = [place for place, id_ in enumerate(shown, start=1) if id_ in gold]
    task = ReaderTask(Question(question.id, question.text), tuple(passages[id_] for id_ in shown))
    place = draw(passages[question.gold[0]].title, f"{salt}/part")
    part = "report" if place < config.report else "train"
    if config.report <= place < config.report + config.validation:
        part = "validation"
    chat = brief_chat(task, brief_reply(question.answers[0] if is_answered else "", numbers))
    return ReaderRow(
        **_common(key, name, question, part, "gold", task.passages, chat),
        source={"type": question.type},
        answers=question.answers if is_answered else (),
        cited=tuple(shown[n - 1] for n in numbers),
    )
