"""Make the rows that a thought generator is trained on, from questions that come with sub-questions.

    gnnrag sub-question-rows out=traces/sub-questions/thoughts.jsonl \
        sets.2wiki-train.path=../shared/data/2wiki-train sets.2wiki-train.split=train

Each hop gives a row: the passages of the hops before it, and what to ask next. A sub-question that states what it asks
for, or repeats another, gives none. Settings: gnnrag/training/sub_questions.py. Then:

    accelerate launch training/train_thoughts.py configs/train/thoughts_smollm.yaml
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gnnrag.cli.console import split_arguments
from gnnrag.common.files import write_jsonl
from gnnrag.config import load_config
from gnnrag.errors import DataError
from gnnrag.training.rows import counted_parts, plain_rows
from gnnrag.training.sub_questions import SubQuestionsConfig, check_sub_questions, sub_question_rows


def main(arguments: Sequence[str]) -> int:
    """Make rows; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(SubQuestionsConfig, source, overrides)
    check_sub_questions(config)
    dropped: Counter[str] = Counter()
    rows = list(sub_question_rows(config, dropped))
    if not rows:
        raise DataError(", ".join(config.sets), "no question has sub-questions, one for each of its evidence triples")
    path = Path(config.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(path, plain_rows(rows))
    for part, count in counted_parts(rows).items():
        print(f"{part}: {count['rows']} rows of {count['questions']} questions")
    for reason, left_out in sorted(dropped.items()):
        print(f"left out, {reason}: {left_out}")
    print(path)
    return 0
