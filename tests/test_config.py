from __future__ import annotations

import json
import operator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gnnrag import registry
from gnnrag.config import Choice, EvaluateConfig, IndexConfig, RoleConfig, build_settings, load_config, to_plain
from gnnrag.datasets.base import load_passages
from gnnrag.errors import ConfigError
from gnnrag.judge.answers import JudgeConfig
from gnnrag.methods.baselines import SingleConfig
from gnnrag.methods.bdtr import BDTR
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.training.gnn_data import TrainGNNConfig
from tests.helpers.each import each

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted((ROOT / "configs" / "evaluate").glob("*.yaml"))


def load(*overrides: str, yaml: str | None = None, tmp_path: Path | None = None) -> EvaluateConfig:
    source = None
    if yaml is not None:
        assert tmp_path is not None
        source = tmp_path / "own.yaml"
        source.write_text(yaml, "utf-8")
    return load_config(EvaluateConfig, source, overrides)


def test_defaults_are_not_shared() -> None:
    load().metrics.ks.append(3)
    assert 3 not in load().metrics.ks


def test_file_then_overrides(tmp_path: Path) -> None:
    text = "data: {limit: 7}\nmethod: {name: bdtr, max_rounds: 1}\nretriever: dense\nindex: {embedder: {model: hash}}"
    config = load("method.max_rounds=3", "data.split=test", "metrics.ks=[1,2]", yaml=text, tmp_path=tmp_path)
    assert (config.data.limit, config.data.split) == (7, "test")
    assert config.method.settings == BDTR(max_rounds=3)
    assert config.retriever == Choice("dense", DenseRetriever())
    assert config.index.embedder.model == "hash" and config.index.embedder.batch_size == 8
    assert config.metrics.ks == [1, 2]


def test_the_last_override_counts() -> None:
    assert load("seed=1", "seed=2").seed == 2


def test_shorthand_of_parts() -> None:
    config = load("method=single", "retriever=dense", "retriever.search=hnsw", "llm=scripted")
    assert config.method == Choice("single", SingleConfig())
    assert config.retriever == Choice("dense", DenseRetriever(search="hnsw"))
    assert config.llm.name == "scripted"
    assert load("retriever.name=dense").retriever == load("retriever=dense").retriever


def test_shorthand_of_roles(tmp_path: Path) -> None:
    assert load("roles=oracle").roles.default == "oracle"
    config = load("roles=prompted", "roles.verifier=oracle", "roles.reader.options.parser=robust")
    assert (config.roles.default, config.roles.verifier.impl) == ("prompted", "oracle")
    assert config.roles.reader == RoleConfig(options={"parser": "robust"})
    config = load(yaml="roles: {default: offline, verifier: oracle}", tmp_path=tmp_path)
    assert config.roles.verifier == RoleConfig("oracle") and config.roles.default == "offline"
    assert load(yaml="roles: prompted", tmp_path=tmp_path).roles.default == "prompted"


def test_a_method_may_name_its_default_retriever(tmp_path: Path) -> None:
    assert load_config(EvaluateConfig, None, ["method=graphsearch"]).retriever.name == "lightrag"
    assert load_config(EvaluateConfig, None, ["method=bdtr"]).retriever.name == "chg"
    path = tmp_path / "c.yaml"
    path.write_text("method: graphsearch\nretriever: minirag\n")
    assert load_config(EvaluateConfig, path).retriever.name == "minirag"
    assert load_config(EvaluateConfig, path, ["method=single", "retriever=dense"]).retriever.name == "dense"


def test_another_part_drops_the_settings_of_the_first(tmp_path: Path) -> None:
    text = "method: {name: bdtr, max_rounds: 1}\nretriever: {name: dense, search: hnsw}"
    config = load("method=single", "retriever.name=bm25", yaml=text, tmp_path=tmp_path)
    assert config.method == Choice("single", SingleConfig())
    assert config.retriever == Choice("bm25", None)


def test_the_same_part_keeps_its_settings(tmp_path: Path) -> None:
    config = load("method=bdtr", yaml="method: {name: bdtr, max_rounds: 1}", tmp_path=tmp_path)
    assert config.method.settings.max_rounds == 1
    # Settings may come before the name they belong to.
    assert load("retriever.search=hnsw", "retriever=dense").retriever.settings.search == "hnsw"


def test_another_form_of_a_role_drops_the_options_of_the_first(tmp_path: Path) -> None:
    text = "roles: {verifier: {impl: prompted, model: m, options: {mode: pointwise}}}"
    config = load("roles.verifier=oracle", yaml=text, tmp_path=tmp_path)
    assert config.roles.verifier == RoleConfig("oracle")
    config = load("roles.verifier=prompted", yaml=text, tmp_path=tmp_path)
    assert config.roles.verifier == RoleConfig("prompted", model="m", options={"mode": "pointwise"})


