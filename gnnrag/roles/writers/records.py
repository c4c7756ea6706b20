"""Read records of entities and relations from delimited replies, with gleaning rounds.

Format A: `("entity"<|>NAME<|>TYPE<|>DESCRIPTION)` and
`("relationship"<|>HEAD<|>TAIL<|>DESCRIPTION<|>KEYWORDS<|>STRENGTH)`, joined by `##`, with `<|COMPLETE|>` at the end.
Format B: one record a line, fields separated by `<|#|>`, keywords before the description and no strength. Format C is
format A with a record for each n-ary fact before the records of its entities.

Nothing here raises for what a reply says: what cannot be used is counted under the reason why.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gnnrag.extract.base import EntityRecord, RelationRecord
from gnnrag.llm.base import Backend, Message, estimate_tokens
from gnnrag.prompts.untrusted import escaped_except, inline, passage_element
from gnnrag.roles.parsing import in_parentheses, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.writers.base import TriplesTask
from gnnrag.session import Session

MAX_CHARACTERS, MAX_BYTES = 256, 512  # of a name
MAX_STRENGTH = 10.0
_END = re.compile(r"<\s*\|\s*complete\s*\|\s*>", re.IGNORECASE)
# Blanks are bounded: a reply of nothing but blanks must not cost quadratic time.
_TORN_SEPARATOR = re.compile(
    r"<(?!\|#\|>) {0,3}\|? {0,3}\\?#{1,9} {0,3}\|? {0,3}>|< {0,3}\| {0,3}# {0,3}\| {0,3}(?![>| ])"
)
_OPENING = re.compile(r"\( {0,3}[\"'“`]?[a-z][a-z_ -]{0,30}[\"'”`]? {0,3}< {0,3}\| {0,3}>", re.IGNORECASE)
_BORDER = re.compile(r"##|\n(?=[ \t]{0,8}[(\"'])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BAD_TYPE = frozenset("'()<>|/\\")
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("«", "»"), ("`", "`"))
_TAGS = {"entity": "entity", "relationship": "relation", "relation": "relation"}
_TAGS |= {f"hyper{joint}{word}": "hyper" for joint in ("", "-", "_", " ") for word in ("relation", "edge")}
_IGNORED = {"content_keywords", "content keywords"}  # asked for by the originals, read by nobody


@dataclass
class Records:
    """The records of one reply; tags are `entity`, `relation` or `hyper`."""

    rows: list[tuple[str, list[str], bool]] = field(default_factory=list)  # (tag, fields, is format B?)
    counts: Counter[str] = field(default_factory=Counter)  # `seen`, `repaired`, `dropped_...` by reason
    is_complete: bool = False  # the end marker was there

    @property
    def flags(self) -> tuple[str, ...]:
        """What is counted, each as often as it happened."""
        named = Counter({f"records_{name}": n for name, n in self.counts.items()})
        return (*sorted(named.elements()), *(() if self.is_complete else ("no_end_marker",)))


def dropped(counts: Counter[str]) -> int:
    """Return how many records were dropped, for whatever reason."""
    return sum(n for name, n in counts.items() if name.startswith("dropped"))


def has_failed(counts: Counter[str]) -> bool:
    """Tell whether more than half of what was seen had to be dropped: such a passage counts as failed."""
    return dropped(counts) > 0.5 * counts["seen"]


def split_records(reply: str) -> Records:
    """Split a reply into records and clean their fields; text between records is passed over."""
    text = strip_markup(strip_thinking(reply))
    found = Records(is_complete=bool(_END.search(text)))
    for piece in _pieces(_END.sub("##", text), found.counts):
        is_lines = "<|#|>" in piece
        body = piece if is_lines else _body(piece, found.counts)
        fields = [_clean(part) for part in re.split(r"<\|#\|>" if is_lines else r"<\s*\|\s*>", body)]
        tag = fields[0].strip("\"'`()[]<>{}*-• ").casefold()
        if len(fields) < 2 or tag in _IGNORED:
            continue
        found.counts["seen"] += 1
        if tag in _TAGS:
            found.rows.append((_TAGS[tag], fields[1:], is_lines))
        else:
            found.counts["dropped_tag"] += 1
    return found


def _pieces(text: str, counts: Counter[str]) -> Iterator[str]:
    """Yield what may be a record each: lines of format B, else what stands between separators."""
    if "<|#|>" in text:
        text, mended = _TORN_SEPARATOR.subn("<|#|>", text)
        counts["repaired"] += mended
    for piece in _BORDER.split(text):
        for line in piece.splitlines() if "<|#|>" in piece else [piece]:
            if "<|#|>" in line or re.search(r"<\s*\|\s*>", line):
                yield line


def _body(piece: str, counts: Counter[str]) -> str:
    """Return what stands in parentheses; a record without them is taken as it is, mended."""
    start = _OPENING.search(piece)
    body = in_parentheses(piece[start.start() :]) if start else None
    if body is not None:
        return body
    counts["repaired"] += 1
    return piece.strip().strip("()") if not start else piece[start.start() + 1 :]


def _clean(text: str) -> str:
    """Return one field: no entities of HTML, no control characters, no quotes around it, single spaces."""
    text = " ".join(_CONTROL.sub(" ", html.unescape(text.strip())).split())
    for opening, closing in _QUOTES:
        inner = text[1:-1]
        if len(text) > 1 and text[0] == opening and text[-1] == closing and opening not in inner:
            return inner.strip()
    return text


def clean_name(text: str) -> str:
    """Return a name of at most 256 characters and 512 bytes."""
    return text[:MAX_CHARACTERS].encode("utf-8")[:MAX_BYTES].decode("utf-8", "ignore").strip()


def clean_type(text: str) -> str | None:
    """Return the first of several types in lower case without spaces; None where it cannot be one."""
    first = next((part for part in (p.strip() for p in text.split(",")) if part), "")
    kind = "".join(first.lower().split())
    return None if _BAD_TYPE & set(kind) else kind


def number(text: str, low: float, high: float) -> float | None:
    """Return a finite number, cut to a range; None where the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return min(max(value, low), high) if math.isfinite(value) else None


