"""Let a language model judge the answers of finished runs.

    python inference/judge.py configs/judge/scores.yaml runs=[RUN,RUN] llm.model=MODEL [key=value ...] [--json]
    python inference/judge.py configs/judge/pairwise.yaml runs=[RUN,RUN] repeats=3 ask.repeat_temperature=0.7

scores: six qualities from 0 to 10; three beside the golden answer make the A-Score, three beside the golden evidence
the E-Score; further runs are compared with the first. pairwise: the first run against each of the others, both answers
side by side in both orders, a winner in five dimensions. Settings: gnnrag/judge/config.py; sample.limit=100 judges so
many questions, judged=answer leaves the reasoning out, budget.max_cost=5 stops in time.

Judgements go to RUN/judgements/KIND (pairwise: of the second run): replies.jsonl, scores.jsonl, metrics.json. The same
command again continues. A reply that is malformed to the end is a missing value: it is left out and counted. The exit
code is 1 where none of a judgement's replies could be read.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from inference.start import start

if __name__ == "__main__":
    start("inference.judge")

import json
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from gnnrag.config import load_config
from gnnrag.judge.config import JudgeConfig
from gnnrag.judge.run import Told, judge
from inference.console import note, split_arguments
from inference.judgements import is_judged, remarks, tables


def main(arguments: Sequence[str]) -> int:
    """Judge; returns the exit code."""
    as_json = "--json" in arguments
    source, overrides = split_arguments([a for a in arguments if a != "--json"], ["--json"])
    config = load_config(JudgeConfig, source, overrides)
    bar: Any = None

    def on_start(what: str, calls: int) -> None:
        nonlocal bar
        on_end()
        bar = tqdm(total=calls, unit=" calls", desc=what[:60], file=sys.stderr, disable=None)

    def on_end() -> None:
        if bar is not None:
            bar.close()

    found = judge(config, Told(note, on_start, lambda: bar.update()))
    on_end()
    for report in found["judgements"]:
        for line in remarks(report):
            note(line)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        print("\n".join(tables(found)))
    return 0 if all(map(is_judged, found["judgements"])) else 1
