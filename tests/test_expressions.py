"""What an expression of the caller's own config gives is used, and stands in no record."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli import audit as audit_script
from gnnrag.cli import evaluate as evaluate_script
from gnnrag.cli import index as index_script
from gnnrag.cli import make_questions as questions_script
from gnnrag.cli.console import run_script
from gnnrag.cluster.plan import make_plan
from gnnrag.common.files import Journal, write_json, write_jsonl
from gnnrag.common.yaml_config import expression_of, is_given, recorded, without_credentials, yielded
from gnnrag.config import EvaluateConfig, build_settings, load_config, read_plain, to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index.index import Index
from gnnrag.llm.openai import OpenAIBackend
from gnnrag.run.pipeline import index_settings
from tests.helpers.each import each
from tests.helpers.http_stub import ok, status, stub

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
HOST, WORD, NUMBER = "SEKRET-host", "SEKRET-word", "735173517"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"T_URL": f"http://{HOST}:1/v1", "T_WORD": WORD, "T_NUMBER": NUMBER, "T_MAP": f"{{a: [{WORD}]}}"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def load(tmp_path: Path, text: str, *dots: str) -> EvaluateConfig:
    (tmp_path / "c.yaml").write_text(text)
    return load_config(EvaluateConfig, tmp_path / "c.yaml", dots)


CONFIG = """
llm:
  name: openai
  base_url: ${oc.env:T_URL}
  model: m-${oc.env:T_WORD}
  timeout_s: ${oc.env:T_NUMBER}
  extra_body: ${oc.decode:${oc.env:T_MAP}}
roles:
  reader: {impl: prompted, settings: {base_url: "${llm.base_url}", model: x}}
