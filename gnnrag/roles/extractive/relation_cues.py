"""How passages state relations in general English: patterns before which, or after which, the object's name stands."""

from __future__ import annotations

import re

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
