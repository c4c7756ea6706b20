"""Rows for a thought generator out of questions that come with sub-questions: each hop is a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnrag.config import DataConfig
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.metrics.answer import gives_away
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.session import normalised
from gnnrag.training.composing import bare_title
from gnnrag.training.config import FoldConfig, draw
from gnnrag.training.rows import ShownPassage, ThoughtsRow, Turn, parts_of
from gnnrag.types import Passage, Question

KEY = "sub_questions"  # of a question: a list of objects with `question`, one for each evidence triple


@dataclass
class SubQuestionsConfig:
    """What rows are made of."""

    out: str = ""  # file that is written
    sets: dict[str, DataConfig] = field(default_factory=dict)  # by name; train splits
    prompt: str = "thoughts_brief"  # what the rows show; the training is given the same as data.prompt
    shown: int = 2  # passages of a row: those of earlier hops, the latest first, then others
    words: int = 60  # most words of a passage: what is learned is to read its beginning
    asked: float = 0.5  # share of later hops that list the sub-questions before them as asked already
    folds: FoldConfig = field(default_factory=FoldConfig)


def check_sub_questions(config: SubQuestionsConfig) -> None:
    """Raise ConfigError where a setting is out of range."""
    if not config.out or not config.sets:
        raise ConfigError("out=FILE and sets.NAME.path=FOLDER: give what is written, and what it is made from")
    if config.shown < 1 or config.words < 1 or not 0 <= config.asked <= 1:
        raise ConfigError(
            f"shown={config.shown} and words={config.words} must be at least 1, asked={config.asked} in [0, 1]"
        )


@dataclass(frozen=True)
class Hop:
    """A sub-question, the short answer to it, and the passage that holds that."""

    text: str
    answer: str
    passage: Passage


def sub_question_rows(config: SubQuestionsConfig, dropped: Counter[str]) -> Iterator[ThoughtsRow]:
    """Yield the rows of all sets, in the order of their questions and hops.

    Args:
        config: what rows are made of.
        dropped: counts what gave no row: `unlinked` questions (no passage for a hop), hops whose sub-question
            has a `leak`, and those that are `repeated`.

    Raises:
        DataError: no such data.
    """
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
                else:
                    shown = _shown(question, hops[:place], data.passages, config)
                    yield _row(name, question, hops, place, thoughts, shown, parts[question.id], config)


def hops_of(question: Question, passages: Mapping[str, Passage]) -> list[Hop]:
    """Return a question's hops; none where a sub-question has no triple, or no gold passage has the triple's head."""
    asked: Sequence[Any] = question.extra.get(KEY) or ()
    if len(asked) != len(question.evidence):
        return []
    titles = {bare_title(passages[id_].title): passages[id_] for id_ in question.gold}
    found = [(one["question"], tail, titles.get(bare_title(head)))
             for one, (head, _, tail) in zip(asked, question.evidence, strict=True)]  # fmt: skip
    hops = [Hop(text, tail, passage) for text, tail, passage in found if passage and text.strip()]
    return hops if len(hops) == len(found) else []


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
    found = {hop.passage.id: hop.passage for hop in reversed(known)}
    for i in range(20 * config.shown):
        other = passages[int(draw(f"{question.id}/{len(known)}/{i}", "sub_questions/any") * len(passages))]
        if other.id not in question.gold:
            found.setdefault(other.id, other)
    cut = [Passage(p.id, p.title, " ".join(p.text.split()[: config.words])) for p in found.values()]
    return tuple(cut[: config.shown])


def _row(
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
        id=key,
        set=name,
        question_id=question.id,
        question=question.text,
        part=part,
        teacher=KEY,
        source={"type": question.type, "hop": place + 1, "hops": len(hops)},
        passages=tuple(ShownPassage(id=p.id, title=p.title, text=p.text) for p in shown),
        messages=tuple(Turn(role=m.role, content=m.content) for m in thoughts_chat(task, thoughts, config.prompt)),
        round=task.round,
        earlier=earlier,
        fast=thoughts.fast,
        slow=thoughts.slow,
        gold=question.gold,
    )
