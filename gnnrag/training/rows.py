"""Training rows of the tuned roles, one a decision (data/README.md): format, duplicates, balance, split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import markdown, parse_json
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.session import normalised
from gnnrag.training.config import FoldConfig, draw, split_questions
from gnnrag.types import Passage


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Turn(_Part):
    """A turn of a chat."""

    role: str
    content: str


class ShownPassage(_Part):
    """A passage that a role saw."""

    id: str
    title: str
    text: str
    score: float | None = None  # of the pool, normalised
    cosine: float | None = None  # of its vector with the question's; None where the index has no vectors

    @property
    def passage(self) -> Passage:
        """The passage itself."""
        return Passage(self.id, self.title, self.text)


class Candidate(_Part):
    """A query that could have been asked, and what it would have brought."""

    text: str
    kind: str = ""  # `fast` or `slow`, or what made it
    gain: float = 0.0  # what the pool gains by it, see `gain`
    new: tuple[str, ...] = ()  # gold passages that it brings and the pool lacked


class _Row(_Part):
    id: str = Field(min_length=1)  # of the row, unique in its file
    set: str  # name of the data set
    question_id: str = Field(min_length=1)  # the question; all rows of one are on one side of any split
    question: str
    part: str = "train"  # `train`, `validation` or `report`; training may divide anew, by question
    teacher: str = ""  # who decided: `oracle`, `prompted:MODEL`, ...
    source: dict[str, Any] = {}  # method, retriever, round and whatever else tells where the row comes from
    passages: tuple[ShownPassage, ...]
    messages: tuple[Turn, ...] = ()  # the decision as a chat that ends with the teacher's reply; may be empty

    @model_validator(mode="after")
    def _ends_with_the_reply(self) -> _Row:
        if self.messages and (self.messages[-1].role != "assistant" or len(self.messages) < 2):
            raise ValueError("messages must end with the assistant's reply, after the turn that asks for it")
        if len({p.id for p in self.passages}) < len(self.passages):
            raise ValueError("a passage stands twice in passages")
        return self


class VerifierRow(_Row):
    """Which of the passages shown state or complete a link of the chain."""

    chain: str = ""  # the reasoning chain as text
    support: tuple[str, ...] = ()  # ids of the passages that the chain itself says it rests on (rules only)
    selected: tuple[str, ...] = ()  # ids that the teacher selected
    gold: tuple[str, ...] = ()  # ids of gold passages among those shown, where they are known

    @model_validator(mode="after")
    def _selects_what_was_shown(self) -> VerifierRow:
        if unknown := sorted(set(self.selected) - {p.id for p in self.passages}):
            raise ValueError(f"selected {unknown[0]!r} is not among the passages")
        return self


class ThoughtsRow(_Row):
    """The next two queries."""

    round: int = 1  # 1-based
    earlier: tuple[str, ...] = ()  # queries already sent, oldest first
    # fast, slow: the teacher's queries, where one of them helped; `gains` says what each brought
    fast: str | None = None
    slow: str | None = None
    gains: dict[str, float] = {}  # what the pool gained by each, by kind
    sufficient: bool = False  # the teacher said instead that nothing is missing
    # Ids of the pool's first passages before the decision (50), best first: what gains are measured against
    pool: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()  # ids of the question's gold passages, where they are known
    # Other queries with their gains: what preferences are trained from
    candidates: tuple[Candidate, ...] = ()

    @model_validator(mode="after")
    def _has_a_query(self) -> ThoughtsRow:
        if not (self.fast or self.slow or self.candidates or self.sufficient):
            raise ValueError("a row needs fast, slow or candidates, or sufficient")
        return self


class ReaderRow(_Row):
    """The answer to a question from the passages shown."""

    answers: tuple[str, ...] = ()  # accepted ones; empty: the passages do not hold it, and abstaining is right
    cited: tuple[str, ...] = ()  # ids of the passages that the answer rests on


RowT = TypeVar("RowT", bound=_Row)
KINDS: dict[str, type[VerifierRow] | type[ThoughtsRow]] = {
    "verifier": VerifierRow,
    "thoughts": ThoughtsRow,
}  # role to its rows, of those that runs record
_READ: dict[str, type[_Row]] = {**KINDS, "reader": ReaderRow}


def read_rows(path: str | Path, kind: type[RowT]) -> list[RowT]:
    """Read `verifier.jsonl` or `thoughts.jsonl`. Raises DataError: no file, or a bad row, naming its line and field."""
    path, rows, seen = Path(path), list[RowT](), dict[str, int]()
    for number, data in _objects(path):
        try:
            row = kind.model_validate(data)
        except ValidationError as error:
            if not rows and (other := next((role for role, one in _READ.items() if _fits(one, data)), None)):
                mine = next(role for role, one in _READ.items() if one is kind)
                problem = f"holds rows of the role {other}; those of {mine} are needed here, such as {mine}.jsonl"
                raise DataError(path, problem, number) from error
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the row"
            raise DataError(path, f"{where}: {first['msg']}", number) from error
        if row.id in seen:
            raise DataError(path, f"id {row.id!r} stands in line {seen[row.id]}, too", number)
        seen[row.id] = number
        rows.append(row)
    if not rows:
        raise DataError(path, "holds no rows")
    return rows


def _fits(kind: type[_Row], data: Mapping[str, Any]) -> bool:
    try:
        kind.model_validate(data)
    except ValidationError:
        return False
    return True


def plain_rows(rows: Iterable[_Row]) -> Iterator[dict[str, Any]]:
    """Yield rows as JSON data, empty fields left out; the part is always stated."""
    for row in rows:
        yield {**row.model_dump(mode="json", exclude_defaults=True), "part": row.part}


def _objects(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        with open_regular(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield number, parse_json(line)
                    except UnicodeDecodeError:
                        raise
                    except ValueError as error:
                        raise DataError(path, f"is no JSON: {error}", number) from error
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror}); gnnrag collect-traces writes it") from error
    except UnicodeDecodeError as error:
        raise DataError(path, f"is not UTF-8: {error}") from error


DEPTH = 50  # passages of a pool and of a ranking that count


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of one query."""

    value: float = 0.0  # sum over gold passages of what their reciprocal rank rises by, at least 0
    new: tuple[str, ...] = ()  # gold passages that it brought and the pool lacked, in their order of rank

    @property
    def helped(self) -> bool:
        """Whether it brought a missing gold passage or raised the rank of one."""
        return self.value > 0


