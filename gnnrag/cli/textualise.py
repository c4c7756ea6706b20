"""Turn a knowledge base (a folder with kb.txt, such as MetaQA) into a text corpus with questions.

    gnnrag textualise configs/textualise/metaqa.yaml out=runs/metaqa-text
    gnnrag textualise configs/textualise/metaqa.yaml out=DIR sample.entities=2000 sample.questions=300
    gnnrag textualise configs/textualise/metaqa.yaml out=DIR write=prompted llm.model=gpt-4o-mini

OUT gets corpus.jsonl (one article for each entity, cut at 25 neighbours), nodes.jsonl (which entities each passage is
about and mentions), entities.jsonl, relations.jsonl, marked.jsonl (the articles with their markup), kb.txt, questions,
and SOURCE.json. `write=template` needs no model; `write=prompted` asks one, checks that every neighbour is in its
article, and asks again. The same command goes on where it stopped. Settings: gnnrag/textualise/prompted.py.

    gnnrag textualise check DIR     markup, coverage, and what the offline extractor reads back of a corpus

Index and search the corpus: configs/evaluate/metaqa_text.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gnnrag.cli.console import note, split_arguments
from gnnrag.cli.tables import plain_table
from gnnrag.config import load_config
from gnnrag.datasets.kb import FILE as KB
from gnnrag.datasets.fetch import advice
from gnnrag.datasets.textualised import MARKED, NODES
from gnnrag.errors import GnnragError
from gnnrag.textualise import check_folder, textualise
from gnnrag.textualise.prompted import TextualiseConfig

USAGE = "gnnrag textualise configs/textualise/metaqa.yaml"


class StageProgress:
    """A bar for each stage, on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Go on by `done`."""
        if stage != self._stage:
            self.close()
            self._stage = stage
            self._bar = tqdm(total=total, desc=stage, unit="", file=sys.stderr, delay=1, disable=None)
        self._bar.update(done)

    def close(self) -> None:
        """Close the bar that is open, if any."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._stage = None, ""


def main(arguments: Sequence[str]) -> int:
    """Convert, or check; returns the exit code."""
    if arguments and arguments[0] == "check":
        return check(arguments[1:])
    source, overrides = split_arguments(arguments)
    long = [f"write.method={item[6:]}" if item.startswith("write=") else item for item in overrides]
    config = load_config(TextualiseConfig, source, long)
    if not (Path(config.path) / KB).is_file():
        fix = advice(Path(config.path)) or f"path=FOLDER says where one is. {advice(Path('metaqa'))}"
        raise GnnragError(f"path={config.path}: holds no {KB}; {fix} (data/README.md)")
    progress = StageProgress()
    try:
        path, made = textualise(config, progress, note)
    finally:
        progress.close()
    counts = made["counts"]
    rows = [(name.replace("_", " "), f"{counts[name]:,}") for name in ("entities", "articles", "triples")]
    rows += [(f"questions {name}", f"{row['kept']:,} of {row['of']:,}") for name, row in counts["questions"].items()]
    rows += [(f"flag {name}", f"{count:,}") for name, count in counts["flags"].items()]
    rows += [(f"{stage}: {what}", f"{n:,}") for stage, row in made["usage"].items() for what, n in row.items()]
    print(plain_table(("what", "number"), rows, "the text corpus"))
    print(path)
    return 0


def check(arguments: Sequence[str]) -> int:
    """Print what `check_folder` finds; exit code 1 where an article leaves a neighbour out."""
    if len(arguments) != 1:
        raise GnnragError("usage: gnnrag textualise check DIR")
    if lacking := [name for name in (NODES, MARKED, KB) if not Path(arguments[0], name).is_file()]:
        what = f"is no folder that textualise.py wrote: it lacks {', '.join(lacking)}"
        raise GnnragError(f"{arguments[0]} {what}; write one with: {USAGE} out={arguments[0]}-text")
    report = check_folder(Path(arguments[0]))
    rows = []
    for name, row in {**report["by_relation"], "all": report}.items():
        shares = (f"{row[key] / row['stated']:.4f}" if row["stated"] else "-" for key in ("recovered", "both_ends"))
        rows.append((name, f"{row['stated']:,}", *shares))
    print(plain_table(("relation", "stated", "read back", "both ends joined"), rows, "round trip"))
    print(f"{report['articles']:,} articles, markup valid; {report['uncovered']} leave a neighbour out")
    recovered = f"{report['triples_recovered']:,} of {report['triples']:,}"
    print(f"distinct triples read back: {recovered}; false: {report['false']}")
    return 1 if report["uncovered"] else 0
