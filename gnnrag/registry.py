"""Names to classes. A part is imported when its name is first used, so that no run loads what it does not need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gnnrag.errors import ConfigError, nearest

RETRIEVERS = {
    "bm25": "gnnrag.retrievers.bm25:BM25Retriever",
    "dense": "gnnrag.retrievers.dense:DenseRetriever",
    "hybrid": "gnnrag.retrievers.hybrid:HybridRetriever",
    "chg": "gnnrag.retrievers.chg:CHGRetriever",
    "hipporag": "gnnrag.retrievers.hipporag:HippoRAGRetriever",
    "hipporag2": "gnnrag.retrievers.hipporag2:HippoRAG2Retriever",
    "raptor": "gnnrag.retrievers.raptor:RaptorRetriever",
    "graphrag_local": "gnnrag.retrievers.graphrag_local:GraphRAGLocalRetriever",
    "graphrag_global": "gnnrag.retrievers.graphrag_global:GraphRAGGlobalRetriever",
    "lightrag": "gnnrag.retrievers.lightrag:LightRAGRetriever",
    "minirag": "gnnrag.retrievers.minirag:MiniRAGRetriever",
    "hypergraphrag": "gnnrag.retrievers.hypergraphrag:HyperGraphRAGRetriever",
    "pathrag": "gnnrag.retrievers.pathrag:PathRAGRetriever",
    "linearrag": "gnnrag.retrievers.linearrag:LinearRAGRetriever",
    "gfm": "gnnrag.retrievers.gfm:GFMRetriever",
}

METHODS = {
    "closed_book": "gnnrag.methods.closed_book:ClosedBook",
    "single": "gnnrag.methods.single:Single",
    "multihop": "gnnrag.methods.multihop:MultiHop",
    "bdtr": "gnnrag.methods.bdtr:BDTR",
    "routed": "gnnrag.methods.routed:Routed",
    "mgranrag": "gnnrag.methods.mgranrag:MGranRAG",
    "graphsearch": "gnnrag.methods.graphsearch:GraphSearch",
    "ircot": "gnnrag.methods.iterative:IRCoT",
    "irgs": "gnnrag.methods.iterative:IRGS",
    "tog": "gnnrag.methods.iterative:ToG",
    "gcot": "gnnrag.methods.iterative:GCoT",
    "react": "gnnrag.methods.agents:ReAct",
    "search_r1": "gnnrag.methods.agents:SearchR1",
    "r1_searcher": "gnnrag.methods.agents:R1Searcher",
    "dotrag": "gnnrag.methods.dotrag:DotRAG",
}

BACKENDS = {
    "openai": "gnnrag.llm.openai:OpenAIBackend",
    "hf": "gnnrag.llm.hf:HFBackend",
    "vllm": "gnnrag.llm.vllm:VLLMBackend",
    "openvino": "gnnrag.llm.openvino:OpenVINOBackend",
    "scripted": "gnnrag.llm.scripted:ScriptedBackend",
}

EXTRACTORS = {
    "offline": "gnnrag.extract.offline:OfflineExtractor",
    "precomputed": "gnnrag.extract.precomputed:PrecomputedExtractor",
    "kb": "gnnrag.extract.kb:KnowledgeBaseExtractor",
    "prompted": "gnnrag.extract.prompted:PromptedExtractor",
}

# Script in training/: the kinds of model that it trains; the first one is that of a config that names none.
TRAININGS: dict[str, dict[str, str]] = {
    "train_gnn.py": {},
    "train_verifier.py": {
        "cross_encoder": "gnnrag.fit.verifier:KIND",
        "causal": "gnnrag.fit.language:VERIFIER_CAUSAL",
    },
    "train_thoughts.py": {
        "selector": "gnnrag.fit.selector:KIND",
        "causal": "gnnrag.fit.language:THOUGHTS_CAUSAL",
        "seq2seq": "gnnrag.fit.language:THOUGHTS_SEQ2SEQ",
    },
    "train_reader.py": {"span": "gnnrag.fit.reader:KIND"},
}

ROLES = {
    "thoughts": {
        "prompted": "gnnrag.roles.thoughts_prompted:PromptedThoughts",
        "offline": "gnnrag.roles.thoughts_offline:OfflineThoughts",
        "tuned": "gnnrag.roles.thoughts_tuned:TunedThoughts",
        "oracle": "gnnrag.roles.thoughts_oracle:OracleThoughts",
    },
    "chain": {
        "prompted": "gnnrag.roles.chain_prompted:PromptedChain",
        "offline": "gnnrag.roles.chain_offline:OfflineChain",
        "oracle": "gnnrag.roles.chain_oracle:OracleChain",
    },
    "verifier": {
        "prompted": "gnnrag.roles.verifier_prompted:PromptedVerifier",
        "offline": "gnnrag.roles.verifier_offline:OfflineVerifier",
        "tuned": "gnnrag.roles.verifier_tuned:TunedVerifier",
        "oracle": "gnnrag.roles.verifier_oracle:OracleVerifier",
    },
    "reasoner": {
        "prompted": "gnnrag.roles.reasoner_prompted:PromptedReasoner",
        "offline": "gnnrag.roles.reasoner_offline:OfflineReasoner",
        "oracle": "gnnrag.roles.reasoner_oracle:OracleReasoner",
    },
    "agent": {
        "prompted": "gnnrag.roles.agent_prompted:PromptedAgent",
        "offline": "gnnrag.roles.agent_offline:OfflineAgent",
        "oracle": "gnnrag.roles.agent_oracle:OracleAgent",
    },
    "decomposer": {
        "prompted": "gnnrag.roles.decomposer_prompted:PromptedDecomposer",
        "offline": "gnnrag.roles.decomposer_offline:OfflineDecomposer",
        "oracle": "gnnrag.roles.decomposer_oracle:OracleDecomposer",
    },
    "evidence_extractor": {
        "prompted": "gnnrag.roles.evidence_prompted:PromptedEvidenceExtractor",
        "offline": "gnnrag.roles.evidence_offline:OfflineEvidenceExtractor",
        "oracle": "gnnrag.roles.evidence_oracle:OracleEvidenceExtractor",
    },
    "concepts": {
        "prompted": "gnnrag.roles.concepts_prompted:PromptedConcepts",
        "offline": "gnnrag.roles.concepts_offline:OfflineConcepts",
        "oracle": "gnnrag.roles.concepts_oracle:OracleConcepts",
    },
    "rules": {
        "prompted": "gnnrag.roles.rules_prompted:PromptedRules",
        "offline": "gnnrag.roles.rules_offline:OfflineRules",
        "oracle": "gnnrag.roles.rules_oracle:OracleRules",
    },
    "path_judge": {
        "prompted": "gnnrag.roles.path_judge_prompted:PromptedPathJudge",
        "offline": "gnnrag.roles.path_judge_offline:OfflinePathJudge",
        "oracle": "gnnrag.roles.path_judge_oracle:OraclePathJudge",
    },
    "redirect": {
        "prompted": "gnnrag.roles.redirect_prompted:PromptedRedirect",
        "offline": "gnnrag.roles.redirect_offline:OfflineRedirect",
        "oracle": "gnnrag.roles.redirect_oracle:OracleRedirect",
    },
    "grounder": {
        "prompted": "gnnrag.roles.grounder_prompted:PromptedGrounder",
        "offline": "gnnrag.roles.grounder_offline:OfflineGrounder",
        "oracle": "gnnrag.roles.grounder_offline:OfflineGrounder",  # the answers are the oracle's
    },
    "refiner": {
        "prompted": "gnnrag.roles.refiner_prompted:PromptedRefiner",
        "offline": "gnnrag.roles.refiner_offline:OfflineRefiner",
        "oracle": "gnnrag.roles.searching_oracle:OracleRefiner",
    },
    "sub_answerer": {
        "prompted": "gnnrag.roles.sub_answerer_prompted:PromptedSubAnswerer",
        "offline": "gnnrag.roles.sub_answerer_offline:OfflineSubAnswerer",
        "oracle": "gnnrag.roles.searching_oracle:OracleSubAnswerer",
    },
    "drafter": {
        "prompted": "gnnrag.roles.drafter_prompted:PromptedDrafter",
        "offline": "gnnrag.roles.drafter_offline:OfflineDrafter",
        "oracle": "gnnrag.roles.drafter_oracle:OracleDrafter",
    },
    "evidence_check": {
        "prompted": "gnnrag.roles.evidence_check_prompted:PromptedEvidenceCheck",
        "offline": "gnnrag.roles.evidence_check_offline:OfflineEvidenceCheck",
        "oracle": "gnnrag.roles.searching_oracle:OracleEvidenceCheck",
    },
    "expander": {
        "prompted": "gnnrag.roles.expander_prompted:PromptedExpander",
        "offline": "gnnrag.roles.expander_offline:OfflineExpander",
        "oracle": "gnnrag.roles.searching_oracle:OracleExpander",
    },
    "reader": {
        "prompted": "gnnrag.roles.reader_prompted:PromptedReader",
        "offline": "gnnrag.roles.reader_offline:OfflineReader",
        "tuned": "gnnrag.roles.reader_tuned:TunedReader",
        "oracle": "gnnrag.roles.reader_oracle:OracleReader",
    },
    "router": {
        "prompted": "gnnrag.roles.router_prompted:PromptedRouter",
        "offline": "gnnrag.roles.router_offline:OfflineRouter",
        "oracle": "gnnrag.roles.router_oracle:OracleRouter",
    },
    # Roles that retrievers ask: no gold says how a graph is to be searched, so that the oracle's are the offline ones.
    "report_points": {
        "prompted": "gnnrag.roles.report_points_prompted:PromptedReportPoints",
        "offline": "gnnrag.roles.report_points_offline:OfflineReportPoints",
        "oracle": "gnnrag.roles.report_points_offline:OfflineReportPoints",
    },
    "report_reduce": {
        "prompted": "gnnrag.roles.report_reduce_prompted:PromptedReduce",
        "offline": "gnnrag.roles.report_reduce_offline:OfflineReduce",
        "oracle": "gnnrag.roles.report_reduce_offline:OfflineReduce",
    },
    "report_rating": {
        "prompted": "gnnrag.roles.report_rating_prompted:PromptedRating",
        "offline": "gnnrag.roles.report_rating_offline:OfflineRating",
        "oracle": "gnnrag.roles.report_rating_offline:OfflineRating",
    },
    "mentions": {
        "prompted": "gnnrag.roles.mentions_prompted:PromptedMentions",
        "offline": "gnnrag.roles.mentions_offline:OfflineMentions",
        "oracle": "gnnrag.roles.mentions_offline:OfflineMentions",
    },
    "hyper_query": {
        "prompted": "gnnrag.roles.hyper_query_prompted:PromptedHyperQuery",
        "offline": "gnnrag.roles.hyper_query_offline:OfflineHyperQuery",
        "oracle": "gnnrag.roles.hyper_query_offline:OfflineHyperQuery",
    },
    "keywords": {
        "prompted": "gnnrag.roles.keywords_prompted:PromptedKeywords",
        "offline": "gnnrag.roles.keywords_offline:OfflineKeywords",
        "oracle": "gnnrag.roles.keywords_offline:OfflineKeywords",
    },
    "fact_filter": {
        "prompted": "gnnrag.roles.fact_filter_prompted:PromptedFactFilter",
        "offline": "gnnrag.roles.fact_filter_offline:OfflineFactFilter",
        "oracle": "gnnrag.roles.fact_filter_offline:OfflineFactFilter",  # no gold says which facts help
    },
}

# Makers of queries that could be sent next: what `inference/collect_traces.py candidates=NAME` labels by their gains.
CANDIDATES: dict[str, str] = {"rules": "gnnrag.roles.candidates:CandidateBuilder"}

# Jobs of a language model, or of rules, while an index is built.
WRITERS: dict[str, dict[str, str]] = {
    "triples": {
        "openie": "gnnrag.roles.triples_openie:OpenIETriples",
        "lightrag": "gnnrag.roles.triples_lightrag:LightRAGTriples",
        "hyper": "gnnrag.roles.triples_hyper:HyperTriples",
    },
    "summary": {
        "prompted": "gnnrag.roles.summary_prompted:PromptedSummary",
        "offline": "gnnrag.roles.summary_offline:OfflineSummary",
    },
    "report": {
        "prompted": "gnnrag.roles.report_prompted:PromptedReport",
        "offline": "gnnrag.roles.report_offline:OfflineReport",
    },
    "curator": {
        "prompted": "gnnrag.roles.curator_prompted:PromptedCurator",
        "offline": "gnnrag.roles.curator_offline:OfflineCurator",
    },
    "types": {
        "prompted": "gnnrag.roles.types_prompted:PromptedTypes",
        "offline": "gnnrag.roles.types_offline:OfflineTypes",
    },
}
JOBS = {"jobs": "gnnrag.roles.jobs:IndexJobs"}  # who runs the writers: the index knows no role


def resolve(kind: str, name: str, table: dict[str, str]) -> Any:
    """Return the class registered under `name`.

    Args:
        kind: word for the error message (`retriever`, `method`, ...).
        name: the name asked for.
        table: one of the tables above.

    Raises:
        ConfigError: the name is unknown; the message lists the known ones.
    """
    if name not in table:
        raise ConfigError(f"{kind}={name!r} is unknown. {nearest(name, table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
