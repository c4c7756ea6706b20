"""What a missing benchmark is answered by."""

from pathlib import Path

import pytest

from gnnrag.datasets.releases import advice, releases


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("data/musique", "hf download osunlp/HippoRAG_2 musique.json musique_corpus.json --repo-type dataset"),
        ("x/2WikiMultihopQA_corpus.json", "--local-dir data/2wiki; then data.path=data/2wiki/2wikimultihopqa"),
        ("data/GraphRAG-Bench/novel", "data.path=data/graphrag_bench/novel or data.path=data/graphrag_bench/medical"),
        ("data/ultradomain", "hf download TommyChien/UltraDomain --repo-type dataset"),
        ("data/metaqa", "by hand"),
    ],
)
def test_a_missing_benchmark_is_told_where_to_get(path, command):
    assert command in advice(Path(path)) and not advice(Path("my/notes"))


def test_each_release_says_its_terms():
    assert all({"title", "page", "licence", "read"} <= row.keys() for row in releases().values())
