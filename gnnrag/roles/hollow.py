"""What makes a reply none, whatever was asked for: cut off, refusing, in a loop; no answer, or no fact, in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from gnnrag.roles.parsing import strip_markup, strip_thinking

T = TypeVar("T")
MAX_REPLY = 200_000  # characters that a parser is given: ten times what the longest job asks for
# Why a reply failed, as a run counts it beside `parse_failure`; of a loop that was cut off it is `loop`.
REFUSED, EMPTY, CUT_OFF, LOOP = "refused", "empty", "cut_off", "loop"
NO_ANSWER, NO_FACT, OUT_OF_RANGE = "no_answer", "no_fact", "out_of_range"
# "I'm sorry, but I can't help with that" and its kin, as a whole reply. "I cannot find the answer" is no refusal.
# Possessive (`*+`, `++`) where it can be: a reply that repeats an opening must not cost exponential time.
_EXCUSE = (
    r"(?:(?:(?:i['’]?m|i am|we['’]?re|we are)\s+)?(?:really |very |so )?sorry|i apologi[sz]e|unfortunately"
    r"|my apologies)\W++"
)
_REFUSAL = re.compile(
    rf"(?:{_EXCUSE})*+(?:as an ai\b[^.]*?\W++)?(?:{_EXCUSE})*+(?:but\s+)?(?:i|we)(?: am| are|['’]m|['’]re)?\s+"
    r"(?:can(?:no|['’])?t|can not|won['’]?t|will not|must decline|decline|(?:not able|unable))(?: to)?\s+(?:\w+\s+)?"
    r"(?:help(?! (?:myself|it|but)\b)|assist|comply|fulfil+|engage|continue with|support|do (?:that|this)|"
    r"process (?:that|this)|provide (?:assistance|that|this)|discuss (?:that|this))\b[^{\[]*",
    re.IGNORECASE,
)
_REFUSAL_LIMIT = 400  # characters
_WORD = re.compile(r"\w+")
REPEATS, LONGEST_UNIT = 4, 2000  # how often the end of a loop says the same; characters of what it says
_LONG_WORD = 40  # characters; in a reply of one longer word the letters are looked at
# What is left of "So the final answer to the question asked above is:" once the question itself is out of it.
_FILLER = re.compile(
    r"(?:an?|above|answers?|are|as|asked|be|below|correct|final|follow(?:s|ing)|for|given|hence|is|my|of|question|short|so"
    r"|that|the|therefore|this|thought|thus|to|was|would|your)"
)
_LABELS = frozenset(("answer", "answers", "question", "thought"))
# On the words of a line, in which "don't" is "don t".
_NOTHING = re.compile(
    r"(?:(?:there (?:is|are|was|were)|(?:i|we) (?:have|found|find|see)|the passages? (?:gives?|have|has|states?)) )?"
    r"(?:no|not enough|insufficient) (?:\w+ ){0,2}(?:information|facts?|evidence|passages?|chain|answer|hops?|links?)\b"
    r"|(?:i|we|it|they|(?:the|these) passages?) (?:(?:do|does|did|can|could) ?not|(?:don|doesn|didn|can|couldn) t) "
    r"(?:be )?"
    r"(?:know|find|found|see|have|determine|answer|tell|say|state|provide|give|contain|mention|identif|infer|include)"
    r"|(?:none|n a|null|nothing|unknown)(?: (?:is |was )?(?:found|known|given|missing|stated))?$"
)
# After "The passages do not say it", what follows may state something.
_NEXT = re.compile(r"[.!?;]\s+|,\s+(?:but|however|yet|so(?=\s+(?:i|we)\b))\s+", re.IGNORECASE)
_DASH = re.compile(r"\s[-–—]\s")  # between subject, relation and object
_HEADING = re.compile(
    r"(?:the |my |here is the )?(?:reasoning )?(?:chain|hops?|facts?|steps?)(?: of (?:facts|reasoning))?"
)
_BRIDGES = re.compile(r"bridg(?:e|ing) entit(?:y|ies)\b")
_MARKS = re.compile(r"\[(?:MISSING|\d{1,9}(?:\s*,\s*\d{1,9})*)\]|^\W*\d{1,2}[.)]\s", re.IGNORECASE)


class MalformedError(ValueError):
    """Raised by a parser: a reply says nothing (`reason`: a word above) or lacks the format asked for (empty)."""

    def __init__(self, problem: str = "", reason: str = "") -> None:
        super().__init__(problem)
        self.reason = reason


def parsed(text: str, parse: Callable[[str], T], prompt: str = "", is_cut: bool = False) -> T:
    """Return what a role's parser reads in a reply to the turn `prompt`.

    MalformedError where it is not what was asked for, goes round in circles, was cut off (`is_cut`: nothing in it can
    be trusted to be whole), refuses, is too long, or is otherwise out of range.
    """
    if len(text) > MAX_REPLY:
        raise MalformedError(f"more than {MAX_REPLY:,} characters")
    if is_loop(text, prompt, is_cut):
        raise MalformedError("says the same until its end", LOOP)
    if is_cut:
        raise MalformedError("cut off at the limit of its length", CUT_OFF)
    if is_refusal(text):
        raise MalformedError(REFUSED, REFUSED)
    try:
        return parse(text)
    except MalformedError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:  # numbers of thousands of digits, or nesting as deep
        raise MalformedError(f"cannot be read: {error}"[:300]) from error


def is_refusal(text: str) -> bool:
    """Tell whether a reply as a whole declines the job: roles without a format of their own would take it as text."""
    text = strip_markup(strip_thinking(text)) if len(text) <= _REFUSAL_LIMIT else text
    return len(text) <= _REFUSAL_LIMIT and bool(_REFUSAL.fullmatch(text))


def words(text: str) -> str:
    """Return the words of a text in lower case, a blank between them: what is compared here."""
    return " ".join(_WORD.findall(text.casefold()))


def is_loop(text: str, prompt: str = "", is_cut: bool = False) -> bool:
    """Tell whether a reply to the turn `prompt` repeats itself to its end; `is_cut`: it may end inside a word.

    It does where its last words are one phrase, line or word, at least `REPEATS` times in a row, and these repeats are
    at least half of it. Punctuation and case do not count. JSON that closes is no loop (a list of equal labels has an
    end), nor is what the prompt itself says as often: that is a name.
    """
    found = _WORD.findall(text.casefold())
    if len(found) == 1 and len(found[0]) > _LONG_WORD:
        found = list(found[0])
    said = _repeated(found) or (_repeated(found[:-1]) if is_cut else "")
    return bool(said) and not _closes(text) and said not in f" {words(prompt)}"


def _repeated(found: list[str]) -> str:
    line = "".join(f" {word}" for word in found)
    start = line.rfind(" ")
    while start > 0 and len(line) - start <= min(len(line) // REPEATS, LONGEST_UNIT):
        unit = line[start:]
        often = max(REPEATS, -(-len(line) // (2 * len(unit))))
        if line.endswith(unit * often):
            return unit * often
        start = line.rfind(" ", 0, start)
    return ""


def _closes(text: str) -> bool:
    """Whether the last thing in a text is a bracket that closes one of its first half."""
    text = text.rstrip("` \n")
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in "]}") - (text[at] in "[{")
        if depth == 0:
            return 2 * at < len(text) - 1
    return False


def is_no_answer(text: str, question: str = "") -> bool:
    """Tell whether an answer is none: empty, the question once more, or the words that lead up to an answer."""
    said, asked = words(text), words(question)
    left = f" {said} ".replace(f" {asked} ", " ") if asked else f" {said} "
    rest = left.split()
    if not all(map(_FILLER.fullmatch, rest)):
        return False
    is_restated = len(left) < len(said) + 2
    leads_up = not _LABELS.isdisjoint(rest) and ("is" in rest or text.rstrip("*_ \n").endswith(":"))
    return not said or is_restated or leads_up


def need_answer(text: str, question: str) -> str:
    """Return an answer. Raises MalformedError where it is none (`is_no_answer`)."""
    if is_no_answer(text, question):
        raise MalformedError("no answer: nothing, the question, or the words that lead up to one", NO_ANSWER)
    return text


def has_fact(text: str, question: str = "") -> bool:
    """Tell whether a reasoning chain or step states something: one line that does suffices.

    Headings, the question once more, a line of bridge entities and "no information" state nothing.
    """
    return any(_states(line, question) for line in text.splitlines())


def _states(line: str, question: str) -> bool:
    line = _MARKS.sub(" ", line)
    said = words(line)
    if " " not in said or is_no_answer(line, question):
        return False
    subject, relation, *rest = (*_DASH.split(line), "")
    if len(rest) > 1 and _WORD.search(subject) and _WORD.search(relation):
        return True
    if _NOTHING.match(said):
        return any(_states(part, question) for part in _NEXT.split(line)[1:])
    return not (_HEADING.fullmatch(said) or _BRIDGES.match(said))
