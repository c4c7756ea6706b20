"""Two-hop questions made of single ones: a name in one question gives way to a question whose answer is that name.

MuSiQue (Trivedi et al., TACL 2022, arXiv 2108.00573) is composed in this way by people; here rules word the first
question as a phrase, so that no model is needed. They read oddly, and show an encoder what a second hop leans on.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.types import Passage, Question

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


@dataclass
class ComposeConfig:
    """How often what is composed may repeat itself; each second question is used once."""

    per_answer: int = 20  # questions about one name
    per_fact: int = 4  # questions that lean on one first question or triple
    share: float = 1.0  # factor of the probability that a batch takes a composed question; 0: none are made


@dataclass(frozen=True)
class Fact:
    """A first hop: what is known of a name, in words, and the passage that says it."""

    wording: str
    name: str  # the answer
    passage: str  # id
    question_id: str


@dataclass(frozen=True)
class Composed:
    """A question of two hops, with what it was made of."""

    text: str
    passages: tuple[str, str]  # ids, in the order of the hops
    sources: tuple[str, str]  # ids of the questions


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
        is_told = name.lower() in question.text.lower()
        return [Fact(phrase, name, question.gold[0], question.id)] if phrase and _is_name(name) and not is_told else []
    found = []
    for head, relation, tail in question.evidence:
        gold = [id_ for id_ in question.gold if bare_title(passages[id_].title) == bare_title(head)]
        if len(gold) == 1 and "date" not in relation and _is_name(tail):
            found.append(Fact(f"the {relation} of {head}", tail, gold[0], question.id))
    return found


def bare_title(title: str) -> str:
    """Return a title without what stands in brackets at its end, to compare names by."""
    return _QUALIFIER.sub("", title).casefold()


def _is_name(text: str) -> bool:
    return len(text) > 3 and text[0].isupper() and len(text.split()) <= _LONGEST


def compose(facts: Sequence[Fact], questions: Sequence[Question], config: ComposeConfig, seed: int) -> list[Composed]:
    """Return questions with a name replaced by what a fact says of it, drawn by the seed within `config`'s limits.

    The fact comes from another passage than the question's, and the question does not ask for the name itself.
    """
    holders: dict[str, set[int]] = defaultdict(set)
    for number, question in enumerate(questions):
        for word in _WORDS.findall(question.text):
            holders[word].add(number)
    pairs = [(f, n) for f, fact in enumerate(facts) for n in sorted(_mentioned(fact.name, holders))]
    order = np.random.default_rng([seed, 7]).permutation(len(pairs)).tolist()
    names, leaned, used = Counter[str](), Counter[int](), set[int]()
    found = []
    for fact_number, number in (pairs[i] for i in order):
        fact, question = facts[fact_number], questions[number]
        is_spent = names[fact.name] >= config.per_answer or leaned[fact_number] >= config.per_fact or number in used
        if is_spent or len(question.gold) != 1 or fact.passage in question.gold or fact.name in question.answers:
            continue
        if (text := _replaced(question.text, fact)) is None:
            continue
        names[fact.name] += 1
        leaned[fact_number] += 1
        used.add(number)
        found.append(Composed(text, (fact.passage, question.gold[0]), (fact.question_id, question.id)))
    return found


def _mentioned(name: str, holders: Mapping[str, set[int]]) -> set[int]:
    """Return the numbers of the questions that have all words of a name."""
    words = _WORDS.findall(name)
    return set.intersection(*(holders.get(word, set()) for word in words)) if words else set()


def _replaced(text: str, fact: Fact) -> str | None:
    """Return a question with the name replaced; None where it is not there, or is part of a longer name."""
    pattern = rf"(?:\b[Tt]he\s+)?(?<!\w){re.escape(fact.name)}(?!\w)(?!\s+[A-Z])"
    found = re.search(pattern, text)
    return text[: found.start()] + fact.wording + text[found.end() :] if found else None
