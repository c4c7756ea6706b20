"""Renamed copies of a question set: realistic text of any size for scale tests, in which every question keeps its gold.

    python benchmarks/rename_corpus.py ../shared/data/2wiki data/made/2wiki-x16 --copies 16 [--original] [--split dev]

Writes `corpus.jsonl` and `questions.SPLIT.jsonl`; the id of a passage or question in copy 3 is `c3/ID`. In each
copy every word that is part of a name becomes another, coined one, one to one, in titles, texts, questions and
answers, and no coined word occurs in two copies. Dates, numbers, countries and ordinary words stay, so that comparisons
stay true. A title of ordinary words alone (*Local Hero*) gets one coined word where it is written as a whole.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gnnrag.datasets.base import load_dataset
from gnnrag.text.normalise import COUNTRY_OF, FUNCTION_WORDS, fold
from gnnrag.types import Passage, Question

WORD = re.compile(r"[^\W\d_]+")
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
STEP = 100_003  # a prime: neighbouring numbers become words that do not look alike
RARE = 20  # a word is a name if it is written with a capital this many times as often as without
_KEPT = """
january february march april may june july august september october november december monday tuesday wednesday thursday
friday saturday sunday africa african asia asian europe european america american atlantic pacific latin soviet
christian catholic protestant orthodox jewish muslim islamic hindu buddhist god sir lord lady saint father mother
iii vii viii xii xiii xiv xvi xvii xviii xix yes
"""
KEPT = {*_KEPT.split(), *(fold(w) for pair in COUNTRY_OF.items() for name in pair for w in WORD.findall(name))}


def name_words(passages: Sequence[Passage]) -> set[str]:
    """Return the casefolded words that are part of a name wherever they stand."""
    small, large = Counter[str](), Counter[str]()
    for passage in passages:
        for match in WORD.finditer(passage.text):
            before = passage.text[: match.start()].rstrip(" “\"'(")[-1:]
            if match[0][0].islower():
                small[match[0]] += 1
            elif before not in ("", ".", "!", "?", "\n") and not (match[0].isupper() and len(match[0]) > 1):
                large[match[0].casefold()] += 1
        large.update(w.casefold() for w in WORD.findall(passage.title) if w[0].isupper())
    return {w for w in large if len(w) > 2 and small[w] * RARE <= large[w] and not is_ordinary(w)}


def is_ordinary(word: str) -> bool:
    """Tell whether a casefolded word stays as it is in every copy."""
    return word in FUNCTION_WORDS or fold(word) in KEPT


def phrases_of(titles: Iterable[str], names: set[str]) -> dict[str, list[tuple[list[str], int]]]:
    """Return the titles without a name in them: their casefolded words, and which one is replaced, by first word."""
    found: dict[str, list[tuple[list[str], int]]] = defaultdict(list)
    for title in dict.fromkeys(titles):
        words = WORD.findall(re.sub(r" \([^)]*\)$", "", title))
        capitals, words = [w[0].isupper() for w in words], [w.casefold() for w in words]
        free = [i for i, w in enumerate(words) if capitals[i] and not is_ordinary(w)]
        free = free or [i for i, w in enumerate(words) if w not in FUNCTION_WORDS] or list(range(len(words)))
        if free and not names.intersection(words):
            found[words[0]].append((words, free[-1]))
    for same in found.values():
        same.sort(key=lambda phrase: -len(phrase[0]))
    return found


class Coiner:
    """Coins words with a given first letter; none twice, and none that is `taken`."""

    def __init__(self, taken: set[str]) -> None:
        self._taken, self._next = taken, Counter[str]()

    def coin(self, word: str) -> str:
        """Return another word, in lower case, for one."""
        initial = fold(word)[:1]
        initial = initial if "a" <= initial <= "z" else "bdklmnrst"[sum(word.encode()) % 9]
        while True:
            number, size, text = self._next[initial], 3, initial if initial in "aeiou" else f"{initial}o"
            self._next[initial] += 1
            while number >= len(SYLLABLES) ** size:
                number -= len(SYLLABLES) ** size
                size += 1
            number = number * STEP % len(SYLLABLES) ** size
            for _ in range(size):
                number, digit = divmod(number, len(SYLLABLES))
                text += SYLLABLES[digit]
            if text not in self._taken:
                return text


def renamer(new: dict[str, str], phrases: dict[str, list[tuple[list[str], int]]]) -> Callable[[str], str]:
    """Return what renames a text, given the new word of each casefolded one (words of phrases: with a blank before)."""

    def rename(text: str) -> str:
        matches = list(WORD.finditer(text))
        words = [match[0].casefold() for match in matches]
        forced = set[int]()
        for i, word in enumerate(words):
            for phrase, at in phrases.get(word, ()) if matches[i][0][0].isupper() else ():
                if words[i : i + len(phrase)] == phrase and (len(phrase) > 1 or len(words) == 1):
                    forced.add(i + at)
                    break
        pieces, end = [], 0
        for i, match in enumerate(matches):
            key = words[i]
            other = new.get(f" {key}" if i in forced else key)
            if other and (match[0][0].isupper() or i in forced):
                styled = other.upper() if len(key) > 1 and match[0].isupper() else other.capitalize()
                pieces += [text[end : match.start()], styled]
                end = match.end()
        return "".join([*pieces, text[end:]])

    return rename


def rows_of(questions: Sequence[Question], prefix: str, rename: Callable[[str], str]) -> Iterable[dict[str, Any]]:
    """Yield questions as rows of a canonical file."""
    for q in questions:
        gold = [prefix + id_ for id_ in q.gold]
        row = {"id": prefix + q.id, "question": rename(q.text), "answers": list(map(rename, q.answers))}
        row |= {"type": q.type, "gold": gold}
        if q.decomposition:
            row["decomposition"] = [
                {"question": rename(h.question), "answer": rename(h.answer), "gold": h.gold and prefix + h.gold}
                for h in q.decomposition
            ]
        yield row


def write_copies(path: str, out: Path, copies: int, original: bool = False, split: str = "dev", seed: int = 0) -> int:
    """Write the folder `out`, which must not exist; return the number of passages written."""
    data = load_dataset(path, split)
    names = name_words(data.passages)
    phrases = phrases_of((passage.title for passage in data.passages), names)
    keys = sorted(names | {f" {words[at]}" for same in phrases.values() for words, at in same})
    taken = {w.casefold() for p in data.passages for w in WORD.findall(f"{p.title} {p.text}")}
    coiner = Coiner(taken)
    out.mkdir(parents=True)
    with (
        (out / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
        (out / f"questions.{split}.jsonl").open("w", encoding="utf-8") as asked,
    ):
        for number in range(-1 if original else 0, copies):
            prefix, rename = (f"c{number}/", renamer({}, {})) if number >= 0 else ("", str)
            if number >= 0:
                mixed = random.Random(f"{seed} {number}").sample(keys, len(keys))
                rename = renamer({key: coiner.coin(key.strip()) for key in mixed}, phrases)
            for p in data.passages:
                row = {"id": prefix + p.id, "title": rename(p.title), "text": rename(p.text)}
                corpus.write(json.dumps(row, ensure_ascii=False) + "\n")
            for row in rows_of(data.questions, prefix, rename):
                asked.write(json.dumps(row, ensure_ascii=False) + "\n")
    return len(data.passages) * (copies + original)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("out", type=Path)
    parser.add_argument("--copies", type=int, default=16)
    parser.add_argument("--original", action="store_true", help="the set itself first, under its own ids")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    count = write_copies(given.path, given.out, given.copies, given.original, given.split, given.seed)
    print(f"{count:,} passages in {given.out}")
