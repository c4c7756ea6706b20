"""The form of a question: wh-word, expected answer type, focus, comparison."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnnrag.roles.base import AnswerStyle, ReaderTask
from gnnrag.roles.offline_reader.relations import Reading
from gnnrag.roles.offline_reader.spans import STOPWORDS, UPPER, Linker, Mention, fold, name_spans, stem
from gnnrag.text.normalise import country_mentions, region_mentions
from gnnrag.text.sentences import beginning

Path = tuple[str, ...]

# Phrases of a folded question and the relation paths they ask for; alternatives are tried in order.
_RELATIONS: tuple[tuple[str, tuple[Path, ...]], ...] = (
    (r"paternal grandfather", (("father", "father"),)),
    (r"maternal grandfather", (("mother", "father"),)),
    (r"paternal grandmother", (("father", "mother"),)),
    (r"maternal grandmother", (("mother", "mother"),)),
    (r"grandfather", (("father", "father"), ("mother", "father"))),
    (r"grandmother", (("mother", "mother"), ("father", "mother"))),
    (r"father in law", (("spouse", "father"),)),
    (r"mother in law", (("spouse", "mother"),)),
    (r"(?:child|son|daughter) in law", (("child", "spouse"),)),
    (r"(?:sibling|brother|sister) in law", (("spouse", "sibling"), ("sibling", "spouse"))),
    (r"step ?mother|step ?father", (("father", "spouse"), ("mother", "spouse"))),
    (r"uncle|aunt", (("father", "sibling"), ("mother", "sibling"))),
    (r"grandchild|grandson|granddaughter", (("child", "child"),)),
    (r"nephew|niece|cousin", (("sibling", "child"),)),
    (r"father|dad", (("father",), ("mother", "spouse"))),
    (r"mother|mothered|mom", (("mother",), ("father", "spouse"))),
    (r"husband|wife|spouse|married", (("spouse",), ("child", "father"))),
    (r"child|son|daughter|children", (("child",),)),
    (r"siblings?|brother|sister", (("sibling",),)),
    (r"directors?|directed", (("director",),)),
    (r"performers?|singer|performed|sang|sings", (("performer",),)),
    (r"composers?|composed", (("composer",),)),
    (r"author|writer|wrote|written", (("author",),)),
    (r"screenwriter", (("screenwriter",),)),
    (r"producer|produced", (("producer",),)),
    (r"publisher|published", (("publisher",),)),
    (r"creator|created", (("creator",),)),
    (r"founder|founded|formed|established", (("founder",),)),
)
_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    (r"when .*\bborn|dates? of birth|birth ?date|birthday", "birth_date"),
    (r"when .*\b(?:die|died|death)|dates? of death", "death_date"),
    (r"where .*\bborn|place of birth|birth ?place|city of birth", "birth_place"),
    (r"(?:cause|reason) of (?:the )?.*death|(?:why|how) did .*die|cause of death", "cause"),
    (r"where .*\b(?:die|died)\b|places? of death", "death_place"),
    (r"buried|place of burial|burial", "burial"),
    (r"nationality|(?:which|what) country .*from|country of (?:citizenship|origin)|citizen", "country"),
    (r"work at|works at|worked at|employer|employed", "employer"),
    (r"study|studied|educated|graduate|graduated|alma mater|attend(?:ed)?\b", "educated"),
    (r"awards?\b", "award"),
)
_EVENTS = frozenset(("founder", "publisher", "creator"))  # asked for by verbs that date a thing: no bridge
_GENERIC_WORDS = """
film song movie album book novel name person play cause death birth place date country nationality won win got
get received receive award did die born buried work study educated from at of is was the do does where when
"""
_GENERIC = frozenset(_GENERIC_WORDS.split())


def asked_relation(head: str) -> str:
    """Return the last relation of the words next to the question word, or nothing."""
    relations = [
        (m.start(), paths[0][-1]) for pattern, paths in _RELATIONS for m in re.finditer(rf"\b(?:{pattern})\b", head)
    ]
    return min(relations)[1] if relations else ""


def asked_bridge(clause: str) -> str:
    """Return the relation that leads from the compared things to what is compared (their directors), or nothing."""
    asked = [paths[0][0] for pattern, paths in _RELATIONS if re.search(rf"\b(?:{pattern})s?\b", clause)]
    return next((relation for relation in asked if relation not in _EVENTS), "")


def asked_attribute(text: str) -> str:
    """Return the attribute (`birth_date`, `death_place`, ...) that a folded question asks for, or nothing."""
    return next((name for pattern, name in _ATTRIBUTES if re.search(rf"\b(?:{pattern})", text)), "")


def split_relations(text: str) -> tuple[list[tuple[Path, ...]], list[str]]:
    """Return the relations that a folded text asks for, in reading order, and the content words left over."""
    asked: list[tuple[int, tuple[Path, ...]]] = []
    for pattern, paths in _RELATIONS:
        for match in list(re.finditer(rf"\b(?:{pattern})\b", text)):
            asked.append((match.start(), paths))
            text = text[: match.start()] + " " * (match.end() - match.start()) + text[match.end() :]
    rest = [w for w in text.split() if w not in STOPWORDS and w not in _GENERIC]
    return [paths for _, paths in sorted(asked, key=lambda f: f[0])], rest


AnswerType = Literal["person", "place", "date", "year", "number", "country", "language", "yes_no", "name", "phrase"]

_YES_NO = re.compile(r"^(?:are|is|do|does|did|was|were|have|has|had|can|could|will|would|should)\b", re.IGNORECASE)
_OWN = r"(?:(?!(?:is|was|are|were|the|did|does|do|has|of)\b)[\w'\-]+ )"  # before the noun asked for
_PLACES = (
    "city cities state county town village province region district place location continent island river lake water "
    "municipality airport mountain mountains range suburb neighborhood neighbourhood area borough parish territory"
)
_PEOPLE = (
    "actor actress singer president director author writer person artist politician king queen composer musician "
    "rapper explorer character senator player"
)
_THINGS = (
    "company band group team film movie album song book novel university school college organization organisation "
    "network label magazine newspaper show series club treaty party league war church medal religion agency hotel "
    "stadium game station family franchise piece award"
)
_ASKED = r"(?:what|which)(?: is| was| are| were)?(?: the)?(?: name of the)? "
_MEASURES = "population percentage number amount area code ranking average temperature elevation size age rank debt"
# Tried in this order on the lower-cased question, from its question word on.
_RULES: tuple[tuple[str, AnswerType], ...] = (
    (rf"(?:what|which) {_OWN}?years?\b", "year"),
    (rf"when\b|{_ASKED}{_OWN}?date\b|which day", "date"),
    (r"what time\b|how (?:many|much|often|long|old|far|tall|large|big|high)\b", "number"),
    (rf"{_ASKED}{_OWN}{{0,2}}(?:{_MEASURES.replace(' ', '|')})\b", "number"),
    (rf"{_ASKED}{_OWN}?languages?\b", "language"),
    (rf"{_ASKED}(?:nationality|country|{_OWN}country)\b", "country"),
    (rf"where\b|{_ASKED}(?:place of (?:birth|death|burial)|birthplace)\b", "place"),
    (rf"{_ASKED}{_OWN}{{0,3}}(?:body of )?(?:{_PLACES.replace(' ', '|')})\b", "place"),
    (rf"who\b|whom\b|whose\b|name the\b|{_ASKED}{_OWN}{{0,3}}(?:{_PEOPLE.replace(' ', '|')})s?\b", "person"),
    (rf"{_ASKED}{_OWN}{{0,3}}(?:{_THINGS.replace(' ', '|')})s?\b", "name"),
)
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _RULES)
_HEAD = re.compile(
    r"(?:what|which|how many)(?: is the| was the| are the)?(?: name of the)? ((?:[a-z\-]+ ){0,3}?)([a-z\-]+)"
    r"(?= (?:is|was|are|were|did|does|do|has|had|of|in|that|which|who|to|for|shares?|flows?|by|near|with|where|comes?|"
    r"stars?|on|and|won|the|borders?|from)\b|\?|$)"
)
_WH = re.compile(r"\b(?:who|whom|whose|what|which|when|where|how|why|name the)\b")


def is_yes_no(question: str) -> bool:
    """Tell whether a question is answered with yes or no: it opens with an auxiliary and offers no alternative."""
    return bool(_YES_NO.match(question.strip())) and not re.search(r"\b(?:or|which|what)\b", question)


def question_word(lowered: str) -> int:
    """Return where the question word stands in a lower-cased question; relative pronouns are passed over."""
    matches = list(_WH.finditer(lowered))
    if not matches:
        return 0
    last = matches[-1]
    if len(lowered) - last.end() < 4 or lowered[: matches[0].start()].count(" ") <= 2:
        return last.start() if len(lowered) - last.end() < 4 else matches[0].start()
    strong = [m for m in matches if m.group() in ("what", "how", "when") or re.search(r", $", lowered[: m.start()])]
    return (strong or matches)[0].start()


def expected_type(question: str) -> AnswerType:
    """Return the type of the answer that `question` asks for; `phrase` where no rule says."""
    if is_yes_no(question):
        return "yes_no"
    lowered = " ".join(question.lower().split())
    rest = lowered[question_word(lowered) :]
    return next((kind for pattern, kind in _COMPILED if pattern.match(rest)), "phrase")


def head_noun(question: str) -> str:
    """Return the noun asked for (`county` in `What county shares ...`, `stores` in `How many stores`), or nothing."""
    lowered = " ".join(question.lower().split())
    rest = lowered[question_word(lowered) :]
    match = _HEAD.match(rest)
    return match.group(2) if match and match.group(2) not in ("is", "was", "the", "are", "did", "does") else ""


Attribute = Literal["birth_date", "death_date", "country", "release", "lifespan", "predicate"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two things compared: `names` as the question writes them, by `attribute`, of their `bridge` if there is one."""

    names: tuple[str, str]
    passages: tuple[int | None, int | None]
    attribute: Attribute
    largest: bool
    bridge: str
    yes_no: bool
    place: bool = False


