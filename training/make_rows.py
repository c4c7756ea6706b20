"""Write rows that language models and verifiers train on, or compose questions of several hops, from data sets alone.

python training/make_rows.py reader out=traces/reader/rows.jsonl sets.squad.path=data/squad sets.squad.split=train
python training/make_rows.py thoughts out=traces/thoughts.jsonl sets.2wiki.path=data/2wiki-train sets.2wiki.split=train
python training/make_rows.py verifier out=traces/verifier.jsonl sets.wice.path=data/wice sets.wice.split=train
python training/make_rows.py questions out=runs/joined sets=[data/squad,data/2wiki-train]

reader: gold passages among others, or, `unanswerable` of the rows, only others. thoughts: a row for each step of
questions with sub-questions, decompositions or trajectories, the passages of the steps before it. verifier: claims with
verdicts. Settings: gnnrag/training/made_rows.py.

questions: the sets joined into one corpus, with questions of two and three hops composed of their single ones, as in
MuSiQue: a name in one gives way to another whose answer it is. The folder is a set like any other
(data.path=runs/joined data.split=train). Settings: gnnrag/training/composing.py.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.config import load_config
from gnnrag.errors import DataError, GnnragError
from gnnrag.io import write_jsonl
from gnnrag.training import made_rows
from gnnrag.training.composing import JoinConfig, join_sets
from gnnrag.training.rows import plain_rows

MAKERS: dict[str, tuple[type[Any], Callable[[Any, Counter[str]], Iterator[Any]]]] = {
    "reader": (made_rows.ReaderRowsConfig, made_rows.reader_rows),
    "thoughts": (made_rows.ThoughtsRowsConfig, made_rows.thoughts_rows),
    "verifier": (made_rows.MadeRowsConfig, made_rows.verifier_rows),
}


def main(kind: str, *settings: str) -> None:
    """Raises ConfigError for wrong settings, DataError where no row can be made."""
    if kind == "questions":
        joined = load_config(JoinConfig, None, settings)
        print(", ".join(f"{number} {name}" for name, number in join_sets(joined).items()))
        return
    schema, make = MAKERS[kind]
    config, dropped = load_config(schema, None, settings), Counter[str]()
    rows = list(make(config, dropped))
    if not rows:
        raise DataError(", ".join(config.sets), "no question has what the rows are made of; see this script's --help")
    Path(config.out).parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(Path(config.out), plain_rows(rows))
    for name, count in sorted(Counter(row.set for row in rows).items()):
        print(f"{name}: {count} rows")
    for reason, count in sorted(dropped.items()):
        print(f"left out, {reason}: {count}")


if __name__ == "__main__":
    if sys.argv[1:2] not in ([kind] for kind in (*MAKERS, "questions")):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (GnnragError, OSError) as error:
        sys.exit(f"error: {error}")
