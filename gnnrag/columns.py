"""The columns of the papers' tables: what a file of `configs/papers` may show of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gnnrag.errors import ConfigError, nearest

# What the judges of `gnnrag.judge` rate: the six qualities of GraphSearch, and DotRAG's beside the overall verdict.
_CRITERIA = ("correctness", "logical_coherence", "comprehensiveness", "relevance", "knowledgeability", "factuality")
_DIMENSIONS = ("comprehensiveness", "logicality", "relevance", "coherence")
_COUNTED = ("passages", "sentences", "phrases", "passage_sentence_edges", "sentence_phrase_edges")
_AT_K = re.compile(r"(recall|all)@([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a row: its heading, where a run has it (empty: no run has it), digits (-1: it is a text)."""

    name: str
    heading: str
    key: str = ""
    digits: int = 3

    @property
    def is_share(self) -> bool:
        """Whether it is a share of one, which papers print as a percentage."""
        return self.key.startswith(("retrieval/", "answer/"))

    @property
    def is_text(self) -> bool:
        """Whether it is a text, not a number."""
        return self.digits < 0


COLUMNS = {
    column.name: column
    for column in (
        Column("em", "EM", "answer/em"),
        Column("f1", "F1", "answer/f1"),
        Column("sub_em", "SubEM", "answer/sub_em"),
        Column("sub_em_tok", "SubEM, whole words", "answer/sub_em_tok"),
        Column("mrr", "MRR", "retrieval/mrr"),
        Column("node_recall", "node recall", "retrieval/node_recall"),
        Column("node_precision", "node precision", "retrieval/node_precision"),
        Column("node_f1", "node F1", "retrieval/node_f1"),
        Column("resolved_recall", "node recall, passages resolved", "retrieval/resolved_recall"),
        Column("resolved_precision", "node precision, passages resolved", "retrieval/resolved_precision"),
        Column("resolved_f1", "node F1, passages resolved", "retrieval/resolved_f1"),
        Column("resolved_nodes", "nodes, passages resolved", "context/nodes", 1),
        Column("context_size", "passages read", "context/size", 1),
        Column("retriever_calls", "retriever calls", "cost/retriever_calls", 1),
        Column("fallbacks", "queries that fell back", "run/fallbacks"),
        Column("llm_calls", "LLM calls", "cost/llm_calls", 1),
        Column("prompt_tokens", "prompt tokens", "cost/prompt_tokens", 0),
        Column("completion_tokens", "reply tokens", "cost/completion_tokens", 0),
        Column("search_calls", "LLM calls before the reader", "run/search_calls", 1),
        Column("search_prompt_tokens", "prompt tokens before the reader", "run/search_prompt_tokens", 0),
        Column("search_completion_tokens", "reply tokens before the reader", "run/search_completion_tokens", 0),
        Column("seconds", "s/question", "cost/seconds_per_question", 2),
        Column("run_seconds", "s/run", "run/seconds", 0),
        Column("semantic_recall", "evidence recall, text side", "run/semantic_recall"),
        Column("relational_recall", "evidence recall, graph side", "run/relational_recall"),
        Column("pair_recall", "gold triples whose names a hit joins, graph side", "run/pair_recall"),
        Column("triple_recall", "gold triples found, graph side", "run/triple_recall"),
        # Of the index that the row read, cached replies counted: per corpus, not per question.
        Column("index_prompt_tokens", "prompt tokens of the index", "index/prompt_tokens", 0),
        Column("index_completion_tokens", "reply tokens of the index", "index/completion_tokens", 0),
        # Counted without a run (`gnnrag.counting`).
        *(
            Column(name, name.replace("_", " "), f"count/{name}", 0)
            for name in (*_COUNTED, "corpus_tokens", "questions")
        ),
        Column("types", "types", "count/types", -1),
        Column("gold_passages", "passages of evidence", "count/gold_passages", -1),
        Column("gold_triples", "triples of evidence", "count/gold_triples", -1),
        # Rated by a language model, which judges predictions afterwards (inference/judge.py).
        Column("a_score", "A-Score", "judge/a_score", 2),
        Column("e_score", "E-Score", "judge/e_score", 2),
        *(Column(name, name.replace("_", " "), f"judge/{name}", 2) for name in _CRITERIA),
        Column("win_rate", "win rate", "judge/win_rate", 0),
        *(Column(f"win_{name}", f"win rate, {name}", f"judge/win_{name}", 0) for name in _DIMENSIONS),
    )
}


def column_of(path: str | Path, name: str) -> Column:
    """Return a column by name. Raises ConfigError where there is none."""
    if match := _AT_K.fullmatch(name):
        return Column(name, f"{match[1].capitalize()}@{match[2]}", f"retrieval/{name}")
    if name not in COLUMNS:
        raise ConfigError(f"{path}: column {name!r} is unknown. {nearest(name, [*COLUMNS, 'recall@5', 'all@5'])}")
    return COLUMNS[name]
