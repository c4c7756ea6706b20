"""What a passage without a title is about: the names that its first sentence introduces, else the name it repeats."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from gnnrag.text.normalise import FUNCTION_WORDS, fold, lexicon, phrase_key, word_set
from gnnrag.text.phrases import rule_phrases
from gnnrag.text.sentences import beginning, split_sentences

PATH = " > "  # in a title that says where in its document a passage stands (`Thyroid cancer > Staging`), and names none
MAX_WORDS = 12  # of a name; what is longer before a verb is a clause
_READ = 1_500  # characters of a passage that are read
# How sure a subject is: introduced by a verb or a bracket; a phrase in lower case; another name of it; what a sentence
# without such an introduction begins with; what the passage says most often.
_INTRODUCED, _COMMON, _ALIAS, _LEADING, _REPEATED = 0.9, 0.7, 0.7, 0.5, 0.4

_VERB, _ADVERB = ("|".join(lexicon()[name].split()) for name in ("subject_verbs", "subject_adverbs"))
_HARD_END = re.compile(rf"\s*[(\[{{;]|(?:\s+(?:{_ADVERB}))?\s+(?:{_VERB})(?:n['’]t)?\b|\s+[–—]\s")
# After a capital word also what looks like a verb: `Snow moved to Oslo and is`.
_LIKE_VERB = re.compile(r"(?<!\S)(?!(?:The|An?)\b)([^\W\d_a-z]\S*)\s+[a-z]+ed\b")
_FIRST_VERB = re.compile(rf"\s(?:{_VERB})\b")
_SOFT_END = re.compile(r"\s*,\s|\s*:\s")
_ALIAS_CUE = re.compile(
    r"\b(?:(?:also|better|best|commonly|formerly|originally|simply|sometimes|often|professionally|popularly) )?"
    r"(?:known|called|named|titled|entitled|subtitled|published|released|abbreviated|credited|performed)"
    r"(?: simply| just| professionally| mononymously| collectively| now)?"
    r"(?: as| (?:under|by) (?:the|his|her|their) (?:\w+ )?name)?(?: simply| just)?\s+"
    r"|\bn[ée]e\s+|\baka\s+"
)
_ALIAS_END = re.compile(rf"[,;()]|\s(?:{_VERB}|in|and|or|by)\s")
_SHORT_FORM = re.compile(r"\s*\(\s*(?:the\s+|or\s+)?[\"“]?([^\W\d_a-z][\w.&-]{1,9})[\"”]?\s*\)")
_QUOTED = re.compile(r"^\s*(?:\"\s*([^\"]{1,100}?)\s*\"|“([^”]{1,100})”|``\s*(.{1,100}?)\s*'')")
_LIFE = re.compile(r"\s*\([^()]{0,80}?(?:\bborn\b|\bdied\b|\d{3,4}\s*(?:–|-|—))")
_NICKNAME = re.compile(r"[\"“(]\s*([^\"”()]+?)\s*[\"”)]")
_GENERATION = re.compile(r"(?:Jr|Sr|[IVX]+)\.?,?")
_EDGE = " \t\n\"“”'‘’`.,;:!-–—*•"
_ARTICLE = re.compile(r"^(?:the|an?)\s+(?=\S)", re.IGNORECASE)
# Words that no name in lower case begins with: they open clauses, or count things.
_NO_START = (FUNCTION_WORDS - {"a", "an", "the"}) | word_set("clause_words")


@dataclass(frozen=True, slots=True)
class Subject:
    """A name for what a passage is about, in the passage's spelling, and how sure that is, in (0, 1)."""

    name: str
    confidence: float


def subject_of(text: str) -> Subject | None:
    """Return the surest of `subjects_of`, None where nothing in a text is named."""
    return next(iter(subjects_of(text)), None)


def subjects_of(text: str) -> tuple[Subject, ...]:
    """Return names for what a passage is about, surest first; no two have the same `phrase_key`. English only.

    They come from the first sentence, up to its verb: `Demon Dice, originally published as Chaos Progenitus, is a game`
    gives Demon Dice and Chaos Progenitus. Where it begins without a name (`It is`, `In 1957`), the name that most
    sentences have is taken.
    """
    sentences = split_sentences(beginning(text, _READ))
    if not sentences:
        return ()
    found = _introduced(sentences[0]) or _leading(sentences[0]) or _repeated(sentences)
    best: dict[str, Subject] = {}
    for subject in sorted(found, key=lambda s: -s.confidence):
        if key := phrase_key(subject.name):
            best.setdefault(key, subject)
    return tuple(best.values())


