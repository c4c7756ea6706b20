"""Relation words of general English: how a question asks for a relation, and how a passage states it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.roles.countries import is_country_word
from gnnrag.roles.spans import MONTHS, name_spans, sentences, strip_honorific

_POSS = r"(?:[Hh]is|[Hh]er|[Tt]heir|whose|the|former|late|second|first|third|\w+'s)"
# relation: cues in a passage about the subject, best first; the object is the first name after the cue.
# A cue that starts with "<" is preceded by its object.
CUES: dict[str, tuple[str, ...]] = {
    "father": (
        r"\b(?:son|daughter|child|children|heir|born) (?:and \w+ )?(?:of|to)\b",
        r"\bfather,? (?:was|is|being|the)?\b",
        r"<,? (?:was |is )?(?:his|her|their|whose) father\b",
        r"<'s? (?:\w+ ){0,3}(?:son|daughter)\b",
    ),
    "mother": (
        r"\bmother,? (?:was|is|being|the)?\b",
        r"<,? (?:was |is )?(?:his|her|their|whose) mother\b",
    ),
    "spouse": (
        r"\b(?:husband|wife|widow|consort|spouse|mistress|widower) of\b",
        r"<,? (?:is|was) (?:his|her) (?:\w+ )?(?:wife|husband)\b",
        r"\b(?:re)?married(?: to| with| secondly| firstly)?\b",
        r"\b(?:husband|wife|spouse|consort)\b,?(?: was| is)?",
        r"\bmarriage (?:to|with)\b",
        r"\b(?:wed|betrothed to|engaged to|relationship with)\b",
    ),
    "child": (
        r"\b(?:father|mother|parent|parents) of\b",
        r"\b(?:son|daughter)s?,? (?:was|is|were|are|named|called)?\b",
        r"\bchildren\b:?",
    ),
    "sibling": (
        r"\b(?:brother|sister|sibling|twin)s? (?:of|to)\b",
        r"\b(?:brother|sister|sibling)s?,? (?:was|is|were|are|named)?\b",
    ),
    "director": (
        r"\bdirected (?:and [\w\-]+ |, [\w\-, ]+? )?by\b",
        r"\b(?:co-)?direct(?:ed|ion)\b[^.]{0,40}?\bby\b",
        r"\bdirectors?\b,?(?: is| was)?",
        r"\b(?:film|movie|comedy|drama|documentary|written|western|serial)\b[^.]{0,40}? (?:by|from)\b",
        r"<'s? (?:\w+ ){0,4}(?:film|movie|directorial|debut)",
    ),
    "performer": (
        r"\b(?:song|single|track|album|ballad|hit)\b[^.]{0,80}?\bby\b",
        r"\b(?:recorded|performed|sung|released|covered)\b[^.]{0,30}?\bby\b",
        r"\b(?:singer|rapper|artist|band|group|duo|musician|songwriter)\b",
        r"\bby\b",
    ),
    "composer": (
        r"\b(?:music|score|soundtrack|songs?)\b[^.]{0,40}?\bby\b",
        r"\b(?:composed|scored)\b[^.]{0,30}?\bby\b",
        r"\bcomposers?\b",
        r"\b(?:written|lyrics)\b[^.]{0,30}?\bby\b",
    ),
    "author": (r"\b(?:written|authored|penned)\b[^.]{0,30}?\bby\b", r"\b(?:novel|book|play|poem|story|series)\b[^.]{0,30}? by\b", r"\b(?:author|writer|playwright|novelist)\b", r"\bby\b"),
    "producer": (r"\bproduced\b[^.]{0,30}?\bby\b", r"\bproducers?\b"),
    "screenwriter": (r"\b(?:written|screenplay|script)\b[^.]{0,30}?\bby\b", r"\bscreenwriters?\b"),
    "publisher": (r"\bpublished\b[^.]{0,30}?\bby\b", r"\bpublishers?\b"),
    "creator": (r"\b(?:created|invented|designed|developed|made)\b[^.]{0,30}?\bby\b", r"\bcreators?\b"),
    "founder": (r"\b(?:founded|established|formed|started)\b[^.]{0,60}?\bby\b", r"\bfounders?\b"),
    "educated": (r"\b(?:educated|educated privately|studied|graduated|graduate|degree|alumnus|educated first)\b[^.]{0,60}?\b(?:at|from|of)\b", r"\battended\b", r"\b(?:studied|degree)\b[^.]{0,30}?\b(?:in|with)\b"),
    "employer": (r"\b(?:taught|worked|lecturer|professor|employed|lectured|served)\b[^.]{0,60}?\b(?:at|for|in|of)\b", r"\b(?:joined|faculty of|member of)\b"),
    "award": (r"\b(?:won|awarded|received|recipient of|honou?red with|earned)\b", r"\b(?:nominated for)\b"),
    "burial": (r"\b(?:buried|interred|entombed|burial|laid to rest)\b[^.]{0,60}?\b(?:in|at)\b", r"\b(?:tomb|grave|mausoleum)\b"),
}  # fmt: skip
PERSONAL = frozenset(("father", "mother", "spouse", "child", "sibling", "director", "performer", "composer", "author", "producer", "screenwriter", "creator", "founder"))  # fmt: skip
# After a preposition the object may be far; after a noun it is near or elsewhere.
_OPEN_CUE = re.compile(r"\b(?:by|of|to|at|from|in|with|for|won|awarded|received)$")
_FEMALE = re.compile(
    r"(?:Queen|Princess|Lady|Empress|Duchess|Countess|Infanta|Baroness|actress|wife|mother|Dame|Mrs)\b[^,]{0,25}$"
)
_SECOND_PARENT = re.compile(
    r"^(?: and [^\W\d_]+(?=, and ))?[^.;]{0,120}?\b(?:and|by|with)(?: of)? (?:(?:his|her|the|their) )?(?:[a-z\-]+,? ){0,6}?(?=[^a-z\s\d(])"
)
_NOT_NAMES = frozenset(
    "He She They It His Her Their In On At The A An This After Before When While As By For Its During With From Although "
    "However Also Who I World".split()
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span that may be the object of a relation, with how strongly the text says so."""

    text: str
    score: float
    sentence: str = ""


