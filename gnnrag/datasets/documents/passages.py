"""Cut a document into passages along its headings and sentences; a title and a place for each.

No sentence is cut, but one of more than `HARD_CAP` words; no row of a table is parted from the table's head. Titles are
the path of headings, and what a passage is about where that says too little: the subject of its first sentence, or its
key term, from its file alone. Where one paragraph makes many passages, the term that sets it apart from the rest of the
file stands before: "Thyroid cancer > Radioactive iodine".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import log

from gnnrag.datasets.chunk import Chunking, count_words, pack, word_starts
from gnnrag.datasets.documents.blocks import Block, Document, Kind, place, with_paths
from gnnrag.text.normalise import FUNCTION_WORDS, fold
from gnnrag.text.sentences import sentence_spans, split_sentences
from gnnrag.text.subjects import subject_of
from gnnrag.text.terms import find_terms

HARD_CAP = 300  # words; a longer sentence is no sentence that anybody wrote
REPEATED = 12  # words of a paragraph from which on its repetition is left out
LEAD = 25  # words of a sentence that ends in a colon up to which it stays with what it leads to
LABEL = 2  # words of a paragraph up to which it names the next one
LONG_PARAGRAPH = 3  # times the size of a passage from which on a paragraph stands alone
MANY = 6  # passages of one heading up to which the heading is title enough
_CLAUSE = re.compile(r"[;:,–—|)]\s+|\s[-–—]\s")


@dataclass(frozen=True, slots=True)
class Cut:
    """A passage before it has its id."""

    title: str
    text: str
    place: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is not cut: a sentence, an item's sentence, a row, a line as set."""

    text: str
    words: int
    paragraph_words: int
    glue: str  # before it, where it does not start a passage
    head: str  # of its table, where it starts a passage
    first: int  # where in the file it starts and ends
    last: int
    block: Block


@dataclass(frozen=True, slots=True)
class _Chunk:
    path: tuple[str, ...]
    text: str
    place: str
    stretch: int  # number of the block in which it starts, for chunks of one very long paragraph


def cut_document(document: Document, chunking: Chunking, fallback: str) -> list[Cut]:
    """Return the passages of a document, in order; `fallback` titles one of which nothing else can be said."""
    chunking.check()
    _drop_repeated(document)
    cap = max(HARD_CAP, chunking.target_words)
    chunks: list[_Chunk] = []
    for (path, part), group in groupby(with_paths(document), key=lambda item: (item[0], item[1].part)):
        runs: list[list[_Unit]] = [[]]
        for _, block in group:
            units = list(_units(block, document, cap, runs[-1][-1].block.kind if runs[-1] else "item"))
            # A very long paragraph is a document in the document: no passage begins in one and ends in another.
            longest = LONG_PARAGRAPH * chunking.target_words
            if block.kind == "text" and units and units[0].paragraph_words > longest:
                runs += [units, []]
            else:
                runs[-1] += units
        for run in map(_with_labels, runs):
            for start, stop in pack([(unit.words, unit.paragraph_words) for unit in run], chunking):
                units = run[start:stop]
                text = f"{units[0].head}\n" if units[0].head else ""
                text += units[0].text + "".join(unit.glue + unit.text for unit in units[1:])
                where = place(document.unit, min(u.first for u in units), max(u.last for u in units), part)
                chunks.append(_Chunk(path, text, where, id(units[0].block)))
    often = Counter(chunk.path for chunk in chunks)
    needy = [i for i, chunk in enumerate(chunks) if not chunk.path or often[chunk.path] > MANY]
    topics = dict(zip(needy, _topics([chunks[i] for i in needy], chunks), strict=True))
    names = ((*chunk.path, topics.get(i, "")) for i, chunk in enumerate(chunks))
    titles = (" > ".join(part for part in name if part) or fallback for name in names)
    return [Cut(title, chunk.text, chunk.place) for title, chunk in zip(titles, chunks, strict=True)]


def normalised(text: str) -> str:
    """Return what texts share that differ in blanks, case and punctuation only."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _drop_repeated(document: Document) -> None:
    """Drop paragraphs of `REPEATED` words or more that stand in the document already."""
    seen: set[str] = set()
    blocks = []
    for block in document.blocks:
        words = normalised(block.text)
        is_long = block.kind != "heading" and count_words(block.text) >= REPEATED
        if not (is_long and words in seen):
            blocks.append(block)
        if is_long:
            seen.add(words)
    document.blocks = blocks


def _units(block: Block, document: Document, cap: int, after: Kind) -> Iterator[_Unit]:
    head, start = "", 0
    if block.kind == "table":
        head = "\n".join(block.text.split("\n")[:2])
        start = len(head) + 1
    spans = [span for piece in _pieces(block, start) for span in _capped(block.text, *piece, cap)]
    total = sum(words for _, _, words in spans)
    between = "\n" if block.kind == "item" and after in ("item", "text") else "\n\n"
    end = start
    for number, (first, last, words) in enumerate(spans):
        gap, end = block.text[end:first], last
        text = block.text[first:last]
        at, to = block.at(first, document.unit), block.at(max(last - 1, first), document.unit)
        if number == 0:
            yield _Unit(f"{head}\n{text}" if head else text, words, total, between, "", at, to, block)
        else:
            yield _Unit(text, words, 0, "\n" if "\n" in gap or head else " " if gap else "", head, at, to, block)


def _with_labels(units: Sequence[_Unit]) -> list[_Unit]:
    """Return units that lead on joined to what they lead to: a bare number or word, a sentence that ends in a colon."""
    joined: list[_Unit] = []
    for unit in units:
        label = joined[-1] if joined else None
        if label is None or label.block.kind != "text" or label.block is unit.block:
            joined.append(unit)
            continue
        is_bare = label.words == label.paragraph_words <= LABEL and label.text[-1] not in ".!?"
        if not (is_bare and unit.block.kind == "text") and not (label.text[-1] == ":" and label.words <= LEAD):
            joined.append(unit)
            continue
        text = f"{label.text}{unit.glue if label.text[-1] == ':' else ' '}{unit.text}"
        words, paragraph = label.words + unit.words, label.words + unit.paragraph_words
        joined[-1] = replace(
            unit, text=text, words=words, paragraph_words=paragraph, glue=label.glue, first=label.first
        )
    return joined


def _pieces(block: Block, start: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of lines, in paragraphs of sentences within lines: where a line feed was kept, one ends."""
    for line in re.finditer(r"[^\n]+", block.text[start:]):
        first, last = start + line.start(), start + line.end()
        if block.kind in ("table", "verbatim"):
            yield first, last
        else:
            yield from ((first + a, first + b) for a, b in sentence_spans(block.text[first:last]))


