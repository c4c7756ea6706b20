"""Types of entities by English rules on names and sentences; precision before recall, "" where no rule applies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from gnnrag.extract.base import EntityRecord, Triple
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import COUNTRY_OF, REGION_OF, drop_qualifier, fold
from gnnrag.types import Passage

TYPES = (
    "person", "organization", "location", "work", "event", "date", "number", "nationality", "language", "award",
    "position", "species", "product",
)  # fmt: skip

# Head nouns of "X is a ... NOUN" and of qualifiers such as "(film)"; plurals are cut first.
_NOUNS = {
    "person": """
    actor actress singer songwriter composer musician rapper guitarist drummer pianist violinist vocalist conductor
    director filmmaker producer screenwriter writer author novelist poet playwright dramatist essayist journalist editor
    critic artist painter sculptor architect photographer designer engineer inventor scientist physicist chemist
    mathematician biologist astronomer economist philosopher historian theologian psychologist sociologist linguist
    scholar academic professor teacher educator lawyer attorney judge jurist politician statesman stateswoman diplomat
    ambassador senator congressman governor mayor president minister chancellor premier monarch king queen prince
    princess emperor empress duke duchess earl count countess baron baroness baronet viscount viscountess marquess lord
    lady noble nobleman noblewoman aristocrat peer regent consort ruler sultan caliph shah khan tsar pope bishop
    archbishop cardinal priest clergyman monk nun abbot abbess rabbi imam saint missionary soldier officer general
    admiral commander colonel captain lieutenant aviator pilot astronaut explorer sailor footballer player cricketer
    golfer boxer wrestler swimmer sprinter runner athlete gymnast cyclist jockey skier skater sportsman sportswoman
    coach racer businessman businesswoman businessperson entrepreneur executive banker industrialist merchant
    philanthropist activist socialite model dancer choreographer comedian presenter broadcaster host personality
    celebrity magician chef surgeon physician doctor nurse psychiatrist dentist wife husband son daughter father mother
    brother sister child grandson granddaughter heir widow nephew niece cousin uncle aunt spouse leader founder pioneer
    revolutionary rebel criminal murderer outlaw character cinematographer animator illustrator cartoonist translator
    naturalist botanist zoologist geologist archaeologist anthropologist theorist librettist organist cellist soprano
    tenor baritone midfielder goalkeeper quarterback pitcher man woman boy girl person figure member suffragist
    feminist dj impresario trombonist saxophonist trumpeter bassist lyricist publisher landowner planter farmer
    """,
    "organization": """
    company corporation firm business manufacturer conglomerate subsidiary bank airline brewery retailer chain brand
    label studio band group orchestra choir ensemble quartet duo trio organization organisation association society
    union federation league club team institution institute university college school academy seminary agency
    department ministry bureau commission committee council foundation charity party movement army navy regiment brigade
    division battalion squadron force police government parliament legislature assembly court newspaper broadcaster
    network station publisher order congregation denomination diocese archdiocese museum library hospital consortium
    cooperative faculty think-tank trust franchise startup fraternity sorority supergroup unit corps
    """,
    "location": """
    city town village hamlet municipality commune suburb neighborhood neighbourhood district county province state
    region territory country nation republic kingdom empire island archipelago peninsula continent mountain mount hill
    peak volcano range valley canyon river stream creek lake lagoon sea ocean bay gulf strait channel waterfall desert
    forest park reserve garden square street road highway avenue bridge tunnel airport port harbour harbor station
    building tower castle palace fort fortress temple church cathedral mosque synagogue abbey monastery cemetery stadium
    arena theatre theater hotel mall house mansion plantation farm settlement locality place area community township
    parish borough ward capital canton prefecture voivodeship oblast raion department census-designated sub-district
    crater moon planet asteroid site headland cape reef beach spring glacier pass plateau plain dam reservoir canal
    lighthouse prison camp base estate manor resort venue block tributary barangay colony protectorate
    """,
    "work": """
    film movie documentary drama thriller musical western short feature sequel remake series sitcom show programme
    program episode season miniseries telenovela soap anime cartoon album ep single song track hymn anthem ballad
    opera operetta ballet symphony concerto sonata play novel novella book trilogy memoir autobiography biography poem
    story tale comic manga magazine journal encyclopedia dictionary painting sculpture mural fresco statue game
    soundtrack mixtape compilation essay treatise manuscript website podcast comedy tragedy script screenplay
    anthology chronicle
    """,
    "event": """
    war battle siege campaign revolution rebellion revolt uprising conflict invasion massacre genocide attack bombing
    assassination coup riot strike crash accident disaster earthquake hurricane cyclone flood fire famine epidemic
    pandemic election referendum olympics championship tournament cup competition contest race match grand-prix season
    festival fair exhibition conference summit congress convention ceremony treaty expedition concert tour incident
    scandal trial crusade playoff final
    """,
    "language": "language dialect creole pidgin",
    "award": "award prize medal trophy honour honor decoration scholarship fellowship",
    "species": "species genus subspecies family breed plant tree flower bird fish insect mammal moth butterfly beetle",
    "product": "car automobile aircraft airliner ship vessel destroyer submarine locomotive rifle missile smartphone "
    "console computer software application engine motorcycle drug medication cruiser frigate helicopter rocket",
    "position": "office post title rank",
}
_TYPE_OF = {noun: kind for kind, nouns in _NOUNS.items() for noun in nouns.split()}
# Words of a name that say what it names: the last one (`Essex County`) or the first (`Lake Erie`).
_LAST = {
    "organization": """
    university college school academy institute company corporation corp inc ltd records entertainment pictures studios
    productions airlines airways bank party union league association society foundation committee council ministry
    department agency orchestra band club fc army navy police museum library hospital congress parliament senate
    commission organization organisation federation press times post news group
    """,
    "location": """
    county city river lake island islands mountain mountains valley park province district bay sea ocean street avenue
    road airport station bridge castle palace cathedral cemetery stadium township village beach desert forest creek
    peninsula republic kingdom territory prefecture oblast voivodeship parish theatre theater square hall house tower
    """,
    "event": "war wars battle revolution rebellion championship championships olympics cup festival massacre election",
    "award": "award awards prize medal",
}
_LAST_TYPE = {noun: kind for kind, nouns in _LAST.items() for noun in nouns.split()}
_FIRST_TYPE = {
    "lake": "location", "mount": "location", "fort": "location", "port": "location", "university": "organization",
    "battle": "event", "siege": "event", "treaty": "event", "king": "person", "queen": "person", "prince": "person",
    "princess": "person", "emperor": "person", "pope": "person", "sir": "person", "bishop": "person",
    "republic": "location", "ministry": "organization", "department": "organization", "bank": "organization",
}  # fmt: skip
_CONTINENTS = frozenset(
    ("Africa", "Asia", "Europe", "Antarctica", "Oceania", "North America", "South America", "Latin America")
)
# Words for a country that are its name, not its people's.
_COUNTRY_NAMES = """
Austria-Hungary|People's Republic of China|Czechoslovakia|West Germany|East Germany|Persia|The Netherlands|Burma|UK
Soviet Union|Yugoslavia|Korea|England|Scotland|Wales|Great Britain|Northern Ireland|United States of America|US|USA|U.S.
"""
_OTHER_NAMES = frozenset(_COUNTRY_NAMES.strip().replace("\n", "|").split("|"))
_PLACES = frozenset({*COUNTRY_OF.values(), *REGION_OF, *_CONTINENTS, *_OTHER_NAMES})
_DEMONYMS = frozenset(COUNTRY_OF) - _PLACES - {"Hollywood", "Bollywood"}

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = re.compile(
    rf"(?:(?:early|late|mid|c\.|circa|around|about) ?)?(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{3,4}})?"
    rf"|{_MONTH}(?: \d{{1,2}}(?:st|nd|rd|th)?)?,?(?: \d{{3,4}})?|[12]\d{{3}}s?|\d{{3,4}} (?:BC|AD|BCE|CE)"
    r"|[12]\d{3} ?[–—-]+ ?(?:\d{2,4}|present)|(?:the )?\d{1,2}(?:st|nd|rd|th) [Cc]entury)"
)
_UNIT = (
    r"(?:percent|per cent|million|billion|trillion|thousand|hundred|people|inhabitants|square|kilometres|kilometers|"
    r"km|km2|miles|mi|metres|meters|m|feet|ft|inches|acres|hectares|tons|tonnes|years|days|hours|minutes|seconds|"
    r"dollars|euros|pounds|times|episodes|seats|points|goals|students|members)"
)
_NUMBER = re.compile(rf"[$£€₹¥]?[-+]?\d[\d,.]*(?: ?%| ?{_UNIT}\b\.?| (?:sq|cu)\.? ?{_UNIT})*|US\$.*\d.*", re.IGNORECASE)
_QUALIFIER = re.compile(r"\(([^()]+)\)\s*$")
_PARENTHESIS = re.compile(r"\s*\([^()]*\)\s*")
_DAY = rf"(?:\d{{1,2}} {_MONTH}|{_MONTH} \d{{1,2}},?) \d{{3,4}}"
_LIFE = re.compile(rf"\([^()]*\b(?:born\b|née\b)|\(\s*(?:{_DAY}|[12]\d{{3}})\s*[–—-]+\s*{_DAY}|\(\s*[–—-]+\s*{_DAY}\)")
_COPULA = re.compile(r"\b(?:is|was|are|were)\b(?: (?:also|primarily|mainly|best known as|known as))?")
_ONE_OF = re.compile(r"^\s*(?:one|some|two|any) of (?:the|its|his|her)?\s*")
# Where the noun phrase after the copula ends: what follows describes it.
_NOUN_END = re.compile(
    r",|;|\.|:|\b(?:of|in|on|at|by|from|who|whom|whose|which|that|for|with|to|about|as|near|starring|directed|written|"
    r"produced|located|situated|based|released|held|born|known|featuring|created|set|between|during|when|where|under|"
    r"after|before|operated|owned|founded|published|recorded|composed|made|is|was|are|were|within|along|served)\b"
)
_IS = frozenset(("is", "is a", "is an", "is the", "was", "was a", "was an", "was the", "were", "are"))
_NAMED_BEFORE = (
    (
        re.compile(
            r"\b(?:directed|written|co-written|composed|performed|sung|painted|designed|hosted|discovered|starring|"
            r"starred|stars|son of|daughter of|father of|mother of|wife of|husband of|brother of|sister of|married|"
            r"(?:his|her) (?:father|mother|wife|husband|son|daughter|brother|sister),?)(?: by)? $"
        ),
        "person",
    ),
    (
        re.compile(
            r"\b(?:born|died|raised|located|situated|buried|lives|lived|resides|headquartered|city|town|village|"
            r"municipality|province|county|district|capital)(?: and (?:raised|died))? (?:near|in|at|of) (?:the )?$"
        ),
        "location",
    ),
)


def opening(passage: Passage, text: PassageText) -> str:
    """Return a passage's first sentence as one line, without the title that may be glued to it."""
    title = passage.title.strip()
    rows = text.sentences[1:] if text.sentences[:1] == (title,) and len(text.sentences) > 1 else text.sentences
    return " ".join(rows[0].removeprefix(f"{title}\n\n").split()) if rows else ""


