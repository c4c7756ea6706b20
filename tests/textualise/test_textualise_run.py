"""A conversion as a whole: the folder, resuming after a kill, sampling, and what reads the folder afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnnrag import textualise as package
from gnnrag.config import ExtractConfig, load_config
from gnnrag.datasets.base import load_dataset
from gnnrag.datasets.kb import read_triples
from gnnrag.datasets.textualised import read_textualised
from gnnrag.errors import ArtefactError, BudgetError, ConfigError, DataError, LLMError
from gnnrag.extract.precomputed import KnowledgeBaseExtractor
from gnnrag.graphs.folding import fold
from gnnrag.text.analyse import analyse
from gnnrag.textualise import check_folder, textualise
from gnnrag.textualise.prompted import SampleConfig, TextualiseConfig, chosen_entities
from gnnrag.types import Prediction
from tests.helpers.each import each
from tests.helpers.scoring import score

ROOT = Path(__file__).resolve().parents[2]
KB = """Night Harbour|directed_by|Vera Lind
Night Harbour|written_by|Vera Lind
Night Harbour|release_year|1971
Night Harbour|has_tags|harbour
Night Harbour|has_tags|vera lind
12|release_year|1971
12|directed_by|Otto Brandt Jr.
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


def settings(films, out, *more):
    dots = [f"path={films}", f"out={out}", "llm=scripted", "llm_cache=null", *more]
    return load_config(TextualiseConfig, None, dots)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_folder_is_a_dataset(films, tmp_path):
    out, source = textualise(settings(films, tmp_path / "out", "licence=CC0"))
    assert not (tmp_path / "out.work").exists()
    data = load_dataset(out)
    assert [p.id for p in data.passages][:3] == ["Night Harbour", "Vera Lind", "1971"]
    assert not any(c in p.text for p in data.passages for c in "<>")
    assert [(q.id, q.gold, q.extra["anchor"], q.extra["nodes"]) for q in data.questions] == [
        ("1-hop-0", ("Vera Lind",), "Night Harbour", ["Vera Lind"]),
        ("1-hop-1", ("1971",), "12", ["1971"]),
        ("2-hop-0", ("A [b]", "Night Harbour"), "Vera Lind", ["A [b]", "Night Harbour"]),
    ]
    assert [q.id for q in load_dataset(out, "2-hop.dev").questions] == ["2-hop-0"]
    assert set(data.nodes["Vera Lind"]) == {"Vera Lind", "Night Harbour", "A [b]"}
    whole = load_dataset(films).nodes
    assert {k: set(v) for k, v in data.nodes.items()} == {k: set(v) for k, v in whole.items()}
    assert read_triples(out / "kb.txt") == read_triples(films / "kb.txt")
    assert source == json.loads((out / "SOURCE.json").read_text()) and source["licence"] == "CC0"
    assert source["counts"]["triples"] == 8 and source["counts"]["questions"]["1-hop.dev"] == {"kept": 2, "of": 2}
    assert set(source["made"]["inputs"]) == {"kb.txt", "1-hop.questions.dev.jsonl", "2-hop.questions.dev.jsonl"}
    assert set(source["files"]) == set(contents(out)) - {"SOURCE.json"} and not source["usage"]
    found = check_folder(out)
    assert found["uncovered"] == 0 and found["recovered"] == found["stated"] == 16
    rows = [json.loads(line) for line in (out / "relations.jsonl").read_text().splitlines()]
    assert rows[0]["marked"] == "“[Night Harbour]” was directed by [Vera Lind]."
    assert rows[0]["description"] == "“Night Harbour” was directed by Vera Lind."