def _capped(text: str, first: int, last: int, cap: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, words) of a sentence; of one with more than `cap` words, pieces that end at clauses."""
    starts = [first + start for start in word_starts(text[first:last])]
    begin = 0
    while len(starts) - begin > cap:
        clauses = [m.end() for m in _CLAUSE.finditer(text, starts[begin + cap // 2], starts[begin + cap])]
        end = clauses[-1] if clauses else starts[begin + cap]
        stop = bisect_left(starts, end, begin)
        yield first, first + len(text[first:end].rstrip()), stop - begin
        first, begin = end, stop
    if begin < len(starts):
        yield first, last, len(starts) - begin


# ------------------------------------------------------------------------------------------------------------- titles
MOST = 10_000_000  # characters that terms are looked for in; of a longer file, passages at equal distances
OPENING = 60  # characters of a paragraph in which it may name its topic
LONG = 4  # passages from which on a paragraph has a topic of its own
_SURE, _WORDS = 0.7, 6  # confidence, and words at most, of a subject that titles a passage
_GLUED = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.)])?\s*")


def _topics(untitled: Sequence[_Chunk], chunks: Sequence[_Chunk]) -> list[str]:
    """Return what each untitled passage is about, empty where nothing can be said; those of one file differ."""
    if not untitled:
        return []
    step = 1 + sum(len(chunk.text) for chunk in chunks) // MOST
    terms = find_terms(sentence for chunk in chunks[::step] for sentence in split_sentences(chunk.text))
    bags = [Counter(term.text for _, _, term in terms.in_text(chunk.text)) for chunk in untitled]
    spread = Counter(name for bag in bags for name in bag)

    def topic_of(members: Sequence[int]) -> str:
        """Return the term that most sets a long paragraph apart: in most of its passages, and in few others."""
        within = Counter(name for i in members for name in bags[i])
        opening = terms.in_text(untitled[members[0]].text[:OPENING])
        named = opening[0][2].text if opening else ""  # texts begin with what they are about
        weights = {}
        for name, count in sorted(within.items()):
            share, outside = count / len(members), (spread[name] - count + 3) / (len(untitled) - len(members) + 3)
            if share > outside:
                length = 1 + min(len(name.split()), 3)
                weights[name] = share * log(share / outside) * length * (1.3 if name == named else 1.0)
        return _capital(max(weights, key=lambda name: weights[name], default=""))

    def subject_in(text: str) -> str:
        """Return the subject of the first sentence where it is a name, or ends in a term, which then stands for it."""
        begins = _GLUED.match(text)
        found = subject_of(text[begins.end() if begins else 0 :])
        if found is None or found.confidence < _SURE or len(found.name.split()) > _WORDS:
            return ""
        if fold(found.name).split()[-1] in FUNCTION_WORDS:  # `Note that you`
            return ""
        if inside := terms.in_text(found.name):
            _, end, term = inside[-1]
            return term.text if end == len(found.name) else ""
        is_name = " " in found.name or len(untitled) == 1 or text.count(found.name) > 1
        return found.name if is_name and found.name[:1].isupper() and len(found.name) > 2 else ""

    stretches: dict[int, list[int]] = defaultdict(list)
    for i, chunk in enumerate(untitled):
        stretches[chunk.stretch].append(i)
    long = {stretch: members for stretch, members in stretches.items() if len(members) >= LONG}
    topics = {stretch: topic_of(members) for stretch, members in long.items()} if len(long) > 1 else {}
    used: set[str] = set()
    result = []
    for chunk, bag in zip(untitled, bags, strict=True):
        # A passage is about a term that is often here and seldom elsewhere; a long term says more.
        weights = {
            name: (1 + log(count)) * log(1 + len(bags) / (spread[name] + 5)) * (1 + min(len(name.split()), 3))
            for name, count in bag.items()
        }
        topic, subject = topics.get(chunk.stretch, ""), subject_in(chunk.text)
        names = [name for name in (subject, *sorted(bag, key=lambda name: (-weights[name], name))) if name]
        names = [name for name in names if name.casefold() != topic.casefold()] or names[: bool(subject)]
        names = list(dict.fromkeys(map(_capital, names)))
        candidates = [" > ".join(part for part in (topic, name) if part) for name in names[:5]]
        both = " > ".join(part for part in (topic, ", ".join(names[:2])) if part)
        title = next((title for title in candidates if title.casefold() not in used), both)
        used.add(title.casefold())
        result.append(title)
    return result


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