def gold_ranks(ranking: Sequence[str], gold: Collection[str], depth: int = DEPTH) -> dict[str, int]:
    """Return the 1-based ranks of the gold passages among the first `depth` of a ranking, best first."""
    return {id_: rank for rank, id_ in enumerate(ranking[:depth], start=1) if id_ in gold}


def gain_of(ranks: dict[str, int], pool: Sequence[str], depth: int = DEPTH) -> Gain:
    """Return what a query gained over a pool."""
    before = gold_ranks(pool, ranks.keys(), depth)
    value = sum(max(0.0, 1.0 / rank - (1.0 / before[id_] if id_ in before else 0.0)) for id_, rank in ranks.items())
    return Gain(value, tuple(id_ for id_ in ranks if id_ not in before))


def gain(ranking: Sequence[str], pool: Sequence[str], gold: Collection[str], depth: int = DEPTH) -> Gain:
    """Return what a query with this ranking gained over a pool; see `gain_of`."""
    return gain_of(gold_ranks(ranking, gold, depth), pool, depth)


# ---------------------------------------------------------------------------------------------------------- filtering
@dataclass
class KeepConfig:
    """Which decisions become rows; each switch is counted in the data card."""

    helped: bool = True  # only those that helped: gold selected, or one of the queries gained (`gnnrag.training.rows`)
    precision: float = 0.5  # a verifier's choice helped if at least this share of what it selected is gold
    clean: bool = True  # without those whose reply failed, was malformed, or states the answer instead of asking
    stops: bool = False  # thoughts that say that nothing is missing
    unique: bool = True  # a decision that says the same of the same question and evidence only once
    idle_share: float | None = 0.2  # most rows of a file that select nothing, or whose queries gain nothing; null: any
    type_ratio: float | None = None  # a question type has at most so many times the mean number of rows of a type
    round_ratio: float | None = None  # the same for rounds