def type_names(names: Iterable[str], title: str, first: str, statements: Iterable[Triple]) -> list[EntityRecord]:
    """Return records of the names whose type is known: from `statements` or `first` (see `opening`), then the name."""
    stated: dict[str, str] = {}
    if kind := described_type(title, first):
        stated[title] = kind
    for head, relation, tail in statements:
        if relation.lower() in _IS and (kind := noun_type(_NOUN_END.split(tail)[0].split())):
            stated.setdefault(head, kind)
        text = relation if tail in relation else f"{relation} {tail}"
        if tail not in stated and (kind := mentioned_type(tail, text)):
            stated[tail] = kind
    records = []
    for name in names:
        own = named_type(name)
        kind = own if own in ("date", "number") else stated.get(name, own)  # `born in 1950`
        if kind:
            records.append(EntityRecord(name, kind))
    return records


@lru_cache(maxsize=65536)
def named_type(name: str) -> str:
    """Return the type that a name tells by itself (a date, a number, `Essex County`, `Alien (film)`), or nothing."""
    bare = drop_qualifier(name)
    if _DATE.fullmatch(bare):
        return "date"
    if _NUMBER.fullmatch(bare):
        return "number"
    if (qualifier := _QUALIFIER.search(name)) and (kind := noun_type(qualifier[1].split())):
        return kind
    if bare in _PLACES:
        return "location"
    if bare in _DEMONYMS:
        return "nationality"
    head, _, tail = bare.rpartition(", ")
    if head and (tail in _PLACES or noun_type(tail.split()[:2]) == "person"):
        return "location" if tail in _PLACES else "person"  # `Columbia, Missouri`, `Richard Wesley, 1st Baron ...`
    parts = bare.replace(",", " ").split()
    if len(parts) < 2 or not (parts[0][:1].isupper() and parts[-1][:1].isupper()):
        return ""
    return _FIRST_TYPE.get(fold(parts[0])) or _LAST_TYPE.get(fold(parts[-1]).strip("."), "")


