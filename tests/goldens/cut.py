"""Write the subset of the goldens that lives here from all of them: `python -m tests.goldens.cut`.

Graphs stay whole, as every case reads them; of the cases some stay, spread over all.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.goldens.reading import HERE, WHOLE

# File: lists of cases in it, and how many stay; lists that are not named stay whole.
JSON: dict[str, dict[str, int]] = {
    "metrics.json": {},
    "lightrag_polling.json": {},
    "pathrag.json": {"entity_side_passages": 3, "paths": 10},
    "hypergraphrag.json": {"entity_side_passages": 3},
    "hipporag1.json": {"cases": 3},
    "hipporag2.json": {"cases": 3},
    "mgranrag_graph.json": {},
    "minirag.json": {"cases": 4},
    "graphsearch_parsers.json": {},
    "linearrag.json": {"cases": 4},
}
FRESH: dict[str, dict[str, int]] = {
    "agents_loops": {"search_r1": 80, "r1_searcher": 60},
    "gfm_fresh": {"cases": 4},
    "graphsearch_flow": {},
    "graphsearch_parsers_fresh": {},
    "hipporag2_fresh": {"cases": 4},
    "lightrag_context_l157": {},  # those of one graph
    "mgranrag_fresh": {"cases": 3},
    "msgraphrag": {"clusters": 8, "local": 20, "reduce": 20, "global": 0, "dynamic": 0},
    "raptor_clusters": {"cases": 0},  # slow, and needs the extra `raptor`: read where all cases are
    "raptor_retrieval": {},
    "raptor_tree": {},
}
LINES: dict[str, dict[str, int]] = {
    "gfm.jsonl.gz": {"models": 8, "rankers": 2},
    "mgranrag_official.jsonl.gz": {"question_rounds": 1, "seed_subtraction": 40},
}


def spread(rows: list[Any], count: int) -> list[Any]:
    """Return some of the rows, the first and the last among them."""
    if len(rows) <= count:
        return rows
    places = {round(i * (len(rows) - 1) / max(count - 1, 1)) for i in range(count)}
    return [row for place, row in enumerate(rows) if place in places]


def write(path: Path, lines: list[Any]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    """Write `data/`."""
    HERE.mkdir(exist_ok=True)
    for name, kept in JSON.items():
        held = json.loads((WHOLE / name).read_text("utf-8"))
        held.pop("project_before", None)
        if "sentences" in held and name != "linearrag.json":  # no test reads them, and they are the text of a data set
            held["sentences"] = [""] * len(held["sentences"])
        write(HERE / f"{name}.gz", [held | {part: spread(held[part], count) for part, count in kept.items()}])
    for name, kept in FRESH.items():
        with gzip.open(WHOLE / f"{name}.json.gz", "rt", encoding="utf-8") as rows:
            held = json.load(rows)
        for part, cases in held.items():
            if isinstance(cases, list):
                chosen = (
                    [case for case in cases if case.get("seed", 0) == cases[0]["seed"]] if "light" in name else cases
                )
                chosen = spread(chosen, kept.get(part, 10**9)) if kept.get(part) != 0 else []
                held[part] = [{k: v for k, v in case.items() if not k.startswith("ours")} for case in chosen]
        write(HERE / f"{name}.json.gz", [held])
    for name, kept in LINES.items():
        with gzip.open(WHOLE / name, "rt", encoding="utf-8") as rows:
            head, *cases = map(json.loads, rows)
        kinds = dict.fromkeys(case["kind"] for case in cases)
        chosen = {kind: [case for case in cases if case["kind"] == kind] for kind in kinds}
        write(HERE / name, [head, *(row for kind in kinds for row in spread(chosen[kind], kept.get(kind, 10**9)))])


if __name__ == "__main__":
    main()
