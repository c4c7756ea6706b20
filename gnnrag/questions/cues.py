"""Which relation a sentence states of its subject and a name: the few words before the name, where they are clear.

The offline extractor's relations are sentences about the entity that a passage is about. "X is a 1926 film directed by
Y and starring Z" tells two relations of X. A cue counts only in the main clause: after "who", "whose" or a full stop of
another subject the words are about something else.
"""

from __future__ import annotations

import re

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
    found = _CUE.search(before) or _LISTED.search(before)
    if found is None:
        return None
    body = re.sub(re.escape(opening), " ", before[: found.start()], count=1, flags=re.IGNORECASE)
    body = re.sub(r"\([^()]*\)", " ", body)  # dates of life
    if _OTHER_SUBJECT.search(body):
        return None
    # "He married Ann, daughter of Jim": with another name before it, kinship may be that one's.
    is_kinship = found[1].lower().endswith(" of") and found[1].lower() not in _NO_KIN
    return None if is_kinship and _NAME.search(body.strip()[1:]) else found[1].lower()