def read_entity(fields: list[str], counts: Counter[str]) -> EntityRecord | None:
    """Read name, type and description; None, and a reason in `counts`, where it cannot be used."""
    if len(fields) != 3:
        counts["dropped_fields"] += 1
        return None
    name, kind, description = clean_name(fields[0]), clean_type(fields[1]), fields[2]
    if kind is None:
        counts["dropped_type"] += 1
    elif not (name and description):
        counts["dropped_empty"] += 1
    else:
        return EntityRecord(name, kind, description)
    return None


def read_relation(fields: list[str], is_lines: bool, counts: Counter[str]) -> RelationRecord | None:
    """Read a relation of format A (with or without keywords) or B; None, and a reason, where it cannot be used."""
    strength, keywords = 1.0, ""
    if is_lines:
        if len(fields) == 5 and (given := number(fields[4], 0.0, MAX_STRENGTH)) is not None:
            counts["repaired"] += 1
            fields, strength = fields[:4], given
        head, tail, keywords, text = fields if len(fields) == 4 else ("", "", "", "")
    else:
        last = number(fields[-1], 0.0, MAX_STRENGTH)
        head, tail, text = fields[:3] if len(fields) in (4, 5) else ("", "", "")
        if len(fields) == 5:
            keywords, strength = fields[3], 1.0 if last is None else last
        elif last is None and len(fields) == 4:
            keywords = fields[3]
        elif last is not None:
            strength = last
    head, tail = clean_name(head), clean_name(tail)
    if len(fields) != 4 and (is_lines or len(fields) != 5):
        counts["dropped_fields"] += 1
    elif not (head and tail and text):
        counts["dropped_empty"] += 1
    elif head.casefold() == tail.casefold():
        counts["dropped_loop"] += 1
    else:
        return RelationRecord(head, tail, text, split_keywords(keywords), strength)
    return None


