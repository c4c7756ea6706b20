"""Compare what runs asked after the question with the gold sub-questions of the set (musique's decomposition).

    gnnrag match-thoughts RUN [RUN ...] data.path=../shared/data/musique

Precision and recall are of token F1, with the nearest sub-question or query. Means over the questions with a
decomposition, 95% bootstrap intervals by question behind them. The query that is the question itself does not count;
one asked twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gnnrag.cli.tables import plain_table
from gnnrag.common.files import open_regular
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import DataError, GnnragError
from gnnrag.metrics.statistics import bootstrap_interval, with_interval
from gnnrag.metrics.sub_questions import gold_sub_questions, match

SHOWN = ("precision", "recall", "f1", "asked", "gold", "same_number")


def main(arguments: Sequence[str]) -> int:
    """Compare; returns the exit code."""
    runs = [Path(a) for a in arguments if "=" not in a]
    folder = next((a.partition("=")[2] for a in arguments if a.startswith("data.path=")), "")
    if not runs or not folder or len(arguments) != len(runs) + 1:
        raise GnnragError("give at least one run, and data.path=FOLDER of their set")
    gold = {q.id: found for q in load_dataset(folder, "dev").questions if (found := gold_sub_questions(q))}
    if not gold:
        raise DataError(folder, "no question has a decomposition")
    rows = []
    for run in runs:
        asked = asked_by(run)
        scores = [match(asked[id_], gold[id_]) for id_ in asked if id_ in gold]
        if not scores:
            raise DataError(run, "answered no question that has a decomposition")
        rows.append((run.name, str(len(scores)), *(_mean([s[name] for s in scores]) for name in SHOWN)))
    print(plain_table(("run", "questions", *SHOWN), rows, "thoughts beside gold sub-questions"))
    return 0


def asked_by(run: Path) -> dict[str, list[str]]:
    """Return the queries of each question of a run after its round 0, by id. DataError: the run has no traces."""
    path, found = run / "traces.jsonl", dict[str, list[str]]()
    try:
        with open_regular(path) as lines:
            for line in lines:
                row = json.loads(line)
                sent = (e["text"] for e in row["events"] if e.get("event") == "query" and e.get("round", 0) > 0)
                found[row["question_id"]] = list(dict.fromkeys(sent))
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror}); give the folder of a run") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(path, f"is no trace of a run: {error!r}") from error
    return found


def _mean(values: Sequence[float]) -> str:
    found = bootstrap_interval(values)
    return with_interval(found.mean, (found.low, found.high))
