"""A knowledge base turned into text by a real, if random, model: nothing it says breaks the corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.config import load_config
from gnnrag.datasets.base import load_passages
from gnnrag.textualise import check_folder, textualise
from gnnrag.textualise.prompted import TextualiseConfig

pytestmark = [pytest.mark.llm, pytest.mark.slow]

KB = "Night Harbour|directed_by|Vera Lind\nNight Harbour|release_year|1971\n12|has_tags|fog\n"


def test_a_random_model_leaves_a_whole_corpus(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "kb.txt").write_text(KB, "utf-8")
    dots = [
        f"path={tmp_path / 'films'}", f"out={tmp_path / 'out'}", f"llm_cache={tmp_path / 'cache.sqlite'}",
        "write.method=prompted", "llm=hf", f"llm.model={tiny_model}", "write.tries=2", "write.max_tokens=24",
    ]  # fmt: skip
    out, source = textualise(load_config(TextualiseConfig, None, dots))
    assert len(load_passages(out).passages) == 5 and check_folder(out)["uncovered"] == 0
    usage, flags = source["usage"], source["counts"]["flags"]
    # It never writes an article; one kind or another may be no JSON only.
    assert flags == {"template_article": 5, "template_description": 5, "template_relation": 3}
    assert usage["article"]["calls"] == usage["article"]["parse_failure"] == 10
    assert usage["entity"]["calls"] == 10 and all(row["prompt_tokens"] > 100 for row in usage.values())
    assert source["made"]["writer"]["model"]["type"] == "hf"
    # The same again, out of the cache: the same bytes, counted the same.
    again = [dot.replace(f"out={tmp_path / 'out'}", f"out={tmp_path / 'again'}") for dot in dots]
    assert textualise(load_config(TextualiseConfig, None, again))[1] == source
    for name in ("corpus.jsonl", "entities.jsonl", "relations.jsonl", "SOURCE.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    json.loads((out / "SOURCE.json").read_text())
