"""Rows for a reader that answers with citations: a question, gold passages and others around them, and the reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gnnrag.config import DataConfig
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.tuned.causal_reader import brief_chat, brief_reply
from gnnrag.training.config import draw
from gnnrag.training.rows import ReaderRow, ShownPassage, Turn
from gnnrag.types import Passage, Question


@dataclass
class ReaderRowsConfig:
    """What rows are made of."""

    out: str = ""  # file that is written
    sets: dict[str, DataConfig] = field(default_factory=dict)  # by name; train splits
    shown: int = 5  # passages of a row, the gold ones among them
    unanswerable: float = 0.15  # share of rows that show no gold passage, so that `unknown` is right
    validation: float = 0.02  # share of titles (of first gold passages) whose questions validate
    report: float = 0.05  # and are reported on
    seed: int = 0


def check_reader_rows(config: ReaderRowsConfig) -> None:
    """Raise ConfigError where a setting is out of range."""
    if not config.out or not config.sets:
        raise ConfigError("out=FILE and sets.NAME.path=FOLDER: give what is written, and what it is made from")
    if config.shown < 2:
        raise ConfigError(f"shown={config.shown}: must be at least 2")
    if not 0 <= config.unanswerable < 1 or config.validation < 0 or not 0 <= config.validation + config.report < 1:
        raise ConfigError("unanswerable, validation and report are shares: at least 0, together below 1")


def reader_rows(config: ReaderRowsConfig) -> Iterator[ReaderRow]:
    """Yield the rows of all sets, in the order of their questions; the seed decides all that is drawn.

    Questions without an answer, or with more gold passages than a row shows, give none. Raises DataError: no such data.
    """
    for name, d in config.sets.items():
        data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
        passages = {passage.id: passage for passage in data.passages}
        titles: dict[str, list[str]] = {}
        for passage in passages.values():
            titles.setdefault(passage.title, []).append(passage.id)
        ids = list(passages)
        for question in data.questions:
            if question.answers and question.gold and len(question.gold) < config.shown:
                yield _row(name, question, passages, titles, ids, config)


def _row(
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
    shown = [*gold, *_others(question, passages, titles, ids, config.shown - len(gold), salt)]
    shown.sort(key=lambda id_: draw(f"{key}/{id_}", f"{salt}/order"))
    numbers = [place for place, id_ in enumerate(shown, start=1) if id_ in gold]
    reply = brief_reply(question.answers[0] if is_answered else "", numbers)
    task = ReaderTask(Question(question.id, question.text), tuple(passages[id_] for id_ in shown))
    return ReaderRow(
        id=key,
        set=name,
        question_id=question.id,
        question=question.text,
        part=_part(passages[question.gold[0]].title, config),
        teacher="gold",
        source={"type": question.type},
        passages=tuple(ShownPassage(id=p.id, title=p.title, text=p.text) for p in task.passages),
        messages=tuple(Turn(role=m.role, content=m.content) for m in brief_chat(task, reply)),
        answers=question.answers if is_answered else (),
        cited=tuple(shown[n - 1] for n in numbers),
    )


def _others(
    question: Question,
    passages: Mapping[str, Passage],
    titles: Mapping[str, list[str]],
    ids: Sequence[str],
    count: int,
    salt: str,
) -> list[str]:
    """Return passages that are not gold: of the gold ones' titles first, which are hard, then any."""
    near = [id_ for gold in question.gold for id_ in titles[passages[gold].title]]
    near = sorted(dict.fromkeys(near), key=lambda id_: draw(f"{question.id}/{id_}", f"{salt}/near"))
    anywhere = (ids[int(draw(f"{question.id}/{i}", f"{salt}/any") * len(ids))] for i in range(20 * count))
    found = dict.fromkeys(id_ for id_ in (*near, *anywhere) if id_ not in question.gold)
    return list(found)[:count]


def _part(title: str, config: ReaderRowsConfig) -> str:
    """Return the part of all questions whose first gold passage has this title; others of theirs may be in two."""
    place = draw(title, f"reader-{config.seed}/part")
    if place < config.report:
        return "report"
    return "validation" if place < config.report + config.validation else "train"
