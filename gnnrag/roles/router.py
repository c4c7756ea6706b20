"""Router: how hard a question is, so which branch answers it; prompted, by cues, and by gold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gnnrag.graphs.linking import link_question
from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.base import QUERY_CLASSES, Role, RouterTask, Routing
from gnnrag.roles.parsing import ReplyModel, number, read_as
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.normalise import fold, lexicon
from gnnrag.text.phrases import rule_phrases
from gnnrag.text.sentences import beginning
from gnnrag.types import Question


@part("role", "router.prompted")
class PromptedRouter(PromptedPart[RouterTask, Routing]):
    """One call a question; no reply, or none that parses, means passage_local, flagged `router_failed`.

    The class that the model names gets the confidence that it states, the other two share the rest evenly.
    """

    max_tokens: int = 64

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        outcome = await self.ask(session, {"question": inline(task.question.text)}, partial(read_as, RoutingReply))
        if outcome.value is None:
            return Routing({"passage_local": 1.0}, flags=("router_failed",))
        reply = outcome.value
        rest = (1.0 - reply.confidence) / (len(QUERY_CLASSES) - 1)
        return Routing({name: reply.confidence if name == reply.chosen else rest for name in QUERY_CLASSES})


def _spelt(value: Any) -> Any:
    return value.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else value


def _share(value: Any) -> float:
    """Read "80%" and 80 as 0.8."""
    is_percent = isinstance(value, str) and value.strip().endswith("%")
    share = float(str(number(value)).strip().rstrip("%"))
    return share / 100.0 if is_percent or share >= 2.0 else share


class RoutingReply(ReplyModel):
    chosen: Annotated[Literal["passage_local", "multi_hop", "thematic"], BeforeValidator(_spelt)] = Field(alias="class")
    confidence: Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]


MASK = "Ꞩ"  # a letter that no question has


def _any(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(lexicon()[name].split())})(?!\w)")


_ROLE = _any("router_roles")
_ASKS_ROLE = re.compile(
    r"(?:who|whom|whose|what|which) (?:is|was|are|were)\b|(?:what|which) (?:country|city|state|town|county)\b"
)
# Cue to its weights for passage_local, multi_hop and thematic, what is counted in the question, and up to how often.
# Fitted by `benchmarks/fit_router.py` on two thirds of 2,452 questions of the dev splits and of those written for it.
# Only 102 were written: an embedding's 384 weights a class would learn their subjects.
CUES: dict[str, tuple[tuple[float, float, float], re.Pattern[str] | None, int]] = {
    "constant": ((3.68, -3.52, -0.159), None, 1),
    "has_name": ((-0.122, 1.82, -1.7), None, 1),
    "relative": ((-0.912, 1.74, -0.824), _any("router_relative"), 2),
    "possessive": ((-0.995, 1.26, -0.267), re.compile(r"\w['’]s?(?!\w)"), 2),
    "of": ((-0.158, 1.52, -1.36), re.compile(r"\b(?:of|by|from)\b"), 3),
    "role": ((-1.27, 2.66, -1.39), _ROLE, 2),
    "kin": ((-2.1, 2.18, -0.0817), re.compile(
        r"\b(?:great-?)?grand\w+|\w+-in-law|\b(?:uncle|aunt|nephew|niece|cousin|step\w+|half-\w+|co-\w+)\b"
    ), 1),
    "compared": ((-3.19, 3.35, -0.161), _any("router_compared"), 2),
    "yes_no": ((-0.328, 1.16, -0.834), re.compile(
        r"\A(?:are|is|do|does|did|was|were|have|has|had|can|could|will|would|should)\b"
    ), 1),
    "whole": ((-2.12, -1.81, 3.92), _any("router_whole"), 2),
    "open": ((-0.924, -0.0219, 0.946), re.compile(
        r"\A(?:how (?:do|does|did|are|is|was|were|has|have|diverse)|why|in (?:which|what) ways?|what are|what do|"
        r"summari[sz]e|describe|discuss|explain|compare|outline|give an|list)\b"
    ), 1),
    "plural": ((-1.39, -0.285, 1.67), re.compile(
        r"\A(?:(?:in|on|from|by|for|of) )?(?:what|which) (?:[a-z-]+ ){0,2}?(?!(?:is|was|has|does|this)\b)[a-z]{2,}"
        r"[^\Ws]s\b"
    ), 1),
    "single_fact": ((0.835, 0.984, -1.82), re.compile(
        r"\A(?:who|when|where|how (?:many|much|long|tall|old|far|high|big)|what year|(?:in|on) (?:what|which) year)\b"
    ), 1),
    "length": ((-4.59, 3.35, 1.24), None, 1),
}  # fmt: skip


def read_cues(text: str, linked: int = 0) -> dict[str, float]:
    """Return a question's cues, each in [0, 1] or a little above; `linked`: how many of its names have passages.

    What a name says (`Count of Perche`) is no clause of the question; names in lower case are only known by `linked`.
    """
    text = beginning(text)
    for name in sorted(rule_phrases(text), key=len, reverse=True):
        text = text.replace(name, MASK)
    lowered = " ".join(fold(text).split())
    counts = {cue: len(pattern.findall(lowered)) for cue, (_, pattern, _) in CUES.items() if pattern}
    inner = lowered.partition(" ")[2].partition(" ")[2]  # a question word near the start opens no clause
    counts["relative"] = len(CUES["relative"][1].findall(inner))  # type: ignore[union-attr]
    counts["role"] = max(counts["role"] - bool(_ASKS_ROLE.match(lowered)), 0)  # one may be what is asked
    counts |= {"constant": 1, "has_name": int(MASK in text or linked > 0)}
    values = {cue: min(counts[cue], most) / most for cue, (_, _, most) in CUES.items() if cue != "length"}
    return {**values, "length": min(len(lowered.split()), 40) / 20}


def probabilities(cues: Mapping[str, float]) -> dict[str, float]:
    """Softmax over the classes of the weighted cues (multinomial logistic regression)."""
    scores = [sum(weights[i] * cues[cue] for cue, (weights, _, _) in CUES.items()) for i in range(len(QUERY_CLASSES))]
    odds = [math.exp(score - max(scores)) for score in scores]
    return {name: odd / sum(odds) for name, odd in zip(QUERY_CLASSES, odds, strict=True)}


@part("role", "router.offline")
class OfflineRouter(Role[RouterTask, Routing]):
    """Class probabilities from a question's cues (`read_cues`); the names that it links to come from the index."""

    reads = ("hierarchy",)

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        linked = link_question(task.question.text, self.index.hierarchy, self.index.titles)
        cues = read_cues(task.question.text, sum(name.title is not None for name in linked.names))
        return Routing(probabilities(cues), {k: round(v, 4) for k, v in cues.items() if v and k != "constant"})