@dataclass(frozen=True, slots=True)
class ChainForm:
    """Follow one of `paths` from passage `anchor`, then read `attribute` ("" means that the last hop is the answer)."""

    anchor: int | None
    paths: tuple[Path, ...]
    attribute: str
    residue: tuple[str, ...]


def parse_comparison(question: str, linker: Linker) -> Comparison | None:
    """Read a comparison of two named things; None where the question is not one."""
    yes_no = is_yes_no(question)
    mentions = linker.mentions(question)
    names = _choices(question, yes_no, linker)
    if names is None and not (yes_no and len(mentions) >= 2):
        return None
    if names is None or (yes_no and len(mentions) >= 2):
        folded = fold(question).split()
        pair = mentions[:2]
        names = tuple(" ".join(folded[m.start : m.end]) for m in pair)  # type: ignore[assignment]
        places: tuple[int | None, int | None] = (pair[0].passage, pair[1].passage)
    else:
        first = _place_of(names[0], linker, ())
        places = (first, _place_of(names[1], linker, () if first is None else (first,)))
    assert names is not None
    clause = fold(question)
    for name in names:
        clause = clause.replace(fold(name), " ")
    attribute, largest = _criterion(clause, yes_no)
    bridge = "" if attribute == "predicate" else asked_bridge(clause)
    located = bool(
        re.search(r"\blocated|situated|\bvillages?|mountains?|rivers?|schools?|airports?|islands?\b", clause)
    )
    return Comparison((names[0], names[1]), places, attribute, largest, bridge, yes_no, located)


