"""From text back to triples: how much of a knowledge base the offline extractor reads out of its articles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnrag.config import ExtractConfig
from gnnrag.datasets.articles import Part, Triple, parts_of
from gnnrag.datasets.canonical import load_passages
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.datasets.kb import FILE, read_triples
from gnnrag.datasets.textualised import MARKED, NODES, read_nodes
from gnnrag.errors import DataError
from gnnrag.extract.base import Extraction
from gnnrag.extract.offline import OfflineExtractor
from gnnrag.text.analyse import RULES, analyse
from gnnrag.textualise.templates import relations_said
from gnnrag.textualise.writing import MarkupError, check_marked, read_marked
from gnnrag.types import Passage


def round_trip(parts: Sequence[Part], passages: Sequence[Passage], language: str = RULES) -> dict[str, Any]:
    """Extract triples from articles (without markup), and hold them against those that each part states.

    Relations of the offline extractor are sentences. A triple is recovered where one joins its ends, spelt exactly, and
    says its relation in its direction and no other (`relations_said`); `both_ends` where the ends are joined at all.

    Returns `stated`, `recovered`, `both_ends` by occurrence; `triples`, `triples_recovered`: distinct ones; `read`,
    `false`: relations that were read, and those not stated; `by_relation`: the first three by relation and side.
    """
    extractions = OfflineExtractor(ExtractConfig()).extract(passages, analyse(passages, language))
    counts: Counter[str] = Counter()
    sides: dict[str, Counter[str]] = {}
    stated: set[Triple] = set()
    recovered: set[Triple] = set()
    for part, extraction in zip(parts, extractions, strict=True):
        assert extraction is not None
        read, joined = read_back(part.name, extraction)
        counts["read"] += len(read)
        counts["false"] += len(read - set(part.triples))
        for triple in part.triples:
            head, relation, tail = triple
            row = sides.setdefault(f"{relation}, told of its {'head' if head == part.name else 'tail'}", Counter())
            row["stated"] += 1
            row["recovered"] += triple in read
            row["both_ends"] += (tail if head == part.name else head) in joined
        stated |= set(part.triples)
        recovered |= read & set(part.triples)
    for name in ("stated", "recovered", "both_ends"):
        counts[name] = sum(row[name] for row in sides.values())
    distinct = {"triples": len(stated), "triples_recovered": len(recovered)}
    return {**dict(counts), **distinct, "by_relation": {name: dict(row) for name, row in sorted(sides.items())}}


def read_back(topic: str, extraction: Extraction) -> tuple[set[Triple], set[str]]:
    """Return the triples that the sentences of an extraction say, and all that it joins with the topic."""
    read: set[Triple] = set()
    joined: set[str] = set()
    for head, sentence, tail in extraction.triples:
        if head != topic:
            continue
        joined.add(tail)
        said = relations_said(sentence, topic, tail)
        if len(said) == 1:
            relation, forwards = said.pop()
            read.add((topic, relation, tail) if forwards else (tail, relation, topic))
    return read, joined


def check_folder(folder: Path, language: str = RULES) -> dict[str, Any]:
    """Check a folder of `textualise` from its files alone. Raises DataError where a file or its markup is broken.

    Returns `round_trip`'s figures with `articles`, and `uncovered`: how many leave a neighbour out.
    """
    nodes = read_nodes(folder / NODES)
    parts = {part.id: part for part in parts_of(read_triples(folder / FILE), {row.entity for row in nodes.values()})}
    passages = load_passages(folder / "corpus.jsonl")
    marked = {row["id"]: row["text"] for _, row in read_jsonl(folder / MARKED)}
    uncovered = 0
    for passage in passages:
        try:
            part = parts[passage.id]
            uncovered += bool(check_marked(marked[passage.id], part.name, part.neighbours))
            if read_marked(marked[passage.id])[0] != passage.text:
                raise MarkupError("is not the corpus's text when its markup is stripped")
        except (MarkupError, KeyError) as error:
            raise DataError(folder / MARKED, f"article {passage.id!r}: {error}") from error
    report = round_trip([parts[p.id] for p in passages], passages, language)
    return report | {"articles": len(passages), "uncovered": uncovered}