concurrency: ${oc.decode:${oc.env:T_NUMBER}}
seed: ${concurrency}
"""


@pytest.mark.slow
def test_values_are_used_and_expressions_recorded(tmp_path: Path) -> None:
    config = load(tmp_path, CONFIG)
    llm = config.llm.settings
    assert (llm.base_url, llm.model, llm.timeout_s) == (f"http://{HOST}:1/v1", f"m-{WORD}", 735173517.0)
    assert llm.extra_body == {"a": [WORD]} and config.concurrency == config.seed == 735173517
    assert config.roles.reader.settings["base_url"] == llm.base_url  # type: ignore[attr-defined]
    plain = to_plain(replace(config, shard=None))
    assert plain["llm"]["base_url"] == "${oc.env:T_URL}" and plain["llm"]["model"] == "m-${oc.env:T_WORD}"
    assert plain["llm"]["extra_body"] == "${oc.decode:${oc.env:T_MAP}}" and plain["seed"] == "${concurrency}"
    assert plain["roles"]["reader"]["settings"]["base_url"] == "${llm.base_url}"
    assert "SEKRET" not in json.dumps(plain) and NUMBER not in json.dumps(plain)
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "c.yaml").write_text(json.dumps(plain))
    assert load_config(EvaluateConfig, tmp_path / "again" / "c.yaml") == config, "a record reads as what was written"


def test_values_carry_their_expressions_wherever_they_go(tmp_path: Path) -> None:
    config = load(tmp_path, CONFIG, "index.extract.method=prompted")
    llm: Any = index_settings(config).llm
    settings = build_settings(OpenAIBackend, {k: v for k, v in llm.items() if k != "name"}, "x")
    assert settings == config.llm.settings and to_plain(settings) == {
        k: v for k, v in to_plain(config.llm).items() if k != "name"
    }
    identity = OpenAIBackend(settings).identity
    assert identity["base_url"] == f"http://{HOST}:1/v1", "the cache is keyed by what is used"
    write_json(tmp_path / "a.json", {"identity": dict(identity)})
    write_jsonl(tmp_path / "b.jsonl", [[settings.model]])
    journal = Journal(tmp_path / "c.jsonl")
    journal.append({"x": settings.timeout_s})
    for copied in (copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        journal.append(to_plain(copied))
    journal.close()
    text = "".join((tmp_path / name).read_text() for name in ("a.json", "b.jsonl", "c.jsonl"))
    assert "SEKRET" not in text and NUMBER not in text and "${oc.env:T_URL}" in text


@each("value", ["a", 3, 0.5, [1, "b"], {"c": 2}])
def test_a_value_is_what_it_was(value: Any) -> None:
    marked = yielded(value, "${x}")
    assert marked == value and json.dumps(marked) == json.dumps(value) and isinstance(marked, type(value))
    assert expression_of(marked) == "${x}" and recorded([{"k": marked}]) == [{"k": "${x}"}]
    assert expression_of(value) is None and yielded(None, "${x}") is None and yielded(True, "${x}") is True


def test_only_a_config_is_evaluated() -> None:
    config = read_plain(
        EvaluateConfig, {"data": {"path": "${oc.env:T_WORD}"}, "llm_cache": "a ${concurrency} \\${b} ${"}
    )
    assert config.data.path == "${oc.env:T_WORD}" and config.llm_cache == "a ${concurrency} \\${b} ${"
    settings = build_settings(OpenAIBackend, {"model": "${oc.env:T_WORD}"}, "llm")
    assert settings.model == "${oc.env:T_WORD}"


@pytest.mark.slow
@each("name", ["llm", "method", "retriever"])
def test_a_part_is_named_and_not_computed(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\.name=\$\{{oc\.env:T_WORD\}}: write the name out"):
        load(tmp_path, f"{name}: ${{oc.env:T_WORD}}\n")


@each("text", ["data: {path: '${oc.env:T_NONE}'}", "data: {path: '${nope.x}'}", "a: ${"])
def test_a_wrong_expression_is_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(GnnragError) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_addresses_with_expressions_lose_their_other_secrets() -> None:
    for url, shown in (
        ("${oc.env:T_URL}?key=PW", "${oc.env:T_URL}"),
        ("http://me:PW@${oc.env:H,a/b}/v1?key=PW#PW", "http://${oc.env:H,a/b}/v1"),
        ("http://${oc.env:U}:${oc.env:P}@host/${x}", "http://host/${x}"),
        ("${oc.env:A,${oc.env:B}}/v1", "${oc.env:A,${oc.env:B}}/v1"),
    ):
        assert without_credentials({"base_url": url}) == {"base_url": shown}


@each(
    "setting, overrides, given",
    [
        ("data.path", ["data.path=x"], True), ("data.path", ["data.pat=x"], False), ("data", ["data.split=x"], True),
        ("data.path", ["data={path: x}"], True), ("llm.name", ["llm=openai"], True), ("index.path", [], True),
        ("index.root", [], False), ("llm.name", [], True),
    ],
)  # fmt: skip
def test_what_a_caller_says(setting: str, overrides: list[str], given: bool, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("index: {path: x}\nllm: scripted\n")
    assert is_given(setting, tmp_path / "c.yaml", overrides) is given


# ------------------------------------------------------------------------------------------------------ whole commands
RUN = """
data: {path: PATH, limit: 3}
index: {embedder: {model: hash}, text: {language: "blank:en"}, extract: {language: "${oc.env:T_WORD}"}}
retriever: bm25
method: single
llm_cache: null
run: {group: "${oc.env:T_WORD}"}
roles: {reader: prompted}
llm:
  name: openai
  base_url: ${oc.env:T_URL}
  model: ${oc.env:T_WORD}
  api_key_env: null
  max_retries: 0
  extra_body: {x: "${oc.decode:${oc.env:T_NUMBER}}"}