def _introduced(sentence: str) -> list[Subject]:
    """Return the name before the first verb or bracket, and its other names."""
    if (quoted := _QUOTED.match(sentence)) and _HARD_END.match(sentence, quoted.end()):
        return [Subject(_clean(quoted[quoted.lastindex or 0]), _INTRODUCED), *_aliases(sentence, quoted.end())]
    end = _HARD_END.search(sentence)
    if end is None:
        return []
    head = _LIKE_VERB.sub(r"\1\n", sentence[: end.start()], count=1).split("\n")[0]
    soft = _SOFT_END.search(head)
    short = head[: soft.start() + 1] if soft else head  # with its comma, which a clause has
    found = []
    parts = _SOFT_END.split(head)
    if soft and _is_named(head) and all(_is_capital(part) and not _ALIAS_CUE.match(part) for part in parts):
        found.append(Subject(_clean(head), _INTRODUCED))  # `Frederick I, Count Palatine`
        found += [Subject(_clean(short), _ALIAS)] * _is_named(short)
    elif _is_named(short):
        found.append(Subject(_clean(short), _INTRODUCED if _is_capital(_clean(short)) else _COMMON))
    if found and _LIFE.match(sentence, end.start()):
        found += [Subject(name, _ALIAS) for name in _short_names(parts[0])]
    return found + _aliases(sentence, end.start()) if found else []


def _short_names(name: str) -> list[str]:
    """Return what a person of several given names may be called: `Andrew "Drew" J. Fuller, Jr.` is Drew Fuller."""
    given = _NICKNAME.sub(" ", name)
    words = [word for word in given.split() if word.strip(_EDGE) and not _GENERATION.fullmatch(word)]
    if len(words) < 2 or not _is_capital(name) or {fold(word) for word in words} & FUNCTION_WORDS:
        return []
    first = [words[0]] if len(words) > 2 or given != name else []
    return [f"{one.strip(_EDGE)} {words[-1].strip(_EDGE)}" for one in (*_NICKNAME.findall(name), *first)]


def _is_named(head: str) -> bool:
    """Whether what stands before a verb can be a name: short, not a pronoun, no clause such as `In 1931`."""
    words = [fold(word.strip(_EDGE)) for word in head.split()]
    if not 0 < len(words) <= MAX_WORDS:
        return False
    content = [word for word in words if word not in FUNCTION_WORDS]
    if words[0] in _NO_START:  # `Until Tomorrow is a film`, not `In 1957, he was`, `Many states are`
        rest = head.split()[1:]
        return "," not in head and any(w[:1].isupper() for w in rest) and _is_capital(" ".join(rest))
    return bool(content) and any(c.isalnum() for c in content[0])


def _is_capital(name: str) -> bool:
    """Whether all words of a name but function words are capital or numbers; of a single word, the first letter."""
    words = [word for word in re.split(r"[\s-]+", name.strip(_EDGE)) if word.strip(_EDGE)]
    marked = [word.strip(_EDGE)[0] for word in words if fold(word.strip(_EDGE)) not in FUNCTION_WORDS]
    small = sum(not (c.isupper() or c.isdigit()) for c in marked)
    return bool(marked) and small <= len(marked) // 3  # `de`, `von`


def _aliases(sentence: str, end: int) -> list[Subject]:
    """Return the names after `also known as` and the like before the verb, and a short form in a bracket at `end`."""
    found = []
    verb = _FIRST_VERB.search(sentence)
    for cue in _ALIAS_CUE.finditer(sentence, 0, verb.start() if verb else 0):
        rest = sentence[cue.end() : cue.end() + 120]
        quoted = _QUOTED.match(rest)
        name = quoted[quoted.lastindex or 0] if quoted else _ALIAS_END.split(rest)[0]
        if _is_named(name):
            found.append(Subject(_clean(name), _ALIAS))
    short = _SHORT_FORM.match(sentence, end)
    return found + ([Subject(short.group(1), _ALIAS)] if short else [])


def _leading(sentence: str) -> list[Subject]:
    """Return the name that a sentence without an introduction begins with."""
    bare = _ARTICLE.sub("", sentence.strip(_EDGE))
    first = next(iter(rule_phrases(bare)), "")
    is_name = first and bare.startswith(first) and not first[0].isdigit() and len(phrase_key(first).split()) > 1
    return [Subject(first, _LEADING)] if is_name else []


def _repeated(sentences: list[str]) -> list[Subject]:
    """Return the name that most sentences have, the earliest of equals; one that a single sentence has says nothing."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for sentence in sentences:
        names = [p for p in rule_phrases(sentence) if p[0].isalpha() and p.casefold() not in FUNCTION_WORDS]
        counts.update(list(dict.fromkeys(map(phrase_key, names))))
        for name in names:
            spelling.setdefault(phrase_key(name), name)
    best = max(counts, key=lambda key: counts[key], default="")
    return [Subject(spelling[best], _REPEATED)] if best and counts[best] > 1 else []


def _clean(name: str) -> str:
    """Return a name in one line, without a leading article and what punctuation is left at its ends."""
    return _ARTICLE.sub("", " ".join(name.split()).strip(_EDGE))
