"""One corpus of several sets, with questions of two and three hops composed of their single ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import read_json, write_json, write_jsonl
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError
from gnnrag.training.composing import ComposeConfig, Composed, compose, facts_of
from gnnrag.types import Passage, Question

SOURCE = "SOURCE.json"
MARK = "joined"  # the entry of SOURCE.json that says who wrote a folder


@dataclass
class JoinConfig:
    """Which sets are joined, and what is made of their questions."""

    sets: list[str] = field(default_factory=list)  # folders of canonical sets; the passages of all are the corpus
    split: str = "train"  # of their questions
    out: str = ""  # folder that is written
    two: int = 800  # composed questions of two hops, at most; 0: none
    three: int = 250  # of three hops, at most: a composed question is the first of another
    keep: bool = False  # the sets' own questions are written, too
    compose: ComposeConfig = field(default_factory=ComposeConfig)
    seed: int = 0


def join_sets(config: JoinConfig) -> dict[str, Any]:
    """Write corpus.jsonl, questions.SPLIT.jsonl and SOURCE.json; returns the numbers of what was written.

    Raises ConfigError: a setting is missing or too small, two sets have passages of one id, or `out` holds something
    that was not written here.
    """
    if not config.sets or not config.out:
        raise ConfigError("sets=[FOLDER,...] out=DIR: name the sets that are joined, and the folder that is written")
    if config.two < 0 or config.three < 0:
        raise ConfigError(f"two={config.two} and three={config.three}: must be 0 or more")
    _refuse_taken(Path(config.out))
    sets = [load_dataset(path, config.split) for path in config.sets]
    passages = {p.id: p for one in sets for p in one.passages}
    if len(passages) < sum(len(one.passages) for one in sets):
        raise ConfigError("sets: two of them have passages of the same id; name each set once")
    made = composed_questions(sets, passages, config)
    asked = [*(q for one in sets for q in one.questions if config.keep), *made]
    out = Path(config.out)
    write_jsonl(out / "corpus.jsonl", [{"id": p.id, "title": p.title, "text": p.text} for p in passages.values()])
    write_jsonl(out / f"questions.{config.split}.jsonl", [_plain(q) for q in asked])
    facts = {"passages": len(passages), "questions": len(asked), "composed": len(made)}
    write_json(out / SOURCE, {**facts, MARK: config.sets, "split": config.split, "seed": config.seed})
    return facts


def _refuse_taken(out: Path) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        is_mine = MARK in read_json(out / SOURCE)
    except (OSError, ValueError, TypeError):
        is_mine = False
    if not is_mine:
        raise ConfigError(f"out={out} holds something else than joined sets; give another folder")


def composed_questions(sets: Sequence[Dataset], passages: dict[str, Passage], config: JoinConfig) -> list[Question]:
    """Return composed questions with all their gold passages, in the order of the hops."""
    single = [q for one in sets for q in one.questions if len(q.gold) == 1 and q.answers]
    facts = [fact for one in sets for q in one.questions for fact in facts_of(q, passages)]
    known = {q.id: q for q in single}
    two = [_question(one, known, one.passages) for one in compose(facts, single, config.compose, config.seed)]
    # A composed question leads on like a single one: to facts it is a question of its last passage.
    first = {q.id: q for q in two}
    further = [fact for q in two for fact in facts_of(replace(q, gold=q.gold[-1:]), passages)]
    three = [
        _question(one, known, (*first[one.sources[0]].gold, one.passages[1]))
        for one in compose(further, single, config.compose, config.seed + 1)
        if one.passages[1] not in first[one.sources[0]].gold
    ]
    rng = np.random.default_rng(config.seed)
    drawn = [(two, config.two), (three, config.three)]
    return [made[i] for made, most in drawn for i in sorted(rng.permutation(len(made))[:most].tolist())]


def _question(one: Composed, known: dict[str, Question], gold: tuple[str, ...]) -> Question:
    text = one.text[:1].upper() + one.text[1:]
    return Question("+".join(one.sources), text, known[one.sources[1]].answers, f"{len(gold)}hop", gold)


def _plain(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.text,
        "answers": list(question.answers),
        "type": question.type,
        "gold": list(question.gold),
    }
