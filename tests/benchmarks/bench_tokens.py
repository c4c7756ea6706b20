"""Tokens of MGranRAG's prompts, reading its candidates again each round or unread passages only; Recall@5 beside them.

python tests/benchmarks/bench_tokens.py --data ../shared/data/musique --index indexes/musique [--limit 100]

Decomposition and evidence are the prompted roles, the reader is left out as in the paper's Table 3. The language model
is scripted: it replies what the gold annotation says, in the format that it was asked for. Tokens are estimated, four
characters each. "prefix" is the share of the prompts' tokens that stands at the beginning of every prompt of its role:
what a server with a prefix cache computes once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from running import run

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.mgranrag import FIRST_QUESTION, MGranRAG, OracleEvidenceExtractor, PromptedEvidenceExtractor
from gnnrag.metrics.report import score
from gnnrag.parts import ready
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.roles.decomposer import OracleDecomposer, PromptedDecomposer
from gnnrag.roles.reader import OracleReader
from gnnrag.run.evaluation import load_questions_for
from gnnrag.run.loop import Loop
from gnnrag.run.pipeline import open_index
from gnnrag.session import Session
from gnnrag.types import Prediction


class Told:
    """A prompted role whose model is told by the oracle what to reply."""

    def __init__(self, oracle: Any, prompted: Any, write: Any) -> None:
        self.oracle, self.write, self.reply = oracle, write, ""
        self.backend = ScriptedBackend.of((lambda request: True, lambda request: self.reply))
        self.prompted = prompted(self.backend)

    async def __call__(self, task: Any, session: Session) -> Any:
        """Ask the oracle, then the model."""
        self.reply = self.write(await self.oracle(task, session))
        return await self.prompted(task, session)


def written_parts(found: Any) -> str:
    """Return sub-questions as the decomposer's prompt wants them."""
    return json.dumps(list(found.parts))


def written_evidence(found: Any) -> str:
    """Return evidence as the extractor's prompt wants it."""
    rows = [
        {"id": e.sentence, "text": e.text, "labels": {str(FIRST_QUESTION + k): label for k, label in e.labels},
         "phrases": list(e.phrases)}
        for e in found.items
    ]  # fmt: skip
    return json.dumps({"evidence": rows})


def cached_share(requests: Iterable[Request]) -> tuple[int, int]:
    """Return the characters of all prompts, and those in front that all of them share."""
    texts = [request.text for request in requests]
    if not texts:
        return 0, 0
    first, last = min(texts), max(texts)  # what these two share, all between them share
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return sum(map(len, texts)), same * len(texts)


def answer(config: EvaluateConfig, index: Any, data: Any) -> dict[str, float]:
    """Answer all questions; returns the figures of a row."""
    roles = {
        "decomposer": Told(OracleDecomposer(index), PromptedDecomposer, written_parts),
        "evidence_extractor": Told(OracleEvidenceExtractor(index), PromptedEvidenceExtractor, written_evidence),
    }
    method = MGranRAG(index, roles, config.method.settings)
    # One at a time: a role has one reply in hand.
    loop = Loop(method, ready(DenseRetriever(), index=index), OracleReader(index), index.lookup, concurrency=1)
    predictions: list[Prediction] = []
    sessions: list[Session] = []

    def done(prediction: Prediction, session: Session) -> None:
        predictions.append(prediction)
        sessions.append(session)

    asyncio.run(loop.run(data.questions, done))
    used: dict[str, float] = defaultdict(float)
    for session in sessions:
        for name, row in session.by_role.items():
            used["failed"] += row["parse_failure"]
            for key in ("calls", "prompt_tokens", "completion_tokens") if name in roles else ():
                used[key] += row[key]
    shares = [cached_share(role.backend.requests) for role in roles.values()]
    metrics = score(data.questions, predictions, (5,), resamples=0)
    count = len(predictions)
    return {
        **{key: used[key] / count for key in ("calls", "prompt_tokens", "completion_tokens", "failed")},
        "prefix": sum(shared for _, shared in shares) / sum(total for total, _ in shares),
        "recall@5": metrics["retrieval/recall@5"],
    }


def main() -> None:
    """Print a row for each preset, number of rounds, and way of reading."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--presets", nargs="+", default=["official", "repaired"])
    parser.add_argument("--skip-read", nargs="+", default=["none", "skip", "refill"])
    options = parser.parse_args()
    print("| preset | T | skip_read | calls | prompt tokens | reply tokens | for 1,000 | prefix | Recall@5 |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for preset in options.presets:
        for rounds in options.rounds:
            for skip in options.skip_read:
                own = ["method=mgranrag", f"method.preset={preset}", f"method.iterations={rounds}", "retriever=dense"]
                where = [f"data.path={options.data}", f"index.path={options.index}", f"data.limit={options.limit}"]
                config = load_config(EvaluateConfig, None, [*own, *where, f"method.skip_read={skip}"])
                data = load_questions_for(config)
                row = answer(config, open_index(config, data.name, data.passages), data)
                print(f"| {preset} | {rounds} | {skip} | {row['calls']:.2f} | {row['prompt_tokens']:.0f} | "
                      f"{row['completion_tokens']:.0f} | {row['prompt_tokens'] / 1000:.2f}M | {row['prefix']:.2f} | "
                      f"{row['recall@5']:.3f} |", flush=True)  # fmt: skip
                if row["failed"]:
                    print(f"{row['failed']:.2f} replies a question were malformed")


if __name__ == "__main__":
    run(main, __doc__)