def test_the_same_command_again_and_another_one(films, tmp_path):
    notes = []
    out, source = textualise(settings(films, tmp_path / "out"))
    before = contents(out)
    assert textualise(settings(films, out), on_note=notes.append) == (out, source) and "finished" in notes[0]
    assert contents(out) == before
    with pytest.raises(ConfigError, match="was not made from this with these settings"):
        textualise(settings(films, out, "seed=1"))
    other, _ = textualise(settings(films, tmp_path / "other", "seed=1"))
    assert contents(other)["corpus.jsonl"] != before["corpus.jsonl"]
    with pytest.raises(ConfigError, match="out is missing"):
        textualise(load_config(TextualiseConfig, None, [f"path={films}"]))
    with pytest.raises(ConfigError, match=r"write\.tries=0"):
        textualise(settings(films, out, "write.tries=0"))
    with pytest.raises(ConfigError, match=r"sample\.entities=99: the knowledge base has 8; null"):
        textualise(settings(films, tmp_path / "new", "sample.entities=99"))


def test_two_commands_at_once_give_one_folder(films, tmp_path, monkeypatch):
    """The second has found nothing finished, and gets the lock once the first has ended and removed its journal."""
    firsts, lock = [], package.exclusive_lock

    def late(path, what):
        if not firsts:
            firsts.append(None)
            firsts[0] = textualise(settings(films, tmp_path / "out"))
        return lock(path, what)

    monkeypatch.setattr(package, "exclusive_lock", late)
    assert textualise(settings(films, tmp_path / "out")) == firsts[0]
    assert {path.name for path in tmp_path.iterdir()} == {"films", "out"}


def test_another_licence_reaches_the_record_and_none_leaves_it(films, tmp_path):
    notes = []
    out, first = textualise(settings(films, tmp_path / "out", "licence=CC0"))
    _, source = textualise(settings(films, out, "licence=CC-BY-4.0"), on_note=notes.append)
    assert source == first | {"licence": "CC-BY-4.0"} == json.loads((out / "SOURCE.json").read_text())
    assert len(notes) == 2 and "now says licence 'CC-BY-4.0'" in notes[1]
    notes.clear()
    assert textualise(settings(films, out), on_note=notes.append)[1] == source and len(notes) == 1


def test_relations_are_words_whatever_they_hold(films, tmp_path):
    """Markup, placeholders and tags in a relation's name stay text."""
    kb = f"{KB}12|goes [with] <b>|harbour\n12|{{head}} of \\[|1971\n"
    (films / "kb.txt").write_text(kb, "utf-8")
    out, _ = textualise(settings(films, tmp_path / "out"))
    assert check_folder(out)["uncovered"] == 0
    rows = [json.loads(line) for line in (out / "relations.jsonl").read_text().splitlines()]
    told = {row["relation"]: row["description"] for row in rows}
    assert "goes [with] <b>" in told["goes [with] <b>"] and "{head} of \\[" in told["{head} of \\["]
    text = next(p.text for p in load_dataset(out).passages if p.id == "12")
    assert "goes [with] <b>" in text and "{head} of \\[" in text


@each("text, message", [("<12> and [1971].", r"does not mark Otto Brandt Jr\.;"), ("<12", "has broken markup: .*;")])
def test_an_article_that_breaks_its_promise_is_refused(films, tmp_path, text, message):
    def stop(stage, done, total):
        if stage == "entity":
            raise KeyboardInterrupt

    config, journal = settings(films, tmp_path / "out"), tmp_path / "out.work" / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        textualise(config, on_progress=stop)
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    edited = [row | {"text": text} if row["key"] == "12" else row for row in rows]
    journal.write_text("".join(json.dumps(row) + "\n" for row in edited))
    with pytest.raises(ArtefactError, match=f"article '12' {message} delete .*out.work and run"):
        textualise(config)
    assert not (tmp_path / "out").exists()


def test_broken_questions_are_refused_before_anything_is_written(films, tmp_path):
    (films / "1-hop.questions.dev.jsonl").write_text('{"id": "x", "question": "?", "answers": ["Oslo"]}\n')
    with pytest.raises(DataError, match="names 'Oslo', which is no entity"):
        textualise(settings(films, tmp_path / "out"))
    assert not (tmp_path / "out.work").exists()


