"""A stranger's index names servers, keys, files and expressions: nothing goes there, and nothing is read from there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.console import run_script
from gnnrag.cli.index import main as index_main
from gnnrag.config import ExtractConfig, IndexConfig, RoleConfig, TextConfig
from gnnrag.errors import ArtefactError, GnnragError, NotGivenError
from gnnrag.index import build as building
from gnnrag.index import settings as index_settings
from gnnrag.index.build import build_index, update_index
from gnnrag.index.embedder import HashEmbedder, RecordedName
from gnnrag.index.index import Index
from gnnrag.index.plan import stage_states
from gnnrag.index.settings import only_recorded, stored_config
from gnnrag.index.store import Store
from gnnrag.index_config import A_FILE, A_FOLDER, LOCAL, MODEL_LOCAL, MODEL_RECORDED, RECORDED
from gnnrag.registry import BACKENDS, resolve
from gnnrag.types import Passage
from tests.helpers.each import each
from tests.helpers.http_stub import StubServer, ok, stub
from tests.helpers.indexes import CORPUS, HASH, HASH_DOTS, artefacts
from tests.hostile.forging import SECRET

VARIABLE = "GNNRAG_TEST_SECRET"
TRIPLES = '{"entities": ["Ada"], "triples": [["Ada", "knew", "Byron"]], "named_entities": ["Ada"]}'
STAGES = ["lexical", "extraction", "knowledge", "communities", "reports", "tree"]


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubServer]:
    monkeypatch.setenv(VARIABLE, SECRET)
    with stub(default=ok(TRIPLES)) as server:
        yield server


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubServer]:
    with stub(default=ok(TRIPLES)) as server:
        yield server


def forge(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest of an index as a forger would, checksum and all."""
    store = Store(root)
    change(store.manifest)
    store.save()


def server_of(stranger: StubServer) -> dict[str, Any]:
    return {"name": "openai", "model": "m", "base_url": stranger.url, "api_key_env": VARIABLE, "max_retries": 0}


def prompts(llm: dict[str, Any]) -> dict[str, Callable[[dict[str, Any]], None]]:
    """Return ways to have an index ask a model, as the manifests of b2c090d said it."""
    role = {"impl": "prompted", "llm": llm["name"], "settings": {k: v for k, v in llm.items() if k != "name"}}

    def with_settings(**sections: Any) -> Callable[[dict[str, Any]], None]:
        return lambda manifest: manifest["settings"].update(sections)

    return {
        "triples": with_settings(llm=llm, extract={"method": "prompted"}),
        "everything": with_settings(llm=llm, writers={"default": "prompted"}, extract={"method": "prompted"}),
        "report": with_settings(writers={"default": "offline", "report": role}),
        "summary": with_settings(writers={"default": "offline", "summary": role}),
        "curator": with_settings(llm=llm, writers={"curator": {"impl": "prompted"}}, knowledge={"resolve": True}),
    }


WAYS = ["triples", "everything", "report", "summary", "curator"]


