"""Make multi-hop questions from paths of the knowledge graph of an index.

    gnnrag make-questions configs/questions/metaqa.yaml make.out=data/made/metaqa-3hop
    gnnrag make-questions configs/questions/musique.yaml make.out=data/made/musique make.hops=2
    gnnrag make-questions CONFIG make.out=DIR make.method=prompted llm=openai llm.model=MODEL

A path E1, E2, ... is simple, has no shortcuts and goes through no hubs; no two end in the same entity. Of each, five
questions name E1 and ask for the last entity: nested descriptions made by rules (template), or written by a language
model and checked (prompted). make.necessity=true leaves out what the reader answers from passages of E1 alone.
make.out holds questions.generated.jsonl (use it with data.questions=FILE on the same data), SOURCE.json and
paths.jsonl; the same command again continues an interrupted run. Settings: gnnrag/questions/__init__.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gnnrag.cli.console import IndexProgress, note, split_arguments, tell
from gnnrag.config import load_config
from gnnrag.metrics.replies import WARN, of_roles, remarks
from gnnrag.questions import SPLIT, MakeQuestionsConfig, Observer, check_questions, make_questions

SHOWN = 5


def main(arguments: Sequence[str]) -> int:
    """Make questions; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(MakeQuestionsConfig, source, overrides)
    check_questions(config.make)
    with IndexProgress() as on_index:
        about = make_questions(config, Observer(on_index, on_note=note))
    file = Path(config.make.out) / f"questions.{SPLIT}.jsonl"
    with file.open(encoding="utf-8") as lines:
        for line, _ in zip(lines, range(SHOWN * config.make.per_path), strict=False):
            row = json.loads(line)
            if row["id"].endswith("-1"):
                print(f"{row['question']}\n    {' > '.join(row['path'])}")
    tell(remarks(of_roles([about["usage"]["roles"]]), WARN, None))
    found, asked = about["paths"], config.make.paths
    print(f"{about['questions']} questions of {found} paths" + (f"; {asked} were asked for" if found < asked else ""))
    print(file)
    return 0
