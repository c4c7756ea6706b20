"""Training rows from data sets alone: from the sub-questions, trajectories, verdicts and answers that they record.

`steps_of` and `verdicts_of` read the formats of these records, which are by people or by language models. They stand in
`Question.extra`, under the keys of the data set's file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Lt

from gnnrag.config import DataConfig, Share
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError
from gnnrag.metrics.answer import gives_away
from gnnrag.roles.base import Thoughts
from gnnrag.session import normalised
from gnnrag.text.subqueries import fill
from gnnrag.training.composing import bare_title
from gnnrag.training.config import draw
from gnnrag.training.rows import ReaderRow, ShownPassage, ThoughtsRow, VerifierRow
from gnnrag.types import Passage, Question

# Most words of a passage: thoughts are learned from its beginning.
THOUGHTS_WORDS, VERIFIER_WORDS = 60, 200
TRIES = 20  # draws for each passage that is to be shown, so that enough are not gold


@dataclass
class MadeRowsConfig:
    """What rows are made of, and what they show. Those of a verifier show a claim, and what was judged among others."""

    out: str = ""  # file that is written
    sets: dict[str, DataConfig] = field(default_factory=dict)  # by name; train splits
    shown: Annotated[int, Ge(1)] = 5  # passages of a row


@dataclass
class ThoughtsRowsConfig(MadeRowsConfig):
    """Rows of a thought generator: a row for each step, with the passages of earlier ones, the latest first."""

    shown: Annotated[int, Ge(1)] = 2
    asked: Share = 0.5  # share of later steps that list the queries before them as asked already


@dataclass
class ReaderRowsConfig(MadeRowsConfig):
    """Rows of a reader that answers with citations."""

    shown: Annotated[int, Ge(2)] = 5  # the gold ones among them
    # share of rows that show no gold passage, so that `unknown` is right
    unanswerable: Annotated[float, Ge(0), Lt(1)] = 0.15


def opened(config: MadeRowsConfig) -> Iterator[tuple[str, Dataset, dict[str, Passage]]]:
    """Yield name, data and passages by id of each set. ConfigError: `out` or `sets` is missing; DataError: no data."""
    if not config.out or not config.sets:
        raise ConfigError("out=FILE and sets.NAME.path=FOLDER: give what is written, and what it is made from")
    for name, d in config.sets.items():
        data = load_dataset(**vars(d))
        yield name, data, {passage.id: passage for passage in data.passages}


def others(question: Question, passages: Sequence[Passage], count: int, salt: str) -> dict[str, Passage]:
    """Return passages that are not gold, drawn by a hash, by their ids; fewer in a small corpus."""
    found: dict[str, Passage] = {}
    for i in range(TRIES * count):
        other = passages[int(draw(f"{question.id}/{i}", salt) * len(passages))]
        if len(found) < count and other.id not in question.gold:
            found.setdefault(other.id, other)
    return found


def cut(passage: Passage, words: int) -> Passage:
    return Passage(passage.id, passage.title, " ".join(passage.text.split()[:words]))


def common(key: str, name: str, question: Question, shown: Sequence[Passage]) -> dict[str, Any]:
    return {
        "id": key,
        "set": name,
        "question_id": question.id,
        "question": question.text,
        "passages": tuple(ShownPassage(id=p.id, title=p.title, text=p.text) for p in shown),
    }


# ----------------------------------------------------------------------------------------------------------- thoughts
@dataclass(frozen=True)
class Step:
    """A query, its answer as far as it is known, and the passage that states the answer."""

    query: str
    answer: str = ""
    passage: Passage | None = None


def steps_of(question: Question, passages: Mapping[str, Passage]) -> list[tuple[str, list[Step]]]:
    """Return the ways in which a question was decomposed, each with its author; none that ended in a wrong answer.

    Sub-questions, one for each evidence triple (2WikiMultiHopQA, MIGRES); decompositions by a language model
    (StrategyQA) and by people (MuSiQue, StrategyQA, up to the first answer that is not known); searches of ReAct
    trajectories (FireAct, HotpotQA).
    """
    extra = question.extra
    titles = {bare_title(passages[id_].title): passages[id_] for id_ in question.gold if id_ in passages}
    found = []
    asked: Sequence[Any] = extra.get("sub_questions") or ()
    if asked and len(asked) == len(question.evidence):
        linked = zip(asked, question.evidence, strict=True)
        steps = [Step(one["question"], tail, titles.get(bare_title(head))) for one, (head, _, tail) in linked]
        found.append(("sub_questions", steps if all(s.passage and s.query.strip() for s in steps) else []))
    for one in extra.get("llm_decompositions") or ():
        if one["correct"]:
            said = [Passage(f"{question.id}/{n}", "", s["answer"]) for n, s in enumerate(one["sub_questions"])]
            asks = [s["question"] for s in one["sub_questions"]]
            found.append((one["model"], [Step(q, p.text, p) for q, p in zip(asks, said, strict=True)]))
    hops: list[Step] = []
    for hop in question.decomposition:
        text = fill(hop.question, {number: step.answer for number, step in enumerate(hops, start=1)})
        if "#" in text:  # it asks about an answer that is not known
            break
        hops.append(Step(text, hop.answer, passages.get(hop.gold or "")))
    if hops:
        found.append(("people", hops))
    own = {"model": extra.get("model", ""), "correct": extra.get("correct"), "steps": extra.get("trace") or ()}
    for run in (own, *(extra.get("gpt4_react") or ()), *(extra.get("react") or ())):
        searches = [s for s in run["steps"] if isinstance(s, Mapping) and s.get("action") == "search"]
        if run["correct"] and searches:
            seen = [
                passages.get(s.get("passage", "")) or Passage(f"{question.id}/{n}", "", s.get("observation") or "")
                for n, s in enumerate(searches)
            ]
            found.append((run["model"], [Step(s["argument"], "", p) for s, p in zip(searches, seen, strict=True)]))
    return found


def thoughts_at(question: Question, steps: Sequence[Step], place: int) -> tuple[Thoughts, str]:
    """Return the thoughts once the steps before `place` are done, or the reason why they teach nothing.

    The fast thought is the query of this step. The slow one is that of a later step, if all answers are known and its
    query contains none that is still to be found.
    """
    unknown = [*question.answers, *(step.answer for step in steps[place:])]
    fast = steps[place].query
    if gives_away(fast, question.text, unknown):
        return Thoughts(), "leak"
    if normalised(fast) in {normalised(t) for t in (question.text, *(step.query for step in steps[:place]))}:
        return Thoughts(), "repeated"
    if not all(step.answer for step in steps[place:]):
        return Thoughts(fast), ""
    later = (step.query for step in steps[place + 1 :] if not gives_away(step.query, question.text, unknown))
    return Thoughts(fast, next((text for text in later if normalised(text) != normalised(fast)), None)), ""


def thoughts_rows(config: ThoughtsRowsConfig, dropped: Counter[str]) -> Iterator[ThoughtsRow]:
    """Yield a row for each step of each question, in their order.

    `dropped` counts what gave no row: `unlinked` questions (nothing says their steps, or no passage is known for one),
    steps whose query has a `leak`, and those that are `repeated`.
    """
    for name, data, passages in opened(config):
        for question in data.questions:
            ways = [(teacher, steps) for teacher, steps in steps_of(question, passages) if steps]
            dropped["unlinked"] += not ways
            for number, (teacher, steps) in enumerate(ways):
                for place in range(len(steps)):
                    thoughts, reason = thoughts_at(question, steps, place)
                    if reason:
                        dropped[reason] += 1
                        continue
                    key = f"{name}/{question.id}/{number}.{place + 1}"
                    known = {s.passage.id: s.passage for s in reversed(steps[:place]) if s.passage}
                    known |= others(question, data.passages, config.shown, f"sub_questions/{place}")
                    shown = [cut(passage, THOUGHTS_WORDS) for passage in list(known.values())[: config.shown]]
                    is_listed = draw(key, "sub_questions/asked") < config.asked
                    earlier = tuple(step.query for step in steps[:place]) if is_listed else ()
                    yield ThoughtsRow(
                        **common(key, name, question, shown),
                        teacher=teacher,
                        source={"type": question.type, "hop": place + 1, "hops": len(steps)},
                        round=2 if earlier else 1,
                        earlier=earlier,
                        fast=thoughts.fast,
                        slow=thoughts.slow,
                        gold=question.gold,
                    )


# ----------------------------------------------------------------------------------------------------------- verifiers
def verdicts_of(question: Question) -> list[tuple[str, str, bool]]:
    """Return (judge, passage id, whether it supports the claim, in part or whole) of each verdict on a claim (WiCE).

    The answer of a claim is the verdict of people; `trace` has the passages, with the judgements of language models.
    """
    trace: Sequence[Any] = question.extra.get("trace") or ()
    labels = [(one["passage"], "people", question.answers[0]) for one in trace if question.answers]
    for one in trace:
        labels += [(one["passage"], judge, verdict["label"]) for judge, verdict in one["judgements"].items()]
    return [(judge, id_, label in ("supported", "partially_supported")) for id_, judge, label in labels]


def verifier_rows(config: MadeRowsConfig, dropped: Counter[str]) -> Iterator[VerifierRow]:
    """Yield a row for each verdict on a claim; `dropped` counts the questions without one."""
    for name, data, passages in opened(config):
        for question in data.questions:
            verdicts = verdicts_of(question) if question.type == "claim" else []
            dropped["without a verdict"] += not verdicts
            is_supported = {id_: supports for judge, id_, supports in verdicts if judge == "people"}
            for judge, id_, supports in verdicts:
                key = f"{name}/{question.id}/{id_}/{judge}"
                every = {id_: passages[id_], **others(question, data.passages, config.shown - 1, "verdicts")}
                order = sorted(every, key=lambda one: draw(f"{key}/{one}", "verdicts/order"))
                shown = [cut(every[one], VERIFIER_WORDS) for one in order]
                yield VerifierRow(
                    **common(key, name, question, shown),
                    teacher=judge,
                    source={"type": question.type},
                    chain=question.text,
                    selected=(id_,) if supports else (),
                    gold=(id_,) if is_supported.get(id_) else (),
                )


# ------------------------------------------------------------------------------------------------------------- readers
def reader_rows(config: ReaderRowsConfig, dropped: Counter[str]) -> Iterator[ReaderRow]:
    """Yield the rows of all sets, in the order of their questions.

    Questions without an answer, or with more gold passages than a row shows, give none, and are counted.
    """
    for name, data, passages in opened(config):
        of_title: dict[str, list[str]] = {}
        for passage in data.passages:
            of_title.setdefault(passage.title, []).append(passage.id)
        for question in data.questions:
            if not (question.answers and question.gold and len(question.gold) < config.shown):
                dropped["without an answer or gold, or too much of it"] += 1
                continue
            key = f"{name}/{question.id}"
            is_answered = draw(key, "reader/unanswerable") >= config.unanswerable
            gold = question.gold if is_answered else ()
            # Beside the gold ones: passages of the same titles, which are hard, then any.
            near = [id_ for g in question.gold for id_ in of_title[passages[g].title] if id_ not in question.gold]
            near.sort(key=lambda id_: draw(f"{question.id}/{id_}", "reader/near"))
            more = list(dict.fromkeys([*near, *others(question, data.passages, config.shown, "reader/any")]))
            ids = [*gold, *more[: config.shown - len(gold)]]
            ids.sort(key=lambda id_: draw(f"{key}/{id_}", "reader/order"))
            shown = tuple(passages[id_] for id_ in ids)
            yield ReaderRow(
                **common(key, name, question, shown),
                article=passages[question.gold[0]].title,
                teacher="gold",
                source={"type": question.type},
                answers=question.answers if is_answered else (),
                cited=tuple(id_ for id_ in ids if id_ in gold),
            )