@each(
    "override, message",
    [
        ("retreiver=dense", "unknown setting 'retreiver'. Did you mean 'retriever'?"),
        ("data.pth=x", "unknown setting 'data.pth'. Did you mean 'path'?"),
        ("index.embedder.modl=hash", "unknown setting 'index.embedder.modl'. Did you mean 'model'?"),
        ("method.max_round=1", "unknown setting 'method.max_round'. Did you mean 'max_rounds'?"),
        ("llm.base_ulr=x", "unknown setting 'llm.base_ulr'. Did you mean 'base_url'?"),
        ("roles.verifer=oracle", "unknown setting 'roles.verifer'. Did you mean 'verifier'?"),
        ("roles.verifier.optins={}", "unknown setting 'roles.verifier.optins'. Did you mean 'options'?"),
        ("retriever=dence", "retriever='dence' is unknown. Did you mean 'dense'?"),
        ("method=bdrt", "method='bdrt' is unknown. Did you mean 'bdtr'?"),
        ("llm=opeani", "llm='opeani' is unknown. Did you mean 'openai'?"),
        ("retriever=zzz", "retriever='zzz' is unknown. Allowed: bm25"),
    ],
)
def test_a_misspelt_name_is_met_with_the_nearest(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(override)
    assert message in str(caught.value) and "Allowed: " in str(caught.value)


@each(
    "override, message",
    [
        ("index.extract.method=offlien", "index.extract.method='offlien': allowed are offline, precomputed, kb"),
        ("index.tree.cluster=gm", "index.tree.cluster='gm': allowed are anchors, gmm, kmeans"),
        ("index.writers=promted", "index.writers.default='promted': allowed are offline, prompted"),
        ("index.writers.report=oracle", "index.writers.report='oracle': allowed are prompted, offline"),
        ("data.missing_gold=keep", "data.missing_gold='keep': allowed are error, drop"),
    ],
)
def test_a_misspelt_value_is_refused_whether_or_not_a_stage_reads_it(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("retriever=dense", "method=single", override)
    assert message in str(caught.value)


def test_every_text_setting_of_an_index_says_what_it_allows_or_takes_any() -> None:
    free = {"root", "model", "language", "device"}  # files, models, languages, devices
    index = IndexConfig()
    sections = [index, *(v for f in fields(index) if is_dataclass(v := getattr(index, f.name)))]
    texts = {f.name: "allowed" in f.metadata for s in sections for f in fields(s) if f.type in ("str", str)}
    assert len(texts) > 20 and {name for name, is_checked in texts.items() if not is_checked} == free


def test_values_in_the_sections_of_a_mapping_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"sets\.one\.index\.tree\.cluster='gm': allowed are anchors"):
        load_config(TrainGNNConfig, {"sets": {"one": {"index": {"tree": {"cluster": "gm"}}}}})


def test_a_misspelt_key_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'run\.fersh'. Did you mean 'fresh'"):
        load(yaml="run: {fersh: true}", tmp_path=tmp_path)


def test_settings_of_a_part_without_settings() -> None:
    with pytest.raises(ConfigError, match="retriever has no settings, but got k"):
        load("retriever=bm25", "retriever.k=3")
    assert build_settings(registry.resolve("retriever", "bm25", registry.RETRIEVERS), {}, "retriever") is None


@each(
    "override, names",
    [
        ("seed=x", "seed"),
        ("data.limit=many", "data.limit"),
        ("data.path=null", "data.path"),
        ("data.path={a: 1}", "data.path"),
        ("metrics.ks=[a]", "metrics.ks[0]"),
        ("metrics.ks=5", "metrics.ks"),
        ("method.max_rounds=two", "method.max_rounds"),
        ("method.query_weights=3", "method.query_weights"),
        ("run.fresh=maybe", "run.fresh"),
        ("data=5", "data=5: is a section, with the keys path, split"),
        ("budget=null", "budget=None: is a section"),
        ("retriever=5", "retriever=5: give a name"),
        ("retriever=[a]", "retriever=['a']: give a name"),
        ("retriever=", "retriever=None: give a name"),
        ("retriever.name=5", "retriever={'name': 5}: give a name"),
        ("roles=5", "roles=5: give a name"),
        ("roles.verifier=5", "roles.verifier=5: give a name"),
        ("data.path=${nothing}", "data.path"),
    ],
)
def test_a_wrong_type_names_the_setting(override: str, names: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("retriever=bm25", override)
    assert names in str(caught.value)


@each("override", ["seed", "=3", "--seed"])
def test_not_key_value(override: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form key=value"):
        load(override)


def test_an_override_that_is_no_yaml() -> None:
    with pytest.raises(ConfigError, match=r"override 'data.path=\[' cannot be read"):
        load("data.path=[")


@each(
    "text, problem",
    [("data: [", "not valid YAML"), ("- a\n- b", "must hold a mapping"), ("a: 1\n a: 2", "not valid YAML")],
)
def test_broken_files(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        load(yaml=text, tmp_path=tmp_path)
    assert "own.yaml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a folder, and no config file: .* data\.path="):
        load_config(EvaluateConfig, tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"is an index, and no config file: index\.path="):
        load_config(EvaluateConfig, tmp_path)
    with pytest.raises(ConfigError, match=r"absent\.yaml' does not exist; give a YAML file such as"):
        load_config(EvaluateConfig, tmp_path / "absent.yaml")


def test_settings_and_sample_that_ship_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "configs/evaluate/sample.yaml"
    monkeypatch.chdir(tmp_path)
    assert load_config(EvaluateConfig, name).data.path == "data/sample"
    assert len(load_passages("data/sample").passages) > 10


def test_a_file_that_is_not_there_is_looked_for_beside_it_and_among_its_kind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give a YAML file such as configs/judge/scores\.yaml"):
        load_config(JudgeConfig, tmp_path / "absent.yaml")
    (tmp_path / "musique.yaml").write_text("{}")
    with pytest.raises(ConfigError, match=r"musiqe\.yaml' does not exist; give a YAML file such as /.*/musique\.yaml"):
        load_config(EvaluateConfig, tmp_path / "musiqe.yaml")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(yaml="", tmp_path=tmp_path) == load()


def test_plain_form_is_json_and_loads_to_the_same(tmp_path: Path) -> None:
    config = load("method=bdtr", "method.max_rounds=1", "retriever=hybrid", "retriever.settings.dense.search=hnsw",
                  "roles.verifier=oracle", "data.limit=3")  # fmt: skip
    plain = to_plain(config)
    assert plain["method"]["name"] == "bdtr" and plain["method"]["max_rounds"] == 1
    assert plain["roles"]["verifier"]["impl"] == "oracle"
    text = json.dumps(plain)
    assert load(yaml=text, tmp_path=tmp_path) == config
    assert to_plain({"a": (1, 2), 3: [Choice("x")]}) == {"a": [1, 2], "3": [{"name": "x"}]}


@each("path", CONFIGS)
def test_every_config_loads_and_is_short(path: Path) -> None:
    load_config(EvaluateConfig, path)
    assert len(path.read_text("utf-8").splitlines()) <= 40


REGISTERED = [
    *((f"{kind}", name, table) for kind, table in (("retriever", registry.RETRIEVERS), ("method", registry.METHODS),
                                                   ("llm", registry.BACKENDS)) for name in table),
    *((f"roles.{role}", impl, table) for role, table in registry.ROLES.items() for impl in table),
]  # fmt: skip


@each("kind, name, table", REGISTERED)
def test_every_registered_name_is_a_class_whose_defaults_load(kind: str, name: str, table: dict[str, str]) -> None:
    cls: Any = registry.resolve(kind, name, table)
    assert isinstance(cls, type) and cls.__module__ == table[name].partition(":")[0]
    assert cls.__doc__
    build_settings(cls, {}, kind)


def test_an_override_inside_of_what_is_no_section_is_one_error():
    with pytest.raises(ConfigError, match=r"override 'run.root=x' cannot be read, or does not fit the config"):
        load_config(EvaluateConfig, {"run": [[]]}, ["run.root=x"])


@each(
    "settings, setting",
    [
        (["llm.structured=off"], "llm.settings.structured"),
        (["llm.name=hf", "llm.structured=off"], "llm.settings.structured"),
        (["method.name=graphsearch", "method.views.background=off"], "method.settings.views.background"),
        (["retriever.name=hypergraphrag", "retriever.seed_fallback=off"], "retriever.settings.seed_fallback"),
    ],
)
def test_off_needs_no_quotes(settings: list[str], setting: str, tmp_path: Path) -> None:
    """YAML reads it as false, on the command line and in a file."""
    (tmp_path / "a.yaml").write_text(OmegaConf.to_yaml(OmegaConf.from_dotlist(settings)).replace("false", "off"))
    for given in ((None, settings), (tmp_path / "a.yaml", [])):
        assert operator.attrgetter(setting)(load_config(EvaluateConfig, *given)) == "off"
    assert load_config(EvaluateConfig, None, ["method=bdtr", "method.bgec=off"]).method.settings.bgec is False