def good_name(name: str, subject: str) -> bool:
    """Tell whether a span can name something else than the subject (no month, pronoun or demonym)."""
    first = name.split()[0].strip(".,")
    if name in _NOT_NAMES or first in MONTHS:
        return False
    return not is_country_word(name) and name.lower() != subject.lower() and len(name) > 1


def _names_after(rest: str, subject: str, gap: int) -> list[tuple[int, str, int]]:
    found = []
    for start, end, name in name_spans(rest[: gap + 120]):
        if start > gap:
            break
        first, _, tail = name.partition(" ")
        while tail and (is_country_word(first) or first in ("His", "Her")):
            name = tail
            first, _, tail = name.partition(" ")
        if good_name(name, subject):
            found.append((start, strip_honorific(name), end))
    return found


def find(relation: str, text: str, subject: str) -> list[Candidate]:
    """Return candidates for the object of `relation` in a passage about `subject`, best first."""
    found: list[Candidate] = []
    for position, sentence in enumerate(sentences(text)):
        for rank, cue in enumerate(CUES[relation]):
            before = cue.startswith("<")
            for match in re.finditer(cue.lstrip("<"), sentence):
                base = 1.0 / (1 + 0.35 * rank) / (1 + 0.06 * position)
                if before:
                    names = _names_after(sentence[: match.start()], subject, 10**6)[-1:]
                    found += [Candidate(n, base, sentence) for _, n, end in names if match.start() - end < 4]
                    continue
                names = _names_after(sentence[match.end() :], subject, 70 if _OPEN_CUE.search(match.group()) else 35)
                found += [Candidate(n, base - 0.004 * at - 0.1 * i, sentence) for i, (at, n, _) in enumerate(names[:3])]
    if relation in ("father", "mother"):
        found = _parents(relation, text, subject) + [c for c in found if relation != "father" or not c.sentence]
        found += _direct_parent(relation, text, subject)
    return _unique(found)


def _direct_parent(relation: str, text: str, subject: str) -> list[Candidate]:
    found = []
    for position, sentence in enumerate(sentences(text)):
        for rank, cue in enumerate(CUES[relation][1 if relation == "father" else 0 :]):
            for match in re.finditer(cue.lstrip("<"), sentence):
                base = 0.8 / (1 + 0.3 * rank) / (1 + 0.06 * position)
                if cue.startswith("<"):
                    names = _names_after(sentence[: match.start()], subject, 10**6)[-1:]
                    found += [Candidate(n, base, sentence) for _, n, end in names if match.start() - end < 4]
                elif not re.search(r"\b(?:grand|step|god|the)-?$|(?:of|and) the $", sentence[: match.start()]):
                    names = _names_after(sentence[match.end() :], subject, 40)
                    found += [Candidate(n, base - 0.005 * at, sentence) for at, n, _ in names[:1]]
    return found


def _parents(relation: str, text: str, subject: str) -> list[Candidate]:
    """Read `son of FATHER and (his wife) MOTHER`, swapped where the first parent carries a female title."""
    found = []
    for position, sentence in enumerate(sentences(text)):
        for match in re.finditer(CUES["father"][0], sentence):
            if re.search(
                r"(?:father|mother|brother|sister|grand|god)(?: of [^,]*)?[- ]?$",
                sentence[: match.start()].rstrip() + " ",
            ):
                continue
            rest = sentence[match.end() :]
            names = _names_after(rest, subject, 90)
            if not names:
                continue
            at, first, end = names[0]
            second = _SECOND_PARENT.match(rest[end:])
            other = _names_after(rest[end + second.end() :], subject, 3)[:1] if second else []
            female = bool(_FEMALE.search(rest[: at + 12])) or bool(
                re.match(r"^\W*(?:Queen|Princess|Lady|Empress)", rest)
            )
            pair = [first, other[0][1] if other else ""]
            father, mother = reversed(pair) if female else pair
            name = father if relation == "father" else mother
            if name:
                found.append(Candidate(name, 1.0 / (1 + 0.08 * position) - 0.002 * at, sentence))
    return found


def _unique(found: list[Candidate]) -> list[Candidate]:
    best: dict[str, Candidate] = {}
    for candidate in found:
        if candidate.text not in best or best[candidate.text].score < candidate.score:
            best[candidate.text] = candidate
    return sorted(best.values(), key=lambda c: (-c.score, c.text))
