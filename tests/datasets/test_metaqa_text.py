"""MetaQA as text: the folder is a dataset, every triple is stated from both ends, and names keep apart."""

import json

import pytest

from gnnrag.datasets.base import load_dataset
from gnnrag.datasets.kb import RELATIONS, parts_of, read_triples
from gnnrag.datasets.metaqa_text import article, quoted, sentence, templates, write_text
from gnnrag.extract.precomputed import KnowledgeBaseExtractor
from gnnrag.index_config import ExtractConfig
from gnnrag.text.analyse import RULES, analyse

KB = """Night Harbour|directed_by|Vera Lind
Night Harbour|written_by|Vera Lind
Night Harbour|starred_actors|Otto Brandt Jr.
Night Harbour|release_year|1971
Night Harbour|has_tags|vera lind
12|release_year|1971
12|flooded_by|a {brace}
A [b]|starred_actors|Vera Lind
"""
QUESTIONS = {
    "1-hop": [("Who directed Night Harbour?", ["Vera Lind"], "Night Harbour", 1), ("When?", ["1971"], "12", 1)],
    "2-hop": [("Who starred with?", ["A [b]", "Night Harbour"], "Vera Lind", 2)],
}


@pytest.fixture
def films(tmp_path):
    root = tmp_path / "films"
    root.mkdir()
    (root / "kb.txt").write_text(KB, "utf-8")
    for part, rows in QUESTIONS.items():
        lines = [
            {"id": f"{part}-{i}", "question": q, "answers": a, "anchor": n, "hops": h, "type": "t"}
            for i, (q, a, n, h) in enumerate(rows)
        ]
        (root / f"{part}.questions.dev.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    return root


def test_the_folder_is_a_dataset_whose_triples_are_read_back(films, tmp_path):
    out = tmp_path / "out"
    write_text(films, out)
    data = load_dataset(out)
    assert [(q.id, q.gold, q.extra["nodes"]) for q in data.questions] == [
        ("1-hop-0", ("Vera Lind",), ["Vera Lind"]),
        ("1-hop-1", ("1971",), ["1971"]),
        ("2-hop-0", ("A [b]", "Night Harbour"), ["A [b]", "Night Harbour"]),
    ]
    assert [q.id for q in load_dataset(out, "2-hop.dev").questions] == ["2-hop-0"]
    whole = load_dataset(films).nodes
    assert {k: set(v) for k, v in data.nodes.items()} == {k: set(v) for k, v in whole.items()}
    assert read_triples(out / "kb.txt") == read_triples(films / "kb.txt")
    extractor = KnowledgeBaseExtractor(ExtractConfig(path=str(out)))
    extractions = extractor.extract(data.passages, analyse(data.passages, RULES))
    assert {t for e in extractions for t in e.triples} == set(read_triples(films / "kb.txt"))
    assert "“Night Harbour” was directed by Vera Lind." in extractions[0].statements
    with pytest.raises(FileExistsError):
        write_text(films, out)


def test_articles_state_each_triple_by_a_template_that_a_hash_chooses():
    triples = [tuple(line.split("|")) for line in KB.splitlines()]
    texts = {part.id: article(part) for part in parts_of(triples)}
    assert texts["Vera Lind"][0].startswith("Vera Lind is a person. ")
    assert "“12” flooded by “a {brace}”." in texts["12"][0]
    assert "Jr.." not in texts["Night Harbour"][0]
    for triple in triples:
        for topic in (triple[0], triple[2]):
            assert sentence(triple, topic) in texts[topic][0]
    for part in parts_of(triples):
        assert set(texts[part.id][1]) == set(part.neighbours)
    many = [(f"Film {i}", "directed_by", "Vera Lind") for i in range(20)]
    assert [sentence(t, "Vera Lind") for t in many] != [sentence(t, "Vera Lind", seed=1) for t in many]
    assert next(parts_of(triples)).summary(3).startswith("Night Harbour is a movie. Night Harbour was directed by")
    assert templates().keys() == RELATIONS.keys()


@pytest.mark.parametrize(
    ("name", "role", "needs"),
    [("Night Harbour", "movie", True), ("1971", "movie", True), ("1971", "year", False), ("50 Cent", "person", True),
     ("Guy de Maupassant", "person", False), ("olga the Great", "", True), ("“Weird” Al", "person", False)],
)  # fmt: skip
def test_quotation_marks_stand_where_a_reader_could_not_tell_the_name(name, role, needs):
    assert (quoted(name, role) != name) is needs
