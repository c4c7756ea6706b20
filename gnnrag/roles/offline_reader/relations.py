"""Relations that a question asks for, their cues in text, and reading a value by one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.roles.offline_reader import relations
from gnnrag.roles.offline_reader.spans import MONTHS, Linker, fold, name_spans, sentences, strip_honorific, words
from gnnrag.text.normalise import is_country_word
from gnnrag.types import Passage

# A child's passage names its parents: `son of FATHER and (his wife) MOTHER`.
CHILD_OF = re.compile(
    r"\b(?:son|daughter|child|children|heir|born) (?:and \w+ )?(?:of|to)\b|"
    r"\bborn\b[^.;]{0,30}? (?:to|marriage of)\b"
)
# relation: cues in a passage about the subject, best first; the object is the first name after the cue.
# A cue that starts with "<" is preceded by its object.
CUES: dict[str, tuple[str, ...]] = {
    "father": (
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
    "author": (
        r"\b(?:written|authored|penned)\b[^.]{0,30}?\bby\b",
        r"\b(?:novel|book|play|poem|story|series)\b[^.]{0,30}? by\b",
        r"\b(?:author|writer|playwright|novelist)\b",
        r"\bby\b",
    ),
    "producer": (r"\bproduced\b[^.]{0,30}?\bby\b", r"\bproducers?\b"),
    "screenwriter": (r"\b(?:written|screenplay|script)\b[^.]{0,30}?\bby\b", r"\bscreenwriters?\b"),
    "publisher": (r"\bpublished\b[^.]{0,30}?\bby\b", r"\bpublishers?\b"),
    "creator": (r"\b(?:created|invented|designed|developed|made)\b[^.]{0,30}?\bby\b", r"\bcreators?\b"),
    "founder": (r"\b(?:founded|established|formed|started)\b[^.]{0,60}?\bby\b", r"\bfounders?\b"),
    "educated": (
        r"\b(?:educated|studied|graduated?|degree|alumnus)\b[^.]{0,60}?\b(?:at|from|of)\b",
        r"\battended\b",
        r"\b(?:studied|degree)\b[^.]{0,30}?\b(?:in|with)\b",
    ),
    "employer": (
        r"\b(?:taught|worked|lecturer|professor|employed|lectured|served)\b[^.]{0,60}?\b(?:at|for|in|of)\b",
        r"\b(?:joined|faculty of|member of)\b",
    ),
    "award": (r"\b(?:won|awarded|received|recipient of|honou?red with|earned)\b", r"\b(?:nominated for)\b"),
    "burial": (
        r"\b(?:buried|interred|entombed|burial|laid to rest)\b[^.]{0,60}?\b(?:in|at)\b",
        r"\b(?:tomb|grave|mausoleum)\b",
    ),
}


# After a preposition the object may be far; after a noun it is near or elsewhere.
_OPEN_CUE = re.compile(r"\b(?:by|of|to|at|from|in|with|for|won|awarded|received)$")
_ADJECTIVE = re.compile(r"\w+(?:ian|ean|ese|ish)$")  # `the Mitannian king Artatama`
_FEMALE = re.compile(
    r"(?:Queen|Princess|Lady|Empress|Duchess|Countess|Infanta|Baroness|actress|wife|mother|Dame|Mrs)\b[^,]{0,25}$"
)
_FEMALE_FIRST = re.compile(r"\W*(?:Queen|Princess|Lady|Empress)")
# `brother of X, son of Y`; a name with a comma before `son of`, once the sentence has its verb, is somebody else.
_RELATIVE = re.compile(r"(?:father|mother|brother|sister|grand|god)(?: of [^,]*)?[- ]*$")
_OF_ANOTHER = re.compile(r"\b(?:was|is|to|and|married)\b.*\w, $")
_SECOND_PARENT = re.compile(
    r"^(?: and [^\W\d_]+(?=, and ))?[^.;]{0,120}?\b(?:and|by|with)(?: of)? (?:(?:his|her|the|their) )?"
    r"(?:[a-z\-]+,? ){0,6}?(?=[^a-z\s\d(])"
)
_NOT_NAMES_WORDS = """
He She They It His Her Their In On At The A An This After Before When While As By For Its During With From
Although However Also Who I World
"""
_NOT_NAMES = frozenset(_NOT_NAMES_WORDS.split())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span that may be the object of a relation, with how strongly the text says so."""

    text: str
    score: float


def good_name(name: str, subject: str) -> bool:
    """Tell whether a span can name something else than the subject (no month, pronoun or demonym)."""
    first = name.split()[0].strip(".,")
    if name in _NOT_NAMES or first in MONTHS:
        return False
    return not is_country_word(name) and name.lower() != subject.lower() and len(name) > 1


def _names_after(rest: str, subject: str, gap: int) -> list[tuple[int, str, int]]:
    names = []
    for start, end, name in name_spans(rest[: gap + 120]):
        if start > gap:
            break
        first, _, tail = name.partition(" ")
        while tail and (is_country_word(first) or first in ("His", "Her")):
            name = tail
            first, _, tail = name.partition(" ")
        adjective = _ADJECTIVE.match(name) and re.match(r" (?!and )[a-z]", rest[end:])
        if good_name(name, subject) and not adjective:
            names.append((start, strip_honorific(name), end))
    return names


