"""Settings: layers, shorthand, checks."""

from __future__ import annotations

import pytest

from gnnrag.config import EvaluateConfig, is_given, load_config, to_plain
from gnnrag.errors import ConfigError


def load(*overrides, yaml=None, tmp_path=None):
    source = None
    if yaml is not None:
        source = tmp_path / "c.yaml"
        source.write_text(yaml)
    return load_config(EvaluateConfig, source, overrides)


def test_file_then_overrides(tmp_path):
    text = "data: {limit: 7, split: dev}\nretriever: dense\nindex: {embedder: {model: hash}}\n"
    config = load("data.split=test", "metrics.ks=[1,2]", "method.max_rounds=3", yaml=text, tmp_path=tmp_path)
    assert (config.data.limit, config.data.split, config.metrics.ks) == (7, "test", [1, 2])
    assert (config.retriever.name, config.method.part.max_rounds) == ("dense", 3)
    assert (config.index.embedder.model, config.index.embedder.batch_size) == ("hash", 8)


def test_shorthand_of_parts_and_roles():
    config = load("retriever=dense", "retriever.search=flat", "roles=oracle", "roles.verifier=offline")
    assert to_plain(config.retriever) == {"name": "dense", "search": "flat"}
    assert (config.roles.default, config.roles.verifier.impl) == ("oracle", "offline")


def test_another_part_drops_the_settings_of_the_first(tmp_path):
    text = "retriever: {name: dense, search: flat}\nroles: {verifier: {impl: prompted, model: m}}"
    config = load("retriever=bm25", "roles.verifier=offline", yaml=text, tmp_path=tmp_path)
    assert to_plain(config.retriever) == {"name": "bm25"}
    assert config.roles.verifier.model is None
    assert load("retriever=dense", yaml=text, tmp_path=tmp_path).retriever.part.search == "flat"


def test_presets_lie_below_what_is_given():
    assert load("method.preset=paper", "method.floor=7").method.part.floor == 7
    assert load("method.preset=paper").method.part.promotion == "order_only"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.splt=dev", ("data.splt", "split")),
        ("retreiver=dense", ("retreiver", "retriever")),
        ("retriever=dnese", ("dnese", "dense")),
        ("retriever.serach=flat", ("retriever.serach",)),
        ("retriever.name=dense retriever.search=fast", ("retriever.search", "flat")),
        ("method.max_rounds=-1", ("method.max_rounds", "-1")),
        ("method.query_weights=[1,2]", ("method.query_weights",)),
        ("method.preset=papr", ("method.preset", "paper")),
        ("run.max_bad_replies=2", ("run.max_bad_replies",)),
        ("index.embedder.backend=onnx", ("index.embedder.backend", "openvino")),
        ("data=x", ("data",)),
        ("data.limit", ("data.limit",)),
        ("concurrency=0", ("concurrency",)),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(override, words):
    with pytest.raises(ConfigError) as caught:
        load(*override.split())
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("text", ["- a list", "a: [", "nothing"])
def test_broken_files(text, tmp_path):
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        load(yaml=text, tmp_path=tmp_path)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"musiqe\.yaml"):
        load_config(EvaluateConfig, tmp_path / "musiqe.yaml")
    with pytest.raises(ConfigError, match="folder"):
        load_config(EvaluateConfig, tmp_path)


def test_yaml_words_for_switches_are_texts_where_texts_are_wanted():
    assert load("index.extract.terms=off").index.extract.terms == "off"


def test_a_resolved_config_loads_again():
    config = load("retriever=dense", "roles.verifier=oracle", "method.preset=paper")
    assert to_plain(load_config(EvaluateConfig, to_plain(config))) == to_plain(config)


@pytest.mark.parametrize(
    ("setting", "overrides", "given"),
    [("data.path", ["data.path=x"], True), ("data", ["data.path=x"], True), ("data.path", ["data.split=x"], False)],
)
def test_what_is_given(setting, overrides, given):
    assert is_given(setting, None, overrides) == given
