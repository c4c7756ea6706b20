"""What the words of a question tell about its class, and the fitted linear model over that."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from gnnrag.roles.base import QUERY_CLASSES
from gnnrag.text.bounds import beginning
from gnnrag.text.masking import MASK, mask_names
from gnnrag.text.normalise import fold


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(words.split())})(?!\w)")


_RELATIVE = _pattern("who whom whose which that where when")
_POSSESSIVE = re.compile(r"\w['’]s?(?!\w)")
_OF = re.compile(r"\b(?:of|by|from)\b")
_DESCRIBED = re.compile(
    r"\bthe (?:[a-z-]+ ){1,4}?(?:of|who|whom|whose|which|that|where|by|from|in|to|for)\b(?! (?:this|these|all)\b)"
)
_ROLE = _pattern(
    "director author writer composer performer singer artist actor actress painter creator producer developer "
    "publisher founder owner president leader king queen ruler husband wife spouse father mother parent son daughter "
    "child brother sister sibling birthplace hometown city town country state county association company "
    "band school employer"
)
_ASKS_ROLE = re.compile(
    r"(?:who|whom|whose|what|which) (?:is|was|are|were)\b|(?:what|which) (?:country|city|state|town|county)\b"
)
_KIN = re.compile(r"\b(?:great-?)?grand\w+|\w+-in-law|\b(?:uncle|aunt|nephew|niece|cousin|step\w+|half-\w+|co-\w+)\b")
_COMPARED = _pattern(
    "older younger oldest earlier later longer shorter larger bigger smaller higher taller faster newer nearer closer "
    "same both either than before after also more fewer first last share"
)
_OR = re.compile(r"\bor\b")
_YES_NO = re.compile(r"(?:are|is|do|does|did|was|were|have|has|had|can|could|will|would|should)\b")
_WHOLE = _pattern(
    "overall general generally across throughout collection corpus documents? texts? articles? archive reports? "
    "sources? records? stories letters interviews reviews dataset library theme themes topics? trends? patterns? "
    "motives? motifs? main major central key chief broad typical typically usually mostly often commonly common "
    "recurring recur again summary overview picture mood landscape vary varies differ differs differences? different "
    "diverse various changed? changes evolve[ds]? views? attitudes? opinions? debates? arguments? approaches "
    "strategies lessons insights findings conflicts kinds types ways roles? summarise summarize discuss"
)
_OPEN = re.compile(
    r"(?:how (?:do|does|did|are|is|was|were|has|have|diverse)|why|in (?:which|what) ways?|what are|what do|"
    r"summari[sz]e|describe|discuss|explain|compare|outline|give an|list)\b"
)
_PLURAL = re.compile(
    r"(?:(?:in|on|from|by|for|of) )?(?:what|which) (?:[a-z-]+ ){0,2}?(?!(?:is|was|has|does|this)\b)[a-z]{2,}[^\Ws]s\b"
)
_SINGLE_FACT = re.compile(
    r"(?:who|when|where|how (?:many|much|long|tall|old|far|high|big)|what year|(?:in|on) (?:what|which) year)\b"
)

# Cue to its weight for passage_local, multi_hop and thematic. Fitted by `tests/benchmarks/fit_router.py`: multinomial
# logistic regression, classes and within them sources of equal weight, on two thirds of 2,452 questions of the dev
# splits and of those written for it; its output has the confusion matrix of the others. Only 102 were written: an
# embedding's 384 weights a class would learn their subjects.
WEIGHTS: dict[str, tuple[float, float, float]] = {
    "constant": (4.077, -3.751, -0.326),
    "names": (0.063, 0.97, -1.033),
    "has_name": (0.497, 1.738, -2.235),
    "two_names": (0.148, 0.65, -0.797),
    "relative": (-1.267, 1.606, -0.338),
    "possessive": (-1.498, 1.121, 0.377),
    "of": (-0.464, 2.067, -1.603),
    "described": (0.327, 0.51, -0.837),
    "role": (-1.871, 2.501, -0.629),
    "kin": (-2.264, 2.28, -0.016),
    "compared": (-1.011, 0.825, 0.186),
    "or": (-2.026, 2.057, -0.031),
    "yes_no": (-0.757, 1.5, -0.743),
    "whole": (-1.65, -1.269, 2.919),
    "open": (-1.395, -0.444, 1.839),
    "plural": (-1.742, -0.565, 2.307),
    "single_fact": (0.463, 0.903, -1.366),
    "length": (-4.692, 3.428, 1.263),
}
CUES = tuple(WEIGHTS)


def read_cues(text: str, linked: int = 0) -> dict[str, float]:
    """Return the cues of a question, each between 0 and 1 or a little above.

    Args:
        text: the question.
        linked: how many of its names the corpus has passages about; questions in lower case have no other names.
    """
    masked = mask_names(beginning(text))
    lowered = " ".join(fold(masked).split())
    names = min(max(masked.count(MASK), linked), 3)
    inner = lowered.partition(" ")[2].partition(" ")[2]  # a question word near the start opens no clause

    def count(pattern: re.Pattern[str], within: str, most: int) -> float:
        return min(len(pattern.findall(within)), most) / most

    roles = min(max(len(_ROLE.findall(lowered)) - bool(_ASKS_ROLE.match(lowered)), 0), 2)  # one may be what is asked
    values = (
        1.0, names / 3, float(names > 0), float(names > 1), count(_RELATIVE, inner, 2), count(_POSSESSIVE, lowered, 2),
        count(_OF, lowered, 3), count(_DESCRIBED, lowered, 2), roles / 2, count(_KIN, lowered, 1),
        count(_COMPARED, lowered, 2),
        count(_OR, lowered, 1), float(bool(_YES_NO.match(lowered))), count(_WHOLE, lowered, 2),
        float(bool(_OPEN.match(lowered))), float(bool(_PLURAL.match(lowered))),
        float(bool(_SINGLE_FACT.match(lowered))), min(len(lowered.split()), 40) / 20,
    )  # fmt: skip
    return dict(zip(CUES, values, strict=True))


def probabilities(cues: Mapping[str, float]) -> dict[str, float]:
    """Softmax over the classes of the weighted cues (multinomial logistic regression)."""
    scores = [sum(WEIGHTS[cue][i] * cues[cue] for cue in CUES) for i in range(len(QUERY_CLASSES))]
    odds = [math.exp(score - max(scores)) for score in scores]
    return {name: odd / sum(odds) for name, odd in zip(QUERY_CLASSES, odds, strict=True)}
