"""Names to classes. A part is imported when its name is first used, so that no run loads what it does not need."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from gnnrag.errors import ConfigError, nearest
from gnnrag.llm.providers import PROVIDERS
from gnnrag.own_parts import check_part, open_part, place_of
from gnnrag.parts import find
from gnnrag.parts import part as make_part

PartT = TypeVar("PartT")

RETRIEVERS = {
    "bm25": "gnnrag.retrievers.bm25:BM25Retriever",
    "dense": "gnnrag.retrievers.dense:DenseRetriever",
    "hybrid": "gnnrag.retrievers.hybrid:HybridRetriever",
    "chg": "gnnrag.retrievers.chg:CHGRetriever",
    "hipporag": "gnnrag.retrievers.hipporag:HippoRAGRetriever",
    "hipporag2": "gnnrag.retrievers.hipporag2:HippoRAG2Retriever",
    "raptor": "gnnrag.retrievers.raptor:RaptorRetriever",
    "graphrag_local": "gnnrag.retrievers.graphrag:GraphRAGLocalRetriever",
    "graphrag_global": "gnnrag.retrievers.graphrag:GraphRAGGlobalRetriever",
    "lightrag": "gnnrag.retrievers.lightrag:LightRAGRetriever",
    "minirag": "gnnrag.retrievers.minirag:MiniRAGRetriever",
    "hypergraphrag": "gnnrag.retrievers.hypergraphrag:HyperGraphRAGRetriever",
    "pathrag": "gnnrag.retrievers.pathrag:PathRAGRetriever",
    "linearrag": "gnnrag.retrievers.linearrag:LinearRAGRetriever",
    "gfm": "gnnrag.retrievers.gfm:GFMRetriever",
    "nexthop": "gnnrag.retrievers.nexthop:NextHopRetriever",
}

METHODS = {
    "closed_book": "gnnrag.methods.baselines:ClosedBook",
    "single": "gnnrag.methods.baselines:Single",
    "multihop": "gnnrag.methods.baselines:MultiHop",
    "bdtr": "gnnrag.methods.bdtr:BDTR",
    "routed": "gnnrag.methods.routed:Routed",
    "mgranrag": "gnnrag.methods.mgranrag:MGranRAG",
    "graphsearch": "gnnrag.methods.graphsearch:GraphSearch",
    "ircot": "gnnrag.methods.baselines:IRCoT",
    "irgs": "gnnrag.methods.baselines:IRGS",
    "tog": "gnnrag.methods.baselines:ToG",
    "gcot": "gnnrag.methods.baselines:GCoT",
    "react": "gnnrag.methods.baselines:ReAct",
    "search_r1": "gnnrag.methods.baselines:SearchR1",
    "r1_searcher": "gnnrag.methods.baselines:R1Searcher",
    "dotrag": "gnnrag.methods.dotrag:DotRAG",
}

BACKENDS = {
    **{name: f"gnnrag.llm.openai:{name}" for name in PROVIDERS},
    "hf": "gnnrag.llm.hf:HF",
    "vllm_engine": "gnnrag.llm.vllm_engine:VLLMEngine",
    "openvino": "gnnrag.llm.openvino:OpenVINO",
    "scripted": "gnnrag.llm.scripted:ScriptedBackend",
}

EXTRACTORS = {
    "offline": "gnnrag.extract.rules:OfflineExtractor",
    "precomputed": "gnnrag.extract.precomputed:PrecomputedExtractor",
    "kb": "gnnrag.extract.precomputed:KnowledgeBaseExtractor",
    "prompted": "gnnrag.extract.prompted:PromptedExtractor",
}

# Script in training/: the kinds of model that it trains; the first one is that of a config that names none.
TRAININGS: dict[str, dict[str, str]] = {
    "train_gnn.py": {"gnn": "gnnrag.training.gnn:GNNTraining"},
    "train_verifier.py": {
        "cross_encoder": "gnnrag.training.verifier:VerifierTraining",
        "chain": "gnnrag.training.chain_verifier:ChainTraining",
        "causal": "gnnrag.training.language.train:VerifierLanguageTraining",
    },
    "train_thoughts.py": {
        "causal": "gnnrag.training.language.train:ThoughtsCausalTraining",
        "seq2seq": "gnnrag.training.language.train:ThoughtsSeq2SeqTraining",
    },
    "train_reader.py": {
        "span": "gnnrag.training.reader:ReaderTraining",
        "causal": "gnnrag.training.language.train:ReaderLanguageTraining",
    },
    "train_encoder.py": {"encoder": "gnnrag.training.encoder:EncoderTraining"},
}

# Roles whose shipped checkpoint is above the rules by an interval without 0 on a set and below them on none: what
# `roles=auto` takes. By retriever (None: any), with the options it was measured with; thoughts only beside the verifier
# (docs/results.md, "Ablation").
PROVEN: dict[str, dict[str | None, dict[str, Any]]] = {
    "verifier": {None: {}},
    "reader": {None: {}},
    "thoughts": {"dense": {"mixed": True}, "chg": {}},
}

ROLES = {
    "thoughts": {
        "prompted": "gnnrag.roles.thoughts:PromptedThoughts",
        "offline": "gnnrag.roles.thoughts:OfflineThoughts",
        "tuned": "gnnrag.roles.tuned.thoughts:TunedThoughts",
        "oracle": "gnnrag.roles.thoughts:OracleThoughts",
    },
    "chain": {
        "prompted": "gnnrag.roles.chain:PromptedChain",
        "offline": "gnnrag.roles.chain:OfflineChain",
        "oracle": "gnnrag.roles.chain:OracleChain",
    },
    "verifier": {
        "prompted": "gnnrag.roles.verifier:PromptedVerifier",
        "offline": "gnnrag.roles.verifier:OfflineVerifier",
        "tuned": "gnnrag.roles.tuned.verifier:TunedVerifier",
        "oracle": "gnnrag.roles.verifier:OracleVerifier",
    },
    "reasoner": {
        "prompted": "gnnrag.roles.reasoner:PromptedReasoner",
        "offline": "gnnrag.roles.reasoner:OfflineReasoner",
        "oracle": "gnnrag.roles.reasoner:OracleReasoner",
    },
    "agent": {
        "prompted": "gnnrag.roles.agent:PromptedAgent",
        "offline": "gnnrag.roles.agent:OfflineAgent",
        "oracle": "gnnrag.roles.agent:OracleAgent",
    },
    "decomposer": {
        "prompted": "gnnrag.roles.decomposer:PromptedDecomposer",
        "offline": "gnnrag.roles.decomposer:OfflineDecomposer",
        "oracle": "gnnrag.roles.decomposer:OracleDecomposer",
    },
    "evidence_extractor": {
        "prompted": "gnnrag.methods.mgranrag.evidence:PromptedEvidenceExtractor",
        "offline": "gnnrag.methods.mgranrag.evidence:OfflineEvidenceExtractor",
        "oracle": "gnnrag.methods.mgranrag.evidence:OracleEvidenceExtractor",
    },
    "concepts": {
        "prompted": "gnnrag.methods.dotrag.roles:PromptedConcepts",
        "offline": "gnnrag.methods.dotrag.offline:OfflineConcepts",
        "oracle": "gnnrag.methods.dotrag.oracle:OracleConcepts",
    },
    "rules": {
        "prompted": "gnnrag.methods.dotrag.roles:PromptedRules",
        "offline": "gnnrag.methods.dotrag.offline:OfflineRules",
        "oracle": "gnnrag.methods.dotrag.oracle:OracleRules",
    },
    "path_judge": {
        "prompted": "gnnrag.methods.dotrag.roles:PromptedPathJudge",
        "offline": "gnnrag.methods.dotrag.offline:OfflinePathJudge",
        "oracle": "gnnrag.methods.dotrag.oracle:OraclePathJudge",
    },
    "redirect": {
        "prompted": "gnnrag.methods.dotrag.roles:PromptedRedirect",
        "offline": "gnnrag.methods.dotrag.offline:OfflineRedirect",
        "oracle": "gnnrag.methods.dotrag.oracle:OracleRedirect",
    },
    "grounder": {
        "prompted": "gnnrag.methods.graphsearch.prompted:PromptedGrounder",
        "offline": "gnnrag.methods.graphsearch.offline:OfflineGrounder",
        "oracle": "gnnrag.methods.graphsearch.offline:OfflineGrounder",  # the answers are the oracle's
    },
    "refiner": {
        "prompted": "gnnrag.methods.graphsearch.prompted:PromptedRefiner",
        "offline": "gnnrag.methods.graphsearch.offline:OfflineRefiner",
        "oracle": "gnnrag.methods.graphsearch.offline:OracleRefiner",
    },
    "sub_answerer": {
        "prompted": "gnnrag.methods.graphsearch.prompted:PromptedSubAnswerer",
        "offline": "gnnrag.methods.graphsearch.offline:OfflineSubAnswerer",
        "oracle": "gnnrag.methods.graphsearch.offline:OracleSubAnswerer",
    },
    "drafter": {
        "prompted": "gnnrag.methods.graphsearch.prompted:PromptedDrafter",
        "offline": "gnnrag.methods.graphsearch.offline:OfflineDrafter",
        "oracle": "gnnrag.methods.graphsearch.offline:OracleDrafter",
    },
    "evidence_check": {
        "prompted": "gnnrag.methods.graphsearch.prompted:PromptedEvidenceCheck",
        "offline": "gnnrag.methods.graphsearch.offline:OfflineEvidenceCheck",
        "oracle": "gnnrag.methods.graphsearch.offline:OracleEvidenceCheck",
    },
    "expander": {
        "prompted": "gnnrag.methods.graphsearch.prompted:PromptedExpander",
        "offline": "gnnrag.methods.graphsearch.offline:OfflineExpander",
        "oracle": "gnnrag.methods.graphsearch.offline:OracleExpander",
    },
    "reader": {
        "prompted": "gnnrag.roles.reader:PromptedReader",
        "offline": "gnnrag.roles.offline_reader.reader:OfflineReader",
        "tuned": "gnnrag.roles.tuned.reader:TunedReader",
        "oracle": "gnnrag.roles.reader:OracleReader",
    },
    "router": {
        "prompted": "gnnrag.roles.router:PromptedRouter",
        "offline": "gnnrag.roles.router:OfflineRouter",
        "oracle": "gnnrag.roles.router:OracleRouter",
    },
    "rewriter": {  # of follow-ups, before a method is asked
        "prompted": "gnnrag.roles.rewriter:PromptedRewriter",
        "offline": "gnnrag.roles.rewriter:OfflineRewriter",
        "oracle": "gnnrag.roles.rewriter:OfflineRewriter",
    },
    # Roles that retrievers ask: no gold says how a graph is to be searched, so that the oracle's are the offline ones.
    "report_points": {
        "prompted": "gnnrag.retrievers.graphrag.report_roles:PromptedReportPoints",
        "offline": "gnnrag.retrievers.graphrag.report_roles:OfflineReportPoints",
        "oracle": "gnnrag.retrievers.graphrag.report_roles:OfflineReportPoints",
    },
    "report_reduce": {
        "prompted": "gnnrag.retrievers.graphrag.report_roles:PromptedReduce",
        "offline": "gnnrag.retrievers.graphrag.report_roles:OfflineReduce",
        "oracle": "gnnrag.retrievers.graphrag.report_roles:OfflineReduce",
    },
    "report_rating": {
        "prompted": "gnnrag.retrievers.graphrag.report_roles:PromptedRating",
        "offline": "gnnrag.retrievers.graphrag.report_roles:OfflineRating",
        "oracle": "gnnrag.retrievers.graphrag.report_roles:OfflineRating",
    },
    "mentions": {
        "prompted": "gnnrag.retrievers.minirag:PromptedMentions",
        "offline": "gnnrag.retrievers.minirag:OfflineMentions",
        "oracle": "gnnrag.retrievers.minirag:OfflineMentions",
    },
    "hyper_query": {
        "prompted": "gnnrag.retrievers.hypergraphrag:PromptedHyperQuery",
        "offline": "gnnrag.retrievers.hypergraphrag:OfflineHyperQuery",
        "oracle": "gnnrag.retrievers.hypergraphrag:OfflineHyperQuery",
    },
    "keywords": {
        "prompted": "gnnrag.retrievers.keywords:PromptedKeywords",
        "offline": "gnnrag.retrievers.keywords:OfflineKeywords",
        "oracle": "gnnrag.retrievers.keywords:OfflineKeywords",
    },
    "fact_filter": {
        "prompted": "gnnrag.retrievers.hipporag2:PromptedFactFilter",
        "offline": "gnnrag.retrievers.hipporag2:OfflineFactFilter",
        "oracle": "gnnrag.retrievers.hipporag2:OfflineFactFilter",  # no gold says which facts help
    },
}

# Jobs of a language model, or of rules, while an index is built.
WRITERS: dict[str, dict[str, str]] = {
    "triples": {
        "openie": "gnnrag.roles.writers.triples:OpenIETriples",
        "lightrag": "gnnrag.roles.writers.triples:LightRAGTriples",
        "hyper": "gnnrag.roles.writers.triples:HyperTriples",
    },
    "summary": {
        "prompted": "gnnrag.roles.writers.report:PromptedSummary",
        "offline": "gnnrag.roles.writers.report:OfflineSummary",
    },
    "report": {
        "prompted": "gnnrag.roles.writers.report:PromptedReport",
        "offline": "gnnrag.roles.writers.report:OfflineReport",
    },
    "curator": {
        "prompted": "gnnrag.roles.writers.entities:PromptedCurator",
        "offline": "gnnrag.roles.writers.entities:OfflineCurator",
    },
    "types": {
        "prompted": "gnnrag.roles.writers.entities:PromptedTypes",
        "offline": "gnnrag.roles.writers.entities:OfflineTypes",
    },
}
INDEX_TASKS = {"jobs": "gnnrag.roles.writers.tasks:IndexTasks"}  # who runs the writers: the index knows no role


# The kinds of parts that may come from outside (`gnnrag.own_parts`), by the identity of their table: what an index or a
# checkpoint names is looked up in others.
_OWN = {id(RETRIEVERS): "retriever", id(METHODS): "method"} | {id(table): f"roles.{n}" for n, table in ROLES.items()}


def resolve(kind: str, name: str, table: dict[str, str]) -> Any:
    """Return the class under `name` in one of the tables above; the ConfigError for an unknown one lists the known."""
    if name not in table and table is RETRIEVERS:
        return find("retriever", name, kind)
    if name not in table and id(table) in _OWN:
        return open_part(kind, _OWN[id(table)], name, table)
    if name not in table:
        raise ConfigError(f"{kind}={name!r} is unknown. {nearest(name, table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)


def is_known(name: str, table: dict[str, str]) -> bool:
    """Tell whether `resolve` finds something under a name."""
    return name in table or (id(table) in _OWN and place_of(_OWN[id(table)], name) is not None)


def register(kind: str, name: str) -> Callable[[type[PartT]], type[PartT]]:
    """Give a class a short name in this process; a decorator. ConfigError: it lacks something, or the name is taken.

        @gnnrag.register("retriever", "title_match")
        class TitleMatch(Retriever): ...

    `kind` is `retriever`, `method` or `roles.ROLE`; the name is then a value of the setting of that name.
    """
    tables = {"retriever": RETRIEVERS, "method": METHODS} | {f"roles.{role}": table for role, table in ROLES.items()}
    if kind not in tables:
        raise ConfigError(f"register: kind={kind!r} is unknown. {nearest(kind, tables)}")
    if not name.isidentifier():
        raise ConfigError(f"register: {kind}={name!r} must be a name of letters, digits and underscores")

    def add(part: type[PartT]) -> type[PartT]:
        if kind != "retriever":
            check_part(kind, name, part)
        place = f"{part.__module__}:{part.__qualname__}"
        if "." in part.__qualname__:
            raise ConfigError(f"register: {place} must stand at the top of its module")
        if tables[kind].setdefault(name, place) != place:
            raise ConfigError(f"register: {kind}={name} is {tables[kind][name]} already; take another name")
        return make_part("retriever", name)(part) if kind == "retriever" else part

    return add
