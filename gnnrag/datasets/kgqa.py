"""WebQSP and CWQ as RoG and GNN-RAG release them: each question has a graph of its own, which is its scope.

- RoG (Luo et al., ICLR 2024): rows of `id, question, answer, q_entity, a_entity, graph` in `<split>-*.parquet` (at
  Hugging Face below `data/`) or `<split>.jsonl`; `graph` is a list of [head, relation, tail].
- NSM (He et al., WSDM 2021), which GNN-RAG reads: `<split>.json` or `<split>_simple.json`, a JSON object on each line,
  with `id, question, entities, answers, subgraph`. Numbers in it are line numbers, from 0, of `entities.txt` and
  `relations.txt`. `entities_names.json`, if it is there, gives the names of Freebase's ids.

The corpus is the union of the graphs of all questions that are asked. A passage holds up to `MAX_FACTS` facts of one
head, each on a line `head → relation → tail`, for `index.extract.method=facts`. Its metadata `graph_id` is the id of
its question, whose filter `Question.scope` keeps the search in that graph; `Question.seeds` are its topic entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gnnrag.datasets.jsonl import read_json, read_jsonl, read_lines
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

Triple = tuple[str, str, str]  # head, relation, tail
GRAPH, ARROW, BACK = "graph_id", " → ", " ← "
MAX_FACTS = 25
ENTITIES, RELATIONS, NAMES = "entities.txt", "relations.txt", "entities_names.json"
SPLITS = ("train", "validation", "dev", "test")
_ROG = {"id", "question", "answer", "q_entity", "a_entity", "graph"}
_NSM = {"id", "question", "entities", "answers", "subgraph"}


def is_nsm(folder: Path) -> bool:
    return (folder / ENTITIES).is_file() and (folder / RELATIONS).is_file()


def is_release(folder: Path) -> bool:
    """Tell whether a folder holds a release of RoG or NSM: a file of a split, whose rows have the form's fields."""
    files = (file for split in SPLITS for file in _files(folder, split))
    try:
        _, row = next(_rows(next(files)))
    except (StopIteration, DataError, ValueError, OSError):  # no such file, or one of another kind
        return False
    return row.keys() >= (_NSM if is_nsm(folder) else _ROG)


def load(folder: Path, split: str, limit: int | None = None) -> list[tuple[Question, list[Triple]]]:
    """Return the questions of a split, or the first `limit`, each with its graph.

    DataError: no such split, or a broken row.
    """
    files = _files(folder, split) or (_files(folder, "validation") if split == "dev" else [])
    if not files:
        raise DataError(folder, f"split={split!r}: holds no {split}-*.parquet, {split}.jsonl or {split}[_simple].json")
    rows = _nsm(folder, files[0]) if is_nsm(folder) else _rog(files)
    return list(islice(rows, limit))


def _files(folder: Path, split: str) -> list[Path]:
    if is_nsm(folder):
        return [path for path in (folder / f"{split}.json", folder / f"{split}_simple.json") if path.is_file()]
    parquet = sorted(file for place in (folder, folder / "data") for file in place.glob(f"{split}[-.]*parquet"))
    return parquet or [path for path in (folder / f"{split}.jsonl",) if path.is_file()]


def _name(text: Any) -> str:
    """Return a name as a line of a passage can hold it."""
    return " ".join(str(text).replace("→", "->").split())


def _question(id_: Any, text: str, answers: Iterable[str], nodes: Iterable[str], seeds: Iterable[str]) -> Question:
    quoted = str(id_).replace("'", "''")
    asked, starts = list(dict.fromkeys(map(_name, nodes))), tuple(dict.fromkeys(map(_name, seeds)))
    distinct, scope = tuple(dict.fromkeys(answers)), f"{GRAPH} = '{quoted}'"
    return Question(str(id_), text, distinct, extra={"nodes": asked}, scope=scope, seeds=starts)


def _rog(files: list[Path]) -> Iterator[tuple[Question, list[Triple]]]:
    for file in files:
        for number, row in _rows(file):
            try:
                answers = row["answer"]
                question = _question(row["id"], row["question"], answers, row["a_entity"] or answers, row["q_entity"])
                graph = [(_name(head), _name(relation), _name(tail)) for head, relation, tail in row["graph"]]
            except (KeyError, TypeError, ValueError) as error:
                wanted = "id, question, answer, q_entity, a_entity and graph, a list of [head, relation, tail]"
                raise DataError(file, f"is no row of RoG, which needs {wanted} ({error!r})", number) from error
            yield question, graph


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix != ".parquet":
        return read_jsonl(path)
    from pyarrow import parquet  # of pylance; only this form needs it

    rows = (row for batch in parquet.ParquetFile(path).iter_batches(8) for row in batch.to_pylist())
    return enumerate(rows, start=1)


def _nsm(folder: Path, file: Path) -> Iterator[tuple[Question, list[Triple]]]:
    entities, relations = ([line for _, line in read_lines(folder / name)] for name in (ENTITIES, RELATIONS))
    names = read_json(folder / NAMES) if (folder / NAMES).is_file() else {}

    def entity(item: Any) -> str:
        item = item.get("kb_id", item["text"]) if isinstance(item, dict) else item
        item = entities[item] if isinstance(item, int) else str(item)
        return _name(names.get(item, item))

    def relation(item: Any) -> str:
        item = item["text"] if isinstance(item, dict) else item
        return _name(relations[item] if isinstance(item, int) else item)

    for number, row in read_jsonl(file):
        try:
            nodes = [entity(answer) for answer in row["answers"]]
            # Where the file gives no name, the answer is the Freebase id.
            answers = [answer.get("text") or node for answer, node in zip(row["answers"], nodes, strict=True)]
            question = _question(row["id"], row["question"], answers, nodes, map(entity, row["entities"]))
            graph = [(entity(h), relation(r), entity(t)) for h, r, t in row["subgraph"]["tuples"]]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            wanted = f"id, question, entities, answers and subgraph, whose numbers are line numbers of {ENTITIES}"
            raise DataError(file, f"is no row of NSM, which needs {wanted} ({error!r})", number) from error
        yield question, graph


def passages_of(question: Question, graph: Iterable[Triple]) -> Iterator[Passage]:
    """Yield the graph of a question as passages, heads by first appearance; their ids are `question/head#part`."""
    of_head: dict[str, list[str]] = {}
    for triple in dict.fromkeys(graph):
        if all(triple):
            of_head.setdefault(triple[0], []).append(ARROW.join(triple))
    for head, facts in of_head.items():
        for part, start in enumerate(range(0, len(facts), MAX_FACTS), start=1):
            text = "\n".join(facts[start : start + MAX_FACTS])
            yield Passage(f"{question.id}/{head}#{part}", head, text, metadata={GRAPH: question.id})


def facts_in(text: str) -> list[Triple]:
    """Return the triples in a passage's text; other lines are skipped."""
    rows = [tuple(line.split(ARROW)) for line in text.split("\n")]
    return [row for row in rows if len(row) == 3]  # type: ignore[misc]


def nodes_of(passage: Passage) -> tuple[str, ...]:
    """Return the entities that a passage names, its head first."""
    return tuple(dict.fromkeys(name for head, _, tail in facts_in(passage.text) for name in (head, tail)))
