from __future__ import annotations

import pytest

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError
from gnnrag.extract.prompted import Estimate, calls_per_passage, estimate_extraction
from gnnrag.index.store import Store
from gnnrag.types import Passage
from tests.extract.test_prompted import settings
from tests.helpers.each import each
from tests.helpers.indexes import CORPUS, build


@each(
    "format_, gleaning, calls",
    [
        ("openie", None, 2),
        ("lightrag", None, 2),
        ("hyper", None, 4),
        ("lightrag", 0, 1),
        ("hyper", 1, 2),
        ("hyper", 3, 6),
    ],
)
def test_calls_per_passage(format_, gleaning, calls):
    assert calls_per_passage(ExtractConfig("prompted", format=format_, gleaning=gleaning)) == calls


def test_an_unknown_format_has_no_estimate():
    with pytest.raises(ConfigError, match="allowed are openie"):
        calls_per_passage(ExtractConfig("prompted", format="rdf"))


def test_equal_passages_are_read_once_and_cost_follows_the_prices():
    config = ExtractConfig("prompted", format="lightrag")
    found = estimate_extraction(CORPUS, config, 2.0, 10.0)
    assert found.passages == 5 and found.calls == 10
    assert found.cost == pytest.approx((2 * found.prompt_tokens + 10 * found.completion_tokens) / 1e6)
    assert estimate_extraction(CORPUS, config).cost == 0
    assert estimate_extraction([], config) == Estimate(0, 0, 0, 0, 0.0)


def test_what_is_read_grows_with_the_passage_and_with_each_turn():
    def tokens(words, gleaning):
        config = ExtractConfig("prompted", format="hyper", gleaning=gleaning)
        return estimate_extraction([Passage("p", "T", "word " * words)], config)

    short, long = tokens(100, 1), tokens(200, 1)
    assert long.prompt_tokens > short.prompt_tokens and long.completion_tokens > 1.8 * short.completion_tokens
    sizes = [tokens(100, g).prompt_tokens for g in range(4)]
    assert sizes == sorted(set(sizes)) and sizes[1] > 2 * sizes[0] - 200


def test_the_prompt_tokens_are_those_of_a_build(tmp_path):
    """Replies differ from their estimate; what is sent is known."""
    build(tmp_path, settings=settings(), stages=["extraction"])
    spent = Store(tmp_path).info("extraction")["triples prompt_tokens"]
    assert estimate_extraction(CORPUS, ExtractConfig("prompted")).prompt_tokens == pytest.approx(spent, rel=0.05)
