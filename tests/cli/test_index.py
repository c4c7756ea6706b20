import json
import subprocess
from dataclasses import asdict, replace

import pytest

from gnnrag.cli.app import run as run_command
from gnnrag.config import EmbedderConfig
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from tests.helpers.indexes import CORPUS, HASH, HASH_DOTS, REPOSITORY, artefacts, command, environment


def main(arguments):
    """Run `gnnrag index`; an error of ours is raised."""
    return run_command(["index", *arguments, "--debug"])


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus", CORPUS)


@pytest.fixture
def root(tmp_path, corpus, capsys):
    build(corpus, tmp_path / "index")
    capsys.readouterr()
    return tmp_path / "index"


READ = ["hierarchy", "lexical", "embeddings"]  # what a run of the config needs


def write_corpus(folder, passages):
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(asdict(p)) + "\n" for p in passages), "utf-8")
    return folder


def build(data, path, *dots):
    return main(["build", *HASH_DOTS, f"data.path={data}", f"index.path={path}", *dots])


def documents(root):
    return json.loads((root / "documents.json").read_text("utf-8"))["documents"]


class TestBuild:
    def test_it_says_what_was_done_and_where(self, corpus, tmp_path, capsys):
        path = tmp_path / "index"
        assert build(corpus, path) == 0
        first, last = capsys.readouterr().out.splitlines()
        assert first.startswith("built text, hierarchy, lexical, embeddings in ")
        assert first.endswith(" s; 6 passages")
        assert last == str(path)
        build(corpus, path)
        assert capsys.readouterr().out.startswith("nothing to do in ")
        assert Index(path).ids == [p.id for p in CORPUS]
        build_index(tmp_path / "fresh", CORPUS, HASH, READ)
        assert artefacts(path) == artefacts(tmp_path / "fresh")

    def test_some_stages(self, corpus, tmp_path, capsys):
        build(corpus, tmp_path / "index", "--stages=lexical,hierarchy")
        assert capsys.readouterr().out.startswith("built text, hierarchy, lexical in ")
        assert not Index(tmp_path / "index").has("embeddings")
        with pytest.raises(ConfigError, match="graph"):
            build(corpus, tmp_path / "index", "--stages=graph")

    def test_a_config_file_gives_settings_and_the_default_folder(self, corpus, tmp_path):
        (tmp_path / "my.yaml").write_text(
            f"retriever: dense\ndata:\n  path: {corpus}\n"
            f"index:\n  root: {tmp_path}/indexes\n  embedder:\n    model: hash\n"
        )
        main(["build", str(tmp_path / "my.yaml"), "index.text.title_mode=own"])
        index = Index(tmp_path / "indexes" / "corpus")
        assert index.config.embedder == EmbedderConfig(model="hash")
        assert index.config.text.title_mode == "own"
        assert index.manifest["source"]["path"] == str(corpus)

    def test_own_documents(self, tmp_path, capsys):
        folder = tmp_path / "notes"
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "trip.md").write_text("# A trip\n\nWe went to Missolonghi.\n\n## Food\n\nFish.\n")
        (folder / "list.txt").write_text("Bread and cheese.")
        (folder / "photo.png").write_bytes(b"\x89PNG")
        (folder / "empty.txt").write_text("")
        build(folder, tmp_path / "index")
        told = capsys.readouterr()
        assert "; 3 passages" in told.out
        assert "photo.png" in told.err and "empty.txt" in told.err
        index = Index(tmp_path / "index")
        assert index.ids == ["deep/trip.md#1", "deep/trip.md#2", "list.txt#1"]
        assert [p.title for p in index.passages] == ["A trip", "A trip > Food", "list"]
        (folder / "list.txt").write_text("Bread only.")
        main(["add", str(tmp_path / "index"), str(folder)])
        assert Index(tmp_path / "index").passages[2].text == "Bread only."
        assert "; 3 passages" in capsys.readouterr().out