def test_samples_tell_whole_neighbourhoods_and_keep_some_questions_of_each_file(films, tmp_path):
    out, _ = textualise(settings(films, tmp_path / "out", "sample.entities=3", "sample.entities_by=ball"))
    nodes, whole = read_textualised(out).nodes, load_dataset(films).nodes
    assert len(nodes) == 3 and all(set(row.all) == set(whole[id_]) for id_, row in nodes.items())
    assert check_folder(out)["uncovered"] == 0
    out, source = textualise(settings(films, tmp_path / "few", "sample.questions=1"))
    assert [q.extra["hops"] for q in load_dataset(out).questions] == [1, 2]
    assert source["counts"]["questions"]["1-hop.dev"] == {"kept": 1, "of": 2}


def test_samples_are_chosen_by_their_seed():
    triples = [(f"Film {i}", "directed_by", f"Ana {i % 7}") for i in range(60)]
    triples += [(f"Film {i}", "has_genre", "Drama") for i in range(60)]
    uniform = chosen_entities(triples, SampleConfig(entities=20), 0)
    assert len(uniform) == 20 and uniform == chosen_entities(triples[::-1], SampleConfig(entities=20), 0)
    assert uniform != chosen_entities(triples, SampleConfig(entities=20), 1)
    ball = chosen_entities(triples, SampleConfig(entities=12, entities_by="ball", ball_degree=20), 3)
    people = {name for name in ball if name.startswith("Ana")}
    assert len(ball) == 12 and len(people) <= 2, "nothing beyond the hub"
    assert chosen_entities(triples, SampleConfig(), 0) >= {"Drama", "Film 3", "Ana 3"}


def test_the_index_reads_types_descriptions_and_triples(films, tmp_path):
    out, _ = textualise(settings(films, tmp_path / "out"))
    data = load_dataset(out)
    extractor = KnowledgeBaseExtractor(ExtractConfig(method="kb", path=str(out)))
    found = extractor.extract(data.passages, analyse(data.passages, "blank:en"))
    graph = fold(found)
    assert set(graph.names) == {name for head, _, tail in read_triples(films / "kb.txt") for name in (head, tail)}
    relation = {
        (graph.names[h], graph.labels[i], graph.names[t]): graph.texts[i] for i, (h, t) in enumerate(graph.ends)
    }
    assert set(relation) == set(read_triples(films / "kb.txt"))
    assert relation["Night Harbour", "written_by", "Vera Lind"] == "“Night Harbour” was written by Vera Lind."
    types = dict(zip(graph.names, graph.types, strict=True))
    assert (types["Vera Lind"], types["vera lind"], types["1971"]) == ("person", "tag", "year")
    about = dict(zip(graph.names, graph.descriptions, strict=True))
    assert about["12"].startswith("12 is a movie. 12 came out in 1971.")
    edited = [data.passages[0].__class__(data.passages[0].id, data.passages[0].title, "Something else.")]
    assert extractor.extract(edited, analyse(edited, "blank:en")) == [None]
    before = extractor.identity
    (out / "entities.jsonl").write_text("", "utf-8")
    assert KnowledgeBaseExtractor(ExtractConfig(method="kb", path=str(out))).identity != before
    with pytest.raises(DataError, match=r"give a kb\.txt, or a folder"):
        _ = KnowledgeBaseExtractor(ExtractConfig(method="kb", path=str(tmp_path))).identity


def test_nodes_are_resolved_alike_for_every_system(films):
    """TradRAG returns passages alone: their entities and the neighbours they mention are its nodes."""
    data = load_dataset(films)
    rows = [Prediction(q.id, "", ("Night Harbour",), ("Night Harbour",), 1, {}, 0.0) for q in data.questions]
    metrics = score(data.questions, rows, nodes=data.nodes, resamples=0)
    assert metrics["retrieval/node_recall"] == 0 and metrics["context/nodes"] == 5
    # Vera Lind, then 1971, then one of two: each among five nodes.
    assert metrics["retrieval/resolved_recall"] == pytest.approx((1 + 1 + 0.5) / 3, abs=1e-4)
    assert metrics["retrieval/resolved_precision"] == pytest.approx(0.2, abs=1e-4)
    assert metrics["by_hops"]["2"]["retrieval/resolved_f1"] == pytest.approx(2 / 7, abs=1e-4)
    assert "retrieval/resolved_recall" not in score(data.questions, rows, resamples=0)


