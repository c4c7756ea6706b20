"""What a model is shown of a knowledge base, and how its replies are read: strictly, and never trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnnrag.datasets.articles import Part, Triple, state
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.literals import objects
from gnnrag.roles.parsing import strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.textualise.markup import MarkupError, check_marked, escape, read_marked

_NUMBER = re.compile(r"\d{3,}")  # years and the like; shorter ones count things
_BRACKETS = re.compile(r"[<>\[\]]")
_LONGEST = 1200  # characters of a description


def can_be_shown(name: str) -> bool:
    """Tell whether a name stands in a prompt, and between brackets, exactly as it is."""
    return inline(name) == name == escape(name) and f"\n{name}\n" in notes_element(name)


def facts(part: Part, names: Sequence[str]) -> str:
    """Return neighbours of a part with what is stated of each, as a prompt shows them."""
    said: dict[str, list[str]] = {name: [] for name in names}
    for fact in part.triples:
        other = fact[2] if fact[0] == part.name else fact[0]
        if other in said:
            said[other].append(inline(state(fact, fact[0])))
    return notes_element("\n".join(f"- {name}: {' '.join(statements)}" for name, statements in said.items()))


def read_article(reply: str, part: Part) -> str:
    """Return a marked text; names may be missing in it.

    Raises:
        MalformedError: broken markup; something is marked that was not given, or nothing at all; a number that was not
            given, which is how facts from elsewhere show.
    """
    text = strip_markup(strip_thinking(reply))
    try:
        missing = check_marked(text, part.name, part.neighbours)
        plain, _ = read_marked(text)
    except MarkupError as error:
        raise MalformedError(str(error)) from error
    if len(missing) == len(part.neighbours):
        raise MalformedError("no name of the list stands in square brackets")
    _refuse_numbers(plain, " ".join((part.name, *part.neighbours)))
    return re.sub(r"\n\s*\n+", "\n\n", text)


def read_entity(reply: str, name: str, article: str, kinds: Sequence[str]) -> tuple[str, str]:
    """Return type and description of a reply `{"type": "movie", "description": "..."}`.

    Raises:
        MalformedError: a type that is not of the list; a description that is empty, too long, marked, that does not
            name the thing, or has a number that the article has not.
    """
    for data in objects(strip_thinking(reply)):
        kind, text = data.get("type"), data.get("description")
        if not isinstance(kind, str) or not isinstance(text, str):
            continue
        text = " ".join(text.split())
        if kind not in kinds:
            raise MalformedError(f"type {kind[:80]!r} is not of the list")
        if name not in text or len(text) > _LONGEST:
            raise MalformedError("the description does not name the thing, or is too long")
        if _BRACKETS.search(text.replace(name, "")):
            raise MalformedError("the description has brackets")
        _refuse_numbers(text, f"{name} {article}")
        return kind, text
    raise MalformedError("no object with 'type' and 'description'")


def read_relations(reply: str, triples: Sequence[Triple]) -> list[str]:
    """Return the sentences of a reply `{"1": "[head] ... [tail].", ...}` in the order of their numbers.

    Raises:
        MalformedError: the numbers are not exactly those of the triples, or a sentence does not mark both ends and
            nothing else.
    """
    wanted = {str(number) for number in range(1, len(triples) + 1)}
    for data in objects(strip_thinking(reply)):
        rows = {str(number).strip(): text for number, text in data.items()}
        if rows.keys() != wanted:
            raise MalformedError(f"the numbers are not 1 to {len(triples)}")
        return [_sentence(rows[str(n)], triple) for n, triple in enumerate(triples, start=1)]
    raise MalformedError("no object")


def _sentence(text: object, triple: Triple) -> str:
    if not isinstance(text, str):
        raise MalformedError(f"{text!r:.80} is no sentence")
    line = " ".join(text.split())
    head, _, tail = triple
    try:
        _, mentions = read_marked(line)
    except MarkupError as error:
        raise MalformedError(str(error)) from error
    if {(mention.kind, mention.name) for mention in mentions} != {("neighbour", head), ("neighbour", tail)}:
        raise MalformedError(f"the sentence does not mark [{head}] and [{tail}], and nothing else")
    return line


def _refuse_numbers(text: str, given: str) -> None:
    if strange := sorted(set(_NUMBER.findall(text)) - set(_NUMBER.findall(given))):
        raise MalformedError(f"numbers that were not given: {', '.join(strange)[:80]}")
