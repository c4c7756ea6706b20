"""A run in parts: which questions are whose, and merging them into the run that one process would have left.

Each lies in `shards/3-of-16/` of the whole run. Parts of several divisions may lie side by side and share questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gnnrag.common.files import child, lock_run
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.run.rundir import SHARDS, RunDir, check_same, log_rows, prediction_rows, trace_lines

MERGE = "merge"
NAMED = 10  # commands that an error spells out
T = TypeVar("T")
Row = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Shard:
    """One part of a division: every `count`-th question, beginning with the `number`-th (from 1)."""

    count: int
    number: int

    def of(self, rows: Sequence[T]) -> Sequence[T]:
        """Return this part of the rows, which may be none."""
        return rows[self.number - 1 :: self.count]

    @property
    def folder(self) -> str:
        """Name of its folder in the run."""
        return f"{SHARDS}/{self.number}-of-{self.count}"

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def read_shard(text: str | None) -> Shard | None:
    """Return the part that the setting `shard` names, None for none or `merge`. Raises ConfigError for other texts."""
    if text is None or text == MERGE:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            f"shard={text!r}: give NUMBER/COUNT with NUMBER from 1 to COUNT, such as shard=3/16 for the third of 16 "
            f"parts, or shard={MERGE} to put all parts together"
        )
    return Shard(int(match[2]), int(match[1]))


def refuse_shard(text: str | None, what: str) -> None:
    """Raise ConfigError where `what`, which answers all of its questions in one process, is given a part."""
    if text is not None:
        raise ConfigError(f"shard={text!r} is a setting of gnnrag evaluate; {what} answers all questions itself")


def parts_of(run: Path) -> dict[Shard, Path]:
    """Return the folders of a run's parts, in the order of divisions and numbers."""
    found = {}
    for name in sorted(path.name for path in child(run, SHARDS).glob("*-of-*")):
        match = re.fullmatch(r"([0-9]{1,9})-of-([0-9]{1,9})", name)
        if (
            match
            and 1 <= int(match[1]) <= int(match[2])
            and (folder := child(run / SHARDS, name) / "meta.json").is_file()
        ):
            found[Shard(int(match[2]), int(match[1]))] = folder.parent
    return dict(sorted(found.items()))


def lock_parts(run: Path) -> ExitStack:
    """Return a stack that holds the locks of all parts. Raises GnnragError where one is being written."""
    with ExitStack() as held:
        for folder in parts_of(run).values():
            held.enter_context(lock_run(folder, "run"))
        return held.pop_all()


def check_siblings(run: Path, decisive: Row, inputs: Row) -> None:
    """Refuse to begin a part of a run whose other parts were made with other settings or inputs (`check_same`)."""
    for folder in (run, *parts_of(run).values()):
        check_same(folder, decisive, inputs)


def take_parts(run: RunDir, order: Sequence[str], must_be_whole: bool) -> None:
    """Merge the rows of all parts, if any, into the whole run `run`; doing it again changes nothing.

    Rows end up in the order of the question ids in `order`; the log gains those of the parts, with the part's name in
    `part`. Rows taken from a part before give way to what it holds now; rows of a part that is gone stay; rows that the
    run answered itself count like a part's. An answer replaces a failure; of two failures the first stays.

    Nothing is changed where it raises: ConfigError where a part was made with other settings or inputs; GnnragError
    where two parts contradict each other, one is being written, or (`must_be_whole`) questions are missing.
    """
    parts = parts_of(run.path)
    if not parts and not must_be_whole:
        return
    with lock_parts(run.path):
        for folder in parts.values():
            check_same(folder, run.decisive, run.inputs)
        sources = [_own(run, parts), *(_read(folder, shard.folder) for shard, folder in parts.items())]
        chosen = _choose(sources, order)
        if must_be_whole:
            _refuse_missing(run.path, order, chosen, parts)
        run.replace(
            [source.rows[id_] for id_, source in chosen.items()],
            (source.traces[id_] for id_, source in chosen.items() if id_ in source.traces),
            list(_logs(sources, chosen)),
        )
        counts = Counter(source.name for source in chosen.values() if source.name)
        run.note(parts={source.name: counts[source.name] for source in sources if source.name})


