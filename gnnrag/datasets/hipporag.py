"""Benchmarks in HippoRAG's layout: `NAME_corpus.json`, `NAME.json`; gold is found by text, then by a unique title."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

from gnnrag.datasets import release_fields as fields
from gnnrag.datasets.jsonl import Skips, read_objects
from gnnrag.datasets.placing import MissingGold, check_choice
from gnnrag.datasets.release_fields import GoldText, PopqaAliases, Sample
from gnnrag.errors import DataError
from gnnrag.types import GoldHop, Passage, Question

# Questions and passages of the full releases (HippoRAG 2 and MGranRAG, data tables). People use subsets,
# so another number is only a note. HotpotQA has 9,221 passages in HippoRAG's first version and 9,811 in the second.
RELEASES: dict[str, tuple[int, tuple[int, ...]]] = {
    "musique": (1000, (11656,)),
    "2wikimultihopqa": (1000, (6119,)),
    "hotpotqa": (1000, (9811, 9221)),
    "popqa": (1000, (8676,)),
    "nq_rear": (1000, (9633,)),
    "narrativeqa_dev_10_doc": (293, (4111,)),
}


def load_passages(path: Path, name: str, skips: Skips) -> list[Passage]:
    """Return passages `NAME-<position in the file>`, no repeated or empty ones; DataError: broken file, or none."""
    passages: dict[tuple[str, str], Passage] = {}
    items = read_objects(path, "passages")
    for i, item in enumerate(items):
        title, text = item.get("title", ""), item.get("text")
        if not (isinstance(title, str) and isinstance(text, str)):
            raise DataError(path, f"passage {i} has no string 'title' and 'text'; its keys are {', '.join(item)}")
        passage = Passage(f"{name}-{i}", title, text)
        if not text.strip():
            skips.add("empty passage", passage.id)
        elif (title, text) in passages:
            skips.add("duplicate passage", f"{passage.id} (same as {passages[title, text].id})")
        else:
            passages[title, text] = passage
    if not passages:
        raise DataError(path, "holds no passages; expected a list of objects with 'title' and 'text'")
    _note_size(skips, name, "passages", len(items))
    return list(passages.values())


def load_questions(
    path: Path,
    name: str,
    passages: Iterable[Passage],
    skips: Skips,
    popqa_aliases: PopqaAliases = "decoded",
    missing_gold: MissingGold = "error",
) -> list[Question]:
    """Return the questions of `NAME.json`, with gold as passage ids; one without an id is called `NAME-q<position>`.

    `missing_gold`: `error` stops at gold that is not in the corpus, `drop` leaves its question out; for `popqa_aliases`
    see `release_fields.gold_answers`. DataError: a broken file, an unknown shape, a used id, or as `missing_gold` says;
    ConfigError: an unknown value of either.
    """
    check_choice("popqa_aliases", popqa_aliases, get_args(PopqaAliases))
    check_choice("missing_gold", missing_gold, get_args(MissingGold))
    finder = _Finder(passages)
    seen: dict[str, int] = {}
    questions = []
    for i, sample in enumerate(read_objects(path, "questions")):
        row_id = fields.question_id(sample) or f"{name}-q{i}"
        if row_id in seen:
            raise DataError(path, f"question {i} has id {row_id!r}, which question {seen[row_id]} has already")
        seen[row_id] = i
        try:
            questions.append(_question(sample, row_id, finder, popqa_aliases))
        except _GoldNotFoundError as error:
            if missing_gold == "error":
                raise DataError(path, f"question {row_id!r} (number {i}): {error}") from error
            skips.add("gold passage not in the corpus", row_id)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            keys = ", ".join(sample)
            problem = f"question {row_id!r} (number {i}) has an unknown shape: {error!r}; its keys are {keys}"
            raise DataError(path, problem) from error
    if not questions:
        raise DataError(path, f"holds no usable questions. {skips.summary()}".strip())
    if finder.by_title:
        skips.notes.append(f"{len(finder.by_title)} gold passages were matched by their title, as their text differs")
    _note_size(skips, name, "questions", len(seen))
    return questions


class _GoldNotFoundError(Exception):
    """A gold passage is not in the corpus."""


class _Finder:
    def __init__(self, passages: Iterable[Passage]) -> None:
        self.by_title: set[str] = set()
        self._contents: dict[tuple[str, str], str] = {}
        self._titles: dict[str, list[str]] = defaultdict(list)
        for passage in passages:
            self._contents.setdefault((passage.title, _squeezed(passage.text)), passage.id)
            self._titles[passage.title].append(passage.id)

    def find(self, gold: GoldText) -> str:
        for text in gold.texts:
            found = self._contents.get((gold.title, _squeezed(text)))
            if found is not None:
                return found
        same_title = self._titles.get(gold.title, [])
        if len(same_title) == 1:
            self.by_title.add(same_title[0])
            return same_title[0]
        raise _GoldNotFoundError(
            f"gold passage {gold.title!r} is not in the corpus: no passage has its text, and {len(same_title)} have "
            "its title. Use the corpus file of the same release, or set missing_gold=drop to leave such questions out"
        )


def _question(sample: Sample, row_id: str, finder: _Finder, popqa_aliases: PopqaAliases) -> Question:
    text = sample["question"]
    if not (isinstance(text, str) and text.strip()):
        raise ValueError("'question' is empty or no string")
    decomposition = tuple(
        GoldHop(question, answer, None if gold is None else finder.find(gold))
        for question, answer, gold in fields.hops(sample)
    )
    return Question(
        id=row_id,
        text=text,
        answers=fields.gold_answers(sample, popqa_aliases),
        type=fields.question_type(sample),
        gold=tuple(dict.fromkeys(finder.find(gold) for gold in fields.gold_texts(sample))),
        decomposition=decomposition,
        evidence=fields.evidence(sample),
        extra=fields.extra(sample),
    )


def _squeezed(text: str) -> str:
    """Return `text` with single spaces: one trailing blank must not lose a gold passage."""
    return " ".join(text.split())


def _note_size(skips: Skips, name: str, what: Literal["questions", "passages"], found: int) -> None:
    if name in RELEASES:
        questions, passages = RELEASES[name]
        expected = (questions,) if what == "questions" else passages
        if found not in expected:
            full = " or ".join(f"{n:,}" for n in expected)
            skips.notes.append(f"{name} has {found:,} {what} here, {full} in the full release")