"""


def files_with(folder: Path, *words: str) -> list[str]:
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [f"{path.relative_to(folder)}: {word}" for word in words if word.encode() in content]
    return found


@pytest.mark.slow
@each("behaviour", [ok("Kalmar"), status(404)])
def test_no_record_of_a_run_holds_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: Any) -> None:
    (tmp_path / "c.yaml").write_text(RUN.replace("PATH", str(SAMPLE)))
    with stub(default=behaviour) as server:
        monkeypatch.setenv("T_URL", server.url)
        places = [f"index.path={tmp_path / 'out' / 'i'}", f"run.root={tmp_path / 'out' / 'r'}"]
        for _ in range(2):  # the second time it goes on
            evaluate_script.main([str(tmp_path / "c.yaml"), *places])
        monkeypatch.setenv("T_WORD", "SEKRET-other")
        evaluate_script.main([str(tmp_path / "c.yaml"), *places])
        assert server.bodies[0]["model"] == WORD and server.bodies[0]["x"] == 735173517
    assert len([path for path in (tmp_path / "out" / "r").iterdir() if path.is_dir()]) == 1, (
        "the expression is the same"
    )
    host = server.url.removeprefix("http://").removesuffix("/v1")
    assert files_with(tmp_path / "out", "SEKRET", NUMBER, host) == []
    assert any("oc.env:T_WORD" in path.read_text() for path in (tmp_path / "out").rglob("config.yaml"))
    assert "oc.env:T_WORD" in (tmp_path / "out" / "i" / "manifest.json").read_text()


@pytest.mark.slow
def test_nor_does_that_of_an_audit_or_of_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RUN.replace("PATH", str(SAMPLE))
    (tmp_path / "c.yaml").write_text(text)
    made = text.replace("roles: {reader: prompted}", "").replace("retriever: bm25", "retriever: hybrid")
    (tmp_path / "q.yaml").write_text(f"{made}make: {{out: {tmp_path / 'out' / 'q'}, author: prompted}}\n")
    with stub(default=ok('{"question": "Who was it?"}')) as server:
        monkeypatch.setenv("T_URL", server.url)
        places = [f"index.path={tmp_path / 'out' / 'i'}", f"run.root={tmp_path / 'out' / 'r'}"]
        audit_script.main([str(tmp_path / "c.yaml"), *places, "audit.labels=type"])
        run_script(questions_script.main, [str(tmp_path / "q.yaml"), places[0], "make.paths=2"], "")
    assert files_with(tmp_path / "out", "SEKRET", NUMBER) == []


@pytest.mark.slow
def test_an_index_that_was_built_with_one_wants_the_config_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spacy

    model = spacy.blank("en")
    model.add_pipe("sentencizer")
    model.to_disk(tmp_path / WORD)
    monkeypatch.setenv("T_WORD", str(tmp_path / WORD))
    (tmp_path / "c.yaml").write_text(RUN.replace("PATH", str(SAMPLE)).replace('"blank:en"', "'${oc.env:T_WORD}'"))
    config, root = load_config(EvaluateConfig, tmp_path / "c.yaml"), tmp_path / "i"
    assert (
        index_script.main(["build", str(tmp_path / "c.yaml"), f"index.path={root}", "index.stages=text,lexical"]) == 0
    )
    assert files_with(root, WORD) == []
    with pytest.raises(ConfigError, match=r"was built with index\.text\.language=\$\{oc\.env:T_WORD\}, an expression"):
        Index(root)
    assert Index(root, config.index).config.text.language == str(tmp_path / WORD)


@pytest.mark.slow
def test_jobs_hold_expressions_too(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(RUN.replace("PATH", str(SAMPLE)))
    for job in make_plan([str(tmp_path / "c.yaml")], tmp_path / "jobs").jobs.values():
        job.write()
    assert files_with(tmp_path / "jobs", "SEKRET", NUMBER) == []
    configs = [path.read_text() for path in (tmp_path / "jobs").rglob("config.yaml")]
    assert len(configs) == 2 and all("model: ${oc.env:T_WORD}" in text for text in configs)


@pytest.mark.slow
@each(
    "text",
    [
        "index: {embedder: '${oc.env:T_WORD}'}",
        "concurrency: ${oc.env:T_WORD}",
        "index: {text: {title_mode: '${oc.env:T_WORD}'}}",
        "run: ${oc.env:T_WORD}",
    ],
)
def test_a_wrong_setting_is_named_by_its_expression(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert WORD not in str(caught.value) and "${oc.env:T_WORD}" in str(caught.value)
    assert WORD not in "".join(traceback.format_exception(caught.value))