# Types of HotpotQA, 2WikiMultiHopQA and the sample corpus; of MuSiQue (`2hop`, `3hop1`) and MetaQA (`1-hop`).
_RELATIONAL = frozenset({"bridge", "comparison", "compositional", "inference", "bridge_comparison"})
_HOPS = re.compile(r"(\d+)[ _-]?hop", re.IGNORECASE)


@part("role", "router.oracle")
class OracleRouter(Role[RouterTask, Routing]):
    """Gives the class that `question.type` stands for the probability 1.

    A type that says nothing (`unknown`, `unanswerable`) is judged by how many hops or gold passages are annotated, and
    flagged `type_unknown`.
    """

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        name, known = class_of(task.question)
        return Routing({name: 1.0}, flags=() if known else ("type_unknown",))


def class_of(question: Question) -> tuple[str, bool]:
    """Return a question's class, and whether its type says so (`movie_to_director_to_movie`: two hops, MetaQA)."""
    kind = question.type.strip().lower()
    if kind in ("thematic", "global"):
        return "thematic", True
    if kind in _RELATIONAL or kind in ("multi_hop", "passage_local"):
        return ("passage_local" if kind == "passage_local" else "multi_hop"), True
    hops = _HOPS.match(kind)
    steps = int(hops[1]) if hops else kind.count("_to_")
    known = steps > 0
    steps = steps or max(len(question.decomposition), len(question.gold))
    return ("multi_hop" if steps > 1 else "passage_local"), known