def _place_of(name: str, linker: Linker, exclude: Sequence[int]) -> int | None:
    exact = [m for m in linker.mentions(name) if m.passage not in exclude]
    if exact and (exact[0].end - exact[0].start) * 2 >= len(fold(name).split()):
        return exact[0].passage
    return linker.resolve(name, exclude, floor=0.55)


def _choices(question: str, yes_no: bool, linker: Linker) -> tuple[str, str] | None:
    text = re.sub(r"\?\s*$", "", question.strip()).strip()
    if yes_no:
        pattern = (
            r"^\w+ (?:both )?(?:the )?(?:\w+s?,? )?(?P<a>.+?) (?:and|have the same \w+ as) (?P<b>.+?)"
            r"(?:,? (?:both|from|located|share|have|of the same|in the)\b.*)?$"
        )
        match = re.match(pattern, text)
        return (match["a"].strip(" ,"), match["b"].strip(" ,")) if match else None
    lead = re.match(
        r"^(?:Was|Is|Were|Are|Did|Does) (?P<a>.+?) or (?P<b>.+?) "
        r"(?:born|older|younger|die|died|released|established|founded|formed|published|first|come)\b.*$",
        text,
    )
    if lead:
        return lead["a"], lead["b"]
    out_of = re.search(r"(?:between|out of|,? of|:) (?P<a>[A-Z].+?) (?:and|or) (?P<b>[A-Z][^,]+?)(?:,.*)?$", text)
    if out_of and re.search(r"\b(?:between|out of)\b", text, re.IGNORECASE):
        return out_of["a"], out_of["b"]
    tail = text.partition(", ")[2] if re.search(r", .* or ", text) else ""
    if not tail:
        loose = re.search(r"^(?:Which|Who|What)\b.*? (?P<a>(?:The )?[A-Z][^,]*) or (?P<b>(?:the )?[A-Z].*)$", text)
        return (loose["a"], loose["b"]) if loose else None
    splits = [(tail[: m.start()], tail[m.end() :]) for m in re.finditer(r",? or ", tail)]
    return max(splits, key=lambda pair: sum(_known(side, linker) for side in pair), default=None)


