"""Phrases by rules, for texts without a tagger: names, dates, numbers, quoted titles."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator

_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"


def _upper_class() -> str:
    """Return a regular-expression class of all upper- and title-case letters (`re` has none for them)."""
    codes = [c for c in range(sys.maxunicode) if c < 0x20000 and unicodedata.category(chr(c)) in ("Lu", "Lt")]
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) + "]"


_UP = _upper_class()
# Words that are capital only because a sentence begins with them; a name never starts here (titles are kept whole).
_NOT_FIRST = (
    "The|A|An|He|She|It|They|We|I|You|His|Her|Hers|Its|Their|Our|My|Your|Him|Them|Me|Us|This|That|These|Those|There|Here|"
    "In|On|At|By|For|From|To|Of|With|Without|Under|Over|Into|Upon|Within|During|Since|Until|Till|Between|Among|Against|"
    "Through|Throughout|Despite|Along|Across|Around|Near|Like|Unlike|As|And|But|Or|Nor|So|Yet|If|Then|Than|Because|"
    "Although|Though|While|When|Where|Whether|Which|Who|Whose|Whom|What|Why|How|After|Before|Once|Also|However|Moreover|"
    "Thus|Hence|Therefore|Meanwhile|Later|Now|Currently|Originally|Initially|Eventually|Finally|Recently|Today|Some|Many|"
    "Most|Several|Both|Each|Every|All|Any|No|Not|Other|Others|Another|Such|Only|Just|Even|Is|Are|Was|Were|Be|Been|Has|"
    "Have|Had|Do|Does|Did|Will|Would|Can|Could|May(?=\\s[a-z])|Might|Should|Must|Born|According|Based|Following|Including|"
    "Together|Besides|Instead|Additionally|Furthermore|Nevertheless|Afterwards|Subsequently|Previously"
)
_DATE = (
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})(?:,?\s+\d{{3,4}})?\b"
    rf"|\b(?:{_MONTH})(?:\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?!\d))?(?:,?\s+\d{{3,4}})\b"
    rf"|\b(?:{_MONTH})\s+\d{{1,2}}(?:st|nd|rd|th)?\b"
)
_ABBREVIATED = r"(?:St|Ste|Dr|Mr|Mrs|Ms|Jr|Sr|Mt|Ft|No|Inc|Ltd|Co|Corp|Bros|Lt|Gen|Col|Sgt|Capt|Rev|Prof|Gov|Sen|vs)\."
_WORD = rf"(?:{_ABBREVIATED}|(?:{_UP}\.)+(?:{_UP}(?!\w))?|(?:[a-z]{{1,3}}[-'’]?)?{_UP}\w*(?:['’.&/\-–]\w+)*)"
_LOOSE = "and|&|in|on|at|for|to|with|from|the|or|by|a"
_TIGHT = "of|de|la|le|les|von|van|der|den|del|della|di|da|do|dos|das|du|des|el|al|ibn|bin|bint|ben|y|e|zu|und|et|af|av"
_CONNECTOR = rf"(?:(?:{_TIGHT}|{_LOOSE})\s+){{1,3}}"
_NAME = (
    rf"(?:(?<![\w.,])\d{{1,4}}(?:st|nd|rd|th)?\s+)?(?<!\w)(?!(?:{_NOT_FIRST})\b){_WORD}"
    rf"(?:(?:\s?-\s?|\s+)(?:{_CONNECTOR})?(?!(?:{_MONTH})\s+\d){_WORD}|\s+\d[\w.]*\b)*"
)
_NUMBER = r"(?<![\w.])\d+(?:[.,]\d+)*(?:st|nd|rd|th|s)?(?:\s+century)?\b%?"
_PHRASE = re.compile(rf"(?P<date>{_DATE})|(?P<name>{_NAME})|(?P<number>{_NUMBER})")
_QUOTED = re.compile(r"\"([^\"]{2,80})\"|“([^”]{2,80})”|``(.{2,80}?)''")
_YEAR = re.compile(r"\b\d{3,4}\b")
_HAS_UPPER = re.compile(_UP)
# Not at the `the` of `of the`, which the split at `of` takes with it.
_SPLIT_LOOSE = re.compile(rf"(?<!\sof)\s+(?:(?:{_LOOSE})\s+)+|(?<=\w)['’]s\s+")
_OF_TAIL = re.compile(r"\s+of\s+(?:the\s+)?")
_POSSESSIVE_END = re.compile(r"['’]s?$")
_LEADING_NUMBER = re.compile(r"^(\d+)\w*\s+")


def rule_phrases(sentence: str) -> list[str]:
    """Return the phrases of one sentence in order of appearance, without repeats, in the text's own spelling.

    Names are runs of capitalised words, joined over connectors (`University of the West`, `Man in the Trunk`); a run
    with a loose connector or a possessive also gives its parts, and a date also gives its year.
    """
    found: dict[str, None] = {}
    for piece in sentence.split("\n\n"):  # no name runs from a title into the sentence it is glued to
        for match in _PHRASE.finditer(piece):
            text = match.group()
            if match.lastgroup == "name":
                for name in _name_forms(text):
                    found[name] = None
            else:
                found[text] = None
                if match.lastgroup == "date" and (year := _YEAR.search(text)):
                    found[year.group()] = None
    if '"' in sentence or "“" in sentence or "``" in sentence:
        for quoted in _quoted(sentence):
            found[quoted] = None
    return list(found)


def _name_forms(run: str) -> Iterator[str]:
    """Yield the whole run, then its parts."""
    whole = _POSSESSIVE_END.sub("", run)
    if len(whole) < 2:
        return
    yield whole
    if " " not in whole:
        return
    if number := _LEADING_NUMBER.match(whole):
        if _YEAR.fullmatch(number.group(1)):
            yield number.group(1)
        whole = whole[number.end() :]
        yield whole
    for part in _SPLIT_LOOSE.split(whole):
        if len(part) > 1:
            yield part
            *heads, tail = _OF_TAIL.split(part)
            if heads:
                yield tail
                # `Duke` alone says nothing, `Grand Duke` or `Boso Count` may be a name.
                yield from (head for head in heads if " " in head)


def _quoted(sentence: str) -> Iterator[str]:
    if sentence.count('"') % 2:  # unbalanced: what lies between two marks may be outside the quotation
        return
    for match in _QUOTED.finditer(sentence):
        text = next(group for group in match.groups() if group is not None).strip(" ,.;:")
        if text and _HAS_UPPER.search(text) and text.count(" ") < 10:
            yield text
