"""What tables count without asking a question: the graph of a corpus, its questions, the tokens of an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import load_passages
from gnnrag.datasets.source import find_source
from gnnrag.evaluation import load_questions_for
from gnnrag.files import digest
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.index.plan import closure
from gnnrag.index.store import Store
from gnnrag.llm.base import estimate_tokens
from gnnrag.pipeline import chunking, data_source, index_path, index_settings, needed_stages

Counted = tuple[dict[str, Any], int, str]  # figures by key, questions among them, and what they were counted with


def count_hierarchy(config: EvaluateConfig, on_index: Progress = lambda stage, done, total: None) -> Counted:
    """Count nodes and edges of the contextual hierarchical graph (MGranRAG, AAAI 2026, Table 1).

    The graph has a folder of its own beside the index, named after the settings of its text: another analyser must not
    rebuild what hangs on the text of an index that is there.
    """
    data = load_passages(config.data.path, chunking(config.data))
    settings = index_settings(config)
    text = settings.text
    beside = index_path(config.index, data.name)
    path = beside.with_name(f"{beside.name}-{digest([text.language, text.phrase_rules, text.title_mode])[:8]}")
    build_index(path, data.passages, settings, ["hierarchy"], data_source(config.data), on_index)
    index = Index(path)
    graph = index.hierarchy
    of_passages = int((graph.edges[:, 0] < graph.first_sentence).sum())
    counts = {
        "passages": graph.num_passages,
        "sentences": len(graph.sentences),
        "phrases": len(graph.phrases),
        "passage_sentence_edges": of_passages,
        "sentence_phrase_edges": len(graph.edges) - of_passages,
    }
    analyser = index.store.info("text")["language"]
    return {f"count/{name}": value for name, value in counts.items()}, 0, f"phrases by {analyser}"


def count_questions(config: EvaluateConfig, on_index: Progress = lambda stage, done, total: None) -> Counted:
    """Count corpus, questions and what is gold for them; tokens are estimated (`llm.base.estimate_tokens`)."""
    data = load_questions_for(config)

    def sizes(name: str) -> str:
        return ", ".join(str(n) for n in sorted({len(getattr(q, name)) for q in data.questions}) if n)

    types = Counter(question.type for question in data.questions)
    found = {
        "passages": len(data.passages),
        "corpus_tokens": sum(estimate_tokens(passage.content) for passage in data.passages),
        "questions": len(data.questions),
        "types": ", ".join(f"{name} {count}" for name, count in sorted(types.items())),
        "gold_passages": sizes("gold"),
        "gold_triples": sizes("evidence"),
    }
    return {f"count/{name}": value for name, value in found.items()}, len(data.questions), "tokens estimated"


COUNTERS: Mapping[str, Callable[[EvaluateConfig, Progress], Counted]] = {
    "hierarchy": count_hierarchy,
    "questions": count_questions,
}


def index_tokens(config: EvaluateConfig) -> dict[str, int]:
    """Return what language models read and wrote for the stages of the index that a run reads, 0 where none did.

    The sum over all calls of the builds that made them, cached replies counted; a change of an index counts what the
    change took.
    """
    store = Store(index_path(config.index, find_source(Path(config.data.path)).name))
    spent = Counter[str]()
    for stage in closure(needed_stages(config), config.index):
        for name, count in store.info(stage).items():
            kind = name.rpartition(" ")[2]  # such as `triples prompt_tokens`
            if kind in ("prompt_tokens", "completion_tokens"):
                spent[f"index/{kind}"] += count
    return {f"index/{kind}": spent[f"index/{kind}"] for kind in ("prompt_tokens", "completion_tokens")}