def _known(name: str, linker: Linker) -> float:
    folded = fold(name)
    return float(folded in linker.titles or folded in linker.bare) + 0.01 / (1 + len(folded))


def _criterion(clause: str, yes_no: bool) -> tuple[Attribute, bool]:
    largest = bool(
        re.search(r"\b(?:later|latest|younger|youngest|recently|recent|newer|newest|last|longer|longest)\b", clause)
    )
    if yes_no:
        same = re.search(r"same (?:country|nationality|citizenship|origin)|share.*(?:country|nationality)", clause)
        return ("country", False) if same else ("predicate", False)
    if re.search(r"lived longer|longest life|longer life|live longer", clause):
        return "lifespan", True
    if re.search(r"\b(?:died|die|death|dead|passed away)\b", clause):
        return "death_date", largest
    if re.search(r"\b(?:born|older|younger|oldest|youngest|birth|elder)\b", clause):
        return "birth_date", largest
    if re.search(
        r"\b(?:released?|come|came|published|established|founded|formed|first|earlier|started|recently|newer|created|"
        r"opened)\b",
        clause,
    ):
        return "release", largest
    return "predicate", False


def parse_chain(question: str, linker: Linker) -> ChainForm | None:
    """Read a chain of relations from a named thing; None where the question names no relation that is known."""
    folded = fold(question).split()
    mentions = linker.mentions(question)
    for mention in sorted(mentions, key=lambda m: m.start - m.end):
        form = _chain_from(folded, mention)
        if form:
            return form
    named = {w for word in question.split()[1:] if word[:1].isupper() for w in fold(word).split()}
    form = _chain_from(folded, None)
    return form and replace(form, residue=tuple(w for w in form.residue if w not in named))


