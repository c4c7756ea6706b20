"""Who stands in a relation to what a passage is about: names at the cues of `relation_cues`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.roles.extractive.relation_cues import CHILD_OF, CUES
from gnnrag.roles.extractive.spans import MONTHS, name_spans, sentences, strip_honorific
from gnnrag.text.countries import is_country_word

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
    found = []
    for start, end, name in name_spans(rest[: gap + 120]):
        if start > gap:
            break
        first, _, tail = name.partition(" ")
        while tail and (is_country_word(first) or first in ("His", "Her")):
            name = tail
            first, _, tail = name.partition(" ")
        adjective = _ADJECTIVE.match(name) and re.match(r" (?!and )[a-z]", rest[end:])
        if good_name(name, subject) and not adjective:
            found.append((start, strip_honorific(name), end))
    return found


def find(relation: str, text: str, subject: str) -> list[Candidate]:
    """Return candidates for the object of `relation` in a passage about `subject`, best first."""
    found: list[Candidate] = []
    parent = relation in ("father", "mother")
    for position, sentence in enumerate(sentences(text)):
        if parent:
            found += _parents(relation, sentence, position, subject)
        for rank, cue in enumerate(CUES[relation]):
            base = (0.8 if parent else 1.0) / (1 + 0.35 * rank) / (1 + 0.06 * position)
            found += _by_cue(cue, sentence, subject, base)
    return _unique(found)


def _by_cue(cue: str, sentence: str, subject: str, base: float) -> list[Candidate]:
    found: list[Candidate] = []
    for match in re.finditer(cue.lstrip("<"), sentence):
        if re.search(r"\b(?:grand|step|god)-$", sentence[: match.start()]):
            continue
        if cue.startswith("<"):
            names = _names_after(sentence[: match.start()], subject, 10**6)[-1:]
            found += [Candidate(n, base) for _, n, end in names if match.start() - end < 4]
            continue
        names = _names_after(sentence[match.end() :], subject, 70 if _OPEN_CUE.search(match.group()) else 35)
        found += [Candidate(n, base - 0.004 * at - 0.1 * i) for i, (at, n, _) in enumerate(names[:3])]
    return found


def _parents(relation: str, sentence: str, position: int, subject: str) -> list[Candidate]:
    """Read `son of FATHER and (his wife) MOTHER`, swapped where the first parent carries a female title."""
    found = []
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
            found.append(Candidate(name, 1.0 / (1 + 0.08 * position) - 0.002 * at - elsewhere))
    return found


def _unique(found: list[Candidate]) -> list[Candidate]:
    best: dict[str, Candidate] = {}
    for candidate in found:
        if candidate.text not in best or best[candidate.text].score < candidate.score:
            best[candidate.text] = candidate
    return sorted(best.values(), key=lambda c: (-c.score, c.text))
