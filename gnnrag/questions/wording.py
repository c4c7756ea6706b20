"""How a relation is told: as a noun phrase for either of its ends, and as a question for either of its ends.

Well-known ones have wordings in `wordings.yaml`, other verb phrases their own words; "is" and "has" are not told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml  # type: ignore[import-untyped]

PERSON = "person"
_ROMAN = re.compile(r"[IVX]+|of|the|von|de")
THING = "thing"  # what is said of an entity of which nothing is known


@dataclass(frozen=True, slots=True)
class Wording:
    """One relation in words. `{x}` is the end that is known, `{k}` what the asked end is called.

    Predicates of one `key` are the same relation. Noun phrases for an end and questions (`ask_`) come the most natural
    first; the `_noun` stands for an unknown type. `is_one_way`: only tails are asked for, as X has many heads.
    """

    key: str
    tail: tuple[str, ...]
    head: tuple[str, ...]
    ask_tail: str
    ask_head: str
    tail_noun: str = THING
    head_noun: str = THING
    is_one_way: bool = False


_DATA: dict[str, Any] = yaml.safe_load((files("gnnrag.questions") / "wordings.yaml").read_text("utf-8"))
WORDINGS = {
    key: Wording(
        key, tuple(row["tail"]), tuple(row["head"]), row["ask"][0], row["ask"][1], row["nouns"][0], row["nouns"][1],
        row.get("one_way", False),
    )
    for key, row in _DATA["relations"].items()
}  # fmt: skip
_SAME: dict[str, str] = _DATA["same"]
_NOUNS: dict[str, str] = _DATA["nouns"]
_UNFIT = {noun: frozenset(kinds) for noun, kinds in _DATA["unfit"].items()}
_LISTS = ("empty", "intransitive", "participles", "prepositions", "of_place", "of_time")
_EMPTY, _INTRANSITIVE, _PARTICIPLES, _PREPOSITIONS, _OF_PLACE, _OF_TIME = (
    frozenset(_DATA[name].split()) for name in _LISTS
)
# Where the tail is a time, the birthplace is a birthday; what cannot have a time is not told.
_OF_TIMES = {"born_in": "born_on", "died_in": "died_on"}
_NEVER_TIMES = ("located_in", "set_in")
_AUX = re.compile(r"(?:is|was|are|were|has been|had been|have been|be|been|being) ")
_PREDICATE = re.compile(r"[a-z][a-z' -]{2,50}")


@cache
def wording_of(predicate: str, tail_is_time: bool = False) -> Wording | None:
    """Return how a predicate is told; None if it cannot be. A time instead of a place changes "born in"."""
    bare = _AUX.sub("", " ".join(predicate.replace("_", " ").lower().split()), count=1)
    key = _SAME.get(predicate, _SAME.get(bare, bare)).replace(" ", "_")
    if tail_is_time:
        key = _OF_TIMES.get(key, key)
    elif key in _OF_TIMES.values():
        return None
    if key in WORDINGS:
        return None if tail_is_time and key in _NEVER_TIMES else WORDINGS[key]
    verb, _, rest = bare.partition(" ")
    if not _PREDICATE.fullmatch(bare) or verb in _EMPTY or (rest and rest not in _PREPOSITIONS):
        return None
    return _when(verb, rest) if tail_is_time else _own_words(verb, rest)


def noun_of(types: str, default: str) -> str:
    """Return what an entity of these types (joined by `|`) is called; a film is not called a work."""
    noun = next((_NOUNS[kind] for kind in types.lower().split("|") if kind in _NOUNS), default)
    return default if noun == "work" and default == "film" else noun


def fits(wording: Wording, head_types: str, tail_types: str) -> bool:
    """Tell whether the types of a relation's ends are such as its wording speaks of; unknown types fit."""
    for noun, types in ((wording.head_noun, head_types), (wording.tail_noun, tail_types)):
        kinds = {_NOUNS[kind] for kind in types.lower().split("|") if kind in _NOUNS}
        if kinds and kinds <= _UNFIT.get(noun, frozenset()):
            return False
    return True


def names_fit(wording: Wording, head: str, tail: str) -> bool:
    """Tell whether those ends that must be persons have names by which one can be told: not "Louis" or "John II"."""
    return all(
        noun != PERSON or _is_full(name) for noun, name in ((wording.head_noun, head), (wording.tail_noun, tail))
    )


def _is_full(name: str) -> bool:
    return len([word for word in re.findall(r"[^\W\d_]+", name) if not _ROMAN.fullmatch(word)]) > 1


def _is_passive(verb: str) -> bool:
    return (verb.endswith("ed") or verb in _PARTICIPLES) and verb not in _INTRANSITIVE


def _when(verb: str, rest: str) -> Wording | None:
    if not _is_passive(verb) or (rest and rest not in _OF_TIME):
        return None
    tails = (f"the date when {{x}} was {verb}", f"the time at which {{x}} was {verb}")
    return Wording(f"{verb}_when", tails, tails, f"When was {{x}} {verb}?", "", "date", is_one_way=True)