def _chain_from(folded: Sequence[str], mention: Mention | None) -> ChainForm | None:
    start, end = (mention.start, mention.end) if mention else (len(folded), len(folded))
    before, after = " ".join(folded[:start]), " ".join(folded[end:])
    attribute = asked_attribute(f"{before} # {after}")
    left, left_rest = split_relations(before)
    right, right_rest = split_relations(after)
    steps = [*right, *reversed(left)]
    if not steps and not attribute:
        return None
    paths: list[Path] = [()]
    for number, options in enumerate(steps):
        last = number == len(steps) - 1 and not attribute
        paths = [p + o for p in paths for o in (options if last or len(options[0]) > 1 else options[:1])]
    return ChainForm(mention.passage if mention else None, tuple(paths), attribute, (*left_rest, *right_rest))


_QUESTION_WORDS = frozenset(("who", "whom", "whose", "what", "which", "when", "where", "how", "why"))


@dataclass(frozen=True, slots=True)
class Focus:
    """What a question says: weights of its words, its folded text, the noun and the relation it asks for."""

    weights: dict[str, float]
    folded: str
    noun: str
    relation: str
    verb: str  # `design` in `Who designed ...`
    mentions: frozenset[int]


def links_from(focus: Focus, reading: Reading) -> dict[int, float]:
    """Return how the passages that the question does not name hang on those that it names, in [0, 1]."""
    names = [{fold(name) for _, _, name in name_spans(text)} for text in reading.texts]
    links: dict[int, float] = {}
    for i in set(range(len(names))) - focus.mentions:
        for anchor in focus.mentions:
            mine, other = reading.linker.bare[i], reading.linker.bare[anchor]
            if mine in names[anchor] or other in names[i]:
                links[i] = 1.0
            elif any(len(n) > 3 and f" {n} " not in focus.folded for n in names[i] & names[anchor]):
                links[i] = max(links.get(i, 0.0), 0.5)
    return links


def read_focus(question: str, reading: Reading) -> Focus:
    """Weigh the question's words by their distance to its question word: the last hop is asked for there."""
    tokens = fold(question).split()
    lowered = " ".join(question.lower().split())
    at = len(fold(lowered[: question_word(lowered)]).split())
    mentions = reading.linker.mentions(question)
    named = {i for m in mentions for i in range(m.start, m.end)}
    weights: dict[str, float] = {}
    for i, token in enumerate(tokens):
        if token in STOPWORDS or token in _QUESTION_WORDS:
            continue
        weight = (0.25 + math.exp(-abs(i - at) / 6)) * (0.3 if i in named else 1.0)
        weights[stem(token)] = max(weights.get(stem(token), 0.0), weight)
    head = " ".join(tokens[max(0, at - 6) : at + 7])
    return Focus(
        weights,
        f" {' '.join(tokens)} ",
        head_noun(question),
        asked_relation(head),
        _verb(tokens, at),
        frozenset(m.passage for m in mentions),
    )


def _verb(tokens: list[str], at: int) -> str:
    """Return the stem of the verb after `who`, or nothing."""
    after = tokens[at + 1] if tokens[at : at + 1] == ["who"] and at + 1 < len(tokens) else ""
    return "" if after in STOPWORDS else stem(after)