@dataclass
class TracesConfig:
    """Everything that turns a recorded run into rows. All but `candidates` can be changed without recording again."""

    out: str = ""  # folder that is written
    candidates: str | None = None  # bridges, or PACKAGE.MODULE:CLASS: makes further queries to label with their gains
    without: str | None = None  # a run without the teacher's decisions: answers that became right count as help
    mine: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers whose near misses become negatives
    mine_top: int = 5  # hits of each that are looked at
    negatives: int | None = (
        None  # most passages of a verifier row not selected, hardest first; null: all, as pair features need
    )
    chat_passages: int = 20  # most passages in the chat of a verifier row
    licence: str | None = None  # of the source; null: what gnnrag knows of the set
    keep: KeepConfig = field(default_factory=KeepConfig)
    folds: FoldConfig = field(default_factory=FoldConfig)


def check_traces(config: TracesConfig) -> None:
    """Raise ConfigError where a setting is none of those allowed."""
    if not config.out:
        raise ConfigError("out=DIR: give the folder that the rows are written to")
    if not 0 <= config.keep.precision <= 1:
        raise ConfigError(f"keep.precision={config.keep.precision}: must lie between 0 and 1")
    share = config.keep.idle_share
    if share is not None and not 0 <= share < 1:
        raise ConfigError(f"keep.idle_share={share}: must be at least 0 and below 1, or null")
    for name in ("type_ratio", "round_ratio"):
        if (ratio := getattr(config.keep, name)) is not None and ratio <= 0:
            raise ConfigError(f"keep.{name}={ratio}: must be positive, or null")
    for name, least in (("mine_top", 0), ("negatives", 0), ("chat_passages", 1)):
        if (value := getattr(config, name)) is not None and value < least:
            raise ConfigError(f"{name}={value}: must be at least {least}")


AnyRowT = TypeVar("AnyRowT", VerifierRow, ThoughtsRow)
Row = VerifierRow | ThoughtsRow


def parts_of(questions: Iterable[tuple[str, str]], folds: FoldConfig) -> dict[str, str]:
    """Return the part of each question, given as (id, text); one asked twice under two ids is on one side."""
    texts = dict(questions)
    split = split_questions(texts, folds, texts).plain()
    return {id_: name for name, ids in split.items() for id_ in ids}


def check_sides(rows: Iterable[Row]) -> None:
    """Raise GnnragError where rows of one question, by id within a set or by text, are in different parts."""
    seen: dict[tuple[str, ...], tuple[str, str]] = {}
    for row in rows:
        for key in (("id", row.set, row.question_id), ("text", normalised(row.question))):
            part, other = seen.setdefault(key, (row.part, row.id))
            if part != row.part:
                raise GnnragError(
                    f"question {row.question_id!r} of {row.set or 'no set'} is on two sides: row {other!r} is in part "
                    f"{part!r}, row {row.id!r} in {row.part!r}; collect both with the same folds.*, or mend `part`"
                )


def unique(rows: Iterable[AnyRowT]) -> list[AnyRowT]:
    """Return the first of all rows that say the same of the same question and evidence."""
    first: dict[Hashable, AnyRowT] = {}
    for row in rows:
        first.setdefault(_content(row), row)
    return list(first.values())


def _content(row: Row) -> Hashable:
    """Return what makes two rows the same: the question with the folded text of the decision.

    A verifier's decision is told by its chain, what it was shown and what it selected. Candidates count with what they
    gain: another retriever gains otherwise.
    """
    where = (row.set, row.question_id)
    if isinstance(row, VerifierRow):
        return (*where, normalised(row.chain), frozenset(p.id for p in row.passages), frozenset(row.selected))
    labels = frozenset((normalised(c.text), c.gain) for c in row.candidates)
    return (*where, normalised(row.fast or ""), normalised(row.slow or ""), row.sufficient, labels)


def is_idle(row: Row) -> bool:
    """Tell whether a row holds nothing positive: no passage selected, no query that gains anything."""
    if isinstance(row, VerifierRow):
        return not row.selected
    return not (row.fast or row.slow) and all(c.gain <= 0 for c in row.candidates)