def _own_words(verb: str, rest: str) -> Wording | None:
    """Return the wording of a verb phrase in its own words: (represented), (held in), (lived in), (flows to)."""
    bare = f"{verb} {rest}".strip()
    key, is_vague = bare.replace(" ", "_"), rest in _OF_PLACE
    if _is_passive(verb) and not rest:  # X represented Y
        tails = [f"the {{k}} {verb} by {{x}}", f"the {{k}} that {{x}} {verb}"]
        heads = [f"the {{k}} that {verb} {{x}}", f"the {{k}} by which {{x}} was {verb}"]
        asks = (f"Which {{k}} was {verb} by {{x}}?", f"Which {{k}} {verb} {{x}}?")
    elif _is_passive(verb):  # X was held in Y
        tails = [f"the {{k}} {rest} which {{x}} was {verb}", f"the {{k}} that {{x}} was {verb} {rest}"]
        heads = [f"the {{k}} {bare} {{x}}", f"the {{k}} that was {bare} {{x}}"]
        asks = (f"{rest.capitalize()} which {{k}} was {{x}} {verb}?", f"Which {{k}} was {bare} {{x}}?")
    elif (verb in _INTRANSITIVE and rest) or _is_present(verb):  # X lived in Y, X flows to Y
        tails = [f"the {{k}} {rest} which {{x}} {verb}" if rest else f"the {{k}} that {{x}} {verb}"]
        heads = [f"the {{k}} that {bare} {{x}}"]
        asks = (f"What is {tails[0]}?", f"Which {{k}} {bare} {{x}}?")
    else:
        return None
    return Wording(key, tuple(tails), tuple(heads), *asks, is_one_way=is_vague)


def _is_present(verb: str) -> bool:
    return len(verb) > 3 and verb.endswith("s") and not verb.endswith(("ss", "us", "is"))


# Which relation a sentence states of its subject and a name: the few words before the name, where they are clear.
#
# The offline extractor's relations are sentences about the entity that a passage is about. "X is a 1926 film directed
# by Y and starring Z" tells two relations of X. A cue counts only in the main clause: after "who", "whose" or a full
# stop of another subject the words are about something else.

_CUES = (
    "directed by", "written by", "composed by", "produced by", "founded by", "designed by", "painted by", "edited by",
    "created by", "invented by", "discovered by", "published by", "released by", "owned by", "performed by",
    "sung by", "recorded by", "starring", "stars", "based on", "set in", "born in", "born at", "born on", "died in",
    "died at", "died on", "located in", "situated in", "part of", "member of", "capital of", "son of", "daughter of",
    "father of", "mother of", "brother of", "sister of", "wife of", "husband of", "married to", "married",
    "educated at", "studied at", "graduated from", "attended", "played for", "plays for", "named after", "flows into",
)  # fmt: skip
# What may stand between the cue and the name.
_GAP = r"(?:\s+(?:the|a|an|his|her|its|fellow|actor|actress|director|king|queen|sir|lord|emperor|prince|duke))*\s+"
# "starring A, B and C": each of them stars.
_LIST = r"(?:[A-Z][\w.'’-]*(?: [A-Z][\w.'’-]*)*(?:, (?:and )?| and ))*"
_LISTED = re.compile(rf"\b(starring|stars|(?:{'|'.join(c for c in _CUES if c.endswith(' by'))}))\s+{_LIST}$")
_CUE = re.compile(rf"\b({'|'.join(re.escape(c) for c in sorted(_CUES, key=len, reverse=True))}){_GAP}$", re.IGNORECASE)
_OTHER_SUBJECT = re.compile(
    r"[;:(]|, (?:he|she|it|they)\b"
    r"|\b(?:who|whom|whose|which|that|where|when|while|although|because|but|after|before|if)\b",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\s*(?:he|she|it|they|the \w+|this \w+)\b", re.IGNORECASE)
_NO_KIN = ("part of", "member of", "capital of")
_NAME = re.compile(r"\b[A-Z]")
_MOST = 200  # characters between the start of the sentence and the name


def cue_of(sentence: str, subject: str, name: str) -> str | None:
    """Return the cue right before `name` in a sentence about `subject`; None where there is none that is clear."""
    at = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence)
    if at is None or at.start() > _MOST or subject == name:
        return None
    before = sentence[: at.start()]
    # About the subject: it opens the sentence by its name, by a part of it, or by a pronoun.
    opening = subject.split(" (")[0]
    first = next((word for word in re.findall(r"\w+", opening) if len(word) > 2), opening)
    if not (before.lower().lstrip().startswith((opening.lower(), first.lower())) or _PRONOUN.match(before)):
        return None
    cue = _CUE.search(before) or _LISTED.search(before)
    if cue is None:
        return None
    body = re.sub(re.escape(opening), " ", before[: cue.start()], count=1, flags=re.IGNORECASE)
    body = re.sub(r"\([^()]*\)", " ", body)  # dates of life
    if _OTHER_SUBJECT.search(body):
        return None
    # "He married Ann, daughter of Jim": with another name before it, kinship may be that one's.
    is_kinship = cue[1].lower().endswith(" of") and cue[1].lower() not in _NO_KIN
    return None if is_kinship and _NAME.search(body.strip()[1:]) else cue[1].lower()
