"""The sentence by which one passage leads to another: what a reader of a single passage would otherwise not know."""

from __future__ import annotations

from gnnrag.roles.extractive.reading import Reading
from gnnrag.roles.extractive.spans import fold, sentences, words


def bridges(question: str, reading: Reading) -> list[str]:
    """Return, for each passage, the sentence of another one that names it and shares most words with the question.

    The title of the other passage opens it. Empty where no other passage names this one.
    """
    asked = set(words(question))
    rows = [(j, s, f" {fold(s)} ") for j, text in enumerate(reading.texts) for s in sentences(text)]
    found = []
    for i, bare in enumerate(reading.linker.bare):
        best, best_score = "", 0.0
        for j, sentence, folded in rows:
            if j == i or len(bare) < 3 or f" {bare} " not in folded:
                continue
            title = reading.passages[j].title
            score = 1 + len(asked & {*words(sentence), *words(title)}) - 0.1 * j
            if score > best_score:
                best, best_score = f"{title}: {sentence}", score
        found.append(best)
    return found