def balanced(rows: Sequence[AnyRowT], keep: KeepConfig) -> tuple[list[AnyRowT], dict[str, int]]:
    """Leave out what there is too much of; which rows go is drawn by a hash of their ids.

    Returns:
        The rows in their order, and how many each switch dropped: `idle`, `type`, `round`.
    """
    dropped: dict[str, int] = {}
    kept = list(rows)
    if keep.idle_share is not None:
        busy = sum(not is_idle(row) for row in kept)
        most = int(keep.idle_share / (1 - keep.idle_share) * busy + 1e-9)
        kept, dropped["idle"] = _capped(kept, lambda row: "idle" if is_idle(row) else None, most)
    for name, ratio in (("type", keep.type_ratio), ("round", keep.round_ratio)):
        if ratio is not None and kept:
            groups = Counter(_said(name, row) for row in kept)
            most = max(1, int(ratio * len(kept) / len(groups)))
            kept, dropped[name] = _capped(kept, partial(_said, name), most)
    return kept, dropped


def _said(name: str, row: Row) -> str:
    return str(row.source.get(name, ""))


def _capped(rows: list[AnyRowT], group: Callable[[Any], str | None], most: int) -> tuple[list[AnyRowT], int]:
    """Keep at most `most` rows of each group, all rows of no group; returns them and how many went."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (name := group(row)) is not None:
            groups.setdefault(name, []).append(row.id)
    gone = {id_ for ids in groups.values() for id_ in sorted(ids, key=lambda i: (draw(i, "balance"), i))[most:]}
    return [row for row in rows if row.id not in gone], len(gone)


# ---------------------------------------------------------------------------------------------------- the data card
def counted_parts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Count rows and questions of each part."""
    counts = Counter(row.part for row in rows)
    questions = Counter(part for part, _ in {(row.part, (row.set, row.question_id)) for row in rows})
    return {part: {"rows": counts[part], "questions": questions[part]} for part in sorted(counts)}


def card(meta: Mapping[str, Any]) -> str:
    """Return the data card of a folder of rows, from what its `meta.json` holds."""
    lines = ["# Training rows of tuned roles", "", "Made by `gnnrag collect-traces`; one decision a line."]
    lines += ["", "## Who decided", "", "| role | teacher | prompts |", "|---|---|---|"]
    prompts = meta.get("prompts", {})
    for role, teachers in meta["teachers"].items():
        digests = ", ".join(f"`{name}` {value[:16]}" for name, value in prompts.get(role, {}).items())
        lines.append(f"| {role} | {markdown(', '.join(teachers))} | {markdown(digests or 'none')} |")
    lines += ["", "## What was recorded", ""]
    lines += [f"- {name}: {markdown(str(value))}" for name, value in meta.get("recording", {}).items()]
    lines += ["", "## What was kept", "", "| role | step | rows | share of the step before |", "|---|---|---:|---:|"]
    for role, counts in meta.get("counts", {}).items():
        before = None
        for step, count in counts.items():
            share = "" if not before else f"{count / before:.3f}"
            lines.append(f"| {role} | {step} | {count} | {share} |")
            before = count
    lines += ["", "## Parts", "", "No question is in two.", ""]
    lines += ["| file | part | rows | questions |", "|---|---|---:|---:|"]
    for role, parts in meta["parts"].items():
        lines += [f"| {role}.jsonl | {part} | {n['rows']} | {n['questions']} |" for part, n in parts.items()]
    lines += ["", "## Licence of the source", ""]
    lines += [f"- {markdown(name)}: {markdown(licence)}" for name, licence in meta["licences"].items()]
    lines += ["", "The passages stand in the rows: what the source's licence asks holds for these files.", ""]
    lines += ["## Loading", "", "```python", *_loading(meta["files"]), "```", ""]
    return "\n".join(lines)


def _loading(files: Mapping[str, str]) -> list[str]:
    kinds = {f"{role}.jsonl": kind.__name__ for role, kind in KINDS.items()}
    names = ", ".join(kinds[name] for name in files)
    reads = [f'{name.removesuffix(".jsonl")} = read_rows("{name}", {kinds[name]})' for name in files]
    return [f"from gnnrag.training.rows import {names}, read_rows", "", *reads]