@dataclass(frozen=True)
class _Source:
    """Rows of one part, or those that the whole run holds of its own: `name` is empty."""

    name: str
    folder: Path
    rows: Mapping[str, Row]
    traces: Mapping[str, bytes]
    log: Sequence[Row]


def _read(folder: Path, name: str) -> _Source:
    rows = {row["question_id"]: row for row in prediction_rows(folder)}
    return _Source(name, folder, rows, trace_lines(folder), log_rows(folder))


def _own(run: RunDir, parts: Mapping[Shard, Path]) -> _Source:
    """Return what the run holds that no part, of those that are there, has given it before."""
    found, names = _read(run.path, ""), {shard.folder for shard in parts}
    log = [row for row in found.log if row.get("part") not in names]
    asked = {row["id"] for row in found.log if row.get("event") == "question" and row.get("part") in names}
    given = asked - {row["id"] for row in log if row.get("event") == "question"}
    return _Source("", run.path, {k: row for k, row in found.rows.items() if k not in given}, found.traces, log)


def _choose(sources: Sequence[_Source], order: Sequence[str]) -> dict[str, _Source]:
    """Return where the row of each question is taken from; questions without a row are left out."""
    chosen: dict[str, _Source] = {}
    for id_ in order:
        for source in (source for source in sources if id_ in source.rows):
            first = chosen.setdefault(id_, source)
            one, two = (each.rows[id_] for each in (first, source))
            failed = [row["error"] is not None for row in (one, two)]
            if failed == [True, False]:
                chosen[id_] = source
            elif failed[1]:
                continue
            elif one != two or len({each.traces[id_] for each in (first, source) if id_ in each.traces}) > 1:
                raise GnnragError(
                    f"{first.folder} and {source.folder} hold different rows for question {id_!r}: one of them was "
                    "made by other code, or by a language model that replies differently each time; start one of "
                    "them over (run.fresh=true), or delete its folder"
                )
    return chosen


def _logs(sources: Sequence[_Source], chosen: Mapping[str, _Source]) -> Iterator[Row]:
    """Yield the rows of all logs; of each question only what was logged where its row comes from."""
    for source in sources:
        part = {"part": source.name} if source.name else {}
        for row in source.log:
            if row.get("event") != "question" or chosen.get(row["id"]) is source:
                yield {**row, **part}


def _refuse_missing(run: Path, order: Sequence[str], chosen: Mapping[str, Any], parts: Mapping[Shard, Path]) -> None:
    """Raise GnnragError naming the questions without a row, and the commands that answer them."""
    missing = [position for position, id_ in enumerate(order) if id_ not in chosen]
    if not missing:
        return
    divisions = Counter({count: 0 for count in sorted({shard.count for shard in parts}, reverse=True)})
    for shard in parts:
        divisions[shard.count] += sum(id_ in chosen for id_ in shard.of(order))
    if not divisions:
        raise GnnragError(f"{run} has no parts to merge, and {len(missing)} questions without a row; start them first")
    count = divisions.most_common(1)[0][0]
    wanted: dict[str, list[str]] = {}
    for position in missing:
        wanted.setdefault(str(Shard(count, position % count + 1)), []).append(order[position])
    named = [f"shard={name} ({len(ids)}, such as {ids[0]!r})" for name, ids in list(wanted.items())[:NAMED]]
    more = f" and {len(wanted) - NAMED} more" if len(wanted) > NAMED else ""
    raise GnnragError(
        f"{run}: {len(missing)} of {len(order)} questions have no row in any part; run the same command with "
        f"{', '.join(named)}{more}, then merge again; without shard it answers them itself"
    )