def find(relation: str, text: str, subject: str) -> list[Candidate]:
    """Return candidates for the object of `relation` in a passage about `subject`, best first."""
    candidates: list[Candidate] = []
    parent = relation in ("father", "mother")
    for position, sentence in enumerate(sentences(text)):
        if parent:
            candidates += _parents(relation, sentence, position, subject)
        for rank, cue in enumerate(CUES[relation]):
            base = (0.8 if parent else 1.0) / (1 + 0.35 * rank) / (1 + 0.06 * position)
            candidates += _by_cue(cue, sentence, subject, base)
    return _unique(candidates)


def _by_cue(cue: str, sentence: str, subject: str, base: float) -> list[Candidate]:
    candidates: list[Candidate] = []
    for match in re.finditer(cue.lstrip("<"), sentence):
        if re.search(r"\b(?:grand|step|god)-$", sentence[: match.start()]):
            continue
        if cue.startswith("<"):
            names = _names_after(sentence[: match.start()], subject, 10**6)[-1:]
            candidates += [Candidate(n, base) for _, n, end in names if match.start() - end < 4]
            continue
        names = _names_after(sentence[match.end() :], subject, 70 if _OPEN_CUE.search(match.group()) else 35)
        candidates += [Candidate(n, base - 0.004 * at - 0.1 * i) for i, (at, n, _) in enumerate(names[:3])]
    return candidates


def _parents(relation: str, sentence: str, position: int, subject: str) -> list[Candidate]:
    """Read `son of FATHER and (his wife) MOTHER`, swapped where the first parent carries a female title."""
    candidates = []
    for match in CHILD_OF.finditer(sentence):
        before, rest = sentence[: match.start()], sentence[match.end() :]
        names = _names_after(rest, subject, 90)
        if not names or _RELATIVE.search(before):
            continue
        at, first, end = names[0]
        second = _SECOND_PARENT.match(rest[end:])
        other = _names_after(rest[end + second.end() :], subject, 3)[:1] if second else []
        pair = (first, other[0][1] if other else "")
        if _FEMALE.search(rest[: at + 12]) or _FEMALE_FIRST.match(rest):
            pair = pair[::-1]
        name = pair[relation == "mother"]
        if name:
            elsewhere = 0.3 * bool(_OF_ANOTHER.search(before))
            candidates.append(Candidate(name, 1.0 / (1 + 0.08 * position) - 0.002 * at - elsewhere))
    return candidates


def _unique(candidates: list[Candidate]) -> list[Candidate]:
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        if candidate.text not in best or best[candidate.text].score < candidate.score:
            best[candidate.text] = candidate
    return sorted(best.values(), key=lambda c: (-c.score, c.text))


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer with the numbers of the passages it was read from and how sure the rule is, in [0, 1]."""

    text: str
    passages: tuple[int, ...]
    confidence: float
    how: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What all rules read: the passages, their cleaned texts and the linker over their titles."""

    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    linker: Linker

    def hop(self, at: int, relation: str, visited: tuple[int, ...]) -> tuple[int | None, str, float]:
        """Follow one relation from passage `at`: the passage reached (None if it is not here), the name, a score."""
        candidates = relations.find(relation, self.texts[at], self.passages[at].title)
        best: tuple[int | None, str, float] = (None, "", 0.0)
        for candidate in candidates[:12]:
            target = self.linker.resolve(candidate.text, (at, *visited))
            score = candidate.score + (0.6 if target is not None else 0.0)
            if score > best[2]:
                best = (target, candidate.text, score)
        if best[0] is None:
            other = self._mentioned(at, visited)
            if other is not None:
                return other, self.passages[other].title, 0.0
        return best

    def _mentioned(self, at: int, visited: tuple[int, ...]) -> int | None:
        """Return a passage that names `at`, or that `at` names, where no pattern told them apart."""
        here = f" {fold(self.texts[at])} "
        for other in range(len(self.texts)):
            if other == at or other in visited:
                continue
            bare = self.linker.bare[other]
            lead = self.linker.leads[other]
            if f" {bare} " in here or (len(lead.split()) > 1 and f" {lead} " in here):
                return other
        title = f" {self.linker.bare[at]} "  # the other way round
        for other in range(len(self.texts)):
            if other != at and other not in visited and len(title) > 6 and title in f" {fold(self.texts[other])} ":
                return other
        return self._nearest(at, visited)

    def _nearest(self, at: int, visited: tuple[int, ...]) -> int | None:
        """Return the unread passage that shares most words with `at`, if it shares any part of a title."""
        here = set(words(self.passages[at].content))
        best, best_score = None, 0.0
        for other, passage in enumerate(self.passages):
            if other == at or other in visited:
                continue
            title = set(words(passage.title))
            score = len(title & here) / max(1, len(title))
            if score > best_score:
                best, best_score = other, score
        return best
