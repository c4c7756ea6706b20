"""Where the gold passages of a run got lost: never retrieved, retrieved too low, or displaced in the final ranking.

python tests/benchmarks/ceiling.py RUN_DIR QUESTIONS.jsonl [--index INDEX] [--show 5]

RUN_DIR holds the `predictions.jsonl` and `traces.jsonl` of one run, usually of roles=oracle: what the oracle misses,
the method's design caps. With an index, DotRAG's runs also tell which gold passages their accepted paths touch, and
how many lie within 0 to 3 links of where the search started, hubs not crossed: no path can touch the others.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from running import run

from gnnrag.index.index import Index

HOPS, HUB = 3, 500  # as in DotRAG's settings
LOST = ("never retrieved", "below rank 10 of every query", "in a query's first 10", "first of a query")


def main() -> None:
    """Print shares of gold passages, what became of those that were lost, and the same per number of hops."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("questions", type=Path, help="questions file of the canonical layout")
    parser.add_argument("--index", type=Path, help="index of the run, with a knowledge graph")
    parser.add_argument("--k", type=int, default=5, help="rank up to which a passage counts as found")
    parser.add_argument("--show", type=int, default=0, help="print so many lost passages")
    args = parser.parse_args()
    questions = {q["id"]: q for q in rows(args.questions)}
    rankings = {p["question_id"]: p["ranking"] for p in rows(args.run / "predictions.jsonl")}
    index = Index(args.index) if args.index else None
    near: Counter[int] = Counter()
    table: list[tuple[str, str, str, str, bool]] = []  # question, passage, hops, where it was, touched by a path
    recalls = []
    for trace in rows(args.run / "traces.jsonl"):
        question = questions[trace["question_id"]]
        ranking, gold = rankings[trace["question_id"]], question["gold"]
        if not gold:
            continue
        touched = path_passages(trace["events"], index) if index else set()
        near.update(distances(trace["events"], gold, index) if index else [])
        found = set(ranking[: args.k])
        recalls.append(len(found & set(gold)) / len(gold))
        for id_ in gold:
            where = "found" if id_ in found else fate(id_, trace["events"])
            table.append((question["question"], id_, f"{len(gold)} gold", where, id_ in touched))
    report(table, recalls, args.k, index is not None)
    if near:
        reached = ", ".join(f"{sum(near[d] for d in range(hops + 1))} within {hops}" for hops in range(HOPS + 1))
        print(f"links from the anchors: {reached}, of {len(table)}")
    for text, id_, _, where, _ in [row for row in table if row[3] != "found"][: args.show]:
        print(f"  {where}: {id_} of {text}")


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def fate(id_: str, events: Sequence[Mapping[str, Any]]) -> str:
    """Return where the queries had a passage at best; of passages alone, graph hits name none."""
    ranks = [
        event["ranking"]["ids"].index(id_) + 1
        for event in events
        if event["event"] == "query" and id_ in event["ranking"]["ids"]
    ]
    best = min(ranks, default=0)
    return LOST[0] if not best else LOST[3] if best == 1 else LOST[2] if best <= 10 else LOST[1]


def path_passages(events: Sequence[Mapping[str, Any]], index: Index) -> set[str]:
    """Return the ids of passages that hold an entity of an accepted path (DotRAG)."""
    graph = index.knowledge
    names = [name for event in events if event["event"] == "nodes" for name in event["path"]]
    return {index.ids[p] for name in names for p in graph.entity_passages[graph.position[name]].tolist()}


def distances(events: Sequence[Mapping[str, Any]], gold: Sequence[str], index: Index) -> list[int]:
    """Return, for each gold passage, the fewest links from an anchor to one of its entities; -1 beyond `HOPS`."""
    graph = index.knowledge
    front = {graph.position[name] for event in events if event["event"] == "dot" for name in event["anchors"]}
    steps = dict.fromkeys(sorted(front), 0)
    for hop in range(1, HOPS + 1):
        around = [graph.adjacency.neighbours_of(node).tolist() for node in sorted(front)]
        front = {n for nodes in around if len(nodes) <= HUB for n in nodes} - steps.keys()
        steps |= dict.fromkeys(sorted(front), hop)
    entities = (graph.passage_entities[index.position[id_]].tolist() for id_ in gold)
    return [min((steps[node] for node in nodes if node in steps), default=-1) for nodes in entities]


def report(table: Sequence[tuple[str, str, str, str, bool]], recalls: Sequence[float], k: int, paths: bool) -> None:
    """Print the counts, whole and per number of gold passages."""
    print(f"Recall@{k} {sum(recalls) / max(len(recalls), 1):.3f} over {len(recalls)} questions (traces hold 50 hits)")
    groups = {"all": list(table)} | {name: [r for r in table if r[2] == name] for name in sorted({r[2] for r in table})}
    for name, group in groups.items():
        counts = Counter(row[3] for row in group)
        lost = ", ".join(f"{counts[where]} {where}" for where in LOST if counts[where])
        line = f"{name:>7}: {len(group)} gold passages, {counts['found']} found; lost: {lost or 'none'}"
        print(f"{line}; {sum(row[4] for row in group)} touched by an accepted path" if paths else line)


if __name__ == "__main__":
    run(main, __doc__)
