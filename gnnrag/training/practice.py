"""Questions made from passages, to practise reading on.

A sentence loses a name, date or number to a question word, and what it is about is named by how another passage speaks
of it: two hops with a known answer. Extracted triples, where there are any, give further ones.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.roles.offline_reader.candidates import KINDS, spans_in
from gnnrag.roles.offline_reader.spans import STOPWORDS, clean, fold, sentences, without_parentheses
from gnnrag.types import Passage

Triple = tuple[str, str, str]
_ASKED = {
    "date": ("when", "when", "what date"),
    "year": ("when", "what year", "when"),
    "number": ("how many", "how much", "what", "what number"),
    "country": ("what country", "where", "which country"),
    "place": ("where", "what city", "in which place"),
    "quoted": ("what", "which"),
    "name": ("who", "what", "which", "who", "where"),
    "phrase": ("what", "what kind", "which"),
}
_PRONOUNS = re.compile(r"\b(?:he|she|it|they|his|her|its|their|the (?:film|song|band|city|company))\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SyntheticQuestion:
    """A made question."""

    question: str  # the text
    answer: str  # as it stands in the passage
    passages: tuple[int, ...]  # numbers of the passages shown: the one that holds the answer first


class SyntheticMaker:
    """Makes questions; `vectors` (D, d) choose the `distractors` shown, `triples` are of each passage or nothing."""

    def __init__(
        self,
        passages: Sequence[Passage],
        vectors: np.ndarray,
        triples: Sequence[Sequence[Triple]] = (),
        distractors: int = 1,
    ) -> None:
        self.passages, self.vectors, self.triples = passages, vectors, triples
        self.distractors = distractors
        self.texts = [clean(p.text) for p in passages]
        self.names = [fold(without_parentheses(p.title)) for p in passages]
        self.about: dict[str, list[tuple[int, str]]] = defaultdict(list)  # name -> passages and sentences that have it
        known = {n for n in self.names if len(n) > 3}
        for i, text in enumerate(self.texts):
            for sentence in sentences(text):
                tokens = fold(sentence).split()
                grams = {" ".join(tokens[a : a + n]) for n in range(1, 6) for a in range(len(tokens) - n + 1)}
                for name in sorted(grams & known):
                    if name != self.names[i]:
                        self.about[name].append((i, sentence))
        self.heads: dict[str, list[tuple[int, Triple]]] = defaultdict(list)
        for i, rows in enumerate(triples):
            for triple in rows:
                self.heads[fold(triple[2])].append((i, triple))

    def make(self, number: str, seed: int) -> SyntheticQuestion | None:
        """Return the question that a text and a seed decide, or None where the passage drawn gives none."""
        rng = random.Random(f"{seed}/{number}")
        i = rng.randrange(len(self.passages))
        from_triple = bool(self.triples) and rng.random() < 0.7
        found = self._from_triple(i, rng) if from_triple else self._from_sentence(i, rng)
        if found is None:
            return None
        question, answer, other = found
        shown = [i, *([other] if other is not None else [])]
        near = self.vectors @ self.vectors[i if other is None or rng.random() < 0.7 else other]
        pool = [int(j) for j in np.argsort(-near, kind="stable")[:12] if int(j) not in shown]
        shown += rng.sample(pool, min(self.distractors, len(pool)))
        return SyntheticQuestion(question, answer, tuple(shown))

    def _from_sentence(self, i: int, rng: random.Random) -> tuple[str, str, int | None] | None:
        rows = [(s, n) for n, s in enumerate(sentences(self.texts[i])) if 30 < len(s) < 400]
        if not rows:
            return None
        sentence, _ = rng.choice(rows)
        spans = [
            (t, k, s, e)
            for t, k, s, e, _ in spans_in(sentence, rng.random() < 0.15)
            if fold(t) and not set(fold(t).split()) & set(self.names[i].split())
        ]
        if not spans:
            return None
        kinds = sorted({k for _, k, _, _ in spans}, key=KINDS.index)
        kind = rng.choice(kinds)
        answer, _, start, end = rng.choice([s for s in spans if s[1] == kind])
        before, after = sentence[:start].split(), sentence[end:].split()
        left, right = rng.randint(2, 9), rng.randint(1, 8)
        words = [w for w in [*before[-left:], "#", *after[:right]] if w == "#" or rng.random() > 0.25 or len(w) > 6]
        body = " ".join(w for w in words if w != "#").strip(" ,.;:()")
        subject, other = self._subject(i, rng)
        body = _PRONOUNS.sub(" ", body)
        if fold(answer) in fold(body) or not [w for w in fold(body).split() if w not in STOPWORDS]:
            return None
        return _worded(rng, kind, body, subject), answer, other

    def _from_triple(self, i: int, rng: random.Random) -> tuple[str, str, int | None] | None:
        rows = [t for t in self.triples[i] if t[2] in self.texts[i] or t[0] in self.texts[i]]
        if not rows:
            return None
        head, relation, tail = rng.choice(rows)
        is_tail = tail in self.texts[i] and rng.random() < 0.75
        answer, given = (tail, head) if is_tail else (head, tail)
        if answer not in self.texts[i] or fold(answer) in fold(given) or len(answer.split()) > 6:
            return None
        subject, other = given, None
        options = [(j, t) for j, t in self.heads.get(fold(given), ()) if j != i and fold(answer) not in fold(t[0])]
        if options and rng.random() < 0.7:
            other, (first, link, _) = rng.choice(options)
            subject = rng.choice((f"the one that {first} {link}", f"what {first} {link}", f"{first} {link}"))
        elif fold(given) == self.names[i] and rng.random() < 0.6:
            subject, other = self._subject(i, rng)
        kind = next((k for t, k, *_ in spans_in(answer, True) if t == answer), "phrase")
        return _worded(rng, kind, relation, subject), answer, other

    def _subject(self, i: int, rng: random.Random) -> tuple[str, int | None]:
        """Return how the question names what passage `i` is about, and the passage that it does so by."""
        about = [(j, s) for j, s in self.about.get(self.names[i], ()) if j != i]
        if not about or rng.random() < 0.3:
            return (without_parentheses(self.passages[i].title) if rng.random() < 0.8 else ""), None
        other, sentence = rng.choice(about)
        words, name = sentence.split(), self.names[i].split()
        at = next((n for n, w in enumerate(words) if fold(w) in name), 0)
        near = [w for w in words[max(0, at - 5) : at] if fold(w) not in name and not w[0].isupper()]
        return f"{' '.join(near)} {without_parentheses(self.passages[other].title)}".strip(), other


def _worded(rng: random.Random, kind: str, body: str, subject: str) -> str:
    asked = rng.choice(_ASKED.get(kind, ("what",)))
    shape = rng.random()
    if shape < 0.6:
        text = f"{asked} {body} {subject}?"
    elif shape < 0.75:
        text = f"{asked} {subject} {body}?"
    elif shape < 0.9:
        text = f"{subject} {body} {asked}?"
    else:
        text = f"{subject} >> {body}"
    text = " ".join(text.split())
    return text[0].upper() + text[1:]