_TASKS = (
    "summari[sz]e|explain|describe|write|rewrite|re-write|compose|draft|transform|reframe|rephrase|discuss|elaborate|"
    "outline|compare|contrast|construct|prepare|imagine|assume|format|review|justify|analy[sz]e|evaluate|present|"
    "(?:give|provide) (?:me )?(?:an? )?(?:\\w+ )?(?:overview|summary|account|explanation|description)"
)
_POLITE = r"(?:please |(?:can|could|would|will) you (?:please )?|i (?:want|would like|need) you to |in detail,? )"
_TASK = re.compile(rf"(?:^|[.!?:;]\s+|, (?:and )?(?:then )?){_POLITE}?(?:{_TASKS})\b", re.IGNORECASE)
_PERSONA = re.compile(r"(?:you are|you're|act as|imagine|assume|as an? [^?]*$)", re.IGNORECASE)
# One thing is asked for by its name, or by way of things that have names: of the author of, in the country where.
_KNOWN = (
    "country|state|city|town|county|continent|province|island|river|capital|film|movie|book|novel|song|album|show|series|"
    "author|writer|director|performer|singer|actor|actress|composer|band|player|president|king|queen|university|college|"
    "company|league|club|war|game|character|franchise|magazine"
)
_ONE_THING = re.compile(
    rf"\b(?:the|an?|what|which|whose) (?:\w+ ){{0,2}}(?:{_KNOWN})\b|\bin common\b|\bconnected\b|of the two\b|"
    r"\b(?:is|was|are|were|of|by|from|as|and|called|for) (?:what|which)(?: \w+)?\W*$|"
    r"\b(?:what|which) (?:year|date|century)\b|"
    r"(?:what|which)(?: is| was| are| were)? (?:an?|the|another) (?:(?:other|common|full|first|last|given|brand) )*"
    r"(?:name|term|word|acronym|abbreviation|title|nickname|motto|letter|colou?r|genre|profession|occupation)\b|"
    r"\b(?:by|under) what (?:name|term|word|title)\b|^(?:is|was|are|were|did|does|do|has|have)\b.* or |"
    r"\b(?:first|last|earlier|later|older|younger|\w+er|more \w+|most \w+)\b[^?]*, [^,?]+ or [^,?]+\??$"
)
_NAMED = re.compile(rf"[\"“][^\"”]{{2,}}[\"”]|\b[12]\d{{3}}s?\b|\b[{UPPER}]\w+['’]s\b")
_FULL_NAME = re.compile(rf"[{UPPER}]\w*[a-z]\w* (?:[a-z]+ )*[{UPPER}]\w*[a-z]")  # no acronym, no `Stage I`
_REASONS = re.compile(
    r"(?:\W*(?:but|and|so)\W+)?(?:why|how(?! to)|in what ways?|to what extent|for what reasons?)\b", re.IGNORECASE
)
_GENERAL = re.compile(
    r"(?:(?:when|where) is|(?:when|where|who) (?:are|do|does|should|can|may|might|must|would|could|needs?))\b",
    re.IGNORECASE,
)
_AND_MORE = re.compile(r"\band (?:what|how|why|when|which|where|who)\b")


def with_style(task: ReaderTask) -> ReaderTask:
    """Return a task with the style that suits its question, where none is set."""
    return task if task.style else replace(task, style=answer_style(task.question.text))


def answer_style(question: str) -> AnswerStyle:
    """Return how long an answer to a question should be, from its words alone.

    `long` where it sets a task of writing (summarise, explain, rewrite as); `short` where it asks for a name, a date, a
    number, yes or no, or for anything of a thing that it names; `sentence` for reasons, ways, definitions, conditions
    and lists, and where two things are asked for at once.
    """
    text = beginning(" ".join(question.split()))
    if _TASK.search(text) or _PERSONA.match(text):
        return "long"
    names = any(start and _FULL_NAME.search(name) for start, _, name in name_spans(text))
    if _NAMED.search(text) or country_mentions(text) or region_mentions(text) or _ONE_THING.search(text.lower()):
        return "short"
    kind, is_reason = expected_type(text), bool(_REASONS.match(text))
    if _AND_MORE.search(text) and not names:
        return "sentence"
    if kind in ("person", "place", "date"):
        return "sentence" if _GENERAL.match(text) and not names else "short"
    if kind != "phrase" or asked_attribute(fold(text)) or (names and not is_reason):
        return "short"
    return "sentence"
