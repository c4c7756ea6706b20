"""Files for other tools: TREC runs, BEIR folders, and the knowledge graph as a networkx graph or GraphML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import networkx as nx
import numpy as np

from gnnrag.datasets.base import Dataset
from gnnrag.index.index import Index
from gnnrag.io import write_atomic, write_jsonl
from gnnrag.types import Prediction, Question

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that XML 1.0 cannot hold


def write_trec(
    out: Path, predictions: Iterable[Prediction], questions: Iterable[Question], tag: str = "gnnrag"
) -> None:
    """Write `run.trec` (`query Q0 passage rank score tag`) and `qrels.trec` (`query 0 passage 1`) into a folder.

    Scores count down to 1, so that tools which sort by score see our order. A failed question has no line, which tools
    count as 0, as we do. White space and `%` in names are percent-encoded.
    """

    def field(text: str) -> str:
        return re.sub(r"[\s%]", lambda sign: quote(sign.group(), safe=""), text)

    lines = []
    for prediction in predictions:
        ids = [] if prediction.error is not None else list(dict.fromkeys(prediction.ranking))
        names = [f"{field(prediction.question_id)} Q0 {field(id_)}" for id_ in ids]
        lines += [f"{name} {rank} {len(ids) + 1 - rank} {field(tag)}\n" for rank, name in enumerate(names, start=1)]
    write_atomic(out / "run.trec", "".join(lines))
    rows = (f"{field(q.id)} 0 {field(gold)} 1\n" for q in questions for gold in dict.fromkeys(q.gold))
    write_atomic(out / "qrels.trec", "".join(rows))


def write_beir(out: Path, data: Dataset, split: str = "test") -> None:
    """Write `corpus.jsonl`, `queries.jsonl` (answers in `metadata`) and `qrels/SPLIT.tsv`."""
    write_jsonl(out / "corpus.jsonl", ({"_id": p.id, "title": p.title, "text": p.text} for p in data.passages))
    queries = ({"_id": q.id, "text": q.text, "metadata": {"answers": list(q.answers)}} for q in data.questions)
    write_jsonl(out / "queries.jsonl", queries)
    rows = [f"{q.id}\t{gold}\t1\n" for q in data.questions for gold in q.gold]
    write_atomic(out / "qrels" / f"{split}.tsv", "".join(["query-id\tcorpus-id\tscore\n", *rows]))


def to_networkx(index: Index) -> nx.MultiDiGraph:
    """Return entities as nodes, by name, and relations as edges from head to tail.

    A node has `type`, `description` and `passages`, an edge `label`, `text`, `weight` and `passages`; ids of passages
    stand one on a line. Raises ArtefactError where the index has no knowledge graph.
    """
    knowledge, graph = index.knowledge, nx.MultiDiGraph()
    names = [_NO_XML.sub("\ufffd", name) for name in knowledge.names]

    def attributes(rows: np.ndarray, **texts: str) -> dict[str, str]:
        texts["passages"] = "\n".join(index.ids[row] for row in rows)
        return {key: _NO_XML.sub("\ufffd", text) for key, text in texts.items()}

    for i, name in enumerate(names):
        passages = knowledge.entity_passages[i]
        graph.add_node(name, **attributes(passages, type=knowledge.types[i], description=knowledge.descriptions[i]))
    for i, (head, tail) in enumerate(knowledge.ends.tolist()):
        texts = attributes(knowledge.relation_passages[i], label=knowledge.labels[i], text=knowledge.texts[i])
        graph.add_edge(names[head], names[tail], weight=float(knowledge.weights[i]), **texts)
    return graph


def write_graphml(out: Path, index: Index) -> None:
    write_atomic(out, lambda file: nx.write_graphml(to_networkx(index), file))