# ------------------------------------------------------------------------------------------------------- resuming
MODEL = """
import json, re, sys
from gnnrag import textualise as run
from gnnrag.llm.scripted import ScriptedBackend

def reply(request):
    text = request.messages[-1].content
    if "Triples:" in text:
        rows = re.findall(r"^(\\d+)\\. (.+?) \\| (.+?) \\| (.+)$", text, re.M)
        return json.dumps({n: f"[{h}] {r} [{t}]." for n, h, r, t in rows})
    if text.startswith("Kinds:"):
        name = re.search("Name: (.*)", text)[1]
        return json.dumps({"type": "unsure", "description": f"{name} is described here."})
    topic = re.search("Topic: (.*)", text)[1]
    names = re.findall("^- (.+?): ", text.rpartition("<notes>")[2], re.M)
    return f"<{topic}> goes with " + " and ".join(f"[{n}]" for n in names[:2]) + "."

def opened(*_):
    return ScriptedBackend.of(("", reply), latency_s=float(sys.argv[2]))

run.open_backend = opened
from gnnrag.config import load_config
from gnnrag import textualise as run
from gnnrag.textualise.prompted import TextualiseConfig
run.textualise(load_config(TextualiseConfig, None, sys.argv[3:]))
"""


@pytest.mark.slow
def test_killed_and_continued_gives_the_same_bytes(films, tmp_path):
    script = tmp_path / "model.py"
    script.write_text(MODEL)

    def start(out, latency):
        arguments = [f"path={films}", f"out={out}", "llm=scripted", "write.method=prompted"]
        arguments += ["concurrency=2", "llm_cache=null"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, str(script), "-", str(latency), *arguments], env=environment)

    assert start(tmp_path / "whole", 0).wait(60) == 0
    journal = tmp_path / "killed.work" / "journal.jsonl"
    kills = 0
    for least in (2, 9):  # in the articles, and in the descriptions
        process = start(tmp_path / "killed", 0.05)
        while process.poll() is None and (not journal.is_file() or journal.read_bytes().count(b"\n") < least):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        kills += process.wait(30) == -signal.SIGKILL
        assert not (tmp_path / "killed").exists()
    with journal.open("a") as handle:
        handle.write('{"stage": "article", "key": "12", "te')  # a line cut short
    kept = journal.read_bytes().count(b"\n")
    assert kills == 2 and kept >= 9
    assert start(tmp_path / "killed", 0).wait(60) == 0
    assert contents(tmp_path / "whole") == contents(tmp_path / "killed")
    source = json.loads((tmp_path / "whole" / "SOURCE.json").read_text())
    assert source["usage"]["article"]["calls"] == 8 and source["usage"]["entity"]["calls"] == 7
    flags = ("template_article", "template_sentence", "template_description", "template_relation")
    assert source["counts"]["flags"] == dict.fromkeys(flags, 1)


def test_budgets_and_failures_keep_what_is_finished(films, tmp_path):
    rules = "llm.rules=[{match: 'Topic', reply: '<x>'}]"
    config = settings(
        films, tmp_path / "out", "write.method=prompted", "max_calls=3", "write.tries=2", "concurrency=1", rules
    )
    with pytest.raises(BudgetError, match="max_calls=3 is used up"):
        textualise(config)
    journal = tmp_path / "out.work" / "journal.jsonl"
    assert journal.read_bytes().count(b"\n") == 2
    with pytest.raises(LLMError, match=r"entity 'Night Harbour': .*no rule matches"):
        textualise(settings(films, tmp_path / "out", "write.method=prompted", "write.tries=2", rules))
    assert journal.read_bytes().count(b"\n") >= 8
    with pytest.raises(ConfigError, match="the beginning of a conversion with other settings"):
        textualise(settings(films, tmp_path / "out", "write.method=prompted", "write.tries=3", rules))