def described_type(name: str, sentence: str) -> str:
    """Return the type that a sentence about a thing tells (`X is a 1982 film ...`); "" if it has another subject."""
    plain = _PARENTHESIS.sub(" ", re.sub(r"\(\s*", "(", sentence))
    for copula in list(_COPULA.finditer(plain))[:2]:
        if not _is_about(name, plain[: copula.start()]):
            break
        rest = _ONE_OF.sub("", plain[copula.end() :])
        end = _NOUN_END.search(rest)
        while end and end[0] == "." and re.search(r"\b[A-Z]$", rest[: end.start()]):  # an initial: `U.S. state`
            end = _NOUN_END.search(rest, end.end())
        if kind := noun_type((rest[: end.start()] if end else rest).split()):
            return kind
    is_life = _LIFE.search(sentence) and _is_about(name, sentence.partition("(")[0])
    return "person" if is_life else ""


def mentioned_type(name: str, sentence: str) -> str:
    """Return the type that the words before a mention tell (`directed by X`, `born in X`), or nothing."""
    at = sentence.find(name)
    if at < 0 or not name[:1].isupper():
        return ""
    before = sentence[max(0, at - 40) : at]
    return next((kind for pattern, kind in _NAMED_BEFORE if pattern.search(before)), "")


def _is_about(name: str, subject: str) -> bool:
    """Tell whether the words before the verb begin with a name's first word or hold its last before any comma."""
    own, head = fold(drop_qualifier(name)).split(), fold(subject.partition(",")[0]).split()
    if not own or len(head) > len(own) + 6:
        return False
    own, head = [w.strip("\"'.,“”") for w in own], [w.strip("\"'.,“”") for w in head]
    return bool(head) and (own[0] in head[:3] or own[-1] in head)


def noun_type(phrase: list[str]) -> str:
    """Return the type of a noun phrase: that of its last word that has one (`action drama film`)."""
    for word in reversed(phrase):
        word = fold(word.strip("\"'.,;:()“”"))
        for form in (
            word,
            word.removesuffix("s"),
            word.removesuffix("es"),
            re.sub("ies$", "y", word),
            word.rpartition("-")[2],
        ):
            if form in _TYPE_OF:
                return _TYPE_OF[form]
        if len(word) > 6 and word.endswith(("ologist", "ician", "ographer")):
            return "person"
    return ""