class TestChange:
    def test_add_replaces_known_ids_and_appends_others(self, root, tmp_path, capsys):
        new = [replace(CORPUS[1], text="Edited."), replace(CORPUS[0], id="p9")]
        assert main(["add", str(root), str(write_corpus(tmp_path / "more", new))]) == 0
        first, last = capsys.readouterr().out.splitlines()
        assert first.startswith("built ") and first.endswith("; 7 passages")
        assert last == str(root)
        wanted = [CORPUS[0], new[0], *CORPUS[2:], new[1]]
        build_index(tmp_path / "fresh", wanted, HASH, READ)
        assert artefacts(root) == artefacts(tmp_path / "fresh")
        main(["add", str(root), str(tmp_path / "more")])
        assert capsys.readouterr().out.startswith("nothing to do")
        parts = [replace(CORPUS[0], id=f"x#{i}") for i in (1, 2)]  # ids of a corpus file are no names of documents
        main(["add", str(root), str(write_corpus(tmp_path / "more", parts))])
        main(["add", str(root), str(write_corpus(tmp_path / "more", parts[:1]))])
        assert Index(root).ids[-2:] == ["x#1", "x#2"]

    def test_remove(self, root, tmp_path, capsys):
        assert main(["remove", str(root), "p1", "p5"]) == 0
        assert "; 4 passages" in capsys.readouterr().out
        build_index(tmp_path / "fresh", [p for p in CORPUS if p.id not in ("p1", "p5")], HASH, READ)
        assert artefacts(root) == artefacts(tmp_path / "fresh")
        with pytest.raises(DataError, match="passage 'p1' is not in the index"):
            main(["remove", str(root), "p1"])
        assert Index(root).ids == ["p2", "p3", "p4", "p6"]

    def test_a_document_that_got_shorter_leaves_nothing_behind(self, tmp_path, capsys):
        folder, root = tmp_path / "docs", tmp_path / "index"
        (folder / "deep").mkdir(parents=True)
        long = "\n\n".join(f"Part {i} of it. " + "word " * 20 for i in range(4))
        for name in ("a.txt", "a.txt.md", "deep/a.txt", "gone.txt"):
            (folder / name).write_text(long.replace("it", name))
        (folder / "faq.jsonl").write_text('{"id": "x", "text": "A first answer."}\n{"text": "A second one."}\n')
        build(folder, root, "data.chunk_words=30", "--stages=lexical")
        before = Index(root).ids
        assert {"a.txt#4", "a.txt.md#4", "deep/a.txt#4", "faq.jsonl:x#1", "faq.jsonl:2#1"} <= set(before)
        (folder / "a.txt").write_text(long[: len(long) // 2].replace("it", "a.txt"))
        (folder / "faq.jsonl").write_text('{"id": "x", "text": "A first answer."}\n')
        (folder / "gone.txt").write_text("")
        main(["add", str(root), str(folder)])
        told = capsys.readouterr().err
        left = set(before) - {"a.txt#3", "a.txt#4", "faq.jsonl:2#1", *(f"gone.txt#{i}" for i in range(1, 5))}
        assert set(Index(root).ids) == left and "gone.txt" in told
        build(folder, tmp_path / "fresh", "data.chunk_words=30", "--stages=lexical")
        assert artefacts(root) == artefacts(tmp_path / "fresh"), "cut as the others are, too"
        main(["add", str(root), str(folder / "deep" / "a.txt")])
        assert {"a.txt#3", "a.txt#4"} <= set(Index(root).ids), "known by the name that it was given with"

    def test_the_report_is_kept_with_the_index_and_follows_it(self, tmp_path, capsys):
        folder, root = tmp_path / "docs", tmp_path / "index"
        folder.mkdir()
        (folder / "a.txt").write_text("A first text.")
        (folder / "b.png").write_bytes(b"x")
        build(folder, root, "--stages=lexical")
        told = capsys.readouterr().err
        assert "2 files: 1 read, 1 skipped; 1 passage\n" in told and "b.png (skipped): unsupported file type" in told
        assert {row["file"]: row["state"] for row in documents(root)} == {"a.txt": "read", "b.png": "skipped"}
        (tmp_path / "c.md").write_text("# C\n\nA third text.")
        main(["add", str(root), str(tmp_path / "c.md")])
        assert [row["file"] for row in documents(root)] == ["a.txt", "b.png", "c.md"]
        main(["remove", str(root), "a.txt"])
        assert [row["file"] for row in documents(root)] == ["b.png", "c.md"] and Index(root).ids == ["c.md#1"]
        (root / "documents.json").write_text("[]")  # a stranger's
        main(["add", str(root), str(tmp_path / "c.md")])
        assert [row["file"] for row in documents(root)] == ["c.md"]

    def test_a_text_of_two_documents_stays_as_long_as_one_of_them(self, tmp_path):
        folder, root = tmp_path / "docs", tmp_path / "index"
        folder.mkdir()
        both = "The two old friends met again in the harbour of Bergen, where the ferry to the islands had just left. "
        for name in ("a.txt", "b.txt", "c.txt"):
            (folder / name).write_text(both)
        build(folder, root, "--stages=lexical")
        assert [(p.id, p.place) for p in Index(root).passages] == [
            (
                "a.txt#1",
                "characters 1-101; the same in b.txt#1 (characters 1-101); the same in c.txt#1 (characters 1-101)",
            )
        ]
        (folder / "a.txt").write_text("Something else.")
        main(["add", str(root), str(folder / "a.txt")])
        assert Index(root).ids == ["a.txt#1", "b.txt#1"]
        assert Index(root).passages[1].place == "characters 1-101; the same in c.txt#1 (characters 1-101)"
        main(["remove", str(root), "b.txt"])
        assert [(p.id, p.place) for p in Index(root).passages][1:] == [("c.txt#1", "characters 1-101")]

    def test_a_document_may_be_named_by_its_path(self, tmp_path, monkeypatch, capsys):
        folder, root = tmp_path / "docs", tmp_path / "index"
        (folder / "deep").mkdir(parents=True)
        for name in ("a.txt", "deep/a.txt", "b.txt"):
            (folder / name).write_text(f"The text of {name}.")
        build(folder, root, "--stages=lexical")
        monkeypatch.chdir(tmp_path)
        (folder / "deep" / "a.txt").unlink()  # gone there before it goes here
        main(["remove", str(root), "docs/deep/a.txt"])
        assert Index(root).ids == ["a.txt#1", "b.txt#1"]
        assert [row["file"] for row in documents(root)] == ["a.txt", "b.txt"]
        for elsewhere in ("deep/a.txt", "other/a.txt", str(tmp_path / "a.txt")):
            with pytest.raises(DataError, match=r"nor a document\..* Allowed: a\.txt, b\.txt"):
                main(["remove", str(root), elsewhere])
        assert Index(root).ids == ["a.txt#1", "b.txt#1"]

    def test_a_document_goes_with_all_its_passages(self, root, tmp_path, capsys):
        folder = tmp_path / "docs"
        folder.mkdir()
        for name in ("a.txt", "aXtxt.txt", "a.txt.md"):
            (folder / name).write_text("\n\n".join(f"Part {i} of {name}. " + "word " * 120 for i in range(2)))
        (folder / "faq.jsonl").write_text('{"id": "x:1", "text": "A first answer."}\n{"text": "A second one."}\n')
        main(["add", str(root), str(folder)])
        assert len([i for i in Index(root).ids if i.startswith("a.txt#")]) > 1
        assert main(["remove", str(root), "a.txt", "p1", "faq.jsonl"]) == 0
        left = {i.partition("#")[0] for i in Index(root).ids}
        assert left == {"a.txt.md", "aXtxt.txt", *(p.id for p in CORPUS if p.id != "p1")}
        with pytest.raises(DataError, match=r"'a\.txt' is not in the index, nor a .*\. Did you mean 'a\.txt\.md'"):
            main(["remove", str(root), "a.txt"])
        (tmp_path / "one.txt").write_text("A single document.")
        main(["add", str(root), str(tmp_path / "one.txt")])
        assert Index(root).ids[-1] == "one.txt#1"


class TestInspect:
    def test_a_row_for_each_stage(self, root, capsys):
        assert main(["inspect", str(root)]) == 0
        out = capsys.readouterr().out
        for text in (
            str(root)[-20:],
            *["text", "hierarchy", "lexical", "embeddings", "MB"],
            "256 dim",
        ):
            assert text in out

    def test_graphs_and_gaps(self, tmp_path, capsys):
        build_index(tmp_path / "index", CORPUS, HASH)
        main(["inspect", str(tmp_path / "index")])
        out = capsys.readouterr().out
        for text in (
            "knowledge: ",
            "connected parts",
            *["hubs", "isolated", "neighbours", "median", "malformed", "current"],
        ):
            assert text in out
        main(["inspect", str(tmp_path / "index"), "--json"])
        found = json.loads(capsys.readouterr().out)
        assert [graph["name"] for graph in found["graphs"]] == ["knowledge", "entity_graph", "hierarchy"]
        assert found["complete"] is True and found["extraction"]["passages"] == len(CORPUS)

    def test_a_page(self, tmp_path, capsys):
        root, page = tmp_path / "index", tmp_path / "deep" / "page.html"
        build_index(root, CORPUS, HASH, ["knowledge"])
        graph = Index(root).knowledge
        hub = graph.names[int(graph.degrees.argmax())]
        for more, title in (
            (["--entity=lord byron"], "Lord Byron"),
            (["--question", "Where was Ada Lovelace born?"], "Where was Ada Lovelace born?"),
            ([], hub),
        ):
            assert main(["inspect", str(root), "--html", str(page), *more]) == 0
            assert capsys.readouterr().out == f"{page}\n"
            assert f"<title>{title} · gnnrag</title>" in page.read_text("utf-8")

    def test_mistakes(self, root, tmp_path):
        drawn, page = tmp_path / "drawn", str(tmp_path / "x.html")
        build_index(drawn, CORPUS, HASH, ["knowledge"])
        for path, more, problem in [
            (drawn, ["--html", page, "--entity", "Nobody"], "the index has no entity 'Nobody'"),
            (root, ["--html", page], r"no knowledge graph to draw; add one with: gnnrag index"),
            (tmp_path, [], "is no index; make one"),
            (tmp_path / "none", [], "is no index; make one"),
        ]:
            with pytest.raises(GnnragError, match=problem):
                main(["inspect", str(path), *more])
        assert not (tmp_path / "none").exists()




@pytest.mark.parametrize(
    "arguments, message",
    [
        (["build", "a.yaml", "b.yaml"], "one config file at most, got a.yaml, b.yaml"),
        (["build", "none.yaml"], "config file 'none.yaml' does not exist"),
        (["build", "retriever=dense", "index.pth=x"], "unknown setting 'index.pth'. Did you mean 'path'?"),
        (["build", "retriever=dense", "data.path=/no/such"], "/no/such"),
        (["add", "/no/such", "README.md"], "error: /no/such is no index; make one: gnnrag index"),
        (["remove", "/no/such", "x"], "error: /no/such is no index; make one: gnnrag index"),
    ],
)
def test_mistakes_are_one_line_and_code_2(arguments, message, capsys):
    assert run_command(["index", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ") and message in told.err
    assert told.err.count("\n") == 1


def test_a_document_that_is_not_there_is_named(root, capsys):
    assert run_command(["index", "add", str(root), "/no/such.md"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: /no/such.md: does not exist; ")


@pytest.mark.slow
def test_as_a_process(corpus, tmp_path):
    def run(*arguments):
        done = subprocess.run(
            command("inference/index.py", *arguments), cwd=REPOSITORY, env=environment(), capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    path = tmp_path / "index"
    code, out, err = run("build", *HASH_DOTS, f"data.path={corpus}", f"index.path={path}")
    assert (code, out.splitlines()[-1]) == (0, str(path))
    assert not err, "bars are for terminals"
    code, out, err = run("--help")
    assert code == 0 and "inspect" in out and not err
    code, out, err = run("remove", str(path), "nope")
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and "Traceback" not in err


def test_the_cost_of_extraction_by_the_model_of_the_index_is_told_before_the_first_call(corpus, capsys):
    dots = [f"data.path={corpus}", "index.extract.format=lightrag", "index.max_calls=9"]
    assert main(["estimate", *dots, "llm.price_in=100000", "llm.price_out=1"]) == 0
    shown = capsys.readouterr()
    rows = {cells[1].strip(): cells[2].strip() for line in shown.out.splitlines() if len(cells := line.split("│")) == 4}
    assert rows["passages"] == "5" and rows["calls"] == "10"
    prompt, completion = (int(rows[f"{kind} tokens"].replace(",", "")) for kind in ("prompt", "completion"))
    assert float(rows["cost"].replace(",", "")) == pytest.approx(prompt / 10 + completion / 1e6, abs=0.01)
    main(["estimate", f"data.path={corpus}", "llm.model=small"])
    told = capsys.readouterr().err
    assert "give llm.price_in" in told and "summaries, reports and curation by a model are not counted" in told
    own = ["index.llm.name=openai", "index.llm.model=small", "index.llm.price_in=7", "index.llm.price_out=7"]
    main(["estimate", f"data.path={corpus}", *own, "llm.price_in=0"])
    shown = capsys.readouterr()
    assert "extraction by small" in shown.out and "price_in" not in shown.err
