"""Two-hop questions made of single ones: a name in one question gives way to a question whose answer is that name.

MuSiQue (Trivedi et al., TACL 2022, arXiv 2108.00573) is composed in this way by people; here rules word the first
question as a phrase, so that no model is needed. The results read oddly, but they teach an encoder the second hop.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.io import write_json, write_jsonl
from gnnrag.types import GoldHop, Passage, Question

PER_ANSWER = 20  # composed questions about one name, at most
PER_FACT = 4  # that lean on one first question or triple, at most; each second question is used once
_LONGEST = 5  # words of a name that is replaced
_WORDS = re.compile(r"\w+")
_ARTICLE = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")
_VERBS = "is|was|are|were|has|had|did|does|do|can|could|would|will"
_WORDINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), phrase)
    for pattern, phrase in (
        (r"^(?:who|whom)\s+(?:is|was|were|are)\s+(the\s.+)$", r"\1"),
        (r"^who\s+(.+)$", r"the one who \1"),
        (r"^(?:what|which)\s+(?:is|was|are|were)\s+(the\s.+)$", r"\1"),
        (rf"^(?:what|which)\s+(\w+(?:\s\w+)?)\s+({_VERBS})\s+(.+)$", r"the \1 that \2 \3"),
        (r"^(?:what|which)\s+(\w+)\s+(\w+(?:ed|s)\s.+)$", r"the \1 that \2"),
        (r"^(in|at|on|to|from|by|with|for|of)\s+(?:what|which)\s+(\w+)\s+(.+)$", r"the \2 \1 which \3"),
        (r"^where\s+(.+)$", r"the place where \1"),
    )
)


@dataclass(frozen=True)
class Fact:
    """A first hop: what is known of a name, in words, and the passage that says it."""

    wording: str
    name: str  # the answer
    passage: str  # id
    question_id: str
    hops: tuple[GoldHop, ...]  # what is asked up to the name


def worded(question: str) -> str | None:
    """Return a question as a phrase that stands for its answer ("the one who wrote Emma"); None where no rule fits."""
    text = question.strip().rstrip("?").strip()
    for pattern, phrase in _WORDINGS:
        if pattern.match(text):
            return pattern.sub(phrase, text)
    return None


def facts_of(question: Question, passages: Mapping[str, Passage]) -> list[Fact]:
    """Return the first hops in a question: itself, where it has one gold passage, else its evidence triples."""
    if len(question.gold) == 1 and question.answers:
        name, phrase = _ARTICLE.sub("", question.answers[0].strip()).strip(" .,\"'"), worded(question.text)
        if not phrase or not _is_name(name) or name.lower() in question.text.lower():
            return []
        return [Fact(phrase, name, question.gold[0], question.id, _hops(question))]
    facts = []
    for head, relation, tail in question.evidence:
        gold = [id_ for id_ in question.gold if bare_title(passages[id_].title) == bare_title(head)]
        if len(gold) == 1 and "date" not in relation and _is_name(tail):
            phrase = f"the {relation} of {head}"
            facts.append(Fact(phrase, tail, gold[0], question.id, (GoldHop(f"What is {phrase}?", tail, gold[0]),)))
    return facts


def _hops(question: Question) -> tuple[GoldHop, ...]:
    return question.decomposition or (GoldHop(question.text, question.answers[0], question.gold[0]),)


def bare_title(title: str) -> str:
    """Return a title without what stands in brackets at its end, to compare names by."""
    return _QUALIFIER.sub("", title).casefold()


def _is_name(text: str) -> bool:
    return len(text) > 3 and text[0].isupper() and len(text.split()) <= _LONGEST


def compose(facts: Sequence[Fact], questions: Sequence[Question], seed: int) -> list[Question]:
    """Return questions with a name replaced by what a fact says of it, drawn by the seed.

    The fact comes from another passage than the question's, and the question does not ask for the name itself. Gold
    are the two passages in the order of the hops; `extra["sources"]` are the ids of the two questions.
    """
    holders: dict[str, set[int]] = defaultdict(set)  # questions by their words
    for number, question in enumerate(questions):
        for word in _WORDS.findall(question.text):
            holders[word].add(number)
    pairs = []
    for fact_number, fact in enumerate(facts):
        words = _WORDS.findall(fact.name)
        mentioned = set.intersection(*(holders.get(word, set()) for word in words)) if words else set()
        pairs += [(fact_number, number) for number in sorted(mentioned)]
    of_name, of_fact, used = Counter[str](), Counter[int](), set[int]()
    composed = []
    for i in np.random.default_rng([seed, 7]).permutation(len(pairs)).tolist():
        fact_number, number = pairs[i]
        fact, question = facts[fact_number], questions[number]
        if of_name[fact.name] >= PER_ANSWER or of_fact[fact_number] >= PER_FACT or number in used:
            continue
        if len(question.gold) != 1 or fact.passage in question.gold or fact.name in question.answers:
            continue
        name = re.search(rf"(?:\b[Tt]he\s+)?(?<!\w){re.escape(fact.name)}(?!\w)(?!\s+[A-Z])", question.text)
        if name is None:  # it is not there as such, or is a part of a longer name
            continue
        of_name[fact.name] += 1
        of_fact[fact_number] += 1
        used.add(number)
        text = question.text[: name.start()] + fact.wording + question.text[name.end() :]
        text = text[:1].upper() + text[1:]
        sources, gold = (fact.question_id, question.id), (fact.passage, question.gold[0])
        made = Question("+".join(sources), text, question.answers, "2hop", gold, extra={"sources": sources})
        composed.append(replace(made, decomposition=(*fact.hops, *_hops(question))))
    return composed


# ------------------------------------------------------------------------------------------------------------- a set
@dataclass
class JoinConfig:
    """Which sets are joined, and what is made of their questions."""

    sets: list[str] = field(default_factory=list)  # folders of canonical sets; the passages of all are the corpus
    split: str = "train"  # of their questions
    out: str = ""  # folder that is written
    two: Annotated[int, Ge(0)] = 800  # composed questions of two hops, at most; 0: none
    three: Annotated[int, Ge(0)] = 250  # of three hops, at most: a composed question is the first of another
    keep: bool = False  # the sets' own questions of several gold passages are written, too
    leave_out: list[str] = field(default_factory=list)  # ids of questions not to be used, such as those of a test set
    seed: int = 0


def join_sets(config: JoinConfig) -> dict[str, Any]:
    """Write corpus.jsonl, questions.SPLIT.jsonl and SOURCE.json; returns the numbers of what was written.

    Raises ConfigError: a setting is missing, two sets have passages of one id, or none a question to be left out;
    DataError: nothing could be composed.
    """
    if not config.sets or not config.out:
        raise ConfigError("sets=[FOLDER,...] out=DIR: name the sets that are joined, and the folder that is written")
    sets = [load_dataset(path, config.split) for path in config.sets]
    passages = {p.id: p for one in sets for p in one.passages}
    if len(passages) < sum(len(one.passages) for one in sets):
        raise ConfigError("sets: two of them have passages of the same id; name each set once")
    if unknown := set(config.leave_out).difference(q.id for one in sets for q in one.questions):
        raise ConfigError(f"leave_out: no set has a question {', '.join(sorted(unknown))}")
    asked = [q for one in sets for q in one.questions if q.id not in config.leave_out]
    made = composed_questions(asked, passages, config)
    own = [q for q in asked if config.keep and len(q.gold) > 1]
    questions = [*own, *made]
    if not questions:
        wanted = "they are made of questions with an answer and one gold passage, as those of SQuAD are"
        raise DataError(", ".join(config.sets), f"no question was composed: {wanted}")
    out = Path(config.out)
    write_jsonl(out / "corpus.jsonl", [{"id": p.id, "title": p.title, "text": p.text} for p in passages.values()])
    rows = [
        {"id": q.id, "question": q.text, "answers": q.answers, "type": q.type, "gold": q.gold}
        | {"decomposition": [asdict(hop) for hop in q.decomposition]}
        for q in questions
    ]
    write_jsonl(out / f"questions.{config.split}.jsonl", rows)
    counts = {"passages": len(passages), "questions": len(questions), "composed": len(made)}
    write_json(out / "SOURCE.json", {**counts, **asdict(config)})
    return counts


def composed_questions(asked: Sequence[Question], passages: dict[str, Passage], config: JoinConfig) -> list[Question]:
    """Return composed questions with all their gold passages, in the order of the hops."""
    single = [q for q in asked if len(q.gold) == 1 and q.answers]
    facts = [fact for q in asked for fact in facts_of(q, passages)]
    two = compose(facts, single, config.seed)
    # A composed question leads on like a single one: to facts it is a question of its last passage.
    first = {q.id: q for q in two}
    further = [fact for q in two for fact in facts_of(replace(q, gold=q.gold[-1:]), passages)]
    three = []
    for made in compose(further, single, config.seed + 1):
        gold = first[made.extra["sources"][0]].gold
        if made.gold[1] not in gold:
            three.append(replace(made, type="3hop", gold=(*gold, made.gold[1])))
    rng = np.random.default_rng(config.seed)
    drawn = [(two, config.two), (three, config.three)]
    return [made[i] for made, most in drawn for i in sorted(rng.permutation(len(made))[:most].tolist())]