@each("way, command", [*((way, "add") for way in WAYS), ("everything", "remove"), ("everything", "build")])
def test_no_server_is_asked_that_an_index_names(
    way: str, command: str, tmp_path: Path, stranger: StubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    root, new = tmp_path / "i", tmp_path / "new.txt"
    new.write_text("A private note.")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = [json.dumps(dataclasses.asdict(p)) for p in CORPUS]
    (corpus / "corpus.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    build_index(root, CORPUS, HASH, STAGES, {"path": str(corpus)})
    forge(root, prompts(server_of(stranger))[way])
    forge(root, lambda manifest: manifest["stages"]["extraction"].pop("settings", None))
    (corpus / "corpus.jsonl").write_text("\n".join(rows[1:]) + "\n", "utf-8")
    arguments = {
        "add": ["add", str(root), str(new)],
        "remove": ["remove", str(root), "p1"],
        "build": ["build", *HASH_DOTS, f"data.path={corpus}", f"index.path={root}", "index.stages=lexical"],
    }[command]
    before = artefacts(root)
    code = run_script(index_main, arguments, "help")
    assert stranger.paths == [], "nothing was sent"
    told = capsys.readouterr().err
    assert code == 2 and told.count("\n") == 1 and artefacts(root) == before, "refused before anything was changed"
    assert "give the config that it was built with, as in gnnrag index add INDEX PATH CONFIG" in told
    assert SECRET not in told


def prompted(server: StubServer, model: str = "m") -> IndexConfig:
    llm = {"name": "openai", "model": model, "base_url": server.url, "api_key_env": None, "max_retries": 0}
    return replace(HASH, extract=ExtractConfig("prompted"), llm=llm, llm_cache=None)


def test_the_callers_server_is_asked_and_no_other(tmp_path: Path, stranger: StubServer, own: StubServer) -> None:
    root, new = tmp_path / "i", Passage("new", "", "A private note.")
    build_index(root, CORPUS, prompted(own), ["extraction"])
    asked = len(own.paths)
    forge(root, lambda manifest: manifest["settings"].update(llm=server_of(stranger)))
    with pytest.raises(
        NotGivenError, match=r"its extraction was written by a model \(triples: openai m, temperature=0"
    ):
        update_index(root, add=[new])
    with pytest.raises(ArtefactError, match=r"is by openai m, .*name openai other, .*or make it anew with"):
        update_index(root, add=[new], caller=prompted(own, "other"))
    assert len(own.paths) == asked
    assert update_index(root, caller=prompted(own, "other")) == [], "nothing has to be asked"
    assert "extraction" in update_index(root, add=[new], caller=prompted(own))
    assert len(own.paths) > asked and all("A private note." in str(body) for body in own.bodies[asked:])
    assert stranger.paths == []


def test_a_run_that_asks_no_model_goes_on_with_what_one_wrote(tmp_path: Path, own: StubServer) -> None:
    root = tmp_path / "i"
    build_index(root, CORPUS, prompted(own), ["extraction"])
    before = artefacts(root)
    assert build_index(root, CORPUS, HASH, ["passages"]) == []
    assert build_index(root, CORPUS, HASH, ["lexical"], keep_edits=True) == ["lexical"]
    assert artefacts(root)["extraction"] == before["extraction"]
    with pytest.raises(NotGivenError, match="its extraction was written by a model"):
        build_index(root, CORPUS[1:], HASH, ["lexical"])
    assert Index(root).ids == [p.id for p in CORPUS]


@pytest.mark.slow
def test_the_command_takes_a_config(tmp_path: Path, own: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    root, (one, two) = tmp_path / "i", (tmp_path / f"{name}.txt" for name in ("one", "two"))
    for path in (one, two):
        path.write_text(f"The note {path.stem}.")
    (tmp_path / "c.yaml").write_text(
        f"llm: {{name: openai, model: m, base_url: '{own.url}', api_key_env: null, max_retries: 0}}\nllm_cache: null\n"
        "retriever: hipporag\nindex:\n  embedder: {model: hash}\n  text: {language: 'blank:en'}\n"
        "  extract: {method: prompted}\n"
    )
    config = str(tmp_path / "c.yaml")
    assert run_script(index_main, ["build", config, f"data.path={one}", f"index.path={root}"], "") == 0
    assert run_script(index_main, ["add", str(root), str(two)], "") == 2
    assert run_script(index_main, ["add", str(root), str(two), "llm.timeout_s=5"], "") == 2
    told = capsys.readouterr().err
    assert told.count("give index.llm.name and its settings") == 2, "the default model is not meant"
    assert run_script(index_main, ["add", str(root), str(two), config], "") == 0
    assert Index(root).ids == ["one.txt#1", "two.txt#1"]
    assert run_script(index_main, ["remove", str(root), "one.txt", config, "llm.timeout_s=5"], "") == 0
    assert Index(root).ids == ["two.txt#1"]


def test_no_expression_of_an_index_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    root, expression = tmp_path / "i", f"${{oc.env:{VARIABLE}}}"
    build_index(root, CORPUS, HASH, ["lexical"])
    plain = dict(Store(root).manifest["settings"])
    for section, name in (("text", "language"), ("extract", "language"), ("embedder", "model"), ("graph", "norm")):
        changed = {**plain, section: {**plain[section], name: expression}}
        forge(root, lambda manifest, changed=changed: manifest.update(settings=changed))  # type: ignore[misc]
        for use in (
            Index,
            update_index,
            lambda path: stage_states(Store(path)),
            lambda path: stored_config(Store(path)),
        ):
            with pytest.raises(GnnragError) as caught:
                use(root)  # type: ignore[operator]
            assert SECRET not in str(caught.value) and expression in str(caught.value)
    role = {"impl": "offline", "options": {"summary_sentences": expression}}
    forge(root, lambda manifest: manifest.update(settings={**plain, "writers": {"default": "offline", "report": role}}))
    assert SECRET not in repr(Index(root).config)


@pytest.mark.slow
@each("language", ["numpy", "spacy.tests", "../numpy", "auto", "spacy", "a folder: 00", [], "/tmp"])
def test_an_index_has_no_package_imported_and_no_folder_read(language: Any, tmp_path: Path) -> None:
    build_index(tmp_path, CORPUS, HASH, ["hierarchy"])
    forge(tmp_path, lambda manifest: manifest["stages"]["text"]["info"].update(language=language))
    forge(tmp_path, lambda manifest: manifest["settings"]["text"].update(language=language))
    with pytest.raises(GnnragError) as caught:
        Index(tmp_path).question_phrases("Who?")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_spacy_folder_is_the_caller_s_and_questions_are_analysed_by_it(tmp_path: Path) -> None:
    spacy, folders = pytest.importorskip("spacy"), [tmp_path / name for name in ("one", "two")]
    for folder, name in zip(folders, ("the father of Ada", "a poet"), strict=True):
        nlp = spacy.blank("en")
        nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": name}])
        nlp.to_disk(folder)
    given, another = (replace(HASH, text=TextConfig(language=str(folder))) for folder in folders)
    root, asked = tmp_path / "i", "Who is the father of Ada Lovelace?"
    build_index(root, CORPUS, given, ["hierarchy"])
    assert str(tmp_path) not in (root / "manifest.json").read_text()
    assert Index(root, given).question_phrases(asked)[0] == "the father of Ada"
    for caller in (None, HASH):
        with pytest.raises(NotGivenError, match=r"give index\.text\.language=FOLDER"):
            Index(root, caller).question_phrases(asked)
    with pytest.raises(ArtefactError, match="another spaCy model"):
        Index(root, another).question_phrases(asked)
    assert stage_states(Store(root))["hierarchy"] == "current"
    with pytest.raises(NotGivenError):
        update_index(root, add=[Passage("n", "", "New.")])
    assert update_index(root, add=[Passage("n", "", "New.")], caller=given)
    assert not build_index(root, Index(root).passages, given, ["hierarchy"])


def test_what_auto_stood_for_stays_when_a_model_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.text.analyse.spacy_models", lambda: [])
    build_index(tmp_path, CORPUS, replace(HASH, text=TextConfig(language="auto")), ["hierarchy"])
    monkeypatch.setattr("gnnrag.text.analyse.spacy_models", lambda: ["en_core_web_sm"])
    assert Index(tmp_path).question_phrases("When did Lord Byron die?") == ["Lord Byron"]
    assert not update_index(tmp_path) and not build_index(tmp_path, CORPUS, HASH, ["hierarchy"])
    assert stage_states(Store(tmp_path))["text"] == "current"


def test_a_file_that_an_index_names_is_not_read(tmp_path: Path) -> None:
    root, (secret, mine, other) = tmp_path / "i", (tmp_path / f"{name}.jsonl" for name in ("secret", "mine", "other"))
    for path, triple in ((secret, "x"), (mine, "Ada"), (other, "Ben")):
        rows = [
            {"id": p.id, "entities": [], "triples": [[triple, "is", "here"]]} for p in (*CORPUS, Passage("n", "", ""))
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings, new = replace(HASH, extract=ExtractConfig("precomputed", str(mine))), Passage("n", "", "New.")
    build_index(root, CORPUS, settings, ["extraction"])
    assert str(mine) not in (root / "manifest.json").read_text()
    forge(root, lambda manifest: manifest["settings"]["extract"].update(path=str(secret)))
    assert Index(root).config.extract.path == A_FILE
    with pytest.raises(NotGivenError, match=r"give index\.extract\.path=FILE"):
        update_index(root, add=[new])
    with pytest.raises(ArtefactError, match="extraction was made with another file"):
        update_index(root, add=[new], caller=replace(HASH, extract=ExtractConfig(path=str(other))))
    moved = mine.rename(tmp_path / "moved.jsonl")
    assert update_index(root, add=[new], caller=replace(HASH, extract=ExtractConfig(path=str(moved))))
    assert Index(root).read("extraction")[-1].triples == (("Ada", "is", "here"),)


def test_a_schema_that_an_index_names_is_not_read(tmp_path: Path) -> None:
    root, (secret, mine) = tmp_path / "i", (tmp_path / f"{name}.yaml" for name in ("secret", "mine"))
    for path in (secret, mine):
        path.write_text(f"person: a human being of {path.stem}\n")
    settings = replace(HASH, knowledge=replace(HASH.knowledge, schema=str(mine)))
    build_index(root, CORPUS, settings, ["knowledge"])
    forge(root, lambda manifest: manifest["settings"]["knowledge"].update(schema=str(secret)))
    with pytest.raises(NotGivenError, match=r"give index\.knowledge\.schema=FILE"):
        update_index(root, remove=["p1"])
    with pytest.raises(ArtefactError, match="knowledge was made with another file"):
        update_index(root, remove=["p1"], caller=replace(HASH, knowledge=replace(HASH.knowledge, schema=str(secret))))
    assert "knowledge" in update_index(root, remove=["p1"], caller=settings)


class Weighed(HashEmbedder):
    """An embedder of a folder, known by what is in its one file."""

    def __init__(self, folder: str) -> None:
        self.weights = (Path(folder) / "w").read_text()
        self.identity = f"hash-{self.weights}"


@pytest.mark.slow
def test_an_embedder_in_a_folder_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = building.make_embedder

    def make(config: Any) -> Any:
        return Weighed(config.model) if Path(config.model).is_dir() else plain(config)

    monkeypatch.setattr(building, "make_embedder", make)
    monkeypatch.setattr(index_settings, "make_embedder", make)
    root, (mine, other) = tmp_path / "i", (tmp_path / name for name in ("mine", "other"))
    for folder in (mine, other):
        folder.mkdir()
        (folder / "w").write_text(folder.name)

    def caller(folder: Path) -> IndexConfig:
        return replace(HASH, embedder=replace(HASH.embedder, model=str(folder)))

    build_index(root, CORPUS, caller(mine), ["embeddings", "lexical"])
    assert str(mine) not in (root / "manifest.json").read_text()
    assert Index(root).config.embedder.model == A_FOLDER and Index(root).bm25_scores(["Ada"]).shape == (1, 6)
    for old in (False, True):  # b2c090d noted the folder, and no digest
        if old:
            forge(root, lambda manifest: manifest["settings"]["embedder"].update(model=str(other)))
            forge(root, lambda manifest: manifest.pop("embedder_weights"))
        with pytest.raises(NotGivenError, match=r"give index\.embedder\.model=FOLDER"):
            Index(root).dense_scores(["Ada"])
        with pytest.raises(ArtefactError, match="made with an embedder of other weights"):
            Index(root, caller(other)).dense_scores(["Ada"])
        assert Index(root, caller(mine)).dense_scores(["Ada"]).shape == (1, 6)
    with pytest.raises(NotGivenError, match=r"give index\.embedder\.model=FOLDER"):
        update_index(root, remove=["p1"])
    with pytest.raises(ArtefactError, match="made with an embedder of other weights"):
        update_index(root, remove=["p1"], caller=caller(other))
    assert "embeddings" in update_index(root, remove=["p1"], caller=caller(mine))


def test_a_name_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index(tmp_path / "i", CORPUS, HASH, ["lexical"])
    forge(tmp_path / "i", lambda manifest: manifest["settings"]["embedder"].update(model="some/model"))
    (tmp_path / "some" / "model").mkdir(parents=True)
    (tmp_path / "some" / "model" / "modules.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    index = Index("i")
    assert isinstance(index.config.embedder.model, RecordedName)
    with pytest.raises(NotGivenError, match=r"not fetched before.*give index\.embedder\.model=some/model"):
        index.embedder.encode(["x"])


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    from gnnrag.config import EmbedderConfig
    from gnnrag.index.embedder import SentenceEmbedder

    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Part: pass\n")
    (tmp_path / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Part"}]))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ArtefactError, match=r"names code of its own, 'evil\.Part'"):
        SentenceEmbedder(EmbedderConfig(str(tmp_path), "torch")).encode(["x"])
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------------------------------------------- the allow-list
def test_every_setting_of_an_index_is_recorded_or_the_callers() -> None:
    def classes(kind: type) -> Iterator[type]:
        yield kind
        for one in dataclasses.fields(kind):  # type: ignore[arg-type]
            if dataclasses.is_dataclass(inner := getattr(kind(), one.name)):
                yield from classes(type(inner))

    found = set(classes(IndexConfig))
    assert found == RECORDED.keys() and len(found) > 9
    for kind in found:
        names = [one.name for one in dataclasses.fields(kind)]  # type: ignore[arg-type]
        assert sorted((*RECORDED[kind], *LOCAL.get(kind, ()))) == sorted(names), kind.__name__


@each("name", BACKENDS)
def test_every_setting_of_a_backend_is_recorded_or_the_callers(name: str) -> None:
    names = {one.name for one in dataclasses.fields(resolve("llm", name, BACKENDS).config_class)}
    assert names <= {*MODEL_RECORDED, *MODEL_LOCAL} and not {*MODEL_RECORDED} & {*MODEL_LOCAL}
    assert "base_url" not in MODEL_RECORDED and "api_key_env" not in MODEL_RECORDED


def test_nothing_else_gets_into_a_manifest_or_out_of_it() -> None:
    report = {"impl": "prompted", "path": "/w", "model": "/m", "options": {"prompt": "/p.yaml", "max_tokens": 5}}
    settings = {"path": "/p", "llm": {"base_url": "http://x"}, "no_such": 1, "knowledge": {"schema": "/s"}}
    settings |= {"embedder": {"device": "cuda", "model": "/m"}, "writers": {"report": report}}
    assert only_recorded(settings) == {
        "embedder": {"model": A_FOLDER}, "knowledge": {"schema": A_FILE},
        "writers": {"report": {"impl": "prompted", "options": {"max_tokens": 5}}},
    }  # fmt: skip


def test_the_manifest_names_the_model_and_no_address(tmp_path: Path, own: StubServer) -> None:
    build_index(tmp_path, CORPUS, replace(prompted(own), writers=replace(HASH.writers, triples=RoleConfig(
        options={"max_tokens": 99}))), ["extraction"])  # fmt: skip
    text = (tmp_path / "manifest.json").read_text()
    assert own.url not in text and "api_key" not in text and "127.0.0.1" not in text
    model = Store(tmp_path).manifest["models"]["triples"]
    assert model["backend"] == "openai" and model["model"] == "m" and model["max_tokens"] == 99 and model["prompts"]