def split_keywords(text: str) -> tuple[str, ...]:
    """Return distinct keywords, in order."""
    parts = (part.strip(" \"'.") for part in re.split(r"[,;，、]", text))
    return tuple(dict.fromkeys(part for part in parts if part))


def longest(records: Iterable[EntityRecord]) -> tuple[EntityRecord, ...]:
    """Return one record per name in order of first mention: that with the longest description, the first of equals."""
    kept: dict[str, EntityRecord] = {}
    for record in records:
        old = kept.get(record.name)
        if old is None or len(record.description) > len(old.description):
            kept[record.name] = record
    return tuple(kept.values())


_FORMAT = re.compile(r"<\|(?:(?:COMPLETE|#)\|)?>")  # of records; no chat template has these
MAX_HISTORY = 20_480  # tokens beyond which nothing more is asked for (LightRAG)


@dataclass
class TriplesConfig(PromptedConfig):
    """Settings of prompted extraction."""

    max_tokens: int = 4096


class Conversation:
    """The extraction of one passage and the turns that ask for more.

    With gleaning g there are 1 call (g = 0), 2 (g = 1) or up to 2 g: after each turn but the last the model is asked
    whether anything is missing, and only `yes` goes on.
    """

    def __init__(self, backend: Backend, config: TriplesConfig, prompt: str) -> None:
        plain = TriplesConfig("", config.temperature, config.max_tokens, config.seed)
        brief = PromptedConfig("", config.temperature, 8, config.seed)
        # The records before a cut are whole, and what is missing is asked for; what is not "yes" alone is a no.
        self._first = Prompter("triples", backend, config, prompt, keeps_cut=True)
        self._more = Prompter("triples", backend, plain, "triples_more", keeps_cut=True)
        self._ask = Prompter("triples", backend, brief, "triples_ask", keeps_cut=True)
        self.prompters = (self._first, self._more, self._ask)

    async def __call__(
        self, task: TriplesTask, types: tuple[str, ...], session: Session, read: Callable[[str], Records]
    ) -> list[Records]:
        """Return the records of each reply; none where the first was malformed twice."""
        values = task_values(task, types)
        first = await self._first.ask(session, values, read)
        if first.value is None:
            return []
        replies = [first.value]
        turns = (*self._first.prompt.render(**values), _said(first.reply))
        for left in reversed(range(task.gleaning)):
            if sum(estimate_tokens(turn.content) for turn in turns) > MAX_HISTORY:
                session.flag("triples", "gleaning_skipped")
                break
            more = await self._more.ask(session, {}, lambda reply: _or_nothing(read, reply), turns)
            if more.value is None:
                break
            replies.append(more.value)
            turns = (*turns, *self._more.prompt.render(), _said(more.reply))
            if left and not (await self._ask.ask(session, {}, is_yes, turns)).value:
                break
        return replies


def task_values(task: TriplesTask, types: tuple[str, ...]) -> Mapping[str, str]:
    """Return what goes into an extraction prompt."""
    return {
        "types": inline(", ".join(task.types or types)),
        "language": inline(task.language),
        "passage": passage_element(task.passage, 1),
    }


def _said(reply: str) -> Message:
    """Return a reply as a turn of the conversation that goes on: it was written from the passage."""
    return Message("assistant", escaped_except(reply, _FORMAT))


def is_yes(reply: str) -> bool:
    """Tell whether a reply is the word yes and nothing else."""
    return re.sub(r"[\W_]", "", reply).casefold() == "yes"


def _or_nothing(read: Callable[[str], Records], reply: str) -> Records:
    """Return the records of a reply; a model that has nothing to add may say so in its own words."""
    try:
        return read(reply)
    except MalformedError:
        return Records(is_complete=True)
